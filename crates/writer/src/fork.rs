//! Forking: a history that begins with an older version of another one.
//!
//! ```text
//! pin the version in the source --> its snapshot, named for the new history
//!   (so that nothing of it goes)      --> create the new history's head
//! ```
//!
//! A call that is cut off leaves a pin, and the same call goes on with it. The
//! pin goes once the new history needs nothing of the source any more, or is
//! deleted: whoever sweeps or deletes the source looks.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use headwater_core::format;
use headwater_core::head::{Base, Head, HistoryRef, Lifecycle};
use headwater_core::id::{HistoryId, HistoryName, PinName, Tag};
use headwater_core::publish::{Answer, Control, NewPin, SubmitError, Trouble};
use headwater_core::version::{Revision, StateVersion};
use headwater_daemon::telemetry::with_causes;
use headwater_state::{BuildError, BuildOptions, BuiltSnapshot, StateError, View, build_fork};
use headwater_store::HeadWrite;
use tokio::time::{Instant, sleep, timeout_at};

use crate::driver::{AskError, Question, put_trouble, state_trouble};
use crate::histories::Histories;
use crate::lifecycle::LifecycleError;

/// Bound of the pause between two attempts.
const PAUSE: Duration = Duration::from_millis(100);

/// What is to be forked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fork {
    /// The history.
    pub source: HistoryName,
    /// Its version; `None` for the newest.
    pub version: Option<StateVersion>,
    /// The new history.
    pub child: HistoryRef,
}

/// How a version is pinned for a fork.
fn pin_name(child: HistoryId) -> Result<PinName, SubmitError> {
    PinName::parse(&format!("fork:{child}")).map_err(|_| SubmitError::PinMissing)
}

impl Histories {
    /// Forks a history, or finds what an earlier call created.
    pub(crate) async fn fork(
        self: &Arc<Self>,
        fork: &Fork,
        deadline: Instant,
    ) -> Result<(Head, bool), LifecycleError> {
        let mut is_ours = false;
        let forking = self.fork_until_known(fork, &mut is_ours, deadline);
        let outcome = timeout_at(deadline, forking).await;
        match outcome.unwrap_or_else(|_| Err(SubmitError::InDoubt.into())) {
            // Whatever kept the head from being read, it may be there.
            Err(LifecycleError::Submit(_) | LifecycleError::Ask(_)) if is_ours => {
                Err(SubmitError::InDoubt.into())
            }
            outcome => outcome,
        }
    }

    async fn fork_until_known(
        self: &Arc<Self>,
        fork: &Fork,
        is_ours: &mut bool,
        deadline: Instant,
    ) -> Result<(Head, bool), LifecycleError> {
        loop {
            match self.try_fork(fork, is_ours, deadline).await {
                Ok(Some(forked)) => return Ok(forked),
                Ok(None) | Err(LifecycleError::Submit(SubmitError::StoreUnavailable)) => {
                    sleep(self.entropy.jitter(PAUSE)).await;
                }
                // It cannot be created under this name and id, and never was.
                Err(error @ (LifecycleError::Exists | LifecycleError::IdUsed)) if !*is_ours => {
                    self.give_up(fork, deadline).await;
                    return Err(error);
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// One attempt; `None` when another one has to find out more.
    async fn try_fork(
        self: &Arc<Self>,
        fork: &Fork,
        is_ours: &mut bool,
        deadline: Instant,
    ) -> Result<Option<(Head, bool)>, LifecycleError> {
        let (history, id) = (&fork.child.history, fork.child.history_id);
        let cleared = match self.head_of(history).await? {
            Some((head, _)) if head.history_id == id && !head.is_retired() => {
                return Ok(Some((head, *is_ours)));
            }
            Some((head, _)) if head.lifecycle == Lifecycle::Retiring => {
                return Err(LifecycleError::BeingDeleted);
            }
            Some((head, _)) if head.history_id == id => return Err(LifecycleError::IdUsed),
            Some((head, tag)) if head.lifecycle == Lifecycle::Cleared => Some((head, tag)),
            Some(_) => return Err(LifecycleError::Exists),
            None => None,
        };
        let pinned = self.pin_for(fork, deadline).await?;
        let read = cleared.as_ref().map_or(Revision::new(0), |(head, _)| head.revision);
        let Some((source, built, view)) = self.build_for(fork, pinned, read).await? else {
            return Ok(None);
        };
        let head = self.first_of(fork, &source, &built, &view, read)?;
        // From here on, if nobody waits for the answer either.
        *is_ours = true;
        self.put_first(&head, cleared.map(|(_, tag)| tag)).await
    }

    /// The version that is pinned for the fork.
    async fn pin_for(
        self: &Arc<Self>,
        fork: &Fork,
        deadline: Instant,
    ) -> Result<StateVersion, LifecycleError> {
        let name = pin_name(fork.child.history_id)?;
        // By an earlier call, perhaps: then the version is the one of then.
        if let Some((head, _)) = self.head_of(&fork.source).await?
            && !head.is_retired()
            && let Some(pin) = head.pin(&name)
            && pin.child.as_ref() == Some(&fork.child)
        {
            return Ok(pin.version);
        }
        let new = NewPin {
            name,
            version: fork.version,
            expires_at_ms: None,
            child: Some(fork.child.clone()),
        };
        let answer = self.control(&fork.source, Control::Pin(new), deadline).await?;
        let Answer::Pinned(pin) = answer else { return Err(SubmitError::InDoubt.into()) };
        Ok(pin.version)
    }

    /// The snapshot that the new history begins with. `None` where the source
    /// was compacted and swept meanwhile, and has to be read again.
    async fn build_for(
        &self,
        fork: &Fork,
        version: StateVersion,
        staged: Revision,
    ) -> Result<Option<(Head, BuiltSnapshot, View)>, LifecycleError> {
        let found = self.head_of(&fork.source).await?;
        let (source, _) =
            found.filter(|(it, _)| !it.is_retired()).ok_or(SubmitError::HistoryMissing)?;
        let loader = self.loader(&fork.source);
        let child = (&fork.child.history, fork.child.history_id);
        let made = async {
            let view = if source.snapshot.version <= version {
                Some(loader.open_at(&source, version).await?)
            } else {
                let archive = loader.archive(&source).await?;
                loader.open_archived(&source, &archive, version).await?
            };
            let Some(view) = view else { return Ok(None) };
            let options = BuildOptions::default();
            let built = build_fork(&loader, &view, child, staged, options).await?;
            Ok::<_, BuildError>(Some((built, view)))
        };
        match made.await {
            Ok(Some((built, view))) => Ok(Some((source, built, view))),
            Ok(None) => Err(SubmitError::VersionRetired { oldest: source.retained_from() }.into()),
            Err(BuildError::State(StateError::Missing { .. })) => Ok(None),
            Err(BuildError::State(error)) => {
                Err(state_trouble(&fork.source.head_key(), &error).into())
            }
            Err(BuildError::Put(error)) => Err(put_trouble(&error).into()),
            Err(error @ BuildError::TooManyOwners { .. }) => {
                let key = source.snapshot.object.key.to_string();
                Err(Trouble::BadData { key, what: error.to_string() }.into())
            }
        }
    }

    fn first_of(
        &self,
        fork: &Fork,
        source: &Head,
        built: &BuiltSnapshot,
        view: &View,
        read: Revision,
    ) -> Result<Head, SubmitError> {
        let (history, id) = (fork.child.history.clone(), fork.child.history_id);
        let snapshot = built.snapshot.object.clone();
        let is_exclusive = source.is_exclusive;
        let mut head = Head::first(history, id, read.next(), is_exclusive, self.name(), snapshot);
        let version = view.version();
        head.snapshot = built.snapshot.clone();
        head.state_version = version;
        // At least one for each version; how many they were, receipts say, which
        // are the source's.
        head.operation_count = version.get();
        head.chain_hash = view.chain_hash();
        head.receipt_coverage_from = version.next();
        head.retention = self.config.retention();
        let names_source = !built.owners.is_empty();
        let reference = HistoryRef { history: fork.source.clone(), history_id: source.history_id };
        if names_source {
            head.base = Some(Base { source: reference, pin: pin_name(id)? });
        }
        Ok(head)
    }

    async fn put_first(
        &self,
        head: &Head,
        cleared: Option<Tag>,
    ) -> Result<Option<(Head, bool)>, LifecycleError> {
        let (key, bytes) = (head.history.head_key(), Bytes::from(format::head::encode(head)));
        let write = match cleared {
            Some(tag) => self.store.replace_head(&key, &tag, bytes).await,
            None => self.store.create_head(&key, bytes).await,
        };
        match write {
            HeadWrite::Replaced { .. } => Ok(Some((head.clone(), true))),
            HeadWrite::Mismatch | HeadWrite::Gone => Ok(None),
            HeadWrite::NoAnswer(error) => {
                let error = with_causes(&error);
                tracing::warn!(history = %head.history, error, "forking got no answer");
                Ok(None)
            }
        }
    }

    /// Takes the pin away that nothing will need.
    async fn give_up(self: &Arc<Self>, fork: &Fork, deadline: Instant) {
        let child = fork.child.history_id;
        let Ok(name) = pin_name(child) else { return };
        let unpin = Control::Unpin { name, child: Some(child) };
        if let Err(error) = self.control(&fork.source, unpin, deadline).await {
            tracing::warn!(source = %fork.source, %error, "the pin of a fork that failed stays");
        }
    }

    /// Takes the pins away of forks that need nothing of `history` any more.
    ///
    /// A fork whose head is not there may be about to be created: its pin stays.
    pub(crate) async fn release_forks(
        self: &Arc<Self>,
        history: &HistoryName,
        head: &Head,
        deadline: Instant,
    ) -> Result<(), LifecycleError> {
        for pin in &head.pins {
            let Some(child) = &pin.child else { continue };
            let found = self.head_of(&child.history).await?;
            let is_apart = found.is_some_and(|(it, _)| {
                it.history_id == child.history_id && (it.base.is_none() || it.is_retired())
            });
            if is_apart {
                let unpin =
                    Control::Unpin { name: pin.name.clone(), child: Some(child.history_id) };
                self.control(history, unpin, deadline).await?;
                tracing::info!(%history, fork = %child.history, "a fork needs it no longer");
            }
        }
        Ok(())
    }

    /// Asks for a control; a refusal is an error.
    pub(crate) async fn control(
        self: &Arc<Self>,
        history: &HistoryName,
        control: Control,
        deadline: Instant,
    ) -> Result<Answer, LifecycleError> {
        let told = self.send(history, Question::Control(control), deadline)?.await;
        let answer = told.map_err(|_| AskError::Lost)?.answer;
        if let Answer::Failed(error) = answer { Err(error.into()) } else { Ok(answer) }
    }
}
