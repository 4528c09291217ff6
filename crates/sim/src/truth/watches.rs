//! What watches tell: every version after the one that was named, whole, in
//! order, each once.

use std::collections::BTreeMap;

use bytes::Bytes;
use headwater_core::change::{Change, Resolved};
use headwater_core::operation::KeyRange;
use headwater_replica::{ReadFailure, WatchEvent, WatchMessage, WatchedChange};

use super::{History, Truth};
use crate::model::after;

/// What one party was told so far.
#[derive(Clone, Debug)]
pub(crate) struct Watched {
    filter: KeyRange,
    /// Everything up to here was told.
    after: u64,
    /// What was told of the next version, which came in parts.
    part: Vec<Row>,
    /// The state, while it is being told.
    state: Option<State>,
}

/// An operation's id, and what it did.
type Row = (String, Resolved);

#[derive(Clone, Debug)]
struct State {
    version: u64,
    rows: BTreeMap<Bytes, (Bytes, u64)>,
}

impl Watched {
    pub(crate) fn from_the_beginning(filter: KeyRange) -> Self {
        Self { filter, after: 0, part: Vec::new(), state: None }
    }

    pub(crate) fn after(&self) -> u64 {
        self.after
    }

    /// A watch begins where the last whole version ended.
    pub(crate) fn begins(&mut self) {
        self.part.clear();
        self.state = None;
    }
}

impl Truth {
    /// A watch told something.
    pub(crate) fn watched(
        &mut self,
        head_key: &str,
        told: &mut Watched,
        event: u64,
        message: &WatchMessage,
    ) {
        let Some(history) = self.histories.get(head_key) else { return };
        let before = told.after;
        let wrong = match &message.event {
            WatchEvent::Change(change) => {
                self.tally.watched += u64::from(!change.is_continued);
                history.check_change(told, change)
            }
            WatchEvent::Progress { newest, .. } => {
                let most = history.newest_at(event);
                let resume_after = message.resume_after.get();
                let is_known = resume_after <= newest.get() && newest.get() <= most;
                let wrong = (!is_known).then(|| format!("progress to {newest}, it is {most}"));
                wrong.or_else(|| history.check_passed(told, resume_after))
            }
            WatchEvent::SnapshotBegin(version) => {
                told.state = Some(State { version: version.get(), rows: BTreeMap::new() });
                (version.get() < before).then(|| format!("the state goes back to {version}"))
            }
            WatchEvent::SnapshotEntries(entries) => match &mut told.state {
                None => Some("entries come without a state".into()),
                Some(state) => {
                    let rows = entries.iter().map(|it| {
                        (it.key.as_bytes().clone(), (it.value.clone(), it.version.get()))
                    });
                    state.rows.extend(rows);
                    None
                }
            },
            WatchEvent::SnapshotEnd(version) => history.check_state(told, version.get()),
        };
        let resume_after = message.resume_after.get();
        let wrong = wrong.or_else(|| {
            // While the state is told, nothing before it counts any more.
            let is_here = resume_after == told.after || told.state.is_some();
            (!is_here).then(|| format!("goes on after {resume_after}, told up to {}", told.after))
        });
        if let Some(what) = wrong {
            self.violation(format!("{head_key}: a watch after {before}, event {event}: {what}"));
        }
    }

    /// A watch ended, and named where to go on.
    pub(crate) fn watch_ended(&mut self, head_key: &str, told: &Watched, resume_after: u64) {
        let Some(history) = self.histories.get(head_key) else { return };
        let mut passed = told.clone();
        if let Some(what) = history.check_passed(&mut passed, resume_after) {
            self.violation(format!("{head_key}: a watch ended after {}: {what}", told.after));
        }
    }

    /// A watch could not go on.
    pub(crate) fn watch_failed(&mut self, head_key: &str, told: &Watched, failure: &ReadFailure) {
        let Some(history) = self.histories.get(head_key) else { return };
        let is_possible = match failure {
            ReadFailure::FreshnessUnverified { .. }
            | ReadFailure::StoreUnavailable { .. }
            | ReadFailure::Expired { .. }
            | ReadFailure::TooManyHistories { .. }
            | ReadFailure::ShuttingDown => true,
            // Only where a head has let go of the next version.
            ReadFailure::VersionRetired { .. } => {
                history.head.as_ref().is_some_and(|it| told.after < it.retained_from().get())
            }
            ReadFailure::VersionAhead { wanted, .. } => history.newest() < wanted.get(),
            ReadFailure::HistoryMissing { .. }
            | ReadFailure::StoredDataBad { .. }
            | ReadFailure::FormatTooNew { .. }
            | ReadFailure::Denied { .. } => false,
        };
        if !is_possible {
            self.violation(format!("{head_key}: a watch after {} is told {failure:?}", told.after));
        }
    }

    /// Whether there is nothing that was not told.
    pub(crate) fn has_told_all(&self, head_key: &str, told: &Watched) -> bool {
        let Some(history) = self.histories.get(head_key) else { return true };
        history.check_passed(&mut told.clone(), history.newest()).is_none()
    }
}

impl History {
    /// What the filter takes of a version.
    fn taken(&self, filter: &KeyRange, version: u64) -> Vec<Row> {
        let change = usize::try_from(version).ok().and_then(|it| self.changes.get(it));
        change.map_or_else(Vec::new, |it| taken(filter, it))
    }

    /// Moves on to `to`, over versions of which there is nothing to tell.
    fn check_passed(&self, told: &mut Watched, to: u64) -> Option<String> {
        if to < told.after {
            return Some(format!("goes back to {to}"));
        }
        let skipped = (told.after + 1..=to).find(|it| !self.taken(&told.filter, *it).is_empty());
        if skipped.is_none() {
            told.after = to;
        }
        skipped.map(|it| format!("{it} is left out, on the way to {to}"))
    }

    fn check_change(&self, told: &mut Watched, change: &WatchedChange) -> Option<String> {
        let version = change.version.get();
        if version <= told.after {
            return Some(format!("{version} is told again"));
        }
        if told.state.is_some() {
            return Some(format!("{version} comes in the middle of the state"));
        }
        if let Some(wrong) = self.check_passed(told, version - 1) {
            return Some(wrong);
        }
        let rows = change.mutations.iter();
        told.part.extend(rows.map(|it| (it.operation_id.as_str().to_owned(), it.kind.clone())));
        if change.is_continued {
            return None;
        }
        let whole = std::mem::take(&mut told.part);
        told.after = version;
        let expected = self.taken(&told.filter, version);
        (whole != expected).then(|| format!("{version} is told as {whole:?}, was {expected:?}"))
    }

    fn check_state(&self, told: &mut Watched, version: u64) -> Option<String> {
        let Some(state) = told.state.take() else { return Some("a state ends twice".into()) };
        told.after = version;
        if state.version != version || self.newest() < version {
            return Some(format!("the state at {} ends as that at {version}", state.version));
        }
        let rows = self.model.entries(&told.filter, None, after(version));
        let expected: BTreeMap<_, _> =
            rows.map(|(key, value, at)| (key.clone(), (value.clone(), at))).collect();
        (state.rows != expected).then(|| format!("the state at {version} is another one"))
    }
}

/// What a range takes of a change: mutations of its keys, and the parts of
/// deletions that are in it.
fn taken(filter: &KeyRange, change: &Change) -> Vec<Row> {
    let operations = change.operations.iter();
    let all = operations.flat_map(|operation| {
        let id = operation.id.as_str().to_owned();
        operation.mutations.iter().map(move |it| (id.clone(), it))
    });
    let clip = |mutation: &Resolved| match mutation {
        Resolved::Put(key, _) | Resolved::Delete(key) => {
            filter.contains(key.as_ref()).then(|| mutation.clone())
        }
        Resolved::DeleteRange(range) => {
            let start = range.start().max(filter.start()).clone();
            let ends = [range.end(), filter.end()].into_iter().flatten();
            KeyRange::new(start, ends.min().cloned()).ok().map(Resolved::DeleteRange)
        }
    };
    all.filter_map(|(id, mutation)| Some((id, clip(mutation)?))).collect()
}
