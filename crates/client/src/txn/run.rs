//! The loop around a transaction's attempts.

use crate::outcome::{Accepted, ConflictKind, Outcome, Rejected, Unknown};
use crate::read::Consistency;
use crate::session::Session;
use crate::submit::SubmitError;
use crate::txn::Txn;

/// How a transaction is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TxnOptions {
    /// How fresh the first read of an attempt must be. [`Consistency::Session`]
    /// saves a round trip to the store where conflicts are rare; after a conflict
    /// it includes the version that was in the way.
    pub consistency: Consistency,
    /// Attempts in all, the first one included.
    pub attempts_max: u32,
}

impl Default for TxnOptions {
    /// Strong reads, 16 attempts.
    fn default() -> Self {
        Self { consistency: Consistency::Strong, attempts_max: 16 }
    }
}

/// A transaction that took place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Committed<T> {
    /// What the closure returned, in the attempt that took place.
    pub value: T,
    /// Acceptance of its writes; none where it wrote nothing.
    pub accepted: Option<Accepted>,
    /// The version that it read; none where it read nothing.
    pub read_version: Option<u64>,
}

/// Why a transaction did not take place, or may not have.
#[derive(Clone, Debug, thiserror::Error)]
pub enum TxnError<E> {
    /// The closure gave up. Nothing was submitted.
    #[error("the transaction was given up")]
    Abandoned(E),
    /// Every attempt met a conflict. Nothing was applied.
    #[error("{attempts} attempts met conflicts")]
    Conflicts {
        /// How many.
        attempts: u32,
        /// What the last one met; none where its version was retired before it
        /// was through.
        last: Option<Rejected>,
    },
    /// An attempt that may yet be applied was rejected, for a reason that may
    /// pass. Another attempt could apply the writes twice.
    #[error("an attempt was rejected and may yet be applied")]
    MayYetApply(Rejected),
    /// Nobody can say any more whether an attempt was applied.
    #[error("the outcome is unknown")]
    Unknown(Unknown),
    /// The submission has no outcome; [`SubmitError::determinacy`] says whether
    /// it may have been applied.
    #[error(transparent)]
    Submit(SubmitError),
}

/// How one attempt ended, where it did not end the transaction.
enum Conflict {
    Rejected(Rejected),
    Stale,
}

impl Session {
    /// Runs a transaction: the closure reads and decides, and its writes are
    /// submitted with everything it read as preconditions. On a conflict it is
    /// called again, on a newer version; so it must not act on the outside world.
    ///
    /// A transaction that writes nothing submits nothing: it has read one
    /// version, which the first read fixed.
    ///
    /// Each call of the server has the session's deadline; the number of attempts
    /// bounds the whole.
    ///
    /// ```no_run
    /// use headwater_client::{Client, ReadError, Session, TxnError, TxnOptions};
    ///
    /// # async fn example(session: Session) -> Result<(), TxnError<ReadError>> {
    /// let moved = session
    ///     .transact(TxnOptions::default(), async |txn| {
    ///         let Some(task) = txn.get("inbox/7").await? else { return Ok(false) };
    ///         txn.delete("inbox/7");
    ///         txn.put("done/7", task);
    ///         Ok::<_, ReadError>(true)
    ///     })
    ///     .await?;
    /// println!("moved: {}", moved.value);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`TxnError`].
    pub async fn transact<T, E>(
        &self,
        options: TxnOptions,
        mut decide: impl AsyncFnMut(&mut Txn) -> Result<T, E>,
    ) -> Result<Committed<T>, TxnError<E>> {
        let mut attempts = 0;
        loop {
            attempts += 1;
            let mut txn = Txn::new(self.clone(), options.consistency);
            let conflict = match decide(&mut txn).await {
                Err(_) if txn.is_stale => Conflict::Stale,
                Err(error) => return Err(TxnError::Abandoned(error)),
                Ok(value) => match self.commit(txn, value).await? {
                    Ok(committed) => return Ok(committed),
                    Err(rejected) => Conflict::Rejected(rejected),
                },
            };
            if attempts >= options.attempts_max {
                let last = match conflict {
                    Conflict::Rejected(rejected) => Some(rejected),
                    Conflict::Stale => None,
                };
                return Err(TxnError::Conflicts { attempts, last });
            }
            let backoff = self.client.inner.retry.backoff;
            tokio::time::sleep(backoff.pause(attempts, None, &self.client.inner.random)).await;
        }
    }

    /// Submits one attempt. The inner error is a conflict that another attempt
    /// may get around.
    async fn commit<T, E>(
        &self,
        txn: Txn,
        value: T,
    ) -> Result<Result<Committed<T>, Rejected>, TxnError<E>> {
        let read_version = txn.version;
        let Some(operation) = txn.into_operation() else {
            return Ok(Ok(Committed { value, accepted: None, read_version }));
        };
        match self.submit(operation).await {
            Ok(Outcome::Accepted(accepted)) => {
                Ok(Ok(Committed { value, accepted: Some(accepted), read_version }))
            }
            Ok(Outcome::Rejected(rejected)) if may_be_overtaken(&rejected) => {
                Err(TxnError::MayYetApply(rejected))
            }
            Ok(Outcome::Rejected(rejected)) => Ok(Err(rejected)),
            Ok(Outcome::Unknown(unknown)) => Err(TxnError::Unknown(unknown)),
            Err(error) => Err(TxnError::Submit(error)),
        }
    }
}

/// Whether the rejected attempt may still be accepted, so that another one could
/// apply its writes a second time. Not where something that was read has changed:
/// that it was unchanged since the version read will never be true again.
fn may_be_overtaken(rejected: &Rejected) -> bool {
    let is_for_good = rejected
        .conflicts
        .iter()
        .any(|it| it.precondition.is_some() && ConflictKind::is_for_good(it.kind));
    rejected.may_yet_apply && !is_for_good
}
