//! The snapshot below a view: the top of its index in memory, pages and chunks
//! on demand.

use std::sync::Arc;

use futures::future::BoxFuture;
use futures::stream::BoxStream;
use futures::{FutureExt as _, StreamExt as _, TryStreamExt as _, stream};
use headwater_core::format::chunk::ChunkEntry;
use headwater_core::format::snapshot::{PageRef, Parts, SnapshotIndex};
use headwater_core::hash::ChainHash;
use headwater_core::head::SnapshotRef;
use headwater_core::id::{HistoryId, HistoryName};
use headwater_core::operation::Key;

use crate::cache::ChunkCache;
use crate::chunk::Chunk;
use crate::error::StateError;
use crate::page::{ChunkAt, OpenPage, Page, PagePlace};
use crate::source::Source;
use crate::span::Span;

pub(crate) struct Base {
    snapshot: SnapshotRef,
    history_id: HistoryId,
    chain_hash: ChainHash,
    index: Index,
    source: Arc<Source>,
    cache: ChunkCache,
    fetches_max: usize,
}

enum Index {
    /// All of it.
    One(Arc<Page>),
    Pages(Vec<PageRef>),
}

/// What is known about a key without fetching anything.
pub(crate) enum Find<T> {
    /// Its entry, if it has one.
    Known(Option<T>),
    /// Nothing.
    Unknown,
}

impl<T> Find<T> {
    pub(crate) fn map<U>(self, map: impl FnOnce(T) -> U) -> Find<U> {
        match self {
            Self::Known(entry) => Find::Known(entry.map(map)),
            Self::Unknown => Find::Unknown,
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
        let SnapshotIndex { history_id, chain_hash, parts, .. } = index;
        let index = match parts {
            Parts::Chunks(chunks) => Index::One(Arc::new(Page::new(chunks))),
            Parts::Pages(pages) => Index::Pages(pages),
        };
        Self { snapshot, history_id, chain_hash, index, source, cache, fetches_max }
    }

    pub(crate) fn snapshot(&self) -> &SnapshotRef {
        &self.snapshot
    }

    pub(crate) fn history_id(&self) -> HistoryId {
        self.history_id
    }

    pub(crate) fn chain_hash(&self) -> ChainHash {
        self.chain_hash
    }

    /// The other histories that it names, each once in its index or pages.
    pub(crate) fn owners(&self) -> Vec<Arc<HistoryName>> {
        let mut owners: Vec<_> = match &self.index {
            Index::One(page) => {
                let page = OpenPage { page: Arc::clone(page), owner: None };
                page.chunks().filter_map(|it| it.seen_owner().cloned()).collect()
            }
            Index::Pages(pages) => {
                pages.iter().flat_map(|it| it.owner.iter().chain(&it.names)).cloned().collect()
            }
        };
        owners.sort_unstable();
        owners.dedup();
        owners
    }

    /// The pages, in order of keys. None of them is empty.
    pub(crate) fn places(&self) -> Vec<PagePlace<'_>> {
        match &self.index {
            Index::One(page) => {
                let place = Some(PagePlace::Here(page));
                place.filter(|it| it.bounds().is_some()).into_iter().collect()
            }
            Index::Pages(pages) => pages.iter().map(PagePlace::There).collect(),
        }
    }

    /// The pages that may have a key in `span`.
    pub(crate) fn places_in(&self, span: Span<'_>) -> Vec<PagePlace<'_>> {
        match &self.index {
            Index::One(_) => self.places(),
            Index::Pages(pages) => {
                let pages = span.part_of(pages, |it| it.first.as_ref(), |it| it.last.as_ref());
                pages.iter().map(PagePlace::There).collect()
            }
        }
    }

    /// The page that covers `key`, if one does.
    fn place_at(&self, key: &Key) -> Option<PagePlace<'_>> {
        match &self.index {
            Index::One(page) => Some(PagePlace::Here(page)),
            Index::Pages(pages) => {
                let at = pages.partition_point(|it| it.last < *key);
                pages.get(at).filter(|it| it.first <= *key).map(PagePlace::There)
            }
        }
    }

    /// The last key of all.
    pub(crate) fn last_key(&self) -> Option<&Key> {
        Some(self.places().last()?.bounds()?.1)
    }

    pub(crate) async fn page(&self, place: PagePlace<'_>) -> Result<OpenPage, StateError> {
        let (page, owner) = match place {
            PagePlace::Here(page) => (Arc::clone(page), None),
            PagePlace::There(it) => (self.cache.page(&self.source, it).await?, it.owner.clone()),
        };
        Ok(OpenPage { page, owner })
    }

    /// As [`Base::page`], for a pass over everything: leaves the cache alone.
    pub(crate) async fn page_once(&self, place: PagePlace<'_>) -> Result<OpenPage, StateError> {
        let (page, owner) = match place {
            PagePlace::Here(page) => (Arc::clone(page), None),
            PagePlace::There(it) => {
                (self.cache.page_once(&self.source, it).await?, it.owner.clone())
            }
        };
        Ok(OpenPage { page, owner })
    }

    fn page_now(&self, place: PagePlace<'_>) -> Option<OpenPage> {
        let (page, owner) = match place {
            PagePlace::Here(page) => (Arc::clone(page), None),
            PagePlace::There(it) => (self.cache.page_now(&it.object.hash)?, it.owner.clone()),
        };
        Some(OpenPage { page, owner })
    }

    /// The chunk that holds `key`, if the snapshot has it.
    async fn chunk_with(&self, key: &Key) -> Result<Option<ChunkAt>, StateError> {
        let Some(place) = self.place_at(key) else { return Ok(None) };
        Ok(self.page(place).await?.chunk_with(key))
    }

    pub(crate) async fn fetch(&self, chunk: &ChunkAt) -> Result<Arc<Chunk>, StateError> {
        self.cache.chunk(&self.source, chunk).await
    }

    /// As [`Base::fetch`], for a pass over everything: leaves the cache alone.
    pub(crate) async fn fetch_once(&self, chunk: &ChunkAt) -> Result<Arc<Chunk>, StateError> {
        self.cache.chunk_once(&self.source, chunk).await
    }

    /// The entry at `key`.
    pub(crate) async fn get(&self, key: &Key) -> Result<Option<ChunkEntry>, StateError> {
        let Some(chunk) = self.chunk_with(key).await? else { return Ok(None) };
        Ok(self.fetch(&chunk).await?.find(key.as_ref()).cloned())
    }

    /// What memory tells about `key`.
    pub(crate) fn find(&self, key: &Key) -> Find<ChunkEntry> {
        let Some(place) = self.place_at(key) else { return Find::Known(None) };
        let Some(page) = self.page_now(place) else { return Find::Unknown };
        let Some(chunk) = page.chunk_with(key) else { return Find::Known(None) };
        match self.cache.chunk_now(&chunk.object.hash) {
            Some(chunk) => Find::Known(chunk.find(key.as_ref()).cloned()),
            None => Find::Unknown,
        }
    }

    /// Every chunk, in order of keys. One page at a time is in memory; the cache
    /// is left alone.
    pub(crate) fn chunks(&self) -> BoxStream<'_, Result<ChunkAt, StateError>> {
        stream::iter(self.places())
            .then(|place| self.page_once(place))
            .map_ok(|page| {
                let chunks: Vec<_> = page.chunks().map(Ok).collect();
                stream::iter(chunks)
            })
            .try_flatten()
            .boxed()
    }

    #[cfg(test)]
    pub(crate) async fn all_chunks(&self) -> Vec<ChunkAt> {
        self.chunks().try_collect().await.unwrap()
    }

    /// Fetches `chunks` side by side, up to the limit, in any order.
    pub(crate) fn fetch_all(
        &self,
        chunks: Vec<ChunkAt>,
    ) -> BoxStream<'_, Result<Arc<Chunk>, StateError>> {
        let fetches = stream::iter(chunks).map(move |it| async move { self.fetch(&it).await });
        fetches.buffer_unordered(self.fetches_max).boxed()
    }

    /// Brings the chunks of `keys` into the cache, side by side; before them the
    /// pages that name them.
    pub(crate) async fn fetch_for(
        &self,
        keys: impl Iterator<Item = &Key>,
    ) -> Result<(), StateError> {
        let mut keys: Vec<&Key> = keys.collect();
        keys.sort_unstable();
        let mut places: Vec<(PagePlace<'_>, Vec<&Key>)> = Vec::new();
        for key in keys {
            match places.last_mut() {
                Some((place, keys)) if place.bounds().is_some_and(|it| key <= it.1) => {
                    keys.push(key);
                }
                Some(_) | None => {
                    places.extend(self.place_at(key).map(|place| (place, vec![key])));
                }
            }
        }
        let pages: Vec<BoxFuture<'_, _>> =
            places.into_iter().map(|(place, keys)| self.chunks_for(place, keys).boxed()).collect();
        let pages = stream::iter(pages);
        let chunks: Vec<Vec<ChunkAt>> = pages.buffered(self.fetches_max).try_collect().await?;
        let mut chunks = chunks.concat();
        chunks.dedup_by(|a, b| a.first == b.first);
        self.fetch_all(chunks).try_for_each(async |_| Ok(())).await
    }

    async fn chunks_for(
        &self,
        place: PagePlace<'_>,
        keys: Vec<&Key>,
    ) -> Result<Vec<ChunkAt>, StateError> {
        let page = self.page(place).await?;
        Ok(keys.into_iter().filter_map(|it| page.chunk_with(it)).collect())
    }
}
