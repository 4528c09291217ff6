//! A bucket that is further away, for benches and tests.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use headwater_core::id::Tag;
use tokio::time::sleep;

use crate::forward::forward;
use crate::{Call, Folder, HeadRead, HeadWrite, Listed, PutError, ReadError, Store};

/// Adds a fixed time to every call, half of it on the way there and half on the
/// way back, so that calls overtake each other as they do over a network.
#[derive(Debug)]
pub struct Latency {
    inner: Arc<dyn Store>,
    read: Duration,
    write: Duration,
}

impl Latency {
    /// Adds `read` to reads and listings, `write` to writes and deletions.
    pub fn new(inner: Arc<dyn Store>, read: Duration, write: Duration) -> Self {
        Self { inner, read, write }
    }

    async fn around<T>(&self, call: Call, inner: impl Future<Output = T> + Send) -> T {
        let half = if call.is_write() { self.write } else { self.read } / 2;
        sleep(half).await;
        let answer = inner.await;
        sleep(half).await;
        answer
    }
}

#[async_trait]
impl Store for Latency {
    forward!(inner: hints);

    async fn read_head(&self, key: &str, known: Option<&Tag>) -> Result<HeadRead, ReadError> {
        self.around(Call::ReadHead, self.inner.read_head(key, known)).await
    }

    async fn create_head(&self, key: &str, bytes: Bytes) -> HeadWrite {
        self.around(Call::CreateHead, self.inner.create_head(key, bytes)).await
    }

    async fn replace_head(&self, key: &str, if_match: &Tag, bytes: Bytes) -> HeadWrite {
        self.around(Call::ReplaceHead, self.inner.replace_head(key, if_match, bytes)).await
    }

    async fn put(&self, key: &str, bytes: Bytes) -> Result<(), PutError> {
        self.around(Call::Put, self.inner.put(key, bytes)).await
    }

    async fn get(&self, key: &str) -> Result<Bytes, ReadError> {
        self.around(Call::Get, self.inner.get(key)).await
    }

    async fn get_sized(&self, key: &str, size_bytes: u64) -> Result<Bytes, ReadError> {
        self.around(Call::Get, self.inner.get_sized(key, size_bytes)).await
    }

    async fn list(
        &self,
        prefix: &str,
        start_after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<Listed>, ReadError> {
        self.around(Call::List, self.inner.list(prefix, start_after, limit)).await
    }

    async fn list_folder(&self, prefix: &str) -> Result<Folder, ReadError> {
        self.around(Call::ListFolder, self.inner.list_folder(prefix)).await
    }

    async fn delete(&self, key: &str) -> Result<(), ReadError> {
        self.around(Call::Delete, self.inner.delete(key)).await
    }
}
