//! The task that drives one history's publisher.
//!
//! ```text
//! commands ---+                     +--> store calls, facts --+
//!             +--> Publisher::on ---+                         +--> events
//! deadlines --+                     +--> answers              |
//!      ^------------------------------------------------------+
//! ```
//!
//! The task owns everything: the publisher, the state at the published head,
//! the states predicted for batches on their way, and the work under way. What
//! it awaits is polled inside it, so that no store call outlives it and nothing
//! is shared.

mod alarm;
mod company;
mod effects;
mod inbox;
mod measure;
mod moving;
mod notice;
mod pace;
mod read;
mod upkeep;
mod waiting;

pub(crate) use self::effects::{put_trouble, record_trouble};
pub(crate) use self::read::{decode as decode_head, read_trouble, state_trouble};

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use futures::{FutureExt as _, StreamExt as _};
use headwater_core::decide::Ask;
use headwater_core::follow::Position;
use headwater_core::format;
use headwater_core::head::{ChangeBody, ChangeRef, ObservedHead};
use headwater_core::id::{HistoryId, HistoryName, OperationId};
use headwater_core::publish::{
    Answer, BatchId, Control, Effect, Event, Maintenance, PublishReply, Publisher, ReadOutcome,
    Trouble,
};
use headwater_core::version::Revision;
use headwater_daemon::trace::Origin;
use headwater_state::{Loader, Seen, View};
use headwater_store::{Clock, Entropy, HeadWrite, Store};
use tokio::sync::{OwnedSemaphorePermit, broadcast, mpsc, oneshot, watch};
use tokio::time::{Instant, sleep_until};
use tracing::{Instrument as _, Span};

use self::alarm::{Alarm, ring};
use self::company::Company;
use self::inbox::Inbox;
use self::measure::Measured;
use self::pace::Turn;
use self::read::{Followed, Read};
use self::upkeep::{Prepared, Upkeep};
use self::waiting::Waiting;
use crate::config::WriterConfig;
use crate::figures::{Figures, Shown};
use crate::forward::{Outbound, Route};
use crate::histories::HeadNotice;
use crate::metrics::WriterMetrics;
use crate::room::Room;

/// Commands taken from the queue at once. They share a batch.
const COMMANDS_AT_ONCE: usize = 1_024;

/// Operations wait for company for one part in this many of an attempt's time
/// at most, where the pipeline could not use them yet anyway.
const LINGER_PART: u32 = 4;
/// They wait no longer once nobody has come for this long: about the least that
/// a timer can tell.
const QUIET: Duration = Duration::from_millis(1);

/// How long a driver that has found no history waits for another question.
const IDLE_WITHOUT_HEAD: Duration = Duration::from_secs(1);
/// How long a driver that is needed, though nobody asks, goes on before it is
/// found out whether it still is.
const IDLE_AGAIN: Duration = Duration::from_secs(1);

/// What a driver is asked.
#[derive(Clone, Debug)]
pub enum Question {
    /// About an operation.
    Ask(Ask),
    /// To change the head in another way.
    Control(Control),
}

/// An answer, and what it is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Told {
    /// The answer.
    pub answer: Answer,
    /// The history that it is about; none where no head could be read.
    pub history_id: Option<HistoryId>,
}

impl Question {
    /// The operation that is to be accepted, if it is about one.
    pub(crate) fn operation_id(&self) -> Option<&OperationId> {
        match self {
            Self::Ask(Ask::Submit(operation)) => Some(&operation.id),
            Self::Ask(Ask::LookUp(_)) | Self::Control(_) => None,
        }
    }

    /// What it takes of the queue, in bytes.
    pub(crate) fn size_bytes(&self) -> usize {
        match self {
            Self::Ask(Ask::Submit(operation)) => format::request::encoded_len(&operation.request),
            Self::Ask(Ask::LookUp(_)) | Self::Control(_) => 0,
        }
    }
}

/// Why a question was not taken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AskError {
    /// Too much waits already.
    #[error("{what} of the history wait for their outcome already: the limit is {limit}")]
    QueueFull {
        /// `operations` or `bytes of operations`.
        what: &'static str,
        /// How many may wait.
        limit: usize,
    },
    /// More histories are open than the process may have.
    #[error("{limit} histories are open already")]
    TooManyHistories {
        /// How many may be open.
        limit: usize,
    },
    /// The process is stopping.
    #[error("the writer is shutting down")]
    ShuttingDown,
    /// The task ended without an answer: a defect, or a stop that ran out of
    /// time. The only one of these after which the operation may have been
    /// applied.
    #[error("the publisher of the history ended without an answer")]
    Lost,
}

/// What a driver is handed.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "maintenance is rare, and its queue short")]
pub(crate) enum Command {
    /// A question.
    Ask(Asked),
    /// Maintenance to publish; told whether it was.
    Maintain {
        maintenance: Maintenance,
        reply: oneshot::Sender<bool>,
        /// Its place among the pieces that wait, until it is told.
        permit: OwnedSemaphorePermit,
    },
    /// A snapshot of the present version is wanted; told whether there is one.
    Compact { reply: oneshot::Sender<bool>, permit: OwnedSemaphorePermit },
}

/// A question on its way to a driver.
#[derive(Debug)]
pub(crate) struct Asked {
    pub(crate) question: Question,
    /// When it was handed over.
    pub(crate) at: Instant,
    /// The span that it was asked from, if that is traced.
    pub(crate) origin: Option<Origin>,
    pub(crate) deadline: Instant,
    pub(crate) reply: oneshot::Sender<Told>,
    /// What it takes of the queue's limits, until it is answered.
    pub(crate) permits: [OwnedSemaphorePermit; 2],
    /// Whether it may be handed to another writer after all.
    pub(crate) may_move: bool,
    /// Whether another writer handed it over.
    pub(crate) is_handed: bool,
}

/// What a driver is made of.
pub(crate) struct Parts {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) history: HistoryName,
    pub(crate) loader: Loader,
    pub(crate) config: Arc<WriterConfig>,
    pub(crate) publisher_id: String,
    pub(crate) entropy: Entropy,
    pub(crate) clock: Clock,
    pub(crate) seen: Seen,
    pub(crate) notices: broadcast::Sender<HeadNotice>,
    pub(crate) room: Room,
    pub(crate) metrics: Arc<WriterMetrics>,
    pub(crate) figures: Arc<Figures>,
    /// For those who look at the history.
    pub(crate) shown: watch::Sender<Option<Shown>>,
    /// Where the history's operations go.
    pub(crate) route: Arc<Route>,
}

/// The state at a head that is published.
#[derive(Clone, Debug)]
struct Confirmed {
    view: View,
    position: Position,
}

/// The state after a batch that is decided.
#[derive(Clone, Debug)]
struct Predicted {
    batch: BatchId,
    view: View,
    /// Its change entry, where it is small enough to be told with the head.
    entry: Option<Bytes>,
}

/// What a piece of work under way ends with.
enum Done {
    Event(Event),
    Read(Box<Read>),
    Published { reply: HeadWrite, took: Duration, span: Span },
    Rebased(Option<Box<View>>),
    Prepared(Prepared),
}

pub(crate) struct Driver {
    parts: Parts,
    publisher: Publisher,
    waiting: Waiting,
    confirmed: Option<Confirmed>,
    predicted: VecDeque<Predicted>,
    work: FuturesUnordered<BoxFuture<'static, Done>>,
    upkeep: Upkeep,
    /// How long one attempt takes, for back-off.
    attempt: Duration,
    /// When the head may be replaced again.
    turn: Turn,
    /// Who is waited for before it is.
    company: Company,
    /// The revision that was opened anew because something was gone, and was the
    /// same before.
    reopened: Option<Revision>,
    /// The revision under which something was found to be gone, until the head
    /// is opened anew.
    reopening: Option<Revision>,
    next_ticket: u64,
    inbox: Inbox,
    /// Maintenance of others, and whoever waits for it.
    maintained: Vec<(Maintenance, oneshot::Sender<bool>, OwnedSemaphorePermit)>,
    /// The head that is being sent, and then its tag too.
    sent: notice::Sent,
    measured: Measured,
    /// The way to another writer, while operations are taken back.
    outbound: Option<mpsc::Sender<Outbound>>,
}

impl Driver {
    pub(crate) fn new(parts: Parts) -> Self {
        let mut nonce_seed = [0; 32];
        nonce_seed[..16].copy_from_slice(&parts.entropy.bytes16());
        nonce_seed[16..].copy_from_slice(&parts.entropy.bytes16());
        let settings = parts.config.settings(parts.publisher_id.clone());
        Self {
            publisher: Publisher::new(settings, nonce_seed),
            parts,
            waiting: Waiting::default(),
            confirmed: None,
            predicted: VecDeque::new(),
            work: FuturesUnordered::new(),
            upkeep: Upkeep::default(),
            attempt: Duration::from_millis(20),
            turn: Turn::default(),
            company: Company::default(),
            reopened: None,
            reopening: None,
            next_ticket: 0,
            inbox: Inbox::default(),
            maintained: Vec::new(),
            sent: notice::Sent::default(),
            measured: Measured::default(),
            outbound: None,
        }
    }

    /// Runs until `commands` is closed and everything is answered, or until
    /// nothing has happened for long enough and `may_end` agrees.
    pub(crate) async fn run(
        mut self,
        mut commands: mpsc::Receiver<Command>,
        mut may_end: impl FnMut(&mpsc::Receiver<Command>) -> bool,
    ) {
        // No part of the request that happens to open it: it lives much longer.
        let span = tracing::info_span!(parent: None, "history", name = %self.parts.history);
        async {
            let mut is_open = true;
            let mut last_used = Instant::now();
            let mut needed_until = last_used;
            let mut taken = Vec::new();
            let mut timer = std::pin::pin!(sleep_until(last_used));
            self.first_turn();
            while is_open || !self.is_done() {
                let idle_at = (last_used + self.idle_time()).max(needed_until);
                // Whoever has asked comes before what can wait for them, or a
                // moment that has passed already would keep them waiting.
                let is_quiet = !is_open || commands.is_empty() && !commands.is_closed();
                let idle_at = (is_open && is_quiet && self.is_idle()).then_some(idle_at);
                let next = self.next_alarm(idle_at, is_quiet);
                if let Some((at, _)) = next
                    && timer.deadline() != at
                {
                    timer.as_mut().reset(at);
                }
                tokio::select! {
                    biased;
                    Some(done) = self.work.next(), if !self.work.is_empty() => self.on_done(done),
                    alarm = ring(timer.as_mut(), next) => {
                        // From here on a new driver takes what comes; what is
                        // in the queue already is still answered here.
                        if alarm == Alarm::Idle {
                            if may_end(&commands) {
                                commands.close();
                            }
                            last_used = Instant::now();
                            needed_until = last_used + IDLE_AGAIN;
                        }
                        self.on_alarm(alarm);
                    }
                    n = commands.recv_many(&mut taken, COMMANDS_AT_ONCE), if is_open => {
                        is_open = n != 0;
                        last_used = Instant::now();
                        self.take(&mut taken);
                        // Others are about to ask; they need not wake this task
                        // one by one.
                        if self.inbox.hand_over_at().is_some() || self.company.is_expected() {
                            tokio::task::yield_now().await;
                        }
                    }
                }
            }
        }
        .instrument(span)
        .await;
    }

    /// Whether everybody who asked was told.
    fn is_done(&self) -> bool {
        self.waiting.is_empty() && self.inbox.is_empty() && self.maintained.is_empty()
    }

    fn take(&mut self, taken: &mut Vec<Command>) {
        let before = self.inbox.len();
        for command in taken.drain(..) {
            match command {
                Command::Ask(asked) => self.inbox.add(asked),
                Command::Maintain { maintenance, reply, permit } => {
                    self.maintained.push((maintenance.clone(), reply, permit));
                    let effects = self.publisher.on(Event::Prepared(maintenance));
                    self.carry_out(effects);
                }
                Command::Compact { reply, permit } => self.want_snapshot((reply, permit)),
            }
        }
        if self.company.is_expected() {
            return self.on_company(self.inbox.callers_since(before));
        }
        self.on_commands();
    }

    /// A name without a history is let go of at once: it costs a caller nothing
    /// to make them up.
    fn idle_time(&self) -> Duration {
        let idle = self.parts.config.history_idle();
        if self.publisher.observed().is_some() { idle } else { idle.min(IDLE_WITHOUT_HEAD) }
    }

    fn is_idle(&self) -> bool {
        self.is_done() && self.publisher.is_idle() && self.work.is_empty()
    }

    /// Those whose time is up. With more in the queue than goes into a batch,
    /// also those whose time will be up before one more replacement: they would
    /// be answered `in doubt`, in the place of others who can be served. A queue
    /// in which everybody waits for longer than a deadline would otherwise serve
    /// nobody, since those in front are the ones whose time is up.
    fn expire(&mut self, is_batch_forming: bool) -> Vec<Event> {
        let is_full = self.parts.config.batch_operations_max < self.waiting.len();
        let ahead = if is_batch_forming && is_full { self.attempt } else { Duration::ZERO };
        let expired = self.waiting.expired(Instant::now() + ahead);
        expired.into_iter().map(|ticket| Event::Expired { ticket }).collect()
    }

    fn on_done(&mut self, done: Done) {
        let mut paced = None;
        let event = match done {
            Done::Event(Event::FactsFailed { batch, trouble: Trouble::Overtaken { key } }) => {
                let trouble = self.on_overtaken(key);
                Event::FactsFailed { batch, trouble }
            }
            Done::Event(event) => event,
            Done::Read(read) => {
                self.meet(&read.outcome);
                match read.confirmed {
                    Followed::Same => (),
                    Followed::Nothing => self.confirmed = None,
                    Followed::To(confirmed) => {
                        if let Some(before) = self.reopening.take() {
                            let found = confirmed.position.revision;
                            self.reopened = Some(found).filter(|it| *it == before);
                        }
                        self.parts.seen.note(&self.parts.history, confirmed.position);
                        self.parts.room.note(confirmed.view.overlay_bytes());
                        self.confirmed = Some(confirmed);
                    }
                }
                Event::HeadRead(read.outcome)
            }
            Done::Published { reply, took, span } => {
                // Smoothed, so that one slow call does not set the pace.
                self.attempt = (self.attempt * 7 + took) / 8;
                let is_replaced = matches!(reply, HeadWrite::Replaced { .. });
                paced = self.next_turn(&reply).map(Event::Paced);
                if is_replaced && paced.is_none() {
                    paced = self.expect_company();
                }
                self.sent.answered(&reply);
                let reply = effects::published(reply);
                self.measure_published(&reply, took, span);
                Event::Published(reply)
            }
            Done::Rebased(view) => {
                self.on_rebased(view);
                return;
            }
            Done::Prepared(prepared) => {
                self.on_prepared(prepared);
                return;
            }
        };
        let is_read = matches!(event, Event::HeadRead(_));
        let is_success = matches!(event, Event::Published(PublishReply::Replaced { .. }));
        // What is ready goes out before anything is decided for the one after it.
        let is_first = is_success && paced.is_none() && self.publisher.is_next_ready();
        let mut event = Some(event);
        if is_first && let Some(published) = event.take() {
            let effects = self.publisher.on_first(published);
            self.carry_out(effects);
        }
        // What was asked meanwhile goes in first: there may be room for it now.
        let mut events = self.take_inbox();
        events.extend(paced);
        events.extend(event);
        events.extend(if is_read { self.take_back() } else { Vec::new() });
        // Whoever cannot be answered in time takes no place in a batch. After
        // the event: it may be their answer.
        events.extend(self.expire(is_success));
        let effects = self.publisher.on_all(events);
        self.carry_out(effects);
        self.measured.end_span();
        self.outbound = None;
        if is_read {
            self.tell_seen();
            self.begin_upkeep();
        }
    }

    /// Notices who published what was read.
    fn meet(&mut self, outcome: &ReadOutcome) {
        let ReadOutcome::Found { observed, .. } = outcome else { return };
        let before = self.publisher.observed().map(|it| it.head.revision);
        let is_newer = before.is_some_and(|it| it < observed.head.revision);
        let id = &observed.head.publisher.id;
        if is_newer && *id != self.parts.publisher_id {
            self.turn.met(id);
            self.parts.route.met(&observed.head.publisher, observed.head.history_id);
        }
    }

    /// Something of the state at hand is gone: another process compacted, and
    /// swept, while this one slept. The head is read again, and opened from its
    /// snapshot. What is gone then too is lost.
    fn on_overtaken(&mut self, key: String) -> Trouble {
        let revision = self.publisher.observed().map(|it| it.head.revision);
        if self.reopened.is_some() && self.reopened == revision {
            return Trouble::BadData { key, what: "the object is missing".to_owned() };
        }
        self.reopening = Some(revision.unwrap_or_default());
        Trouble::Overtaken { key }
    }

    /// Our own publication is the head.
    fn on_advanced(&mut self, observed: &ObservedHead, batches: &[BatchId]) {
        // After a read that found it the state is there already.
        let is_there = self
            .confirmed
            .as_ref()
            .is_some_and(|it| it.position.revision == observed.head.revision);
        let (mut entries, mut has_change) = (Vec::new(), false);
        while self.predicted.front().is_some_and(|it| batches.contains(&it.batch))
            && let Some(Predicted { view, entry, .. }) = self.predicted.pop_front()
        {
            // What is in the head is told with it.
            let is_named = |it: &&ChangeRef| it.version == view.version();
            let named = observed.head.changes.iter().rev().find(is_named);
            let entry =
                entry.filter(|_| named.is_some_and(|it| matches!(it.body, ChangeBody::Staged(_))));
            if !is_there && let Some(confirmed) = &mut self.confirmed {
                confirmed.view = view;
            }
            entries.extend(entry);
            has_change = true;
        }
        // Batches that accept nothing are in one that settles a doubt.
        if has_change {
            self.parts.figures.published();
        }
        if let Some(confirmed) = &mut self.confirmed {
            confirmed.position = Position::of(&observed.head);
            self.parts.seen.note(&self.parts.history, confirmed.position);
            self.parts.room.note(confirmed.view.overlay_bytes());
        }
        self.tell_published(observed, entries);
        self.begin_rebase();
        self.begin_upkeep();
    }

    /// The state after every batch decided so far.
    fn newest_view(&self) -> Option<View> {
        let predicted = self.predicted.back().map(|it| &it.view);
        predicted.or(self.confirmed.as_ref().map(|it| &it.view)).cloned()
    }

    fn begin(&self, work: impl Future<Output = Done> + Send + 'static) {
        self.work.push(work.boxed());
    }

    fn carry_out(&mut self, mut effects: Vec<Effect>) {
        if self.publisher.observed().is_none() {
            self.forget_upkeep();
        }
        self.measure_effects(&effects);
        // A replacement is sent before anybody is told about the one before it:
        // everybody who waits, waits for the store.
        let is_publish = |it: &Effect| matches!(it, Effect::Publish { .. });
        if let Some(at) = effects.iter().position(is_publish)
            && let Effect::Publish { if_match, bytes } = effects.remove(at)
        {
            self.publish(if_match, bytes, &effects);
        }
        for effect in effects {
            self.carry_out_one(effect);
        }
    }
}
