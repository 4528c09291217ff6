//! A receipt page: the receipts of a run of versions, without their values.

use alloc::vec::Vec;

use bytes::Bytes;

use super::wire::{self, Reader};
use super::{DecodeError, malformed};
use crate::hash::RequestHash;
use crate::id::OperationId;
use crate::receipt::{MutationResult, Receipt};
use crate::version::StateVersion;

const KIND: u8 = b'r';

/// Writes a page of receipts, in order of version and position.
pub fn encode(receipts: &[Receipt]) -> Vec<u8> {
    let mut out = Vec::new();
    wire::put_magic(&mut out, KIND);
    wire::put_len(&mut out, receipts.len());
    for receipt in receipts {
        wire::put_u64(&mut out, receipt.accepted_at.get());
        wire::put_u32(&mut out, receipt.position);
        put_accepted(&mut out, &receipt.operation_id, receipt.request_hash, &receipt.results);
    }
    out
}

/// Reads a page.
///
/// # Errors
///
/// [`DecodeError`], also where the receipts are not in order.
pub fn decode(bytes: Bytes) -> Result<Vec<Receipt>, DecodeError> {
    let mut reader = Reader::new(bytes);
    reader.magic(KIND)?;
    let count = reader.count(53, "count of receipts")?;
    let mut receipts: Vec<Receipt> = Vec::with_capacity(count);
    for _ in 0..count {
        let accepted_at: StateVersion = reader.version("version")?;
        let position = reader.u32("position")?;
        let (operation_id, request_hash, results) = accepted(&mut reader)?;
        let place = (accepted_at, position);
        if receipts.last().is_some_and(|it| place <= (it.accepted_at, it.position)) {
            return Err(malformed("order of receipts"));
        }
        receipts.push(Receipt { operation_id, request_hash, accepted_at, position, results });
    }
    reader.finish()?;
    Ok(receipts)
}

/// Id, request hash and results, as change entries have them too.
pub(super) fn put_accepted(
    out: &mut Vec<u8>,
    id: &OperationId,
    request_hash: RequestHash,
    results: &[MutationResult],
) {
    wire::put_bytes(out, id.as_str().as_bytes());
    out.extend_from_slice(request_hash.as_bytes());
    wire::put_len(out, results.len());
    for result in results {
        wire::put_u32(out, result.mutation);
        out.extend_from_slice(&result.sum.to_be_bytes());
    }
}

pub(super) fn accepted(
    reader: &mut Reader,
) -> Result<(OperationId, RequestHash, Vec<MutationResult>), DecodeError> {
    let id = reader.bytes("operation id")?;
    let id = core::str::from_utf8(&id).map_err(|_| malformed("operation id"))?;
    let id = OperationId::parse(id).map_err(|_| malformed("operation id"))?;
    let request_hash = RequestHash::from_bytes(reader.hash("request hash")?);
    let count = reader.count(12, "count of results")?;
    let results = (0..count)
        .map(|_| Ok(MutationResult { mutation: reader.u32("mutation")?, sum: reader.i64("sum")? }))
        .collect::<Result<_, DecodeError>>()?;
    Ok((id, request_hash, results))
}
