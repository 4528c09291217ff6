//! A snapshot index: the state at one version, as a list of chunks, or of pages
//! that list them.
//!
//! ```text
//! facts | owners | 0 | chunk, chunk, …
//! facts | owners | 1 | page, page, …  ->  objects: owners | chunk, chunk, …
//! ```

use alloc::collections::BTreeSet;
use alloc::sync::Arc;
use alloc::vec::Vec;

use bytes::Bytes;

pub use super::owners::OWNERS_MAX;
use super::owners::{Owners, put_count};
use super::wire::{self, Reader};
use super::{DecodeError, malformed};
use crate::hash::{ChainHash, ContentHash};
use crate::head::ObjectRef;
use crate::id::{HistoryId, HistoryName};
use crate::keys::{ObjectKey, ObjectKind};
use crate::operation::Key;
use crate::version::{Revision, StateVersion};

const KIND: u8 = b'i';

const LEVEL_CHUNKS: u8 = 0;
const LEVEL_PAGES: u8 = 1;

/// One chunk of a snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChunkRef {
    /// The object.
    pub object: ObjectRef,
    /// The history below whose prefix the object is, where it is another one
    /// than that of the index or page that names it.
    pub owner: Option<Arc<HistoryName>>,
    /// Its first key.
    pub first: Key,
    /// Its last key.
    pub last: Key,
    /// How many entries it holds, at least 1.
    pub count: u32,
    /// Length of its block, decompressed, in bytes.
    pub block_len: u32,
    /// The newest version of any of its entries.
    pub newest: StateVersion,
}

/// One page of a snapshot's index: an object that lists some of the chunks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PageRef {
    /// The object. It lies among the chunks, for it comes and goes as they do.
    pub object: ObjectRef,
    /// The history below whose prefix the object is, where it is another one
    /// than the snapshot's.
    pub owner: Option<Arc<HistoryName>>,
    /// The first key of its first chunk.
    pub first: Key,
    /// The last key of its last chunk.
    pub last: Key,
    /// How many chunks it lists, at least 1.
    pub chunks: u32,
    /// The newest version of any entry in them.
    pub newest: StateVersion,
    /// The histories that the page names owners: none for a page without
    /// chunks of others. `owner` is in here only where the page says so.
    pub names: BTreeSet<Arc<HistoryName>>,
}

/// The parts that the state at one version is in, in order of keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Parts {
    /// All its chunks.
    Chunks(Vec<ChunkRef>),
    /// Pages that list them; at least one.
    Pages(Vec<PageRef>),
}

/// The state at one version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SnapshotIndex {
    /// The history that it is of.
    pub history_id: HistoryId,
    /// The version that it stands for.
    pub version: StateVersion,
    /// The chain at that version, where replay goes on.
    pub chain_hash: ChainHash,
    /// Where the entries are.
    pub parts: Parts,
}

impl SnapshotIndex {
    /// The empty state that a history begins with.
    pub fn empty(history_id: HistoryId) -> Self {
        Self {
            history_id,
            version: StateVersion::ZERO,
            chain_hash: ChainHash::first(history_id),
            parts: Parts::Chunks(Vec::new()),
        }
    }

    /// The other histories that have objects which the snapshot leads to.
    pub fn owners(&self) -> BTreeSet<Arc<HistoryName>> {
        match &self.parts {
            Parts::Chunks(chunks) => chunks.iter().filter_map(|it| it.owner.clone()).collect(),
            Parts::Pages(pages) => {
                pages.iter().flat_map(|it| it.owner.iter().chain(&it.names)).cloned().collect()
            }
        }
    }
}

/// Writes a snapshot index.
///
/// # Panics
///
/// For parts of more than [`OWNERS_MAX`] other histories.
pub fn encode(index: &SnapshotIndex) -> Vec<u8> {
    let owners = Owners::of(index.owners().iter());
    let mut out = Vec::new();
    wire::put_magic(&mut out, KIND);
    out.extend_from_slice(index.history_id.as_bytes());
    wire::put_u64(&mut out, index.version.get());
    out.extend_from_slice(index.chain_hash.as_bytes());
    owners.put(&mut out);
    match &index.parts {
        Parts::Chunks(chunks) => {
            wire::put_u8(&mut out, LEVEL_CHUNKS);
            put_chunks(&mut out, &owners, chunks);
        }
        Parts::Pages(pages) => {
            wire::put_u8(&mut out, LEVEL_PAGES);
            wire::put_len(&mut out, pages.len());
            for page in pages {
                put_page(&mut out, &owners, page);
            }
        }
    }
    out
}

/// A list of chunks, each with its owner.
pub(super) fn put_chunks(out: &mut Vec<u8>, owners: &Owners, chunks: &[ChunkRef]) {
    wire::put_len(out, chunks.len());
    for chunk in chunks {
        owners.put_number(out, chunk.owner.as_ref());
        put_chunk(out, chunk);
    }
}

fn put_object(out: &mut Vec<u8>, object: &ObjectRef) {
    wire::put_u64(out, object.key.staged().get());
    out.extend_from_slice(object.hash.as_bytes());
    wire::put_u64(out, object.size_bytes);
}

fn put_chunk(out: &mut Vec<u8>, chunk: &ChunkRef) {
    put_object(out, &chunk.object);
    wire::put_bytes(out, chunk.first.as_ref());
    wire::put_bytes(out, chunk.last.as_ref());
    wire::put_u32(out, chunk.count);
    wire::put_u32(out, chunk.block_len);
    wire::put_u64(out, chunk.newest.get());
}

fn put_page(out: &mut Vec<u8>, owners: &Owners, page: &PageRef) {
    owners.put_number(out, page.owner.as_ref());
    put_object(out, &page.object);
    wire::put_bytes(out, page.first.as_ref());
    wire::put_bytes(out, page.last.as_ref());
    wire::put_u32(out, page.chunks);
    wire::put_u64(out, page.newest.get());
    put_count(out, page.names.len());
    for name in &page.names {
        owners.put_number(out, Some(name));
    }
}

/// Reads a snapshot index.
///
/// # Errors
///
/// [`DecodeError`], also where chunks or pages overlap or are out of order.
pub fn decode(bytes: Bytes) -> Result<SnapshotIndex, DecodeError> {
    let mut reader = Reader::new(bytes);
    reader.magic(KIND)?;
    let mut history_id = [0; 16];
    history_id.copy_from_slice(&reader.take(16, "history id")?);
    let history_id = HistoryId::from_bytes(history_id);
    let version = reader.version("version")?;
    let chain_hash = ChainHash::from_bytes(reader.hash("chain hash")?);
    let owners = Owners::read(&mut reader)?;
    let parts = match reader.u8("level")? {
        LEVEL_CHUNKS => {
            let chunks = chunks(&mut reader, &owners)?;
            check_newest(version, chunks.iter().map(|it| it.newest))?;
            Parts::Chunks(chunks)
        }
        LEVEL_PAGES => {
            let pages = pages(&mut reader, &owners)?;
            check_newest(version, pages.iter().map(|it| it.newest))?;
            Parts::Pages(pages)
        }
        _ => return Err(malformed("level")),
    };
    reader.finish()?;
    let index = SnapshotIndex { history_id, version, chain_hash, parts };
    if Owners::of(index.owners().iter()) != owners {
        return Err(malformed("owners"));
    }
    Ok(index)
}

fn check_newest(
    version: StateVersion,
    mut newest: impl Iterator<Item = StateVersion>,
) -> Result<(), DecodeError> {
    if newest.any(|it| version < it) { Err(malformed("facts of a chunk")) } else { Ok(()) }
}

/// The list that [`put_chunks`] writes.
pub(super) fn chunks(reader: &mut Reader, owners: &Owners) -> Result<Vec<ChunkRef>, DecodeError> {
    let count = reader.count(75, "count of chunks")?;
    let mut chunks: Vec<ChunkRef> = Vec::with_capacity(count);
    for _ in 0..count {
        let chunk = chunk(reader, owners)?;
        let is_in_order = chunks.last().is_none_or(|it| it.last < chunk.first);
        if !is_in_order || chunk.last < chunk.first {
            return Err(malformed("order of chunks"));
        }
        if chunk.count == 0 {
            return Err(malformed("facts of a chunk"));
        }
        chunks.push(chunk);
    }
    Ok(chunks)
}

fn object(reader: &mut Reader) -> Result<ObjectRef, DecodeError> {
    let staged = Revision::new(reader.u64("staged revision")?);
    let hash = ContentHash::from_bytes(reader.hash("hash")?);
    let size_bytes = reader.u64("size")?;
    Ok(ObjectRef { key: ObjectKey::content(ObjectKind::Chunk, staged, hash), hash, size_bytes })
}

fn chunk(reader: &mut Reader, owners: &Owners) -> Result<ChunkRef, DecodeError> {
    Ok(ChunkRef {
        owner: owners.read_number(reader)?,
        object: object(reader)?,
        first: reader.key()?,
        last: reader.key()?,
        count: reader.u32("count of entries")?,
        block_len: reader.u32("length of the block")?,
        newest: reader.version("newest version")?,
    })
}

fn pages(reader: &mut Reader, owners: &Owners) -> Result<Vec<PageRef>, DecodeError> {
    let count = reader.count(72, "count of pages")?;
    if count == 0 {
        return Err(malformed("count of pages"));
    }
    let mut pages: Vec<PageRef> = Vec::with_capacity(count);
    for _ in 0..count {
        let page = page(reader, owners)?;
        let is_in_order = pages.last().is_none_or(|it| it.last < page.first);
        if !is_in_order || page.last < page.first {
            return Err(malformed("order of pages"));
        }
        if page.chunks == 0 {
            return Err(malformed("facts of a page"));
        }
        pages.push(page);
    }
    Ok(pages)
}

fn page(reader: &mut Reader, owners: &Owners) -> Result<PageRef, DecodeError> {
    let owner = owners.read_number(reader)?;
    let object = object(reader)?;
    let (first, last) = (reader.key()?, reader.key()?);
    let chunks = reader.u32("count of chunks")?;
    let newest = reader.version("newest version")?;
    let mut names = BTreeSet::new();
    for _ in 0..reader.u8("count of owners")? {
        let name = owners.read_number(reader)?.ok_or(malformed("owner number"))?;
        if names.last().is_some_and(|it| name <= *it) {
            return Err(malformed("order of owners"));
        }
        names.insert(name);
    }
    Ok(PageRef { object, owner, first, last, chunks, newest, names })
}
