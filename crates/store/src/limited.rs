//! A bucket that allows one head only so many replacements, for tests and
//! benches.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use headwater_core::id::Tag;
use tokio::time::Instant;

use crate::forward::forward;
use crate::{HeadWrite, NoAnswer, NoAnswerKind, Store};

/// Answers 429 to a replacement that comes too soon after the last one of the
/// same head, or its creation, and does nothing. It does not say how long to wait.
#[derive(Debug)]
pub struct Limited {
    inner: Arc<dyn Store>,
    interval: Duration,
    replaced_at: Mutex<BTreeMap<String, Instant>>,
}

impl Limited {
    /// Allows each head of `inner` one replacement in each `interval`. Every
    /// head that was replaced is remembered.
    pub fn new(inner: Arc<dyn Store>, interval: Duration) -> Self {
        Self { inner, interval, replaced_at: Mutex::default() }
    }

    fn is_too_soon(&self, key: &str) -> bool {
        let mut replaced_at = self.replaced_at.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        let last = replaced_at.get(key);
        if last.is_some_and(|it| now.duration_since(*it) < self.interval) {
            return true;
        }
        replaced_at.insert(key.to_owned(), now);
        false
    }
}

#[async_trait]
impl Store for Limited {
    forward!(inner: hints, read_head, put, get, get_sized, list, list_folder, delete);

    async fn create_head(&self, key: &str, bytes: Bytes) -> HeadWrite {
        let answer = self.inner.create_head(key, bytes).await;
        if matches!(answer, HeadWrite::Replaced { .. }) {
            self.is_too_soon(key);
        }
        answer
    }

    async fn replace_head(&self, key: &str, if_match: &Tag, bytes: Bytes) -> HeadWrite {
        if self.is_too_soon(key) {
            let cause = "429: too many replacements of one object".into();
            let kind = NoAnswerKind::Throttled;
            return HeadWrite::NoAnswer(NoAnswer { kind, retry_after: None, cause });
        }
        self.inner.replace_head(key, if_match, bytes).await
    }
}
