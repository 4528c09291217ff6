//! What every server refuses for its size, refused before it is sent.
//!
//! A server does not read a message that is larger than the wire allows, and
//! then cannot say which field it was, nor that nothing was applied.
//!
//! # Invariant
//!
//! - Nothing is refused here that a server would take. What is near a limit is
//!   the server's to measure: it counts the bytes of the stored form.

use headwater_proto::limits::{
    MESSAGE_BYTES_MAX, MUTATIONS_MAX, OPERATION_BYTES_MAX, PRECONDITIONS_MAX, VALUE_BYTES_MAX,
};
use headwater_proto::v1;
use headwater_proto::v1::mutation::Kind as MutationKind;
use headwater_proto::v1::precondition::Kind as PreconditionKind;
use headwater_proto::v1::value_equals::Expected;
use prost::Message;

use crate::failure::Failure;

/// Checks the sizes of an operation; names the first field that is too large.
pub(crate) fn check(request: &v1::SubmitRequest) -> Result<(), Failure> {
    let counts = [
        ("preconditions", request.preconditions.len(), PRECONDITIONS_MAX),
        ("mutations", request.mutations.len(), MUTATIONS_MAX),
    ];
    if let Some((field, count, max)) = counts.into_iter().find(|(_, count, max)| max < count) {
        return Err(Failure::invalid(field, format!("{count} are given, the limit is {max}")));
    }
    let mut len_bytes = 0;
    for (n, it) in request.preconditions.iter().enumerate() {
        let (key, value) = precondition_sizes(it);
        check_value(value, || format!("preconditions[{n}].value_equals.value"))?;
        len_bytes += key + value;
    }
    for (n, it) in request.mutations.iter().enumerate() {
        let (key, value) = mutation_sizes(it);
        check_value(value, || format!("mutations[{n}].put.value"))?;
        len_bytes += key + value;
    }
    for (len_bytes, max) in
        [(len_bytes, OPERATION_BYTES_MAX), (request.encoded_len(), MESSAGE_BYTES_MAX)]
    {
        if max < len_bytes {
            let rule = format!("an operation is {len_bytes} bytes, the limit is {max}");
            return Err(Failure::invalid("mutations", rule));
        }
    }
    Ok(())
}

fn check_value(len_bytes: usize, field: impl FnOnce() -> String) -> Result<(), Failure> {
    if VALUE_BYTES_MAX < len_bytes {
        let rule = format!("a value is {len_bytes} bytes, the limit is {VALUE_BYTES_MAX}");
        return Err(Failure::invalid(&field(), rule));
    }
    Ok(())
}

/// Bytes of keys and bounds, and of the value.
fn precondition_sizes(precondition: &v1::Precondition) -> (usize, usize) {
    match &precondition.kind {
        Some(PreconditionKind::KeyExists(key) | PreconditionKind::KeyAbsent(key)) => (key.len(), 0),
        Some(PreconditionKind::KeyAtVersion(it) | PreconditionKind::KeyUnchangedSince(it)) => {
            (it.key.len(), 0)
        }
        Some(PreconditionKind::RangeUnchangedSince(it)) => {
            (it.range.as_ref().map_or(0, range_size), 0)
        }
        Some(PreconditionKind::ValueEquals(it)) => match &it.expected {
            Some(Expected::Value(value)) => (it.key.len(), value.len()),
            Some(Expected::ValueHash(_)) | None => (it.key.len(), 0),
        },
        None => (0, 0),
    }
}

/// The same.
fn mutation_sizes(mutation: &v1::Mutation) -> (usize, usize) {
    match &mutation.kind {
        Some(MutationKind::Put(it)) => (it.key.len(), it.value.len()),
        Some(MutationKind::Delete(key)) => (key.len(), 0),
        Some(MutationKind::DeleteRange(range)) => (range_size(range), 0),
        Some(MutationKind::Add(it)) => (it.key.len(), 0),
        None => (0, 0),
    }
}

fn range_size(range: &v1::KeyRange) -> usize {
    range.start.len() + range.end.len()
}
