//! Cutting a run of entries into chunks, and bringing them to the bucket.

use std::collections::BTreeSet;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use headwater_core::format::chunk::ChunkEntry;
use headwater_core::format::snapshot::ChunkRef;
use headwater_core::head::ObjectRef;
use headwater_core::keys::{ObjectKey, ObjectKind};
use headwater_core::operation::Key;
use headwater_core::version::Revision;
use headwater_store::{PutError, ReadError};
use tokio::task::JoinSet;

use super::cut::Cutter;
use crate::chunk;
use crate::error::BuildError;
use crate::overlay::Written;
use crate::source::Source;
use crate::view::Base;

/// Takes entries in order, gives chunks.
pub(super) struct ChunkWriter<'a> {
    source: &'a Arc<Source>,
    base: &'a Base,
    staged: Revision,
    cutter: Cutter,
    /// Since the last cut.
    entries: Vec<ChunkEntry>,
    chunks: Vec<ChunkRef>,
    /// Of the base, and not taken over so far.
    replaced: BTreeSet<ObjectKey>,
    /// Tasks, so that they go on while the builder waits for a read. They end
    /// with this.
    uploads: JoinSet<Result<(), PutError>>,
    uploads_max: usize,
    pub(super) chunks_written: usize,
    pub(super) chunks_reused: usize,
    pub(super) bytes_written: u64,
}

impl<'a> ChunkWriter<'a> {
    pub(super) fn new(
        source: &'a Arc<Source>,
        base: &'a Base,
        staged: Revision,
        cutter: Cutter,
        uploads_max: usize,
    ) -> Self {
        Self {
            source,
            base,
            staged,
            cutter,
            entries: Vec::new(),
            chunks: Vec::new(),
            replaced: BTreeSet::new(),
            uploads: JoinSet::new(),
            uploads_max,
            chunks_written: 0,
            chunks_reused: 0,
            bytes_written: 0,
        }
    }

    pub(super) fn is_at_cut(&self) -> bool {
        self.entries.is_empty()
    }

    pub(super) fn reuse(&mut self, chunk: ChunkRef) {
        self.chunks_reused += 1;
        self.chunks.push(chunk);
    }

    /// A chunk of the base is not taken over as it is. Its entries may still
    /// come out the same.
    pub(super) fn replace(&mut self, chunk: &ChunkRef) {
        self.replaced.insert(chunk.object.key.clone());
    }

    /// The chunks of the base that are in no chunk list of this writer, in order
    /// of keys.
    pub(super) fn take_replaced(&mut self) -> Vec<ObjectKey> {
        std::mem::take(&mut self.replaced).into_iter().collect()
    }

    pub(super) async fn push_written(
        &mut self,
        key: &Key,
        written: &Written,
    ) -> Result<(), BuildError> {
        let Some(value) = &written.value else { return Ok(()) };
        let (key, value) = (key.clone(), value.clone());
        self.push(ChunkEntry { key, version: written.version, value }).await
    }

    pub(super) async fn push(&mut self, entry: ChunkEntry) -> Result<(), BuildError> {
        let is_end = self.cutter.ends_with(&entry);
        self.entries.push(entry);
        if is_end { self.cut().await } else { Ok(()) }
    }

    async fn cut(&mut self) -> Result<(), BuildError> {
        let entries = std::mem::take(&mut self.entries);
        let (Some(first), Some(last)) = (entries.first(), entries.last()) else { return Ok(()) };
        let (bytes, block_len) = chunk::encode(&entries);
        let object = ObjectRef::to_content(ObjectKind::Chunk, self.staged, &bytes);
        let newest = entries.iter().map(|it| it.version).max().unwrap_or_default();
        let chunk = ChunkRef {
            object,
            first: copied(&first.key),
            last: copied(&last.key),
            // Both are far below 2^32: the cutter bounds the block.
            count: u32::try_from(entries.len()).unwrap_or(u32::MAX),
            block_len: u32::try_from(block_len).unwrap_or(u32::MAX),
            newest,
        };
        drop(entries);
        // Read again and come out the same, as when a key was deleted that was
        // not there. The head references the old one, so it may be named.
        if let Some(same) = self.base.chunk_from(&chunk.first)
            && same.object.hash == chunk.object.hash
        {
            self.replaced.remove(&same.object.key);
            self.reuse(same.clone());
            return Ok(());
        }
        self.chunks_written += 1;
        self.bytes_written += chunk.object.size_bytes;
        while self.uploads_max <= self.uploads.len() {
            self.join_upload().await?;
        }
        let (source, key) =
            (Arc::clone(self.source), self.source.history.object_key(&chunk.object.key));
        self.uploads.spawn(async move { source.store.put(&key, bytes).await });
        self.chunks.push(chunk);
        // Compressing took milliseconds; others may run before the next.
        tokio::task::yield_now().await;
        Ok(())
    }

    pub(super) async fn finish(&mut self) -> Result<Vec<ChunkRef>, BuildError> {
        self.cut().await?;
        while !self.uploads.is_empty() {
            self.join_upload().await?;
        }
        Ok(std::mem::take(&mut self.chunks))
    }

    async fn join_upload(&mut self) -> Result<(), PutError> {
        match self.uploads.join_next().await {
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

/// A copy that does not keep the entry in memory: the index being built would
/// keep two entries of each chunk.
fn copied(key: &Key) -> Key {
    // The bytes of a key are a key.
    Key::new(Bytes::copy_from_slice(key.as_ref())).unwrap_or_else(|_| key.clone())
}

/// A copy that does not keep the chunk it came from in memory: a few entries
/// left of each of many chunks would keep all of those.
pub(super) fn unshared(entry: &ChunkEntry) -> ChunkEntry {
    let key_len = entry.key.as_bytes().len();
    let mut bytes = BytesMut::with_capacity(key_len + entry.value.len());
    bytes.extend_from_slice(entry.key.as_ref());
    bytes.extend_from_slice(&entry.value);
    let value = bytes.split_off(key_len).freeze();
    let key = Key::new(bytes.freeze()).unwrap_or_else(|_| entry.key.clone());
    ChunkEntry { key, version: entry.version, value }
}
