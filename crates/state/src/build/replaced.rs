//! What of the old snapshot is not in the new one.

use std::collections::BTreeMap;
use std::sync::Arc;

use headwater_core::format::snapshot::{ChunkRef, PageRef};
use headwater_core::hash::ContentHash;
use headwater_core::id::HistoryName;
use headwater_core::keys::ObjectKey;

use super::target::Target;
use crate::page::ChunkAt;

/// Parts of the old snapshot that were read to be written anew. What comes out
/// as it was is taken out again: the head references the old one, so it may be
/// named (PROTOCOL 2).
#[derive(Debug, Default)]
pub(super) struct Replaced(BTreeMap<ContentHash, Old>);

#[derive(Debug)]
struct Old {
    key: ObjectKey,
    /// Seen from the new snapshot.
    owner: Option<Arc<HistoryName>>,
}

impl Replaced {
    pub(super) fn add_chunk(&mut self, target: &Target, chunk: &ChunkAt) {
        let (key, owner) = (chunk.object.key.clone(), target.owner(chunk.seen_owner()));
        self.0.insert(chunk.object.hash, Old { key, owner });
    }

    pub(super) fn add_page(&mut self, target: &Target, page: &PageRef) {
        let (key, owner) = (page.object.key.clone(), target.owner(page.owner.as_ref()));
        self.0.insert(page.object.hash, Old { key, owner });
    }

    /// Whether `chunk` was there already; then it names the old object.
    pub(super) fn take_back_chunk(&mut self, chunk: &mut ChunkRef) -> bool {
        let Some(old) = self.0.remove(&chunk.object.hash) else { return false };
        chunk.object.key = old.key;
        chunk.owner = old.owner;
        true
    }

    /// Whether `page` was there already; then it names the old object. Only one
    /// of the history's own: in the page of another one the same bytes name
    /// other objects.
    pub(super) fn take_back_page(&mut self, page: &mut PageRef) -> bool {
        let is_own = self.0.get(&page.object.hash).is_some_and(|it| it.owner.is_none());
        let Some(old) = self.0.remove(&page.object.hash).filter(|_| is_own) else { return false };
        page.object.key = old.key;
        true
    }

    /// The history's own objects, in order of keys.
    pub(super) fn into_keys(self) -> Vec<ObjectKey> {
        let own = self.0.into_values().filter(|it| it.owner.is_none());
        let mut keys: Vec<ObjectKey> = own.map(|it| it.key).collect();
        keys.sort_unstable();
        keys
    }
}
