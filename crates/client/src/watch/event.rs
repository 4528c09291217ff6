//! What a watch tells.

use std::time::Duration;

use bytes::Bytes;
use headwater_proto::v1;
use headwater_proto::v1::watched_mutation::Kind;

use crate::failure::Failure;
use crate::id::OperationId;
use crate::range::KeyRange;
use crate::read::Entry;

/// Whether the state may, or shall, be told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SnapshotMode {
    /// Versions that are gone end the watch.
    #[default]
    Never,
    /// The state at a newer version takes their place.
    IfRetired,
    /// The state as of now comes first; later as `IfRetired`.
    First,
}

/// What a watch tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WatchEvent {
    /// A version that has something for this watch.
    Version {
        /// The version.
        version: u64,
        /// At least one, in the order in which they were applied.
        mutations: Vec<WatchedMutation>,
    },
    /// There is nothing to tell up to the position.
    Progress {
        /// The newest version that the replica knows.
        newest_version: u64,
        /// How long before the message a check began that showed it to be the
        /// newest.
        proof_age: Duration,
    },
    /// The state follows. Everything that was known before is void, also the
    /// entries of a state that was begun before this one.
    SnapshotBegin {
        /// Its version.
        version: u64,
    },
    /// Some of it, in order of keys.
    SnapshotEntries(Vec<Entry>),
    /// That was all of it.
    SnapshotEnd {
        /// Its version.
        version: u64,
    },
}

/// What one operation did to a key or a range.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WatchedMutation {
    /// The operation.
    pub operation_id: OperationId,
    /// What it did.
    pub kind: WatchedKind,
    /// With previous values: what was there right before, earlier mutations of
    /// the same version included. One entry at most for a key; for a range all
    /// that it held.
    pub previous: Vec<Entry>,
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WatchedKind {
    /// The key has this value now.
    Put(Entry),
    /// The key was deleted. It may not have been there.
    Delete(Bytes),
    /// Every key of the range was deleted, as far as the watch is about them. A
    /// range that held many entries comes in several, one after another.
    DeleteRange(KeyRange),
}

impl WatchedMutation {
    pub(super) fn read(wire: v1::WatchedMutation) -> Result<Self, Failure> {
        let malformed = || Failure::malformed("a mutation of a watch does not read");
        Ok(Self {
            operation_id: OperationId::new(wire.operation_id).map_err(|_| malformed())?,
            kind: match wire.kind.ok_or_else(malformed)? {
                Kind::Put(entry) => WatchedKind::Put(entry.into()),
                Kind::Delete(key) => WatchedKind::Delete(key),
                Kind::DeleteRange(v1::KeyRange { start, end }) => {
                    WatchedKind::DeleteRange(KeyRange { start, end })
                }
            },
            previous: wire.previous.into_iter().map(Entry::from).collect(),
        })
    }

    /// Keys and values together, in bytes.
    pub(super) fn size_bytes(&self) -> usize {
        let own = match &self.kind {
            WatchedKind::Put(it) => it.key.len() + it.value.len(),
            WatchedKind::Delete(key) => key.len(),
            WatchedKind::DeleteRange(range) => range.start.len() + range.end.len(),
        };
        own + self.previous.iter().map(|it| it.key.len() + it.value.len()).sum::<usize>()
    }
}
