//! A segment: consecutive change entries in one object, with an index.
//!
//! ```text
//! HWs1 | first version | count | count x (hash, length) | entries
//! ```

use alloc::vec::Vec;

use bytes::Bytes;

use super::wire::{self, Reader};
use super::{DecodeError, malformed};
use crate::hash::ContentHash;
use crate::version::StateVersion;

const KIND: u8 = b's';

/// A run of change entries, each as the bytes that its hash is over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Version of the first entry.
    pub from_version: StateVersion,
    /// The entries, each with its hash.
    pub entries: Vec<(ContentHash, Bytes)>,
}

/// Writes a segment.
///
/// # Panics
///
/// When it is empty: nothing would be named by it.
pub fn encode(segment: &Segment) -> Vec<u8> {
    assert!(!segment.entries.is_empty(), "a segment holds at least one entry");
    let total: usize = segment.entries.iter().map(|(_, bytes)| bytes.len()).sum();
    let mut out = Vec::with_capacity(16 + 36 * segment.entries.len() + total);
    wire::put_magic(&mut out, KIND);
    wire::put_u64(&mut out, segment.from_version.get());
    wire::put_len(&mut out, segment.entries.len());
    for (hash, bytes) in &segment.entries {
        out.extend_from_slice(hash.as_bytes());
        wire::put_len(&mut out, bytes.len());
    }
    for (_, bytes) in &segment.entries {
        out.extend_from_slice(bytes);
    }
    out
}

/// Reads a segment, and verifies the hash of each entry.
///
/// # Errors
///
/// [`DecodeError`].
pub fn decode(bytes: Bytes) -> Result<Segment, DecodeError> {
    let mut reader = Reader::new(bytes);
    reader.magic(KIND)?;
    let from_version = reader.version("first version")?;
    let count = reader.count(36, "count of entries")?;
    if count == 0 || from_version.get().checked_add(count as u64).is_none() {
        return Err(malformed("count of entries"));
    }
    let index = (0..count)
        .map(|_| Ok((ContentHash::from_bytes(reader.hash("hash")?), reader.u32("length")?)))
        .collect::<Result<Vec<_>, DecodeError>>()?;
    let mut entries = Vec::with_capacity(count);
    for (hash, len) in index {
        let bytes = reader.take(len as usize, "entry")?;
        if ContentHash::of(&bytes) != hash {
            return Err(malformed("hash of an entry"));
        }
        entries.push((hash, bytes));
    }
    reader.finish()?;
    Ok(Segment { from_version, entries })
}
