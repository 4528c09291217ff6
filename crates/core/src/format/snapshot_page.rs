//! A page of a snapshot's index: some of its chunks, in order of keys.
//!
//! A page stands by itself. An owner in it is seen from the history below whose
//! prefix the page lies, so that a forked history may name it as it is.

use alloc::vec::Vec;

use bytes::Bytes;

use super::owners::Owners;
use super::snapshot::{self, ChunkRef, put_chunks};
use super::wire::{self, Reader};
use super::{DecodeError, malformed};

const KIND: u8 = b'p';

/// Writes a page.
///
/// # Panics
///
/// For chunks of more than [`OWNERS_MAX`](super::snapshot::OWNERS_MAX) other
/// histories.
pub fn encode(chunks: &[ChunkRef]) -> Vec<u8> {
    let owners = Owners::of(chunks.iter().filter_map(|it| it.owner.as_ref()));
    let mut out = Vec::new();
    wire::put_magic(&mut out, KIND);
    owners.put(&mut out);
    put_chunks(&mut out, &owners, chunks);
    out
}

/// Reads a page.
///
/// # Errors
///
/// [`DecodeError`], also where it is empty, or chunks overlap or are out of
/// order.
pub fn decode(bytes: Bytes) -> Result<Vec<ChunkRef>, DecodeError> {
    let mut reader = Reader::new(bytes);
    reader.magic(KIND)?;
    let owners = Owners::read(&mut reader)?;
    let chunks = snapshot::chunks(&mut reader, &owners)?;
    reader.finish()?;
    if chunks.is_empty() {
        return Err(malformed("count of chunks"));
    }
    if Owners::of(chunks.iter().filter_map(|it| it.owner.as_ref())) != owners {
        return Err(malformed("owners"));
    }
    Ok(chunks)
}
