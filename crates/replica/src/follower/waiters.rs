//! Requests that wait for a check, each with the first one that will do.

use std::collections::BTreeMap;

use tokio::sync::oneshot;

use super::CheckFailure;
use crate::local::Pinned;

/// Where the answer goes.
pub(super) type Reply = oneshot::Sender<Result<Pinned, CheckFailure>>;

/// By ticket: the number of the first check that will do. Checks are numbered
/// in the order in which they begin.
#[derive(Debug, Default)]
pub(super) struct Waiters {
    by_ticket: BTreeMap<u64, Vec<Reply>>,
    len: usize,
}

impl Waiters {
    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn add(&mut self, ticket: u64, reply: Reply) {
        self.by_ticket.entry(ticket).or_default().push(reply);
        self.len += 1;
    }

    /// Whether somebody waits for a check after number `last`.
    pub(super) fn want_after(&self, last: u64) -> bool {
        self.by_ticket.last_key_value().is_some_and(|(ticket, _)| last < *ticket)
    }

    /// Takes those that check `number` will do for.
    pub(super) fn take(&mut self, number: u64) -> impl Iterator<Item = Reply> + use<> {
        let later = self.by_ticket.split_off(&(number + 1));
        let taken = std::mem::replace(&mut self.by_ticket, later);
        self.len -= taken.values().map(Vec::len).sum::<usize>();
        taken.into_values().flatten()
    }

    /// Forgets those who went away.
    pub(super) fn forget_gone(&mut self) {
        for replies in self.by_ticket.values_mut() {
            replies.retain(|it| !it.is_closed());
        }
        self.by_ticket.retain(|_, replies| !replies.is_empty());
        self.len = self.by_ticket.values().map(Vec::len).sum();
    }
}
