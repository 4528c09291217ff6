//! Decoded chunks in memory, by content hash.

use std::fmt;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;

use futures::FutureExt as _;
use headwater_core::format::snapshot::ChunkRef;
use headwater_core::hash::ContentHash;
use moka::future::Cache;

use crate::chunk::{Chunk, ChunkError};
use crate::error::StateError;
use crate::source::Source;

/// Chunks of any number of histories, up to a limit in bytes. Clones share it.
///
/// Keyed by content hash, so equal chunks of two histories are one, and an
/// entry can never be out of date.
#[derive(Clone)]
pub struct ChunkCache {
    by_hash: Cache<ContentHash, Arc<Chunk>, BuildHasherDefault<Prefix>>,
}

impl fmt::Debug for ChunkCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ChunkCache").field("chunks", &self.by_hash.entry_count()).finish()
    }
}

impl ChunkCache {
    /// An empty cache that keeps up to `bytes_max` of chunks as they are in
    /// memory: block and index of entries.
    ///
    /// A chunk in use lives on after it was evicted, so the process may hold
    /// more by what its requests are reading.
    pub fn new(bytes_max: u64) -> Self {
        let by_hash = Cache::builder()
            .max_capacity(bytes_max)
            .weigher(|_, chunk: &Arc<Chunk>| u32::try_from(chunk.size_bytes()).unwrap_or(u32::MAX))
            .build_with_hasher(BuildHasherDefault::default());
        Self { by_hash }
    }

    /// What the cached chunks take, in bytes, as far as bookkeeping has come.
    pub fn size_bytes(&self) -> u64 {
        self.by_hash.weighted_size()
    }

    /// The chunk, if it is at hand and no lock is in the way.
    pub(crate) fn get_now(&self, hash: &ContentHash) -> Option<Arc<Chunk>> {
        self.by_hash.get(hash).now_or_never().flatten()
    }

    /// The chunk, fetched at most once however many ask for it meanwhile. When
    /// the caller that fetches is dropped, another one takes over.
    pub(crate) async fn get(
        &self,
        source: &Source,
        chunk: &ChunkRef,
    ) -> Result<Arc<Chunk>, StateError> {
        let fetch = Box::pin(fetch(source, chunk));
        self.by_hash
            .try_get_with(chunk.object.hash, fetch)
            .await
            .map_err(|error| StateError::clone(&error))
    }

    /// The chunk, without making room for it: for passes over the whole state,
    /// which would evict what requests use.
    pub(crate) async fn get_once(
        &self,
        source: &Source,
        chunk: &ChunkRef,
    ) -> Result<Arc<Chunk>, StateError> {
        match self.by_hash.get(&chunk.object.hash).await {
            Some(chunk) => Ok(chunk),
            None => fetch(source, chunk).await,
        }
    }
}

/// Fetches and decodes on the task that asks. Decoding a chunk of the usual
/// size takes one or two milliseconds, less than the fetch before it; the
/// format's limit bounds it.
async fn fetch(source: &Source, chunk: &ChunkRef) -> Result<Arc<Chunk>, StateError> {
    let bytes = source.fetch(&chunk.object).await?;
    tracing::debug!(key = %chunk.object.key, size_bytes = bytes.len(), "chunk fetched");
    Chunk::decode(&bytes, chunk).map(Arc::new).map_err(|error| {
        let key = source.history.object_key(&chunk.object.key);
        match error {
            ChunkError::Decode(error) => StateError::of_decode(key, error),
            ChunkError::Contradicts(fact) => StateError::contradicts(key, fact),
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
