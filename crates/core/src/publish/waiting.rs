//! Questions whose time is up, and those that will get no outcome.

use alloc::vec::Vec;

use super::answer::{Answer, SubmitError};
use super::event::{Control, Effect, Ticket};
use super::{Item, Publisher};
use crate::decide::{Ask, Verdict};
use crate::id::HistoryId;

impl Publisher {
    pub(super) fn on_expired(&mut self, ticket: Ticket, effects: &mut Vec<Effect>) {
        let in_flight = self.in_flight.as_ref().map_or(0, |it| it.batches.len());
        let place = self
            .pipeline
            .iter()
            .position(|batch| batch.asks.iter().any(|it| it.ticket == Some(ticket)));
        if let Some(index) = place {
            return self.expire_in_pipeline(index, ticket, index < in_flight, effects);
        }
        let error = self.expiry();
        let has_control_in_flight = self.in_flight.as_ref().is_some_and(|it| it.control.is_some());
        let place = self.queue.iter().position(|item| match item {
            Item::Ask(pending) => pending.ticket == Some(ticket),
            Item::Control(control) => control.ticket == Some(ticket),
        });
        let Some(index) = place else { return };
        match &mut self.queue[index] {
            Item::Ask(pending) => {
                pending.fail(error, effects);
                self.queue.remove(index);
                self.regroup.clear();
            }
            Item::Control(control) => {
                // It stays until its publication is reported.
                control.ticket = None;
                let is_flying = index == 0 && has_control_in_flight;
                let in_doubt = control.is_in_doubt() || is_flying;
                let error = if in_doubt { SubmitError::InDoubt } else { error };
                effects.push(Effect::Answer { ticket, answer: Answer::Failed(error) });
                if !is_flying {
                    self.queue.remove(index);
                }
            }
        }
    }

    fn expire_in_pipeline(
        &mut self,
        index: usize,
        ticket: Ticket,
        is_in_flight: bool,
        effects: &mut Vec<Effect>,
    ) {
        let error = self.expiry();
        let batch = &mut self.pipeline[index];
        let Some(at) = batch.asks.iter().position(|it| it.ticket == Some(ticket)) else { return };
        // A repeated submission shares the fate of the first, which is decided
        // and perhaps in flight.
        let is_repeat = batch
            .decided()
            .and_then(|it| it.verdicts.get(at))
            .is_some_and(|it| matches!(it, Verdict::Known(_)));
        let pending = &mut batch.asks[at];
        if is_in_flight || is_repeat || pending.is_in_doubt {
            return pending.answer(Answer::Failed(SubmitError::InDoubt), effects);
        }
        // Not published, and it will not be: decided again without it.
        pending.fail(error, effects);
        self.roll_back(index, effects);
        self.regroup.clear();
    }

    /// A head was found under another tag, and its receipts are at hand: tells
    /// what became of operations in doubt, all of which are in the queue.
    ///
    /// Those that are neither accepted nor unknown were not applied and go on
    /// without doubt. The others are told here and not decided again: until
    /// then their time could run out, and they would be reported as not
    /// applied.
    pub(super) fn settle_by_evidence(&mut self, effects: &mut Vec<Effect>) {
        let evidence = &self.evidence;
        let coverage_from = evidence.coverage_from();
        let before = self.queue.len();
        self.queue.retain_mut(|item| {
            let Item::Ask(pending) = item else { return true };
            let Ask::Submit(operation) = &pending.ask else { return true };
            if !core::mem::take(&mut pending.is_in_doubt) {
                return true;
            }
            let earliest = operation.issue.earliest();
            let answer = match evidence.find(&operation.id) {
                Some(receipt) if receipt.request_hash == operation.request_hash => {
                    Answer::Accepted { receipt: receipt.clone(), is_from_receipt: true }
                }
                None if earliest < coverage_from && !planted!(DoubtEndedByWindow) => {
                    Answer::Unknown { earliest, coverage_from }
                }
                Some(_) | None => return true,
            };
            pending.answer(answer, effects);
            false
        });
        if self.queue.len() < before {
            self.regroup.clear();
        }
    }

    /// Why time ran out.
    pub(super) fn expiry(&self) -> SubmitError {
        match (&self.last_trouble, self.has_lost) {
            (Some(_), _) => SubmitError::StoreUnavailable,
            (None, true) => SubmitError::Contended,
            (None, false) => SubmitError::Expired,
        }
    }

    /// Nothing that waits will get an outcome, except what means the history
    /// `spared`. Never while a publication is in flight.
    pub(super) fn fail_all(
        &mut self,
        error: &SubmitError,
        spared: Option<HistoryId>,
        effects: &mut Vec<Effect>,
    ) {
        self.roll_back(0, effects);
        self.fail_queue(error, spared, effects);
    }

    pub(super) fn fail_queue(
        &mut self,
        error: &SubmitError,
        spared: Option<HistoryId>,
        effects: &mut Vec<Effect>,
    ) {
        self.regroup.clear();
        let mut queue = core::mem::take(&mut self.queue);
        queue.retain_mut(|item| match item {
            Item::Ask(pending) => {
                let meant = match &pending.ask {
                    Ask::Submit(operation) => operation.history_id,
                    Ask::LookUp(look_up) => look_up.history_id,
                };
                if spared.is_some() && meant == spared {
                    return true;
                }
                pending.fail(error.clone(), effects);
                false
            }
            Item::Control(control) => {
                let is_meant = |it| control.control == Control::Retire { history_id: it };
                if spared.is_some_and(is_meant) {
                    return true;
                }
                if let Some(ticket) = control.ticket.take() {
                    let is_in_doubt = control.is_in_doubt();
                    let error = if is_in_doubt { SubmitError::InDoubt } else { error.clone() };
                    effects.push(Effect::Answer { ticket, answer: Answer::Failed(error) });
                }
                false
            }
        });
        self.queue = queue;
    }
}
