//! Fetching change entries and segments.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use futures::{Stream, StreamExt as _, TryStreamExt as _, stream};
use headwater_core::change::Change;
use headwater_core::follow::{self, Step};
use headwater_core::format;
use headwater_core::hash::ContentHash;
use headwater_core::head::{Head, RunRef};
use headwater_core::version::StateVersion;

use super::Loader;
use crate::error::StateError;

/// A change entry, fetched, verified and decoded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoadedChange {
    /// The version that it leads to.
    pub version: StateVersion,
    /// blake3 of `bytes`.
    pub hash: ContentHash,
    /// The entry as stored. Shares the memory of the segment that it came in.
    pub bytes: Bytes,
    /// The entry.
    pub change: Arc<Change>,
}

impl Loader {
    /// The changes of `steps`, in order. Fetches are bounded; what is fetched
    /// is not, for it is the tail, which writers bound.
    pub(super) async fn fetch_steps(
        &self,
        steps: Vec<Step>,
    ) -> Result<Vec<LoadedChange>, StateError> {
        self.fetch_steps_one_by_one(steps).try_concat().await
    }

    /// As `fetch_steps`, with the changes of each step by themselves, so that
    /// they can be applied while later ones are on their way.
    pub(super) fn fetch_steps_one_by_one(
        &self,
        steps: Vec<Step>,
    ) -> impl Stream<Item = Result<Vec<LoadedChange>, StateError>> + Send {
        let fetches = stream::iter(steps).map(|step| self.fetch_step(step));
        fetches.buffered(self.options.fetches_max)
    }

    pub(super) async fn fetch_step(&self, step: Step) -> Result<Vec<LoadedChange>, StateError> {
        match step {
            Step::Inline { version, hash, bytes } => {
                let key = || self.source.history.head_key();
                Ok(vec![self.load(version, hash, bytes, key)?])
            }
            Step::Change { version, object } => {
                let bytes = match self.given.get(&object.hash) {
                    Some(bytes) => bytes.clone(),
                    None => self.source.fetch(&object).await?,
                };
                let key = || self.source.history.object_key(&object.key);
                Ok(vec![self.load(version, object.hash, bytes, key)?])
            }
            Step::Segment { from, run } => self.fetch_segment(from, &run).await,
        }
    }

    async fn fetch_segment(
        &self,
        from: StateVersion,
        run: &RunRef,
    ) -> Result<Vec<LoadedChange>, StateError> {
        let object = &run.object;
        let segment = self.source.fetch_as(object, format::segment::decode).await?;
        let count = segment.entries.len() as u64;
        if segment.from_version != run.from || count != run.to.since(run.from) + 1 {
            return Err(self.source.contradicts(object, "versions"));
        }
        let versions = (run.from.get()..).map(StateVersion::new);
        let wanted = versions.zip(segment.entries).filter(|(version, _)| from <= *version);
        let key = || self.source.history.object_key(&object.key);
        wanted.map(|(version, (hash, bytes))| self.load(version, hash, bytes, key)).collect()
    }

    /// Decodes an entry whose hash is known to be right.
    fn load(
        &self,
        version: StateVersion,
        hash: ContentHash,
        bytes: Bytes,
        key: impl FnOnce() -> String,
    ) -> Result<LoadedChange, StateError> {
        self.changes_decoded.fetch_add(1, Ordering::Relaxed);
        let change = format::change::decode(bytes.clone());
        let change = Arc::new(change.map_err(|it| StateError::of_decode(key(), it))?);
        Ok(LoadedChange { version, hash, bytes, change })
    }
}

/// The part of the head's tail that leads to `version`. Its last step may go on
/// past it.
pub(super) fn steps_to(version: StateVersion, head: &Head) -> Vec<Step> {
    let mut steps = follow::steps_after(head.snapshot.version, head);
    steps.retain(|step| {
        let first = match step {
            Step::Inline { version, .. } | Step::Change { version, .. } => version,
            Step::Segment { from, .. } => from,
        };
        *first <= version
    });
    steps
}

/// How many of the first steps hold `bytes_max`, about, by what names them. What
/// comes after them is seldom wanted.
pub(super) fn steps_within(bytes_max: usize, steps: &[Step]) -> usize {
    let (mut n_within, mut size_bytes) = (0, 0);
    for step in steps {
        n_within += 1;
        size_bytes += match step {
            Step::Inline { bytes, .. } => bytes.len() as u64,
            Step::Change { object, .. } => object.size_bytes,
            // About the part that is wanted.
            Step::Segment { from, run } => {
                let (wanted, all) = (run.to.since(*from) + 1, run.to.since(run.from) + 1);
                run.object.size_bytes / all * wanted
            }
        };
        if bytes_max as u64 <= size_bytes {
            break;
        }
    }
    n_within
}
