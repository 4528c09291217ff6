//! Cutting a run of entries into chunks, and bringing them to the bucket.

use bytes::{Bytes, BytesMut};
use headwater_core::format::chunk::ChunkEntry;
use headwater_core::format::snapshot::{ChunkRef, PageRef, Parts};
use headwater_core::operation::Key;

use super::cut::Cutter;
use super::index::IndexWriter;
use super::replaced::Replaced;
use super::target::{Target, Uploads, part_ref};
use crate::chunk;
use crate::error::BuildError;
use crate::overlay::Written;
use crate::page::ChunkAt;
use crate::view::Base;

/// Takes entries in order, gives chunks.
pub(super) struct ChunkWriter<'a> {
    target: &'a Target,
    cutter: Cutter,
    /// Since the last cut.
    entries: Vec<ChunkEntry>,
    index: IndexWriter,
    replaced: Replaced,
    uploads: Uploads,
    chunks_written: usize,
    chunks_reused: usize,
}

impl<'a> ChunkWriter<'a> {
    pub(super) fn new(
        target: &'a Target,
        cutter: Cutter,
        index: IndexWriter,
        uploads: Uploads,
    ) -> Self {
        Self {
            target,
            cutter,
            entries: Vec::new(),
            index,
            replaced: Replaced::default(),
            uploads,
            chunks_written: 0,
            chunks_reused: 0,
        }
    }

    pub(super) fn is_at_cut(&self) -> bool {
        self.entries.is_empty()
    }

    pub(super) fn is_at_page_cut(&self) -> bool {
        self.is_at_cut() && self.index.is_at_cut()
    }

    /// Takes a chunk of the base over; only at a cut.
    pub(super) async fn reuse(&mut self, chunk: &ChunkAt) -> Result<(), BuildError> {
        self.chunks_reused += 1;
        let owner = self.target.owner(chunk.seen_owner());
        self.add(ChunkRef { owner, ..chunk.to_ref() }).await
    }

    /// Takes a page of the base over, with all its chunks; only at a cut of
    /// pages.
    pub(super) fn reuse_page(&mut self, page: &PageRef) {
        self.chunks_reused += page.chunks as usize;
        let owner = self.target.owner(page.owner.as_ref());
        self.index.push_page(PageRef { owner, ..page.clone() });
    }

    /// A page of the base is not taken over as it is. It may still come out the
    /// same, as may its chunks.
    pub(super) fn replace_page(&mut self, page: &PageRef) {
        self.replaced.add_page(self.target, page);
    }

    pub(super) fn replace(&mut self, chunk: &ChunkAt) {
        self.replaced.add_chunk(self.target, chunk);
    }

    async fn add(&mut self, chunk: ChunkRef) -> Result<(), BuildError> {
        self.index.push(chunk, self.target, &mut self.replaced, &mut self.uploads).await
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
        let newest = entries.iter().map(|it| it.version).max().unwrap_or_default();
        let mut chunk = ChunkRef {
            object: part_ref(self.target, &bytes),
            owner: None,
            first: copied(&first.key),
            last: copied(&last.key),
            // Both are far below 2^32: the cutter bounds the block.
            count: u32::try_from(entries.len()).unwrap_or(u32::MAX),
            block_len: u32::try_from(block_len).unwrap_or(u32::MAX),
            newest,
        };
        drop(entries);
        // Read again and come out the same, as when a key was deleted that was
        // not there.
        if self.replaced.take_back_chunk(&mut chunk) {
            self.chunks_reused += 1;
            return self.add(chunk).await;
        }
        self.chunks_written += 1;
        self.uploads.begin(self.target, &chunk.object, bytes).await?;
        self.add(chunk).await?;
        // Compressing took milliseconds; others may run before the next.
        tokio::task::yield_now().await;
        Ok(())
    }

    /// The parts of the index, once everything that they name is durable.
    pub(super) async fn finish(mut self, base: &Base) -> Result<(Parts, Tally), BuildError> {
        self.cut().await?;
        let Self { target, index, mut replaced, mut uploads, .. } = self;
        let parts = index.finish(base, target, &mut replaced, &mut uploads).await?;
        uploads.join_all().await?;
        let done = Tally {
            replaced,
            bytes_written: uploads.bytes_written,
            chunks_written: self.chunks_written,
            chunks_reused: self.chunks_reused,
        };
        Ok((parts, done))
    }
}

/// What it took.
pub(super) struct Tally {
    pub(super) replaced: Replaced,
    pub(super) bytes_written: u64,
    pub(super) chunks_written: usize,
    pub(super) chunks_reused: usize,
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
