//! Creating and deleting histories.
//!
//! ```text
//! (no head) --create--> live --retire--> retiring --objects gone--> cleared
//!                        ^                                             |
//!                        +----------------- create --------------------+
//! ```
//!
//! The head of a deleted history stays, cleared: removing it could not be made
//! conditional on all stores, so a slow deletion could remove the head of a
//! history that was created meanwhile. A new history takes the cleared head
//! over by compare-and-swap, at the next revision.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::{StreamExt as _, TryStreamExt as _, stream};
use headwater_core::format;
use headwater_core::head::{Head, Lifecycle, Publisher, Retention, Successor};
use headwater_core::id::{HistoryId, HistoryName, Nonce, Tag};
use headwater_core::keys::{ObjectKey, ObjectKind};
use headwater_core::publish::{Answer, Control, SubmitError, Trouble};
use headwater_core::version::Revision;
use headwater_daemon::telemetry::with_causes;
use headwater_state::write_empty_snapshot;
use headwater_store::{HeadRead, HeadWrite};
use tokio::time::{Instant, sleep, timeout_at};

use crate::driver::{AskError, Question, decode_head, put_trouble, read_trouble};
use crate::histories::Histories;

/// Objects deleted at a time.
const DELETES_AT_ONCE: usize = 16;
/// Objects listed at a time.
const LIST_PAGE: usize = 1_000;
/// Bound of the pause between two attempts.
const PAUSE: Duration = Duration::from_millis(100);

/// Why a history could not be created or deleted.
#[derive(Debug, thiserror::Error)]
pub enum LifecycleError {
    /// The name is taken, by a history with another id.
    #[error("the history exists")]
    Exists,
    /// The name belongs to a history that is being deleted.
    #[error("the history is being deleted")]
    BeingDeleted,
    /// The id is that of a history that was deleted.
    #[error("the id is that of a deleted history")]
    IdUsed,
    /// The confirmation names another history.
    #[error("the history has another id: {found}")]
    NotConfirmed {
        /// The id that it has.
        found: HistoryId,
    },
    /// As for a submission.
    #[error(transparent)]
    Submit(#[from] SubmitError),
    /// The question was not taken.
    #[error(transparent)]
    Ask(#[from] AskError),
}

/// A creation under way.
struct Creation<'a> {
    history: &'a HistoryName,
    id: HistoryId,
    is_exclusive: bool,
    retention: Retention,
    /// Whether a head was sent and nothing is known of it.
    is_in_doubt: bool,
}

impl From<Trouble> for LifecycleError {
    fn from(trouble: Trouble) -> Self {
        Self::Submit(trouble.into())
    }
}

impl Histories {
    /// The head under a name, whatever its lifecycle.
    pub(crate) async fn head_of(
        &self,
        history: &HistoryName,
    ) -> Result<Option<(Head, Tag)>, Trouble> {
        match self.store.read_head(&history.head_key(), None).await {
            Ok(HeadRead::Found { bytes, tag }) => Ok(Some((decode_head(history, &bytes)?, tag))),
            Ok(HeadRead::Missing | HeadRead::Unchanged) => Ok(None),
            Err(error) => Err(read_trouble(&error)),
        }
    }

    /// Creates a history, or finds the one that an earlier try created.
    pub(crate) async fn create(
        &self,
        history: &HistoryName,
        id: HistoryId,
        (is_exclusive, retention): (bool, Retention),
        deadline: Instant,
    ) -> Result<(Head, bool), LifecycleError> {
        let mut creation = Creation { history, id, is_exclusive, retention, is_in_doubt: false };
        let outcome = timeout_at(deadline, self.create_until_known(&mut creation)).await;
        match outcome.unwrap_or_else(|_| Err(Trouble::Unavailable.into())) {
            // Whatever kept the head from being read, it may be there.
            Err(LifecycleError::Submit(_)) if creation.is_in_doubt => {
                Err(SubmitError::InDoubt.into())
            }
            outcome => outcome,
        }
    }

    async fn create_until_known(
        &self,
        creation: &mut Creation<'_>,
    ) -> Result<(Head, bool), LifecycleError> {
        loop {
            match self.try_create(creation).await {
                Ok(Some(created)) => return Ok(created),
                Ok(None) => (),
                Err(LifecycleError::Submit(SubmitError::StoreUnavailable)) => {
                    sleep(self.entropy.jitter(PAUSE)).await;
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// One attempt; `None` when another one has to find out more.
    async fn try_create(
        &self,
        creation: &mut Creation<'_>,
    ) -> Result<Option<(Head, bool)>, LifecycleError> {
        let Creation { history, id, is_exclusive, retention, is_in_doubt: was_in_doubt } =
            *creation;
        // The head is read first: it is what says whether an attempt without an
        // answer was applied.
        let cleared = match self.head_of(history).await? {
            Some((head, _)) if head.history_id == id && !head.is_retired() => {
                return Ok(Some((head, was_in_doubt)));
            }
            Some((head, _)) if head.lifecycle == Lifecycle::Retiring => {
                return Err(LifecycleError::BeingDeleted);
            }
            // A late repetition. Two histories of one id could not be told
            // apart.
            Some((head, _)) if head.history_id == id => return Err(LifecycleError::IdUsed),
            Some((head, tag)) if head.lifecycle == Lifecycle::Cleared => Some((head, tag)),
            Some(_) => return Err(LifecycleError::Exists),
            None => None,
        };
        let read = cleared.as_ref().map_or(Revision::new(0), |(head, _)| head.revision);
        let snapshot = write_empty_snapshot(&*self.store, history, id, read)
            .await
            .map_err(|error| put_trouble(&error))?;
        let publisher = self.name();
        let mut head =
            Head::first(history.clone(), id, read.next(), is_exclusive, publisher, snapshot);
        head.retention = retention;
        let (key, bytes) = (history.head_key(), Bytes::from(format::head::encode(&head)));
        // From here on, if nobody waits for the answer either.
        creation.is_in_doubt = true;
        let write = match cleared {
            Some((_, tag)) => self.store.replace_head(&key, &tag, bytes).await,
            None => self.store.create_head(&key, bytes).await,
        };
        match write {
            HeadWrite::Replaced { .. } => Ok(Some((head, true))),
            // Not even a mismatch is proof: what is between may have sent the
            // request twice. The head that is read next tells.
            HeadWrite::Mismatch | HeadWrite::Gone => Ok(None),
            HeadWrite::NoAnswer(error) => {
                tracing::warn!(%history, error = with_causes(&error), "creating a history got no answer");
                sleep(self.entropy.jitter(PAUSE)).await;
                Ok(None)
            }
        }
    }

    pub(crate) fn name(&self) -> Publisher {
        let nonce = Nonce::from_bytes(self.entropy.bytes16());
        Publisher { id: self.publisher_id.clone(), nonce, address: self.config.address() }
    }

    /// Deletes a history with everything in it; returns how many objects went.
    /// Goes on where an earlier call was cut off.
    pub(crate) async fn delete(
        self: &Arc<Self>,
        history: &HistoryName,
        confirmed: HistoryId,
        deadline: Instant,
    ) -> Result<u64, LifecycleError> {
        let found = timeout_at(deadline, self.head_of(history)).await;
        let Some((head, _)) = found.unwrap_or(Err(Trouble::Unavailable))? else {
            return Err(SubmitError::HistoryMissing.into());
        };
        if head.history_id != confirmed {
            return Err(LifecycleError::NotConfirmed { found: head.history_id });
        }
        match head.lifecycle {
            Lifecycle::Live => {
                self.release_forks(history, &head, deadline).await?;
                self.retire(history, confirmed, deadline).await?;
            }
            Lifecycle::Retiring => (),
            Lifecycle::Cleared => return Err(SubmitError::HistoryMissing.into()),
        }
        // The history is gone for everybody from here on. What is left to do
        // can be cut off at any point, and the same call goes on with it.
        let rest = async {
            let deleted = self.delete_objects(history, confirmed).await?;
            self.clear(history, confirmed).await?;
            Ok::<_, LifecycleError>(deleted)
        };
        match timeout_at(deadline, rest).await {
            Ok(Ok(deleted)) => Ok(deleted),
            // Whatever it was, "not applied" would be wrong.
            Ok(Err(error)) => {
                tracing::warn!(%history, %error, "a deletion is not complete");
                Err(SubmitError::InDoubt.into())
            }
            Err(_) => Err(SubmitError::InDoubt.into()),
        }
    }

    async fn retire(
        self: &Arc<Self>,
        history: &HistoryName,
        history_id: HistoryId,
        deadline: Instant,
    ) -> Result<(), LifecycleError> {
        let question = Question::Control(Control::Retire { history_id });
        let told = self.send(history, question, deadline)?.await.map_err(|_| AskError::Lost)?;
        match told.answer {
            Answer::Retired => Ok(()),
            Answer::Failed(error) => Err(error.into()),
            Answer::Accepted { .. }
            | Answer::Rejected { .. }
            | Answer::Unknown { .. }
            | Answer::NotAccepted { .. }
            | Answer::WriterEpochRaised { .. }
            | Answer::Pinned(_)
            | Answer::Unpinned
            | Answer::RetentionSet(_) => Err(SubmitError::InDoubt.into()),
        }
    }

    /// Deletes every object of a retiring history but its head.
    async fn delete_objects(
        &self,
        history: &HistoryName,
        history_id: HistoryId,
    ) -> Result<u64, LifecycleError> {
        let folders = ObjectKind::ALL.into_iter().map(|kind| history.folder(kind));
        let mut deleted = 0;
        for folder in folders.chain([format!("{history}/requests/")]) {
            loop {
                let page = self
                    .store
                    .list(&folder, None, LIST_PAGE)
                    .await
                    .map_err(|error| read_trouble(&error))?;
                if page.is_empty() {
                    break;
                }
                // What was listed before the head was seen to be retiring still
                // is this history's: the name was not free, so nothing of
                // another one was there. A history that takes the name later
                // stages at later revisions, and its records have other keys.
                let retired_at = match self.head_of(history).await? {
                    Some((head, _))
                        if head.history_id == history_id
                            && head.lifecycle == Lifecycle::Retiring =>
                    {
                        head.revision
                    }
                    Some(_) | None => return Ok(deleted),
                };
                let keys = page.iter().map(|it| it.key.as_str());
                let keys: Vec<_> =
                    keys.filter(|key| is_of(history, key, retired_at)).map(str::to_owned).collect();
                let is_stuck = keys.is_empty();
                deleted += keys.len() as u64;
                stream::iter(keys)
                    .map(|key| async move { self.store.delete(&key).await })
                    .buffer_unordered(DELETES_AT_ONCE)
                    .try_collect::<Vec<()>>()
                    .await
                    .map_err(|error| read_trouble(&error))?;
                if is_stuck {
                    break;
                }
            }
        }
        Ok(deleted)
    }

    /// Frees the name. Tries until it is free; the caller sets the limit.
    async fn clear(
        &self,
        history: &HistoryName,
        history_id: HistoryId,
    ) -> Result<(), LifecycleError> {
        loop {
            let (head, tag) = match self.head_of(history).await? {
                Some((head, tag))
                    if head.history_id == history_id && head.lifecycle == Lifecycle::Retiring =>
                {
                    (head, tag)
                }
                // Another call has finished the deletion.
                Some(_) | None => return Ok(()),
            };
            let mut successor = Successor::of(&head, self.name());
            successor.clear();
            let bytes = Bytes::from(format::head::encode(&successor.finish()));
            match self.store.replace_head(&history.head_key(), &tag, bytes).await {
                HeadWrite::Replaced { .. } => return Ok(()),
                HeadWrite::Mismatch | HeadWrite::Gone => (),
                HeadWrite::NoAnswer(error) => {
                    tracing::warn!(%history, error = with_causes(&error), "clearing a head got no answer");
                    sleep(self.entropy.jitter(PAUSE)).await;
                }
            }
        }
    }
}

/// Whether an object was staged for the history that was retired at
/// `retired_at`, or is a request record.
fn is_of(history: &HistoryName, key: &str, retired_at: Revision) -> bool {
    let Some(relative) = key.strip_prefix(history.as_str()).and_then(|it| it.strip_prefix('/'))
    else {
        return false;
    };
    match ObjectKey::parse(relative) {
        Ok(key) => key.staged() <= retired_at,
        // Records carry the history's id in their names; anything else in
        // these folders is nobody's.
        Err(_) => true,
    }
}
