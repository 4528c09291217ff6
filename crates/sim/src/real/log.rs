//! What clients were told, and whether it is so.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use headwater_core::id::OperationId;
use headwater_core::operation::{Key, KeyRange, Operation, Precondition};
use tokio::time::Instant;

use super::Outcome;
use super::witness::Seen;
use crate::model::{Model, Place, after};
use crate::truth::Row;

/// One operation, from its first submission to the end of its last one.
#[derive(Debug)]
pub(super) struct Sent {
    pub(super) operation: Operation,
    /// Since the log began.
    pub(super) begun: Duration,
    pub(super) answered: Duration,
    pub(super) ended: Ended,
}

/// How an operation ended for its client.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Ended {
    Accepted {
        place: (u64, u32),
        sums: Vec<i64>,
    },
    /// `is_final`: it was told that nothing of it can be applied any more.
    Rejected {
        at: u64,
        is_final: bool,
    },
    Unknown,
    NotApplied,
    Open,
}

/// One read.
#[derive(Debug)]
pub(super) struct ReadBack {
    pub(super) key: Key,
    pub(super) sent: Duration,
    pub(super) answered: Duration,
    pub(super) version: u64,
    /// What its session had seen before.
    pub(super) at_least: u64,
    pub(super) value: Option<(Bytes, u64)>,
    pub(super) is_strong: bool,
}

impl ReadBack {
    fn took(&self) -> Duration {
        self.answered.saturating_sub(self.sent)
    }
}

#[derive(Debug)]
pub(super) struct Log {
    began: Instant,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    sent: Vec<Sent>,
    reads: Vec<ReadBack>,
    everything: Option<(u64, Vec<Row>)>,
    violations: Vec<String>,
    failed: usize,
    first_failures: Vec<String>,
}

/// Failed calls of which a run says more than that they failed.
const FAILURES_TOLD_MAX: usize = 8;

impl Log {
    pub(super) fn begin() -> Self {
        Self { began: Instant::now(), state: Mutex::default() }
    }

    pub(super) fn now(&self) -> Duration {
        self.began.elapsed()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn sent(&self, sent: Sent) {
        self.state().sent.push(sent);
    }

    pub(super) fn read(&self, read: ReadBack) {
        self.state().reads.push(read);
    }

    pub(super) fn everything(&self, version: u64, rows: Vec<Row>) {
        self.state().everything = Some((version, rows));
    }

    pub(super) fn violation(&self, what: String) {
        self.state().violations.push(what);
    }

    /// A call that its client gave up, after all that it tried by itself.
    pub(super) fn failed(&self, what: impl FnOnce() -> String) {
        let now = self.now();
        let mut state = self.state();
        state.failed += 1;
        if state.first_failures.len() < FAILURES_TOLD_MAX {
            state.first_failures.push(format!("after {now:.1?}: {}", what()));
        }
    }

    /// Replays what the witness has seen, and compares everything with it.
    pub(super) fn check(&self, seen: &Seen) -> Outcome {
        let mut state = self.state();
        let State { sent, reads, everything, violations, failed, first_failures } = &mut *state;
        violations.extend(seen.violations.iter().cloned());
        let mut check = Check { model: Model::default(), places: BTreeMap::new(), violations };
        check.replay(sent, seen);
        let last = seen.changes.last().map_or(0, |it| it.version.get());
        let sizes: Vec<u32> = [0]
            .into_iter()
            .chain(seen.changes.iter().map(|it| size(it.change.operations.len())))
            .collect();
        for it in sent.iter() {
            check.ended(it, &sizes);
        }
        for it in reads.iter() {
            check.read(it, last);
        }
        check.order(sent, reads);
        match everything {
            Some((version, rows)) => check.everything(*version, rows, last),
            None => check.fail("nobody has read everything".into()),
        }
        Outcome {
            violations: violations.clone(),
            operations: sent.len(),
            reads: reads.len(),
            reads_by_second: by_second(reads),
            slowest_read: reads.iter().map(ReadBack::took).max().unwrap_or_default(),
            open: sent.iter().filter(|it| it.ended == Ended::Open).count(),
            versions: seen.changes.len(),
            failed: *failed,
            first_failures: first_failures.clone(),
            faults: Vec::new(),
        }
    }
}

fn by_second(reads: &[ReadBack]) -> Vec<usize> {
    let mut counts = BTreeMap::<u64, usize>::new();
    for it in reads {
        *counts.entry(it.answered.as_secs()).or_default() += 1;
    }
    let end = counts.keys().next_back().copied().unwrap_or_default();
    (0..end).map(|second| counts.get(&second).copied().unwrap_or_default()).collect()
}

fn size(len: usize) -> u32 {
    u32::try_from(len).unwrap_or(u32::MAX)
}

struct Check<'a> {
    model: Model,
    /// Where each operation is in the history.
    places: BTreeMap<OperationId, (Place, Vec<i64>)>,
    violations: &'a mut Vec<String>,
}

impl Check<'_> {
    fn fail(&mut self, what: String) {
        self.violations.push(what);
    }

    /// Every version against what was asked for.
    fn replay(&mut self, sent: &[Sent], seen: &Seen) {
        let by_id: BTreeMap<_, _> = sent.iter().map(|it| (&it.operation.id, it)).collect();
        for change in &seen.changes {
            for (position, operation) in (0..).zip(&change.change.operations) {
                let place = Place { version: change.version.get(), position };
                let id = &operation.id;
                let sums: Vec<i64> = operation.results.iter().map(|it| it.sum).collect();
                if let Some((before, _)) = self.places.insert(id.clone(), (place, sums)) {
                    self.fail(format!("{id} is in {before:?} and again in {place:?}"));
                }
                match by_id.get(id) {
                    None => self.fail(format!("{id} in {place:?} was sent by nobody")),
                    Some(sent) => {
                        let request = &sent.operation.request;
                        let is_same = sent.operation.request_hash == operation.request_hash;
                        let resolved = self.model.resolve(request, place);
                        let is_so = resolved.is_some_and(|(mutations, results)| {
                            mutations == operation.mutations && results == operation.results
                        });
                        if !is_same || !is_so || self.model.obstacle(request, place).is_some() {
                            self.fail(format!("{id} must not be in {place:?} as {operation:?}"));
                        }
                    }
                }
                self.model.apply(place, &operation.mutations);
            }
        }
    }

    fn ended(&mut self, sent: &Sent, sizes: &[u32]) {
        let id = &sent.operation.id;
        let found = self.places.get(id);
        let what = match (&sent.ended, found) {
            (Ended::Accepted { place, sums }, Some((found, found_sums))) => {
                let is_so = *place == (found.version, found.position) && sums == found_sums;
                (!is_so).then(|| format!("is in {found:?} with {found_sums:?}"))
            }
            (Ended::Accepted { .. }, None) => Some("is not in the history".to_owned()),
            (Ended::Rejected { is_final: true, .. } | Ended::NotApplied, Some((found, _))) => {
                Some(format!("is in {found:?}"))
            }
            (Ended::Rejected { at, .. }, _) => self.rejection(sent, *at, sizes),
            (Ended::NotApplied | Ended::Unknown | Ended::Open, _) => None,
        };
        if let Some(what) = what {
            self.fail(format!("{id} was told {:?} and {what}", sent.ended));
        }
    }

    /// A rejection is true of the version that it names, or of a moment in it.
    fn rejection(&self, sent: &Sent, at: u64, sizes: &[u32]) -> Option<String> {
        let request = &sent.operation.request;
        // Deletions before the snapshot are not on record: such a rejection may
        // be one that nothing else explains.
        let may_be_too_old = request.preconditions().iter().any(|it| {
            matches!(
                it,
                Precondition::KeyUnchangedSince(..) | Precondition::RangeUnchangedSince(..)
            )
        });
        let size = usize::try_from(at).ok().and_then(|it| sizes.get(it)).copied();
        let Some(size) = size else { return Some(format!("there is no v{at}")) };
        let inside = (0..size).map(|position| Place { version: at, position });
        let is_true =
            inside.chain([after(at)]).any(|it| self.model.obstacle(request, it).is_some());
        (!is_true && !may_be_too_old).then(|| format!("v{at} does not reject it"))
    }

    fn read(&mut self, read: &ReadBack, last: u64) {
        let ReadBack { key, version, at_least, value, .. } = read;
        let expected = self.model.value(key.as_ref(), after(*version));
        let is_so = expected == value.as_ref().map(|it| (&it.0, it.1));
        if !is_so || *version < *at_least || last < *version {
            let expected = expected.map(|it| (it.0.clone(), it.1));
            self.fail(format!("{read:?}: it was {expected:?}, the last version is {last}"));
        }
    }

    /// What ended before something began is before it: accepted operations by
    /// their places, strong reads by their versions.
    fn order(&mut self, sent: &[Sent], reads: &[ReadBack]) {
        let writes = sent.iter().filter_map(|it| match &it.ended {
            Ended::Accepted { place, .. } => {
                let is_write = true;
                Some((it.begun, it.answered, *place, is_write))
            }
            Ended::Rejected { .. } | Ended::Unknown | Ended::NotApplied | Ended::Open => None,
        });
        let strong = reads.iter().filter(|it| it.is_strong);
        let strong = strong.map(|it| (it.sent, it.answered, (it.version, u32::MAX), false));
        let all: Vec<_> = writes.chain(strong).collect();
        let mut by_end: Vec<_> = all.iter().map(|it| (it.1, it.2)).collect();
        by_end.sort_unstable();
        let mut by_begin = all;
        by_begin.sort_unstable();
        let (mut ended, mut newest) = (by_end.into_iter().peekable(), (0, 0));
        for (begin, _, place, is_write) in by_begin {
            while let Some((_, it)) = ended.next_if(|(end, _)| *end < begin) {
                newest = newest.max(it);
            }
            // A read of a version sees the whole of it.
            let is_after = if is_write { newest < place } else { newest.0 <= place.0 };
            if !is_after {
                self.fail(format!("{place:?} began at {begin:?}, after {newest:?} had ended"));
            }
        }
    }

    fn everything(&mut self, version: u64, rows: &[Row], last: u64) {
        let range = KeyRange::everything();
        let entries = self.model.entries(&range, None, after(version));
        let expected: Vec<_> = entries.map(|it| (it.0.clone(), it.1.clone(), it.2)).collect();
        if expected != *rows || version != last {
            let (n, of) = (rows.len(), expected.len());
            self.fail(format!("the state at v{version} of v{last} is another: {n} rows, not {of}"));
        }
    }
}
