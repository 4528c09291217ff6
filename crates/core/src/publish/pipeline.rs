//! How batches form, move, and go back.

use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;

use bytes::Bytes;

use super::answer::{Answer, SubmitError};
use super::batch::{Batch, BatchId, Decided, DecidedChange, Pending, Phase, StagedChange, told};
use super::event::{Effect, FoundRecord, Pace, RecordSays, Ticket, Trouble};
use super::prediction::Prediction;
use super::{Item, Publisher, Settings};
use crate::change::Change;
use crate::decide::{Ask, Basis, Decision, Facts, Verdict, decide, needs};
use crate::format;
use crate::hash::ContentHash;
use crate::head::{ChangeBody, ObjectRef};
use crate::id::{HistoryId, OperationId};
use crate::keys::ObjectKey;
use crate::operation::{Issue, RequestRecord};
use crate::receipt::Receipt;

/// Durable candidates of rolled-back batches that are remembered, so that a
/// batch decided the same way again is not uploaded again.
const STAGED_MAX: usize = 16;
/// One part in so many of what is on its way, in operations, is enough for an
/// upload of its own.
const WORTH_PART: usize = 3;

/// How much is done at once.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Pumped {
    All,
    /// Nothing is decided yet that could be later, but for what is to go out
    /// with the next replacement.
    WhatIsReady,
}

impl Publisher {
    /// Those who are answered by the success of what is in flight.
    pub fn in_flight(&self) -> impl Iterator<Item = Ticket> {
        self.batches_in_flight().flat_map(|it| &it.asks).filter_map(|it| it.ticket)
    }

    /// Whether no batch is decided beside those in flight: what is asked now can
    /// go with whatever else waits.
    pub fn is_all_in_flight(&self) -> bool {
        self.batches_in_flight().count() == self.pipeline.len()
    }

    /// Whether a batch waits for what is in flight, and for nothing else.
    pub fn is_next_ready(&self) -> bool {
        let next = self.pipeline.get(self.batches_in_flight().count());
        !self.is_closing && next.is_some_and(|it| it.is_ready() && it.decided_change().is_some())
    }

    fn batches_in_flight(&self) -> impl Iterator<Item = &Batch> {
        self.pipeline.iter().take(self.in_flight.as_ref().map_or(0, |it| it.batches.len()))
    }

    /// Does everything that can be done now, or all but deciding more.
    pub(super) fn pump(&mut self, effects: &mut Vec<Effect>, what: Pumped) {
        loop {
            if self.in_flight.is_none() && self.reading.is_none() {
                let has_work = !self.queue.is_empty()
                    || !self.pipeline.is_empty()
                    || !self.prepared.is_empty();
                if has_work && (self.observed.is_none() || self.is_recovering) {
                    return self.read_head(effects);
                }
                if self.observed.is_none() {
                    return;
                }
                if self.answer_proven(effects) || self.carry_out_control(effects) {
                    continue;
                }
                if self.is_closing && self.form_batch(effects) {
                    continue;
                }
                let is_time = self.pace == Pace::Publish && !self.is_finding(self.closed);
                if is_time && self.reading.is_none() && self.publish_ready(effects) {
                    continue;
                }
                let is_free = self.reading.is_none() && self.in_flight.is_none();
                if is_free && self.must_read_for_maintenance() {
                    self.read_head(effects);
                }
            }
            if what == Pumped::WhatIsReady || !self.form_batch(effects) {
                return;
            }
        }
    }

    /// Answers what is proven of the batch at the front, if it accepts nothing;
    /// asks for the proof if that is all it waits for.
    fn answer_proven(&mut self, effects: &mut Vec<Effect>) -> bool {
        let proven = if planted!(NegativeUnproven) { Some(u64::MAX) } else { self.proven };
        let Some(front) = self.pipeline.front_mut() else { return false };
        if !front.is_ready() || front.decided_change().is_some() {
            return false;
        }
        // A head that is current now may be replaced by the unanswered
        // publication yet, and make what is denied here true. Only a
        // publication of ours settles that; see `publish_ready`.
        if front.asks.iter().any(|it| it.is_in_doubt) {
            return false;
        }
        if proven.is_some_and(|it| front.answer_proven(it, effects)) {
            if front.asks.is_empty() {
                self.pipeline.pop_front();
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
    pub(super) fn ready_run(&self) -> impl Iterator<Item = &Batch> {
        self.pipeline
            .iter()
            .take_while(|it| it.is_ready() || planted!(PublishedUnstaged) && it.decided().is_some())
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
        if self.should_gather() {
            return false;
        }
        let asks = self.take_asks();
        let id = BatchId(self.next_batch);
        self.next_batch += 1;
        self.closed = core::mem::take(&mut self.is_closing).then_some(id).or(self.closed);
        let needs = needs(asks.iter().filter_map(|it| it.ask.operation()));
        self.pipeline.push_back(Batch { id, asks, phase: Phase::Finding, failures: 0 });
        if needs.is_empty() {
            self.on_facts(id, &Facts::default(), effects);
        } else {
            effects.push(Effect::FindFacts { batch: id, needs, failures: 0 });
        }
        true
    }

    fn is_finding(&self, id: Option<BatchId>) -> bool {
        id.is_some_and(|id| self.pipeline.iter().any(|it| it.id == id && it.decided().is_none()))
    }

    /// Whether operations that could be decided now are better off waiting for
    /// company: nothing is gained by deciding them before the pipeline can do
    /// something with them, and every batch costs an upload and a version.
    fn should_gather(&self) -> bool {
        let in_flight = self.in_flight.as_ref().map_or(0, |it| it.batches.len());
        let is_upload = || self.is_upload_queued();
        // The last call before a replacement that was put off. Without it, what
        // came after a batch that waits would wait for one replacement more.
        if self.is_closing && self.in_flight.is_none() {
            return self.pace == Pace::Stage && !is_upload();
        }
        // A batch that is not in flight yet goes out next. Those behind it have
        // the time of that publication to be staged in; a full batch has
        // nothing left to wait for.
        if in_flight < self.pipeline.len() || self.pace == Pace::Gather {
            let Settings { batch_operations_max, batch_bytes_max, .. } = self.settings;
            let is_full = self.has_queued(batch_operations_max, batch_bytes_max);
            return !is_full && !self.is_worth_an_upload();
        }
        // Small operations need no upload: they are ready as soon as the head
        // is theirs, and so are those that travel in it. Large ones are staged
        // meanwhile.
        (self.in_flight.is_some() || self.pace != Pace::Publish) && !is_upload()
    }

    /// Whether what waits is enough, beside what is on its way, to be uploaded by
    /// itself already: then it goes out one replacement earlier than behind it.
    /// Where as many come as were answered, the bucket takes an upload and a
    /// replacement all the time, of a third of the callers each.
    fn is_worth_an_upload(&self) -> bool {
        let ahead: usize = self.pipeline.iter().map(|it| it.asks.len()).sum();
        self.pace == Pace::Publish
            && self.has_queued(ahead.div_ceil(WORTH_PART).max(1), usize::MAX)
            && self.is_upload_queued()
    }

    /// Whether what waits will have to be uploaded before it is published.
    fn is_upload_queued(&self) -> bool {
        let Settings { inline_bytes_max, beside_bytes_max, batch_operations_max, .. } =
            self.settings;
        if !self.has_queued(usize::MAX, inline_bytes_max + 1) {
            return false;
        }
        // While the store wants a rest there is time to upload.
        let does_travel = self.pace == Pace::Publish
            && self.beside.is_free()
            && inline_bytes_max < beside_bytes_max
            && !self.has_queued(batch_operations_max.saturating_add(1), beside_bytes_max + 1)
            && self.has_room_beside(beside_bytes_max)
            // A record has to be durable first, which takes as long.
            && !self.queue.iter().any(needs_record);
        !does_travel
    }

    /// Whether that many questions, or so many bytes of them, are at the front
    /// of the queue. Looks no further than it has to.
    fn has_queued(&self, count: usize, size_bytes: usize) -> bool {
        let (mut seen, mut seen_bytes) = (0, 0);
        for item in &self.queue {
            match item {
                Item::Ask(pending) => seen_bytes += pending.size_bytes,
                Item::Control(_) => return false,
            }
            seen += 1;
            if count <= seen || size_bytes <= seen_bytes {
                return true;
            }
        }
        false
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
            let Some(Item::Ask(next)) = self.queue.pop_front() else { break };
            let is_last = next.ask.operation().is_some_and(|it| it.ends_version);
            asks.push(next);
            if is_last {
                break;
            }
        }
        asks
    }

    pub(super) fn on_facts(&mut self, id: BatchId, facts: &Facts, effects: &mut Vec<Effect>) {
        let Some(index) = self.pipeline.iter().position(|it| it.id == id) else { return };
        self.propose_issue_versions(index);
        let Decision { mut verdicts, change, receipts } = {
            let basis = Prediction { publisher: self, before: index };
            let asks = &self.pipeline[index].asks;
            // Of what the batch is made of, so that the same batch decided
            // again is the same bytes, and a candidate that was staged serves.
            let decided_at_ms = asks.iter().map(|it| it.asked_at_ms).max().unwrap_or_default();
            decide(&basis, facts, asks.iter().map(|it| &it.ask), decided_at_ms)
        };
        self.answer_known(index, &mut verdicts, effects);
        if self.pipeline[index].asks.is_empty() {
            self.pipeline.remove(index);
            return;
        }
        let change = change.map(|it| self.make_change(index, it, receipts));
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
                && let Issue::ServiceKept { issued_from, is_durable } = &mut operation.issue
                && (!*is_durable || planted!(IssueVersionMoved))
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
            Verdict::Known(receipt) => {
                receipt.accepted_at <= published || planted!(RepeatToldPredicted)
            }
            Verdict::Rejected { .. } if planted!(RejectionPredicted) => true,
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

    fn make_change(
        &mut self,
        index: usize,
        change: Change,
        receipts: BTreeMap<OperationId, Receipt>,
    ) -> DecidedChange {
        let version = Prediction { publisher: self, before: index }.state_version().next();
        let bytes = Bytes::from(format::change::encode(&change));
        let hash = ContentHash::of(&bytes);
        let receipt_bytes = receipts.values().map(Receipt::size_bytes).sum();
        // A head that is past its soft limit takes references only, until a
        // fold has made room.
        let fits = self.coming_bytes(index, bytes.len()) <= self.settings.head.soft_bytes;
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
        let found = self.staged.iter().find(|it| {
            it.hash == hash && (sweep_from <= it.key.staged() || planted!(SweptNameUsed))
        });
        if let Some(object) = found {
            return (object.clone(), false);
        }
        let key = ObjectKey::change(staged, self.nonces.draw());
        (ObjectRef { key, hash, size_bytes }, true)
    }

    /// Uploads what the batch needs, or finds that it needs nothing.
    fn stage(&mut self, index: usize, effects: &mut Vec<Effect>) {
        let Some(observed) = &self.observed else { return };
        let history_id = observed.head.history_id;
        let batch = &self.pipeline[index];
        let Phase::Staging(decided) = &batch.phase else { return };
        let change = decided.change.as_ref().and_then(|it| match &it.body {
            ChangeBody::Staged(object) if it.is_new_object => {
                Some(StagedChange { object: object.clone(), bytes: it.bytes.clone() })
            }
            ChangeBody::Staged(_) | ChangeBody::Inline(_) => None,
        });
        let records: Vec<_> = batch
            .asks
            .iter()
            .zip(&decided.verdicts)
            .filter(|(_, verdict)| is_of_this_history(verdict))
            .filter_map(|(it, _)| record_to_create(history_id, it))
            .collect();
        let is_traveller = records.is_empty()
            && decided.change.as_ref().is_some_and(|it| self.can_travel(index, it));
        if is_traveller && let Some(staged) = &change {
            self.travel(batch.id, staged.object.clone(), staged.bytes.len());
        }
        let batch = &mut self.pipeline[index];
        if change.is_none() && records.is_empty() || is_traveller {
            let Phase::Staging(mut decided) = core::mem::replace(&mut batch.phase, Phase::Finding)
            else {
                return;
            };
            if is_traveller && let Some(change) = &mut decided.change {
                change.body = ChangeBody::Inline(change.bytes.clone());
                change.is_new_object = false;
            }
            batch.phase = Phase::Ready(decided);
        }
        if change.is_some() || !records.is_empty() {
            let (batch, failures) = (batch.id, batch.failures);
            effects.push(Effect::Stage { batch, change, records, failures });
        }
    }

    /// A candidate is durable: a batch that is decided the same way again is not
    /// uploaded again.
    pub(super) fn note_staged(&mut self, object: ObjectRef) {
        self.staged.push_back(object);
        while STAGED_MAX < self.staged.len() {
            self.staged.pop_front();
        }
    }

    pub(super) fn on_staged(
        &mut self,
        id: BatchId,
        records: &[FoundRecord],
        effects: &mut Vec<Effect>,
    ) {
        if self.on_travelled(id, true) {
            return;
        }
        let Some(index) = self.pipeline.iter().position(|it| it.id == id) else { return };
        let mut is_changed = false;
        let now = self.now;
        let batch = &mut self.pipeline[index];
        let (Phase::Staging(decided) | Phase::Ready(decided)) = &batch.phase else { return };
        for (pending, verdict) in batch.asks.iter_mut().zip(&decided.verdicts) {
            let Ask::Submit(operation) = &mut pending.ask else { continue };
            if !is_of_this_history(verdict) {
                continue;
            }
            let Issue::ServiceKept { issued_from, is_durable } = &mut operation.issue else {
                continue;
            };
            if *is_durable {
                continue;
            }
            let found = records.iter().find(|it| Some(it.ticket) == pending.ticket);
            match found.map(|it| &it.says) {
                None => {
                    *is_durable = true;
                    let (request_hash, issued_from) = (operation.request_hash, *issued_from);
                    self.records.note(&operation.id, RecordSays { request_hash, issued_from });
                }
                Some(Ok(says)) if says.request_hash == operation.request_hash => {
                    *is_durable = true;
                    self.records.note(&operation.id, *says);
                    if *issued_from != says.issued_from && !planted!(RecordIgnored) {
                        *issued_from = says.issued_from;
                        is_changed = true;
                        // Another writer may have made the record after the
                        // newest proof, from a head that is newer still: as
                        // far as proofs go, the question is asked now.
                        pending.arrived = now;
                    }
                }
                // A record is for ever, and nothing of this submission was
                // published before it: told at once.
                Some(Ok(_)) => {
                    pending.answer(Answer::Failed(SubmitError::IdReused), effects);
                    is_changed = true;
                }
                Some(Err(trouble)) => {
                    pending.answer(Answer::Failed(trouble.clone().into()), effects);
                    is_changed = true;
                }
            }
        }
        let phase = core::mem::replace(&mut batch.phase, Phase::Finding);
        let (Phase::Staging(mut decided) | Phase::Ready(mut decided)) = phase else { return };
        let mut staged = None;
        if let Some(change) = &mut decided.change
            && let ChangeBody::Staged(object) = &change.body
        {
            change.is_new_object = false;
            staged = Some(object.clone());
        }
        batch.phase = Phase::Ready(decided);
        batch.failures = 0;
        if let Some(object) = staged {
            self.note_staged(object);
        }
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
        // Its replacement goes on without it, and tells by itself what is wrong
        // with the store.
        if self.on_travelled(id, false) {
            return;
        }
        let Some(index) = self.pipeline.iter().position(|it| it.id == id) else { return };
        if let Some(error) = trouble.final_error() {
            // Those before it are decided, and perhaps in flight: they go on.
            self.roll_back(index, effects);
            self.fail_queue(&error, None, effects);
            return;
        }
        if let Trouble::Overtaken { .. } = trouble {
            // Those before it may be in flight, and go on; it is decided again
            // once the head is read.
            self.last_trouble = Some(trouble);
            self.roll_back(index, effects);
            self.is_recovering = true;
            return;
        }
        self.last_trouble = Some(trouble);
        // Nothing else waits for a store in trouble.
        self.closed = self.closed.filter(|it| *it != id);
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
                .is_some_and(|it| self.staged.iter().any(|staged| staged.hash == it.hash));
            let asks: Vec<_> = batch.asks.into_iter().filter(|it| it.ticket.is_some()).collect();
            if is_staged && !asks.is_empty() {
                self.regroup.push_front(asks.len());
            } else {
                self.regroup.clear();
            }
            asks.into_iter().rev().for_each(|it| self.queue.push_front(Item::Ask(it)));
        }
    }
}

/// Whether a question waits for its request record to be stored.
fn needs_record(item: &Item) -> bool {
    let Item::Ask(pending) = item else { return false };
    let operation = pending.ask.operation();
    operation.is_some_and(|it| matches!(it.issue, Issue::ServiceKept { is_durable: false, .. }))
}

/// Whether a record belongs here. Every other operation gets one, a rejected
/// one too: the record may show that it is older, and was accepted once.
fn is_of_this_history(verdict: &Verdict) -> bool {
    !matches!(verdict, Verdict::OtherHistory { .. })
}

fn record_to_create(history_id: HistoryId, pending: &Pending) -> Option<(Ticket, RequestRecord)> {
    let operation = pending.ask.operation()?;
    let Issue::ServiceKept { issued_from, is_durable: false } = operation.issue else {
        return None;
    };
    let ticket = pending.ticket.filter(|_| !planted!(RecordUnwritten))?;
    let record = RequestRecord {
        history_id,
        operation_id: operation.id.clone(),
        request_hash: operation.request_hash,
        issued_from,
        request: Arc::clone(&operation.request),
    };
    Some((ticket, record))
}
