//! Faults that are planted in the drivers, and the runs that have to find them.
//!
//! Each is hunted under plans in which what it breaks is at stake: a plan is
//! drawn as always, and then leaned on. A rig that misses one is broken.

use std::time::Duration;

use headwater_store::planted::{Fault, plant};
use headwater_writer::WriterConfig;

use crate::disk::DiskPlan;
use crate::plan::{Kind, Plan};
use crate::run::{Report, run};
use crate::trace::Keep;

/// What a hunt came to.
#[derive(Clone, Debug)]
pub struct Hunted {
    /// The fault.
    pub fault: Fault,
    /// Seeds that were run.
    pub seeds: u64,
    /// Events in them, all together.
    pub events: u64,
    /// The first violation, and its seed.
    pub found: Option<(u64, String)>,
    /// What is wrong under that seed without the fault: nothing, or it is not
    /// the fault that was found.
    pub besides: Vec<String>,
}

/// Hunts a fault under up to `seeds_max` seeds. Faults are planted in the whole
/// process: one hunt at a time.
pub fn hunt(fault: Fault, seeds_max: u64) -> Hunted {
    plant(Some(fault));
    let mut hunted = Hunted { fault, seeds: 0, events: 0, found: None, besides: Vec::new() };
    while hunted.found.is_none() && hunted.seeds < seeds_max {
        hunted.seeds += 1;
        let Report { events, violations, seed, .. } = run(ground(fault, hunted.seeds), Keep::Count);
        hunted.events += events;
        hunted.found = violations.into_iter().next().map(|it| (seed, it));
    }
    plant(None);
    if let Some((seed, _)) = &hunted.found {
        hunted.besides = run(ground(fault, *seed), Keep::Count).violations;
    }
    hunted
}

impl Hunted {
    /// The hunt in a line.
    pub fn line(&self) -> String {
        let Self { fault, seeds, events, found, besides: _ } = self;
        let name = fault.name();
        match found {
            Some((seed, what)) => {
                let what: String = what.chars().take(120).collect();
                format!("{name:22} {seeds:>2} seeds, {events:>7} events; seed {seed}: {what}")
            }
            None => format!("{name:22} is not found in {seeds} seeds, {events} events"),
        }
    }
}

/// The plan of a seed, leaned towards what `fault` breaks.
pub fn ground(fault: Fault, seed: u64) -> Plan {
    let mut plan = Plan::draw(Kind::Swarm, seed).with_operations(25);
    plan.clients = plan.clients.clamp(8, 24);
    plan.replacement_interval = Duration::ZERO;
    // Nobody is alone, and none is short of time.
    let first = plan.writers[0].clone();
    while plan.writers.len() < 2 {
        plan.writers.push(first.clone());
    }
    for it in &mut plan.writers {
        it.operation_timeout_ms = it.operation_timeout_ms.max(8_000);
    }
    lean(&mut plan, fault);
    plan
}

fn lean(plan: &mut Plan, fault: Fault) {
    match fault {
        Fault::HeadRepeated => plan.to_bucket.lost_replies = 100,
        Fault::CandidateDeleted => {
            plan.to_bucket.lost_replies = 100;
            each(plan, upload_everything);
        }
        Fault::OccupiedTakenAsWritten | Fault::RecordUnread => repeat_records(plan),
        Fault::UploadUnawaited => {
            plan.to_bucket.has_long_tail = true;
            each(plan, upload_everything);
        }
        Fault::HeadUnread => {
            plan.mix.conditions = 60;
            plan.mix.keys = 5;
            plan.mix.reads = 10;
        }
        Fault::PredictedUnseen | Fault::PredictedKept => fill_pipelines(plan),
        Fault::SweptUnraised | Fault::SweptByOlderHead => sweep_all_the_time(plan),
        Fault::ReceiptPagesUnread => {
            plan.mix.again = 40;
            plan.mix.reads = 0;
            plan.chaos.deaths = Some(Duration::from_millis(300));
            plan.chaos.lasts = Duration::from_secs(60);
            each(plan, |it| {
                it.receipt_versions_max = 1_000;
                it.receipt_bytes_max = 32 << 20;
                it.compact_tail_versions = 5;
                it.compact_keep_versions = 0;
            });
        }
        Fault::RangeDeletionUnseen => {
            plan.mix.deletions = 40;
            plan.mix.reads = 40;
        }
        Fault::CheckShared | Fault::LaterCheckServed | Fault::NoticeTrusted => {
            plan.mix.reads = 50;
            plan.mix.strong_reads = 100;
            plan.mix.long_reads = 0;
            plan.to_bucket.has_long_tail = true;
            plan.replicas.iter_mut().for_each(|it| it.checks_in_flight_max = 8);
        }
        Fault::CheckFailureServed => {
            plan.mix.reads = 50;
            plan.mix.strong_reads = 100;
            plan.to_bucket.lost_calls = 100;
            plan.chaos.storms = Some(Duration::from_millis(500));
            plan.chaos.lasts = Duration::from_secs(60);
        }
        Fault::AgeFromEnd | Fault::AtLeastUnwaited | Fault::NeighbourServed => read_older(plan),
        Fault::ScanViewSwapped => {
            plan.mix.reads = 40;
            plan.mix.long_reads = 80;
            plan.mix.keys = 50;
        }
        Fault::DiskUnverified => {
            plan.disks =
                Some(DiskPlan { bytes_max: 10 << 20, read_takes: Duration::ZERO, full: 0 });
            plan.chaos.deaths = Some(Duration::from_millis(300));
            plan.chaos.lasts = Duration::from_secs(60);
            plan.mix.reads = 60;
            plan.mix.large_values = 10;
            each(plan, |it| {
                upload_everything(it);
                it.compact_tail_versions = 5;
                it.compact_keep_versions = 0;
            });
        }
        Fault::WatchSkips | Fault::WatchRepeats | Fault::FeedGapKept => {
            plan.watchers = 6;
            plan.mix.reads = 10;
            plan.replicas.iter_mut().for_each(|it| it.poll_ms = 100);
        }
    }
}

fn each(plan: &mut Plan, change: impl FnMut(&mut WriterConfig)) {
    plan.writers.iter_mut().for_each(change);
}

/// Nothing is in a head that could be in an object of its own.
fn upload_everything(writer: &mut WriterConfig) {
    (writer.inline_bytes_max, writer.beside_bytes_max) = (0, 0);
}

fn repeat_records(plan: &mut Plan) {
    plan.mix.service_kept = 60;
    plan.mix.again = 30;
    plan.mix.reads = 0;
    plan.mix.patience_ms = (50, 400);
    plan.to_processes.lost_replies = 100;
    each(plan, |it| it.receipt_versions_max = 4);
}

fn fill_pipelines(plan: &mut Plan) {
    plan.mix.reads = 0;
    plan.mix.think_ms = 0;
    plan.mix.keys = 5;
    plan.mix.conditions = 60;
    each(plan, |it| {
        upload_everything(it);
        it.batches_ahead_max = 8;
        it.batch_operations_max = 2;
    });
}

/// Uploads that are held up, under sweeps that wait for nobody.
fn sweep_all_the_time(plan: &mut Plan) {
    plan.mix.reads = 0;
    plan.mix.think_ms = 300;
    plan.to_bucket.has_long_tail = true;
    plan.to_bucket.round_trip = Duration::from_millis(40);
    plan.chaos.holds = Some(Duration::from_millis(400));
    plan.chaos.lasts = Duration::from_secs(60);
    plan.clients = 16;
    plan.operations_each = 80;
    each(plan, |it| {
        upload_everything(it);
        it.sweep_every_ms = 300;
        it.sweep_grace_ms = 1;
        it.sweep_deletes_max = 100_000;
        it.compact_tail_versions = 5;
        it.compact_keep_versions = 0;
        it.fold_changes = 2;
        it.retain_versions = 0;
        it.retain_age_ms = 0;
    });
}

fn read_older(plan: &mut Plan) {
    plan.mix.reads = 60;
    plan.mix.strong_reads = 0;
    plan.mix.long_reads = 0;
    plan.mix.reads_back_max = 10;
    plan.to_bucket.has_long_tail = true;
    for it in &mut plan.replicas {
        it.recent_versions_max = 1_024;
        it.poll_ms = 100;
    }
}
