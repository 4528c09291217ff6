//! Counts calls and bytes.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use headwater_core::id::Tag;
use tokio::time::Instant;
use tracing::field::Empty;
use tracing::{Instrument as _, Span};

use crate::forward::forward;
use crate::{Call, Folder, HeadRead, HeadWrite, Listed, PutError, ReadError, Store};

/// How a call ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Outcome {
    /// It did what it was asked to.
    Done,
    /// A head still has the known tag (304).
    Unchanged,
    /// There is no such object.
    Missing,
    /// The condition of a head write failed.
    Mismatch,
    /// There was no head to replace.
    Gone,
    /// A head write got no trustworthy answer.
    NoAnswer,
    /// The key of an immutable object holds other bytes.
    Occupied,
    /// The store could not be used.
    Unavailable,
    /// The store refused.
    Denied,
    /// The caller did not wait for the end, because of a time limit for
    /// instance. The request may have been sent, and be on the bill.
    Abandoned,
}

impl Outcome {
    /// All of them.
    pub const ALL: [Self; 10] = [
        Self::Done,
        Self::Unchanged,
        Self::Missing,
        Self::Mismatch,
        Self::Gone,
        Self::NoAnswer,
        Self::Occupied,
        Self::Unavailable,
        Self::Denied,
        Self::Abandoned,
    ];

    /// The word for logs and metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Unchanged => "unchanged",
            Self::Missing => "missing",
            Self::Mismatch => "mismatch",
            Self::Gone => "gone",
            Self::NoAnswer => "no_answer",
            Self::Occupied => "occupied",
            Self::Unavailable => "unavailable",
            Self::Denied => "denied",
            Self::Abandoned => "abandoned",
        }
    }

    /// Whether the store did not do what it was asked to, and not because of
    /// what it holds.
    pub const fn is_failure(self) -> bool {
        match self {
            Self::NoAnswer | Self::Unavailable | Self::Denied | Self::Abandoned => true,
            Self::Done
            | Self::Unchanged
            | Self::Missing
            | Self::Mismatch
            | Self::Gone
            | Self::Occupied => false,
        }
    }

    fn of_error(error: &ReadError) -> Self {
        match error {
            ReadError::Unavailable { .. } => Self::Unavailable,
            ReadError::Missing { .. } => Self::Missing,
            // Nothing below the meter opens what is sealed.
            ReadError::Denied { .. } | ReadError::Sealed { .. } => Self::Denied,
        }
    }

    fn of_read<T>(answer: &Result<T, ReadError>) -> Self {
        answer.as_ref().err().map_or(Self::Done, Self::of_error)
    }

    fn of_head(answer: &Result<HeadRead, ReadError>) -> Self {
        match answer {
            Ok(HeadRead::Unchanged) => Self::Unchanged,
            Ok(HeadRead::Missing) => Self::Missing,
            Ok(HeadRead::Found { .. }) => Self::Done,
            Err(error) => Self::of_error(error),
        }
    }

    fn of_put(answer: &Result<(), PutError>) -> Self {
        match answer {
            Ok(()) => Self::Done,
            Err(PutError::Occupied { .. }) => Self::Occupied,
            Err(PutError::Store(error)) => Self::of_error(error),
        }
    }

    fn of_write(answer: &HeadWrite) -> Self {
        match answer {
            HeadWrite::Replaced { .. } => Self::Done,
            HeadWrite::Mismatch => Self::Mismatch,
            HeadWrite::Gone => Self::Gone,
            HeadWrite::NoAnswer(_) => Self::NoAnswer,
        }
    }
}

/// Names that one request of a listing gives, in every store.
const NAMES_ON_A_PAGE: usize = 1_000;
const N_CALLS: usize = Call::ALL.len();
const N_OUTCOMES: usize = Outcome::ALL.len();

/// What was counted since the meter was made, or between two readings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Readings {
    counts: [[u64; N_OUTCOMES]; N_CALLS],
    bytes_up: u64,
    bytes_down: u64,
    pages: u64,
    /// Requests of puts beyond one for each.
    parts: u64,
    /// Requests of reads beyond one for each.
    ranges: u64,
}

/// What stores charge for, by the class of their price lists.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Requests {
    /// PUT, COPY, POST and LIST.
    pub puts: u64,
    /// GET, conditional ones included.
    pub gets: u64,
    /// DELETE, which most stores do not charge for.
    pub deletes: u64,
}

impl Readings {
    /// Calls that ended so.
    pub const fn count(&self, call: Call, outcome: Outcome) -> u64 {
        self.counts[call as usize][outcome as usize]
    }

    /// Calls that ended, however they did.
    pub fn calls(&self, call: Call) -> u64 {
        self.counts[call as usize].iter().sum()
    }

    /// Calls of every kind that ended.
    pub fn total(&self) -> u64 {
        self.counts.as_flattened().iter().sum()
    }

    /// Requests by class. A call is one request, but for listings, which are one
    /// for each 1,000 names, and for large objects, which go and come in parts. A
    /// put that found its key taken has read it too.
    pub fn requests(&self) -> Requests {
        let writes = [Call::CreateHead, Call::ReplaceHead, Call::Put];
        let writes: u64 = writes.iter().map(|it| self.calls(*it)).sum();
        let failed = |call| self.calls(call) - self.count(call, Outcome::Done);
        Requests {
            puts: writes + self.parts + self.pages + failed(Call::List) + failed(Call::ListFolder),
            gets: self.calls(Call::ReadHead)
                + self.calls(Call::Get)
                + self.ranges
                + self.count(Call::Put, Outcome::Occupied),
            deletes: self.calls(Call::Delete),
        }
    }

    /// Bytes of objects and heads sent, of calls that failed too.
    pub const fn bytes_up(&self) -> u64 {
        self.bytes_up
    }

    /// Bytes of objects and heads received.
    pub const fn bytes_down(&self) -> u64 {
        self.bytes_down
    }

    /// Both together: of two meters.
    #[must_use]
    pub fn plus(&self, other: &Self) -> Self {
        let mut counts = self.counts;
        let cells = counts.as_flattened_mut().iter_mut();
        for (sum, more) in cells.zip(other.counts.as_flattened()) {
            *sum = sum.saturating_add(*more);
        }
        Self {
            counts,
            bytes_up: self.bytes_up.saturating_add(other.bytes_up),
            bytes_down: self.bytes_down.saturating_add(other.bytes_down),
            pages: self.pages.saturating_add(other.pages),
            parts: self.parts.saturating_add(other.parts),
            ranges: self.ranges.saturating_add(other.ranges),
        }
    }

    /// What came after `earlier`, a reading of the same meter.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let mut counts = self.counts;
        let cells = counts.as_flattened_mut().iter_mut();
        for (now, then) in cells.zip(earlier.counts.as_flattened()) {
            *now = now.saturating_sub(*then);
        }
        Self {
            counts,
            bytes_up: self.bytes_up.saturating_sub(earlier.bytes_up),
            bytes_down: self.bytes_down.saturating_sub(earlier.bytes_down),
            pages: self.pages.saturating_sub(earlier.pages),
            parts: self.parts.saturating_sub(earlier.parts),
            ranges: self.ranges.saturating_sub(earlier.ranges),
        }
    }
}

/// Who is told of each call that ended.
pub trait CallWatcher: fmt::Debug + Send + Sync + 'static {
    /// A call ended so, after this time. Called on the path of the call: it has
    /// to be quick.
    fn ended(&self, call: Call, outcome: Outcome, took: Duration);
}

/// Counts what passes through it.
#[derive(Debug)]
pub struct Meter {
    inner: Arc<dyn Store>,
    counts: [[AtomicU64; N_OUTCOMES]; N_CALLS],
    bytes_up: AtomicU64,
    bytes_down: AtomicU64,
    /// Pages of listings that were answered.
    pages: AtomicU64,
    /// Requests of puts beyond one for each.
    parts: AtomicU64,
    /// Requests of reads beyond one for each.
    ranges: AtomicU64,
    began: Instant,
    watcher: OnceLock<Arc<dyn CallWatcher>>,
}

impl Meter {
    /// Counts the calls of `inner`, from zero.
    pub fn new(inner: Arc<dyn Store>) -> Self {
        Self {
            inner,
            counts: Default::default(),
            bytes_up: AtomicU64::default(),
            bytes_down: AtomicU64::default(),
            pages: AtomicU64::default(),
            parts: AtomicU64::default(),
            ranges: AtomicU64::default(),
            began: Instant::now(),
            watcher: OnceLock::new(),
        }
    }

    /// Has `watcher` told of each call that ends from now on. There can be one;
    /// whether it is this.
    pub fn watch_with(&self, watcher: Arc<dyn CallWatcher>) -> bool {
        self.watcher.set(watcher).is_ok()
    }

    /// The counts so far. Calls in flight may be in some of them only.
    pub fn read(&self) -> Readings {
        let mut readings = Readings::default();
        for (cells, counters) in readings.counts.iter_mut().zip(&self.counts) {
            for (cell, counter) in cells.iter_mut().zip(counters) {
                *cell = counter.load(Ordering::Relaxed);
            }
        }
        readings.bytes_up = self.bytes_up.load(Ordering::Relaxed);
        readings.bytes_down = self.bytes_down.load(Ordering::Relaxed);
        readings.pages = self.pages.load(Ordering::Relaxed);
        readings.parts = self.parts.load(Ordering::Relaxed);
        readings.ranges = self.ranges.load(Ordering::Relaxed);
        readings
    }

    /// How long it has counted.
    pub fn counted_for(&self) -> Duration {
        self.began.elapsed()
    }

    fn count_pages(&self, n_names: usize) {
        let pages = n_names.div_ceil(NAMES_ON_A_PAGE).max(1);
        self.pages.fetch_add(pages as u64, Ordering::Relaxed);
    }

    /// Waits for a call, and counts how it ended: dropped before its end too.
    async fn watch<T>(
        &self,
        call: Call,
        key: &str,
        inner: impl Future<Output = T> + Send,
        outcome: fn(&T) -> Outcome,
    ) -> T {
        // Exists where the caller is traced. The key says what the bucket was
        // asked for; it holds hashes and the history's name, nothing secret.
        let span = tracing::debug_span!(
            target: "headwater::trace",
            "store",
            otel.name = call.as_str(),
            otel.kind = "client",
            otel.status_code = Empty,
            headwater.store.key = key,
            headwater.store.outcome = Empty,
        );
        let mut watched = Watched {
            meter: self,
            call,
            began: Instant::now(),
            span: span.clone(),
            outcome: Outcome::Abandoned,
        };
        let answer = inner.instrument(span).await;
        watched.outcome = outcome(&answer);
        answer
    }

    fn count_up(&self, bytes: &Bytes) {
        self.bytes_up.fetch_add(bytes.len() as u64, Ordering::Relaxed);
    }

    fn count_down(&self, bytes: &Bytes) {
        self.bytes_down.fetch_add(bytes.len() as u64, Ordering::Relaxed);
    }
}

/// A call under way; counted when dropped.
struct Watched<'a> {
    meter: &'a Meter,
    call: Call,
    began: Instant,
    span: Span,
    outcome: Outcome,
}

impl Drop for Watched<'_> {
    fn drop(&mut self) {
        let counter = &self.meter.counts[self.call as usize][self.outcome as usize];
        counter.fetch_add(1, Ordering::Relaxed);
        if let Some(watcher) = self.meter.watcher.get() {
            watcher.ended(self.call, self.outcome, self.began.elapsed());
        }
        if !self.span.is_disabled() {
            self.span.record("headwater.store.outcome", self.outcome.as_str());
            if self.outcome.is_failure() {
                self.span.record("otel.status_code", "ERROR");
            }
        }
    }
}

#[async_trait]
impl Store for Meter {
    forward!(inner: hints);

    async fn read_head(&self, key: &str, known: Option<&Tag>) -> Result<HeadRead, ReadError> {
        let inner = self.inner.read_head(key, known);
        let answer = self.watch(Call::ReadHead, key, inner, Outcome::of_head).await;
        if let Ok(HeadRead::Found { bytes, .. }) = &answer {
            self.count_down(bytes);
        }
        answer
    }

    async fn create_head(&self, key: &str, bytes: Bytes) -> HeadWrite {
        self.count_up(&bytes);
        let inner = self.inner.create_head(key, bytes);
        self.watch(Call::CreateHead, key, inner, Outcome::of_write).await
    }

    async fn replace_head(&self, key: &str, if_match: &Tag, bytes: Bytes) -> HeadWrite {
        self.count_up(&bytes);
        let inner = self.inner.replace_head(key, if_match, bytes);
        self.watch(Call::ReplaceHead, key, inner, Outcome::of_write).await
    }

    async fn put(&self, key: &str, bytes: Bytes) -> Result<(), PutError> {
        self.count_up(&bytes);
        let more = self.inner.put_requests(bytes.len() as u64).saturating_sub(1);
        self.parts.fetch_add(more, Ordering::Relaxed);
        self.watch(Call::Put, key, self.inner.put(key, bytes), Outcome::of_put).await
    }

    async fn get(&self, key: &str) -> Result<Bytes, ReadError> {
        let answer = self.watch(Call::Get, key, self.inner.get(key), Outcome::of_read).await;
        if let Ok(bytes) = &answer {
            self.count_down(bytes);
        }
        answer
    }

    async fn get_sized(&self, key: &str, size_bytes: u64) -> Result<Bytes, ReadError> {
        let more = self.inner.get_requests(size_bytes).saturating_sub(1);
        self.ranges.fetch_add(more, Ordering::Relaxed);
        let inner = self.inner.get_sized(key, size_bytes);
        let answer = self.watch(Call::Get, key, inner, Outcome::of_read).await;
        if let Ok(bytes) = &answer {
            self.count_down(bytes);
        }
        answer
    }

    async fn list(
        &self,
        prefix: &str,
        start_after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<Listed>, ReadError> {
        let inner = self.inner.list(prefix, start_after, limit);
        let answer = self.watch(Call::List, prefix, inner, Outcome::of_read).await;
        if let Ok(listed) = &answer {
            self.count_pages(listed.len());
        }
        answer
    }

    async fn list_folder(&self, prefix: &str) -> Result<Folder, ReadError> {
        let inner = self.inner.list_folder(prefix);
        let answer = self.watch(Call::ListFolder, prefix, inner, Outcome::of_read).await;
        if let Ok(folder) = &answer {
            self.count_pages(folder.objects.len() + folder.folders.len());
        }
        answer
    }

    async fn delete(&self, key: &str) -> Result<(), ReadError> {
        self.watch(Call::Delete, key, self.inner.delete(key), Outcome::of_read).await
    }
}
