//! Which objects are there, and which was used least recently.

use std::collections::BTreeMap;

use headwater_core::hash::ContentHash;

/// Objects by hash and by use. Each takes about 150 bytes: a cache of 100 GiB in
/// chunks of 1 MiB has 15 MB of them.
#[derive(Debug, Default)]
pub(super) struct Recency {
    by_hash: BTreeMap<ContentHash, Held>,
    /// The least recently used first.
    by_use: BTreeMap<u64, ContentHash>,
    n_uses: u64,
    size_bytes: u64,
}

#[derive(Clone, Copy, Debug)]
struct Held {
    size_bytes: u64,
    used: u64,
}

impl Recency {
    /// Objects with their lengths, the least recently used first.
    pub(super) fn of(found: Vec<(ContentHash, u64)>) -> Self {
        let mut this = Self::default();
        for (hash, size_bytes) in found {
            this.add(hash, size_bytes);
        }
        this
    }

    pub(super) fn len(&self) -> usize {
        self.by_hash.len()
    }

    pub(super) fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    pub(super) fn has(&self, hash: &ContentHash) -> bool {
        self.by_hash.contains_key(hash)
    }

    /// Notes a use; `false` when the object is not there.
    pub(super) fn touch(&mut self, hash: &ContentHash) -> bool {
        let Some(held) = self.by_hash.get_mut(hash) else { return false };
        self.n_uses += 1;
        self.by_use.remove(&held.used);
        held.used = self.n_uses;
        self.by_use.insert(self.n_uses, *hash);
        true
    }

    pub(super) fn add(&mut self, hash: ContentHash, size_bytes: u64) {
        self.forget(&hash);
        self.n_uses += 1;
        self.by_hash.insert(hash, Held { size_bytes, used: self.n_uses });
        self.by_use.insert(self.n_uses, hash);
        self.size_bytes += size_bytes;
    }

    pub(super) fn forget(&mut self, hash: &ContentHash) {
        let Some(held) = self.by_hash.remove(hash) else { return };
        self.by_use.remove(&held.used);
        self.size_bytes -= held.size_bytes;
    }

    /// Forgets the object used least recently.
    pub(super) fn pop(&mut self) -> Option<ContentHash> {
        let hash = *self.by_use.first_key_value()?.1;
        self.forget(&hash);
        Some(hash)
    }

    /// All of them, the least recently used first.
    pub(super) fn in_order(&self) -> Vec<ContentHash> {
        self.by_use.values().copied().collect()
    }
}
