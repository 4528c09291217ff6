//! Putting a snapshot in the place of a damaged one of the same version.
//!
//! Apart from [`Successor::compact`] on purpose. A compaction is made from the
//! snapshot that it takes the place of, moves it to the archive, and must move
//! on: everything that it checks leans on a snapshot that can be read. This one
//! is made because the head's cannot, from an older one, and stays where it is.

use super::Successor;
use crate::archive::ArchiveUpdate;
use crate::head::SnapshotRef;

/// The state of a damaged snapshot, built again from an older one and the
/// changes since.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rebuilt {
    /// The snapshot, durable. Whoever built it has seen that the head's chain
    /// goes on from its own.
    pub snapshot: SnapshotRef,
    /// The one whose place it takes: the head must still name it.
    pub damaged: SnapshotRef,
    /// The archive without what is damaged. The head must still name the one
    /// that it was made from: that keeps alive what the new snapshot shares
    /// with the older one (PROTOCOL 7).
    pub archive: ArchiveUpdate,
}

impl Successor<'_> {
    /// Puts a rebuilt snapshot in place. Neither versions, receipts nor the tail
    /// change. `false` when the head has another snapshot or archive than it was
    /// made for, or when it is not of the damaged one's version.
    ///
    /// Not with anything else that maintenance has prepared: that may have been
    /// made from the damaged one.
    #[must_use]
    pub fn replace_snapshot(&mut self, rebuilt: &Rebuilt) -> bool {
        let Rebuilt { snapshot, damaged, archive } = rebuilt;
        let is_fit = self.head.snapshot == *damaged
            && snapshot.version == damaged.version
            && snapshot.object.key != damaged.object.key
            // New bytes, so new parts of a snapshot as well: they were staged
            // together with the index, which the publishing rule is held to.
            && self.previous.sweep_from <= snapshot.object.key.staged();
        if !is_fit || !self.takes(archive, snapshot.version) {
            return false;
        }
        self.head.snapshot = snapshot.clone();
        self.put_archive(archive);
        true
    }
}
