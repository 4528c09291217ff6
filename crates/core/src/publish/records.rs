//! Request records that are known to be stored, so that an operation which is
//! sent again does not cost another write of its record.

use alloc::collections::{BTreeMap, VecDeque};

use super::event::RecordSays;
use crate::decide::Ask;
use crate::id::{HistoryId, OperationId};
use crate::operation::Issue;

/// Records that are remembered: about what arrives while callers still try
/// again. A forgotten one costs a write that finds it there.
const RECORDS_MAX: usize = 1024;

/// The records of one history that this process has written or read, the oldest
/// first to go. A record is for ever, so what is known of one stays true for as
/// long as the history.
#[derive(Clone, Debug, Default)]
pub(super) struct Records {
    known: BTreeMap<OperationId, RecordSays>,
    order: VecDeque<OperationId>,
}

impl Records {
    pub(super) fn note(&mut self, id: &OperationId, says: RecordSays) {
        if self.known.insert(id.clone(), says).is_some() {
            return;
        }
        self.order.push_back(id.clone());
        if RECORDS_MAX < self.order.len()
            && let Some(oldest) = self.order.pop_front()
        {
            self.known.remove(&oldest);
        }
    }

    /// Gives a question about an operation what its record says. Nothing, where
    /// it is another request: what is stored decides about that.
    ///
    /// `known_of` is the history that the records are of. Nothing either, where
    /// the operation means another one: that may have taken the name since, and
    /// the operation is then decided in it, where no record is stored yet. An
    /// operation that names no history is failed by such a change and not kept.
    pub(super) fn put_into(&self, ask: &mut Ask, known_of: Option<HistoryId>) {
        let Ask::Submit(operation) = ask else { return };
        if operation.history_id.is_some_and(|it| Some(it) != known_of) {
            return;
        }
        if let Issue::ServiceKept { issued_from, is_durable } = &mut operation.issue
            && let Some(says) = self.known.get(&operation.id)
            && says.request_hash == operation.request_hash
        {
            (*issued_from, *is_durable) = (says.issued_from, true);
        }
    }

    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    #[cfg(feature = "planted")]
    pub(super) fn shape(&self, hasher: &mut impl core::hash::Hasher) {
        use core::hash::Hash as _;
        for (id, says) in &self.known {
            (id, says.request_hash, says.issued_from).hash(hasher);
        }
    }
}
