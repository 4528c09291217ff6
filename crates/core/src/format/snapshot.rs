//! A snapshot index: the state at one version, as a list of chunks.

use alloc::vec::Vec;

use bytes::Bytes;

use super::wire::{self, Reader};
use super::{DecodeError, malformed};
use crate::hash::{ChainHash, ContentHash};
use crate::head::ObjectRef;
use crate::id::HistoryId;
use crate::keys::{ObjectKey, ObjectKind};
use crate::operation::Key;
use crate::version::{Revision, StateVersion};

const KIND: u8 = b'i';

/// One chunk of a snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChunkRef {
    /// The object.
    pub object: ObjectRef,
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

/// The state at one version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SnapshotIndex {
    /// The history that it is of.
    pub history_id: HistoryId,
    /// The version that it stands for.
    pub version: StateVersion,
    /// The chain at that version, where replay goes on.
    pub chain_hash: ChainHash,
    /// The chunks, in order of keys.
    pub chunks: Vec<ChunkRef>,
}

impl SnapshotIndex {
    /// The empty state that a history begins with.
    pub fn empty(history_id: HistoryId) -> Self {
        Self {
            history_id,
            version: StateVersion::ZERO,
            chain_hash: ChainHash::first(history_id),
            chunks: Vec::new(),
        }
    }
}

/// Writes a snapshot index.
pub fn encode(index: &SnapshotIndex) -> Vec<u8> {
    let mut out = Vec::new();
    wire::put_magic(&mut out, KIND);
    out.extend_from_slice(index.history_id.as_bytes());
    wire::put_u64(&mut out, index.version.get());
    out.extend_from_slice(index.chain_hash.as_bytes());
    wire::put_len(&mut out, index.chunks.len());
    for chunk in &index.chunks {
        wire::put_u64(&mut out, chunk.object.key.staged().get());
        out.extend_from_slice(chunk.object.hash.as_bytes());
        wire::put_u64(&mut out, chunk.object.size_bytes);
        wire::put_bytes(&mut out, chunk.first.as_ref());
        wire::put_bytes(&mut out, chunk.last.as_ref());
        wire::put_u32(&mut out, chunk.count);
        wire::put_u32(&mut out, chunk.block_len);
        wire::put_u64(&mut out, chunk.newest.get());
    }
    out
}

/// Reads a snapshot index.
///
/// # Errors
///
/// [`DecodeError`], also where chunks overlap or are out of order.
pub fn decode(bytes: Bytes) -> Result<SnapshotIndex, DecodeError> {
    let mut reader = Reader::new(bytes);
    reader.magic(KIND)?;
    let mut history_id = [0; 16];
    history_id.copy_from_slice(&reader.take(16, "history id")?);
    let version = reader.version("version")?;
    let chain_hash = ChainHash::from_bytes(reader.hash("chain hash")?);
    let count = reader.count(74, "count of chunks")?;
    let mut chunks: Vec<ChunkRef> = Vec::with_capacity(count);
    for _ in 0..count {
        let chunk = chunk(&mut reader)?;
        let is_in_order = chunks.last().is_none_or(|it| it.last < chunk.first);
        if !is_in_order || chunk.last < chunk.first {
            return Err(malformed("order of chunks"));
        }
        if chunk.count == 0 || version < chunk.newest {
            return Err(malformed("facts of a chunk"));
        }
        chunks.push(chunk);
    }
    reader.finish()?;
    Ok(SnapshotIndex { history_id: HistoryId::from_bytes(history_id), version, chain_hash, chunks })
}

fn chunk(reader: &mut Reader) -> Result<ChunkRef, DecodeError> {
    let staged = Revision::new(reader.u64("staged revision")?);
    let hash = ContentHash::from_bytes(reader.hash("hash")?);
    let size_bytes = reader.u64("size")?;
    let key = ObjectKey::content(ObjectKind::Chunk, staged, hash);
    Ok(ChunkRef {
        object: ObjectRef { key, hash, size_bytes },
        first: reader.key()?,
        last: reader.key()?,
        count: reader.u32("count of entries")?,
        block_len: reader.u32("length of the block")?,
        newest: reader.version("newest version")?,
    })
}
