//! Not asking more of a bucket than it takes.
//!
//! In here: the pace of each head ([`head`]) and of each prefix of keys
//! ([`prefix`]), learned from the answers. Not in here: repeats, which are
//! [`Retry`](crate::Retry)'s, and what to do with the time that a head rests,
//! which is the writer's: it gathers operations.
//!
//! # Invariants
//!
//! - A replacement of a head never waits in here: its condition would go stale,
//!   and its batch could not grow. Whoever forms it asks
//!   [`Store::replacement_pause`] first.
//! - A read of a head never waits in here either: there are few of them, and
//!   they are what callers with deadlines wait for.

mod head;
mod prefix;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use headwater_core::id::Tag;
use tokio::time::{Instant, sleep_until};

use self::head::{HeadPace, Verdict};
use self::prefix::PrefixPace;
use crate::forward::forward;
use crate::{Call, Folder, HeadWrite, Listed, NoAnswer, NoAnswerKind, PutError, ReadError, Store};

/// Heads, and prefixes, that are remembered at a time.
const REMEMBERED_MAX: usize = 4_096;

/// What is known of a store beforehand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PaceConfig {
    /// The rest that one head gets between two replacements, where the store's
    /// limit is known. Zero: it is found out, at the cost of some refusals.
    pub head_interval: Duration,
    /// No call waits longer than this for its turn; it fails instead.
    pub wait_max: Duration,
}

impl Default for PaceConfig {
    fn default() -> Self {
        Self { head_interval: Duration::ZERO, wait_max: Duration::from_secs(20) }
    }
}

impl PaceConfig {
    /// What stores with a limit on one object get: Google Cloud Storage and
    /// Cloudflare R2 take one write of an object a second
    /// (<https://cloud.google.com/storage/quotas#objects>,
    /// <https://developers.cloudflare.com/r2/platform/limits/>). A twentieth
    /// more, because requests do not arrive as evenly as they are sent.
    pub const ONE_A_SECOND: Duration = Duration::from_millis(1_050);

    /// What is known of the store behind `url`, as [`open`](fn@crate::open)
    /// takes it.
    pub fn of_url(url: &str) -> Self {
        let is_limited = url.starts_with("gs://") || url.contains(".r2.cloudflarestorage.com");
        let head_interval = if is_limited { Self::ONE_A_SECOND } else { Duration::ZERO };
        Self { head_interval, ..Self::default() }
    }
}

/// There were too many calls before this one.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("the object store refuses calls, and too many wait for their turn")]
pub struct Crowded;

/// Learns what the bucket takes, and holds calls back to it.
#[derive(Debug)]
pub struct Pace {
    inner: Arc<dyn Store>,
    config: PaceConfig,
    heads: Mutex<BTreeMap<String, HeadPace>>,
    prefixes: Mutex<BTreeMap<(Kind, String), PrefixPace>>,
}

/// Stores count reads and writes apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Read,
    Write,
}

impl Pace {
    /// Paces the calls of `inner`.
    pub fn new(inner: Arc<dyn Store>, config: PaceConfig) -> Self {
        Self { inner, config, heads: Mutex::default(), prefixes: Mutex::default() }
    }

    /// Waits for the turn of a call, makes it, and learns from how it ended.
    async fn in_turn<T, E: From<ReadError> + Failure>(
        &self,
        call: Call,
        key: &str,
        made: impl Future<Output = Result<T, E>> + Send,
    ) -> Result<T, E> {
        let place = place(call, key);
        let now = Instant::now();
        let at = self.with_prefix(&place, |it| it.reserve(now, now + self.config.wait_max));
        let Some(at) = at else {
            let cause = Box::new(Crowded);
            return Err(ReadError::Unavailable { retry_after: None, cause }.into());
        };
        if now < at {
            sleep_until(at).await;
        }
        let answer = made.await;
        let is_failed = answer.as_ref().err().is_some_and(Failure::is_transient);
        let now = Instant::now();
        self.with_prefix(&place, |it| if is_failed { it.failed(now) } else { it.answered(now) });
        answer
    }

    fn with_prefix<T>(&self, place: &(Kind, String), act: impl FnOnce(&mut PrefixPace) -> T) -> T {
        let mut prefixes = locked(&self.prefixes);
        if let Some(found) = prefixes.get_mut(place) {
            return act(found);
        }
        if REMEMBERED_MAX <= prefixes.len() {
            prefixes.retain(|_, it| !it.is_plain());
        }
        let now = Instant::now();
        if REMEMBERED_MAX <= prefixes.len() {
            return act(&mut PrefixPace::new(now));
        }
        act(prefixes.entry(place.clone()).or_insert_with(|| PrefixPace::new(now)))
    }

    fn with_head<T>(&self, key: &str, act: impl FnOnce(&mut HeadPace) -> T) -> T {
        let mut heads = locked(&self.heads);
        if let Some(found) = heads.get_mut(key) {
            return act(found);
        }
        if REMEMBERED_MAX <= heads.len() {
            let now = Instant::now();
            heads.retain(|_, it| !it.is_plain(now));
        }
        let mut pace = HeadPace::new(self.config.head_interval);
        if REMEMBERED_MAX <= heads.len() {
            return act(&mut pace);
        }
        act(heads.entry(key.to_owned()).or_insert(pace))
    }

    async fn watched(&self, key: &str, write: impl Future<Output = HeadWrite> + Send) -> HeadWrite {
        let sent_at = Instant::now();
        self.with_head(key, |it| it.sent(sent_at));
        let answer = write.await;
        let verdict = verdict(&answer);
        self.with_head(key, |it| it.answered(verdict, Instant::now()));
        answer
    }
}

/// An error that may be a sign of too many calls.
trait Failure {
    fn is_transient(&self) -> bool;
}

impl Failure for ReadError {
    fn is_transient(&self) -> bool {
        self.is_transient()
    }
}

impl Failure for PutError {
    fn is_transient(&self) -> bool {
        match self {
            Self::Store(error) => error.is_transient(),
            Self::Occupied { .. } => false,
        }
    }
}

fn verdict(answer: &HeadWrite) -> Verdict {
    match answer {
        HeadWrite::Replaced { .. } => Verdict::Applied,
        HeadWrite::Mismatch | HeadWrite::Gone => Verdict::Other,
        HeadWrite::NoAnswer(NoAnswer { kind, retry_after, .. }) => match kind {
            NoAnswerKind::Throttled | NoAnswerKind::Conflict => {
                Verdict::Refused { retry_after: *retry_after }
            }
            NoAnswerKind::Denied | NoAnswerKind::Other => Verdict::Other,
        },
    }
}

/// What a call counts towards: the first folder below the root, for stores
/// split their keys from the left.
fn place(call: Call, key: &str) -> (Kind, String) {
    let kind = if call.is_write() { Kind::Write } else { Kind::Read };
    let folder = key.split_once('/').map_or("", |(folder, _)| folder);
    (kind, folder.to_owned())
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing in here panics halfway through a change.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[async_trait]
impl Store for Pace {
    forward!(inner: put_requests, get_requests, reads_in_vain, read_head);

    fn replacement_pause(&self, key: &str) -> Duration {
        let now = Instant::now();
        let known = self.inner.replacement_pause(key);
        locked(&self.heads).get(key).map_or(known, |it| it.pause(now).max(known))
    }

    async fn create_head(&self, key: &str, bytes: Bytes) -> HeadWrite {
        self.watched(key, self.inner.create_head(key, bytes)).await
    }

    async fn replace_head(&self, key: &str, if_match: &Tag, bytes: Bytes) -> HeadWrite {
        self.watched(key, self.inner.replace_head(key, if_match, bytes)).await
    }

    async fn put(&self, key: &str, bytes: Bytes) -> Result<(), PutError> {
        self.in_turn(Call::Put, key, self.inner.put(key, bytes)).await
    }

    async fn get(&self, key: &str) -> Result<Bytes, ReadError> {
        self.in_turn(Call::Get, key, self.inner.get(key)).await
    }

    async fn get_sized(&self, key: &str, size_bytes: u64) -> Result<Bytes, ReadError> {
        self.in_turn(Call::Get, key, self.inner.get_sized(key, size_bytes)).await
    }

    async fn list(
        &self,
        prefix: &str,
        start_after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<Listed>, ReadError> {
        self.in_turn(Call::List, prefix, self.inner.list(prefix, start_after, limit)).await
    }

    async fn list_folder(&self, prefix: &str) -> Result<Folder, ReadError> {
        self.in_turn(Call::ListFolder, prefix, self.inner.list_folder(prefix)).await
    }

    async fn delete(&self, key: &str) -> Result<(), ReadError> {
        self.in_turn(Call::Delete, key, self.inner.delete(key)).await
    }
}
