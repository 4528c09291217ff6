//! The snapshot below a view: an index in memory, chunks on demand.

use std::sync::Arc;

use futures::stream::BoxStream;
use futures::{StreamExt as _, TryStreamExt as _, stream};
use headwater_core::format::chunk::ChunkEntry;
use headwater_core::format::snapshot::{ChunkRef, SnapshotIndex};
use headwater_core::hash::ChainHash;
use headwater_core::head::SnapshotRef;
use headwater_core::id::HistoryId;
use headwater_core::operation::Key;

use crate::cache::ChunkCache;
use crate::chunk::Chunk;
use crate::error::StateError;
use crate::source::Source;
use crate::span::Span;

pub(crate) struct Base {
    snapshot: SnapshotRef,
    index: SnapshotIndex,
    source: Arc<Source>,
    cache: ChunkCache,
    fetches_max: usize,
}

/// Where a key of the snapshot is to be found.
pub(crate) enum Find<'a, T> {
    /// Here: its entry, if it has one.
    Known(Option<T>),
    /// In this chunk, if anywhere, which has to be fetched.
    In(&'a ChunkRef),
}

impl<'a, T> Find<'a, T> {
    pub(crate) fn map<U>(self, map: impl FnOnce(T) -> U) -> Find<'a, U> {
        match self {
            Self::Known(entry) => Find::Known(entry.map(map)),
            Self::In(chunk) => Find::In(chunk),
        }
    }
}

impl Base {
    pub(crate) fn new(
        snapshot: SnapshotRef,
        index: SnapshotIndex,
        source: Arc<Source>,
        cache: ChunkCache,
        fetches_max: usize,
    ) -> Self {
        Self { snapshot, index, source, cache, fetches_max }
    }

    pub(crate) fn snapshot(&self) -> &SnapshotRef {
        &self.snapshot
    }

    pub(crate) fn history_id(&self) -> HistoryId {
        self.index.history_id
    }

    pub(crate) fn chain_hash(&self) -> ChainHash {
        self.index.chain_hash
    }

    /// The chunks, in order of keys.
    pub(crate) fn chunks(&self) -> &[ChunkRef] {
        &self.index.chunks
    }

    /// The chunks that may have a key in `span`.
    pub(crate) fn chunks_in(&self, span: Span<'_>) -> &[ChunkRef] {
        span.part_of(self.chunks(), |it| it.first.as_ref(), |it| it.last.as_ref())
    }

    /// The chunk that holds `key`, if the snapshot has it.
    fn chunk_at(&self, key: &Key) -> Option<&ChunkRef> {
        let at = self.chunks().partition_point(|it| it.last < *key);
        self.chunks().get(at).filter(|it| it.first <= *key)
    }

    /// The chunk that begins with `first`.
    pub(crate) fn chunk_from(&self, first: &Key) -> Option<&ChunkRef> {
        self.chunk_at(first).filter(|it| it.first == *first)
    }

    pub(crate) async fn fetch(&self, chunk: &ChunkRef) -> Result<Arc<Chunk>, StateError> {
        self.cache.get(&self.source, chunk).await
    }

    /// As [`Base::fetch`], for a pass over everything: leaves the cache alone.
    pub(crate) async fn fetch_once(&self, chunk: &ChunkRef) -> Result<Arc<Chunk>, StateError> {
        self.cache.get_once(&self.source, chunk).await
    }

    /// What memory tells about `key`.
    pub(crate) fn find(&self, key: &Key) -> Find<'_, ChunkEntry> {
        match self.chunk_at(key) {
            None => Find::Known(None),
            Some(it) => match self.cache.get_now(&it.object.hash) {
                Some(chunk) => Find::Known(chunk.find(key.as_ref()).cloned()),
                None => Find::In(it),
            },
        }
    }

    /// Fetches `chunks` side by side, up to the limit, in any order.
    pub(crate) fn fetch_all<'a>(
        &'a self,
        chunks: Vec<&'a ChunkRef>,
    ) -> BoxStream<'a, Result<Arc<Chunk>, StateError>> {
        let fetches = stream::iter(chunks).map(|it| self.fetch(it));
        fetches.buffer_unordered(self.fetches_max).boxed()
    }

    /// Brings the chunks of `keys` into the cache, side by side.
    pub(crate) async fn fetch_for(
        &self,
        keys: impl Iterator<Item = &Key>,
    ) -> Result<(), StateError> {
        let mut chunks: Vec<&ChunkRef> = keys.filter_map(|it| self.chunk_at(it)).collect();
        chunks.sort_unstable_by(|a, b| a.first.cmp(&b.first));
        chunks.dedup_by(|a, b| a.first == b.first);
        self.fetch_all(chunks).try_for_each(async |_| Ok(())).await
    }
}
