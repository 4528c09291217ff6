//! What was asked, and is not handed to the publisher yet.

use std::time::Duration;

use headwater_core::publish::{Event, Ticket};
use tokio::time::Instant;

use super::company::Callers;
use super::moving::Move;
use super::waiting::Waiter;
use super::{Asked, Driver, LINGER_PART, QUIET, Question};
use crate::figures::AskedBy;
use crate::metrics::Stage;

/// Bounded by the permits that each of them holds.
#[derive(Debug, Default)]
pub(super) struct Inbox {
    asked: Vec<Asked>,
    /// The first of their deadlines.
    deadline: Option<Instant>,
    hand_over_at: Option<Instant>,
    /// The latest that `hand_over_at` may become, while others keep coming.
    linger_until: Option<Instant>,
}

impl Inbox {
    pub(super) fn add(&mut self, asked: Asked) {
        self.deadline = Some(self.deadline.map_or(asked.deadline, |it| it.min(asked.deadline)));
        self.asked.push(asked);
    }

    pub(super) fn len(&self) -> usize {
        self.asked.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.asked.is_empty()
    }

    /// Who has come since there were so many.
    pub(super) fn callers_since(&self, count: usize) -> Callers {
        Callers::count(self.asked[count..].iter().map(|it| it.is_handed))
    }

    /// When the first of those in here is to be answered at the latest.
    pub(super) fn next_deadline(&self) -> Option<Instant> {
        self.deadline
    }

    /// When they are handed to the publisher.
    pub(super) fn hand_over_at(&self) -> Option<Instant> {
        self.hand_over_at
    }

    fn linger(&mut self, longest: Duration) {
        let now = Instant::now();
        let latest = *self.linger_until.get_or_insert(now + longest);
        self.hand_over_at = Some(latest.min(now + QUIET));
    }
}

impl Driver {
    /// Callers that were answered together ask again together: a moment's wait
    /// makes one batch of them. Not while nothing is on its way, where the
    /// moment would be the caller's.
    pub(super) fn on_commands(&mut self) {
        let is_full = self.parts.config.batch_operations_max <= self.inbox.len();
        let linger = self.attempt / LINGER_PART;
        if is_full || !self.publisher.is_busy() || linger < QUIET {
            return self.hand_in();
        }
        self.inbox.linger(linger);
    }

    /// Hands what was asked to the publisher.
    pub(super) fn hand_in(&mut self) {
        let events = self.take_inbox();
        let effects = self.publisher.on_all(events);
        self.carry_out(effects);
    }

    pub(super) fn take_inbox(&mut self) -> Vec<Event> {
        let Inbox { asked: inbox, .. } = std::mem::take(&mut self.inbox);
        let mut events = Vec::with_capacity(inbox.len());
        let asked_at_ms = self.parts.clock.now_ms();
        // They are in the order in which they were handed over.
        if let Some(first) = inbox.first() {
            self.parts.metrics.stages.record(Stage::Queue, first.at.elapsed());
        }
        for command in inbox {
            let ticket = Ticket(self.next_ticket);
            self.next_ticket += 1;
            let operation = command.question.operation_id().cloned();
            let asked = AskedBy { operation, at: command.at };
            let moves = Move::of(&command);
            events.push(match command.question {
                Question::Ask(ask) => Event::Asked { ticket, ask, asked_at_ms },
                Question::Control(control) => Event::Controlled { ticket, control },
            });
            let Asked { origin, deadline, reply, permits, is_handed, .. } = command;
            let waiter = Waiter { asked, origin, reply, moves, is_handed, permits };
            self.waiting.add(ticket, deadline, waiter);
        }
        events
    }

    /// Somebody's time is up.
    pub(super) fn on_deadline(&mut self) {
        let is_due = self.inbox.deadline.is_some_and(|it| it <= Instant::now());
        let mut events = if is_due { self.take_inbox() } else { Vec::new() };
        events.extend(self.expire(false));
        let effects = self.publisher.on_all(events);
        self.carry_out(effects);
    }
}
