//! When versions were decided, by their writers' clocks: for people, who know a
//! moment and want the version. Nothing else looks at these times.

use std::collections::VecDeque;

use headwater_core::head::Head;
use headwater_core::version::StateVersion;
use headwater_state::{LoadedChange, Loader, StateError};

use crate::local::Pinned;

/// Times of the versions of the tail, which would take reading all of it to
/// find out. 8 bytes each, and as many as the tail has, which writers bound.
#[derive(Debug, Default)]
pub(crate) struct Times {
    /// The version of the first one.
    first: StateVersion,
    decided_at_ms: VecDeque<u64>,
}

/// A version and when it was decided, in milliseconds since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VersionAt {
    /// The version.
    pub version: StateVersion,
    /// `None` for version 0, which nobody decided.
    pub decided_at_ms: Option<u64>,
}

impl Times {
    /// Takes in what was followed, and forgets what `head` has moved out of the
    /// tail.
    pub(crate) fn push(&mut self, changes: &[LoadedChange], head: &Head) {
        for change in changes {
            if self.next() != Some(change.version) {
                self.decided_at_ms.clear();
                self.first = change.version;
            }
            self.decided_at_ms.push_back(change.change.decided_at_ms);
        }
        while self.first < head.tail_from() && self.decided_at_ms.pop_front().is_some() {
            self.first = self.first.next();
        }
    }

    fn next(&self) -> Option<StateVersion> {
        let count = self.decided_at_ms.len() as u64;
        (0 < count).then(|| StateVersion::new(self.first.get() + count))
    }

    /// The times of `from` to `to`; `None` where some are not here.
    pub(crate) fn between(
        &self,
        from: StateVersion,
        to: StateVersion,
    ) -> Option<Vec<(StateVersion, u64)>> {
        if to < from {
            return Some(Vec::new());
        }
        let skip = from.get().checked_sub(self.first.get())?;
        let count = to.since(from) + 1;
        let times = self.decided_at_ms.iter().skip(usize::try_from(skip).ok()?);
        let versions = (from.get()..).map(StateVersion::new);
        let times: Vec<_> =
            versions.zip(times.copied()).take(usize::try_from(count).ok()?).collect();
        (times.len() as u64 == count).then_some(times)
    }
}

/// The newest version up to that of `pinned` that was decided at `time_ms` or
/// before. `None` where all that are kept were decided later.
///
/// `tail` is what is known of the tail up to there; it is read where that is
/// `None`. Of the archive those runs are read that hold earlier changes, newest
/// first, until one is found: with clocks that agree, that is one run.
pub(crate) async fn version_at(
    tail: Option<Vec<(StateVersion, u64)>>,
    loader: &Loader,
    pinned: &Pinned,
    time_ms: u64,
) -> Result<Option<VersionAt>, StateError> {
    let head = pinned.head();
    let upto = pinned.version();
    let fit = |(version, ms): (StateVersion, u64)| {
        let is_fit = version <= upto && ms <= time_ms;
        is_fit.then_some(VersionAt { version, decided_at_ms: Some(ms) })
    };
    let tail = match tail {
        Some(tail) => tail,
        None => timed(&loader.read_changes(head, head.tail_from(), usize::MAX).await?),
    };
    if let Some(found) = tail.into_iter().rev().find_map(fit) {
        return Ok(Some(found));
    }
    let from = head.retained_from();
    let archive = loader.archive(head).await?;
    for it in archive.runs.iter().rev().filter(|it| from <= it.run.to && it.run.from <= upto) {
        if time_ms < it.decided_from_ms {
            continue;
        }
        let changes = timed(&loader.read_run(&it.run, from).await?);
        if let Some(found) = changes.into_iter().rev().find_map(fit) {
            return Ok(Some(found));
        }
    }
    let is_from_the_beginning = from == StateVersion::ZERO;
    let first = VersionAt { version: StateVersion::ZERO, decided_at_ms: None };
    Ok(is_from_the_beginning.then_some(first))
}

fn timed(changes: &[LoadedChange]) -> Vec<(StateVersion, u64)> {
    changes.iter().map(|it| (it.version, it.change.decided_at_ms)).collect()
}
