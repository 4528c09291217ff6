//! What a sweep may delete (PROTOCOL 7).
//!
//! ```text
//! publish sweepFrom = B --> read the head --> delete what it does not reach
//!                                             and was staged below B
//! ```
//!
//! After the first step every successor is built on a head whose boundary is at
//! least B, so nothing staged below B can be named again that the head read in
//! the second step does not reach; and what that head reaches only becomes
//! less. So the order makes it safe, not the time between the steps.
//!
//! Folders whose live part is small are listed whole. Of the others only what
//! was staged since the last sweep is: what is older was reached then, and what
//! has been let go since is known by name (see [`crate::archive`]).

#[cfg(test)]
mod sweep_test;

use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use crate::archive::Archive;
use crate::head::{Head, SnapshotRef};
use crate::keys::{ObjectKey, ObjectKind};
use crate::version::Revision;

/// A sweep, planned from the head that was read after the boundary was raised.
#[derive(Clone, Debug)]
pub struct Sweep {
    below: Revision,
    from: Revision,
    reached: BTreeSet<ObjectKey>,
    snapshots: Vec<SnapshotRef>,
    released: Vec<ObjectKey>,
}

/// What a sweep thinks of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Judgement {
    /// The head reaches it.
    Reached,
    /// It was staged at the boundary or later: a head may yet name it.
    Young,
    /// It was listed, no head reaches it, and none ever will.
    Unreached,
    /// Retention let it go.
    Released,
}

impl Judgement {
    /// Whether the object may be deleted.
    pub fn is_deletable(self) -> bool {
        match self {
            Self::Unreached | Self::Released => true,
            Self::Reached | Self::Young => false,
        }
    }
}

impl Sweep {
    /// Plans a sweep of everything below the boundary of `head`, which names
    /// `archive`. `is_full`: also of what an earlier sweep has seen, to find
    /// what was uploaded late by a process that had stalled.
    ///
    /// Before anything of [`Sweep::needs_snapshots`] is judged, everything that
    /// [`Sweep::snapshots`] reach must have been told by [`Sweep::reach`].
    pub fn of(head: &Head, archive: &Archive, is_full: bool) -> Self {
        let below = head.sweep_from;
        let from = if is_full { Revision::new(0) } else { head.swept_to };
        let archived = archive.references().filter(|_| !planted!(ArchiveUnreached));
        let named = head.references().chain(archived);
        let reached: BTreeSet<_> = named.map(|it| it.key.clone()).collect();
        let older = archive.snapshots.iter().map(|it| &it.snapshot);
        // A snapshot reaches nothing that was staged after itself.
        let snapshots = older
            .chain([&head.snapshot])
            .filter(|it| from <= it.object.key.staged())
            .cloned()
            .collect();
        let is_due = |it: &&ObjectKey| it.staged() < below && !reached.contains(*it);
        let released = archive.released.iter().filter(is_due).cloned().collect();
        Self { below, from, reached, snapshots, released }
    }

    /// The boundary: what was staged at or after it is left alone.
    pub fn below(&self) -> Revision {
        self.below
    }

    /// Where the listing of a folder begins: at the first object staged at this
    /// revision.
    pub fn lists_from(&self, kind: ObjectKind) -> Revision {
        match kind {
            // Folds and the window let go of these without naming them; few are
            // live at a time.
            ObjectKind::Change | ObjectKind::Receipts | ObjectKind::Archive => Revision::new(0),
            ObjectKind::Segment | ObjectKind::Snapshot | ObjectKind::Chunk | ObjectKind::Data => {
                self.from
            }
        }
    }

    /// Snapshots that may reach what is listed, and have to be read before
    /// any of it is judged.
    pub fn snapshots(&self) -> &[SnapshotRef] {
        &self.snapshots
    }

    /// Whether judging objects of this kind takes what the snapshots reach.
    pub fn needs_snapshots(kind: ObjectKind) -> bool {
        match kind {
            ObjectKind::Snapshot | ObjectKind::Chunk | ObjectKind::Data => true,
            ObjectKind::Change
            | ObjectKind::Segment
            | ObjectKind::Receipts
            | ObjectKind::Archive => false,
        }
    }

    /// Takes in an object that one of the snapshots reaches.
    pub fn reach(&mut self, key: ObjectKey) {
        // Others are not listed.
        if self.from <= key.staged() && key.staged() < self.below {
            self.reached.insert(key);
        }
    }

    /// Judges an object that was listed.
    pub fn judge(&self, key: &ObjectKey) -> Judgement {
        if self.reached.contains(key) {
            Judgement::Reached
        } else if self.below <= key.staged() && !planted!(YoungDeleted) {
            Judgement::Young
        } else {
            Judgement::Unreached
        }
    }

    /// What retention let go and may be deleted now, by name.
    pub fn released(&self) -> &[ObjectKey] {
        &self.released
    }
}

impl Archive {
    /// The archive after `deleted` are gone; `None` where nothing changes.
    #[must_use]
    pub fn without_released(&self, deleted: &BTreeSet<ObjectKey>) -> Option<Self> {
        let mut rest = self.clone();
        rest.released.retain(|it| !deleted.contains(it));
        (rest.released.len() < self.released.len()).then_some(rest)
    }
}
