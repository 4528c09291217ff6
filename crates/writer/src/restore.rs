//! Restoring an old version: one more version, whose state equals it.
//!
//! ```text
//! read the head --> open both states --> their difference --> an operation
//!      ^                                                          |
//!      +------------------- something was accepted meanwhile -----+
//! ```
//!
//! The difference is submitted as an operation like any other, on the condition
//! that nothing has changed since. So the history has no special case: replicas
//! follow it, watchers see it, a retry finds its receipt.

use std::sync::Arc;

use headwater_core::decide::{Ask, LookUp};
use headwater_core::hash::RequestHash;
use headwater_core::head::Head;
use headwater_core::id::{HistoryName, OperationId};
use headwater_core::operation::{Issue, Operation, Request};
use headwater_core::publish::{Answer, SubmitError, Trouble};
use headwater_core::receipt::Receipt;
use headwater_core::version::StateVersion;
use headwater_state::{Difference, Loader, StateError, View};
use tokio::time::{Instant, sleep, timeout_at};

use crate::driver::{AskError, Question, state_trouble};
use crate::histories::Histories;

/// What is to be restored, and as which operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Restore {
    /// The version whose state is wanted.
    pub version: StateVersion,
    /// The operation's id, the same across retries.
    pub operation_id: OperationId,
    /// When it was first issued.
    pub issued_from: StateVersion,
    /// The epoch, in an exclusive history.
    pub writer_epoch: u64,
}

/// What came of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Restored {
    /// There is a version with the old state.
    Accepted {
        /// The proof; `None` where the newest version had the state already and
        /// nothing was written.
        receipt: Option<Receipt>,
        /// The version.
        version: StateVersion,
        /// Keys that were written or deleted.
        keys_changed: u64,
        /// Whether an earlier submission was what got it accepted.
        is_from_receipt: bool,
    },
    /// The receipts that could tell are gone.
    Unknown,
}

/// Why a version was not restored.
#[derive(Debug, thiserror::Error)]
pub enum RestoreError {
    /// The difference is over the limits of one operation.
    #[error("the difference is more than one operation takes; fork the history instead")]
    TooLarge,
    /// As for a submission.
    #[error(transparent)]
    Submit(#[from] SubmitError),
    /// The question was not taken.
    #[error(transparent)]
    Ask(#[from] AskError),
}

impl Histories {
    /// Restores a version. Tries until it is accepted or `deadline` has passed.
    pub(crate) async fn restore(
        self: &Arc<Self>,
        history: &HistoryName,
        restore: &Restore,
        deadline: Instant,
    ) -> Result<Restored, RestoreError> {
        // It may have been accepted, and the version be gone since.
        let look_up = LookUp {
            id: restore.operation_id.clone(),
            issued_from: restore.issued_from,
            history_id: None,
        };
        match self.put_question(history, Ask::LookUp(look_up), deadline).await? {
            Answer::Accepted { receipt, .. } => return again(restore, receipt),
            Answer::Unknown { .. } => return Ok(Restored::Unknown),
            Answer::Failed(error) => return Err(error.into()),
            Answer::NotAccepted { .. } => (),
            Answer::Rejected { .. }
            | Answer::WriterEpochRaised { .. }
            | Answer::Retired
            | Answer::Pinned(_)
            | Answer::Unpinned
            | Answer::RetentionSet(_) => return Err(unexpected().into()),
        }
        loop {
            let tried = timeout_at(deadline, self.try_restore(history, restore, deadline)).await;
            match tried.unwrap_or(Err(SubmitError::Expired.into()))? {
                Some(restored) => return Ok(restored),
                None if deadline <= Instant::now() => {
                    return Err(SubmitError::Contended.into());
                }
                None => sleep(self.entropy.jitter(std::time::Duration::from_millis(20))).await,
            }
        }
    }

    /// One attempt; `None` where something was accepted meanwhile.
    async fn try_restore(
        self: &Arc<Self>,
        history: &HistoryName,
        restore: &Restore,
        deadline: Instant,
    ) -> Result<Option<Restored>, RestoreError> {
        let found = self.head_of(history).await.map_err(SubmitError::from)?;
        let (head, _) =
            found.filter(|(it, _)| !it.is_retired()).ok_or(SubmitError::HistoryMissing)?;
        let loader = self.loader(history);
        let states = self.open_both(&loader, &head, restore.version).await?;
        let Some((now, then)) = states else { return Ok(None) };
        let limits = (Request::RESTORED_KEYS_MAX, Request::RESTORED_BYTES_MAX);
        let mutations = match now.difference(&then, limits.0, limits.1).await {
            Ok(Difference::Mutations(mutations)) => mutations,
            Ok(Difference::TooLarge) => return Err(RestoreError::TooLarge),
            Err(error) => return overtaken_or(&head, &error).map(|()| None),
        };
        let keys_changed = mutations.len() as u64;
        let Some(request) = Request::restoring(head.state_version, mutations) else {
            return Ok(Some(Restored::Accepted {
                receipt: None,
                version: head.state_version,
                keys_changed: 0,
                is_from_receipt: false,
            }));
        };
        let operation = Operation {
            id: restore.operation_id.clone(),
            request: Arc::new(request),
            request_hash: RequestHash::of_restore(restore.version),
            issue: Issue::ClientKept(restore.issued_from),
            writer_epoch: restore.writer_epoch,
            history_id: Some(head.history_id),
            ends_version: true,
        };
        match self.put_question(history, Ask::Submit(operation), deadline).await? {
            Answer::Accepted { receipt, is_from_receipt } => Ok(Some(Restored::Accepted {
                version: receipt.accepted_at,
                receipt: Some(receipt),
                keys_changed: if is_from_receipt { 0 } else { keys_changed },
                is_from_receipt,
            })),
            // Something was accepted since: the difference is another one.
            Answer::Rejected { .. } => Ok(None),
            Answer::Unknown { .. } => Ok(Some(Restored::Unknown)),
            Answer::Failed(error) => Err(error.into()),
            Answer::NotAccepted { .. }
            | Answer::WriterEpochRaised { .. }
            | Answer::Retired
            | Answer::Pinned(_)
            | Answer::Unpinned
            | Answer::RetentionSet(_) => Err(unexpected().into()),
        }
    }

    /// The newest state and the wanted one.
    async fn open_both(
        &self,
        loader: &Loader,
        head: &Head,
        version: StateVersion,
    ) -> Result<Option<(View, View)>, RestoreError> {
        if head.state_version < version {
            return Err(SubmitError::VersionAhead { newest: head.state_version }.into());
        }
        let opened = async {
            let now = loader.open(head).await?.view;
            let then = if head.snapshot.version <= version {
                Some(loader.open_at(head, version).await?)
            } else {
                let archive = loader.archive(head).await?;
                loader.open_archived(head, &archive, version).await?
            };
            Ok::<_, StateError>((now, then))
        };
        match opened.await {
            Ok((now, Some(then))) => Ok(Some((now, then))),
            Ok((_, None)) => {
                Err(SubmitError::VersionRetired { oldest: head.retained_from() }.into())
            }
            Err(error) => overtaken_or(head, &error).map(|()| None),
        }
    }

    pub(crate) async fn put_question(
        self: &Arc<Self>,
        history: &HistoryName,
        ask: Ask,
        deadline: Instant,
    ) -> Result<Answer, AskError> {
        let told = self.send(history, Question::Ask(ask), deadline)?.await;
        told.map(|it| it.answer).map_err(|_| AskError::Lost)
    }
}

/// What is told of a restore that was accepted before.
fn again(restore: &Restore, receipt: Receipt) -> Result<Restored, RestoreError> {
    if receipt.request_hash != RequestHash::of_restore(restore.version) {
        return Err(SubmitError::IdReused.into());
    }
    Ok(Restored::Accepted {
        version: receipt.accepted_at,
        receipt: Some(receipt),
        keys_changed: 0,
        is_from_receipt: true,
    })
}

/// Nothing, where the head was compacted and swept meanwhile: it is read again.
fn overtaken_or(head: &Head, error: &StateError) -> Result<(), RestoreError> {
    match error {
        StateError::Missing { .. } => Ok(()),
        StateError::Store(_)
        | StateError::Bad { .. }
        | StateError::TooNew { .. }
        | StateError::Follow(_) => {
            let trouble: Trouble = state_trouble(&head.history.head_key(), error);
            Err(SubmitError::from(trouble).into())
        }
    }
}

/// An answer to another question: a defect, about which nothing may be claimed.
fn unexpected() -> SubmitError {
    tracing::error!("an answer to another question");
    SubmitError::InDoubt
}
