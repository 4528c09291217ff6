//! How batches form, move, and go back.

use alloc::sync::Arc;
use alloc::vec::Vec;

use bytes::Bytes;

use super::answer::{Answer, SubmitError};
use super::batch::{Batch, BatchId, Decided, DecidedChange, Pending, Phase, StagedChange, told};
use super::event::{Control, Effect, FoundRecord, Maintenance, Ticket, Trouble};
use super::{Attempt, Item, Publisher, stored};
use crate::change::Change;
use crate::decide::{Ask, Basis, Decision, Facts, Verdict, decide, needs};
use crate::format;
use crate::hash::ContentHash;
use crate::head::{Append, ChangeBody, Head, ObjectRef, Successor};
use crate::id::{HistoryId, OperationId};
use crate::keys::ObjectKey;
use crate::operation::{Issue, RequestRecord};
use crate::receipt::Receipt;
use crate::version::StateVersion;

/// Durable candidates of rolled-back batches that are remembered, so that a
/// batch decided the same way again is not uploaded again.
const STAGED_MAX: usize = 16;

impl Publisher {
    /// Does everything that can be done now.
    pub(super) fn pump(&mut self, effects: &mut Vec<Effect>) {
        loop {
            if self.in_flight.is_none() && self.reading.is_none() {
                let is_asked = !self.queue.is_empty() || !self.pipeline.is_empty();
                if is_asked && (self.observed.is_none() || self.is_recovering) {
                    return self.read_head(effects);
                }
                if self.observed.is_none() {
                    return;
                }
                if self.answer_proven(effects) || self.carry_out_control(effects) {
                    continue;
                }
                if self.reading.is_none() {
                    self.publish_ready(effects);
                }
            }
            if !self.form_batch(effects) {
                return;
            }
        }
    }

    /// Answers the batch at the front if it accepts nothing and its basis is
    /// proven; asks for the proof if that is all it waits for.
    fn answer_proven(&mut self, effects: &mut Vec<Effect>) -> bool {
        let Some(front) = self.pipeline.front() else { return false };
        if !front.is_ready() || front.decided_change().is_some() {
            return false;
        }
        // A head that is current now may be replaced by the unanswered
        // publication yet, and make what is denied here true. Only a
        // publication of ours settles that; see `publish_ready`.
        if front.asks.iter().any(|it| it.is_in_doubt) {
            return false;
        }
        let newest = front.asks.iter().map(|it| it.arrived).max().unwrap_or(0);
        if self.is_proven_since(newest) {
            if let Some(batch) = self.pipeline.pop_front() {
                batch.answer(effects);
            }
            return true;
        }
        // A publication proves as much as a check; so none is made where one is
        // about to go out.
        if self.ready_run().any(|it| it.decided_change().is_some()) {
            return false;
        }
        self.read_head(effects);
        false
    }

    /// The batches at the front that could be published now.
    fn ready_run(&self) -> impl Iterator<Item = &Batch> {
        self.pipeline.iter().take_while(|it| it.is_ready())
    }

    /// Publishes what is ready at the front, maintenance riding on it.
    fn publish_ready(&mut self, effects: &mut Vec<Effect>) {
        let has_change = self.ready_run().any(|it| it.decided_change().is_some());
        let must_settle = self.ready_run().next().is_some()
            && self.ready_run().all(|it| it.decided_change().is_none())
            && self.ready_run().flat_map(|it| &it.asks).any(|it| it.is_in_doubt);
        let is_calm = self.pipeline.is_empty() && self.queue.is_empty();
        let is_upkeep = is_calm && self.prepared.iter().any(|it| self.is_urgent(it));
        if !has_change && !must_settle && !is_upkeep {
            return;
        }
        let batches: Vec<BatchId> = self.ready_run().map(|it| it.id).collect();
        self.publish(batches, None, effects);
    }

    /// A snapshot is worth a replacement of its own. A fold is not, until the
    /// head is so large that nothing could ride on the next one.
    fn is_urgent(&self, maintenance: &Maintenance) -> bool {
        match maintenance {
            Maintenance::Compact(_) => true,
            Maintenance::Fold(_) => self.settings.head.hard_bytes / 2 < self.head_bytes,
        }
    }

    fn publish(
        &mut self,
        batches: Vec<BatchId>,
        control: Option<&Control>,
        effects: &mut Vec<Effect>,
    ) {
        let Some(observed) = self.observed.clone() else { return };
        let name = self.draw_name();
        let nonce = name.nonce;
        let mut successor = Successor::of(&observed.head, name);
        let mut maintenance = Vec::new();
        for prepared in &self.prepared {
            let is_applied = match prepared {
                Maintenance::Fold(fold) => successor.fold(fold),
                Maintenance::Compact(compaction) => successor.compact(compaction),
            };
            if is_applied {
                maintenance.push(prepared.clone());
            }
        }
        let mut added = Vec::new();
        for change in self.pipeline.iter().take(batches.len()).filter_map(Batch::decided_change) {
            let version = successor.append(Append {
                hash: change.hash,
                body: change.body.clone(),
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
        match control {
            None => (),
            Some(Control::RaiseWriterEpoch { .. }) => successor.raise_writer_epoch(),
            Some(Control::Retire { .. }) => successor.retire(),
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
            has_control: control.is_some(),
            maintenance,
        });
        effects.push(Effect::Publish { if_match: observed.tag, bytes: bytes.into() });
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

    /// Lets go of maintenance that was prepared against a head long gone.
    pub(super) fn drop_overtaken_maintenance(&mut self, effects: &mut Vec<Effect>) {
        let Some(observed) = &self.observed else { return };
        self.prepared.retain(|prepared| {
            let name = observed.head.publisher.clone();
            let mut trial = Successor::of(&observed.head, name);
            let (fits, staged) = match prepared {
                Maintenance::Fold(it) => (trial.fold(it), it.segment.object.key.staged()),
                Maintenance::Compact(it) => (trial.compact(it), it.snapshot.object.key.staged()),
            };
            let keeps = fits && observed.head.sweep_from <= staged;
            if !keeps {
                let maintenance = prepared.clone();
                effects.push(Effect::Maintained { maintenance, is_applied: false });
            }
            keeps
        });
    }

    /// Starts the control at the front of the queue, once everything before it
    /// is done.
    fn carry_out_control(&mut self, effects: &mut Vec<Effect>) -> bool {
        let Some(observed) = &self.observed else { return false };
        let Some(Item::Control(pending)) = self.queue.front() else { return false };
        if !self.pipeline.is_empty() {
            return false;
        }
        let head = &observed.head;
        let refusal = match &pending.control {
            Control::RaiseWriterEpoch { .. } if !head.is_exclusive => {
                Some(SubmitError::NotExclusive)
            }
            Control::RaiseWriterEpoch { expected: Some(expected) }
                if *expected != head.writer_epoch =>
            {
                Some(SubmitError::Fenced { writer_epoch: head.writer_epoch })
            }
            Control::Retire { history_id } if *history_id != head.history_id => {
                Some(SubmitError::OtherHistory { found: head.history_id })
            }
            Control::RaiseWriterEpoch { .. } | Control::Retire { .. } => None,
        };
        let (arrived, is_in_doubt) = (pending.arrived, pending.is_in_doubt);
        let Some(error) = refusal else {
            if pending.ticket.is_none() {
                self.queue.pop_front();
                return true;
            }
            let control = pending.control.clone();
            self.publish(Vec::new(), Some(&control), effects);
            return false;
        };
        if !is_in_doubt && !self.is_proven_since(arrived) {
            self.read_head(effects);
            return false;
        }
        if let Some(Item::Control(mut pending)) = self.queue.pop_front()
            && let Some(ticket) = pending.ticket.take()
        {
            let error = if is_in_doubt { SubmitError::InDoubt } else { error };
            effects.push(Effect::Answer { ticket, answer: Answer::Failed(error) });
        }
        true
    }

    /// The control at the front of the queue was carried out by `head`.
    pub(super) fn answer_control(&mut self, head: &Head, effects: &mut Vec<Effect>) {
        let Some(Item::Control(pending)) = self.queue.pop_front() else {
            panic!("a control stays at the front of the queue until it is answered")
        };
        let answer = match pending.control {
            Control::RaiseWriterEpoch { .. } => {
                Answer::WriterEpochRaised { writer_epoch: head.writer_epoch }
            }
            Control::Retire { .. } => Answer::Retired,
        };
        if let Some(ticket) = pending.ticket {
            effects.push(Effect::Answer { ticket, answer });
        }
        if head.is_retired {
            self.fail_all(&SubmitError::HistoryMissing, None, effects);
            self.forget();
        }
    }

    /// Takes a batch from the queue, if it is time to.
    fn form_batch(&mut self, effects: &mut Vec<Effect>) -> bool {
        let is_finding = self.pipeline.back().is_some_and(|it| it.decided().is_none());
        let is_full = self.settings.batches_ahead_max <= self.pipeline.len();
        if self.observed.is_none() || self.is_recovering || is_finding || is_full {
            return false;
        }
        if !matches!(self.queue.front(), Some(Item::Ask(_))) {
            return false;
        }
        // While a publication is in flight, small operations wait and form one
        // batch: they need no upload, so nothing is gained by deciding them
        // now. Large ones are staged meanwhile.
        if self.in_flight.is_some() && self.queued_bytes() <= self.settings.inline_bytes_max {
            return false;
        }
        let asks = self.take_asks();
        let id = BatchId(self.next_batch);
        self.next_batch += 1;
        let needs = needs(asks.iter().filter_map(|it| it.ask.operation()));
        self.pipeline.push_back(Batch { id, asks, phase: Phase::Finding, failures: 0 });
        if needs.is_empty() {
            self.on_facts(id, &Facts::default(), effects);
        } else {
            effects.push(Effect::FindFacts { batch: id, needs, failures: 0 });
        }
        true
    }

    /// Bytes of the questions at the front of the queue, as far as it matters.
    fn queued_bytes(&self) -> usize {
        let mut total = 0;
        for item in self.queue.iter().take(self.settings.batch_operations_max) {
            match item {
                Item::Ask(pending) => total += pending.size_bytes,
                Item::Control(_) => break,
            }
            if self.settings.inline_bytes_max < total {
                break;
            }
        }
        total
    }

    fn take_asks(&mut self) -> Vec<Pending> {
        let count_max = self.regroup.pop_front().unwrap_or(self.settings.batch_operations_max);
        let mut asks: Vec<Pending> = Vec::new();
        let mut size_bytes = 0;
        while asks.len() < count_max
            && let Some(Item::Ask(next)) = self.queue.front()
        {
            size_bytes += next.size_bytes;
            if !asks.is_empty() && self.settings.batch_bytes_max < size_bytes {
                break;
            }
            if let Some(Item::Ask(next)) = self.queue.pop_front() {
                asks.push(next);
            }
        }
        asks
    }

    pub(super) fn on_facts(&mut self, id: BatchId, facts: &Facts, effects: &mut Vec<Effect>) {
        let Some(index) = self.pipeline.iter().position(|it| it.id == id) else { return };
        self.propose_issue_versions(index);
        let Decision { mut verdicts, change } = {
            let basis = Prediction { publisher: self, before: index };
            let asks = self.pipeline[index].asks.iter().map(|it| &it.ask);
            decide(&basis, facts, asks)
        };
        self.answer_known(index, &mut verdicts, effects);
        if self.pipeline[index].asks.is_empty() {
            self.pipeline.remove(index);
            return;
        }
        let change = change.map(|it| self.make_change(index, it));
        if let Some(change) = &change {
            effects.push(Effect::Decided {
                batch: id,
                version: change.version,
                change: Arc::clone(&change.change),
                hash: change.hash,
                bytes: change.bytes.clone(),
            });
        }
        self.pipeline[index].phase = Phase::Staging(Decided { verdicts, change });
        self.stage(index, effects);
    }

    /// A service-kept operation without a record is issued now. Until its
    /// record is durable the version is only proposed.
    fn propose_issue_versions(&mut self, index: usize) {
        let Some(observed) = &self.observed else { return };
        let seen = observed.head.state_version;
        for pending in &mut self.pipeline[index].asks {
            if let Ask::Submit(operation) = &mut pending.ask
                && let Issue::ServiceKept { issued_from, is_durable: false } = &mut operation.issue
            {
                *issued_from = seen;
            }
        }
    }

    /// A receipt in a published head is proof for ever: told at once.
    fn answer_known(
        &mut self,
        index: usize,
        verdicts: &mut Vec<Verdict>,
        effects: &mut Vec<Effect>,
    ) {
        let Some(observed) = &self.observed else { return };
        let published = observed.head.state_version;
        let is_final = |verdict: &Verdict| match verdict {
            Verdict::Known(receipt) => receipt.accepted_at <= published,
            Verdict::Accepted(_)
            | Verdict::IdReused
            | Verdict::NotAccepted { .. }
            | Verdict::Unknown { .. }
            | Verdict::IssuedAhead { .. }
            | Verdict::OtherHistory { .. }
            | Verdict::Fenced { .. }
            | Verdict::Rejected { .. } => false,
        };
        if !verdicts.iter().any(is_final) {
            return;
        }
        let asks = core::mem::take(&mut self.pipeline[index].asks);
        let decided = core::mem::take(verdicts);
        for (mut pending, verdict) in asks.into_iter().zip(decided) {
            if is_final(&verdict) {
                pending.answer(told(verdict), effects);
            } else {
                self.pipeline[index].asks.push(pending);
                verdicts.push(verdict);
            }
        }
    }

    fn make_change(&mut self, index: usize, change: Change) -> DecidedChange {
        let version = Prediction { publisher: self, before: index }.state_version().next();
        let bytes = Bytes::from(format::change::encode(&change));
        let hash = ContentHash::of(&bytes);
        let receipts: alloc::collections::BTreeMap<OperationId, Receipt> =
            change.receipts(version).map(|it| (it.operation_id.clone(), it)).collect();
        let receipt_bytes = receipts.values().map(Receipt::size_bytes).sum();
        // Base64 takes four bytes for three. A head that is past its soft limit
        // takes references only, until a fold has made room.
        let inline_bytes = bytes.len().div_ceil(3) * 4;
        let fits = self.head_bytes + inline_bytes <= self.settings.head.soft_bytes;
        let (body, is_new_object) = if bytes.len() <= self.settings.inline_bytes_max && fits {
            (ChangeBody::Inline(bytes.clone()), false)
        } else {
            let (object, is_new) = self.name_candidate(hash, bytes.len() as u64);
            (ChangeBody::Staged(object), is_new)
        };
        let change = Arc::new(change);
        DecidedChange { version, change, hash, bytes, body, is_new_object, receipts, receipt_bytes }
    }

    /// A candidate that is durable already under a name that may still be
    /// used (PROTOCOL 7), or a new name.
    fn name_candidate(&mut self, hash: ContentHash, size_bytes: u64) -> (ObjectRef, bool) {
        let Some(observed) = &self.observed else { panic!("a batch is decided against a head") };
        let sweep_from = observed.head.sweep_from;
        let staged = observed.head.revision;
        let found =
            self.staged.iter().find(|(it, at)| *it == hash && sweep_from <= at.key.staged());
        if let Some((_, object)) = found {
            return (object.clone(), false);
        }
        let key = ObjectKey::change(staged, self.nonces.draw());
        (ObjectRef { key, hash, size_bytes }, true)
    }

    /// Uploads what the batch needs, or finds that it needs nothing.
    fn stage(&mut self, index: usize, effects: &mut Vec<Effect>) {
        let Some(observed) = &self.observed else { return };
        let history_id = observed.head.history_id;
        let batch = &mut self.pipeline[index];
        let Phase::Staging(decided) = &batch.phase else { return };
        let change = decided.change.as_ref().and_then(|it| match &it.body {
            ChangeBody::Staged(object) if it.is_new_object => {
                Some(StagedChange { object: object.clone(), bytes: it.bytes.clone() })
            }
            ChangeBody::Staged(_) | ChangeBody::Inline(_) => None,
        });
        let records: Vec<_> =
            batch.asks.iter().filter_map(|it| record_to_create(history_id, it)).collect();
        if change.is_none() && records.is_empty() {
            let Phase::Staging(decided) = core::mem::replace(&mut batch.phase, Phase::Finding)
            else {
                return;
            };
            batch.phase = Phase::Ready(decided);
            return;
        }
        let (batch, failures) = (batch.id, batch.failures);
        effects.push(Effect::Stage { batch, change, records, failures });
    }

    pub(super) fn on_staged(
        &mut self,
        id: BatchId,
        records: &[FoundRecord],
        effects: &mut Vec<Effect>,
    ) {
        let Some(index) = self.pipeline.iter().position(|it| it.id == id) else { return };
        let mut is_changed = false;
        let batch = &mut self.pipeline[index];
        for pending in &mut batch.asks {
            let Ask::Submit(operation) = &mut pending.ask else { continue };
            let Issue::ServiceKept { issued_from, is_durable } = &mut operation.issue else {
                continue;
            };
            if *is_durable {
                continue;
            }
            let found = records.iter().find(|it| Some(it.ticket) == pending.ticket);
            match found {
                None => *is_durable = true,
                Some(record) if record.request_hash == operation.request_hash => {
                    *is_durable = true;
                    is_changed |= *issued_from != record.issued_from;
                    *issued_from = record.issued_from;
                }
                // A record is for ever, and nothing of this submission was
                // published before it: told at once.
                Some(_) => {
                    pending.answer(Answer::Failed(SubmitError::IdReused), effects);
                    is_changed = true;
                }
            }
        }
        let phase = core::mem::replace(&mut batch.phase, Phase::Finding);
        let (Phase::Staging(mut decided) | Phase::Ready(mut decided)) = phase else { return };
        if let Some(change) = &mut decided.change
            && let ChangeBody::Staged(object) = &change.body
        {
            change.is_new_object = false;
            self.staged.push_back((change.hash, object.clone()));
            while STAGED_MAX < self.staged.len() {
                self.staged.pop_front();
            }
        }
        batch.phase = Phase::Ready(decided);
        batch.failures = 0;
        // The record says that the operation is older than was thought, or is
        // another one: what was decided for it does not hold.
        if is_changed {
            self.roll_back(index, effects);
        }
    }

    pub(super) fn on_batch_failed(
        &mut self,
        id: BatchId,
        trouble: Trouble,
        effects: &mut Vec<Effect>,
    ) {
        let Some(index) = self.pipeline.iter().position(|it| it.id == id) else { return };
        if let Some(error) = trouble.final_error() {
            // Those before it are decided, and perhaps in flight: they go on.
            self.roll_back(index, effects);
            self.fail_queue(&error, None, effects);
            return;
        }
        self.last_trouble = Some(trouble);
        let batch = &mut self.pipeline[index];
        batch.failures = batch.failures.saturating_add(1);
        let failures = batch.failures;
        match &batch.phase {
            Phase::Finding => {
                let needs = needs(batch.asks.iter().filter_map(|it| it.ask.operation()));
                effects.push(Effect::FindFacts { batch: id, needs, failures });
            }
            Phase::Staging(_) => self.stage(index, effects),
            Phase::Ready(_) => (),
        }
    }

    /// Everything from the batch at `index` on goes back to the queue, in
    /// order, to be decided again.
    pub(super) fn roll_back(&mut self, index: usize, effects: &mut Vec<Effect>) {
        let in_flight = self.in_flight.as_ref().map_or(0, |it| it.batches.len());
        assert!(in_flight <= index, "what is in flight is not decided again before its answer");
        let Some(first) = self.pipeline.get(index) else { return };
        effects.push(Effect::RolledBack { from: first.id });
        let batches: Vec<Batch> = self.pipeline.drain(index..).collect();
        for batch in batches.into_iter().rev() {
            // Only what was uploaded is worth deciding in the same company.
            let is_staged = batch
                .decided_change()
                .is_some_and(|it| matches!(it.body, ChangeBody::Staged(_)) && !it.is_new_object);
            let asks: Vec<_> = batch.asks.into_iter().filter(|it| it.ticket.is_some()).collect();
            if is_staged && !asks.is_empty() {
                self.regroup.push_front(asks.len());
            } else {
                self.regroup.clear();
            }
            asks.into_iter().rev().for_each(|it| self.queue.push_front(Item::Ask(it)));
        }
    }

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
        let has_control_in_flight = self.in_flight.as_ref().is_some_and(|it| it.has_control);
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
                let in_doubt = control.is_in_doubt || is_flying;
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

    /// Why time ran out.
    fn expiry(&self) -> SubmitError {
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

    fn fail_queue(
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
                if let Some(ticket) = control.ticket.take() {
                    let is_in_doubt = control.is_in_doubt;
                    let error = if is_in_doubt { SubmitError::InDoubt } else { error.clone() };
                    effects.push(Effect::Answer { ticket, answer: Answer::Failed(error) });
                }
                false
            }
        });
        self.queue = queue;
    }
}

fn record_to_create(history_id: HistoryId, pending: &Pending) -> Option<(Ticket, RequestRecord)> {
    let operation = pending.ask.operation()?;
    let Issue::ServiceKept { issued_from, is_durable: false } = operation.issue else {
        return None;
    };
    let ticket = pending.ticket?;
    let record = RequestRecord {
        history_id,
        operation_id: operation.id.clone(),
        request_hash: operation.request_hash,
        issued_from,
        request: Arc::clone(&operation.request),
    };
    Some((ticket, record))
}

/// The last line of defence: a head that breaks an invariant would mislead
/// every reader for ever, so a process that made one stops.
fn check_or_panic(successor: &Head, previous: &Head) {
    if let Err(error) = successor.check().and_then(|()| successor.check_follows(previous)) {
        panic!("refusing to publish a head: {error}");
    }
}

/// The head as it will be after the batches before one.
struct Prediction<'a> {
    publisher: &'a Publisher,
    before: usize,
}

impl Prediction<'_> {
    fn head(&self) -> &Head {
        let Some(observed) = &self.publisher.observed else {
            panic!("a batch is decided against a head")
        };
        &observed.head
    }

    fn changes(&self) -> impl Iterator<Item = &DecidedChange> {
        self.publisher.pipeline.iter().take(self.before).filter_map(Batch::decided_change)
    }
}

impl Basis for Prediction<'_> {
    fn history_id(&self) -> HistoryId {
        self.head().history_id
    }

    fn state_version(&self) -> StateVersion {
        self.changes().last().map_or(self.head().state_version, |it| it.version)
    }

    fn coverage_from(&self) -> StateVersion {
        let added: Vec<u64> = self.changes().map(|it| it.receipt_bytes).collect();
        let evidence = &self.publisher.evidence;
        if added.is_empty() {
            return evidence.coverage_from();
        }
        let newest = self.head().state_version;
        evidence.plan_coverage(self.publisher.settings.window, newest, &added)
    }

    fn required_epoch(&self) -> Option<u64> {
        self.head().is_exclusive.then_some(self.head().writer_epoch)
    }

    fn receipt(&self, id: &OperationId) -> Option<&Receipt> {
        let evidence = self.publisher.evidence.find(id);
        evidence.or_else(|| self.changes().find_map(|it| it.receipts.get(id)))
    }
}
