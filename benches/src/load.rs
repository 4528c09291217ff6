//! Loads: closed loop, callers that each wait for their answer; open loop,
//! calls at fixed moments whatever becomes of those before.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::future::join_all;
use hdrhistogram::Histogram;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::cpu;

/// Runs before anything is counted.
const WARM_UP: Duration = Duration::from_secs(1);
/// Histograms that all callers count in: each takes 200 KiB, and one for each of
/// thousands of callers would be most of what is measured.
const COUNTED_BY: usize = 16;
/// Calls of an open loop under way at a time.
const WAITING_MAX: usize = 100_000;

/// What a load gave.
#[derive(Debug)]
pub struct Measured {
    /// Calls that ended in the time counted.
    pub calls: u64,
    /// Calls that failed in the time counted. They are in `calls` too.
    pub failures: u64,
    /// The time counted.
    pub time: Duration,
    /// Microseconds.
    pub latency: Histogram<u64>,
    /// What the whole process took of its processors in the time counted; zero
    /// where that is not known.
    pub cpu: Duration,
}

impl Measured {
    /// Nothing measured yet.
    pub fn empty(time: Duration) -> Self {
        Self { calls: 0, failures: 0, time, latency: histogram(), cpu: Duration::ZERO }
    }

    /// One call more.
    pub fn note(&mut self, took: Duration, is_done: bool) {
        self.calls += 1;
        self.failures += u64::from(!is_done);
        self.latency.saturating_record(micros(took));
    }

    /// What was measured beside it in the same time.
    pub fn add(&mut self, other: Self) {
        self.calls += other.calls;
        self.failures += other.failures;
        let _same_bounds = self.latency.add(other.latency);
    }

    /// The median, in milliseconds.
    #[expect(clippy::cast_precision_loss, reason = "a figure for people")]
    pub fn p50_ms(&self) -> f64 {
        self.latency.value_at_quantile(0.5) as f64 / 1_000.0
    }

    /// Processor time for each call, in microseconds.
    #[expect(clippy::cast_precision_loss, reason = "a figure for people")]
    pub fn cpu_us(&self) -> f64 {
        self.cpu.as_secs_f64() * 1_000_000.0 / self.calls.max(1) as f64
    }

    /// Calls per second.
    #[expect(clippy::cast_precision_loss, reason = "a figure for people")]
    pub fn rate(&self) -> f64 {
        self.calls as f64 / self.time.as_secs_f64()
    }
}

/// Calls `call(caller, n)` from `callers` tasks for `time`. `on_warm` runs after
/// the warm-up, when counting begins.
pub async fn run<C, F>(callers: usize, time: Duration, call: C, on_warm: impl FnOnce()) -> Measured
where
    C: Fn(usize, u64) -> F + Clone + Send + 'static,
    F: Future<Output = bool> + Send,
{
    let start = Instant::now();
    let (count_from, end) = (start + WARM_UP, start + WARM_UP + time);
    let counted: Vec<_> =
        (0..COUNTED_BY).map(|_| Arc::new(Mutex::new(Measured::empty(time)))).collect();
    let tasks: Vec<_> = (0..callers)
        .map(|caller| {
            let (call, counted) = (call.clone(), Arc::clone(&counted[caller % COUNTED_BY]));
            tokio::spawn(async move {
                let mut n = 0;
                loop {
                    let began = Instant::now();
                    if end <= began {
                        return;
                    }
                    let is_done = call(caller, n).await;
                    n += 1;
                    if count_from <= began {
                        let mut counted = counted.lock().unwrap_or_else(PoisonError::into_inner);
                        counted.note(began.elapsed(), is_done);
                    }
                }
            })
        })
        .collect();
    tokio::time::sleep_until(count_from).await;
    on_warm();
    let cpu_before = cpu::taken();
    let mut all = Measured::empty(time);
    let ended = join_all(tasks).await;
    all.cpu = cpu::taken().saturating_sub(cpu_before);
    drop(ended);
    for counted in counted {
        let mut counted = counted.lock().unwrap_or_else(PoisonError::into_inner);
        all.add(std::mem::replace(&mut *counted, Measured::empty(time)));
    }
    all
}

/// Calls at even distances, `per_second` of them, for `time`. A call's latency
/// counts from the moment at which it was due: one that had to wait because the
/// system was behind has waited. `callers` is how many keys they spread over;
/// at most `WAITING_MAX` are under way, and what is due beyond that has failed.
///
/// `on_warm` runs after the warm-up, when counting begins.
pub async fn run_open<C, F>(
    per_second: u64,
    callers: usize,
    time: Duration,
    call: C,
    on_warm: impl FnOnce(),
) -> Measured
where
    C: Fn(usize, u64) -> F + Clone + Send + 'static,
    F: Future<Output = bool> + Send + 'static,
{
    let start = Instant::now();
    let (count_from, end) = (start + WARM_UP, start + WARM_UP + time);
    let gap = Duration::from_secs(1).div_f64(number(per_second.max(1)));
    let mut all = Measured::empty(time);
    let mut tasks: JoinSet<(Instant, Duration, bool)> = JoinSet::new();
    let (mut due, mut n, mut on_warm) = (start, 0_u64, Some(on_warm));
    let mut cpu_before = cpu::taken();
    let take = |all: &mut Measured, (due, took, is_done): (Instant, Duration, bool)| {
        if count_from <= due {
            all.note(took, is_done);
        }
    };
    while due < end {
        if count_from <= due
            && let Some(on_warm) = on_warm.take()
        {
            on_warm();
            cpu_before = cpu::taken();
        }
        tokio::time::sleep_until(due).await;
        while let Some(Ok(done)) = tasks.try_join_next() {
            take(&mut all, done);
        }
        if WAITING_MAX <= tasks.len() {
            take(&mut all, (due, Duration::ZERO, false));
        } else {
            let caller = usize::try_from(n).unwrap_or(usize::MAX) % callers.max(1);
            let calling = call(caller, n);
            tasks.spawn(async move {
                let is_done = calling.await;
                (due, due.elapsed(), is_done)
            });
        }
        n += 1;
        due += gap;
    }
    while let Some(done) = tasks.join_next().await {
        if let Ok(done) = done {
            take(&mut all, done);
        }
    }
    all.cpu = cpu::taken().saturating_sub(cpu_before);
    all
}

#[expect(clippy::cast_precision_loss, reason = "a figure for people")]
fn number(count: u64) -> f64 {
    count as f64
}

#[expect(clippy::expect_used, reason = "the bounds are right")]
fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, 120_000_000, 3).expect("bounds of a histogram")
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}
