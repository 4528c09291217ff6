//! What a replica measures.
//!
//! Its instruments are made from a [`Meter`] that it is handed, so that many
//! replicas in one process do not mix, and one that nobody asks has none.

use std::sync::Arc;
use std::time::Duration;

use headwater_daemon::label;
use headwater_daemon::metrics::observed::{self, Gauge, Part};
use headwater_daemon::metrics::{Counts, Times, count, numbers, seconds};
use headwater_state::{Hydrated, LoadedChange};
use headwater_store::Clock;
use opentelemetry::KeyValue;
use opentelemetry::metrics::{Counter, Histogram, Meter};

use crate::consistency::Consistency;
use crate::failure::ReadFailure;
use crate::histories::Histories;
use crate::watch::WatchFailure;

label! {
    /// How a freshness check ended.
    pub(crate) enum CheckEnd: "outcome" {
        /// The head was the one that is served (304).
        Unchanged = "unchanged",
        /// There was a newer head.
        Moved = "moved",
        /// The store did not answer.
        Unavailable = "unavailable",
        /// The head is not served: damaged, gone, or too new.
        Refused = "refused",
    }
}

label! {
    /// What a read may be served from.
    pub(crate) enum Level: "consistency" {
        Strong = "strong",
        AtLeast = "at_least",
        Exact = "exact",
        MaxStaleness = "max_staleness",
        Any = "any",
    }
}

label! {
    /// How a watch ended.
    pub(crate) enum WatchEnded: "reason" {
        Slow = "slow",
        Expired = "expired",
        ShuttingDown = "shutting_down",
        Retired = "version_retired",
        Other = "other",
    }
}

/// The instruments of one replica.
#[derive(Clone, Debug)]
pub(crate) struct ReplicaMetrics {
    /// For the age of what writers have decided; none where nobody measures.
    clock: Option<Clock>,
    pub(crate) checks: Times<CheckEnd>,
    /// Reads that one check was enough for.
    pub(crate) sharing: Histogram<u64>,
    pub(crate) reads: Counts<Level>,
    lag_versions: Histogram<u64>,
    lag: Histogram<f64>,
    pub(crate) catching_up: Histogram<f64>,
    hydrated_objects: Counter<u64>,
    hydrated_bytes: Counter<u64>,
    pub(crate) watches_ended: Counts<WatchEnded>,
}

impl ReplicaMetrics {
    pub(crate) fn new(meter: &Meter, clock: Option<Clock>) -> Self {
        Self {
            clock,
            checks: Times::new(
                meter,
                "headwater.freshness.check.duration",
                "Time of one conditional read of a head, by what it found.",
            ),
            sharing: numbers(
                meter,
                "headwater.freshness.check.reads",
                "{read}",
                "Reads that waited for the same freshness check.",
            ),
            reads: Counts::new(
                meter,
                "headwater.reads",
                "{read}",
                "Views that reads asked for, by what they may be served from.",
            ),
            lag_versions: numbers(
                meter,
                "headwater.follow.lag.versions",
                "{version}",
                "Versions that a replica was behind when it saw a newer head.",
            ),
            lag: seconds(
                meter,
                "headwater.follow.lag",
                "From the decision of the newest change, by its writer's clock, to the moment from \
                 which it is served, by this process's: off by what the two differ.",
            ),
            catching_up: seconds(
                meter,
                "headwater.follow.duration",
                "From a newer head to the moment from which it is served.",
            ),
            hydrated_objects: count(
                meter,
                "headwater.hydration.objects",
                "{object}",
                "Objects brought to the disk ahead of reads.",
            ),
            hydrated_bytes: count(
                meter,
                "headwater.hydration",
                "By",
                "Bytes brought to the disk ahead of reads.",
            ),
            watches_ended: Counts::new(
                meter,
                "headwater.watches.ended",
                "{watch}",
                "Watches that this process ended, by the reason that it gave.",
            ),
        }
    }

    /// A newer head is served. `changes` are what it adds, oldest first.
    pub(crate) fn followed(&self, changes: &[LoadedChange], took: Duration) {
        self.catching_up.record(took.as_secs_f64(), &[]);
        let Some(newest) = changes.last() else { return };
        self.lag_versions.record(changes.len() as u64, &[]);
        if let Some(clock) = &self.clock {
            // A writer whose clock is ahead is not followed before it decides.
            let age_ms = clock.now_ms().saturating_sub(newest.change.decided_at_ms);
            self.lag.record(Duration::from_millis(age_ms).as_secs_f64(), &[]);
        }
    }

    pub(crate) fn hydrated(&self, done: &Hydrated) {
        self.hydrated_objects.add(done.objects, &[]);
        self.hydrated_bytes.add(done.size_bytes, &[]);
    }
}

impl Level {
    pub(crate) fn of(consistency: Consistency) -> Self {
        match consistency {
            Consistency::Strong => Self::Strong,
            Consistency::AtLeast(_) => Self::AtLeast,
            Consistency::Exact(_) => Self::Exact,
            Consistency::MaxStaleness(_) => Self::MaxStaleness,
            Consistency::Any => Self::Any,
        }
    }
}

impl WatchEnded {
    #[expect(clippy::wildcard_enum_match_arm, reason = "the rest is for the log")]
    pub(crate) fn of(failure: &WatchFailure) -> Self {
        match failure {
            WatchFailure::Slow { .. } => Self::Slow,
            WatchFailure::Expired => Self::Expired,
            WatchFailure::Read(ReadFailure::ShuttingDown) => Self::ShuttingDown,
            WatchFailure::Read(ReadFailure::VersionRetired { .. }) => Self::Retired,
            _ => Self::Other,
        }
    }
}

/// Measures what there is, whenever somebody looks.
pub(crate) fn observe(meter: &Meter, histories: &Arc<Histories>) {
    let gauges = [
        Gauge {
            name: "headwater.replica.histories.open",
            unit: "{history}",
            about: "Histories that are open in the replica.",
            read: |it: &Histories| it.open_names().len() as u64,
        },
        Gauge {
            name: "headwater.watches.open",
            unit: "{watch}",
            about: "Watches that are open.",
            read: |it| it.watch_places().n_taken() as u64,
        },
        Gauge {
            name: "headwater.replica.tails",
            unit: "By",
            about: "Memory of the tails of open histories.",
            read: Histories::overlay_bytes,
        },
        Gauge {
            name: "headwater.replica.chunk_cache.size",
            unit: "By",
            about: "Memory of decoded chunks and index pages.",
            read: Histories::chunk_cache_bytes,
        },
        Gauge {
            name: "headwater.replica.disk_cache.size",
            unit: "By",
            about: "Objects in the cache on disk; 0 where there is none.",
            read: |it| it.disk_readings().map_or(0, |it| it.size_bytes),
        },
    ];
    observed::gauges(meter, histories, gauges);
    observed::snapshot_fallbacks(meter, Part::Replica, histories, Histories::snapshot_fallbacks);
    observe_age(meter, histories);
    count_disk_reads(meter, histories);
}

fn observe_age(meter: &Meter, histories: &Arc<Histories>) {
    let histories = Arc::downgrade(histories);
    let _kept_by_the_meter = meter
        .f64_observable_gauge("headwater.replica.view.age.max")
        .with_unit("s")
        .with_description(
            "Time since the last check began that proved a view current, of the open history \
             where it is longest; 0 where none is open.",
        )
        .with_callback(move |observer| {
            let Some(histories) = histories.upgrade() else { return };
            let age = histories.oldest_proof_age().unwrap_or_default();
            observer.observe(age.as_secs_f64(), &[]);
        })
        .build();
}

/// Measures histories each under its name. Only where an operator asked for it:
/// every history is one series more.
pub(crate) fn observe_each(meter: &Meter, histories: &Arc<Histories>, max: usize) {
    let weak = Arc::downgrade(histories);
    let _kept_by_the_meter = meter
        .u64_observable_gauge("headwater.replica.history.version")
        .with_unit("{version}")
        .with_description("The version that is served, by history.")
        .with_callback(move |observer| {
            let Some(histories) = weak.upgrade() else { return };
            for (name, version, _) in histories.measured(max) {
                observer.observe(version, &[KeyValue::new("history", name.to_string())]);
            }
        })
        .build();
    let weak = Arc::downgrade(histories);
    let _kept_by_the_meter = meter
        .f64_observable_gauge("headwater.replica.history.view.age")
        .with_unit("s")
        .with_description(
            "Time since the last check began that proved the view current, by history.",
        )
        .with_callback(move |observer| {
            let Some(histories) = weak.upgrade() else { return };
            for (name, _, age) in histories.measured(max) {
                observer.observe(age.as_secs_f64(), &[KeyValue::new("history", name.to_string())]);
            }
        })
        .build();
}

fn count_disk_reads(meter: &Meter, histories: &Arc<Histories>) {
    let labels = ["hit", "miss"].map(|it| [KeyValue::new("outcome", it)]);
    let histories = Arc::downgrade(histories);
    let _kept_by_the_meter = meter
        .u64_observable_counter("headwater.replica.disk_cache.reads")
        .with_unit("{object}")
        .with_description("Objects that were looked for on the disk before they were fetched.")
        .with_callback(move |observer| {
            let Some(histories) = histories.upgrade() else { return };
            let readings = histories.disk_readings().unwrap_or_default();
            observer.observe(readings.hits, &labels[0]);
            observer.observe(readings.misses, &labels[1]);
        })
        .build();
}
