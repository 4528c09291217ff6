//! One watch, from its first message to its end.
//!
//! ```text
//!        +--------- up to date: wait for news, say progress
//!        v
//!   next version --live--> shared by everybody who keeps up
//!        |       --run---> shared by everybody who is as far behind
//!        |       --gone--> the state instead, or the end
//!        v
//!   what the filter takes (--> what was there before) --> outbox, in parts
//! ```
//!
//! # Invariants
//!
//! - `after` moves over a version only when all that is told of it was put into
//!   the outbox, and by one version at a time: no gap, no repeat.
//! - In memory for one watch: the messages that wait, the version that is being
//!   told, and a run while it is read. A watch that waits for its caller gives
//!   the run back.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use headwater_core::id::HistoryId;
use headwater_core::version::StateVersion;
use headwater_state::LoadedChange;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use super::changes::{MESSAGE_BYTES_MAX, Memory, WithPrevious, taken};
use super::feed::{Place, Run};
use super::message::{
    SnapshotMode, WatchEnd, WatchEvent, WatchFailure, WatchMessage, WatchOptions, WatchedChange,
    WatchedMutation,
};
use super::older::{ended, gone, run_with};
use super::outbox::Outbox;
use super::previous::{Before, Carried};
use super::snapshot::Rest;
use crate::consistency::Consistency;
use crate::failure::ReadFailure;
use crate::follower::{Follower, PinError};
use crate::local::Pinned;
use crate::metrics::{ReplicaMetrics, WatchEnded};

/// How long progress waits for a check that nobody else has made.
const CHECK_MAX: Duration = Duration::from_secs(1);

pub(super) struct Watcher {
    pub(super) history_id: HistoryId,
    pub(super) follower: Arc<Follower>,
    pub(super) options: WatchOptions,
    /// Longest time for reading what one version needs.
    pub(super) read_max: Duration,
    pub(super) outbox: Outbox,
    /// Everything up to here was told, or is not asked for.
    pub(super) after: StateVersion,
    pub(super) run: Option<Arc<Run>>,
    pub(super) carried: Carried,
    pub(super) said_at: Instant,
    /// Places among the watches of the history, and of the process.
    pub(super) places: (Place, OwnedSemaphorePermit),
    pub(super) metrics: Arc<ReplicaMetrics>,
}

/// What ends a watch from outside.
pub(super) struct Until {
    pub(super) stop: CancellationToken,
    pub(super) drain: CancellationToken,
    pub(super) deadline: Option<Instant>,
}

impl Watcher {
    /// Watches until the caller goes away, or an end can be told to it.
    pub(super) async fn run(mut self, until: Until, begin: Pinned) {
        let gone = self.outbox.gone();
        let why = tokio::select! {
            biased;
            () = gone => return,
            why = until.reached() => why,
            failed = self.follow(begin) => match failed {
                Ok(never) => match never {},
                Err(why) => why,
            },
        };
        tracing::debug!(history = %self.follower.shared().history(), %why, "a watch ended");
        self.metrics.watches_ended.add(WatchEnded::of(&why));
        let resume_after = self.after;
        // Whoever hears of the end may come back at once, and needs the place.
        drop(self.places);
        self.outbox.end(WatchEnd { why, resume_after });
    }

    async fn follow(&mut self, begin: Pinned) -> Result<Infallible, WatchFailure> {
        match self.options.snapshot {
            SnapshotMode::First => self.send_state(begin).await?,
            SnapshotMode::Never | SnapshotMode::IfRetired => {
                // A view is not to be kept for as long as the watch.
                drop(begin);
                self.send_progress().await?;
            }
        }
        loop {
            match self.step().await {
                Ok(()) => {}
                Err(WatchFailure::Read(ReadFailure::VersionRetired { .. }))
                    if self.options.snapshot != SnapshotMode::Never =>
                {
                    self.run = None;
                    let newest = self.pin(Consistency::Strong).await?;
                    self.send_state(newest).await?;
                }
                Err(failure) => return Err(failure),
            }
        }
    }

    /// One version, or whatever there is to say while there is none.
    async fn step(&mut self) -> Result<(), WatchFailure> {
        let version = self.after.next();
        let feed = self.follower.shared().feed();
        if let Some(change) = feed.find_live(version) {
            self.run = None;
            return self.tell(change, Memory::Shared).await;
        }
        if self.follower.shared().newest() < Some(version) {
            self.run = None;
            return tokio::select! {
                biased;
                heard = feed.reached(version) => {
                    if heard.is_ended { Err(gone(&self.follower).into()) } else { Ok(()) }
                }
                () = sleep_until(self.said_at + self.options.progress) => self.look_again().await,
            };
        }
        let change = self.older(version).await?;
        self.tell(change, Memory::Own).await
    }

    /// A change that is no longer among the newest.
    async fn older(&mut self, version: StateVersion) -> Result<LoadedChange, WatchFailure> {
        if let Some(change) = self.run.as_ref().and_then(|it| it.find(version)) {
            return Ok(change.clone());
        }
        let run = run_with(&self.follower, version, self.deadline()).await?;
        // A run is what was asked for, or an error.
        let change = run.find(version).cloned().ok_or_else(|| gone(&self.follower))?;
        self.run = Some(run);
        Ok(change)
    }

    /// Tells what the filter takes of a change, and goes on behind it.
    async fn tell(&mut self, change: LoadedChange, memory: Memory) -> Result<(), WatchFailure> {
        let version = change.version;
        let taken = taken(&change, &self.options.filter, memory);
        let follower = Arc::clone(&self.follower);
        let mut before = None;
        if self.options.previous_values {
            if !taken.is_empty() {
                let deadline = self.deadline();
                before = Some(self.carried.before(&follower, version, deadline).await?);
            }
            self.carried.passed(&follower, &change);
        }
        // From here on it may take long.
        drop(change);
        match before {
            None if taken.is_empty() => {}
            None => self.tell_taken(version, taken).await?,
            Some(before) => self.tell_with(version, taken, before).await?,
        }
        self.after = version;
        if self.said_at + self.options.progress <= Instant::now() {
            self.send_progress().await?;
        }
        Ok(())
    }

    async fn tell_taken(
        &mut self,
        version: StateVersion,
        taken: Vec<WatchedMutation>,
    ) -> Result<(), WatchFailure> {
        let mut part = Part::new(version);
        for mutation in taken {
            if let Some(full) = part.add(mutation) {
                self.send(self.after, full).await?;
            }
        }
        self.send(version, part.last()).await
    }

    /// The same, with what was there before each mutation.
    async fn tell_with(
        &mut self,
        version: StateVersion,
        taken: Vec<WatchedMutation>,
        before: Before,
    ) -> Result<(), WatchFailure> {
        let follower = Arc::clone(&self.follower);
        let (deadline, mutations) = (self.deadline(), taken.into_iter());
        let mut taken =
            WithPrevious { follower: &follower, before, deadline, rest: None, mutations };
        let mut part = Part::new(version);
        while let Some(mutation) = taken.next().await? {
            if let Some(full) = part.add(mutation) {
                self.send(self.after, full).await?;
                // Waiting for the caller is not reading.
                taken.deadline = self.deadline();
            }
        }
        self.send(version, part.last()).await
    }

    /// Nothing was said for a while. The history may have moved where neither
    /// polling nor a writer tells of it, or may be gone.
    async fn look_again(&mut self) -> Result<(), WatchFailure> {
        let age = Consistency::MaxStaleness(self.options.progress);
        match self.follower.pin(age, Instant::now() + CHECK_MAX).await {
            // Where the store is away, the age that progress tells says so.
            Ok(_)
            | Err(PinError::Failure(
                ReadFailure::FreshnessUnverified { .. } | ReadFailure::StoreUnavailable { .. },
            )) => {}
            Err(error) => return Err(ended(&self.follower, error).into()),
        }
        if self.follower.shared().newest() <= Some(self.after) {
            self.send_progress().await?;
        }
        Ok(())
    }

    async fn send_progress(&mut self) -> Result<(), WatchFailure> {
        let proved = self.pin(Consistency::Any).await?;
        let (newest, proof_age) = (proved.version(), proved.proof_age());
        self.send(self.after, WatchEvent::Progress { newest, proof_age }).await
    }

    /// Sends the state, and goes on behind it. Where its version is let go of
    /// meanwhile, begins again with a newer one.
    async fn send_state(&mut self, mut pinned: Pinned) -> Result<(), WatchFailure> {
        let follower = Arc::clone(&self.follower);
        let filter = self.options.filter.clone();
        loop {
            let mut rest = Rest::new(&filter, pinned);
            self.send(self.after, WatchEvent::SnapshotBegin(rest.version())).await?;
            let retired = loop {
                match rest.page(&follower, self.deadline()).await {
                    Ok(Some(page)) if page.entries.is_empty() => {}
                    Ok(Some(page)) => {
                        let entries = WatchEvent::SnapshotEntries(page.entries);
                        self.send(self.after, entries).await?;
                    }
                    Ok(None) => break None,
                    Err(failure @ ReadFailure::VersionRetired { .. }) => break Some(failure),
                    Err(failure) => return Err(failure.into()),
                }
            };
            if retired.is_none() {
                let version = rest.version();
                self.send(version, WatchEvent::SnapshotEnd(version)).await?;
                self.after = version;
                return Ok(());
            }
            pinned = self.pin(Consistency::Strong).await?;
        }
    }

    async fn send(
        &mut self,
        resume_after: StateVersion,
        event: WatchEvent,
    ) -> Result<(), WatchFailure> {
        let message = WatchMessage { history_id: self.history_id, resume_after, event };
        let (run, carried) = (&mut self.run, &mut self.carried);
        let release = || {
            *run = None;
            *carried = Carried::default();
        };
        self.outbox.send(message, release).await?;
        self.said_at = Instant::now();
        Ok(())
    }

    async fn pin(&self, consistency: Consistency) -> Result<Pinned, WatchFailure> {
        let pinned = self.follower.pin(consistency, self.deadline()).await;
        Ok(pinned.map_err(|it| ended(&self.follower, it))?)
    }

    fn deadline(&self) -> Instant {
        Instant::now() + self.read_max
    }
}

impl Until {
    async fn reached(self) -> WatchFailure {
        let deadline = async {
            match self.deadline {
                Some(moment) => sleep_until(moment).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            () = self.stop.cancelled() => ReadFailure::ShuttingDown.into(),
            () = self.drain.cancelled() => ReadFailure::ShuttingDown.into(),
            () = deadline => WatchFailure::Expired,
        }
    }
}

/// A message in the making.
struct Part {
    version: StateVersion,
    mutations: Vec<WatchedMutation>,
    size_bytes: usize,
}

impl Part {
    fn new(version: StateVersion) -> Self {
        Self { version, mutations: Vec::new(), size_bytes: 0 }
    }

    /// Adds a mutation; returns what came before it, where both are too much for
    /// one message.
    fn add(&mut self, mutation: WatchedMutation) -> Option<WatchEvent> {
        let size_bytes = mutation.size_bytes();
        let is_over = MESSAGE_BYTES_MAX < self.size_bytes + size_bytes;
        let full = (is_over && !self.mutations.is_empty()).then(|| {
            self.size_bytes = 0;
            let mutations = std::mem::take(&mut self.mutations);
            let version = self.version;
            WatchEvent::Change(WatchedChange { version, mutations, is_continued: true })
        });
        self.size_bytes += size_bytes;
        self.mutations.push(mutation);
        full
    }

    fn last(self) -> WatchEvent {
        let Self { version, mutations, .. } = self;
        WatchEvent::Change(WatchedChange { version, mutations, is_continued: false })
    }
}
