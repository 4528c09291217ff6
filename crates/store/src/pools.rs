//! Connections for heads, and others for everything else.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use headwater_core::id::Tag;

use crate::{Folder, HeadRead, HeadWrite, Listed, PutError, ReadError, Store};

/// Two ways to one bucket, each with connections of its own: a replacement of a
/// head never waits behind the megabytes of a snapshot.
#[derive(Debug)]
pub struct Pools {
    heads: Arc<dyn Store>,
    bulk: Arc<dyn Store>,
}

impl Pools {
    /// Both have to lead to the same root of the same bucket.
    pub fn new(heads: Arc<dyn Store>, bulk: Arc<dyn Store>) -> Self {
        Self { heads, bulk }
    }

    /// Whether the store behind `url` is one that opening it twice reaches by
    /// two sets of connections. A store in memory would be two stores.
    pub fn suit(url: &str) -> bool {
        ["s3://", "gs://", "az://"].iter().any(|it| url.starts_with(it))
    }
}

#[async_trait]
impl Store for Pools {
    fn replacement_pause(&self, key: &str) -> Duration {
        self.heads.replacement_pause(key)
    }

    async fn read_head(&self, key: &str, known: Option<&Tag>) -> Result<HeadRead, ReadError> {
        self.heads.read_head(key, known).await
    }

    async fn create_head(&self, key: &str, bytes: Bytes) -> HeadWrite {
        self.heads.create_head(key, bytes).await
    }

    async fn replace_head(&self, key: &str, if_match: &Tag, bytes: Bytes) -> HeadWrite {
        self.heads.replace_head(key, if_match, bytes).await
    }

    async fn put(&self, key: &str, bytes: Bytes) -> Result<(), PutError> {
        self.bulk.put(key, bytes).await
    }

    async fn get(&self, key: &str) -> Result<Bytes, ReadError> {
        self.bulk.get(key).await
    }

    async fn get_sized(&self, key: &str, size_bytes: u64) -> Result<Bytes, ReadError> {
        self.bulk.get_sized(key, size_bytes).await
    }

    async fn list(
        &self,
        prefix: &str,
        start_after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<Listed>, ReadError> {
        self.bulk.list(prefix, start_after, limit).await
    }

    async fn list_folder(&self, prefix: &str) -> Result<Folder, ReadError> {
        self.bulk.list_folder(prefix).await
    }

    async fn delete(&self, key: &str) -> Result<(), ReadError> {
        self.bulk.delete(key).await
    }
}
