//! Clients: each sends one thing at a time, tries again under the same id until
//! it has an outcome, and has every answer checked.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures::FutureExt as _;
use headwater_core::decide::{Ask, LookUp};
use headwater_core::id::{HistoryName, OperationId};
use headwater_core::operation::{Issue, Operation};
use headwater_core::publish::{Answer, SubmitError};
use headwater_core::version::StateVersion;
use headwater_replica::Consistency;
use headwater_writer::{AskError, Question, Told};
use tokio::time::{sleep, timeout};

use crate::dice::Dice;
use crate::requests::{self, Knowing};
use crate::truth::Attempt;
use crate::world::World;

/// Attempts after which a client has waited long enough for anything that the
/// weather may have done.
const ATTEMPTS_MAX: u64 = 10_000;

/// How long a client waits once everything works: as long as a writer takes at
/// most.
const CALM_PATIENCE: Duration = Duration::from_secs(40);

/// What clients did, all of a run together.
#[derive(Debug, Default)]
pub(crate) struct Done {
    /// Operations and reads that ended, one way or the other.
    pub(crate) operations: AtomicU64,
    pub(crate) attempts: AtomicU64,
    pub(crate) rejected: AtomicU64,
    pub(crate) unknown: AtomicU64,
    pub(crate) in_doubt: AtomicU64,
    pub(crate) reads: AtomicU64,
}

pub(crate) struct Client {
    pub(crate) world: Arc<World>,
    pub(crate) done: Arc<Done>,
    pub(crate) index: usize,
    pub(crate) dice: Dice,
    pub(crate) history: HistoryName,
    pub(crate) head_key: String,
    pub(crate) knowing: Knowing,
    pub(crate) last: Option<Operation>,
    /// The one that it talks to, where it does not choose.
    pub(crate) only_writer: Option<usize>,
}

/// How an operation ended for its client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Accepted(StateVersion),
    Rejected,
    Unknown,
    /// The client went away, or was told that trying again is no use.
    Abandoned,
}

/// What one attempt came to.
enum Step {
    End(End),
    Again,
}

impl Client {
    /// A client of one history, with its own draws.
    pub(crate) fn new(world: &Arc<World>, done: &Arc<Done>, index: usize) -> Self {
        let history = world.histories[index % world.histories.len()].clone();
        Self {
            dice: Dice::new(world.plan.seed, &format!("client {index}")),
            world: Arc::clone(world),
            done: Arc::clone(done),
            index,
            head_key: history.head_key(),
            history,
            knowing: Knowing { seen: 0, read_at: 0, epoch: 0 },
            last: None,
            only_writer: None,
        }
    }

    /// Does everything that the plan has for it.
    pub(crate) async fn run(mut self) {
        let mix = self.world.plan.mix;
        for n in 0..self.world.plan.operations_each {
            if 0 < mix.think_ms {
                sleep(self.dice.ms(0, mix.think_ms)).await;
            }
            if self.dice.percent(mix.reads) {
                self.read().await;
                self.done.reads.fetch_add(1, Ordering::Relaxed);
            } else if self.dice.percent(mix.look_ups) {
                self.look_up().await;
            } else if self.dice.percent(mix.again)
                && let Some(operation) = self.last.clone()
            {
                self.submit(&operation).await;
            } else {
                self.write(n).await;
            }
            self.done.operations.fetch_add(1, Ordering::Relaxed);
        }
    }

    async fn write(&mut self, n: u64) {
        let id = format!("c{}-{n}", self.index);
        let mix = self.world.plan.mix;
        let drawn = requests::draw_operation(&self.dice, &mix, &id, self.knowing);
        let Some(operation) = drawn else { return };
        self.submit(&operation).await;
        self.last = Some(operation);
    }

    /// Sends an operation until it has an outcome.
    pub(crate) async fn submit(&mut self, operation: &Operation) -> End {
        let event = self.world.trace.event(format_args!(
            "client {}: {} {:?} {:?}",
            self.index, operation.id, operation.issue, operation.request
        ));
        self.world.truth().issued(&self.head_key, operation, event);
        for n in 0..ATTEMPTS_MAX {
            let writer = self.writer();
            match self.attempt(operation, writer).await {
                Step::End(end) => {
                    match &end {
                        End::Rejected => _ = self.done.rejected.fetch_add(1, Ordering::Relaxed),
                        End::Unknown => _ = self.done.unknown.fetch_add(1, Ordering::Relaxed),
                        End::Accepted(_) | End::Abandoned => (),
                    }
                    return end;
                }
                Step::Again => (),
            }
            if self.dice.percent(self.world.plan.mix.abandoned) {
                self.world.truth().left_open(&self.head_key, &operation.id);
                return End::Abandoned;
            }
            sleep(self.dice.ms(5, (50 << n.min(5)).min(1_000))).await;
        }
        let what = format!("{}: no outcome after {ATTEMPTS_MAX} attempts", operation.id);
        self.world.truth().violation(what);
        End::Abandoned
    }

    /// Any writer, the one that is first for the history more often.
    fn writer(&self) -> usize {
        if let Some(writer) = self.only_writer {
            return writer;
        }
        let n = self.world.plan.writers.len();
        let first = self.index % self.world.histories.len();
        if self.dice.percent(50) { first % n } else { self.dice.index(n) }
    }

    fn patience(&self) -> Duration {
        // Callers who never wait as long as an answer takes keep a writer busy
        // with what they left behind. In the end they wait.
        if self.world.climate.is_calm() {
            return CALM_PATIENCE;
        }
        let (least, most) = self.world.plan.mix.patience_ms;
        self.dice.ms(least, most)
    }

    async fn attempt(&mut self, operation: &Operation, writer: usize) -> Step {
        self.done.attempts.fetch_add(1, Ordering::Relaxed);
        let question = Question::Ask(Ask::Submit(operation.clone()));
        let sent = self
            .world
            .trace
            .event(format_args!("client {}: {} to process {writer}", self.index, operation.id));
        self.world.truth().asked(&self.head_key, &operation.id);
        let told = self.ask(writer, question).await;
        let answered = self
            .world
            .trace
            .event(format_args!("client {}: {} is told {told:?}", self.index, operation.id));
        let attempt = Attempt { head_key: &self.head_key, id: &operation.id, sent, answered };
        let (told, is_sure) = told;
        let mut truth = self.world.truth();
        truth.over(&self.head_key, &operation.id);
        if !is_sure {
            truth.left_open(&self.head_key, &operation.id);
        }
        let Some(told) = told else { return Step::Again };
        let told = match told {
            Ok(told) => told,
            Err(AskError::Lost) => {
                truth.left_open(&self.head_key, &operation.id);
                return Step::Again;
            }
            Err(
                AskError::QueueFull { .. }
                | AskError::TooManyHistories { .. }
                | AskError::ShuttingDown,
            ) => return Step::Again,
        };
        truth.submitted(attempt, &told.answer);
        drop(truth);
        self.learn(&told.answer);
        self.step(&told.answer)
    }

    /// Every answer tells of a version that the history has reached.
    #[expect(clippy::wildcard_enum_match_arm, reason = "the others tell of no version")]
    fn learn(&mut self, answer: &Answer) {
        let reached = match answer {
            Answer::Accepted { receipt, .. } => receipt.accepted_at.get(),
            Answer::Rejected { at, .. } => at.get(),
            Answer::Unknown { coverage_from, .. } => coverage_from.get().saturating_sub(1),
            Answer::NotAccepted { through } => through.get(),
            _ => 0,
        };
        self.knowing.seen = self.knowing.seen.max(reached);
        if let Answer::Failed(SubmitError::Fenced { writer_epoch }) = answer {
            // The operation is over; the next one is the new owner's.
            self.knowing.epoch = self.knowing.epoch.max(*writer_epoch);
        }
    }

    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "whatever else is told, sending it again is no use; the checks say if it was right"
    )]
    fn step(&self, answer: &Answer) -> Step {
        match answer {
            Answer::Accepted { receipt, .. } => Step::End(End::Accepted(receipt.accepted_at)),
            Answer::Rejected { .. } => Step::End(End::Rejected),
            Answer::Unknown { .. } => Step::End(End::Unknown),
            Answer::Failed(
                SubmitError::Expired
                | SubmitError::Contended
                | SubmitError::StoreUnavailable
                | SubmitError::HeadTooLarge,
            ) => Step::Again,
            Answer::Failed(SubmitError::InDoubt) => {
                self.done.in_doubt.fetch_add(1, Ordering::Relaxed);
                Step::Again
            }
            _ => Step::End(End::Abandoned),
        }
    }

    /// What a writer answers, without any check.
    pub(crate) async fn hear(&self, writer: usize, operation: &Operation) -> Option<Answer> {
        let question = Question::Ask(Ask::Submit(operation.clone()));
        let (told, _) = self.ask(writer, question).await;
        told?.ok().map(|it| it.answer)
    }

    /// Asks a writer. The flag tells whether the question is over: where there
    /// is no answer, or the network repeated it, it may be answered yet.
    async fn ask(
        &self,
        writer: usize,
        question: Question,
    ) -> (Option<Result<Told, AskError>>, bool) {
        let history = self.history.clone();
        let call = self.world.call(self.index, writer, move |serving| {
            let (history, question) = (history.clone(), question.clone());
            async move { serving.ask(&history, question).await }.boxed()
        });
        match timeout(self.patience(), call).await {
            Ok(heard) => {
                let is_sure = heard.answer.is_some() && !heard.was_repeated;
                (heard.answer, is_sure)
            }
            Err(_) => (None, false),
        }
    }

    /// Asks what became of the last operation, or of one that never was.
    async fn look_up(&mut self) {
        let Some(operation) = self.last.clone() else { return };
        let issued_from = match operation.issue {
            Issue::ClientKept(version) => version,
            // Nobody knows, and 0 is always true.
            Issue::ServiceKept { .. } => StateVersion::ZERO,
        };
        let id: OperationId = operation.id.clone();
        let ask = Ask::LookUp(LookUp { id: id.clone(), issued_from, history_id: None });
        let sent = self.world.trace.event(format_args!("client {}: looks {id} up", self.index));
        let (told, _) = self.ask(self.writer(), Question::Ask(ask)).await;
        let answered = self
            .world
            .trace
            .event(format_args!("client {}: {id} was looked up: {told:?}", self.index));
        if let Some(Ok(told)) = told {
            let attempt = Attempt { head_key: &self.head_key, id: &id, sent, answered };
            self.world.truth().looked_up(attempt, &told.answer);
        }
    }

    /// A version that there was, as far back as the plan's reads go.
    pub(crate) fn draw_older(&self) -> u64 {
        let seen = self.knowing.seen;
        self.dice.between(seen.saturating_sub(self.world.plan.mix.reads_back_max), seen)
    }

    pub(crate) fn draw_consistency(&self) -> Consistency {
        if self.dice.percent(self.world.plan.mix.strong_reads) {
            return Consistency::Strong;
        }
        let seen = StateVersion::new(self.knowing.seen);
        match self.dice.below(5) {
            0 => Consistency::Any,
            1 => Consistency::MaxStaleness(self.dice.ms(0, 2_000)),
            2 => Consistency::Exact(StateVersion::new(self.draw_older())),
            _ => Consistency::AtLeast(seen),
        }
    }
}
