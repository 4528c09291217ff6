//! Operations and their outcomes, between two writers: to the wire and back.

use headwater_core::decide::{Conflict, ConflictKind, Place};
use headwater_core::id::HistoryId;
use headwater_core::operation::{Issue, KeyRange, Mutation, Operation, Precondition};
use headwater_core::publish::Answer;
use headwater_core::receipt::{MutationResult, Receipt};
use headwater_core::version::StateVersion;
use headwater_proto::v1;

/// An operation as a caller would submit it. History and id of the history go
/// once with the message.
pub(super) fn request(operation: &Operation) -> v1::SubmitRequest {
    let issued_from_version = match operation.issue {
        Issue::ClientKept(version) => Some(version.get()),
        // The record decides, whoever of the two writes it.
        Issue::ServiceKept { .. } => None,
    };
    v1::SubmitRequest {
        history: String::new(),
        operation_id: operation.id.as_str().to_owned(),
        issued_from_version,
        history_id: String::new(),
        writer_epoch: operation.writer_epoch,
        preconditions: operation.request.preconditions().iter().map(precondition).collect(),
        mutations: operation.request.mutations().iter().map(mutation).collect(),
    }
}

fn precondition(precondition: &Precondition) -> v1::Precondition {
    use v1::precondition::Kind;
    use v1::value_equals::Expected;
    let at = |key: &headwater_core::operation::Key, version: StateVersion| v1::KeyAtVersion {
        key: key.as_bytes().clone(),
        version: version.get(),
    };
    let equals = |key: &headwater_core::operation::Key, expected| {
        Kind::ValueEquals(v1::ValueEquals { key: key.as_bytes().clone(), expected: Some(expected) })
    };
    let kind = match precondition {
        Precondition::KeyExists(key) => Kind::KeyExists(key.as_bytes().clone()),
        Precondition::KeyAbsent(key) => Kind::KeyAbsent(key.as_bytes().clone()),
        Precondition::KeyAtVersion(key, version) => Kind::KeyAtVersion(at(key, *version)),
        Precondition::KeyUnchangedSince(key, version) => Kind::KeyUnchangedSince(at(key, *version)),
        Precondition::RangeUnchangedSince(it, version) => {
            let (range, version) = (Some(range(it)), version.get());
            Kind::RangeUnchangedSince(v1::RangeUnchangedSince { range, version })
        }
        Precondition::ValueEquals(key, value) => equals(key, Expected::Value(value.clone())),
        Precondition::ValueHashEquals(key, hash) => {
            equals(key, Expected::ValueHash(hash.as_bytes().to_vec().into()))
        }
    };
    v1::Precondition { kind: Some(kind) }
}

fn mutation(mutation: &Mutation) -> v1::Mutation {
    use v1::mutation::Kind;
    let kind = match mutation {
        Mutation::Put(key, value) => {
            Kind::Put(v1::Put { key: key.as_bytes().clone(), value: value.clone() })
        }
        Mutation::Delete(key) => Kind::Delete(key.as_bytes().clone()),
        Mutation::DeleteRange(it) => Kind::DeleteRange(range(it)),
        Mutation::Add(key, delta) => {
            Kind::Add(v1::Add { key: key.as_bytes().clone(), delta: *delta })
        }
    };
    v1::Mutation { kind: Some(kind) }
}

fn range(range: &KeyRange) -> v1::KeyRange {
    v1::KeyRange { start: range.start().clone(), end: range.end().cloned().unwrap_or_default() }
}

/// What a writer said to `operation`; `None` for what is no outcome of it.
pub(super) fn outcome(
    operation: &Operation,
    history_id: HistoryId,
    response: v1::SubmitResponse,
) -> Option<Answer> {
    use v1::submit_response::Outcome;
    if HistoryId::parse(&response.history_id) != Ok(history_id) {
        return None;
    }
    Some(match response.outcome? {
        Outcome::Accepted(it) => {
            let results = it.results.into_iter().map(|it| match it.value? {
                v1::mutation_result::Value::Sum(sum) => {
                    Some(MutationResult { mutation: it.mutation, sum })
                }
            });
            let receipt = Receipt {
                operation_id: operation.id.clone(),
                request_hash: operation.request_hash,
                accepted_at: StateVersion::new(it.state_version),
                position: it.position,
                results: results.collect::<Option<_>>()?,
            };
            Answer::Accepted { receipt, is_from_receipt: it.from_receipt }
        }
        Outcome::Rejected(it) => Answer::Rejected {
            at: StateVersion::new(it.at_version),
            conflicts: it.conflicts.into_iter().map(conflict).collect::<Option<_>>()?,
        },
        Outcome::Unknown(it) => Answer::Unknown {
            earliest: StateVersion::new(it.earliest_version),
            coverage_from: StateVersion::new(it.receipt_coverage_from),
        },
    })
}

fn conflict(conflict: v1::Conflict) -> Option<Conflict> {
    use v1::conflict::Kind;
    let kind = match conflict.kind() {
        Kind::Unspecified => return None,
        Kind::KeyMissing => ConflictKind::KeyMissing,
        Kind::KeyPresent => ConflictKind::KeyPresent,
        Kind::Changed => ConflictKind::Changed,
        Kind::ValueDiffers => ConflictKind::ValueDiffers,
        Kind::SinceTooOld => ConflictKind::SinceTooOld,
        Kind::NotAnInteger => ConflictKind::NotAnInteger,
        Kind::Overflow => ConflictKind::Overflow,
    };
    let place = match (conflict.precondition, conflict.mutation) {
        (Some(index), _) => Place::Precondition(index),
        (None, Some(index)) => Place::Mutation(index),
        (None, None) => return None,
    };
    let version_seen = StateVersion::new(conflict.version_seen);
    Some(Conflict { kind, key: conflict.key, version_seen, place })
}
