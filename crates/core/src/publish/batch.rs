//! A batch on its way through the pipeline.

use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;

use bytes::Bytes;

use super::answer::{Answer, SubmitError};
use super::event::{Effect, Ticket};
use crate::change::Change;
use crate::decide::{Ask, Verdict};
use crate::format;
use crate::hash::ContentHash;
use crate::head::{ChangeBody, ObjectRef};
use crate::id::OperationId;
use crate::receipt::Receipt;
use crate::version::StateVersion;

/// Names one batch of one publisher. Never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BatchId(pub u64);

/// A candidate to upload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StagedChange {
    /// Where, and what the head will say of it.
    pub object: ObjectRef,
    /// The bytes.
    pub bytes: Bytes,
}

/// One question without an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Pending {
    /// `None` once it was answered while its batch was in flight.
    pub(super) ticket: Option<Ticket>,
    pub(super) ask: Ask,
    pub(super) arrived: u64,
    pub(super) asked_at_ms: u64,
    /// Part of a publication that the store did not report as done, until a
    /// head that was read settles it.
    pub(super) is_in_doubt: bool,
    pub(super) size_bytes: usize,
}

impl Pending {
    pub(super) fn new(ticket: Ticket, ask: Ask, arrived: u64, asked_at_ms: u64) -> Self {
        // Close to what it adds to a change entry.
        let size_bytes = ask
            .operation()
            .map_or(0, |it| 64 + it.id.as_str().len() + format::request::encoded_len(&it.request));
        Self { ticket: Some(ticket), ask, arrived, asked_at_ms, is_in_doubt: false, size_bytes }
    }

    /// Tells the caller, once.
    pub(super) fn answer(&mut self, answer: Answer, effects: &mut Vec<Effect>) {
        if let Some(ticket) = self.ticket.take() {
            effects.push(Effect::Answer { ticket, answer });
        }
    }

    /// Tells the caller that there is no outcome: for `error`, unless it may
    /// have been applied.
    pub(super) fn fail(&mut self, error: SubmitError, effects: &mut Vec<Effect>) {
        let error = if self.is_in_doubt { SubmitError::InDoubt } else { error };
        self.answer(Answer::Failed(error), effects);
    }
}

/// Operations that are decided, staged and published together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Batch {
    pub(super) id: BatchId,
    pub(super) asks: Vec<Pending>,
    pub(super) phase: Phase,
    pub(super) failures: u32,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// Facts are being looked up.
    Finding,
    /// Decided; the candidate or records are being uploaded.
    Staging(Decided),
    /// Decided, and everything that a head would name is durable.
    Ready(Decided),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Decided {
    /// One for each ask.
    pub(super) verdicts: Vec<Verdict>,
    /// What the accepted ones become.
    pub(super) change: Option<DecidedChange>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct DecidedChange {
    /// The version that it will be.
    pub(super) version: StateVersion,
    pub(super) change: Arc<Change>,
    pub(super) hash: ContentHash,
    pub(super) bytes: Bytes,
    pub(super) body: ChangeBody,
    /// Whether `body` is an object that was not known to be durable when the
    /// batch was decided.
    pub(super) is_new_object: bool,
    pub(super) receipts: BTreeMap<OperationId, Receipt>,
    pub(super) receipt_bytes: u64,
}

impl Batch {
    pub(super) fn decided(&self) -> Option<&Decided> {
        match &self.phase {
            Phase::Finding => None,
            Phase::Staging(decided) | Phase::Ready(decided) => Some(decided),
        }
    }

    pub(super) fn decided_change(&self) -> Option<&DecidedChange> {
        self.decided()?.change.as_ref()
    }

    pub(super) fn is_ready(&self) -> bool {
        match self.phase {
            Phase::Ready(_) => true,
            Phase::Finding | Phase::Staging(_) => false,
        }
    }

    /// Tells everyone. The batch's head was published.
    pub(super) fn answer(mut self, effects: &mut Vec<Effect>) {
        let (Phase::Staging(decided) | Phase::Ready(decided)) = self.phase else { return };
        for (pending, verdict) in self.asks.iter_mut().zip(decided.verdicts) {
            pending.answer(told(verdict), effects);
        }
    }

    /// Tells those who asked before a proof of the batch's head began. Only for
    /// a batch that accepts nothing: its answers rest on that head alone, and
    /// not on one another.
    ///
    /// `false` when there is none of them. The others wait for a proof of their
    /// own; were all to wait for that of the newest, new questions could keep
    /// an old one waiting for ever.
    pub(super) fn answer_proven(&mut self, proven: u64, effects: &mut Vec<Effect>) -> bool {
        let Phase::Ready(decided) = &mut self.phase else { return false };
        if !self.asks.iter().any(|it| it.arrived <= proven) {
            return false;
        }
        let asks = core::mem::take(&mut self.asks);
        let verdicts = core::mem::take(&mut decided.verdicts);
        for (mut pending, verdict) in asks.into_iter().zip(verdicts) {
            if pending.arrived <= proven {
                pending.answer(told(verdict), effects);
            } else {
                self.asks.push(pending);
                decided.verdicts.push(verdict);
            }
        }
        true
    }
}

/// What a caller is told of a verdict that holds.
pub(super) fn told(verdict: Verdict) -> Answer {
    match verdict {
        Verdict::Accepted(receipt) => Answer::Accepted { receipt, is_from_receipt: false },
        Verdict::Known(receipt) => Answer::Accepted { receipt, is_from_receipt: true },
        Verdict::Rejected { at, conflicts } => Answer::Rejected { at, conflicts },
        Verdict::NotAccepted { through } => Answer::NotAccepted { through },
        Verdict::Unknown { earliest, coverage_from } => Answer::Unknown { earliest, coverage_from },
        Verdict::IdReused => Answer::Failed(SubmitError::IdReused),
        Verdict::IssuedAhead { state_version } => {
            Answer::Failed(SubmitError::IssuedAhead { state_version })
        }
        Verdict::OtherHistory { found } => Answer::Failed(SubmitError::OtherHistory { found }),
        Verdict::Fenced { writer_epoch } => Answer::Failed(SubmitError::Fenced { writer_epoch }),
    }
}
