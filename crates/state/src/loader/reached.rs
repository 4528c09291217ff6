//! Everything that a snapshot leads to, for whoever counts what is live.

use std::sync::Arc;

use futures::stream::BoxStream;
use futures::{StreamExt as _, TryStreamExt as _, stream};
use headwater_core::format;
use headwater_core::head::{ObjectRef, SnapshotRef};
use headwater_core::id::HistoryName;

use super::Loader;
use crate::error::StateError;

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
    /// order of the keys of their entries.
    ///
    /// Nothing but the index is read, so an object that is named and missing is
    /// given all the same. Memory: the index.
    ///
    /// # Errors
    ///
    /// [`StateError`] when the index cannot be read; the stream ends with it.
    pub fn reached(
        &self,
        snapshot: &SnapshotRef,
    ) -> BoxStream<'static, Result<ReachedObject, StateError>> {
        let (source, object) = (Arc::clone(&self.source), snapshot.object.clone());
        let index = async move { source.fetch_as(&object, format::snapshot::decode).await };
        stream::once(index)
            .map_ok(|index| {
                let chunks = index.chunks.into_iter();
                stream::iter(chunks.map(|it| Ok(ReachedObject { owner: None, object: it.object })))
            })
            .try_flatten()
            .boxed()
    }
}
