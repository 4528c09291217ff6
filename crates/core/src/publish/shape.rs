//! What a publisher will do next, apart from how it came there.
//!
//! Two publishers of one rig with the same shape do the same from here on, up
//! to how long they would wait and which kind of "not applied" they name. A
//! model checker that knows this visits a state once and not once for each way
//! to it.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use core::hash::{Hash, Hasher};

use super::batch::{Batch, BatchId, Decided, Pending, Phase};
use super::{Attempt, Item, Maintenance, Publisher};
use crate::archive::ArchiveUpdate;
use crate::decide::Verdict;
use crate::receipt::Receipt;

/// Counters, replaced by their places among those that are still compared.
struct Places {
    times: Vec<u64>,
    batches: Vec<BatchId>,
}

impl Places {
    fn of(publisher: &Publisher) -> Self {
        let mut times: BTreeSet<u64> = publisher.proven.into_iter().collect();
        times.extend(publisher.reading);
        let attempts = || publisher.in_flight.iter().chain(&publisher.unanswered);
        times.extend(attempts().map(|it| it.began));
        times.extend(attempts().filter_map(|it| it.control));
        times.extend(publisher.pipeline.iter().flat_map(|it| &it.asks).map(|it| it.arrived));
        times.extend(publisher.queue.iter().map(|it| match it {
            Item::Ask(pending) => pending.arrived,
            Item::Control(control) => control.arrived,
        }));
        times.extend(publisher.prepared.iter().map(|(at, _)| *at));
        let mut batches: BTreeSet<_> = publisher.pipeline.iter().map(|it| it.id).collect();
        batches.extend(attempts().flat_map(|it| &it.batches));
        batches.extend(publisher.closed);
        batches.extend(publisher.beside.iter().map(|it| it.batch));
        Self { times: times.into_iter().collect(), batches: batches.into_iter().collect() }
    }

    fn time(&self, at: u64) -> usize {
        self.times.partition_point(|it| *it < at)
    }

    fn batch(&self, id: BatchId) -> usize {
        self.batches.partition_point(|it| *it < id)
    }
}

impl Publisher {
    /// Feeds `hasher` with everything that decides what this publisher does
    /// next. The settings are left out: a rig does not change them.
    pub fn shape(&self, hasher: &mut impl Hasher) {
        let places = Places::of(self);
        self.nonces.count.hash(hasher);
        self.observed.hash(hasher);
        self.evidence.shape(hasher);
        self.proven.map(|it| places.time(it)).hash(hasher);
        self.reading.map(|it| places.time(it)).hash(hasher);
        (self.is_recovering, self.pace, self.is_closing).hash(hasher);
        self.closed.map(|it| places.batch(it)).hash(hasher);
        self.queue.len().hash(hasher);
        for item in &self.queue {
            match item {
                Item::Ask(pending) => pending_shape(pending, &places, hasher),
                Item::Control(control) => {
                    (control.ticket, &control.control, control.in_doubt_from).hash(hasher);
                    places.time(control.arrived).hash(hasher);
                }
            }
        }
        self.regroup.hash(hasher);
        self.pipeline.len().hash(hasher);
        self.pipeline.iter().for_each(|it| batch_shape(it, &places, hasher));
        for attempt in [&self.in_flight, &self.unanswered] {
            attempt.is_some().hash(hasher);
            if let Some(attempt) = attempt {
                attempt_shape(attempt, &places, hasher);
            }
        }
        self.staged.hash(hasher);
        if self.settings.beside_bytes_max != 0 {
            self.beside.counts().hash(hasher);
        }
        for it in self.beside.iter() {
            (places.batch(it.batch), &it.object, it.inline_bytes, it.is_durable).hash(hasher);
        }
        self.records.shape(hasher);
        self.prepared.iter().for_each(|(at, _)| places.time(*at).hash(hasher));
        maintenance_shape(self.prepared.iter().map(|(_, it)| it), hasher);
    }

    /// Where a batch is, for a driver's work about it; `None` when it was rolled
    /// back.
    pub fn place_of(&self, batch: BatchId) -> Option<usize> {
        self.pipeline.iter().position(|it| it.id == batch)
    }
}

/// The time at which it was asked decides nothing, and a rig gives none.
fn pending_shape(pending: &Pending, places: &Places, hasher: &mut impl Hasher) {
    (pending.ticket, &pending.ask, pending.is_in_doubt).hash(hasher);
    places.time(pending.arrived).hash(hasher);
}

fn batch_shape(batch: &Batch, places: &Places, hasher: &mut impl Hasher) {
    places.batch(batch.id).hash(hasher);
    batch.asks.len().hash(hasher);
    batch.asks.iter().for_each(|it| pending_shape(it, places, hasher));
    match &batch.phase {
        Phase::Finding => 0.hash(hasher),
        Phase::Staging(decided) => decided_shape(1, decided, hasher),
        Phase::Ready(decided) => decided_shape(2, decided, hasher),
    }
}

/// What was decided follows from the questions, the head and the batches
/// before; only what does not is fed.
fn decided_shape(phase: u8, decided: &Decided, hasher: &mut impl Hasher) {
    phase.hash(hasher);
    for verdict in &decided.verdicts {
        core::mem::discriminant(verdict).hash(hasher);
        match verdict {
            Verdict::Accepted(receipt) | Verdict::Known(receipt) => receipt.hash(hasher),
            Verdict::Rejected { at, conflicts } => (at, conflicts).hash(hasher),
            Verdict::NotAccepted { through } => through.hash(hasher),
            Verdict::Unknown { earliest, coverage_from } => {
                (earliest, coverage_from).hash(hasher);
            }
            Verdict::IdReused
            | Verdict::IssuedAhead { .. }
            | Verdict::OtherHistory { .. }
            | Verdict::Fenced { .. } => (),
        }
    }
    if let Some(change) = &decided.change {
        (change.version, change.hash, &change.body, change.is_new_object).hash(hasher);
    }
}

fn attempt_shape(attempt: &Attempt, places: &Places, hasher: &mut impl Hasher) {
    (attempt.nonce, &attempt.successor).hash(hasher);
    (places.time(attempt.began), attempt.control.map(|it| places.time(it))).hash(hasher);
    attempt.batches.iter().for_each(|it| places.batch(*it).hash(hasher));
    maintenance_shape(attempt.maintenance.iter(), hasher);
}

fn maintenance_shape<'a>(
    maintenance: impl ExactSizeIterator<Item = &'a Maintenance>,
    hasher: &mut impl Hasher,
) {
    maintenance.len().hash(hasher);
    for it in maintenance {
        match it {
            Maintenance::Fold(fold) => (&fold.segment, fold.last_change).hash(hasher),
            Maintenance::Compact(compaction) => {
                (&compaction.snapshot, &compaction.based_on).hash(hasher);
                compaction.receipt_pages.hash(hasher);
                archive_shape(&compaction.archive, hasher);
            }
            Maintenance::Release(update) => archive_shape(update, hasher),
            Maintenance::RaiseSweep { sweep_from } => sweep_from.hash(hasher),
            Maintenance::Swept { swept_to, update } => {
                swept_to.hash(hasher);
                if let Some(update) = update {
                    archive_shape(update, hasher);
                }
            }
        }
    }
}

/// What it names and accounts for follows from the two archives.
fn archive_shape(update: &ArchiveUpdate, hasher: &mut impl Hasher) {
    (&update.based_on, &update.becomes, update.needs_base).hash(hasher);
    (&update.pinned, &update.forks, &update.expired).hash(hasher);
}

impl crate::receipt::ReceiptIndex {
    /// As [`Publisher::shape`].
    fn shape(&self, hasher: &mut impl Hasher) {
        self.coverage_from().hash(hasher);
        self.len().hash(hasher);
        let all = self.between(
            crate::version::StateVersion::ZERO,
            crate::version::StateVersion::new(u64::MAX),
        );
        all.for_each(|it: &Receipt| it.hash(hasher));
    }
}
