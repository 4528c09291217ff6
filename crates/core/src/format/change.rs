//! A change entry.

use alloc::vec::Vec;

use bytes::Bytes;

use super::receipts::{accepted, put_accepted};
use super::wire::{self, Reader};
use super::{DecodeError, malformed};
use crate::change::{AcceptedOperation, Change, Resolved};

const KIND: u8 = b'c';

/// Writes a change entry.
///
/// # Panics
///
/// When it has no operation: an empty transition is never accepted.
pub fn encode(change: &Change) -> Vec<u8> {
    assert!(!change.operations.is_empty(), "a change entry holds at least one operation");
    let mut out = Vec::with_capacity(encoded_len(change));
    wire::put_magic(&mut out, KIND);
    wire::put_u64(&mut out, change.decided_at_ms);
    wire::put_len(&mut out, change.operations.len());
    for operation in &change.operations {
        put_accepted(&mut out, &operation.id, operation.request_hash, &operation.results);
        wire::put_len(&mut out, operation.mutations.len());
        for mutation in &operation.mutations {
            match mutation {
                Resolved::Put(key, value) => {
                    wire::put_u8(&mut out, 1);
                    wire::put_bytes(&mut out, key.as_ref());
                    wire::put_bytes(&mut out, value);
                }
                Resolved::Delete(key) => {
                    wire::put_u8(&mut out, 2);
                    wire::put_bytes(&mut out, key.as_ref());
                }
                Resolved::DeleteRange(range) => {
                    wire::put_u8(&mut out, 3);
                    wire::put_range(&mut out, range);
                }
            }
        }
    }
    debug_assert_eq!(out.len(), encoded_len(change), "the length is what was reserved");
    out
}

/// How many bytes [`encode`] writes.
fn encoded_len(change: &Change) -> usize {
    let mutation_len = |it: &Resolved| match it {
        Resolved::Put(key, value) => 9 + key.as_bytes().len() + value.len(),
        Resolved::Delete(key) => 5 + key.as_bytes().len(),
        Resolved::DeleteRange(range) => 9 + range.start().len() + range.end().map_or(0, Bytes::len),
    };
    let operation_len = |it: &AcceptedOperation| {
        let mutations = it.mutations.iter().map(mutation_len).sum::<usize>();
        44 + it.id.as_str().len() + 12 * it.results.len() + mutations
    };
    16 + change.operations.iter().map(operation_len).sum::<usize>()
}

/// Reads a change entry. Keys and values share the memory of `bytes`.
///
/// # Errors
///
/// [`DecodeError`].
pub fn decode(bytes: Bytes) -> Result<Change, DecodeError> {
    let mut reader = Reader::new(bytes);
    reader.magic(KIND)?;
    let decided_at_ms = reader.u64("time of the decision")?;
    let count = reader.count(45, "count of operations")?;
    if count == 0 {
        return Err(malformed("count of operations"));
    }
    let mut operations = Vec::with_capacity(count);
    for _ in 0..count {
        let (id, request_hash, results) = accepted(&mut reader)?;
        let count = reader.count(5, "count of mutations")?;
        let mutations = (0..count).map(|_| mutation(&mut reader)).collect::<Result<Vec<_>, _>>()?;
        operations.push(AcceptedOperation { id, request_hash, results, mutations });
    }
    reader.finish()?;
    Ok(Change { decided_at_ms, operations })
}

fn mutation(reader: &mut Reader) -> Result<Resolved, DecodeError> {
    Ok(match reader.u8("kind of mutation")? {
        1 => Resolved::Put(reader.key()?, reader.bytes("value")?),
        2 => Resolved::Delete(reader.key()?),
        3 => Resolved::DeleteRange(reader.range()?),
        _ => return Err(malformed("kind of mutation")),
    })
}
