//! What a watch asks for, and what it is told.

use std::time::Duration;

use headwater_core::change::Resolved;
use headwater_core::id::{HistoryId, OperationId};
use headwater_core::version::StateVersion;
use headwater_state::Entry;

use super::filter::KeyFilter;
use crate::failure::ReadFailure;

/// What an entry or a mutation takes beside its keys and values, in bytes, about.
const PART_BYTES: usize = 128;

/// What a watch asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WatchOptions {
    /// The last version that the caller knows. `None`: from now.
    pub after: Option<StateVersion>,
    /// Which keys.
    pub filter: KeyFilter,
    /// Say also what was there before each mutation.
    pub previous_values: bool,
    /// When nothing was said for so long, progress is.
    pub progress: Duration,
    /// Whether the state may, or shall, be sent.
    pub snapshot: SnapshotMode,
}

/// Whether the state may, or shall, be sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SnapshotMode {
    /// Versions that are gone end the watch.
    #[default]
    Never,
    /// The state at a newer version takes their place.
    IfRetired,
    /// The state as of now comes first; then as `IfRetired`.
    First,
}

/// One message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WatchMessage {
    /// The history.
    pub history_id: HistoryId,
    /// Everything up to and including this version was sent, or was not asked
    /// for.
    pub resume_after: StateVersion,
    /// What is told.
    pub event: WatchEvent,
}

impl WatchMessage {
    /// What it takes while it waits, in bytes, about.
    pub(super) fn size_bytes(&self) -> u64 {
        let entry = |it: &Entry| it.key.as_bytes().len() + it.value.len() + PART_BYTES;
        let told: usize = match &self.event {
            WatchEvent::Change(change) => {
                change.mutations.iter().map(|it| it.size_bytes() + PART_BYTES).sum()
            }
            WatchEvent::SnapshotEntries(entries) => entries.iter().map(entry).sum(),
            WatchEvent::Progress { .. }
            | WatchEvent::SnapshotBegin(_)
            | WatchEvent::SnapshotEnd(_) => 0,
        };
        (size_of::<Self>() + told) as u64
    }
}

/// What is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WatchEvent {
    /// A version, or a part of one.
    Change(WatchedChange),
    /// There is nothing to tell up to here.
    Progress {
        /// The newest version known.
        newest: StateVersion,
        /// How long ago the last check began that showed it to be the newest.
        proof_age: Duration,
    },
    /// The state at this version follows. What was known before is void.
    SnapshotBegin(StateVersion),
    /// Some of it, in order of keys.
    SnapshotEntries(Vec<Entry>),
    /// That was all of it.
    SnapshotEnd(StateVersion),
}

/// A version, or a part of one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WatchedChange {
    /// The version.
    pub version: StateVersion,
    /// At least one, in the order in which they were applied.
    pub mutations: Vec<WatchedMutation>,
    /// The next message has more of this version.
    pub is_continued: bool,
}

/// What happened to a key or a range.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WatchedMutation {
    /// The operation that it is of.
    pub operation_id: OperationId,
    /// What happened.
    pub kind: Resolved,
    /// What was there right before, where that was asked for.
    pub previous: Vec<Entry>,
}

impl WatchedMutation {
    /// Keys and values together, in bytes.
    pub(super) fn size_bytes(&self) -> usize {
        let own = match &self.kind {
            Resolved::Put(key, value) => key.as_bytes().len() + value.len(),
            Resolved::Delete(key) => key.as_bytes().len(),
            Resolved::DeleteRange(range) => {
                range.start().len() + range.end().map_or(0, bytes::Bytes::len)
            }
        };
        let previous = self.previous.iter().map(|it| it.key.as_bytes().len() + it.value.len());
        own + self.operation_id.as_str().len() + previous.sum::<usize>()
    }
}

/// How a watch ended.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{why}")]
pub struct WatchEnd {
    /// Why.
    pub why: WatchFailure,
    /// A watch from here goes on without a gap and without a repeat.
    pub resume_after: StateVersion,
}

/// Why a watch did not begin, or ended.
#[derive(Clone, Debug, thiserror::Error)]
pub enum WatchFailure {
    /// What it needs cannot be read, or the replica stops.
    #[error(transparent)]
    Read(#[from] ReadFailure),
    /// Nothing was taken for so long, while there was something to send.
    #[error("nothing was taken for {} ms", stalled.as_millis())]
    Slow {
        /// How long.
        stalled: Duration,
    },
    /// The caller's deadline passed.
    #[error("the caller's deadline passed")]
    Expired,
    /// As many watches are open as may be.
    #[error("{limit} watches are open {of}")]
    TooMany {
        /// How many may be.
        limit: usize,
        /// Of what.
        of: &'static str,
    },
}
