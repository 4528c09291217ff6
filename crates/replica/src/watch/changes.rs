//! From a change to what a watch is told of it, in parts that fit a message.

use bytes::Bytes;
use headwater_core::change::Resolved;
use headwater_core::operation::{Key, KeyRange};
use headwater_state::LoadedChange;
use tokio::time::Instant;

use super::filter::KeyFilter;
use super::message::WatchedMutation;
use super::previous::Before;
use crate::failure::ReadFailure;
use crate::follower::Follower;

/// A message ends before its keys and values pass this, with at least one
/// mutation: what one watch can have waiting is a few of these.
pub(super) const MESSAGE_BYTES_MAX: usize = 256 << 10;

/// Whose memory a message may keep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Memory {
    /// The change's: everybody who watches has it in hand.
    Shared,
    /// Its own. What was read for those that are behind comes by the segment,
    /// and a slow caller is not to keep one for a few bytes of it.
    Own,
}

/// What `filter` takes of a change, in the order in which it was applied.
pub(super) fn taken(
    change: &LoadedChange,
    filter: &KeyFilter,
    memory: Memory,
) -> Vec<WatchedMutation> {
    let mut taken = Vec::new();
    for operation in &change.change.operations {
        let mut take = |kind| {
            let operation_id = operation.id.clone();
            taken.push(WatchedMutation { operation_id, kind, previous: Vec::new() });
        };
        for mutation in &operation.mutations {
            match mutation {
                Resolved::Put(key, value) if filter.takes(key.as_ref()) => {
                    take(Resolved::Put(memory.key(key), memory.bytes(value)));
                }
                Resolved::Delete(key) if filter.takes(key.as_ref()) => {
                    take(Resolved::Delete(memory.key(key)));
                }
                Resolved::DeleteRange(range) => {
                    for part in filter.clip(range) {
                        take(Resolved::DeleteRange(memory.range(part)));
                    }
                }
                Resolved::Put(..) | Resolved::Delete(_) => {}
            }
        }
    }
    taken
}

impl Memory {
    fn bytes(self, bytes: &Bytes) -> Bytes {
        match self {
            Self::Shared => bytes.clone(),
            Self::Own => Bytes::copy_from_slice(bytes),
        }
    }

    fn key(self, key: &Key) -> Key {
        match self {
            Self::Shared => key.clone(),
            // The bytes of a key are a key.
            Self::Own => Key::new(self.bytes(key.as_bytes())).unwrap_or_else(|_| key.clone()),
        }
    }

    fn range(self, range: KeyRange) -> KeyRange {
        match self {
            Self::Shared => range,
            Self::Own => {
                let (start, end) =
                    (self.bytes(range.start()), range.end().map(|it| self.bytes(it)));
                KeyRange::new(start, end).unwrap_or(range)
            }
        }
    }
}

/// One mutation at a time, with what was there before it. A range that held many
/// entries comes in several pieces.
pub(super) struct WithPrevious<'a> {
    pub(super) follower: &'a Follower,
    pub(super) before: Before,
    pub(super) deadline: Instant,
    /// Of the range that is being told.
    pub(super) rest: Option<WatchedMutation>,
    pub(super) mutations: std::vec::IntoIter<WatchedMutation>,
}

impl WithPrevious<'_> {
    pub(super) async fn next(&mut self) -> Result<Option<WatchedMutation>, ReadFailure> {
        let Some(mut mutation) = self.rest.take().or_else(|| self.mutations.next()) else {
            return Ok(None);
        };
        let Self { follower, before, deadline, .. } = self;
        match &mutation.kind {
            Resolved::Put(key, _) | Resolved::Delete(key) => {
                mutation.previous.extend(before.entry(follower, key, *deadline).await?);
            }
            Resolved::DeleteRange(range) => {
                let page = before.page(follower, range, MESSAGE_BYTES_MAX, *deadline).await?;
                mutation.previous = page.entries;
                if let Some((piece, rest)) = page.next.and_then(|it| split_after(range, &it)) {
                    self.rest = Some(WatchedMutation {
                        operation_id: mutation.operation_id.clone(),
                        kind: Resolved::DeleteRange(rest),
                        previous: Vec::new(),
                    });
                    mutation.kind = Resolved::DeleteRange(piece);
                }
            }
        }
        if self.rest.is_some() || 0 < self.mutations.len() {
            self.before.apply(mutation.kind.clone());
        }
        Ok(Some(mutation))
    }
}

/// `range` up to and including `key`, and what is left of it.
fn split_after(range: &KeyRange, key: &Key) -> Option<(KeyRange, KeyRange)> {
    // The least string after the key.
    let mut cut = key.as_bytes().to_vec();
    cut.push(0);
    let cut = Bytes::from(cut);
    let piece = KeyRange::new(range.start().clone(), Some(cut.clone())).ok()?;
    // Nothing is left where the range ends there.
    Some((piece, KeyRange::new(cut, range.end().cloned()).ok()?))
}
