//! A store that looks at every head that is published through it.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use bytes::Bytes;
use headwater_core::format;
use headwater_core::id::Tag;
use headwater_store::{Folder, HeadRead, HeadWrite, Listed, PutError, ReadError, Store};

/// Bad heads that are told of.
const BAD_MAX: usize = 10;

/// Passes everything on, and notes what heads were like.
#[derive(Debug)]
pub(super) struct Watched {
    inner: Arc<dyn Store>,
    heads: AtomicU64,
    head_bytes_most: AtomicUsize,
    bad: Mutex<Vec<String>>,
}

impl Watched {
    pub(super) fn new(inner: Arc<dyn Store>) -> Self {
        let (heads, head_bytes_most) = (AtomicU64::new(0), AtomicUsize::new(0));
        Self { inner, heads, head_bytes_most, bad: Mutex::default() }
    }

    /// Heads that were published.
    pub(super) fn heads(&self) -> u64 {
        self.heads.load(Ordering::Relaxed)
    }

    /// The size of the largest of them.
    pub(super) fn head_bytes_most(&self) -> usize {
        self.head_bytes_most.load(Ordering::Relaxed)
    }

    /// Those that break a rule, by their revision, and the rule.
    pub(super) fn bad_heads(&self) -> Vec<String> {
        self.bad.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn look(&self, bytes: &[u8], answer: &HeadWrite) {
        match answer {
            HeadWrite::Replaced { .. } => {}
            HeadWrite::Mismatch | HeadWrite::Gone | HeadWrite::NoAnswer(_) => return,
        }
        let n = self.heads.fetch_add(1, Ordering::Relaxed);
        self.head_bytes_most.fetch_max(bytes.len(), Ordering::Relaxed);
        if let Err(error) = format::head::decode(bytes) {
            let mut bad = self.bad.lock().unwrap_or_else(PoisonError::into_inner);
            if bad.len() < BAD_MAX {
                bad.push(format!("head {n}: {error}"));
            }
        }
    }
}

#[async_trait]
impl Store for Watched {
    async fn read_head(&self, key: &str, known: Option<&Tag>) -> Result<HeadRead, ReadError> {
        self.inner.read_head(key, known).await
    }

    async fn create_head(&self, key: &str, bytes: Bytes) -> HeadWrite {
        let answer = self.inner.create_head(key, bytes.clone()).await;
        self.look(&bytes, &answer);
        answer
    }

    async fn replace_head(&self, key: &str, if_match: &Tag, bytes: Bytes) -> HeadWrite {
        let answer = self.inner.replace_head(key, if_match, bytes.clone()).await;
        self.look(&bytes, &answer);
        answer
    }

    async fn put(&self, key: &str, bytes: Bytes) -> Result<(), PutError> {
        self.inner.put(key, bytes).await
    }

    async fn get(&self, key: &str) -> Result<Bytes, ReadError> {
        self.inner.get(key).await
    }

    async fn get_sized(&self, key: &str, size_bytes: u64) -> Result<Bytes, ReadError> {
        self.inner.get_sized(key, size_bytes).await
    }

    async fn list(
        &self,
        prefix: &str,
        start_after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<Listed>, ReadError> {
        self.inner.list(prefix, start_after, limit).await
    }

    async fn list_folder(&self, prefix: &str) -> Result<Folder, ReadError> {
        self.inner.list_folder(prefix).await
    }

    async fn delete(&self, key: &str) -> Result<(), ReadError> {
        self.inner.delete(key).await
    }
}
