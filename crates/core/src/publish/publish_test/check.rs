//! What must be true of an answer at the moment when it is given, and of a
//! history at the end.

use std::vec::Vec;

use super::bucket::Bucket;
use super::model::State;
use super::rig::{Asked, Question};
use crate::decide::{Ask, LookUp};
use crate::id::OperationId;
use crate::operation::Operation;
use crate::publish::{Answer, Control, SubmitError};
use crate::receipt::Receipt;
use crate::version::StateVersion;

pub(super) fn check_answer(bucket: &Bucket, asked: &Asked, answer: &Answer) {
    match (&asked.question, answer) {
        (Question::Ask(ask), Answer::Accepted { receipt, .. }) => {
            let id = id_of(ask);
            assert_eq!(receipt.operation_id, *id);
            // Found in the log as it is now: told only what is published.
            assert!(bucket.accepted(id).contains(receipt), "{receipt:?} is not in the history");
        }
        (Question::Ask(Ask::Submit(operation)), Answer::Rejected { at, conflicts }) => {
            assert!(!conflicts.is_empty());
            assert!(asked.version <= *at, "rejected by a state older than the question");
            let is_true = is_rejected_between(bucket, asked.version, operation);
            assert!(is_true, "no state since {} rejects {operation:?}", asked.version);
        }
        (Question::Ask(_), Answer::Unknown { earliest, coverage_from }) => {
            assert!(earliest < coverage_from);
            let published = bucket.head().receipt_coverage_from;
            assert!(*coverage_from <= published, "{coverage_from} was only predicted");
        }
        (Question::Ask(Ask::LookUp(look_up)), Answer::NotAccepted { through }) => {
            check_not_accepted(bucket, asked, look_up, *through);
        }
        (Question::Ask(ask), Answer::Failed(error)) => check_error(bucket, asked, ask, error),
        (Question::Control(_), Answer::WriterEpochRaised { writer_epoch }) => {
            assert!(*writer_epoch <= bucket.head().writer_epoch);
        }
        (Question::Control(_), Answer::Retired) => assert!(bucket.head().is_retired()),
        (Question::Control(_), Answer::Pinned(pin)) => {
            assert!(bucket.has_had(|it| it.pins.contains(pin)), "{pin:?} was never there");
        }
        (Question::Control(Control::Unpin { name, .. }), Answer::Unpinned) => {
            assert!(bucket.has_had(|it| it.pin(name).is_none()));
        }
        (Question::Control(_), Answer::RetentionSet(retention)) => {
            assert!(bucket.has_had(|it| it.retention == *retention));
        }
        (
            Question::Control(Control::Pin(new)),
            Answer::Failed(SubmitError::VersionRetired { .. }),
        ) => {
            // What is gone stays gone.
            assert!(!bucket.head().is_retained(new.version.unwrap()));
        }
        (Question::Control(_), Answer::Failed(_)) => (),
        (question, answer) => panic!("{question:?} was answered with {answer:?}"),
    }
}

fn id_of(ask: &Ask) -> &OperationId {
    match ask {
        Ask::Submit(operation) => &operation.id,
        Ask::LookUp(look_up) => &look_up.id,
    }
}

fn check_not_accepted(bucket: &Bucket, asked: &Asked, look_up: &LookUp, through: StateVersion) {
    assert!(through <= bucket.version(), "{through} was only predicted");
    assert!(asked.version <= through, "looked up in a state older than the question");
    let earliest = look_up.issued_from.get().saturating_add(1);
    let accepted = bucket.accepted(&look_up.id);
    let is_missed = |it: &Receipt| earliest <= it.accepted_at.get() && it.accepted_at <= through;
    assert!(!accepted.iter().any(is_missed), "it was accepted: {accepted:?}");
}

fn check_error(bucket: &Bucket, asked: &Asked, ask: &Ask, error: &SubmitError) {
    let Ask::Submit(operation) = ask else { return };
    match error {
        SubmitError::IssuedAhead { state_version } => {
            assert!(asked.version <= *state_version);
            assert!(*state_version < operation.issue.issued_from(), "{asked:?} {error:?}");
        }
        SubmitError::Fenced { writer_epoch } => {
            assert!(*writer_epoch <= bucket.head().writer_epoch);
            assert_ne!(*writer_epoch, operation.writer_epoch);
        }
        SubmitError::IdReused => {
            let is_other = |it: &_| *it != operation.request_hash;
            let accepted = bucket.accepted(&operation.id);
            let record = bucket.records.get(&operation.id);
            assert!(
                accepted.iter().any(|it| is_other(&it.request_hash))
                    || record.is_some_and(|it| is_other(&it.request_hash)),
                "nothing else has the id",
            );
        }
        SubmitError::HistoryMissing
        | SubmitError::OtherHistory { .. }
        | SubmitError::NotExclusive
        | SubmitError::PinExists { .. }
        | SubmitError::PinMissing
        | SubmitError::PinsFull
        | SubmitError::VersionRetired { .. }
        | SubmitError::VersionAhead { .. }
        | SubmitError::NeededByFork { .. }
        | SubmitError::HeadTooLarge
        | SubmitError::Expired
        | SubmitError::Contended
        | SubmitError::StoreUnavailable
        | SubmitError::StoreDenied
        | SubmitError::StoredDataBad { .. }
        | SubmitError::FormatTooNew { .. }
        | SubmitError::InDoubt => (),
    }
}

/// Whether some state from `since` on, places inside versions included, does
/// not allow the operation.
fn is_rejected_between(bucket: &Bucket, since: StateVersion, operation: &Operation) -> bool {
    let is_rejected =
        |state: &State, next: StateVersion| state.carry_out(next, &operation.request).is_none();
    let mut next = since.next();
    let mut state = bucket.state(since).clone();
    let since = usize::try_from(since.get()).unwrap();
    for change in bucket.log.iter().skip(since) {
        for accepted in &change.operations {
            if is_rejected(&state, next) {
                return true;
            }
            state.apply(next, accepted);
        }
        next = next.next();
    }
    is_rejected(&state, next)
}

/// Replays the whole history against the plain model: each operation of
/// `submitted` that was accepted did, in its place, exactly what it says.
pub(super) fn check_history(bucket: &Bucket, submitted: &[Operation]) {
    let mut state = State::default();
    let mut seen = Vec::new();
    for (change, number) in bucket.log.iter().zip(1..) {
        let version = StateVersion::new(number);
        assert!(!change.operations.is_empty());
        for accepted in &change.operations {
            assert!(!seen.contains(&accepted.id), "{} was applied twice", accepted.id);
            seen.push(accepted.id.clone());
            let is_it =
                |it: &&Operation| it.id == accepted.id && it.request_hash == accepted.request_hash;
            let operation = submitted.iter().find(is_it).expect("nobody asked for it");
            let (mutations, results) =
                state.carry_out(version, &operation.request).expect("it was to be rejected");
            assert_eq!(mutations, accepted.mutations);
            assert_eq!(results, accepted.results);
            state.apply(version, accepted);
        }
    }
    assert_eq!(state, *bucket.state(bucket.version()));
}
