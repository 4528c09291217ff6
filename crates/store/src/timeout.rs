//! A bound on every call.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use headwater_core::id::Tag;
use tokio::time::timeout;

use crate::forward::forward;
use crate::{
    Folder, HeadRead, HeadWrite, Listed, NoAnswer, NoAnswerKind, PutError, ReadError, Store,
};

/// How long a call may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimeoutConfig {
    /// Reads and writes of a head, one page of a listing, one deletion. Five
    /// seconds: over fifty times what a healthy bucket takes.
    pub small: Duration,
    /// Immutable objects, whole, whose size is not known before. A minute is
    /// 64 MiB at 1.1 MiB/s.
    pub object: Duration,
    /// Immutable objects of known size get `small`, and a second for each of
    /// this many bytes. 1 MiB/s is a thirtieth of what one connection moves.
    pub bytes_per_second: u64,
}

impl TimeoutConfig {
    fn of_size(&self, size_bytes: u64) -> Duration {
        let ms = size_bytes.saturating_mul(1_000) / self.bytes_per_second.max(1);
        self.small.saturating_add(Duration::from_millis(ms))
    }
}

impl Default for TimeoutConfig {
    fn default() -> Self {
        Self {
            small: Duration::from_secs(5),
            object: Duration::from_secs(60),
            bytes_per_second: 1 << 20,
        }
    }
}

/// The call took longer than its limit.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("the object store did not answer within {limit:?}")]
pub struct TimedOut {
    /// The limit.
    pub limit: Duration,
}

/// Cuts off calls that take too long. A head write that was cut off has
/// [no answer](HeadWrite::NoAnswer).
#[derive(Debug)]
pub struct Timeout {
    inner: Arc<dyn Store>,
    config: TimeoutConfig,
}

impl Timeout {
    /// Bounds the calls of `inner`.
    pub fn new(inner: Arc<dyn Store>, config: TimeoutConfig) -> Self {
        Self { inner, config }
    }
}

async fn bound<T, E: From<ReadError>>(
    limit: Duration,
    call: impl Future<Output = Result<T, E>> + Send,
) -> Result<T, E> {
    timeout(limit, call).await.unwrap_or_else(|_| {
        Err(ReadError::Unavailable { retry_after: None, cause: Box::new(TimedOut { limit }) }
            .into())
    })
}

async fn bound_write(limit: Duration, call: impl Future<Output = HeadWrite> + Send) -> HeadWrite {
    timeout(limit, call).await.unwrap_or_else(|_| {
        let cause = Box::new(TimedOut { limit });
        HeadWrite::NoAnswer(NoAnswer { kind: NoAnswerKind::Other, retry_after: None, cause })
    })
}

#[async_trait]
impl Store for Timeout {
    forward!(inner: hints);

    async fn read_head(&self, key: &str, known: Option<&Tag>) -> Result<HeadRead, ReadError> {
        bound(self.config.small, self.inner.read_head(key, known)).await
    }

    async fn create_head(&self, key: &str, bytes: Bytes) -> HeadWrite {
        bound_write(self.config.small, self.inner.create_head(key, bytes)).await
    }

    async fn replace_head(&self, key: &str, if_match: &Tag, bytes: Bytes) -> HeadWrite {
        bound_write(self.config.small, self.inner.replace_head(key, if_match, bytes)).await
    }

    async fn put(&self, key: &str, bytes: Bytes) -> Result<(), PutError> {
        let limit = self.config.of_size(bytes.len() as u64);
        bound(limit, self.inner.put(key, bytes)).await
    }

    async fn get(&self, key: &str) -> Result<Bytes, ReadError> {
        bound(self.config.object, self.inner.get(key)).await
    }

    async fn get_sized(&self, key: &str, size_bytes: u64) -> Result<Bytes, ReadError> {
        bound(self.config.of_size(size_bytes), self.inner.get_sized(key, size_bytes)).await
    }

    async fn list(
        &self,
        prefix: &str,
        start_after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<Listed>, ReadError> {
        // More than one page of 1,000 takes more than one request.
        let pages = u32::try_from(limit.div_ceil(1000)).unwrap_or(u32::MAX).max(1);
        let bound_by = self.config.small.saturating_mul(pages).min(self.config.object);
        bound(bound_by, self.inner.list(prefix, start_after, limit)).await
    }

    async fn list_folder(&self, prefix: &str) -> Result<Folder, ReadError> {
        bound(self.config.object, self.inner.list_folder(prefix)).await
    }

    async fn delete(&self, key: &str) -> Result<(), ReadError> {
        bound(self.config.small, self.inner.delete(key)).await
    }
}
