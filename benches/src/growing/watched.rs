//! A store that looks at every head that is published through it.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use bytes::Bytes;
use headwater_core::format;
use headwater_core::head::{ChangeBody, Head};
use headwater_core::id::Tag;
use headwater_store::{Folder, HeadRead, HeadWrite, Listed, PutError, ReadError, Store};

/// Bad heads that are told of.
const BAD_MAX: usize = 10;

/// Passes everything on, and notes what heads were like.
#[derive(Debug)]
pub(super) struct Watched {
    inner: Arc<dyn Store>,
    /// A change that is larger than this does not stay in a head.
    inline_bytes_max: usize,
    heads: AtomicU64,
    head_bytes_most: AtomicUsize,
    kept_bytes_most: AtomicUsize,
    bad: Mutex<Vec<String>>,
}

impl Watched {
    pub(super) fn new(inner: Arc<dyn Store>, inline_bytes_max: usize) -> Self {
        Self {
            inner,
            inline_bytes_max,
            heads: AtomicU64::new(0),
            head_bytes_most: AtomicUsize::new(0),
            kept_bytes_most: AtomicUsize::new(0),
            bad: Mutex::default(),
        }
    }

    /// Heads that were published.
    pub(super) fn heads(&self) -> u64 {
        self.heads.load(Ordering::Relaxed)
    }

    /// The size of the largest of them.
    pub(super) fn head_bytes_most(&self) -> usize {
        self.head_bytes_most.load(Ordering::Relaxed)
    }

    /// The most that any of them has without the changes that only travel in it
    /// while they are uploaded.
    pub(super) fn kept_bytes_most(&self) -> usize {
        self.kept_bytes_most.load(Ordering::Relaxed)
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
        match format::head::decode(bytes) {
            Ok(head) => {
                let kept = bytes.len().saturating_sub(self.travelling_bytes(&head));
                self.kept_bytes_most.fetch_max(kept, Ordering::Relaxed);
            }
            Err(error) => {
                let mut bad = self.bad.lock().unwrap_or_else(PoisonError::into_inner);
                if bad.len() < BAD_MAX {
                    bad.push(format!("head {n}: {error}"));
                }
            }
        }
    }

    /// What travels in a head, in base64.
    fn travelling_bytes(&self, head: &Head) -> usize {
        let sizes = head.changes.iter().map(|it| match &it.body {
            ChangeBody::Inline(bytes) if self.inline_bytes_max < bytes.len() => {
                bytes.len().div_ceil(3) * 4
            }
            ChangeBody::Inline(_) | ChangeBody::Staged(_) => 0,
        });
        sizes.sum()
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
