//! The archive: older versions that can still be read, and what is let go.
//!
//! ```text
//!  snapshots   s1 ........ s2 ............ s3 ....... head's snapshot
//!  runs        [.........][......][......][.........]
//!                   ^ pin      ^ retained from
//! ```
//!
//! A version is read from the newest snapshot at or below it and the runs
//! from there on. What nothing needs is let go: its objects move to `released`,
//! from where the next sweep deletes them by name. So the cost of letting go
//! follows what goes, and no listing has to find it.
//!
//! Each snapshot carries what the next one no longer has (`replaced`). An
//! object of a snapshot is staged when the first snapshot that has it is built,
//! and none that was left out comes back. So `staged` alone says whether an
//! older snapshot has it too, and letting a snapshot go needs no index.
//!
//! # Architecture invariants
//!
//! - Everything that the archive names is reached by the head that names the
//!   archive; a released object is not.
//! - An object leaves the archive only into `released`, or because it is
//!   deleted.

#[cfg(test)]
mod archive_test;
mod keep;
mod mend;

use alloc::collections::BTreeSet;
use alloc::vec::Vec;

pub use self::keep::{Keep, Kept, Moved, REPLAY_BYTES_MAX};
pub use self::mend::Lost;
use crate::head::{ArchiveRef, Head, ObjectRef, Pin, RunRef, SnapshotRef};
use crate::id::{HistoryId, PinName};
use crate::keys::ObjectKey;
use crate::version::StateVersion;

/// A segment of an older part of the history.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ArchivedRun {
    /// The segment.
    pub run: RunRef,
    /// The earliest time at which any of its changes was decided, in
    /// milliseconds since 1970.
    pub decided_from_ms: u64,
    /// The latest one.
    pub decided_to_ms: u64,
}

/// An older snapshot.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ArchivedSnapshot {
    /// It.
    pub snapshot: SnapshotRef,
    /// Whether it names objects of the history that this one was forked from.
    pub needs_base: bool,
    /// Chunks and index pages that are in it and not in the next one, or not in
    /// the head's after the last.
    pub replaced: Vec<ObjectKey>,
}

/// What is kept of the versions before a head's snapshot.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Archive {
    /// The history.
    pub history_id: HistoryId,
    /// In the order of versions, with gaps where only pins keep anything.
    pub runs: Vec<ArchivedRun>,
    /// In the order of versions.
    pub snapshots: Vec<ArchivedSnapshot>,
    /// What the next sweep deletes by name.
    pub released: Vec<ObjectKey>,
}

/// A change of the archive, durable and ready to be published.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArchiveUpdate {
    /// The archive that it was made from: the head must still name it.
    pub based_on: Option<ArchiveRef>,
    /// The archive that takes its place; `None` for an empty one.
    pub becomes: Option<ArchiveRef>,
    /// Objects that `becomes` names and `based_on` does not: durable, and held
    /// to the publishing rule (PROTOCOL 7).
    pub named: Vec<ObjectRef>,
    /// Segments that the head names and will not: every one that a compaction
    /// takes from the head must be among them, or nobody would ever delete it.
    pub accounted: Vec<ObjectKey>,
    /// Versions before `becomes.retained_from` that can still be read.
    pub pinned: BTreeSet<StateVersion>,
    /// Pins of forks whose snapshots it keeps.
    pub forks: BTreeSet<PinName>,
    /// Pins that go.
    pub expired: Vec<Pin>,
    /// Whether anything still names objects of the base.
    pub needs_base: bool,
}

/// Where a version is read from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Way {
    /// The newest snapshot at or below it.
    pub snapshot: SnapshotRef,
    /// The runs from there on; the last may go past the version.
    pub runs: Vec<RunRef>,
}

impl Archive {
    /// Nothing is kept.
    pub fn empty(history_id: HistoryId) -> Self {
        Self { history_id, runs: Vec::new(), snapshots: Vec::new(), released: Vec::new() }
    }

    /// Whether there is nothing in it.
    pub fn is_empty(&self) -> bool {
        self.runs.is_empty() && self.snapshots.is_empty() && self.released.is_empty()
    }

    /// How to read `version`, which is before the head's snapshot. `None` where
    /// it is not kept.
    pub fn way_to(&self, version: StateVersion) -> Option<Way> {
        let base = self.snapshots.iter().rfind(|it| it.snapshot.version <= version)?;
        let from = base.snapshot.version;
        let mut runs = Vec::new();
        let mut last = from;
        for it in self.runs.iter().map(|it| &it.run).filter(|it| from < it.to) {
            if version <= last {
                break;
            }
            // A run may begin before the snapshot, never after what is at hand.
            if last.next() < it.from {
                return None;
            }
            runs.push(it.clone());
            last = it.to;
        }
        (version <= last).then(|| Way { snapshot: base.snapshot.clone(), runs })
    }

    /// The runs that lead from `after` to the head's snapshot without a gap;
    /// `None` where one is missing.
    pub fn runs_after(&self, after: StateVersion, head: &Head) -> Option<Vec<RunRef>> {
        let mut last = after;
        let mut runs = Vec::new();
        for it in self.runs.iter().map(|it| &it.run).filter(|it| after < it.to) {
            if last.next() < it.from {
                return None;
            }
            runs.push(it.clone());
            last = it.to;
        }
        (head.snapshot.version <= last).then_some(runs)
    }

    /// What publishes this archive, which is the one of `head` with nothing
    /// but released objects taken out. `becomes` is where it was written;
    /// `None` if it is empty.
    pub fn as_update(&self, head: &Head, becomes: Option<ObjectRef>) -> ArchiveUpdate {
        let retained_from = head.retained_from();
        let pins = head.pins.iter().map(|it| it.version);
        ArchiveUpdate {
            based_on: head.archive.clone(),
            becomes: becomes.map(|object| ArchiveRef { retained_from, object }),
            named: Vec::new(),
            accounted: Vec::new(),
            pinned: pins.filter(|it| *it < retained_from).collect(),
            forks: head.forks().map(|it| it.name.clone()).collect(),
            expired: Vec::new(),
            needs_base: head.base.is_some(),
        }
    }

    /// Every object that the archive names itself. Snapshots reach more.
    pub fn references(&self) -> impl Iterator<Item = &ObjectRef> {
        let runs = self.runs.iter().map(|it| &it.run.object);
        runs.chain(self.snapshots.iter().map(|it| &it.snapshot.object))
    }
}
