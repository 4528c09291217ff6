//! Reading and writing of the binary encoding: big-endian integers, byte
//! strings with a 32-bit length in front.

use alloc::vec::Vec;

use bytes::{Buf as _, Bytes};

use super::{DecodeError, FORMAT, malformed};
use crate::operation::{Key, KeyRange};
use crate::version::StateVersion;

pub(super) fn put_magic(out: &mut Vec<u8>, kind: u8) {
    out.extend_from_slice(&[b'H', b'W', kind, FORMAT]);
}

pub(super) fn put_u8(out: &mut Vec<u8>, number: u8) {
    out.push(number);
}

pub(super) fn put_u32(out: &mut Vec<u8>, number: u32) {
    out.extend_from_slice(&number.to_be_bytes());
}

pub(super) fn put_u64(out: &mut Vec<u8>, number: u64) {
    out.extend_from_slice(&number.to_be_bytes());
}

/// # Panics
///
/// For 4 GiB or more: every caller's limits are far below.
pub(super) fn put_len(out: &mut Vec<u8>, len: usize) {
    let Ok(len) = u32::try_from(len) else { panic!("a part of {len} bytes is over every limit") };
    put_u32(out, len);
}

pub(super) fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_len(out, bytes.len());
    out.extend_from_slice(bytes);
}

pub(super) fn put_range(out: &mut Vec<u8>, range: &KeyRange) {
    put_bytes(out, range.start());
    // An end is never empty (it is above the start), so empty is "no bound".
    put_bytes(out, range.end().map_or(&[], |it| it));
}

/// Takes an object apart from the front. Byte strings share its memory.
pub(super) struct Reader {
    rest: Bytes,
}

impl Reader {
    pub(super) fn new(bytes: Bytes) -> Self {
        Self { rest: bytes }
    }

    /// Checks the four bytes at the front.
    pub(super) fn magic(&mut self, kind: u8) -> Result<(), DecodeError> {
        let magic = self.take(4, "first four bytes")?;
        match *magic {
            [b'H', b'W', found_kind, found] if found_kind == kind => match found {
                FORMAT => Ok(()),
                found if FORMAT < found => Err(DecodeError::TooNew { found }),
                _ => Err(malformed("format number")),
            },
            _ => Err(malformed("first four bytes")),
        }
    }

    pub(super) fn take(&mut self, len: usize, what: &'static str) -> Result<Bytes, DecodeError> {
        if self.rest.len() < len {
            return Err(malformed(what));
        }
        Ok(self.rest.split_to(len))
    }

    pub(super) fn u8(&mut self, what: &'static str) -> Result<u8, DecodeError> {
        Ok(self.take(1, what)?.get_u8())
    }

    pub(super) fn u32(&mut self, what: &'static str) -> Result<u32, DecodeError> {
        Ok(self.take(4, what)?.get_u32())
    }

    pub(super) fn u64(&mut self, what: &'static str) -> Result<u64, DecodeError> {
        Ok(self.take(8, what)?.get_u64())
    }

    pub(super) fn i64(&mut self, what: &'static str) -> Result<i64, DecodeError> {
        Ok(self.take(8, what)?.get_i64())
    }

    pub(super) fn version(&mut self, what: &'static str) -> Result<StateVersion, DecodeError> {
        self.u64(what).map(StateVersion::new)
    }

    pub(super) fn hash(&mut self, what: &'static str) -> Result<[u8; 32], DecodeError> {
        let mut hash = [0; 32];
        hash.copy_from_slice(&self.take(32, what)?);
        Ok(hash)
    }

    pub(super) fn bytes(&mut self, what: &'static str) -> Result<Bytes, DecodeError> {
        let len = self.u32(what)? as usize;
        self.take(len, what)
    }

    pub(super) fn key(&mut self) -> Result<Key, DecodeError> {
        Key::new(self.bytes("key")?).map_err(|_| malformed("key"))
    }

    pub(super) fn range(&mut self) -> Result<KeyRange, DecodeError> {
        let start = self.bytes("range start")?;
        let end = Some(self.bytes("range end")?).filter(|it| !it.is_empty());
        KeyRange::new(start, end).map_err(|_| malformed("range"))
    }

    /// A count of parts that take at least `part_len_min` bytes each: a count
    /// that cannot fit in what is left is refused before anything is allocated
    /// for it.
    pub(super) fn count(
        &mut self,
        part_len_min: usize,
        what: &'static str,
    ) -> Result<usize, DecodeError> {
        let count = self.u32(what)? as usize;
        if self.rest.len() / part_len_min < count {
            return Err(malformed(what));
        }
        Ok(count)
    }

    pub(super) fn finish(self) -> Result<(), DecodeError> {
        if self.rest.is_empty() { Ok(()) } else { Err(malformed("bytes after the end")) }
    }
}
