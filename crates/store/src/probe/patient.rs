//! Waits where a store asks for less, so that a limit does not look like a
//! broken rule.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use headwater_core::id::Tag;
use tokio::time::sleep;

use super::basics;
use crate::forward::forward;
use crate::{
    Folder, HeadRead, HeadWrite, Listed, NoAnswer, NoAnswerKind, PutError, ReadError, Store,
};

/// How often a call is sent.
const ATTEMPTS_MAX: usize = 7;

/// The first pause. Each further one doubles it, to 4.8 seconds: there are
/// stores that want a second between two writes of an object.
const PAUSE_FIRST: Duration = Duration::from_millis(150);

/// Longest pause, also where a store asks for more.
const PAUSE_MAX: Duration = Duration::from_secs(5);

/// Repeats calls that were throttled or in somebody's way.
///
/// Head writes too, which nobody else may repeat: nothing is acknowledged here.
/// A store that applies what it throttles would be found to break a rule, and
/// that is as well.
#[derive(Debug)]
pub(super) struct Patient {
    inner: Arc<dyn Store>,
    n_unanswered: AtomicUsize,
}

impl Patient {
    pub(super) fn around(inner: &Arc<dyn Store>) -> Arc<Self> {
        Arc::new(Self { inner: Arc::clone(inner), n_unanswered: AtomicUsize::new(0) })
    }

    /// Calls that had no answer to judge a store by, whatever the patience.
    pub(super) fn n_unanswered(&self) -> usize {
        self.n_unanswered.load(Ordering::Relaxed)
    }

    fn note(&self, is_unanswered: bool) {
        self.n_unanswered.fetch_add(usize::from(is_unanswered), Ordering::Relaxed);
    }

    async fn settle<F>(&self, attempt: impl FnMut() -> F + Send) -> HeadWrite
    where
        F: Future<Output = HeadWrite> + Send,
    {
        let answer = settle(attempt).await;
        self.note(matches!(&answer, HeadWrite::NoAnswer(it) if !basics::is_wrong(it)));
        answer
    }

    async fn repeat<T, E, F>(&self, attempt: impl FnMut() -> F + Send) -> Result<T, E>
    where
        F: Future<Output = Result<T, E>> + Send,
        T: Send,
        E: AsReadError + Send,
    {
        let answer = repeat(attempt).await;
        self.note(answer.as_ref().is_err_and(AsReadError::is_transient));
        answer
    }
}

async fn settle<F>(mut attempt: impl FnMut() -> F + Send) -> HeadWrite
where
    F: Future<Output = HeadWrite> + Send,
{
    let (mut n_attempts, mut pause) = (1, PAUSE_FIRST);
    loop {
        let no_answer = match attempt().await {
            HeadWrite::NoAnswer(it) if is_worth_waiting(&it) && n_attempts < ATTEMPTS_MAX => it,
            answer @ (HeadWrite::Replaced { .. }
            | HeadWrite::Mismatch
            | HeadWrite::Gone
            | HeadWrite::NoAnswer(_)) => return answer,
        };
        sleep(no_answer.retry_after.unwrap_or_default().clamp(pause, PAUSE_MAX)).await;
        n_attempts += 1;
        pause *= 2;
    }
}

fn is_worth_waiting(no_answer: &NoAnswer) -> bool {
    match no_answer.kind {
        NoAnswerKind::Throttled | NoAnswerKind::Conflict => true,
        NoAnswerKind::Denied | NoAnswerKind::Other => false,
    }
}

/// Repeats what is safe to repeat while the store is unavailable.
async fn repeat<T, E, F>(mut attempt: impl FnMut() -> F + Send) -> Result<T, E>
where
    F: Future<Output = Result<T, E>> + Send,
    E: AsReadError,
{
    let (mut n_attempts, mut pause) = (1, PAUSE_FIRST);
    loop {
        match attempt().await {
            Err(error) if error.is_transient() && n_attempts < ATTEMPTS_MAX => sleep(pause).await,
            answer => return answer,
        }
        n_attempts += 1;
        pause *= 2;
    }
}

trait AsReadError {
    fn is_transient(&self) -> bool;
}

impl AsReadError for ReadError {
    fn is_transient(&self) -> bool {
        Self::is_transient(self)
    }
}

impl AsReadError for PutError {
    fn is_transient(&self) -> bool {
        match self {
            Self::Store(error) => error.is_transient(),
            Self::Occupied { .. } => false,
        }
    }
}

#[async_trait]
impl Store for Patient {
    forward!(inner: hints);

    async fn read_head(&self, key: &str, known: Option<&Tag>) -> Result<HeadRead, ReadError> {
        self.repeat(|| self.inner.read_head(key, known)).await
    }

    async fn create_head(&self, key: &str, bytes: Bytes) -> HeadWrite {
        self.settle(|| self.inner.create_head(key, bytes.clone())).await
    }

    async fn replace_head(&self, key: &str, if_match: &Tag, bytes: Bytes) -> HeadWrite {
        self.settle(|| self.inner.replace_head(key, if_match, bytes.clone())).await
    }

    async fn put(&self, key: &str, bytes: Bytes) -> Result<(), PutError> {
        self.repeat(|| self.inner.put(key, bytes.clone())).await
    }

    async fn get(&self, key: &str) -> Result<Bytes, ReadError> {
        self.repeat(|| self.inner.get(key)).await
    }

    async fn get_sized(&self, key: &str, size_bytes: u64) -> Result<Bytes, ReadError> {
        self.repeat(|| self.inner.get_sized(key, size_bytes)).await
    }

    async fn list(
        &self,
        prefix: &str,
        start_after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<Listed>, ReadError> {
        self.repeat(|| self.inner.list(prefix, start_after, limit)).await
    }

    async fn list_folder(&self, prefix: &str) -> Result<Folder, ReadError> {
        self.repeat(|| self.inner.list_folder(prefix)).await
    }

    async fn delete(&self, key: &str) -> Result<(), ReadError> {
        self.repeat(|| self.inner.delete(key)).await
    }
}
