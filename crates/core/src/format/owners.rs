//! The table of other histories that an index names parts of. Entries refer to
//! it by a number of one byte, so that a name is stored once.

use alloc::sync::Arc;
use alloc::vec::Vec;

use super::wire::{self, Reader};
use super::{DecodeError, malformed};
use crate::id::HistoryName;

/// Most other histories in one index: what one byte counts. A history has as
/// many as it was forked in a row without a compaction that let one go.
pub const OWNERS_MAX: usize = 255;

/// Names in order, each once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Owners(Vec<Arc<HistoryName>>);

impl Owners {
    pub(super) fn of<'a>(names: impl Iterator<Item = &'a Arc<HistoryName>>) -> Self {
        let mut names: Vec<_> = names.cloned().collect();
        names.sort_unstable();
        names.dedup();
        Self(names)
    }

    /// # Panics
    ///
    /// For more than [`OWNERS_MAX`], which builders check.
    pub(super) fn put(&self, out: &mut Vec<u8>) {
        put_count(out, self.0.len());
        for name in &self.0 {
            wire::put_bytes(out, name.as_str().as_bytes());
        }
    }

    pub(super) fn read(reader: &mut Reader) -> Result<Self, DecodeError> {
        let count = reader.u8("count of owners")?;
        let mut names: Vec<Arc<HistoryName>> = Vec::new();
        for _ in 0..count {
            let bytes = reader.bytes("owner")?;
            let text = core::str::from_utf8(&bytes).map_err(|_| malformed("owner"))?;
            let name = HistoryName::parse(text).map_err(|_| malformed("owner"))?;
            if names.last().is_some_and(|it| name <= **it) {
                return Err(malformed("order of owners"));
            }
            names.push(Arc::new(name));
        }
        Ok(Self(names))
    }

    /// 0 is the history that the index is of; others count from 1.
    pub(super) fn put_number(&self, out: &mut Vec<u8>, owner: Option<&Arc<HistoryName>>) {
        let number = match owner {
            None => 0,
            Some(name) => self.0.binary_search(name).map_or(0, |it| it + 1),
        };
        put_count(out, number);
    }

    pub(super) fn read_number(
        &self,
        reader: &mut Reader,
    ) -> Result<Option<Arc<HistoryName>>, DecodeError> {
        match usize::from(reader.u8("owner number")?).checked_sub(1) {
            None => Ok(None),
            Some(at) => self.0.get(at).cloned().map(Some).ok_or(malformed("owner number")),
        }
    }
}

pub(super) fn put_count(out: &mut Vec<u8>, count: usize) {
    let Ok(count) = u8::try_from(count) else { panic!("{count} owners are over the limit") };
    wire::put_u8(out, count);
}
