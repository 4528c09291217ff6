//! Repeats of calls that may be repeated.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use headwater_core::id::Tag;
use tokio::time::{Instant, sleep};

use crate::forward::forward;
use crate::{
    Call, Entropy, Folder, HeadRead, HeadWrite, Listed, PutError, ReadError, RetryBudget, Store,
};

/// How often a call is repeated, and how fast.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetryConfig {
    /// Calls in all, the first one included. Below 1 counts as 1.
    pub attempts_max: u32,
    /// The same for reads of a head. Few: who waits for a head has a deadline
    /// and a loop of its own.
    pub head_attempts_max: u32,
    /// No attempt begins later than this after the first one began.
    pub total_max: Duration,
    /// Bound of the first pause; each further one doubles it. A pause is drawn
    /// from zero to its bound, so that callers who failed together do not come
    /// back together.
    pub pause_first: Duration,
    /// Bound of the longest pause.
    pub pause_max: Duration,
}

impl Default for RetryConfig {
    /// Pauses of up to 0.1, 0.2, 0.4, 0.8, 1.6 and then 2 seconds, eight seconds
    /// together as a rule. Where every fifth call fails, twelve attempts fail
    /// once in 200 million calls; it is the budget that bounds what a bad bucket
    /// is asked.
    fn default() -> Self {
        Self {
            attempts_max: 12,
            head_attempts_max: 3,
            total_max: Duration::from_secs(30),
            pause_first: Duration::from_millis(100),
            pause_max: Duration::from_secs(2),
        }
    }
}

/// Repeats reads, listings, deletions and writes of immutable objects while the
/// bucket is unavailable. Never a write of a head: what such a call did is the
/// protocol's to find out (PROTOCOL 4). But the next replacement after one that
/// had no answer is a repeat all the same, so it is taken from the budget, and
/// [`Store::replacement_pause`] says when its turn is.
#[derive(Debug)]
pub struct Retry {
    inner: Arc<dyn Store>,
    config: RetryConfig,
    entropy: Entropy,
    budget: Arc<RetryBudget>,
    /// Heads whose last replacement had no answer, and when the next one may go.
    turns: Mutex<BTreeMap<String, Instant>>,
}

/// Heads that are remembered at a time.
const HEADS_MAX: usize = 4_096;

/// An error that may be worth another attempt.
trait Failure: fmt::Display {
    fn as_read_error(&self) -> Option<&ReadError>;
}

impl Failure for ReadError {
    fn as_read_error(&self) -> Option<&ReadError> {
        Some(self)
    }
}

impl Failure for PutError {
    fn as_read_error(&self) -> Option<&ReadError> {
        match self {
            Self::Store(error) => Some(error),
            Self::Occupied { .. } => None,
        }
    }
}

impl Retry {
    /// Repeats the calls of `inner`, with a budget of its own.
    pub fn new(inner: Arc<dyn Store>, config: RetryConfig, entropy: Entropy) -> Self {
        Self::within(inner, config, entropy, Arc::default())
    }

    /// Repeats the calls of `inner` as far as `budget` goes, which others may
    /// draw on too.
    pub fn within(
        inner: Arc<dyn Store>,
        config: RetryConfig,
        entropy: Entropy,
        budget: Arc<RetryBudget>,
    ) -> Self {
        Self { inner, config, entropy, budget, turns: Mutex::default() }
    }

    fn turns(&self) -> MutexGuard<'_, BTreeMap<String, Instant>> {
        // Nothing in here panics halfway through a change.
        self.turns.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives the head's next replacement a turn, if it will be a repeat.
    fn note(&self, key: &str, answer: &HeadWrite) {
        match answer {
            HeadWrite::NoAnswer(_) => {
                let at = self.budget.take_turn(Instant::now());
                let mut turns = self.turns();
                if HEADS_MAX <= turns.len() {
                    let now = Instant::now();
                    turns.retain(|_, it| now < *it);
                }
                if turns.len() < HEADS_MAX {
                    turns.insert(key.to_owned(), at);
                }
            }
            HeadWrite::Replaced { .. } | HeadWrite::Mismatch | HeadWrite::Gone => {
                self.turns().remove(key);
            }
        }
    }

    async fn repeat<T, E, F>(
        &self,
        call: Call,
        key: &str,
        mut attempt: impl FnMut() -> F + Send,
    ) -> Result<T, E>
    where
        F: Future<Output = Result<T, E>> + Send,
        T: Send,
        E: Failure + Send,
    {
        let is_head = call == Call::ReadHead;
        let attempts_max =
            if is_head { self.config.head_attempts_max } else { self.config.attempts_max };
        let began = Instant::now();
        let latest = began + self.config.total_max;
        let mut bound = self.config.pause_first;
        let mut n_attempts = 1;
        self.budget.deposit();
        loop {
            let error = match attempt().await {
                Ok(value) => return Ok(value),
                Err(error) => error,
            };
            let Some(store_error) = error.as_read_error().filter(|it| it.is_transient()) else {
                return Err(error);
            };
            // A store that names a time is not asked earlier. The jitter comes
            // on top: it names the same time to everybody.
            let floor = store_error.retry_after().unwrap_or_default();
            let pause = floor.saturating_add(self.entropy.jitter(bound));
            let is_late = self.config.total_max < began.elapsed().saturating_add(pause);
            if attempts_max <= n_attempts || is_late {
                return Err(error);
            }
            let call = call.as_str();
            tracing::debug!(call, key, n_attempts, ?pause, %error, "repeating a store call");
            sleep(pause).await;
            // A bucket in trouble gets repeats as fast as the whole process may
            // make them, and callers wait; past their time there is the error.
            if !self.budget.withdraw(latest).await {
                return Err(error);
            }
            n_attempts += 1;
            bound = bound.saturating_mul(2).min(self.config.pause_max);
        }
    }
}

#[async_trait]
impl Store for Retry {
    forward!(inner: put_requests, get_requests, reads_in_vain, create_head);

    fn replacement_pause(&self, key: &str) -> Duration {
        let turn = self.turns().get(key).copied();
        let wait = turn.map(|it| it.saturating_duration_since(Instant::now()));
        self.inner.replacement_pause(key).max(wait.unwrap_or_default())
    }

    async fn replace_head(&self, key: &str, if_match: &Tag, bytes: Bytes) -> HeadWrite {
        let is_repeat = self.turns().contains_key(key);
        if !is_repeat {
            self.budget.deposit();
        }
        let answer = self.inner.replace_head(key, if_match, bytes.clone()).await;
        self.note(key, &answer);
        if planted!(HeadRepeated) && matches!(answer, HeadWrite::NoAnswer(_)) {
            return self.inner.replace_head(key, if_match, bytes).await;
        }
        answer
    }

    async fn read_head(&self, key: &str, known: Option<&Tag>) -> Result<HeadRead, ReadError> {
        self.repeat(Call::ReadHead, key, || self.inner.read_head(key, known)).await
    }

    // Safe to repeat: an attempt that was applied unseen is found by the next
    // one, which compares the bytes.
    async fn put(&self, key: &str, bytes: Bytes) -> Result<(), PutError> {
        let put = self.repeat(Call::Put, key, || self.inner.put(key, bytes.clone())).await;
        if planted!(OccupiedTakenAsWritten) && matches!(put, Err(PutError::Occupied { .. })) {
            return Ok(());
        }
        put
    }

    async fn get(&self, key: &str) -> Result<Bytes, ReadError> {
        self.repeat(Call::Get, key, || self.inner.get(key)).await
    }

    async fn get_sized(&self, key: &str, size_bytes: u64) -> Result<Bytes, ReadError> {
        self.repeat(Call::Get, key, || self.inner.get_sized(key, size_bytes)).await
    }

    async fn list(
        &self,
        prefix: &str,
        start_after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<Listed>, ReadError> {
        self.repeat(Call::List, prefix, || self.inner.list(prefix, start_after, limit)).await
    }

    async fn list_folder(&self, prefix: &str) -> Result<Folder, ReadError> {
        self.repeat(Call::ListFolder, prefix, || self.inner.list_folder(prefix)).await
    }

    // Safe to repeat: keys of deleted objects are not used again.
    async fn delete(&self, key: &str) -> Result<(), ReadError> {
        self.repeat(Call::Delete, key, || self.inner.delete(key)).await
    }
}
