//! What is checked, how much of it, and how far it is.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// How a history is checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Objects fetched at once; at least 1 is taken. 16 fetches of 30 ms each
    /// are 500 objects a second, and at most 128 MiB in memory.
    pub fetches_max: usize,
    /// When to stop.
    pub budget: Budget,
    /// Whether the newest snapshot is built again from the older one and the
    /// changes, and compared.
    pub rebuilds: bool,
    /// Whether everything below the history's prefix is listed, to find what
    /// nothing leads to.
    pub lists_unreached: bool,
    /// Whether request records are read one by one, and not only counted.
    pub reads_requests: bool,
    /// Most findings kept of each severity; the rest is counted.
    pub findings_max: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            fetches_max: 16,
            budget: Budget::default(),
            rebuilds: true,
            lists_unreached: true,
            reads_requests: false,
            // Some 3 MiB.
            findings_max: 10_000,
        }
    }
}

/// When to stop. What is under way when a limit is reached is finished, so a
/// limit on objects or bytes may be passed by [`Options::fetches_max`] objects.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Budget {
    /// Most objects read.
    pub objects_max: Option<u64>,
    /// Most bytes read.
    pub bytes_max: Option<u64>,
    /// Longest time.
    pub time_max: Option<Duration>,
}

/// How far a check is, to be looked at meanwhile. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct Progress(Arc<Counters>);

#[derive(Debug, Default)]
struct Counters {
    objects: AtomicU64,
    bytes: AtomicU64,
    listed: AtomicU64,
    doing: Mutex<String>,
}

/// What a [`Progress`] showed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reading {
    /// Objects read.
    pub objects: u64,
    /// Bytes read.
    pub bytes: u64,
    /// Objects listed.
    pub listed: u64,
    /// What is being done.
    pub doing: String,
}

impl Progress {
    /// How far it is.
    pub fn read(&self) -> Reading {
        Reading {
            objects: self.0.objects.load(Ordering::Relaxed),
            bytes: self.0.bytes.load(Ordering::Relaxed),
            listed: self.0.listed.load(Ordering::Relaxed),
            doing: self.0.doing.lock().unwrap_or_else(PoisonError::into_inner).clone(),
        }
    }

    pub(crate) fn add_read(&self, bytes: u64) {
        self.0.objects.fetch_add(1, Ordering::Relaxed);
        self.0.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(crate) fn add_listed(&self, count: usize) {
        self.0.listed.fetch_add(count as u64, Ordering::Relaxed);
    }

    pub(crate) fn set_doing(&self, doing: String) {
        *self.0.doing.lock().unwrap_or_else(PoisonError::into_inner) = doing;
    }
}
