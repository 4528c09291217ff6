//! The changes of one history, decoded once for everybody who watches it.
//!
//! ```text
//! driver --push--> live [v-7 .. v]  <--find-- watchers that keep up
//! store  --read--> runs [a .. b] ..  <--find-- those that are behind
//!            (one at a time)
//! ```
//!
//! # Invariants
//!
//! - Nothing is kept while nobody watches.
//! - `live` is consecutive, and is filled before anybody is told of its newest
//!   version.
//! - Both parts have a limit in bytes, and those of all histories together have
//!   one: half of the budget of watches. What does not fit is read again.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use headwater_core::version::StateVersion;
use headwater_state::{LoadedChange, MemoryPart};
use headwater_store::planted;

use super::budget::Budget;
use crate::follower::{Watched, lock};

/// What one history's feed may hold.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FeedLimits {
    pub(crate) watchers: usize,
    /// Of the newest changes, as stored.
    pub(crate) live_bytes: u64,
    /// Of older ones, likewise. The run that was read last stays whatever its
    /// size.
    pub(crate) runs_bytes: u64,
}

/// What watchers wait for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct News {
    pub(crate) newest: StateVersion,
    /// The history is no longer followed.
    pub(crate) is_ended: bool,
}

#[derive(Debug)]
pub(crate) struct Feed {
    kept: Mutex<Kept>,
    /// Held while older changes are read, so that those who wait find them.
    reading: tokio::sync::Mutex<()>,
    news: Watched<News>,
    limits: FeedLimits,
    budget: Budget,
}

#[derive(Debug)]
struct Kept {
    /// What it takes of the process's budget.
    held: MemoryPart,
    n_watchers: usize,
    live: VecDeque<LoadedChange>,
    live_bytes: u64,
    /// The one used last is the last.
    runs: VecDeque<Arc<Run>>,
}

/// Consecutive changes, read together.
#[derive(Debug)]
pub(crate) struct Run {
    changes: Vec<LoadedChange>,
    size_bytes: u64,
}

/// One watcher's place. Dropping it gives the place back.
#[derive(Debug)]
pub(crate) struct Place(Arc<Feed>);

impl Feed {
    pub(crate) fn new(limits: FeedLimits, budget: Budget) -> Self {
        let kept = Mutex::new(Kept::new(budget.feed_part()));
        let (reading, news) = (tokio::sync::Mutex::new(()), Watched::default());
        Self { kept, reading, news, limits, budget }
    }

    /// A place for one more watcher; none where there are as many as may be.
    pub(crate) fn join(self: &Arc<Self>) -> Option<Place> {
        let mut kept = lock(&self.kept);
        if self.limits.watchers <= kept.n_watchers {
            return None;
        }
        kept.n_watchers += 1;
        Some(Place(Arc::clone(self)))
    }

    pub(crate) fn watchers_max(&self) -> usize {
        self.limits.watchers
    }

    pub(crate) fn n_watchers(&self) -> usize {
        lock(&self.kept).n_watchers
    }

    /// Takes in what the driver has decoded. Tell of it afterwards.
    pub(crate) fn push(&self, changes: &[LoadedChange]) {
        let mut kept = lock(&self.kept);
        if kept.n_watchers == 0 {
            return;
        }
        for change in changes {
            let newest = kept.live.back().map(|it| it.version);
            let is_gap = newest.is_some_and(|it| it.next() != change.version);
            if is_gap && !planted!(FeedGapKept) {
                kept.live.clear();
                kept.live_bytes = 0;
            }
            kept.live_bytes += change.bytes.len() as u64;
            kept.live.push_back(change.clone());
            kept.note();
            while self.limits.live_bytes < kept.live_bytes || self.budget.is_over() {
                let Some(gone) = kept.live.pop_front() else { break };
                kept.live_bytes -= gone.bytes.len() as u64;
                kept.note();
            }
        }
    }

    pub(crate) fn tell(&self, newest: StateVersion) {
        self.news.send_modify(|it| it.newest = newest);
    }

    pub(crate) fn tell_end(&self) {
        self.news.send_modify(|it| it.is_ended = true);
    }

    /// Waits until `version` is there, or nothing comes any more. Cancel safe.
    pub(crate) async fn reached(&self, version: StateVersion) -> News {
        self.news.wait_for(|it| (it.is_ended || version <= it.newest).then_some(*it)).await
    }

    /// The change that leads to `version`, if it is among the newest.
    pub(crate) fn find_live(&self, version: StateVersion) -> Option<LoadedChange> {
        let kept = lock(&self.kept);
        let first = kept.live.front().map(|it| it.version).filter(|it| *it <= version)?;
        let at = usize::try_from(version.since(first)).ok()?;
        kept.live.get(at).cloned()
    }

    /// The run that `version` is in, if one is kept.
    pub(crate) fn find_run(&self, version: StateVersion) -> Option<Arc<Run>> {
        let mut kept = lock(&self.kept);
        let at = kept.runs.iter().position(|it| it.find(version).is_some())?;
        let run = kept.runs.remove(at)?;
        kept.runs.push_back(Arc::clone(&run));
        Some(run)
    }

    /// Whoever holds this reads older changes; look for them again first.
    pub(crate) async fn turn_to_read(&self) -> tokio::sync::MutexGuard<'_, ()> {
        self.reading.lock().await
    }

    /// Keeps a run. Past the limit the one used least recently goes; past that of
    /// the process all of them.
    pub(crate) fn keep_run(&self, run: &Arc<Run>) {
        let mut kept = lock(&self.kept);
        kept.runs.push_back(Arc::clone(run));
        kept.note();
        while (1 < kept.runs.len() && self.limits.runs_bytes < kept.runs_bytes())
            || (!kept.runs.is_empty() && self.budget.is_over())
        {
            kept.runs.pop_front();
            kept.note();
        }
    }

    /// Bytes of changes that it holds, as stored.
    pub(crate) fn size_bytes(&self) -> u64 {
        let kept = lock(&self.kept);
        kept.live_bytes + kept.runs_bytes()
    }
}

impl Kept {
    fn new(held: MemoryPart) -> Self {
        Self { held, n_watchers: 0, live: VecDeque::new(), live_bytes: 0, runs: VecDeque::new() }
    }

    fn note(&self) {
        self.held.set(self.live_bytes + self.runs_bytes());
    }

    /// There are few of them.
    fn runs_bytes(&self) -> u64 {
        self.runs.iter().map(|it| it.size_bytes).sum()
    }
}

impl Run {
    pub(crate) fn new(changes: Vec<LoadedChange>) -> Self {
        let size_bytes = changes.iter().map(|it| it.bytes.len() as u64).sum();
        Self { changes, size_bytes }
    }

    /// The change that leads to `version`, if it is in here.
    pub(crate) fn find(&self, version: StateVersion) -> Option<&LoadedChange> {
        let first = self.changes.first().map(|it| it.version).filter(|it| *it <= version)?;
        self.changes.get(usize::try_from(version.since(first)).ok()?)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut kept = lock(&self.0.kept);
        kept.n_watchers -= 1;
        if kept.n_watchers == 0 {
            *kept = Kept::new(self.0.budget.feed_part());
        }
    }
}
