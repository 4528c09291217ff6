//! The canonical bytes of a request: what its hash is over, and what a request
//! record keeps.

use alloc::vec::Vec;

use bytes::Bytes;

use super::wire::{self, Reader};
use super::{DecodeError, malformed};
use crate::hash::ContentHash;
use crate::operation::{Mutation, Precondition, Request};

const KIND: u8 = b'q';

/// Writes a request.
pub fn encode(request: &Request) -> Vec<u8> {
    let mut out = Vec::with_capacity(encoded_len(request));
    wire::put_magic(&mut out, KIND);
    wire::put_len(&mut out, request.preconditions().len());
    for precondition in request.preconditions() {
        put_precondition(&mut out, precondition);
    }
    wire::put_len(&mut out, request.mutations().len());
    for mutation in request.mutations() {
        put_mutation(&mut out, mutation);
    }
    out
}

/// How many bytes [`encode`] writes.
pub fn encoded_len(request: &Request) -> usize {
    let preconditions = request.preconditions().iter().map(|it| match it {
        Precondition::KeyExists(key) | Precondition::KeyAbsent(key) => 5 + key.as_bytes().len(),
        Precondition::KeyAtVersion(key, _) | Precondition::KeyUnchangedSince(key, _) => {
            13 + key.as_bytes().len()
        }
        Precondition::RangeUnchangedSince(range, _) => {
            17 + range.start().len() + range.end().map_or(0, Bytes::len)
        }
        Precondition::ValueEquals(key, value) => 9 + key.as_bytes().len() + value.len(),
        Precondition::ValueHashEquals(key, _) => 37 + key.as_bytes().len(),
    });
    let mutations = request.mutations().iter().map(|it| match it {
        Mutation::Put(key, value) => 9 + key.as_bytes().len() + value.len(),
        Mutation::Delete(key) => 5 + key.as_bytes().len(),
        Mutation::DeleteRange(range) => 9 + range.start().len() + range.end().map_or(0, Bytes::len),
        Mutation::Add(key, _) => 13 + key.as_bytes().len(),
    });
    12 + preconditions.sum::<usize>() + mutations.sum::<usize>()
}

fn put_precondition(out: &mut Vec<u8>, precondition: &Precondition) {
    match precondition {
        Precondition::KeyExists(key) => {
            wire::put_u8(out, 1);
            wire::put_bytes(out, key.as_ref());
        }
        Precondition::KeyAbsent(key) => {
            wire::put_u8(out, 2);
            wire::put_bytes(out, key.as_ref());
        }
        Precondition::KeyAtVersion(key, version) => {
            wire::put_u8(out, 3);
            wire::put_bytes(out, key.as_ref());
            wire::put_u64(out, version.get());
        }
        Precondition::KeyUnchangedSince(key, version) => {
            wire::put_u8(out, 4);
            wire::put_bytes(out, key.as_ref());
            wire::put_u64(out, version.get());
        }
        Precondition::RangeUnchangedSince(range, version) => {
            wire::put_u8(out, 5);
            wire::put_range(out, range);
            wire::put_u64(out, version.get());
        }
        Precondition::ValueEquals(key, value) => {
            wire::put_u8(out, 6);
            wire::put_bytes(out, key.as_ref());
            wire::put_bytes(out, value);
        }
        Precondition::ValueHashEquals(key, hash) => {
            wire::put_u8(out, 7);
            wire::put_bytes(out, key.as_ref());
            out.extend_from_slice(hash.as_bytes());
        }
    }
}

fn put_mutation(out: &mut Vec<u8>, mutation: &Mutation) {
    match mutation {
        Mutation::Put(key, value) => {
            wire::put_u8(out, 1);
            wire::put_bytes(out, key.as_ref());
            wire::put_bytes(out, value);
        }
        Mutation::Delete(key) => {
            wire::put_u8(out, 2);
            wire::put_bytes(out, key.as_ref());
        }
        Mutation::DeleteRange(range) => {
            wire::put_u8(out, 3);
            wire::put_range(out, range);
        }
        Mutation::Add(key, delta) => {
            wire::put_u8(out, 4);
            wire::put_bytes(out, key.as_ref());
            out.extend_from_slice(&delta.to_be_bytes());
        }
    }
}

/// Reads a request back.
///
/// # Errors
///
/// [`DecodeError`], also for a request over the limits of [`Request`].
pub fn decode(bytes: Bytes) -> Result<Request, DecodeError> {
    let mut reader = Reader::new(bytes);
    reader.magic(KIND)?;
    let count = reader.count(5, "count of preconditions")?;
    let preconditions =
        (0..count).map(|_| precondition(&mut reader)).collect::<Result<Vec<_>, _>>()?;
    let count = reader.count(5, "count of mutations")?;
    let mutations = (0..count).map(|_| mutation(&mut reader)).collect::<Result<Vec<_>, _>>()?;
    reader.finish()?;
    Request::new(preconditions, mutations).map_err(|_| malformed("request over its limits"))
}

fn precondition(reader: &mut Reader) -> Result<Precondition, DecodeError> {
    Ok(match reader.u8("kind of precondition")? {
        1 => Precondition::KeyExists(reader.key()?),
        2 => Precondition::KeyAbsent(reader.key()?),
        3 => Precondition::KeyAtVersion(reader.key()?, reader.version("version")?),
        4 => Precondition::KeyUnchangedSince(reader.key()?, reader.version("version")?),
        5 => Precondition::RangeUnchangedSince(reader.range()?, reader.version("version")?),
        6 => Precondition::ValueEquals(reader.key()?, reader.bytes("value")?),
        7 => Precondition::ValueHashEquals(
            reader.key()?,
            ContentHash::from_bytes(reader.hash("value hash")?),
        ),
        _ => return Err(malformed("kind of precondition")),
    })
}

fn mutation(reader: &mut Reader) -> Result<Mutation, DecodeError> {
    Ok(match reader.u8("kind of mutation")? {
        1 => Mutation::Put(reader.key()?, reader.bytes("value")?),
        2 => Mutation::Delete(reader.key()?),
        3 => Mutation::DeleteRange(reader.range()?),
        4 => Mutation::Add(reader.key()?, reader.i64("delta")?),
        _ => return Err(malformed("kind of mutation")),
    })
}
