//! Where a snapshot is written, and how many uploads are under way.

use std::sync::Arc;

use bytes::Bytes;
use headwater_core::head::ObjectRef;
use headwater_core::id::{HistoryId, HistoryName};
use headwater_core::keys::ObjectKind;
use headwater_core::version::Revision;
use headwater_store::{PutError, ReadError, Store};
use tokio::task::JoinSet;

use crate::source::Source;

/// The history that a snapshot is made for: the one that is read, or one that
/// is forked from it.
#[derive(Debug)]
pub(super) struct Target {
    pub(super) store: Arc<dyn Store>,
    pub(super) history: HistoryName,
    pub(super) history_id: HistoryId,
    pub(super) staged: Revision,
    /// Whose objects those without an owner are, seen from `history`: none where
    /// it is the one that is read.
    parent: Option<Arc<HistoryName>>,
}

impl Target {
    pub(super) fn same(source: &Source, history_id: HistoryId, staged: Revision) -> Self {
        let (store, history) = (Arc::clone(&source.store), source.history.clone());
        Self { store, history, history_id, staged, parent: None }
    }

    pub(super) fn fork(
        source: &Source,
        history: HistoryName,
        history_id: HistoryId,
        staged: Revision,
    ) -> Self {
        let (store, parent) = (Arc::clone(&source.store), source.history.clone());
        Self { store, history, history_id, staged, parent: Some(Arc::new(parent)) }
    }

    /// The owner of something that is read, seen from the new snapshot.
    pub(super) fn owner(&self, seen: Option<&Arc<HistoryName>>) -> Option<Arc<HistoryName>> {
        seen.or(self.parent.as_ref()).cloned()
    }

    /// Whose objects are named at most, beside the target's own.
    pub(super) fn parent(&self) -> Option<&Arc<HistoryName>> {
        self.parent.as_ref()
    }
}

/// Objects on their way to the bucket. They go on while the builder waits for a
/// read, and end with this.
#[derive(Debug)]
pub(super) struct Uploads {
    tasks: JoinSet<Result<(), PutError>>,
    at_once_max: usize,
    pub(super) bytes_written: u64,
}

impl Uploads {
    pub(super) fn new(at_once_max: usize) -> Self {
        Self { tasks: JoinSet::new(), at_once_max, bytes_written: 0 }
    }

    /// Begins an upload, once there is room for it.
    pub(super) async fn begin(
        &mut self,
        target: &Target,
        object: &ObjectRef,
        bytes: Bytes,
    ) -> Result<(), PutError> {
        while self.at_once_max <= self.tasks.len() {
            self.join_one().await?;
        }
        self.bytes_written += object.size_bytes;
        let (store, key) = (Arc::clone(&target.store), target.history.object_key(&object.key));
        self.tasks.spawn(async move { store.put(&key, bytes).await });
        Ok(())
    }

    pub(super) async fn join_all(&mut self) -> Result<(), PutError> {
        while !self.tasks.is_empty() {
            self.join_one().await?;
        }
        Ok(())
    }

    async fn join_one(&mut self) -> Result<(), PutError> {
        match self.tasks.join_next().await {
            None => Ok(()),
            Some(Ok(answer)) => answer,
            // It panicked, or the runtime is going down: there is no answer.
            Some(Err(error)) => {
                let cause = Box::new(error);
                Err(PutError::Store(ReadError::Unavailable { retry_after: None, cause }))
            }
        }
    }
}

/// A part of a snapshot, named by its content.
pub(super) fn part_ref(target: &Target, bytes: &[u8]) -> ObjectRef {
    ObjectRef::to_content(ObjectKind::Chunk, target.staged, bytes)
}
