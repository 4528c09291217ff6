//! A chunk: sorted entries of a snapshot, compressed as one block.
//!
//! This module knows the envelope and the block; compressing is done by whoever
//! has a compressor.
//!
//! ```text
//! envelope: HWk1 | codec | length of the block | compressed block
//! block:    count | count x (key, version, value)
//! ```

use alloc::vec::Vec;

use bytes::Bytes;

use super::wire::{self, Reader};
use super::{DecodeError, malformed};
use crate::operation::Key;
use crate::version::StateVersion;

const KIND: u8 = b'k';

/// Largest block that is accepted, in bytes. Far above what a builder cuts, so
/// that one long value never makes a chunk unreadable; low enough that a
/// damaged length allocates little.
pub const BLOCK_BYTES_MAX: usize = 16 << 20;

/// How the block is compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Codec {
    /// Not at all.
    Plain,
    /// One zstd frame.
    Zstd,
}

/// A chunk object, taken apart but not decompressed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Envelope {
    /// How `payload` is compressed.
    pub codec: Codec,
    /// Length of the block, in bytes, once decompressed.
    pub block_len: usize,
    /// The compressed block.
    pub payload: Bytes,
}

/// One entry of the state, as a chunk holds it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChunkEntry {
    /// The key.
    pub key: Key,
    /// The version that last wrote it.
    pub version: StateVersion,
    /// Its value.
    pub value: Bytes,
}

/// Writes a chunk object around a block.
pub fn encode_envelope(codec: Codec, block_len: usize, payload: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(9 + payload.len());
    wire::put_magic(&mut out, KIND);
    wire::put_u8(
        &mut out,
        match codec {
            Codec::Plain => 0,
            Codec::Zstd => 1,
        },
    );
    wire::put_len(&mut out, block_len);
    out.extend_from_slice(payload);
    out
}

/// Takes a chunk object apart.
///
/// # Errors
///
/// [`DecodeError`], also for a block over [`BLOCK_BYTES_MAX`].
pub fn decode_envelope(bytes: &Bytes) -> Result<Envelope, DecodeError> {
    let mut reader = Reader::new(bytes.clone());
    reader.magic(KIND)?;
    let codec = match reader.u8("codec")? {
        0 => Codec::Plain,
        1 => Codec::Zstd,
        _ => return Err(malformed("codec")),
    };
    let block_len = reader.u32("length of the block")? as usize;
    if BLOCK_BYTES_MAX < block_len {
        return Err(malformed("length of the block"));
    }
    let payload = bytes.slice(9..);
    if codec == Codec::Plain && payload.len() != block_len {
        return Err(malformed("length of the block"));
    }
    Ok(Envelope { codec, block_len, payload })
}

/// Writes a block of sorted entries.
pub fn encode_block(entries: &[ChunkEntry]) -> Vec<u8> {
    let mut out = Vec::new();
    wire::put_len(&mut out, entries.len());
    for entry in entries {
        wire::put_bytes(&mut out, entry.key.as_ref());
        wire::put_u64(&mut out, entry.version.get());
        wire::put_bytes(&mut out, &entry.value);
    }
    out
}

/// Bytes that an entry takes in a block.
pub fn entry_len(entry: &ChunkEntry) -> usize {
    16 + entry.key.as_bytes().len() + entry.value.len()
}

/// Reads a block. Keys and values share its memory.
///
/// # Errors
///
/// [`DecodeError`], also where keys are not in strictly rising order.
pub fn decode_block(bytes: Bytes) -> Result<Vec<ChunkEntry>, DecodeError> {
    let mut reader = Reader::new(bytes);
    let count = reader.count(17, "count of entries")?;
    let mut entries: Vec<ChunkEntry> = Vec::with_capacity(count);
    for _ in 0..count {
        let key = reader.key()?;
        let version = reader.version("version")?;
        let value = reader.bytes("value")?;
        if entries.last().is_some_and(|it| key <= it.key) {
            return Err(malformed("order of keys"));
        }
        entries.push(ChunkEntry { key, version, value });
    }
    reader.finish()?;
    Ok(entries)
}
