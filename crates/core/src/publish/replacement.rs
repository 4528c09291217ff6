//! Putting a head together and sending it: batches, controls, and maintenance
//! riding along.

use super::answer::SubmitError;
use super::batch::{Batch, BatchId};
use super::event::{Control, Effect, Maintenance};
use super::{Item, Publisher, stored};
use crate::head::{Append, Head, Successor};
use crate::id::Nonce;
use alloc::sync::Arc;
use alloc::vec::Vec;

/// One replacement of the head.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Attempt {
    pub(super) began: u64,
    pub(super) nonce: Nonce,
    pub(super) successor: Arc<Head>,
    pub(super) size_bytes: usize,
    /// The batches that it publishes: the front of the pipeline.
    pub(super) batches: Vec<BatchId>,
    /// The control that it carries out, by its arrival.
    pub(super) control: Option<u64>,
    pub(super) maintenance: Vec<Maintenance>,
}

impl Publisher {
    /// Publishes what is ready at the front, maintenance riding on it. `true`
    /// when it was refused for its size, which changes the queue.
    pub(super) fn publish_ready(&mut self, effects: &mut Vec<Effect>) -> bool {
        let has_change = self.ready_run().any(|it| it.decided_change().is_some());
        let must_settle = self.ready_run().next().is_some()
            && self.ready_run().all(|it| it.decided_change().is_none())
            && self.ready_run().flat_map(|it| &it.asks).any(|it| it.is_in_doubt)
            && !planted!(NeverSettled);
        let is_calm = self.pipeline.is_empty() && self.queue.is_empty();
        let is_upkeep =
            is_calm && self.prepared.iter().any(|(_, it)| self.is_urgent(it) && self.fits(it));
        if !has_change && !must_settle && !is_upkeep {
            return false;
        }
        let batches: Vec<BatchId> = self.ready_run().map(|it| it.id).collect();
        self.publish(batches, None, effects);
        has_change && self.pipeline.is_empty()
    }

    /// A snapshot is worth a replacement of its own, and so is what gives space
    /// back. A fold is not, until the
    /// head is so large that nothing could ride on the next one.
    pub(super) fn is_urgent(&self, maintenance: &Maintenance) -> bool {
        match maintenance {
            Maintenance::Compact(_)
            | Maintenance::Release(_)
            | Maintenance::RaiseSweep { .. }
            | Maintenance::Swept { .. } => true,
            Maintenance::Fold(_) => self.settings.head.hard_bytes / 2 < self.settled_bytes(),
        }
    }

    pub(super) fn publish(
        &mut self,
        batches: Vec<BatchId>,
        control: Option<(u64, &Control)>,
        effects: &mut Vec<Effect>,
    ) {
        let Some(observed) = self.observed.clone() else { return };
        let name = self.draw_name();
        let nonce = name.nonce;
        let mut successor = Successor::of(&observed.head, name);
        successor.name_bodies(|hash| self.beside.durable(hash, &observed.head).cloned());
        let mut maintenance = Vec::new();
        // Not with a control: an archive that is made without a pin which is
        // asked for now would let its version go.
        // Folds come last: one that a snapshot overtakes is dropped, while one
        // that came before it would leave the snapshot with a tail that it does
        // not account for.
        let is_fold = |it: &&(u64, Maintenance)| matches!(it.1, Maintenance::Fold(_));
        let (folds, others): (Vec<_>, Vec<_>) = self.prepared.iter().partition(is_fold);
        let prepared = others.into_iter().chain(folds).filter(|_| control.is_none());
        // What was prepared against a head that is not known here yet waits for
        // that one; and what was staged below the sweep boundary never enters.
        for (_, prepared) in prepared.filter(|(_, it)| self.fits(it)) {
            if prepared.put_into(&mut successor) {
                maintenance.push(prepared.clone());
            }
        }
        let mut added = Vec::new();
        for change in self.pipeline.iter().take(batches.len()).filter_map(Batch::decided_change) {
            let version = successor.append(Append {
                hash: change.hash,
                body: self.body_of(change, &observed.head),
                operations: change.change.operations.len() as u64,
            });
            assert_eq!(version, change.version, "batches are published in the order decided");
            added.push(change.receipt_bytes);
        }
        let has_added = !added.is_empty();
        if has_added {
            let window = self.settings.window;
            let newest = observed.head.state_version;
            successor.raise_coverage(self.evidence.plan_coverage(window, newest, &added));
        }
        if let Some((_, control)) = control {
            control.put_into(&mut successor);
        }
        let successor = successor.finish();
        check_or_panic(&successor, &observed.head);
        let bytes = stored(&successor);
        if has_added && self.settings.head.hard_bytes < bytes.len() {
            return self.refuse_for_size(effects);
        }
        self.in_flight = Some(Attempt {
            began: self.now,
            nonce,
            successor: Arc::new(successor),
            size_bytes: bytes.len(),
            batches,
            control: control.map(|it| it.0),
            maintenance,
        });
        effects.push(Effect::Publish { if_match: observed.tag, bytes: bytes.into() });
        #[cfg(feature = "planted")]
        if planted!(ToldBeforeReplaced) {
            self.answer_early(effects);
        }
    }

    /// The planted fault: tells everyone before the store has answered.
    #[cfg(feature = "planted")]
    fn answer_early(&mut self, effects: &mut Vec<Effect>) {
        let count = self.in_flight.as_ref().map_or(0, |it| it.batches.len());
        for batch in self.pipeline.iter_mut().take(count) {
            let verdicts = batch.decided().map_or_else(Vec::new, |it| it.verdicts.clone());
            for (pending, verdict) in batch.asks.iter_mut().zip(verdicts) {
                pending.answer(super::batch::told(verdict), effects);
            }
        }
    }

    /// No operation fits until maintenance has made room. What is in doubt may
    /// have fitted before.
    fn refuse_for_size(&mut self, effects: &mut Vec<Effect>) {
        self.roll_back(0, effects);
        self.regroup.clear();
        self.queue.retain_mut(|item| match item {
            Item::Ask(pending) if pending.ask.operation().is_some() => {
                pending.fail(SubmitError::HeadTooLarge, effects);
                false
            }
            Item::Ask(_) | Item::Control(_) => true,
        });
        if self.prepared.is_empty() {
            return;
        }
        self.publish(Vec::new(), None, effects);
    }

    fn fits(&self, maintenance: &Maintenance) -> bool {
        let Some(observed) = &self.observed else { return false };
        let mut trial = Successor::of(&observed.head, observed.head.publisher.clone());
        maintenance.put_into(&mut trial) && trial.head().swept_reference(&observed.head).is_none()
    }

    /// Whether maintenance was prepared against another head than the one that
    /// is known here, which may be the older one.
    pub(super) fn must_read_for_maintenance(&self) -> bool {
        let is_open =
            |(arrived, it): &(u64, Maintenance)| !self.is_proven_since(*arrived) && !self.fits(it);
        self.prepared.iter().any(is_open)
    }

    /// Lets go of maintenance that was prepared against a head long gone.
    pub(super) fn drop_overtaken_maintenance(&mut self, effects: &mut Vec<Effect>) {
        if self.observed.is_none() {
            return;
        }
        for (arrived, maintenance) in core::mem::take(&mut self.prepared) {
            if self.fits(&maintenance) || !self.is_proven_since(arrived) {
                self.prepared.push((arrived, maintenance));
            } else {
                effects.push(Effect::Maintained { maintenance, is_applied: false });
            }
        }
    }
}

/// The last line of defence: a head that breaks an invariant would mislead
/// every reader for ever, so a process that made one stops.
fn check_or_panic(successor: &Head, previous: &Head) {
    if let Err(error) = successor.check().and_then(|()| successor.check_follows(previous)) {
        panic!("refusing to publish a head: {error}");
    }
}
