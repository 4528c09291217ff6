//! What the probes wrote, so that it can be deleted again.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures::StreamExt as _;
use futures::stream;
use headwater_core::id::Tag;
use tokio::time::sleep;

use crate::forward::forward;
use crate::{HeadWrite, PutError, ReadError, Store};

/// Most objects that are deleted; the probes write a few hundred.
const OBJECTS_MAX: usize = 5_000;

/// Deletions at once.
const DELETIONS_MAX: usize = 16;

/// How often an object is tried to be deleted.
const ATTEMPTS_MAX: usize = 4;

/// Between two attempts: a deletion is a write, of which a store may allow one
/// a second and object.
const PAUSE: Duration = Duration::from_millis(1_100);

/// What cleaning up left behind.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Left {
    /// Objects that were deleted.
    pub n_deleted: usize,
    /// Objects that could not be.
    pub n_left: usize,
    /// Why the first of them could not.
    pub reason: Option<String>,
}

/// The keys that were written through it. Clones share them.
///
/// A listing alone would not do: it may be late, or not allowed.
#[derive(Clone, Debug, Default)]
pub(super) struct Tracked(Arc<Mutex<BTreeSet<String>>>);

#[derive(Debug)]
struct Tracking {
    inner: Arc<dyn Store>,
    keys: Tracked,
}

impl Tracked {
    pub(super) fn around(&self, inner: Arc<dyn Store>) -> Arc<dyn Store> {
        Arc::new(Tracking { inner, keys: self.clone() })
    }

    fn keys(&self) -> MutexGuard<'_, BTreeSet<String>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Before it is sent: a write without an answer may have been applied.
    fn add(&self, key: &str) {
        let mut keys = self.keys();
        if keys.len() < OBJECTS_MAX {
            keys.insert(key.into());
        }
    }

    /// Deletes what was written, and what a listing of `prefix` finds.
    pub(super) async fn clean(&self, store: &Arc<dyn Store>, prefix: &str) -> Left {
        let mut keys = self.keys().clone();
        if let Ok(listed) = store.list(prefix, None, OBJECTS_MAX).await {
            keys.extend(listed.into_iter().map(|it| it.key));
        }
        let deletions = stream::iter(keys).map(|key| delete(Arc::clone(store), key));
        let answers: Vec<_> = deletions.buffer_unordered(DELETIONS_MAX).collect().await;
        let mut left = Left::default();
        for answer in answers {
            match answer {
                Ok(()) => left.n_deleted += 1,
                Err(error) => {
                    left.n_left += 1;
                    left.reason.get_or_insert_with(|| super::told(&error));
                }
            }
        }
        left
    }
}

async fn delete(store: Arc<dyn Store>, key: String) -> Result<(), ReadError> {
    let mut n_attempts = 1;
    loop {
        match store.delete(&key).await {
            Err(error) if error.is_transient() && n_attempts < ATTEMPTS_MAX => sleep(PAUSE).await,
            answer => return answer,
        }
        n_attempts += 1;
    }
}

#[async_trait]
impl Store for Tracking {
    forward!(inner: hints, read_head, get, get_sized, list, list_folder);

    async fn create_head(&self, key: &str, bytes: Bytes) -> HeadWrite {
        self.keys.add(key);
        self.inner.create_head(key, bytes).await
    }

    async fn replace_head(&self, key: &str, if_match: &Tag, bytes: Bytes) -> HeadWrite {
        self.keys.add(key);
        self.inner.replace_head(key, if_match, bytes).await
    }

    async fn put(&self, key: &str, bytes: Bytes) -> Result<(), PutError> {
        self.keys.add(key);
        self.inner.put(key, bytes).await
    }

    async fn delete(&self, key: &str) -> Result<(), ReadError> {
        let answer = self.inner.delete(key).await;
        if answer.is_ok() {
            self.keys.keys().remove(key);
        }
        answer
    }
}
