//! From the core to the wire: answers and refusals.

use std::time::Duration;

use headwater_core::decide::{Conflict, ConflictKind, Place};
use headwater_core::head::Head;
use headwater_core::id::{HistoryId, HistoryName, PinName};
use headwater_core::operation::Operation;
use headwater_core::publish::{Answer, SubmitError, Trouble};
use headwater_core::receipt::Receipt;
use headwater_core::version::StateVersion;
use headwater_daemon::status::{self, FieldViolation};
use headwater_proto::v1;
use tonic::Status;

use crate::driver::{AskError, Told};

/// When the same call may succeed, where nothing better is known.
const RETRY_AFTER: Duration = Duration::from_millis(100);

/// What an answer is about, for messages.
#[derive(Clone, Copy, Debug)]
pub(crate) struct About<'a> {
    pub(crate) history: &'a HistoryName,
    /// The id of an operation, or the name of a pin.
    pub(crate) operation_id: &'a str,
    /// The newest version that the caller named.
    pub(crate) newest_named: u64,
}

impl<'a> About<'a> {
    /// A question about no operation.
    pub(crate) fn history(history: &'a HistoryName) -> Self {
        Self { history, operation_id: "", newest_named: 0 }
    }

    /// A question about a pin.
    pub(crate) fn pin(
        history: &'a HistoryName,
        name: &'a PinName,
        version: Option<StateVersion>,
    ) -> Self {
        let newest_named = version.unwrap_or_default().get();
        Self { history, operation_id: name.as_str(), newest_named }
    }

    pub(crate) fn operation(history: &'a HistoryName, operation: &'a Operation) -> Self {
        let named = operation.request.newest_version_named().unwrap_or_default();
        let newest_named = operation.issue.issued_from().max(named).get();
        Self { history, operation_id: operation.id.as_str(), newest_named }
    }
}

pub(crate) fn submitted(about: About<'_>, told: Told) -> Result<v1::SubmitResponse, Status> {
    use v1::submit_response::Outcome;
    let outcome = match told.answer {
        Answer::Accepted { receipt, is_from_receipt } => {
            Outcome::Accepted(accepted(&receipt, is_from_receipt))
        }
        Answer::Rejected { at, conflicts } => Outcome::Rejected(v1::Rejected {
            at_version: at.get(),
            conflicts: conflicts.into_iter().map(conflict).collect(),
        }),
        Answer::Unknown { earliest, coverage_from } => Outcome::Unknown(v1::Unknown {
            earliest_version: earliest.get(),
            receipt_coverage_from: coverage_from.get(),
        }),
        Answer::Failed(error) => return Err(failed(about, error)),
        Answer::NotAccepted { .. }
        | Answer::WriterEpochRaised { .. }
        | Answer::Retired
        | Answer::Pinned(_)
        | Answer::Unpinned
        | Answer::RetentionSet(_) => return Err(unexpected()),
    };
    let history_id = told.history_id.map(|it| it.to_string()).unwrap_or_default();
    Ok(v1::SubmitResponse { history_id, outcome: Some(outcome) })
}

pub(crate) fn looked_up(
    about: About<'_>,
    history_id: HistoryId,
    told: Told,
) -> Result<v1::GetOperationResponse, Status> {
    use v1::get_operation_response::Outcome;
    let outcome = match told.answer {
        Answer::Accepted { receipt, .. } => Outcome::Accepted(accepted(&receipt, true)),
        Answer::NotAccepted { through } => Outcome::NotAcceptedThroughVersion(through.get()),
        Answer::Unknown { earliest, coverage_from } => Outcome::Unknown(v1::Unknown {
            earliest_version: earliest.get(),
            receipt_coverage_from: coverage_from.get(),
        }),
        Answer::Failed(error) => return Err(failed(about, error)),
        Answer::Rejected { .. }
        | Answer::WriterEpochRaised { .. }
        | Answer::Retired
        | Answer::Pinned(_)
        | Answer::Unpinned
        | Answer::RetentionSet(_) => return Err(unexpected()),
    };
    Ok(v1::GetOperationResponse { history_id: history_id.to_string(), outcome: Some(outcome) })
}

fn accepted(receipt: &Receipt, from_receipt: bool) -> v1::Accepted {
    let results = receipt.results.iter().map(|it| v1::MutationResult {
        mutation: it.mutation,
        value: Some(v1::mutation_result::Value::Sum(it.sum)),
    });
    v1::Accepted {
        state_version: receipt.accepted_at.get(),
        position: receipt.position,
        results: results.collect(),
        from_receipt,
    }
}

fn conflict(conflict: Conflict) -> v1::Conflict {
    use v1::conflict::Kind;
    let kind = match conflict.kind {
        ConflictKind::KeyMissing => Kind::KeyMissing,
        ConflictKind::KeyPresent => Kind::KeyPresent,
        ConflictKind::Changed => Kind::Changed,
        ConflictKind::ValueDiffers => Kind::ValueDiffers,
        ConflictKind::SinceTooOld => Kind::SinceTooOld,
        ConflictKind::NotAnInteger => Kind::NotAnInteger,
        ConflictKind::Overflow => Kind::Overflow,
    };
    let (precondition, mutation) = match conflict.place {
        Place::Precondition(index) => (Some(index), None),
        Place::Mutation(index) => (None, Some(index)),
    };
    v1::Conflict {
        kind: kind.into(),
        key: conflict.key,
        version_seen: conflict.version_seen.get(),
        precondition,
        mutation,
    }
}

/// The status of a question without an outcome: one row a variant.
pub(crate) fn failed(about: About<'_>, error: SubmitError) -> Status {
    let name = about.history.as_str();
    match error {
        SubmitError::IdReused => status::operation_id_reused(about.operation_id),
        // The version is another history's, or one that a replica never served.
        SubmitError::IssuedAhead { state_version } => {
            status::version_ahead(about.newest_named, 0, state_version.get())
        }
        SubmitError::HistoryMissing => status::history_missing(name, "create it first"),
        SubmitError::OtherHistory { found } => {
            status::history_missing(name, &format!("the name belongs to history {found}"))
        }
        SubmitError::Fenced { writer_epoch } => status::fenced(writer_epoch),
        SubmitError::NotExclusive => status::field_invalid([FieldViolation::new(
            "name",
            "the history is not exclusive, and has no writer epoch",
        )]),
        SubmitError::PinExists { version } => status::pin_exists(about.operation_id, version.get()),
        SubmitError::PinMissing => status::pin_missing(about.operation_id),
        SubmitError::PinsFull => status::pins_full(Head::PINS_MAX),
        SubmitError::VersionRetired { oldest } => {
            status::version_retired(about.newest_named, oldest.get(), oldest.get())
        }
        SubmitError::VersionAhead { newest } => {
            status::version_ahead(about.newest_named, 0, newest.get())
        }
        SubmitError::NeededByFork { history } => status::history_needed(history.as_str()),
        SubmitError::HeadTooLarge => {
            status::head_too_large(name, "until maintenance has made room", RETRY_AFTER)
        }
        SubmitError::Expired => status::expired("nothing was published; send it again"),
        SubmitError::Contended => status::head_contended(RETRY_AFTER),
        SubmitError::StoreUnavailable => {
            status::store_unavailable("until the deadline; nothing was published", RETRY_AFTER)
        }
        SubmitError::StoreDenied => {
            status::permission_denied("the object store refuses this writer's credentials")
        }
        SubmitError::StoredDataBad { key, what } => {
            status::stored_data_bad(&key, &what, status::Determinacy::NotApplied)
        }
        SubmitError::FormatTooNew { key, format } => status::format_too_new(&key, format),
        SubmitError::InDoubt => status::publication_in_doubt(RETRY_AFTER),
    }
}

pub(crate) fn not_taken(about: About<'_>, error: &AskError) -> Status {
    match error {
        AskError::QueueFull { limit, .. } => {
            let subject = format!("the queue of {}", about.history);
            status::queue_full(&subject, &limit.to_string(), RETRY_AFTER)
        }
        AskError::TooManyHistories { limit } => {
            status::queue_full("the writer's open histories", &limit.to_string(), RETRY_AFTER)
        }
        AskError::ShuttingDown => status::shutting_down(),
        AskError::Lost => status::publication_in_doubt(RETRY_AFTER),
    }
}

/// The core answered another question: a defect, about which nothing may be
/// claimed.
pub(crate) fn unexpected() -> Status {
    status::publication_in_doubt(RETRY_AFTER)
}

/// A read of the store that belongs to no operation.
pub(crate) fn store_failed(trouble: Trouble, what: &str) -> Status {
    match trouble {
        Trouble::Unavailable | Trouble::Overtaken { .. } => {
            status::store_unavailable(what, RETRY_AFTER)
        }
        Trouble::Denied => status::permission_denied("the object store refuses this writer"),
        Trouble::BadData { key, what } => {
            status::stored_data_bad(&key, &what, status::Determinacy::NotApplied)
        }
        Trouble::TooNew { key, format } => status::format_too_new(&key, format),
    }
}
