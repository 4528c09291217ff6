//! The store as a check sees it: counted, and closed once the budget is spent.
//!
//! Every read of a check goes through here, whichever layer asks for it, so no
//! budget can be passed by a path that nobody thought of.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use bytes::Bytes;
use headwater_core::id::Tag;
use headwater_core::keys::ObjectKind;
use headwater_store::{Folder, HeadRead, HeadWrite, Listed, PutError, ReadError, Store};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::options::{Budget, Progress};

/// Parts of snapshots that are given again without reading them again: two
/// snapshots are compared side by side, and share most of their parts.
const RECENT_MAX: usize = 16;
/// Likewise, in bytes.
const RECENT_BYTES_MAX: usize = 32 << 20;

/// What ended a check early.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Ended {
    /// The limit on objects.
    Objects,
    /// The limit on bytes.
    Bytes,
    /// The limit on time.
    Time,
    /// The store failed again and again.
    Store,
    /// Whoever asked for it.
    Stopped,
}

impl Ended {
    /// The word for programs.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Objects => "objectBudget",
            Self::Bytes => "byteBudget",
            Self::Time => "timeBudget",
            Self::Store => "storeUnavailable",
            Self::Stopped => "stopped",
        }
    }
}

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Objects => "the budget of objects is spent",
            Self::Bytes => "the budget of bytes is spent",
            Self::Time => "the budget of time is spent",
            Self::Store => "the store failed again and again",
            Self::Stopped => "it was stopped",
        })
    }
}

impl std::error::Error for Ended {}

#[derive(Debug)]
pub(crate) struct Metered {
    store: Arc<dyn Store>,
    budget: Budget,
    deadline: Option<Instant>,
    progress: Progress,
    stop: CancellationToken,
    ended: Mutex<Option<Ended>>,
    begun: Mutex<u64>,
    recent: Mutex<Recent>,
}

#[derive(Debug, Default)]
struct Recent {
    parts: VecDeque<(String, Bytes)>,
    size_bytes: usize,
}

impl Recent {
    fn get(&self, key: &str) -> Option<Bytes> {
        self.parts.iter().find(|it| it.0 == key).map(|it| it.1.clone())
    }

    fn put(&mut self, key: &str, bytes: &Bytes) {
        self.size_bytes += bytes.len();
        self.parts.push_back((key.to_owned(), bytes.clone()));
        while RECENT_MAX < self.parts.len() || RECENT_BYTES_MAX < self.size_bytes {
            let Some((_, gone)) = self.parts.pop_front() else { break };
            self.size_bytes -= gone.len();
        }
    }
}

impl Metered {
    pub(crate) fn new(
        store: Arc<dyn Store>,
        budget: Budget,
        progress: Progress,
        stop: CancellationToken,
    ) -> Self {
        let deadline = budget.time_max.map(|it| Instant::now() + it);
        let (ended, begun) = (Mutex::default(), Mutex::default());
        Self { store, budget, deadline, progress, stop, ended, begun, recent: Mutex::default() }
    }

    pub(crate) fn progress(&self) -> &Progress {
        &self.progress
    }

    pub(crate) fn ended(&self) -> Option<Ended> {
        *self.ended.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Closes it. What ended it first stays the reason.
    pub(crate) fn end(&self, ended: Ended) -> ReadError {
        let mut held = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        let ended = *held.get_or_insert(ended);
        ReadError::Unavailable { retry_after: None, cause: Box::new(ended) }
    }

    /// Takes one object from the budget.
    fn begin_read(&self) -> Result<(), ReadError> {
        if let Some(ended) = self.ended() {
            return Err(self.end(ended));
        }
        let mut begun = self.begun.lock().unwrap_or_else(PoisonError::into_inner);
        if self.budget.objects_max.is_some_and(|max| max <= *begun) {
            return Err(self.end(Ended::Objects));
        }
        if self.budget.bytes_max.is_some_and(|max| max <= self.progress.read().bytes) {
            return Err(self.end(Ended::Bytes));
        }
        *begun += 1;
        Ok(())
    }

    /// Does a call unless time is up, and no longer than until then.
    async fn within<T>(
        &self,
        call: impl Future<Output = Result<T, ReadError>>,
    ) -> Result<T, ReadError> {
        if let Some(ended) = self.ended() {
            return Err(self.end(ended));
        }
        let time_is_up = async {
            match self.deadline {
                Some(deadline) => tokio::time::sleep_until(deadline).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            () = self.stop.cancelled() => Err(self.end(Ended::Stopped)),
            () = time_is_up => Err(self.end(Ended::Time)),
            answer = call => answer,
        }
    }
}

fn is_part(key: &str) -> bool {
    let mut folders = key.rsplit('/');
    folders.next();
    folders.next() == Some(ObjectKind::Chunk.folder())
}

impl Metered {
    async fn read_object(
        &self,
        key: &str,
        reading: impl Future<Output = Result<Bytes, ReadError>>,
    ) -> Result<Bytes, ReadError> {
        let is_part = is_part(key);
        let recent = || self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        if is_part && let Some(bytes) = recent().get(key) {
            return Ok(bytes);
        }
        self.begin_read()?;
        let bytes = self.within(reading).await?;
        self.progress.add_read(bytes.len() as u64);
        if is_part {
            recent().put(key, &bytes);
        }
        Ok(bytes)
    }
}

#[async_trait]
impl Store for Metered {
    async fn read_head(&self, key: &str, known: Option<&Tag>) -> Result<HeadRead, ReadError> {
        self.within(self.store.read_head(key, known)).await
    }

    async fn create_head(&self, key: &str, bytes: Bytes) -> HeadWrite {
        self.store.create_head(key, bytes).await
    }

    async fn replace_head(&self, key: &str, if_match: &Tag, bytes: Bytes) -> HeadWrite {
        self.store.replace_head(key, if_match, bytes).await
    }

    async fn put(&self, key: &str, bytes: Bytes) -> Result<(), PutError> {
        self.store.put(key, bytes).await
    }

    async fn get(&self, key: &str) -> Result<Bytes, ReadError> {
        self.read_object(key, self.store.get(key)).await
    }

    async fn get_sized(&self, key: &str, size_bytes: u64) -> Result<Bytes, ReadError> {
        self.read_object(key, self.store.get_sized(key, size_bytes)).await
    }

    async fn list(
        &self,
        prefix: &str,
        start_after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<Listed>, ReadError> {
        let listed = self.within(self.store.list(prefix, start_after, limit)).await?;
        self.progress.add_listed(listed.len());
        Ok(listed)
    }

    async fn list_folder(&self, prefix: &str) -> Result<Folder, ReadError> {
        self.within(self.store.list_folder(prefix)).await
    }

    async fn delete(&self, key: &str) -> Result<(), ReadError> {
        self.store.delete(key).await
    }
}
