//! The state at one version.

mod base;
mod difference;
mod newest;
mod scan;

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use futures::TryStreamExt as _;
use headwater_core::change::{Change, Resolved};
use headwater_core::decide::{Facts, KeyFact, Needs};
use headwater_core::format::chunk::ChunkEntry;
use headwater_core::hash::{ChainHash, ContentHash};
use headwater_core::head::SnapshotRef;
use headwater_core::id::HistoryId;
use headwater_core::operation::Key;
use headwater_core::version::StateVersion;
use imbl::Vector;

pub(crate) use self::base::Base;
use self::base::Find;
pub use self::difference::Difference;
pub use self::scan::{Page, Scan};
use crate::error::StateError;
use crate::overlay::{Fact, Overlay};

/// One entry of the state.
///
/// Key and value share memory with the chunk or change that they came from, and
/// keep it alive: copy what is kept for long.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The key.
    pub key: Key,
    /// Its value.
    pub value: Bytes,
    /// The version that last wrote it.
    pub version: StateVersion,
}

/// The state at one version. It never changes; a clone is one counter.
///
/// Held in memory: the top of the snapshot's index and what the tail wrote. Index
/// pages and chunks of the snapshot are fetched when a read needs them, into a
/// cache that all views share. A view that is kept for long may find them swept, which is
/// [`StateError::Missing`].
///
/// Every method is cancel safe: a dropped read has no effect.
#[derive(Clone)]
pub struct View(Arc<Inner>);

struct Inner {
    version: StateVersion,
    base: Arc<Base>,
    overlay: Overlay,
    /// The chain after each version, the snapshot's first, this view's last:
    /// what a newer snapshot is checked against when it takes over.
    chain: Vector<ChainHash>,
}

impl fmt::Debug for View {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("View")
            .field("history_id", &self.history_id())
            .field("version", &self.version())
            .field("snapshot", &self.0.base.snapshot().version)
            .field("overlay", &self.0.overlay.len())
            .finish_non_exhaustive()
    }
}

impl View {
    /// What the snapshot says, before any change of the tail.
    pub(crate) fn of_snapshot(base: Arc<Base>) -> Self {
        let chain = Vector::unit(base.chain_hash());
        let version = base.snapshot().version;
        Self(Arc::new(Inner { version, base, overlay: Overlay::default(), chain }))
    }

    /// The version that this is the state of.
    pub fn version(&self) -> StateVersion {
        self.0.version
    }

    /// The history.
    pub fn history_id(&self) -> HistoryId {
        self.0.base.history_id()
    }

    /// The chain at this version.
    pub fn chain_hash(&self) -> ChainHash {
        // Never empty: it begins with the snapshot's.
        self.0.chain.last().copied().unwrap_or_else(|| self.0.base.chain_hash())
    }

    /// The chain at a version of the tail or at the snapshot's; `None` before
    /// and after.
    pub fn chain_hash_at(&self, version: StateVersion) -> Option<ChainHash> {
        let from = self.deletions_known_from();
        let at = version.get().checked_sub(from.get())?;
        self.0.chain.get(usize::try_from(at).ok()?).copied()
    }

    /// The snapshot below the tail.
    pub fn snapshot(&self) -> &SnapshotRef {
        self.0.base.snapshot()
    }

    /// Deletions are on record for versions after this one.
    pub fn deletions_known_from(&self) -> StateVersion {
        self.0.base.snapshot().version
    }

    /// How many keys the tail wrote or deleted: what the view holds in memory,
    /// beside the index, and what a compaction would take off it.
    pub fn overlay_len(&self) -> usize {
        self.0.overlay.len()
    }

    /// What the tail's part of the view takes in memory, in bytes, about.
    pub fn overlay_bytes(&self) -> u64 {
        self.0.overlay.size_bytes()
    }

    /// The entry at `key`.
    ///
    /// # Errors
    ///
    /// [`StateError`] when the chunk that may hold it, or the index page that names
    /// the chunk, cannot be read.
    pub async fn get(&self, key: &Key) -> Result<Option<Entry>, StateError> {
        match self.written(key) {
            Find::Known(entry) => Ok(entry),
            Find::Unknown => Ok(self.0.base.get(key).await?.map(Entry::from)),
        }
    }

    /// The entry at `key`, if that can be told from what is in memory: `None`
    /// when a chunk would have to be fetched.
    pub fn get_now(&self, key: &Key) -> Option<Option<Entry>> {
        let found = match self.written(key) {
            Find::Unknown => self.0.base.find(key).map(Entry::from),
            known @ Find::Known(_) => known,
        };
        match found {
            Find::Known(entry) => Some(entry),
            Find::Unknown => None,
        }
    }

    /// What the tail says about `key`.
    fn written(&self, key: &Key) -> Find<Entry> {
        match self.0.overlay.fact(key.as_ref()) {
            Fact::Put(version, value) => {
                Find::Known(Some(Entry { key: key.clone(), value: value.clone(), version }))
            }
            Fact::Gone(_) => Find::Known(None),
            Fact::Unknown => Find::Unknown,
        }
    }

    /// The entries at `keys`, in their order. Chunks are fetched side by side,
    /// up to the loader's limit, each once.
    ///
    /// # Errors
    ///
    /// [`StateError`] of the first chunk that cannot be read.
    pub async fn get_many(&self, keys: &[Key]) -> Result<Vec<Option<Entry>>, StateError> {
        self.0.base.fetch_for(keys.iter().filter(|it| self.needs_base(it))).await?;
        let mut entries = Vec::with_capacity(keys.len());
        for key in keys {
            entries.push(self.get(key).await?);
        }
        Ok(entries)
    }

    /// What is on record about `key`, deletions after
    /// [`View::deletions_known_from`] included.
    ///
    /// # Errors
    ///
    /// As for [`View::get`].
    pub async fn key_fact(&self, key: &Key) -> Result<KeyFact, StateError> {
        match self.0.overlay.fact(key.as_ref()) {
            Fact::Put(version, value) => {
                Ok(KeyFact { value: Some(value.clone()), newest_change: Some(version) })
            }
            Fact::Gone(version) => Ok(KeyFact { value: None, newest_change: Some(version) }),
            Fact::Unknown => Ok(match self.get(key).await? {
                Some(it) => KeyFact { value: Some(it.value), newest_change: Some(it.version) },
                None => KeyFact::default(),
            }),
        }
    }

    /// Everything that deciding a batch takes.
    ///
    /// # Errors
    ///
    /// As for [`View::get`].
    pub async fn facts(&self, needs: &Needs) -> Result<Facts, StateError> {
        let mut facts =
            Facts { deletions_known_from: self.deletions_known_from(), ..Facts::default() };
        self.0.base.fetch_for(needs.keys.iter().filter(|it| self.needs_base(it))).await?;
        for key in &needs.keys {
            facts.keys.insert(key.clone(), self.key_fact(key).await?);
        }
        for (range, above) in &needs.ranges {
            facts.ranges.insert(range.clone(), self.newest_change(range, *above).await?);
        }
        Ok(facts)
    }

    /// Fetches chunks that are not at hand, in order of keys, until those in
    /// memory take `bytes_max` decompressed. Returns how many there are.
    ///
    /// # Errors
    ///
    /// [`StateError`] of the first chunk that cannot be read.
    pub async fn warm(&self, bytes_max: u64) -> Result<usize, StateError> {
        let mut left = bytes_max;
        let mut fit = Vec::new();
        let mut chunks = self.0.base.chunks();
        while let Some(chunk) = chunks.try_next().await? {
            let Some(rest) = left.checked_sub(u64::from(chunk.block_len)) else { break };
            left = rest;
            fit.push(chunk);
        }
        let count = fit.len();
        self.0.base.fetch_all(fit).try_for_each(async |_| Ok(())).await?;
        Ok(count)
    }

    /// The next version: this one with `change`, whose entry has this hash.
    ///
    /// In memory, in time of the change's size (and of the keys that it deletes
    /// by range). What it leaves alone is shared between the two.
    #[must_use]
    pub fn apply(&self, change: &Change, hash: ContentHash) -> Self {
        self.apply_all([(change, hash)])
    }

    /// This view with one mutation of the change that leads to the next version
    /// on top: what the mutation behind it finds. No version of the history, and
    /// so neither version nor chain are other ones.
    #[must_use]
    pub fn with_mutation(&self, mutation: &Resolved) -> Self {
        let Inner { version, base, overlay, chain } = &*self.0;
        let mut overlay = overlay.clone();
        overlay.apply_one(version.next(), mutation);
        let (base, chain) = (Arc::clone(base), chain.clone());
        Self(Arc::new(Inner { version: *version, base, overlay, chain }))
    }

    /// As [`View::apply`] for one after another.
    pub(crate) fn apply_all<'a>(
        &self,
        changes: impl IntoIterator<Item = (&'a Change, ContentHash)>,
    ) -> Self {
        let mut version = self.0.version;
        let mut chain_hash = self.chain_hash();
        let mut overlay = self.0.overlay.clone();
        let mut chain = self.0.chain.clone();
        for (change, hash) in changes {
            version = version.next();
            chain_hash = chain_hash.extend(version, hash);
            chain.push_back(chain_hash);
            overlay.apply(version, change);
        }
        Self(Arc::new(Inner { version, base: Arc::clone(&self.0.base), overlay, chain }))
    }

    /// The same version over the snapshot that `other` is over: for views that
    /// were made while that one was moved to a newer snapshot. `None` when the
    /// snapshot's version is not in this view's tail, or not on its chain.
    pub fn rebase_onto(&self, other: &Self) -> Option<Self> {
        self.rebase(Arc::clone(&other.0.base))
    }

    /// The same version over a newer snapshot. `None` when the snapshot is of
    /// another history, of a version outside this view's tail, or its chain is
    /// not the one that was followed.
    pub(crate) fn rebase(&self, base: Arc<Base>) -> Option<Self> {
        let version = base.snapshot().version;
        let skip = usize::try_from(version.since(self.deletions_known_from())).ok()?;
        let is_fit = base.history_id() == self.history_id()
            && self.deletions_known_from() <= version
            && self.0.chain.get(skip) == Some(&base.chain_hash());
        is_fit.then(|| {
            let overlay = self.0.overlay.after(version);
            let chain = self.0.chain.skip(skip);
            Self(Arc::new(Inner { version: self.0.version, base, overlay, chain }))
        })
    }

    pub(crate) fn base(&self) -> &Base {
        &self.0.base
    }

    pub(crate) fn overlay(&self) -> &Overlay {
        &self.0.overlay
    }

    fn needs_base(&self, key: &Key) -> bool {
        self.0.overlay.fact(key.as_ref()) == Fact::Unknown
    }
}

impl From<ChunkEntry> for Entry {
    fn from(entry: ChunkEntry) -> Self {
        Self { key: entry.key, value: entry.value, version: entry.version }
    }
}
