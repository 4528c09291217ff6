//! Everything that a snapshot leads to, for whoever counts what is live.

use futures::stream::BoxStream;
use futures::{StreamExt as _, TryStreamExt as _, stream};
use headwater_core::format;
use headwater_core::format::snapshot::{ChunkRef, PageRef, Parts};
use headwater_core::head::{ObjectRef, SnapshotRef};
use headwater_core::id::HistoryName;

use super::Loader;
use crate::error::StateError;
use crate::page::OpenPage;

/// An object that a snapshot leads to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReachedObject {
    /// The history below whose prefix it is; `None` for the snapshot's own.
    pub owner: Option<HistoryName>,
    /// Its key, hash and length.
    pub object: ObjectRef,
}

impl Loader {
    /// The objects that `snapshot` leads to beside its index: each once, in
    /// order of the keys of their entries, a page before its chunks.
    ///
    /// Chunks are not read, so one that is named and missing is given all the
    /// same. Memory: the top of the index and one page.
    ///
    /// # Errors
    ///
    /// [`StateError`] when the index or a page cannot be read; the stream ends
    /// with it. The page was given before.
    pub fn reached(
        &self,
        snapshot: &SnapshotRef,
    ) -> BoxStream<'static, Result<ReachedObject, StateError>> {
        stream::once(self.clone().reached_by_index(snapshot.clone())).try_flatten().boxed()
    }

    async fn reached_by_index(
        self,
        snapshot: SnapshotRef,
    ) -> Result<BoxStream<'static, Result<ReachedObject, StateError>>, StateError> {
        let index = self.source.fetch_as(&snapshot.object, format::snapshot::decode).await?;
        Ok(match index.parts {
            Parts::Chunks(chunks) => {
                stream::iter(chunks.into_iter().map(|it| Ok(of_chunk(it)))).boxed()
            }
            Parts::Pages(pages) => {
                let pages = stream::iter(pages);
                pages.flat_map(move |it| self.clone().reached_by_page(it)).boxed()
            }
        })
    }

    fn reached_by_page(
        self,
        page: PageRef,
    ) -> BoxStream<'static, Result<ReachedObject, StateError>> {
        let owner = page.owner.as_deref().cloned();
        let itself = ReachedObject { owner, object: page.object.clone() };
        let chunks = stream::once(self.chunks_of_page(page)).try_flatten();
        stream::iter([Ok(itself)]).chain(chunks).boxed()
    }

    async fn chunks_of_page(
        self,
        page: PageRef,
    ) -> Result<BoxStream<'static, Result<ReachedObject, StateError>>, StateError> {
        let read = self.cache.page_once(&self.source, &page).await?;
        let open = OpenPage { page: read, owner: page.owner };
        let chunks: Vec<_> = open.chunks().map(|it| Ok(of_chunk(it.to_ref()))).collect();
        Ok(stream::iter(chunks).boxed())
    }
}

fn of_chunk(chunk: ChunkRef) -> ReachedObject {
    ReachedObject { owner: chunk.owner.as_deref().cloned(), object: chunk.object }
}
