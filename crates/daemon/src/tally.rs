//! Counting without waiting: durations by size, and the last few of something.
//!
//! For what drivers and services tell the status page. Whoever counts never
//! waits for whoever looks.
//!
//! # Invariants
//!
//! - [`Durations::record`] is one relaxed addition.
//! - [`Recent::push`] gives up where somebody is looking at that moment.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError, TryLockError};
use std::time::Duration;

/// Parts of each doubling: a duration is known to an eighth of itself.
const PARTS: usize = 8;
const PARTS_BITS: u32 = 3;
/// Doublings of a microsecond that are told apart. The last one begins at nine
/// and a half hours; what takes longer counts as that.
const DOUBLINGS: usize = 36;
const N_BUCKETS: usize = (DOUBLINGS - PARTS_BITS as usize + 1) * PARTS;

/// How many things took how long.
#[derive(Debug)]
pub struct Durations([AtomicU64; N_BUCKETS]);

/// What [`Durations`] had counted at one moment, or between two.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DurationCounts([u64; N_BUCKETS]);

impl Default for Durations {
    fn default() -> Self {
        Self([const { AtomicU64::new(0) }; N_BUCKETS])
    }
}

impl Default for DurationCounts {
    fn default() -> Self {
        Self([0; N_BUCKETS])
    }
}

impl Durations {
    /// Counts one.
    pub fn record(&self, took: Duration) {
        let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        self.0[bucket_of(micros)].fetch_add(1, Ordering::Relaxed);
    }

    /// The counts so far.
    pub fn read(&self) -> DurationCounts {
        let mut counts = DurationCounts::default();
        for (count, counter) in counts.0.iter_mut().zip(&self.0) {
            *count = counter.load(Ordering::Relaxed);
        }
        counts
    }
}

impl DurationCounts {
    /// What came after `earlier`.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let mut counts = self.clone();
        for (now, then) in counts.0.iter_mut().zip(&earlier.0) {
            *now = now.saturating_sub(*then);
        }
        counts
    }

    /// How many were counted.
    pub fn total(&self) -> u64 {
        self.0.iter().sum()
    }

    /// What so many of a thousand took at most, in microseconds; `None` where
    /// nothing was counted. Too large by an eighth at most.
    pub fn quantile_us(&self, permille: u64) -> Option<u64> {
        let total = self.total();
        // The rank of the one that is meant, from 1.
        let rank = (total * permille).div_ceil(1_000).max(1);
        let mut passed = 0;
        let at = self.0.iter().position(|it| {
            passed += it;
            rank <= passed
        });
        at.filter(|_| total != 0).map(last_of)
    }
}

fn bucket_of(micros: u64) -> usize {
    let parts = PARTS as u64;
    if micros < parts {
        return usize::try_from(micros).unwrap_or_default();
    }
    let doubling = micros.ilog2();
    let part = (micros >> (doubling - PARTS_BITS)) & (parts - 1);
    let row = (doubling - PARTS_BITS + 1) as usize;
    (row * PARTS + usize::try_from(part).unwrap_or_default()).min(N_BUCKETS - 1)
}

/// The longest duration of a bucket, in microseconds.
fn last_of(bucket: usize) -> u64 {
    let (row, part) = (bucket / PARTS, (bucket % PARTS) as u64);
    match row.checked_sub(1) {
        None => part,
        Some(shift) => ((PARTS as u64 + part + 1) << shift) - 1,
    }
}

/// The last few of something, the newest first.
#[derive(Debug)]
pub struct Recent<T> {
    kept: Mutex<VecDeque<T>>,
    max: usize,
}

impl<T: Clone> Recent<T> {
    /// Keeps up to `max`.
    pub fn new(max: usize) -> Self {
        Self { kept: Mutex::new(VecDeque::with_capacity(max)), max }
    }

    /// Keeps one more, in the place of the oldest. Where another one is being
    /// put in, or somebody looks, this one is not kept: that costs a line of a
    /// page, and waiting would cost a commit.
    pub fn push(&self, it: T) {
        let mut kept = match self.kept.try_lock() {
            Ok(kept) => kept,
            Err(TryLockError::Poisoned(kept)) => kept.into_inner(),
            Err(TryLockError::WouldBlock) => return,
        };
        if kept.len() == self.max {
            kept.pop_back();
        }
        kept.push_front(it);
    }

    /// All of them.
    pub fn list(&self) -> Vec<T> {
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.iter().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_duration_is_counted_and_known_to_an_eighth() {
        for micros in (0..2_000).chain((11..36).map(|it| (1 << it) + 12_345)) {
            let durations = Durations::default();
            durations.record(Duration::from_micros(micros));
            let found = durations.read().quantile_us(500).unwrap();
            assert!(micros <= found, "{micros} became {found}");
            assert!(found <= micros + micros / 8 + 1, "{micros} became {found}");
        }
    }

    #[test]
    fn what_takes_longer_than_hours_counts_as_the_longest() {
        let durations = Durations::default();
        durations.record(Duration::MAX);
        assert_eq!(durations.read().total(), 1);
        assert!((1 << 35) < durations.read().quantile_us(1_000).unwrap());
    }

    #[test]
    fn quantiles_are_of_what_came_between_two_readings() {
        let durations = Durations::default();
        for _ in 0..1_000 {
            durations.record(Duration::from_secs(9));
        }
        let earlier = durations.read();
        for micros in 1..=100 {
            durations.record(Duration::from_micros(micros));
        }
        let counts = durations.read().since(&earlier);
        assert_eq!(counts.total(), 100);
        assert!((50..=56).contains(&counts.quantile_us(500).unwrap()));
        assert!((99..=111).contains(&counts.quantile_us(990).unwrap()));
        assert_eq!(DurationCounts::default().quantile_us(990), None);
    }

    #[test]
    fn the_last_few_are_kept_the_newest_first() {
        let recent = Recent::new(3);
        for it in 0..5 {
            recent.push(it);
        }
        assert_eq!(recent.list(), [4, 3, 2]);
    }

    #[test]
    fn who_pushes_never_waits_for_who_looks() {
        let recent = Recent::new(3);
        recent.push(1);
        let looking = recent.kept.lock().unwrap();
        recent.push(2);
        drop(looking);
        assert_eq!(recent.list(), [1]);
    }
}
