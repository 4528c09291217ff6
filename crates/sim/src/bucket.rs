//! The bucket of a run: the model of a store, with the checks at every write
//! that is applied.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use futures::FutureExt as _;
use headwater_core::id::Tag;
use headwater_core::keys;
use headwater_store::{
    Folder, HeadRead, HeadWrite, Listed, Memory, NoAnswer, NoAnswerKind, PutError, ReadError, Store,
};
use tokio::time::Instant;

use crate::trace::Trace;
use crate::truth::{Objects, Truth, When};

/// Clones are the same bucket.
#[derive(Clone, Debug)]
pub(crate) struct Bucket(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    objects: Memory,
    truth: Arc<Mutex<Truth>>,
    trace: Arc<Trace>,
    began: Instant,
    /// Least time between two replacements of one object.
    replacement_interval: Duration,
    replaced_at: Mutex<BTreeMap<String, Instant>>,
}

/// A replacement came too soon after the one before.
#[derive(Debug, thiserror::Error)]
#[error("the object may be replaced once in {0:?}")]
struct TooSoon(Duration);

/// The model in memory answers at once.
fn at_once<T>(call: impl Future<Output = T>) -> T {
    call.now_or_never().unwrap_or_else(|| unreachable!("nothing in memory waits"))
}

impl Objects for Memory {
    fn bytes(&self, key: &str) -> Option<Bytes> {
        at_once(self.get(key)).ok()
    }
}

impl Bucket {
    pub(crate) fn new(
        truth: Arc<Mutex<Truth>>,
        trace: Arc<Trace>,
        replacement_interval: Duration,
    ) -> Self {
        Self(Arc::new(Inner {
            objects: Memory::new(),
            truth,
            trace,
            began: Instant::now(),
            replacement_interval,
            replaced_at: Mutex::default(),
        }))
    }

    fn truth(&self) -> MutexGuard<'_, Truth> {
        self.0.truth.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes down a fault of whoever sends.
    pub(crate) fn violation(&self, what: String) {
        self.truth().violation(what);
    }

    /// The store below everything, for looking at it.
    pub(crate) fn behind(&self) -> Arc<dyn Store> {
        Arc::new(self.0.objects.clone())
    }

    pub(crate) fn read_head(&self, key: &str, known: Option<&Tag>) -> Result<HeadRead, ReadError> {
        at_once(self.0.objects.read_head(key, known))
    }

    pub(crate) fn create_head(&self, key: &str, bytes: &Bytes) -> HeadWrite {
        let answer = at_once(self.0.objects.create_head(key, bytes.clone()));
        self.witness(key, bytes, &answer);
        answer
    }

    pub(crate) fn replace_head(&self, key: &str, if_match: &Tag, bytes: &Bytes) -> HeadWrite {
        if let Some(refused) = self.too_soon(key) {
            return refused;
        }
        let answer = at_once(self.0.objects.replace_head(key, if_match, bytes.clone()));
        self.witness(key, bytes, &answer);
        answer
    }

    /// What a store says that limits how often one object is replaced.
    fn too_soon(&self, key: &str) -> Option<HeadWrite> {
        if self.0.replacement_interval.is_zero() {
            return None;
        }
        let now = Instant::now();
        let mut replaced_at = self.0.replaced_at.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(at) = replaced_at.get(key)
            && now < *at + self.0.replacement_interval
        {
            let cause = Box::new(TooSoon(self.0.replacement_interval));
            let kind = NoAnswerKind::Throttled;
            return Some(HeadWrite::NoAnswer(NoAnswer { kind, retry_after: None, cause }));
        }
        replaced_at.insert(key.to_owned(), now);
        None
    }

    fn witness(&self, key: &str, bytes: &Bytes, answer: &HeadWrite) {
        if !matches!(answer, HeadWrite::Replaced { .. }) {
            return;
        }
        let event = self.0.trace.event(format_args!("bucket: {key} is {} bytes", bytes.len()));
        let when = When { event, at: self.0.began.elapsed() };
        self.truth().head_written(key, bytes, &self.0.objects, when);
    }

    pub(crate) fn put(&self, key: &str, bytes: &Bytes) -> Result<(), PutError> {
        let answer = at_once(self.0.objects.put(key, bytes.clone()));
        if matches!(answer, Err(PutError::Occupied { .. })) && !is_record(key) {
            self.truth().violation(format!("{key} is written twice, with other bytes"));
        }
        answer
    }

    pub(crate) fn get(&self, key: &str) -> Result<Bytes, ReadError> {
        at_once(self.0.objects.get(key))
    }

    pub(crate) fn list(
        &self,
        prefix: &str,
        start_after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<Listed>, ReadError> {
        at_once(self.0.objects.list(prefix, start_after, limit))
    }

    pub(crate) fn list_folder(&self, prefix: &str) -> Result<Folder, ReadError> {
        at_once(self.0.objects.list_folder(prefix))
    }

    pub(crate) fn delete(&self, key: &str) -> Result<(), ReadError> {
        self.0.trace.event(format_args!("bucket: {key} is deleted"));
        self.truth().deleted(key);
        if key.ends_with(keys::HEAD) {
            self.truth().violation(format!("{key} is deleted"));
        }
        at_once(self.0.objects.delete(key))
    }
}

/// Request records are the one kind of object whose key may be met with other
/// bytes (PROTOCOL 5).
fn is_record(key: &str) -> bool {
    key.contains("/requests/")
}
