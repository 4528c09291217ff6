//! Creating, listing and deleting histories.

use headwater_proto::v1;

use crate::call::{GaveUp, timed};
use crate::client::{Client, history_service};
use crate::failure::{Determinacy, Failure, Reason};
use crate::id::HistoryId;
use crate::retention::{Pin, Retention};

/// A history as its head describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct History {
    /// Its name.
    pub name: String,
    /// Its id, drawn at creation.
    pub history_id: HistoryId,
    /// Accepted transitions so far.
    pub state_version: u64,
    /// Head replacements so far.
    pub revision: u64,
    /// Operations accepted so far, over the history's whole life.
    pub operation_count: u64,
    /// Whether operations must carry the current writer epoch.
    pub exclusive: bool,
    /// The current writer epoch; 0 until it is first raised.
    pub writer_epoch: u64,
    /// First version of which every accepted operation has a retained receipt.
    pub receipt_coverage_from: u64,
    /// First version from which on every version can be read.
    pub retained_from: u64,
    /// How far back versions are kept.
    pub retention: Retention,
    /// Versions that are kept by name, in the order of the names.
    pub pins: Vec<Pin>,
    /// The history that it was forked from, while it needs objects of there.
    pub forked_from: Option<String>,
}

/// One page of names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Names {
    /// In order.
    pub names: Vec<String>,
    /// For the next page; none after the last.
    pub next_page_token: Option<String>,
}

/// Why a call about a history has no answer.
#[derive(Clone, Debug, thiserror::Error)]
pub enum HistoryError {
    /// There is no such history.
    #[error("history is missing: {0}")]
    Missing(Box<Failure>),
    /// There is one of this name already.
    #[error("history exists: {0}")]
    Exists(Box<Failure>),
    /// The request breaks a rule; [`Failure::fields`] says which.
    #[error("request is invalid: {}", .0.rules())]
    Invalid(Box<Failure>),
    /// The writer epoch is another than expected.
    #[error("fenced: {0}")]
    Fenced(Box<Failure>),
    /// Time ran out, or an attempt was not answered and none that followed told
    /// what it did. The call is safe to repeat.
    #[error("{}", not_done(last, *determinacy))]
    Expired {
        /// The last failure.
        last: Box<Failure>,
        /// Whether an attempt may have been applied.
        determinacy: Determinacy,
    },
    /// Refused for another reason, which the failure names.
    #[error("refused: {0}")]
    Refused(Box<Failure>),
}

impl HistoryError {
    /// Whether the call may have changed something.
    pub fn determinacy(&self) -> Determinacy {
        match self {
            Self::Expired { determinacy, .. } => *determinacy,
            Self::Missing(_)
            | Self::Exists(_)
            | Self::Invalid(_)
            | Self::Fenced(_)
            | Self::Refused(_) => Determinacy::NotApplied,
        }
    }
}

impl From<GaveUp> for HistoryError {
    fn from(gave_up: GaveUp) -> Self {
        let GaveUp { in_doubt, is_expired, .. } = gave_up;
        let last = Box::new(gave_up.into_failure());
        let determinacy =
            if in_doubt { Determinacy::MaybeApplied } else { Determinacy::NotApplied };
        match last.reason {
            _ if is_expired => Self::Expired { last, determinacy },
            Reason::HistoryMissing | Reason::PinMissing => Self::Missing(last),
            Reason::HistoryExists | Reason::PinExists => Self::Exists(last),
            Reason::FieldInvalid => Self::Invalid(last),
            // An earlier attempt of this very call may be what raised the epoch.
            _ if in_doubt => Self::Expired { last, determinacy },
            Reason::Fenced => Self::Fenced(last),
            Reason::OperationIdReused
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
            | Reason::VersionAhead
            | Reason::WatcherSlow
            | Reason::FormatTooNew
            | Reason::StoredDataBad
            | Reason::Unauthenticated
            | Reason::PermissionDenied
            | Reason::Transport
            | Reason::Unrecognized => Self::Refused(last),
        }
    }
}

impl Client {
    /// Creates a history. The client draws its id, so that a call whose answer
    /// was lost finds what it had created.
    ///
    /// # Errors
    ///
    /// [`HistoryError::Exists`] when there is one of this name already.
    pub async fn create_history(
        &self,
        name: &str,
        exclusive: bool,
    ) -> Result<History, HistoryError> {
        self.create_history_with_id(name, &self.inner.random.history_id(), exclusive).await
    }

    /// Creates a history with an id that the caller drew: safe to repeat, from
    /// whatever process, as long as the id is the same.
    ///
    /// # Errors
    ///
    /// [`HistoryError::Exists`] when there is one of this name with another id.
    pub async fn create_history_with_id(
        &self,
        name: &str,
        history_id: &HistoryId,
        exclusive: bool,
    ) -> Result<History, HistoryError> {
        let request = v1::CreateHistoryRequest {
            name: name.to_owned(),
            history_id: history_id.as_str().to_owned(),
            exclusive,
            retention: None,
        };
        let call = self.to_writers(name);
        let answer = call
            .run(|channel, time| {
                let request = timed(request.clone(), time);
                async move { history_service(channel).create_history(request).await }
            })
            .await?;
        read_history(answer.value.history)
    }

    /// Reads the head of a history from the store.
    ///
    /// # Errors
    ///
    /// [`HistoryError`].
    pub async fn get_history(&self, name: &str) -> Result<History, HistoryError> {
        let request = v1::GetHistoryRequest { name: name.to_owned() };
        let call = self.to_writers(name);
        let answer = call
            .run(|channel, time| {
                let request = timed(request.clone(), time);
                async move { history_service(channel).get_history(request).await }
            })
            .await
            .map_err(nothing_changed)?;
        read_history(answer.value.history)
    }

    /// Lists histories whose names begin with `name_prefix`, up to `page_size`
    /// (at most 1,000; 0 means 100), from where `page_token` left off.
    ///
    /// # Errors
    ///
    /// [`HistoryError`].
    pub async fn list_histories(
        &self,
        name_prefix: &str,
        page_size: u32,
        page_token: Option<String>,
    ) -> Result<Names, HistoryError> {
        let request = v1::ListHistoriesRequest {
            name_prefix: name_prefix.to_owned(),
            page_size,
            page_token: page_token.unwrap_or_default(),
        };
        let call = self.to_writers(name_prefix);
        let answer = call
            .run(|channel, time| {
                let request = timed(request.clone(), time);
                async move { history_service(channel).list_histories(request).await }
            })
            .await
            .map_err(nothing_changed)?
            .value;
        let next_page_token = Some(answer.next_page_token).filter(|it| !it.is_empty());
        Ok(Names { names: answer.names, next_page_token })
    }

    /// Deletes a history with everything in it. `confirm` is its id, as
    /// [`Client::get_history`] gives it: another history is not deleted. Returns
    /// the number of objects that the answered attempt deleted.
    ///
    /// # Errors
    ///
    /// [`HistoryError`]. A call that was cut off is completed by calling again,
    /// where [`HistoryError::Missing`] says that it was complete.
    pub async fn delete_history(
        &self,
        name: &str,
        confirm: &HistoryId,
    ) -> Result<u64, HistoryError> {
        let request = v1::DeleteHistoryRequest {
            name: name.to_owned(),
            confirm_history_id: confirm.as_str().to_owned(),
        };
        let call = self.to_writers(name);
        let outcome = call
            .run(|channel, time| {
                let request = timed(request.clone(), time);
                async move { history_service(channel).delete_history(request).await }
            })
            .await;
        match outcome {
            Ok(answer) => Ok(answer.value.objects_deleted),
            Err(gave_up) => {
                let was_in_doubt = gave_up.in_doubt;
                let error = HistoryError::from(gave_up);
                // An attempt whose answer was lost did the work.
                let is_done = was_in_doubt && matches!(error, HistoryError::Missing(_));
                if is_done { Ok(0) } else { Err(error) }
            }
        }
    }

    /// Takes over an exclusive history: operations that name an earlier epoch are
    /// refused from then on. Returns the epoch for
    /// [`Session::with_writer_epoch`](crate::Session::with_writer_epoch).
    ///
    /// # Errors
    ///
    /// [`HistoryError::Fenced`] when `expected` is given and is not the current
    /// epoch. Without it, an attempt whose answer was lost raised the epoch as
    /// well, which is harmless.
    pub async fn raise_writer_epoch(
        &self,
        name: &str,
        expected: Option<u64>,
    ) -> Result<u64, HistoryError> {
        let request =
            v1::RaiseWriterEpochRequest { name: name.to_owned(), expected_writer_epoch: expected };
        let call = self.to_writers(name);
        let answer = call
            .run(|channel, time| {
                let request = timed(request.clone(), time);
                async move { history_service(channel).raise_writer_epoch(request).await }
            })
            .await?;
        Ok(answer.value.writer_epoch)
    }
}

/// What a call without an answer may say of itself.
fn not_done(last: &Failure, determinacy: Determinacy) -> String {
    match determinacy {
        Determinacy::NotApplied => format!("not done: {last}"),
        Determinacy::MaybeApplied => format!("it may have been done: {}", last.as_last_of_doubt()),
    }
}

/// A call that only looks leaves nothing in doubt.
pub(crate) fn nothing_changed(gave_up: GaveUp) -> GaveUp {
    GaveUp { in_doubt: false, ..gave_up }
}

pub(crate) fn read_history(wire: Option<v1::History>) -> Result<History, HistoryError> {
    let malformed = || {
        let failure = Failure::malformed("an answer has no history");
        HistoryError::Expired { last: Box::new(failure), determinacy: Determinacy::MaybeApplied }
    };
    let wire = wire.ok_or_else(malformed)?;
    Ok(History {
        name: wire.name,
        history_id: HistoryId::new(wire.history_id).map_err(|_| malformed())?,
        state_version: wire.state_version,
        revision: wire.revision,
        operation_count: wire.operation_count,
        exclusive: wire.exclusive,
        writer_epoch: wire.writer_epoch,
        receipt_coverage_from: wire.receipt_coverage_from,
        retained_from: wire.retained_from,
        retention: wire.retention.map(Retention::read).unwrap_or_default(),
        pins: wire.pins.into_iter().map(Pin::read).collect(),
        forked_from: Some(wire.forked_from).filter(|it| !it.is_empty()),
    })
}
