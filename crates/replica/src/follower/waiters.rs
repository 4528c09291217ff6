//! Requests that wait for a check, each with the first one that will do.

use std::collections::BTreeMap;

use headwater_daemon::trace::Origin;
use tokio::sync::oneshot;

use super::CheckFailure;
use crate::local::Pinned;

/// Where the answer goes.
pub(super) type Reply = oneshot::Sender<Result<Pinned, CheckFailure>>;

/// A request that waits.
#[derive(Debug)]
pub(super) struct Waiter {
    /// The span that it was asked from, if that is traced.
    pub(super) origin: Option<Origin>,
    pub(super) reply: Reply,
}

/// By ticket: the number of the first check that will do. Checks are numbered
/// in the order in which they begin.
#[derive(Debug, Default)]
pub(super) struct Waiters {
    by_ticket: BTreeMap<u64, Vec<Waiter>>,
    len: usize,
}

impl Waiters {
    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn add(&mut self, ticket: u64, waiter: Waiter) {
        self.by_ticket.entry(ticket).or_default().push(waiter);
        self.len += 1;
    }

    /// Whether somebody waits for a check after number `last`.
    pub(super) fn want_after(&self, last: u64) -> bool {
        self.by_ticket.last_key_value().is_some_and(|(ticket, _)| last < *ticket)
    }

    /// The origin of the first that is traced, of those that check `number` will
    /// do for.
    pub(super) fn first_origin(&self, number: u64) -> Option<&Origin> {
        let mut served = self.by_ticket.range(..=number).flat_map(|(_, waiters)| waiters);
        served.find_map(|it| it.origin.as_ref())
    }

    /// Takes those that check `number` will do for.
    pub(super) fn take(&mut self, number: u64) -> impl Iterator<Item = Waiter> + use<> {
        let later = self.by_ticket.split_off(&(number + 1));
        let taken = std::mem::replace(&mut self.by_ticket, later);
        self.len -= taken.values().map(Vec::len).sum::<usize>();
        taken.into_values().flatten()
    }

    /// Forgets those who went away.
    pub(super) fn forget_gone(&mut self) {
        for waiters in self.by_ticket.values_mut() {
            waiters.retain(|it| !it.reply.is_closed());
        }
        self.by_ticket.retain(|_, waiters| !waiters.is_empty());
        self.len = self.by_ticket.values().map(Vec::len).sum();
    }
}
