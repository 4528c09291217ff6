//! The last five minutes, a second at a time: what charts are drawn from.
//!
//! A task reads counters once a second and keeps the differences. It asks no
//! driver and no store.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use headwater_store::{Meter, Readings};
use tokio::time::{Instant, MissedTickBehavior, interval};

use super::status::Sample;
use super::{Parts, failures};
use crate::overview::{ReplicaTotals, WriterTotals};

/// How often counters are read.
const EVERY: Duration = Duration::from_secs(1);
/// Seconds that are kept: enough to see what led to an alert, and what was done
/// about it.
pub(crate) const SAMPLES_MAX: usize = 300;

/// Seconds, oldest first. Clones share them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Samples(Arc<Mutex<VecDeque<Sample>>>);

/// The counters at one moment.
#[derive(Clone, Debug, Default)]
struct Reading {
    writer: WriterTotals,
    replica: ReplicaTotals,
    store: Readings,
}

impl Samples {
    pub(crate) fn list(&self) -> Vec<Sample> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).iter().copied().collect()
    }

    fn push(&self, sample: Sample) {
        let mut samples = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if samples.len() == SAMPLES_MAX {
            samples.pop_front();
        }
        samples.push_back(sample);
    }

    /// Reads the counters once a second, until it is dropped.
    pub(crate) async fn take(self, parts: Arc<Parts>) {
        let mut ticks = interval(EVERY);
        // A second that was missed is not made up for: the next one is longer.
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        ticks.tick().await;
        let (mut before, mut read_at) = (Reading::of(&parts), Instant::now());
        loop {
            ticks.tick().await;
            let (reading, now) = (Reading::of(&parts), Instant::now());
            let mut sample = reading.since(&before, now - read_at);
            sample.at_ms = millis(now - parts.began);
            self.push(sample);
            (before, read_at) = (reading, now);
        }
    }
}

impl Reading {
    fn of(parts: &Parts) -> Self {
        Self {
            writer: parts.writer.as_ref().map(|it| it.totals()).unwrap_or_default(),
            replica: parts.replica.as_ref().map(|it| it.totals()).unwrap_or_default(),
            store: parts.meter.as_deref().map(Meter::read).unwrap_or_default(),
        }
    }

    /// What came after `earlier`, which is `passed` ago.
    fn since(&self, earlier: &Self, passed: Duration) -> Sample {
        let a_second = |now: u64, then: u64| {
            let rate = u128::from(now.saturating_sub(then)) * 1_000 / passed.as_millis().max(1);
            u64::try_from(rate).unwrap_or(u64::MAX)
        };
        let latencies = self.writer.latencies.since(&earlier.writer.latencies);
        let lags = self.replica.lags.since(&earlier.replica.lags);
        Sample {
            at_ms: 0,
            commits: a_second(self.writer.commits, earlier.writer.commits),
            operations: a_second(self.writer.operations, earlier.writer.operations),
            latency_p50_us: latencies.quantile_us(500),
            latency_p99_us: latencies.quantile_us(990),
            reads: a_second(self.replica.reads, earlier.replica.reads),
            reads_failed: a_second(self.replica.reads_failed, earlier.replica.reads_failed),
            lag_p50_us: lags.quantile_us(500),
            lag_max_us: lags.quantile_us(1_000),
            store_calls: a_second(self.store.total(), earlier.store.total()),
            store_failures: a_second(failures(&self.store), failures(&earlier.store)),
        }
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
