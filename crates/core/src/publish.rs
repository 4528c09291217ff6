//! The publisher of one history in one process, as a state machine
//! (PROTOCOL 4).
//!
//! ```text
//!           asks                                                     answers
//!  submit ------> queue --> [ batch | batch | batch ] --> in flight ---------->
//!                            decided against the head      head replacement
//!                            that the ones before it       with If-Match
//!                            will have made; staged
//!                                     ^                        |
//!                                     +--- roll back, read ----+
//!                                          mismatch, no answer
//! ```
//!
//! Batches form the pipeline: each is decided against the head as it will be
//! once those before it are published, and staged while they are in flight. One
//! replacement publishes every batch at the front that is staged. When the
//! replacement is lost, the pipeline goes back to the queue in order, and is
//! decided again against the head that is found.
//!
//! # Architecture invariants
//!
//! - Nothing is answered from a predicted head.
//! - A negative answer (rejected, fenced, unknown, ...) is told only once the
//!   head it rests on was shown current after the question arrived: by the
//!   success of a publication that extends it, or by a freshness check.
//! - What may have been applied is never reported as not applied: an operation
//!   that was part of a publication which the store did not report as done is
//!   in doubt until the head is seen with another tag. A mismatch is no proof:
//!   what is between may have sent the request twice.

mod answer;
mod batch;
mod beside;
mod control;
mod event;
mod nonces;
mod pipeline;
mod prediction;
#[cfg(test)]
mod publish_test;
mod records;
mod replacement;
#[cfg(feature = "planted")]
mod shape;
mod waiting;

use alloc::collections::VecDeque;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

pub use self::answer::{Answer, Determinacy, SubmitError};
use self::batch::{Batch, DecidedChange, Pending};
pub use self::batch::{BatchId, StagedChange};
use self::beside::Beside;
pub use self::event::{
    Control, Effect, Event, EvidenceUpdate, FoundRecord, Maintenance, NewPin, Pace, PublishReply,
    ReadOutcome, RecordSays, Ticket, Trouble,
};
use self::nonces::Nonces;
use self::pipeline::Pumped;
use self::records::Records;
use self::replacement::Attempt;
use crate::format;
use crate::head::{
    ChangeBody, Head, HeadLimits, ObjectRef, ObservedHead, Publisher as PublisherName,
};
use crate::id::{Tag, WriterAddress};
use crate::receipt::{ReceiptIndex, Window};
use crate::version::Revision;

/// How a publisher batches, and what it keeps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Names the process in heads: `[A-Za-z0-9._-]`, up to 64 bytes.
    pub publisher_id: String,
    /// Where other writers reach it, if they do: stands in its heads.
    pub address: Option<WriterAddress>,
    /// Operations in one batch at most.
    pub batch_operations_max: usize,
    /// Bytes of requests in one batch at most; a single larger operation is a
    /// batch by itself.
    pub batch_bytes_max: usize,
    /// A change entry up to this size travels in the head.
    pub inline_bytes_max: usize,
    /// One up to this size travels in the head while it is uploaded, where
    /// nothing is in flight that it could be uploaded behind. 0: none does.
    pub beside_bytes_max: usize,
    /// Batches in the pipeline at most, those in flight included.
    pub batches_ahead_max: usize,
    /// How far back receipts are kept.
    pub window: Window,
    /// Bounds of the head.
    pub head: HeadLimits,
}

/// One publisher. Drive it with [`Publisher::on`].
#[derive(Clone, Debug)]
pub struct Publisher {
    settings: Settings,
    nonces: Nonces,
    /// Counts events. A proof that began at or after the event with which a
    /// question arrived is a proof for that question.
    now: u64,
    observed: Option<ObservedHead>,
    head_bytes: usize,
    evidence: ReceiptIndex,
    /// When the newest proof that `observed` is current began.
    proven: Option<u64>,
    queue: VecDeque<Item>,
    /// Sizes of the batches that the front of the queue was rolled back from:
    /// taken again as they were, so that what was staged can be used.
    regroup: VecDeque<usize>,
    pipeline: VecDeque<Batch>,
    in_flight: Option<Attempt>,
    /// The publication that nobody knows about, if any. Without an answer it
    /// may be applied yet, while its condition still holds. After a mismatch it
    /// may have been applied before: something on the way that repeats a
    /// request gets one for the second copy.
    unanswered: Option<Attempt>,
    /// When the read under way began.
    reading: Option<u64>,
    /// Whether the read is to find out what became of an attempt: nothing is
    /// published before it returns.
    is_recovering: bool,
    /// How near the moment is at which the head may be replaced.
    pace: Pace,
    /// That moment has come nearer: what is queued is taken into a batch, once,
    /// so that it goes out with what waits already.
    is_closing: bool,
    /// The batch that was made of it. A replacement waits for its facts: they
    /// are at hand or one fetch away, the next replacement is further.
    closed: Option<BatchId>,
    /// Store failures and lost races since the last success, for back-off.
    failures: u32,
    last_trouble: Option<Trouble>,
    has_lost: bool,
    staged: VecDeque<ObjectRef>,
    beside: Beside,
    records: Records,
    /// With the time at which each arrived.
    prepared: Vec<(u64, Maintenance)>,
    next_batch: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Item {
    Ask(Pending),
    Control(PendingControl),
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct PendingControl {
    ticket: Option<Ticket>,
    control: Control,
    /// When it arrived; tells one control from another.
    arrived: u64,
    /// The revision of the first of its publications that may have been
    /// applied without our knowing, if any.
    in_doubt_from: Option<Revision>,
}

impl PendingControl {
    fn is_in_doubt(&self) -> bool {
        self.in_doubt_from.is_some()
    }
}

impl Publisher {
    /// A publisher that has seen no head yet.
    ///
    /// `seed` must be random and never used before: nonces come from it.
    ///
    /// # Panics
    ///
    /// When a limit of `settings` is 0.
    pub fn new(settings: Settings, seed: [u8; 32]) -> Self {
        assert!(0 < settings.batch_operations_max);
        assert!(0 < settings.batches_ahead_max);
        assert!(0 < settings.window.versions_max);
        Self {
            settings,
            nonces: Nonces::new(seed),
            now: 0,
            observed: None,
            head_bytes: 0,
            evidence: ReceiptIndex::new(crate::version::StateVersion::ZERO.next()),
            proven: None,
            queue: VecDeque::new(),
            regroup: VecDeque::new(),
            pipeline: VecDeque::new(),
            in_flight: None,
            unanswered: None,
            reading: None,
            is_recovering: false,
            pace: Pace::Publish,
            is_closing: false,
            closed: None,
            failures: 0,
            last_trouble: None,
            has_lost: false,
            staged: VecDeque::new(),
            beside: Beside::default(),
            records: Records::default(),
            prepared: Vec::new(),
            next_batch: 0,
        }
    }

    /// The head that everything rests on, if one was read.
    pub fn observed(&self) -> Option<&ObservedHead> {
        self.observed.as_ref()
    }

    /// Receipts retained, for the operator.
    pub fn evidence(&self) -> &ReceiptIndex {
        &self.evidence
    }

    /// Size of the observed head, in bytes as stored; 0 before one was read.
    pub fn head_bytes(&self) -> usize {
        self.head_bytes
    }

    /// Whether nothing is queued, in the pipeline, in flight or being read: the
    /// publisher can be dropped, and loses nothing but its cache.
    pub fn is_idle(&self) -> bool {
        self.queue.is_empty()
            && self.pipeline.is_empty()
            && self.in_flight.is_none()
            && self.reading.is_none()
    }

    /// Whether a batch is on its way: what is asked now is decided with whatever
    /// else is asked until the pipeline has room for it.
    pub fn is_busy(&self) -> bool {
        self.in_flight.is_some() || !self.pipeline.is_empty()
    }

    /// Takes in one event, and says what to do.
    ///
    /// # Panics
    ///
    /// When a read or a publication is reported that was not asked for: a
    /// driver bug. Reports about batches that were rolled back are ignored.
    pub fn on(&mut self, event: Event) -> Vec<Effect> {
        self.on_all([event])
    }

    /// Takes in events that happened together, so that questions which arrived
    /// together can share a batch.
    ///
    /// # Panics
    ///
    /// As for [`Publisher::on`].
    pub fn on_all(&mut self, events: impl IntoIterator<Item = Event>) -> Vec<Effect> {
        let mut effects = Vec::new();
        for event in events {
            self.now += 1;
            self.take_in(event, &mut effects);
        }
        self.pump(&mut effects, Pumped::All);
        effects
    }

    /// Takes in one event, and does only what sends something that is ready:
    /// deciding a batch takes the time of many store calls where thousands wait,
    /// and the next replacement need not wait for that. What follows next must
    /// be [`Publisher::on_all`], if with nothing.
    ///
    /// # Panics
    ///
    /// As for [`Publisher::on`].
    pub fn on_first(&mut self, event: Event) -> Vec<Effect> {
        let mut effects = Vec::new();
        self.now += 1;
        self.take_in(event, &mut effects);
        self.pump(&mut effects, Pumped::WhatIsReady);
        effects
    }

    fn take_in(&mut self, event: Event, effects: &mut Vec<Effect>) {
        match event {
            Event::Asked { ticket, mut ask, asked_at_ms } => {
                let known_of = self.observed.as_ref().map(|it| it.head.history_id);
                self.records.put_into(&mut ask, known_of);
                let pending = Pending::new(ticket, ask, self.now, asked_at_ms);
                self.queue.push_back(Item::Ask(pending));
            }
            Event::Controlled { ticket, control } => {
                self.queue.push_back(Item::Control(PendingControl {
                    ticket: Some(ticket),
                    control,
                    arrived: self.now,
                    in_doubt_from: None,
                }));
            }
            Event::Expired { ticket } => self.on_expired(ticket, effects),
            Event::HeadRead(outcome) => self.on_head_read(outcome, effects),
            Event::FactsFound { batch, facts } => self.on_facts(batch, &facts, effects),
            Event::FactsFailed { batch, trouble } | Event::StageFailed { batch, trouble } => {
                self.on_batch_failed(batch, trouble, effects);
            }
            Event::Staged { batch, records } => self.on_staged(batch, &records, effects),
            Event::Published(reply) => self.on_published(reply, effects),
            Event::Paced(pace) => {
                self.pace = pace;
                self.is_closing = pace != Pace::Gather;
                self.closed = None;
            }
            Event::Prepared(maintenance) => {
                self.prepared.push((self.now, maintenance));
                self.drop_overtaken_maintenance(effects);
            }
        }
    }

    fn on_published(&mut self, reply: PublishReply, effects: &mut Vec<Effect>) {
        let Some(attempt) = self.in_flight.take() else {
            panic!("a publication was reported that was not asked for")
        };
        match reply {
            PublishReply::Replaced { tag } => return self.succeed(attempt, tag, effects),
            PublishReply::Mismatch => {
                self.has_lost = true;
                if !planted!(MismatchTakenAsLoss) {
                    self.doubt(attempt);
                }
            }
            PublishReply::NoAnswer => {
                self.last_trouble = Some(Trouble::Unavailable);
                self.doubt(attempt);
            }
        }
        self.failures = self.failures.saturating_add(1);
        self.is_recovering = true;
        self.read_head(effects);
    }

    /// Nobody knows what became of `attempt` until the head is read.
    fn doubt(&mut self, attempt: Attempt) {
        let batches = attempt.batches.len();
        for pending in self.pipeline.iter_mut().take(batches).flat_map(|it| &mut it.asks) {
            pending.is_in_doubt = !planted!(DoubtForgotten);
        }
        if attempt.control.is_some()
            && let Some(Item::Control(control)) = self.queue.front_mut()
        {
            control.in_doubt_from.get_or_insert(attempt.successor.revision);
        }
        self.unanswered = Some(attempt);
    }

    /// The head is `attempt`'s successor now.
    fn succeed(&mut self, attempt: Attempt, tag: Tag, effects: &mut Vec<Effect>) {
        let published: Vec<Batch> = self.pipeline.drain(..attempt.batches.len()).collect();
        for change in published.iter().filter_map(|it| it.decided_change()) {
            if !planted!(OwnReceiptsForgotten) {
                self.evidence.push(change.version, change.change.receipts(change.version));
            }
        }
        self.evidence.raise_coverage(attempt.successor.receipt_coverage_from);
        let is_staged = |it: &DecidedChange| matches!(it.body, ChangeBody::Staged(_));
        let was_staged = published.iter().filter_map(|it| it.decided_change()).any(is_staged);
        let is_swept = |it: &Batch| match it.decided_change().map(|it| &it.body) {
            Some(ChangeBody::Staged(object)) => object.key.staged() < attempt.successor.sweep_from,
            Some(ChangeBody::Inline(_)) | None => false,
        };
        // Candidates behind it may have been staged below a boundary that it
        // raised: a head may no longer name them (PROTOCOL 7).
        let swept = self.pipeline.iter().position(is_swept);
        let observed = ObservedHead { head: attempt.successor, tag };
        self.head_bytes = attempt.size_bytes;
        self.observed = Some(observed.clone());
        self.proven = self.proven.max(Some(attempt.began));
        self.settle();
        self.advance_beside(was_staged);
        effects.push(Effect::Advanced { observed, batches: attempt.batches });
        for maintenance in attempt.maintenance {
            self.prepared.retain(|(_, it)| *it != maintenance);
            effects.push(Effect::Maintained { maintenance, is_applied: true });
        }
        self.drop_overtaken_maintenance(effects);
        for batch in published {
            batch.answer(effects);
        }
        if let Some(index) = swept.filter(|_| !planted!(SweptBatchKept)) {
            self.roll_back(index, effects);
        }
        if let Some(control) = attempt.control
            && let Some(head) = self.observed.as_ref().map(|it| Arc::clone(&it.head))
        {
            self.answer_control(control, &head, effects);
        }
    }

    /// Everything that was in doubt is decided one way or the other.
    fn settle(&mut self) {
        self.unanswered = None;
        self.is_recovering = false;
        self.end_back_off();
        for item in &mut self.queue {
            match item {
                Item::Ask(pending) => pending.is_in_doubt = false,
                // A control leaves no receipt: once in doubt, it stays so, but
                // for what `free_what_lost` finds.
                Item::Control(_) => (),
            }
        }
        for pending in self.pipeline.iter_mut().flat_map(|it| &mut it.asks) {
            pending.is_in_doubt = false;
        }
    }

    /// The store answers, and nobody is in the way.
    fn end_back_off(&mut self) {
        self.failures = 0;
        self.last_trouble = None;
        self.has_lost = false;
    }

    fn on_head_read(&mut self, outcome: ReadOutcome, effects: &mut Vec<Effect>) {
        let Some(began) = self.reading.take() else {
            panic!("a read was reported that was not asked for")
        };
        // Not a read that finds out about a publication, and the head is not
        // being fought for.
        let is_plain_check = !self.is_recovering && self.unanswered.is_none();
        match outcome {
            ReadOutcome::Unchanged => {
                if is_plain_check {
                    self.end_back_off();
                }
                // The condition of an unanswered publication still holds: it
                // may be applied yet. The pipeline is as good as it was, and is
                // published again under a new nonce; whichever comes first wins.
                self.proven = self.proven.max(Some(began));
                self.is_recovering = false;
                if planted!(UnchangedTakenAsLost) {
                    self.settle();
                }
                self.drop_overtaken_maintenance(effects);
            }
            ReadOutcome::Found { observed, evidence } => {
                self.on_head_found(observed, evidence, began, effects);
                if is_plain_check && !self.has_lost {
                    self.end_back_off();
                }
            }
            ReadOutcome::Missing => {
                self.fail_all(&SubmitError::HistoryMissing, None, effects);
                self.forget(effects);
            }
            ReadOutcome::Failed(trouble) => {
                self.failures = self.failures.saturating_add(1);
                self.last_trouble = Some(trouble.clone());
                if let Some(error) = trouble.final_error() {
                    self.fail_all(&error, None, effects);
                    self.forget(effects);
                }
            }
        }
    }

    fn on_head_found(
        &mut self,
        found: ObservedHead,
        evidence: EvidenceUpdate,
        began: u64,
        effects: &mut Vec<Effect>,
    ) {
        // Our own head under our own nonce: the unanswered attempt won, and
        // nothing has happened since. What was decided on top of it holds.
        if let Some(attempt) = self.unanswered.take_if(|it| it.nonce == found.head.publisher.nonce)
        {
            let is_front = self.pipeline.len() >= attempt.batches.len()
                && attempt.batches.iter().zip(&self.pipeline).all(|(id, it)| *id == it.id);
            if is_front {
                return self.succeed(attempt, found.tag, effects);
            }
        }
        self.free_what_lost(&found.head);
        self.meet(&found.head);
        if found.head.is_retired()
            && let Some(Item::Control(control)) = self.queue.front()
            && control.control == (Control::Retire { history_id: found.head.history_id })
        {
            let control = control.arrived;
            return self.answer_control(control, &found.head, effects);
        }
        let is_other =
            self.observed.as_ref().is_some_and(|it| it.head.history_id != found.head.history_id);
        if is_other || found.head.is_retired() {
            let spared = Some(found.head.history_id).filter(|_| !found.head.is_retired());
            self.fail_all(&SubmitError::HistoryMissing, spared, effects);
            self.forget(effects);
        }
        if found.head.is_retired() {
            return;
        }
        if !planted!(KeptAfterLoss) {
            self.roll_back(0, effects);
        }
        match evidence {
            _ if planted!(ReceiptsNotFollowed) => (),
            EvidenceUpdate::Replace(index) => self.evidence = index,
            EvidenceUpdate::Extend(versions) => {
                for (version, receipts) in versions {
                    self.evidence.push(version, receipts);
                }
            }
        }
        self.evidence.raise_coverage(found.head.receipt_coverage_from);
        self.head_bytes = stored(&found.head).len();
        self.observed = Some(found);
        self.trim_beside();
        self.proven = self.proven.max(Some(began));
        self.drop_overtaken_maintenance(effects);
        self.settle_by_evidence(effects);
        let (failures, has_lost) = (self.failures, self.has_lost);
        self.settle();
        // A head that others keep moving is still contended: back-off goes on
        // growing until something of ours gets through.
        (self.failures, self.has_lost) = (failures, has_lost);
    }

    /// Ends doubt where a head that was found proves by itself that what was
    /// sent is not in the history: no version was added since, or the very next
    /// revision is somebody else's. Operations have receipts besides, controls
    /// have nothing else.
    fn free_what_lost(&mut self, found: &Head) {
        let Some(before) = self.observed.as_ref().map(|it| &it.head) else { return };
        if found.history_id != before.history_id {
            return;
        }
        let is_next = found.revision == before.revision.next();
        let is_anothers = is_next && found.publisher.id != self.settings.publisher_id;
        if !is_anothers && before.state_version < found.state_version {
            return;
        }
        for pending in self.pipeline.iter_mut().flat_map(|it| &mut it.asks) {
            pending.is_in_doubt = false;
        }
        for item in &mut self.queue {
            match item {
                Item::Ask(pending) => pending.is_in_doubt = false,
                Item::Control(control) if is_anothers => {
                    // What was sent under an earlier condition stays in doubt.
                    control.in_doubt_from.take_if(|it| *it == found.revision);
                }
                Item::Control(_) => (),
            }
        }
    }

    /// Drops what rests on a head that can no longer be trusted, or is another
    /// history's. The next question reads it again.
    fn forget(&mut self, effects: &mut Vec<Effect>) {
        self.observed = None;
        self.head_bytes = 0;
        self.proven = None;
        self.unanswered = None;
        self.is_recovering = false;
        self.staged.clear();
        self.beside.clear();
        self.records.clear();
        for (_, maintenance) in self.prepared.drain(..) {
            effects.push(Effect::Maintained { maintenance, is_applied: false });
        }
    }

    fn read_head(&mut self, effects: &mut Vec<Effect>) {
        self.reading = Some(self.now);
        let known = self.observed.as_ref().map(|it| it.tag.clone());
        effects.push(Effect::ReadHead { known, failures: self.failures });
    }

    fn is_proven_since(&self, arrived: u64) -> bool {
        self.proven.is_some_and(|it| arrived <= it)
    }

    fn draw_name(&mut self) -> PublisherName {
        PublisherName {
            id: self.settings.publisher_id.clone(),
            nonce: self.nonces.draw(),
            address: self.settings.address.clone(),
        }
    }
}

/// The bytes that a head takes, as stored.
fn stored(head: &Head) -> Vec<u8> {
    format::head::encode(head)
}
