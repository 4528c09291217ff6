//! Who waits for an answer, and until when.

use std::collections::{BTreeMap, BTreeSet};

use headwater_core::publish::Ticket;
use headwater_daemon::trace::Origin;
use tokio::sync::{OwnedSemaphorePermit, oneshot};
use tokio::time::Instant;

use super::Told;
use super::moving::Move;
use crate::figures::AskedBy;

/// One caller.
#[derive(Debug)]
pub(super) struct Waiter {
    pub(super) asked: AskedBy,
    /// The span that it was asked from, if that is traced.
    pub(super) origin: Option<Origin>,
    pub(super) reply: oneshot::Sender<Told>,
    /// Whether it may go to another writer.
    pub(super) moves: Move,
    /// Whether another writer handed it over.
    pub(super) is_handed: bool,
    /// Held until it is told.
    pub(super) permits: [OwnedSemaphorePermit; 2],
}

/// Everyone. Bounded by the permits that each holds.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    by_ticket: BTreeMap<Ticket, (Instant, Waiter)>,
    deadlines: BTreeSet<(Instant, Ticket)>,
    /// How many are traced: nobody is looked for where there is none.
    n_traced: usize,
}

impl Waiting {
    pub(super) fn add(&mut self, ticket: Ticket, deadline: Instant, waiter: Waiter) {
        self.n_traced += usize::from(waiter.origin.is_some());
        self.by_ticket.insert(ticket, (deadline, waiter));
        self.deadlines.insert((deadline, ticket));
    }

    /// Who asked, if it was not answered yet.
    pub(super) fn find(&self, ticket: Ticket) -> Option<&Waiter> {
        self.by_ticket.get(&ticket).map(|(_, waiter)| waiter)
    }

    /// The origin of the first of those that are traced, and are none of
    /// `but`; that is not asked for where none is traced.
    pub(super) fn first_origin(&self, but: impl FnOnce() -> BTreeSet<Ticket>) -> Option<&Origin> {
        if self.n_traced == 0 {
            return None;
        }
        let but = but();
        let mut others = self.by_ticket.iter().filter(|(ticket, _)| !but.contains(ticket));
        others.find_map(|(_, (_, waiter))| waiter.origin.as_ref())
    }

    /// Tells one caller, if it is still there.
    pub(super) fn answer(&mut self, ticket: Ticket, told: Told) {
        if let Some((_, waiter)) = self.take(ticket) {
            let _gone = waiter.reply.send(told);
        }
    }

    /// Somebody who waits here no longer, with the deadline.
    pub(super) fn take(&mut self, ticket: Ticket) -> Option<(Instant, Waiter)> {
        let (deadline, waiter) = self.by_ticket.remove(&ticket)?;
        self.deadlines.remove(&(deadline, ticket));
        self.n_traced -= usize::from(waiter.origin.is_some());
        Some((deadline, waiter))
    }

    /// Operations that may go to another writer, and go now: the oldest.
    pub(super) fn begin_moving(&mut self, count: usize) -> Vec<Ticket> {
        let mut tickets = Vec::new();
        for (ticket, (_, waiter)) in &mut self.by_ticket {
            let Move::May(operation) = &waiter.moves else { continue };
            waiter.moves = Move::Going(operation.clone());
            tickets.push(*ticket);
            if tickets.len() == count {
                break;
            }
        }
        tickets
    }

    pub(super) fn next_deadline(&self) -> Option<Instant> {
        self.deadlines.first().map(|(deadline, _)| *deadline)
    }

    /// Whose deadline has passed. Each is named once; the answer follows from
    /// the publisher.
    pub(super) fn expired(&mut self, now: Instant) -> Vec<Ticket> {
        let mut tickets = Vec::new();
        while let Some((deadline, ticket)) = self.deadlines.first().copied()
            && deadline <= now
        {
            self.deadlines.pop_first();
            tickets.push(ticket);
        }
        tickets
    }

    pub(super) fn len(&self) -> usize {
        self.by_ticket.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.by_ticket.is_empty()
    }
}
