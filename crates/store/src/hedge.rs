//! A second try of a read that takes unusually long.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures::future::{Either, select};
use tokio::time::{Instant, sleep};

use crate::forward::forward;
use crate::{ReadError, Store};

/// When a read is tried a second time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HedgeConfig {
    /// Second tries for each thousand reads at most; 0 is none.
    pub per_mille_max: u32,
    /// No second try earlier than this, however fast the store is.
    pub after_min: Duration,
    /// Objects larger than this are not read twice: their time is that of their
    /// bytes.
    pub size_bytes_max: u64,
}

impl Default for HedgeConfig {
    /// One in a hundred. 1 MiB takes some 20 ms to move, about a round trip.
    fn default() -> Self {
        Self { per_mille_max: 10, after_min: Duration::from_millis(2), size_bytes_max: 1 << 20 }
    }
}

/// Reads whose times are remembered.
const SAMPLES: usize = 512;
/// Reads before anything is known about the store.
const SAMPLES_MIN: usize = 64;
/// The percentiles are counted anew after this many reads.
const COUNT_EVERY: u32 = 64;
/// Second tries that can be saved up.
const SAVED_MAX: u32 = 8;
/// After a failure nothing is tried twice for this long: a store in trouble
/// gets fewer calls, not more.
const CALM: Duration = Duration::from_secs(1);

/// Sends a second read of an immutable object where the first one takes longer
/// than 95 of 100 lately, and takes the answer that comes first.
///
/// While there are more slow reads than second tries, only those wait for one
/// that are slower than 99 of 100: each try goes where it helps most. Writes
/// are never sent twice, nor are reads of heads, which must begin when the
/// caller thinks that they do.
#[derive(Debug)]
pub struct Hedge {
    inner: Arc<dyn Store>,
    config: HedgeConfig,
    known: Mutex<Known>,
}

#[derive(Debug, Default)]
struct Known {
    /// A ring of the last times.
    took: Vec<Duration>,
    next: usize,
    uncounted: u32,
    /// The 95th and the 99th percentile.
    slow: Option<(Duration, Duration)>,
    /// In thousandths of a second try.
    balance: u32,
    failed_at: Option<Instant>,
}

impl Known {
    fn note(&mut self, took: Duration) {
        if self.took.len() < SAMPLES {
            self.took.push(took);
        } else {
            self.took[self.next] = took;
            self.next = (self.next + 1) % SAMPLES;
        }
        self.uncounted += 1;
        let is_due = self.slow.is_none() || COUNT_EVERY <= self.uncounted;
        if is_due && SAMPLES_MIN <= self.took.len() {
            self.uncounted = 0;
            let mut sorted = self.took.clone();
            sorted.sort_unstable();
            let at = |percent| sorted[(sorted.len() - 1) * percent / 100];
            self.slow = Some((at(95), at(99)));
        }
    }

    /// How long a read that begins now may take before it is tried again.
    fn patience(&self) -> Option<Duration> {
        let (slow, very_slow) = self.slow?;
        let is_rich = SAVED_MAX * 1_000 / 2 <= self.balance;
        Some(if is_rich { slow } else { very_slow })
    }

    fn take_try(&mut self, now: Instant) -> bool {
        if self.failed_at.is_some_and(|it| now.duration_since(it) < CALM) {
            return false;
        }
        let rest = self.balance.checked_sub(1_000);
        self.balance = rest.unwrap_or(self.balance);
        rest.is_some()
    }
}

impl Hedge {
    /// Hedges the reads of `inner`.
    pub fn new(inner: Arc<dyn Store>, config: HedgeConfig) -> Self {
        Self { inner, config, known: Mutex::default() }
    }

    fn known<T>(&self, act: impl FnOnce(&mut Known) -> T) -> T {
        // Nothing in here panics halfway through a change.
        act(&mut self.known.lock().unwrap_or_else(PoisonError::into_inner))
    }

    async fn hedged<F>(&self, size_bytes: u64, read: impl Fn() -> F) -> Result<Bytes, ReadError>
    where
        F: Future<Output = Result<Bytes, ReadError>> + Send,
    {
        let is_small = size_bytes <= self.config.size_bytes_max;
        let patience = self.known(|it| {
            it.balance = (it.balance + self.config.per_mille_max).min(SAVED_MAX * 1_000);
            it.patience().filter(|_| is_small)
        });
        let began = Instant::now();
        let first = Box::pin(read());
        let answer = match patience {
            None => first.await,
            Some(patience) => {
                let timer = Box::pin(sleep(patience.max(self.config.after_min)));
                match select(first, timer).await {
                    Either::Left((answer, _)) => answer,
                    Either::Right(((), first)) => {
                        if self.known(|it| it.take_try(Instant::now())) {
                            sooner(first, Box::pin(read())).await
                        } else {
                            first.await
                        }
                    }
                }
            }
        };
        let now = Instant::now();
        match &answer {
            // The time of the pair, where there was one: a little less than the
            // first would have taken, for one read in a hundred.
            Ok(_) if is_small => self.known(|it| it.note(now.duration_since(began))),
            Err(error) if error.is_transient() => self.known(|it| it.failed_at = Some(now)),
            Ok(_) | Err(_) => (),
        }
        answer
    }
}

/// The answer that comes first, unless it is a failure that the other one may
/// not have.
async fn sooner<F, G>(first: F, second: G) -> Result<Bytes, ReadError>
where
    F: Future<Output = Result<Bytes, ReadError>> + Unpin,
    G: Future<Output = Result<Bytes, ReadError>> + Unpin,
{
    match select(first, second).await {
        Either::Left((Err(error), other)) if error.is_transient() => other.await,
        Either::Right((Err(error), other)) if error.is_transient() => other.await,
        Either::Left((answer, _)) | Either::Right((answer, _)) => answer,
    }
}

#[async_trait]
impl Store for Hedge {
    // `get` too: it is rare, and nobody knows how large the object is.
    forward!(inner: hints, read_head, create_head, replace_head, put, get, list, list_folder, delete);

    async fn get_sized(&self, key: &str, size_bytes: u64) -> Result<Bytes, ReadError> {
        self.hedged(size_bytes, || self.inner.get_sized(key, size_bytes)).await
    }
}
