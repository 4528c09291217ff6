//! Submitting one operation, and finding out what became of one.

use headwater_proto::v1;
use tokio::time::Instant;

use crate::call::{GaveUp, timed};
use crate::client::write_service;
use crate::failure::{Determinacy, Failure, Reason};
use crate::id::OperationId;
use crate::limits;
use crate::operation::{IssueVersion, Operation};
use crate::outcome::{Accepted, Outcome, Unknown};
use crate::read::ReadError;
use crate::session::Session;

/// Why a submission has no outcome.
#[derive(Clone, Debug, thiserror::Error)]
pub enum SubmitError {
    /// There is no such history, or not the one that the session has seen.
    #[error("history is missing: {0}")]
    HistoryMissing(Box<Failure>),
    /// The request breaks a rule; [`Failure::fields`] says which.
    #[error("operation is invalid: {}", .0.rules())]
    Invalid(Box<Failure>),
    /// The operation id belongs to another request.
    #[error("operation id is taken: {0}")]
    IdReused(Box<Failure>),
    /// Another owner has taken over the exclusive history: stop.
    #[error("fenced: {0}")]
    Fenced(Box<Failure>),
    /// Time ran out, and no attempt can have been applied. The same operation
    /// may be submitted again, or dropped.
    #[error("not submitted in time: {0}")]
    Expired(Box<Failure>),
    /// Refused for another reason, which the failure names.
    #[error("refused: {0}")]
    Refused(Box<Failure>),
    /// An attempt may have been applied, and none told the outcome.
    #[error("outcome is in doubt: {0}")]
    InDoubt(Box<InDoubt>),
}

/// An operation that may have been applied. Submit [`InDoubt::operation`] again
/// to find out: it has its id and its issue version.
#[derive(Clone, Debug, thiserror::Error)]
#[error(
    "operation {id} may have been applied: {how}",
    id = self.operation.id(),
    how = self.last.as_last_of_doubt()
)]
pub struct InDoubt {
    /// The operation, as it was sent.
    pub operation: Operation,
    /// How the last attempt ended, which need not be the one in doubt.
    pub last: Failure,
}

impl SubmitError {
    /// Whether the operation may have been applied, by any attempt of the
    /// submission.
    pub fn determinacy(&self) -> Determinacy {
        match self {
            Self::HistoryMissing(_)
            | Self::Invalid(_)
            | Self::IdReused(_)
            | Self::Fenced(_)
            | Self::Expired(_)
            | Self::Refused(_) => Determinacy::NotApplied,
            Self::InDoubt(_) => Determinacy::MaybeApplied,
        }
    }

    pub(crate) fn new(gave_up: GaveUp, operation: Operation) -> Self {
        let GaveUp { in_doubt, is_expired, .. } = gave_up;
        let last = gave_up.into_failure();
        if in_doubt {
            return Self::InDoubt(Box::new(InDoubt { operation, last }));
        }
        let failure = Box::new(last);
        if is_expired {
            return Self::Expired(failure);
        }
        match failure.reason {
            Reason::HistoryMissing => Self::HistoryMissing(failure),
            Reason::FieldInvalid | Reason::VersionAhead => Self::Invalid(failure),
            Reason::OperationIdReused => Self::IdReused(failure),
            Reason::Fenced => Self::Fenced(failure),
            Reason::HistoryExists
            | Reason::PinExists
            | Reason::PinMissing
            | Reason::PinsFull
            | Reason::HistoryNeeded
            | Reason::HeadContended
            | Reason::QueueFull
            | Reason::HeadTooLarge
            | Reason::TooManyRequests
            | Reason::MessageTooLarge
            | Reason::StoreUnavailable
            | Reason::ShuttingDown
            | Reason::PublicationInDoubt
            | Reason::FreshnessUnverified
            | Reason::Expired
            | Reason::VersionRetired
            | Reason::WatcherSlow
            | Reason::FormatTooNew
            | Reason::StoredDataBad
            | Reason::Unauthenticated
            | Reason::PermissionDenied
            | Reason::Transport
            | Reason::Unrecognized => Self::Refused(failure),
        }
    }
}

/// What a lookup found.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "the outcome may be unknown"]
pub enum Lookup {
    /// The operation is in the history.
    Accepted(Accepted),
    /// It is not in the history through this version. A submission that is still
    /// under way may be accepted later.
    NotAccepted {
        /// The version.
        through_version: u64,
    },
    /// Nobody can say any more.
    Unknown(Unknown),
}

impl Session {
    /// Submits an operation, and tries again, with the same id and the same
    /// issue version, until it is answered or the deadline passes.
    ///
    /// Cancel safe in this sense: dropped, the operation may or may not have
    /// been applied. Where that matters, choose id and issue version before.
    ///
    /// # Errors
    ///
    /// [`SubmitError`]; [`SubmitError::determinacy`] says whether the operation
    /// may have been applied.
    pub async fn submit(&self, mut operation: Operation) -> Result<Outcome, SubmitError> {
        let deadline = self.client.deadline_from_now();
        if let Err(gave_up) = self.pin_issue_version(&mut operation, deadline).await {
            return Err(SubmitError::new(gave_up, operation));
        }
        let request = match self.request(&operation) {
            Ok(request) => request,
            Err(failure) => return Err(SubmitError::new(refused(failure, false), operation)),
        };
        let call = self.client.to_writers(&self.history).by(deadline);
        let attempt = |channel, time| {
            let request = timed(request.clone(), time);
            async move { write_service(channel).submit(request).await }
        };
        let outcome = match call.run(attempt).await {
            Ok(answer) => self.outcome(answer.value, answer.in_doubt),
            Err(gave_up) => Err(gave_up),
        };
        outcome.map_err(|gave_up| SubmitError::new(gave_up, operation))
    }

    /// Says what became of an operation. `issue` is what was sent with it: with
    /// [`IssueVersion::ServiceKept`], an operation without a request record was
    /// certainly never published, however old it is. [`IssueVersion::Newest`]
    /// knows nothing, and counts as version 0.
    ///
    /// # Errors
    ///
    /// [`ReadError`]. Looking changes nothing.
    pub async fn lookup(&self, id: &OperationId, issue: IssueVersion) -> Result<Lookup, ReadError> {
        use v1::get_operation_request::Issue as Issued;
        use v1::get_operation_response::Outcome as Wire;
        let request = v1::GetOperationRequest {
            history: self.history.to_string(),
            operation_id: id.as_str().to_owned(),
            issue: match issue {
                IssueVersion::At(version) => Some(Issued::IssuedFromVersion(version)),
                IssueVersion::ServiceKept => Some(Issued::ServiceKept(true)),
                IssueVersion::Newest => None,
            },
            history_id: self.pinned_id(),
        };
        let call = self.client.to_writers(&self.history);
        let answer = call
            .run(|channel, time| {
                let request = timed(request.clone(), time);
                async move { write_service(channel).get_operation(request).await }
            })
            .await?
            .value;
        let (version, lookup) = match answer.outcome {
            Some(Wire::Accepted(it)) => (Some(it.state_version), Lookup::Accepted(it.into())),
            Some(Wire::NotAcceptedThroughVersion(through_version)) => {
                (Some(through_version), Lookup::NotAccepted { through_version })
            }
            Some(Wire::Unknown(it)) => (None, Lookup::Unknown(it.into())),
            None => return Err(Failure::malformed("an answer has no outcome").into()),
        };
        self.note(&answer.history_id, version)?;
        Ok(lookup)
    }

    /// Fixes the issue version, for this attempt and all that follow.
    pub(crate) async fn pin_issue_version(
        &self,
        operation: &mut Operation,
        deadline: Instant,
    ) -> Result<(), GaveUp> {
        match operation.issue {
            IssueVersion::At(_) | IssueVersion::ServiceKept => Ok(()),
            IssueVersion::Newest => match self.newest(deadline).await {
                Ok(token) => {
                    operation.issue = IssueVersion::At(token.state_version);
                    Ok(())
                }
                // The operation was not sent: asking for the head changes nothing.
                Err(gave_up) => Err(GaveUp { in_doubt: false, ..gave_up }),
            },
        }
    }

    /// The wire form. The issue version is fixed by now.
    pub(crate) fn request(&self, operation: &Operation) -> Result<v1::SubmitRequest, Failure> {
        let request = v1::SubmitRequest {
            history: self.history.to_string(),
            operation_id: operation.id.as_str().to_owned(),
            issued_from_version: match operation.issue {
                IssueVersion::At(version) => Some(version),
                IssueVersion::Newest | IssueVersion::ServiceKept => None,
            },
            history_id: self.pinned_id(),
            writer_epoch: self.writer_epoch,
            preconditions: operation.preconditions.clone(),
            mutations: operation.mutations.clone(),
        };
        limits::check(&request)?;
        Ok(request)
    }

    /// Reads an answer. `in_doubt`: an earlier attempt may have been applied.
    pub(crate) fn outcome(
        &self,
        answer: v1::SubmitResponse,
        in_doubt: bool,
    ) -> Result<Outcome, GaveUp> {
        let outcome = Outcome::from_wire(answer.outcome, in_doubt)
            .map_err(|failure| refused(failure, true))?;
        self.note(&answer.history_id, outcome.version())
            .map_err(|failure| refused(failure, true))?;
        Ok(outcome)
    }
}

/// The end of a call that must not be repeated.
pub(crate) fn refused(failure: Failure, in_doubt: bool) -> GaveUp {
    GaveUp { last: Some(Box::new(failure)), in_doubt, is_expired: false }
}
