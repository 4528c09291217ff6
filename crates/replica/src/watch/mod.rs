//! Following what changes: every version after one, in order, none left out and
//! none twice.
//!
//! In here: what all watchers of a history share, what each of them is told and
//! when, and how it ends. Not in here: how the history is followed, and the
//! wire.
//!
//! # Invariants
//!
//! - A change is decoded once for all who watch a history and keep up, and once
//!   more for all who are behind by about as much.
//! - What a watch holds is bounded, whatever its caller does. A caller that does
//!   not read is told so in the end, with where to go on. What all of them hold
//!   is bounded too.
//! - Positions are versions and nothing else, so any replica continues what
//!   another one began.

mod budget;
mod changes;
mod feed;
mod filter;
mod message;
mod older;
mod outbox;
mod previous;
mod snapshot;
mod watcher;

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures::Stream;
use headwater_core::id::{HistoryId, HistoryName};
use headwater_core::version::StateVersion;
use headwater_store::planted;
use tokio::sync::Semaphore;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::Instrument as _;

pub(crate) use self::budget::Budget;
pub(crate) use self::feed::{Feed, FeedLimits};
pub use self::filter::{KeyFilter, prefix_range};
pub use self::message::{
    SnapshotMode, WatchEnd, WatchEvent, WatchFailure, WatchMessage, WatchOptions, WatchedChange,
    WatchedMutation,
};
use self::outbox::{Inbox, Item, Outbox};
use self::previous::Carried;
use self::watcher::{Until, Watcher};
use crate::consistency::Consistency;
use crate::failure::ReadFailure;
use crate::histories::{Held, Histories};

/// A watch, as its caller has it: messages, and then how it ended. Dropping it
/// ends it.
pub struct Watch {
    items: Inbox,
}

/// How the watches of a history stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WatchFigures {
    /// Watches of the history.
    pub watchers: usize,
    /// Watches of all histories.
    pub watchers_of_process: usize,
    /// Bytes that all watches of the process hold: changes that are kept, and
    /// messages that wait for their callers.
    pub bytes_of_process: u64,
    /// Bytes of changes kept for all watchers of the history together.
    pub bytes_shared: u64,
    /// Change entries of the history decoded so far, for watchers and everybody
    /// else.
    pub changes_decoded: u64,
}

/// Places for the watches of one process.
#[derive(Clone, Debug)]
pub(crate) struct Places {
    free: Arc<Semaphore>,
    limit: usize,
}

/// What is to be watched, and until when.
pub(crate) struct Request<'a> {
    pub(crate) history: &'a HistoryName,
    pub(crate) id: Option<HistoryId>,
    pub(crate) options: WatchOptions,
    /// By when the first view has to be there.
    pub(crate) begin_by: Instant,
    pub(crate) drain: CancellationToken,
    pub(crate) deadline: Option<Instant>,
}

impl Places {
    pub(crate) fn new(limit: usize) -> Self {
        Self { free: Arc::new(Semaphore::new(limit)), limit }
    }

    /// Watches of the process.
    pub(crate) fn n_taken(&self) -> usize {
        self.limit - self.free.available_permits()
    }
}

/// Begins a watch.
///
/// Cancel safe: nothing is left behind.
pub(crate) async fn begin(
    histories: &Arc<Histories>,
    request: Request<'_>,
) -> Result<Watch, WatchFailure> {
    let Request { history, id, options, begin_by, drain, deadline } = request;
    if drain.is_cancelled() {
        return Err(ReadFailure::ShuttingDown.into());
    }
    let places = histories.watch_places();
    let process_place = Arc::clone(&places.free)
        .try_acquire_owned()
        .map_err(|_| WatchFailure::TooMany { limit: places.limit, of: "this process" })?;
    let consistency = options.after.map_or(Consistency::Strong, Consistency::AtLeast);
    let Held { follower, pinned } = histories.pin(history, id, consistency, begin_by).await?;
    let feed = Arc::clone(follower.shared().feed());
    let place = feed.join();
    let limit = feed.watchers_max();
    let place = place.ok_or(WatchFailure::TooMany { limit, of: "this history" })?;

    let after = match (options.snapshot, options.after) {
        // Nothing was told yet, not even the state.
        (SnapshotMode::First, _) => StateVersion::ZERO,
        (SnapshotMode::Never | SnapshotMode::IfRetired, Some(after)) => {
            if planted!(WatchSkips) && after < pinned.version() {
                after.next()
            } else if planted!(WatchRepeats) {
                StateVersion::new(after.get().saturating_sub(1))
            } else {
                after
            }
        }
        (SnapshotMode::Never | SnapshotMode::IfRetired, None) => pinned.version(),
    };
    if options.snapshot == SnapshotMode::Never {
        older::check_retired(&follower, &pinned, after)?;
    }
    let config = histories.config();
    let (outbox, items) = Outbox::new(after, config.watch_stall(), histories.watch_budget());
    let watcher = Watcher {
        history_id: pinned.history_id(),
        follower,
        options,
        read_max: config.request_timeout(),
        outbox,
        after,
        run: None,
        carried: Carried::default(),
        said_at: Instant::now(),
        places: (place, process_place),
        metrics: Arc::clone(histories.metrics()),
    };
    let until = Until { stop: histories.stop(), drain, deadline };
    let span = tracing::debug_span!(parent: None, "watch", history = %history);
    histories.spawn(watcher.run(until, pinned).instrument(span));
    Ok(Watch { items })
}

impl Stream for Watch {
    type Item = Item;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.items.poll(cx)
    }
}

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watch").finish_non_exhaustive()
    }
}
