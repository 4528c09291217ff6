//! Whoever changes a history by other means than operations: epochs, pins,
//! retention, snapshots, restores and forks, at moments that are drawn.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use headwater_core::head::{HistoryRef, Retention};
use headwater_core::id::{HistoryId, HistoryName, OperationId, PinName};
use headwater_core::publish::{Answer, Control, NewPin, SubmitError};
use headwater_core::version::StateVersion;
use headwater_replica::Consistency;
use headwater_writer::{Fork, LifecycleError, Question, Restore, RestoreError, Restored, Writer};
use tokio::time::{sleep, timeout};

use crate::client::{Client, Done};
use crate::dice::Dice;
use crate::process::{CLOCK_BEGINS_MS, Serving};
use crate::world::World;

/// How long it waits for one answer.
const PATIENCE: Duration = Duration::from_secs(60);

/// Pins of one history at most, and forks of it.
const PINS_MAX: usize = 6;
const FORKS_MAX: u64 = 3;

/// How far clocks are off at most, twice, and an hour to be sure.
const FAR_MS: u64 = 5 * 60 * 60 * 1_000;

/// One for each history.
pub(crate) struct Steward {
    world: Arc<World>,
    done: Arc<Done>,
    index: usize,
    dice: Dice,
    history: HistoryName,
    head_key: String,
    /// Pins that it was told of, and did not take away: they are to stay.
    pins: BTreeMap<PinName, StateVersion>,
    n_actions: u64,
    n_forks: u64,
    epoch: u64,
}

impl Steward {
    pub(crate) fn new(world: &Arc<World>, done: &Arc<Done>, index: usize) -> Self {
        let history = world.histories[index].clone();
        Self {
            world: Arc::clone(world),
            done: Arc::clone(done),
            index,
            dice: Dice::new(world.plan.seed, &format!("steward {index}")),
            head_key: history.head_key(),
            history,
            pins: BTreeMap::new(),
            n_actions: 0,
            n_forks: 0,
            epoch: 0,
        }
    }

    /// Acts until nothing new is asked for any more.
    pub(crate) async fn run(mut self, every: Duration) {
        let every_ms = u64::try_from(every.as_millis()).unwrap_or(u64::MAX);
        loop {
            sleep(self.dice.ms(0, 2 * every_ms)).await;
            if self.world.is_over() {
                return;
            }
            self.n_actions += 1;
            match self.dice.below(10) {
                0 | 1 => self.pin().await,
                2 => self.unpin().await,
                3 => self.set_retention().await,
                4 => self.raise_epoch().await,
                5 => self.compact().await,
                6 => self.fork().await,
                7 => self.restore().await,
                _ => self.read_pinned().await,
            }
        }
    }

    fn newest(&self) -> u64 {
        self.world.truth().head(&self.head_key).map_or(0, |it| it.state_version.get())
    }

    fn draw_version(&self) -> StateVersion {
        let newest = self.newest();
        let back = self.dice.pick(&[0, 3, 30, 300]);
        StateVersion::new(self.dice.between(newest.saturating_sub(back), newest))
    }

    fn say(&self, what: std::fmt::Arguments<'_>) {
        self.world.trace.event(format_args!("steward {}: {what}", self.index));
    }

    fn violation(&self, what: &str) {
        self.world.truth().violation(format!("{}: {what}", self.head_key));
    }

    /// Asks some writer; `None` where nobody knows what came of it.
    async fn ask<A: Send + 'static>(
        &self,
        serve: impl Fn(Writer, HistoryName) -> BoxFuture<'static, A> + Send + Sync + 'static,
    ) -> Option<A> {
        let writer = self.dice.index(self.world.plan.writers.len());
        let history = self.history.clone();
        let call = self.world.call(self.index, writer, move |serving| match serving {
            Serving::Writer(writer) => serve(writer, history.clone()).map(Some).boxed(),
            Serving::Replica(_) => async { None }.boxed(),
        });
        let heard = timeout(PATIENCE, call).await.ok()?;
        heard.answer.flatten()
    }

    async fn control(&self, control: Control) -> Option<Answer> {
        self.say(format_args!("asks for {control:?}"));
        let told = self.ask(move |writer, history| {
            let question = Question::Control(control.clone());
            async move { writer.ask(&history, question).await }.boxed()
        });
        let answer = told.await?.ok()?.answer;
        self.say(format_args!("is told {answer:?}"));
        Some(answer)
    }

    /// A pin that stays, or one whose time was over before it was made.
    async fn pin(&mut self) {
        let Ok(name) = PinName::parse(&format!("p{}", self.n_actions)) else { return };
        let version = Some(self.draw_version()).filter(|_| self.dice.percent(70));
        let expires_at_ms = match self.dice.below(4) {
            0 => Some(CLOCK_BEGINS_MS - FAR_MS),
            1 => Some(CLOCK_BEGINS_MS + FAR_MS),
            _ => None,
        };
        if PINS_MAX <= self.pins.len() {
            return;
        }
        let new = NewPin { name: name.clone(), version, expires_at_ms, child: None };
        let answer = self.control(Control::Pin(new)).await;
        if let Some(Answer::Pinned(pin)) = answer {
            if version.is_some_and(|it| it != pin.version) || pin.name != name {
                self.violation(&format!("{version:?} was to be pinned: {pin:?}"));
            }
            if expires_at_ms.is_none_or(|it| CLOCK_BEGINS_MS < it) {
                self.pins.insert(name, pin.version);
            }
        }
    }

    async fn unpin(&mut self) {
        let names: Vec<_> = self.pins.keys().cloned().collect();
        if names.is_empty() {
            return;
        }
        let name = names[self.dice.index(names.len())].clone();
        // From here on it may be gone.
        self.pins.remove(&name);
        self.world.truth().unpinned(&self.head_key, &name);
        let answer = self.control(Control::Unpin { name: name.clone(), child: None }).await;
        if answer == Some(Answer::Failed(SubmitError::PinMissing)) {
            self.violation(&format!("{name:?} was there, and is told to be missing"));
        }
    }

    async fn set_retention(&self) {
        let versions = self.dice.pick(&[0, 5, 50, 1_000]);
        let age_ms = self.dice.pick(&[0, 0, 60_000]);
        self.control(Control::SetRetention(Retention { versions, age_ms })).await;
    }

    async fn raise_epoch(&mut self) {
        let expected = Some(self.epoch).filter(|_| self.dice.percent(50));
        match self.control(Control::RaiseWriterEpoch { expected }).await {
            Some(Answer::WriterEpochRaised { writer_epoch }) => {
                if writer_epoch <= self.epoch {
                    self.violation(&format!("raised to {writer_epoch}, it was {}", self.epoch));
                }
                self.epoch = writer_epoch;
            }
            Some(Answer::Failed(SubmitError::Fenced { writer_epoch })) => {
                if expected == Some(writer_epoch) {
                    self.violation(&format!("fenced by {writer_epoch}, which was expected"));
                }
                self.epoch = self.epoch.max(writer_epoch);
            }
            Some(Answer::Failed(SubmitError::NotExclusive)) if self.world.plan.is_exclusive => {
                self.violation("an exclusive history is told to be none");
            }
            Some(_) | None => (),
        }
    }

    async fn compact(&self) {
        self.say(format_args!("wants a snapshot"));
        self.ask(|writer, history| async move { writer.compact(&history).await }.boxed()).await;
    }

    /// A pinned version is there, whatever was let go of.
    async fn read_pinned(&self) {
        let pins: Vec<_> = self.pins.iter().collect();
        if pins.is_empty() {
            return;
        }
        let (name, version) = pins[self.dice.index(pins.len())];
        let replica =
            self.world.plan.writers.len() + self.dice.index(self.world.plan.replicas.len());
        let client = Client::new(&self.world, &self.done, self.index);
        let failure = client.pin_failure(replica, Consistency::Exact(*version)).await;
        if let Some(headwater_replica::ReadFailure::VersionRetired { .. }) = failure {
            self.violation(&format!("{version} is pinned as {name:?}: {failure:?}"));
        }
    }

    /// Another history, that begins where this one was.
    async fn fork(&mut self) {
        if FORKS_MAX <= self.n_forks {
            return;
        }
        let name = format!("{}-fork{}", self.history, self.n_forks);
        let Ok(history) = HistoryName::parse(&name) else { return };
        self.n_forks += 1;
        let mut id = [0xf0; 16];
        id[..8].copy_from_slice(&self.dice.below(u64::MAX).to_be_bytes());
        let child = HistoryRef { history: history.clone(), history_id: HistoryId::from_bytes(id) };
        let version = Some(self.draw_version()).filter(|_| self.dice.percent(50));
        self.world.truth().forking(&self.head_key, &history.head_key());
        self.say(format_args!("forks {version:?} as {history}"));
        let forked = self.ask(move |writer, source| {
            let fork = Fork { source, version, child: child.clone() };
            async move { writer.fork(&fork).await }.boxed()
        });
        let forked = forked.await;
        self.say(format_args!("forking came to {forked:?}"));
        let wrong = match forked {
            Some(Ok(())) if self.world.truth().head(&history.head_key()).is_none() => {
                Some("a fork is told to be there, and is not".to_owned())
            }
            Some(Err(error @ (LifecycleError::Exists | LifecycleError::IdUsed))) => {
                Some(format!("a fork of a new name: {error}"))
            }
            Some(Ok(()) | Err(_)) | None => None,
        };
        if let Some(wrong) = wrong {
            self.violation(&wrong);
        }
    }

    /// One more version, with the state of an older one.
    async fn restore(&self) {
        let Ok(id) = OperationId::parse(&format!("restore{}-{}", self.index, self.n_actions))
        else {
            return;
        };
        let version = self.draw_version();
        let issued_from = StateVersion::new(self.newest());
        let restore =
            Restore { version, operation_id: id.clone(), issued_from, writer_epoch: self.epoch };
        let sent = self.world.trace.event(format_args!("steward {}: {restore:?}", self.index));
        self.world.truth().restoring(&self.head_key, &restore, sent);
        let asked = restore.clone();
        let restored = self.ask(move |writer, history| {
            let restore = asked.clone();
            async move { writer.restore(&history, &restore).await }.boxed()
        });
        let restored = restored.await;
        self.say(format_args!("restoring came to {restored:?}"));
        match restored {
            Some(Ok(Restored::Accepted { version: at, .. })) => {
                self.world.truth().restored(&self.head_key, version.get(), at.get());
            }
            Some(Err(RestoreError::Submit(SubmitError::VersionAhead { .. }))) => {
                self.violation(&format!("{version} was there, and is told to be ahead"));
            }
            Some(Ok(Restored::Unknown) | Err(_)) | None => (),
        }
    }
}
