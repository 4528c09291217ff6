//! Handing operations of one history over: in messages of many, and deciding
//! here whatever comes back without an outcome.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures::StreamExt as _;
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use headwater_core::decide::Ask;
use headwater_core::id::{HistoryId, HistoryName};
use headwater_core::operation::Operation;
use headwater_core::publish::{Answer, SubmitError};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, sleep_until};

use super::route::{Route, Target};
use super::{BYTES_MAX, Forwarding, Handed, HandedOperation, LineError, OPERATIONS_MAX, Verdict};
use crate::driver::{Asked, Command, Question, Told};
use crate::histories::Histories;
use crate::metrics::{AnswerKind, Forwarded, WriterMetrics};

/// Messages of one history that are unanswered at a time. What comes meanwhile
/// makes the next one larger.
const MESSAGES_MAX: usize = 8;
/// How long a message is waited for. A writer that takes longer is slower than
/// publishing in turns, or stands still.
const PATIENCE: Duration = Duration::from_secs(3);
/// A writer that has not answered for so long takes nothing, also where the
/// callers' own time was up before.
pub(super) const SILENT: Duration = Duration::from_millis(500);
/// Share of an operation's time that is kept for its answer to come back, one
/// part in this many, and what that is at least and at most.
const ANSWER_PART: u32 = 20;
const ANSWER_TIME_MIN: Duration = Duration::from_millis(5);
const ANSWER_TIME_MAX: Duration = Duration::from_millis(250);

/// What handing over is made of.
pub(crate) struct OutgoingParts {
    pub(crate) history: HistoryName,
    pub(crate) publisher_id: String,
    pub(crate) forwarding: Forwarding,
    pub(crate) route: Arc<Route>,
    pub(crate) metrics: Arc<WriterMetrics>,
    /// The way to the driver.
    pub(crate) driver: mpsc::Sender<Command>,
    /// Where another driver is found, once that one has ended.
    pub(crate) histories: Weak<Histories>,
}

/// The task that hands the operations of one history over.
pub(crate) struct Outgoing {
    parts: OutgoingParts,
    /// Names this task to those who take its messages.
    life: [u8; 16],
    /// Messages sent so far.
    n_sent: u64,
    waiting: Waiting,
    flights: FuturesUnordered<BoxFuture<'static, Vec<Outbound>>>,
    /// Operations that may have been applied elsewhere, and are decided here.
    unsettled: FuturesUnordered<BoxFuture<'static, ()>>,
}

/// An operation on its way out, or back without an outcome.
#[derive(Debug)]
pub(crate) struct Outbound {
    pub(crate) asked: Asked,
    /// Whether a writer may have applied it, or may apply it yet, that does not
    /// say so.
    pub(crate) is_in_doubt: bool,
}

/// Operations that wait for a message: those whose time is up first come first.
/// Bounded by the permits that each holds.
#[derive(Debug, Default)]
struct Waiting {
    by_deadline: BTreeMap<(Instant, u64), Outbound>,
    /// Tells those with the same deadline apart, in the order in which they came.
    n_came: u64,
}

impl Waiting {
    fn add(&mut self, outbound: Outbound) {
        self.n_came += 1;
        self.by_deadline.insert((outbound.asked.deadline, self.n_came), outbound);
    }

    fn is_empty(&self) -> bool {
        self.by_deadline.is_empty()
    }

    fn next_deadline(&self) -> Option<Instant> {
        self.by_deadline.first_key_value().map(|((deadline, _), _)| *deadline)
    }

    fn take(&mut self) -> Option<Outbound> {
        self.by_deadline.pop_first().map(|(_, outbound)| outbound)
    }

    /// The next, if its time is up.
    fn take_expired(&mut self, now: Instant) -> Option<Outbound> {
        self.take_if(|it| it.asked.deadline <= now)
    }

    fn take_if(&mut self, is_wanted: impl FnOnce(&Outbound) -> bool) -> Option<Outbound> {
        let next = self.by_deadline.first_entry()?;
        is_wanted(next.get()).then(|| next.remove())
    }
}

impl Outgoing {
    pub(crate) fn new(parts: OutgoingParts) -> Self {
        let life = parts.forwarding.entropy.bytes16();
        let (flights, unsettled) = (FuturesUnordered::new(), FuturesUnordered::new());
        Self { parts, life, n_sent: 0, waiting: Waiting::default(), flights, unsettled }
    }

    /// Runs until nobody can hand in anything any more, and all is answered.
    pub(crate) async fn run(mut self, mut taken: mpsc::Receiver<Outbound>) {
        let (mut is_open, mut asked) = (true, Vec::new());
        while is_open || !self.is_done() {
            let next_deadline = self.waiting.next_deadline();
            tokio::select! {
                biased;
                Some(back) = self.flights.next(), if !self.flights.is_empty() => {
                    for it in back {
                        self.decide_here(it);
                    }
                }
                Some(()) = self.unsettled.next(), if !self.unsettled.is_empty() => {}
                n = taken.recv_many(&mut asked, OPERATIONS_MAX), if is_open => {
                    is_open = n != 0;
                    asked.drain(..).for_each(|it| self.waiting.add(it));
                }
                () = until(next_deadline) => {}
            }
            self.expire();
            self.hand_over();
        }
    }

    fn is_done(&self) -> bool {
        self.flights.is_empty() && self.unsettled.is_empty() && self.waiting.is_empty()
    }

    /// Those whose time is up before there was a message for them.
    fn expire(&mut self) {
        while let Some(Outbound { asked, is_in_doubt }) = self.waiting.take_expired(Instant::now())
        {
            let error = if is_in_doubt { SubmitError::InDoubt } else { SubmitError::Expired };
            tell(&self.parts.metrics, asked, None, Answer::Failed(error));
        }
    }

    /// Sends what waits, as far as there is room on the way.
    fn hand_over(&mut self) {
        while !self.waiting.is_empty() {
            // It may be another one by now, or none.
            let Some(target) = self.parts.route.target(None) else {
                while let Some(outbound) = self.waiting.take() {
                    self.decide_here(outbound);
                }
                return;
            };
            if self.flights.len() == MESSAGES_MAX {
                return;
            }
            let message = self.next_message(&target);
            if !message.is_empty() {
                self.send(target, message);
            }
        }
    }

    fn next_message(&mut self, target: &Target) -> Vec<(Outbound, Operation)> {
        let (mut message, mut size_bytes) = (Vec::new(), 0);
        while message.len() < OPERATIONS_MAX {
            let fits = |it: &Outbound| size_bytes + it.asked.question.size_bytes() <= BYTES_MAX;
            let is_first = message.is_empty();
            let Some(outbound) = self.waiting.take_if(|it| is_first || fits(it)) else { break };
            let Some(operation) = meant(&outbound.asked, target) else {
                self.decide_here(outbound);
                continue;
            };
            size_bytes += outbound.asked.question.size_bytes();
            message.push((outbound, operation));
        }
        message
    }

    fn send(&mut self, target: Target, operations: Vec<(Outbound, Operation)>) {
        let now = Instant::now();
        let (life, number) = (self.life, self.n_sent);
        self.n_sent += 1;
        let origin = operations.iter().find_map(|(it, _)| it.asked.origin.as_ref());
        let handed = Handed {
            history: self.parts.history.clone(),
            history_id: target.history_id,
            publisher_id: self.parts.publisher_id.clone(),
            life,
            number,
            operations: operations
                .iter()
                .map(|(Outbound { asked, .. }, operation)| {
                    // Nobody waits longer for the answer, and what is not decided
                    // by then is decided here.
                    let left = asked.deadline.saturating_duration_since(now).min(PATIENCE);
                    HandedOperation { operation: operation.clone(), time: working_time(left) }
                })
                .collect(),
            patience: PATIENCE,
            traceparent: origin.map(headwater_daemon::trace::Origin::traceparent),
        };
        let flight = Flight {
            sent: operations.into_iter().map(|(outbound, _)| Some(outbound)).collect(),
            target,
            began: now,
            route: Arc::clone(&self.parts.route),
            metrics: Arc::clone(&self.parts.metrics),
        };
        let way = Arc::clone(&self.parts.forwarding.line);
        self.flights.push(Box::pin(async move {
            let address = flight.target.address.clone();
            flight.run(way.hand(address, handed)).await
        }));
    }

    /// The ordinary path, under the same id: the receipts tell if it was applied
    /// elsewhere, and no replacement of a head but one can have it in it.
    fn decide_here(&mut self, back: Outbound) {
        let Outbound { mut asked, is_in_doubt } = back;
        if is_in_doubt {
            let (reply, told) = oneshot::channel();
            let waits = std::mem::replace(&mut asked.reply, reply);
            self.unsettled.push(Box::pin(async move {
                // Dropped otherwise, which is in doubt as well.
                if let Ok(Told { answer, history_id }) = told.await {
                    let _gone = waits.send(Told { answer: settled(answer), history_id });
                }
            }));
        }
        if let Err(mpsc::error::TrySendError::Closed(Command::Ask(asked))) =
            self.parts.driver.try_send(Command::Ask(asked))
            && let Some(histories) = self.parts.histories.upgrade()
        {
            histories.send_again(&self.parts.history, asked);
        }
    }
}

/// The operation, with the id of the history that it is for.
fn meant(asked: &Asked, target: &Target) -> Option<Operation> {
    let Question::Ask(Ask::Submit(operation)) = &asked.question else { return None };
    let is_meant = operation.history_id.is_none_or(|it| it == target.history_id);
    // A restore has the hash of a wish, and is decided where it was made.
    let is_meant = is_meant && !operation.ends_version;
    is_meant.then(|| Operation { history_id: Some(target.history_id), ..operation.clone() })
}

fn working_time(time: Duration) -> Duration {
    let kept = (time / ANSWER_PART).clamp(ANSWER_TIME_MIN, ANSWER_TIME_MAX);
    time.saturating_sub(kept)
}

/// What the caller is told of an operation that another writer may have applied,
/// or may apply yet. That it is accepted stays true, and so does "unknown".
/// Anything else is true of this submission alone.
fn settled(answer: Answer) -> Answer {
    match answer {
        answer @ (Answer::Accepted { .. } | Answer::Unknown { .. }) => answer,
        Answer::Rejected { .. }
        | Answer::NotAccepted { .. }
        | Answer::WriterEpochRaised { .. }
        | Answer::Retired
        | Answer::Pinned(_)
        | Answer::Unpinned
        | Answer::RetentionSet(_)
        | Answer::Failed(_) => Answer::Failed(SubmitError::InDoubt),
    }
}

/// One message on its way.
struct Flight {
    /// Those who wait; `None` once they are answered.
    sent: Vec<Option<Outbound>>,
    target: Target,
    began: Instant,
    route: Arc<Route>,
    metrics: Arc<WriterMetrics>,
}

impl Flight {
    async fn run(
        mut self,
        mut answer: BoxFuture<'static, Result<super::Taken, LineError>>,
    ) -> Vec<Outbound> {
        let until = self.began + PATIENCE;
        let taken = loop {
            let waiting = self.sent.iter().flatten().map(|it| it.asked.deadline);
            let Some(next) = waiting.min() else {
                // Nobody waits any more.
                break Err(LineError::NoAnswer);
            };
            tokio::select! {
                biased;
                taken = &mut answer => break taken,
                () = sleep_until(next.min(until)) => {
                    if until <= Instant::now() {
                        break Err(LineError::NoAnswer);
                    }
                    self.expire();
                }
            }
        };
        let address = self.target.address.clone();
        match taken {
            Ok(taken) => {
                let is_outcome = |it: &Verdict| matches!(it, Verdict::Outcome(_));
                if taken.verdicts.iter().any(is_outcome) {
                    self.route.answered(&address, self.began.elapsed(), &taken);
                } else {
                    self.route.without_outcome(&address);
                }
                self.take_in(taken.verdicts)
            }
            Err(error) => {
                // Callers that wait for less than that are no judges of a writer.
                let is_waited_for = self.sent.iter().any(Option::is_some);
                if is_waited_for || SILENT <= self.began.elapsed() {
                    self.route.failed(&address);
                }
                let (is_in_doubt, what) = match error {
                    LineError::NotTaken => (false, Forwarded::NotTaken),
                    LineError::NoAnswer => (true, Forwarded::InDoubt),
                };
                let back = self.sent.into_iter().flatten().map(|mut it| {
                    it.is_in_doubt |= is_in_doubt;
                    it
                });
                let back: Vec<_> = back.collect();
                self.metrics.forwarded.add_many(what, back.len() as u64);
                back
            }
        }
    }

    /// Those whose time is up: the other writer has their operations.
    fn expire(&mut self) {
        let now = Instant::now();
        for place in &mut self.sent {
            if let Some(Outbound { asked, .. }) = place.take_if(|it| it.asked.deadline <= now) {
                self.metrics.forwarded.add(Forwarded::InDoubt);
                let answer = Answer::Failed(SubmitError::InDoubt);
                tell(&self.metrics, asked, Some(self.target.history_id), answer);
            }
        }
    }

    fn take_in(self, verdicts: Vec<Verdict>) -> Vec<Outbound> {
        let mut back = Vec::new();
        for (sent, verdict) in self.sent.into_iter().zip(verdicts) {
            let Some(Outbound { asked, mut is_in_doubt }) = sent else { continue };
            let what = match verdict {
                Verdict::Outcome(answer) => {
                    let answer = if is_in_doubt { settled(answer) } else { answer };
                    self.metrics.forwarded.add(Forwarded::Answered);
                    tell(&self.metrics, asked, Some(self.target.history_id), answer);
                    continue;
                }
                Verdict::NotApplied => Forwarded::NotTaken,
                Verdict::MaybeApplied => {
                    is_in_doubt = true;
                    Forwarded::InDoubt
                }
            };
            self.metrics.forwarded.add(what);
            back.push(Outbound { asked, is_in_doubt });
        }
        back
    }
}

fn tell(metrics: &WriterMetrics, asked: Asked, history_id: Option<HistoryId>, answer: Answer) {
    metrics.answers.record(AnswerKind::of(&answer), asked.at.elapsed());
    let _gone = asked.reply.send(Told { answer, history_id });
}

async fn until(moment: Option<Instant>) {
    match moment {
        Some(moment) => sleep_until(moment).await,
        None => std::future::pending().await,
    }
}
