//! Decoded chunks and index pages in memory, by content hash.

use std::fmt;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use futures::FutureExt as _;
use headwater_core::format::snapshot::PageRef;
use headwater_core::hash::ContentHash;
use moka::future::Cache;

use crate::chunk::{Chunk, ChunkError};
use crate::error::StateError;
use crate::page::{ChunkAt, Page, PageError};
use crate::source::{Keep, Source};

/// Parts of snapshots of any number of histories, up to a limit in bytes.
/// Clones share it.
///
/// Keyed by content hash, so equal parts of two histories are one, and an entry
/// can never be out of date.
#[derive(Clone)]
pub struct ChunkCache {
    by_hash: Cache<ContentHash, Part, BuildHasherDefault<Prefix>>,
    counts: Arc<Counts>,
}

/// What became of the calls.
#[derive(Debug, Default)]
struct Counts {
    asked: AtomicU64,
    misses: AtomicU64,
}

impl Counts {
    fn asked(&self) {
        self.asked.fetch_add(1, Ordering::Relaxed);
    }

    fn missed(&self) {
        self.misses.fetch_add(1, Ordering::Relaxed);
    }
}

/// What became of the calls so far, and what there is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChunkCacheReadings {
    /// What the cached parts take, in bytes, as far as bookkeeping has come.
    pub size_bytes: u64,
    /// Chunks and pages that were there, or were being fetched already.
    pub hits: u64,
    /// Those that had to be fetched.
    pub misses: u64,
}

/// What the bytes of one hash are.
#[derive(Clone)]
enum Part {
    Chunk(Arc<Chunk>),
    Page(Arc<Page>),
}

impl Part {
    fn size_bytes(&self) -> usize {
        match self {
            Self::Chunk(chunk) => chunk.size_bytes(),
            Self::Page(page) => page.size_bytes(),
        }
    }

    /// As a chunk. An index that names a page as a chunk is damaged.
    fn chunk(self) -> Result<Arc<Chunk>, &'static str> {
        match self {
            Self::Chunk(chunk) => Ok(chunk),
            Self::Page(_) => Err("kind of part"),
        }
    }

    fn page(self) -> Result<Arc<Page>, &'static str> {
        match self {
            Self::Page(page) => Ok(page),
            Self::Chunk(_) => Err("kind of part"),
        }
    }
}

impl fmt::Debug for ChunkCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ChunkCache")
            .field("parts", &self.by_hash.entry_count())
            .finish_non_exhaustive()
    }
}

impl ChunkCache {
    /// An empty cache that keeps up to `bytes_max` of parts as they are in
    /// memory: blocks with their entries, and index pages.
    ///
    /// A part in use lives on after it was evicted, so the process may hold
    /// more by what its requests are reading.
    pub fn new(bytes_max: u64) -> Self {
        let by_hash = Cache::builder()
            .max_capacity(bytes_max)
            .weigher(|_, part: &Part| u32::try_from(part.size_bytes()).unwrap_or(u32::MAX))
            .build_with_hasher(BuildHasherDefault::default());
        Self { by_hash, counts: Arc::default() }
    }

    /// What became of the calls so far, and what there is.
    pub fn readings(&self) -> ChunkCacheReadings {
        let misses = self.counts.misses.load(Ordering::Relaxed);
        let asked = self.counts.asked.load(Ordering::Relaxed);
        // A call under way may be in one of them only.
        let hits = asked.saturating_sub(misses);
        ChunkCacheReadings { size_bytes: self.size_bytes(), hits, misses }
    }

    /// What the cached parts take, in bytes, as far as bookkeeping has come.
    pub fn size_bytes(&self) -> u64 {
        self.by_hash.weighted_size()
    }

    /// The chunk, if it is at hand and no lock is in the way.
    pub(crate) fn chunk_now(&self, hash: &ContentHash) -> Option<Arc<Chunk>> {
        let chunk = self.by_hash.get(hash).now_or_never().flatten()?.chunk().ok();
        self.counts.asked();
        chunk
    }

    /// The page, if it is at hand and no lock is in the way.
    pub(crate) fn page_now(&self, hash: &ContentHash) -> Option<Arc<Page>> {
        let page = self.by_hash.get(hash).now_or_never().flatten()?.page().ok();
        self.counts.asked();
        page
    }

    /// The chunk, fetched at most once however many ask for it meanwhile. When
    /// the caller that fetches is dropped, another one takes over.
    pub(crate) async fn chunk(
        &self,
        source: &Source,
        chunk: &ChunkAt,
    ) -> Result<Arc<Chunk>, StateError> {
        self.counts.asked();
        let fetch = async {
            self.counts.missed();
            fetch_chunk(source, chunk, Keep::Yes).await.map(Part::Chunk)
        };
        let part = self.by_hash.try_get_with(chunk.object.hash, Box::pin(fetch)).await;
        let part = part.map_err(|error| StateError::clone(&error))?;
        let key = || source.key_of(chunk.seen_owner(), &chunk.object);
        part.chunk().map_err(|fact| StateError::contradicts(key(), fact))
    }

    /// The page, as [`ChunkCache::chunk`].
    pub(crate) async fn page(
        &self,
        source: &Source,
        page: &PageRef,
    ) -> Result<Arc<Page>, StateError> {
        self.counts.asked();
        let fetch = async {
            self.counts.missed();
            fetch_page(source, page, Keep::Yes).await.map(Part::Page)
        };
        let part = self.by_hash.try_get_with(page.object.hash, Box::pin(fetch)).await;
        let part = part.map_err(|error| StateError::clone(&error))?;
        let key = || source.key_of(page.owner.as_ref(), &page.object);
        part.page().map_err(|fact| StateError::contradicts(key(), fact))
    }

    /// The chunk, without making room for it: for passes over the whole state,
    /// which would evict what requests use.
    pub(crate) async fn chunk_once(
        &self,
        source: &Source,
        chunk: &ChunkAt,
    ) -> Result<Arc<Chunk>, StateError> {
        self.counts.asked();
        let at_hand = self.by_hash.get(&chunk.object.hash).await;
        if let Some(chunk) = at_hand.and_then(|it| it.chunk().ok()) {
            return Ok(chunk);
        }
        self.counts.missed();
        fetch_chunk(source, chunk, Keep::No).await
    }

    /// The page, as [`ChunkCache::chunk_once`].
    pub(crate) async fn page_once(
        &self,
        source: &Source,
        page: &PageRef,
    ) -> Result<Arc<Page>, StateError> {
        self.counts.asked();
        let at_hand = self.by_hash.get(&page.object.hash).await;
        if let Some(page) = at_hand.and_then(|it| it.page().ok()) {
            return Ok(page);
        }
        self.counts.missed();
        fetch_page(source, page, Keep::No).await
    }
}

/// Fetches and decodes on the task that asks. Decoding a chunk of the usual
/// size takes one or two milliseconds, less than the fetch before it; the
/// format's limit bounds it.
async fn fetch_chunk(
    source: &Source,
    chunk: &ChunkAt,
    keep: Keep,
) -> Result<Arc<Chunk>, StateError> {
    let owner = chunk.seen_owner();
    let bytes = source.fetch_of(owner, &chunk.object, keep).await?;
    tracing::debug!(key = %chunk.object.key, size_bytes = bytes.len(), "chunk fetched");
    Chunk::decode(&bytes, chunk).map(Arc::new).map_err(|error| {
        let key = source.key_of(owner, &chunk.object);
        match error {
            ChunkError::Decode(error) => StateError::of_decode(key, error),
            ChunkError::Contradicts(fact) => StateError::contradicts(key, fact),
        }
    })
}

async fn fetch_page(source: &Source, page: &PageRef, keep: Keep) -> Result<Arc<Page>, StateError> {
    let owner = page.owner.as_ref();
    let bytes = source.fetch_of(owner, &page.object, keep).await?;
    tracing::debug!(key = %page.object.key, size_bytes = bytes.len(), "index page fetched");
    Page::decode(bytes, page).map(Arc::new).map_err(|error| {
        let key = source.key_of(owner, &page.object);
        match error {
            PageError::Decode(error) => StateError::of_decode(key, error),
            PageError::Contradicts(fact) => StateError::contradicts(key, fact),
        }
    })
}

/// A content hash is uniform already: its first bytes are hash enough.
#[derive(Debug, Default)]
struct Prefix(u64);

impl Hasher for Prefix {
    fn write(&mut self, bytes: &[u8]) {
        // Called for the array's length, then for its bytes.
        if let Some(first) = bytes.first_chunk() {
            self.0 ^= u64::from_le_bytes(*first);
        }
    }

    fn finish(&self) -> u64 {
        self.0
    }
}
