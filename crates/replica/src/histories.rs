//! The histories that are open, by name.

mod overview;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use headwater_core::id::{HistoryId, HistoryName};
use headwater_core::version::Revision;
use headwater_state::{ChunkCache, DiskCache, DiskReadings, LoadOptions, Loader};
use headwater_store::Store;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::Instrument as _;

use crate::config::ReplicaConfig;
use crate::consistency::Consistency;
use crate::failure::{RETRY_AFTER, ReadFailure};
use crate::figures::Figures;
use crate::follower::{Follower, FollowerOptions, Owner, PinError, PushedHead, Shared, lock};
use crate::local::Pinned;
use crate::metrics::{Level, ReplicaMetrics};
use crate::watch::{Budget, Places, WatchFigures};

/// How often a history may be replaced under one request.
const LOOKUPS_MAX: usize = 4;

/// Followers by name, opened on demand, dropped when idle or when there are too
/// many.
///
/// Dropping one takes it out of the map and nothing else: requests that hold it
/// go on with it, and its task ends with the last of them.
pub(crate) struct Histories {
    store: Arc<dyn Store>,
    cache: ChunkCache,
    disk: Option<DiskCache>,
    options: FollowerOptions,
    tasks: TaskTracker,
    watch_places: Places,
    /// Snapshots that were lost and made up for.
    snapshot_fallbacks: Arc<AtomicU64>,
    by_name: Mutex<BTreeMap<HistoryName, Slot>>,
    /// Counts histories that were opened, for those who subscribe to them.
    n_opened: watch::Sender<u64>,
}

struct Slot {
    follower: Arc<Follower>,
    used: Instant,
}

impl Slot {
    /// Whether somebody would miss it: a request that is under way, a scan
    /// between two pages, a watcher. A new follower would take its place, and
    /// follow the same history again.
    fn is_busy(&self) -> bool {
        let shared = self.follower.shared();
        1 < Arc::strong_count(&self.follower)
            || 0 < shared.feed().n_watchers()
            || shared.has_scans()
    }

    fn is_open(&self) -> bool {
        self.follower.shared().is_open()
    }
}

/// A view, with the follower that it is from.
#[derive(Debug)]
pub(crate) struct Held {
    pub(crate) follower: Arc<Follower>,
    pub(crate) pinned: Pinned,
}

impl Histories {
    pub(crate) fn new(
        store: Arc<dyn Store>,
        disk: Option<DiskCache>,
        options: FollowerOptions,
        tasks: TaskTracker,
    ) -> Self {
        let cache = ChunkCache::new(options.config.chunk_cache_bytes);
        let watch_places = Places::new(options.config.watchers_max);
        let by_name = Mutex::default();
        Self {
            store,
            cache,
            disk,
            options,
            tasks,
            watch_places,
            snapshot_fallbacks: Arc::default(),
            by_name,
            n_opened: watch::Sender::new(0),
        }
    }

    /// A view of the history with this name, and this id if one is given.
    pub(crate) async fn pin(
        self: &Arc<Self>,
        name: &HistoryName,
        id: Option<HistoryId>,
        consistency: Consistency,
        deadline: Instant,
    ) -> Result<Held, ReadFailure> {
        self.options.metrics.reads.add(Level::of(consistency));
        let held = self.pin_uncounted(name, id, consistency, deadline).await;
        self.options.figures.read(held.is_ok());
        held
    }

    async fn pin_uncounted(
        self: &Arc<Self>,
        name: &HistoryName,
        id: Option<HistoryId>,
        consistency: Consistency,
        deadline: Instant,
    ) -> Result<Held, ReadFailure> {
        for _ in 0..LOOKUPS_MAX {
            let follower = self.follower(name)?;
            match pin(&follower, id, consistency, deadline).await {
                Ok(pinned) => return Ok(Held { follower, pinned }),
                Err(PinError::Ended) => {}
                Err(PinError::Replaced { found }) => {
                    if let Some(id) = id.filter(|it| *it != found) {
                        return Err(other_id(id, found));
                    }
                }
                Err(PinError::Failure(failure)) => return Err(failure),
            }
        }
        let detail = "the history was replaced again and again".into();
        Err(ReadFailure::FreshnessUnverified { detail, retry_after: RETRY_AFTER })
    }

    /// The follower of a history; a new one if there is none.
    fn follower(self: &Arc<Self>, name: &HistoryName) -> Result<Arc<Follower>, ReadFailure> {
        let mut by_name = lock(&self.by_name);
        let used = Instant::now();
        if let Some(slot) = by_name.get_mut(name) {
            slot.used = used;
            return Ok(Arc::clone(&slot.follower));
        }
        if self.options.stop.is_cancelled() {
            return Err(ReadFailure::ShuttingDown);
        }
        // Names that may not exist must not push out histories that do: those
        // that are being opened take places as those do that are in use.
        let limit = self.options.config.histories_max;
        let n_fixed = by_name.values().filter(|it| !it.is_open() || it.is_busy()).count();
        if limit <= n_fixed {
            return Err(ReadFailure::TooManyHistories { limit });
        }
        let fetches_max = self.options.config.fetches_max;
        let options = LoadOptions { fetches_max };
        let mut loader =
            Loader::new(Arc::clone(&self.store), name.clone(), self.cache.clone(), options)
                .with_fallbacks_in(Arc::clone(&self.snapshot_fallbacks));
        if let Some(disk) = &self.disk {
            loader = loader.with_disk(disk.clone());
        }
        let owner = Arc::new(Keeper(Arc::downgrade(self)));
        let (follower, task) = Follower::new(loader, self.options.clone(), owner);
        let follower = Arc::new(follower);
        self.tasks
            .spawn(task.instrument(tracing::debug_span!(parent: None, "follow", history = %name)));
        by_name.insert(name.clone(), Slot { follower: Arc::clone(&follower), used });
        Ok(follower)
    }

    pub(crate) fn config(&self) -> &ReplicaConfig {
        &self.options.config
    }

    pub(crate) fn watch_budget(&self) -> &Budget {
        &self.options.watch_budget
    }

    pub(crate) fn metrics(&self) -> &Arc<ReplicaMetrics> {
        &self.options.metrics
    }

    pub(crate) fn figures(&self) -> &Figures {
        &self.options.figures
    }

    pub(crate) fn watch_places(&self) -> &Places {
        &self.watch_places
    }

    /// Cancelled when the replica stops.
    pub(crate) fn stop(&self) -> CancellationToken {
        self.options.stop.clone()
    }

    /// Runs a task that ends when the replica stops.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.tasks.spawn(task);
    }

    pub(crate) fn watch_figures(&self, name: &HistoryName) -> Option<WatchFigures> {
        let by_name = lock(&self.by_name);
        let shared = by_name.get(name)?.follower.shared();
        Some(WatchFigures {
            watchers: shared.feed().n_watchers(),
            watchers_of_process: self.watch_places.n_taken(),
            bytes_of_process: self.watch_budget().size_bytes(),
            bytes_shared: shared.feed().size_bytes(),
            changes_decoded: shared.loader().changes_decoded(),
        })
    }

    /// Passes on what a writer told of a head.
    pub(crate) fn notice(&self, name: &HistoryName, id: HistoryId, revision: Revision) {
        if let Some(slot) = lock(&self.by_name).get(name) {
            slot.follower.shared().notice(id, revision);
        }
    }

    /// Passes on a head that a writer has published.
    pub(crate) fn push(
        &self,
        name: &HistoryName,
        id: HistoryId,
        revision: Revision,
        head: PushedHead,
    ) {
        if let Some(slot) = lock(&self.by_name).get(name) {
            slot.follower.shared().push(id, revision, head);
        }
    }

    /// Drops what nobody has used for the idle time, and keeps the limits.
    pub(crate) fn drop_idle(&self) {
        let idle = self.options.config.idle();
        lock(&self.by_name).retain(|name, slot| {
            let is_kept = slot.used.elapsed() < idle || slot.is_busy();
            if !is_kept {
                tracing::debug!(history = %name, "dropped: nobody reads it");
            }
            is_kept
        });
        // What was in use when it was to be dropped may not be any more.
        self.drop_for_number(None);
        self.drop_for_memory(None);
    }

    /// Changes whenever a history was opened.
    pub(crate) fn opened(&self) -> watch::Receiver<u64> {
        self.n_opened.subscribe()
    }

    /// Names of the open histories, in order.
    pub(crate) fn open_names(&self) -> Vec<HistoryName> {
        let by_name = lock(&self.by_name);
        let open = by_name.iter().filter(|(_, it)| it.follower.shared().is_open());
        open.map(|(name, _)| name.clone()).collect()
    }

    pub(crate) fn disk_readings(&self) -> Option<DiskReadings> {
        self.disk.as_ref().map(DiskCache::readings)
    }

    pub(crate) fn snapshot_fallbacks(&self) -> u64 {
        self.snapshot_fallbacks.load(Ordering::Relaxed)
    }

    pub(crate) fn chunk_cache_bytes(&self) -> u64 {
        self.cache.size_bytes()
    }

    /// Name, version and age of the proof of the first `max` open histories.
    pub(crate) fn measured(&self, max: usize) -> Vec<(HistoryName, u64, Duration)> {
        let by_name = lock(&self.by_name);
        let open = by_name.iter().filter_map(|(name, slot)| {
            let shared = slot.follower.shared();
            Some((name.clone(), shared.newest()?.get(), shared.proof_age()?))
        });
        open.take(max).collect()
    }

    /// The age of the oldest proof among open histories.
    pub(crate) fn oldest_proof_age(&self) -> Option<Duration> {
        let by_name = lock(&self.by_name);
        by_name.values().filter_map(|it| it.follower.shared().proof_age()).max()
    }

    pub(crate) fn overlay_bytes(&self) -> u64 {
        self.options.memory.size_bytes()
    }

    /// Keeps the number of open histories.
    fn drop_for_number(&self, but: Option<&HistoryName>) {
        let mut by_name = lock(&self.by_name);
        let mut n_open = by_name.values().filter(|it| it.is_open()).count();
        while self.options.config.histories_max < n_open {
            let Some(oldest) = least_recent(&by_name, but, |_| true) else { return };
            tracing::debug!(history = %oldest, "dropped: others are used more");
            by_name.remove(&oldest);
            n_open -= 1;
        }
    }

    /// Keeps what the tails of open histories take in memory, as far as there
    /// are histories that nobody uses.
    fn drop_for_memory(&self, but: Option<&HistoryName>) {
        let limit = self.options.config.overlay_bytes;
        if self.options.memory.size_bytes() <= limit {
            return;
        }
        let mut by_name = lock(&self.by_name);
        while limit < self.options.memory.size_bytes() {
            let takes_some = |it: &Slot| 0 < it.follower.shared().memory().size_bytes();
            let Some(oldest) = least_recent(&by_name, but, takes_some) else { return };
            tracing::debug!(history = %oldest, "dropped: tails take too much memory");
            if let Some(slot) = by_name.remove(&oldest) {
                // Its task lets go of it at once, but not at this moment.
                slot.follower.shared().memory().set(0);
            }
        }
    }
}

/// The open history that nobody uses, and nobody has used for the longest time.
fn least_recent(
    by_name: &BTreeMap<HistoryName, Slot>,
    but: Option<&HistoryName>,
    is_wanted: impl Fn(&Slot) -> bool,
) -> Option<HistoryName> {
    let others = by_name
        .iter()
        .filter(|(name, it)| but != Some(*name) && it.is_open() && is_wanted(it) && !it.is_busy());
    others.min_by_key(|(_, it)| it.used).map(|(name, _)| name.clone())
}

/// What followers see of the map that holds them.
struct Keeper(Weak<Histories>);

impl Owner for Keeper {
    fn opened(&self, shared: &Arc<Shared>) {
        let Some(histories) = self.0.upgrade() else { return };
        histories.drop_for_number(Some(shared.history()));
        histories.n_opened.send_modify(|it| *it += 1);
    }

    fn advanced(&self, shared: &Arc<Shared>) {
        let Some(histories) = self.0.upgrade() else { return };
        histories.drop_for_memory(Some(shared.history()));
    }

    fn ended(&self, shared: &Arc<Shared>) {
        let Some(histories) = self.0.upgrade() else { return };
        let mut by_name = lock(&histories.by_name);
        let is_this = |it: &Slot| Arc::ptr_eq(it.follower.shared(), shared);
        if by_name.get(shared.history()).is_some_and(is_this) {
            by_name.remove(shared.history());
        }
    }
}

async fn pin(
    follower: &Follower,
    id: Option<HistoryId>,
    consistency: Consistency,
    deadline: Instant,
) -> Result<Pinned, PinError> {
    let Some(id) = id else { return follower.pin(consistency, deadline).await };
    // Versions do not compare across histories, so it has to be the right one
    // before its versions are looked at.
    match consistency {
        Consistency::AtLeast(_) | Consistency::Exact(_) => {
            let opened = follower.pin_any(deadline).await?;
            check_id(follower, id, opened, deadline).await?;
        }
        Consistency::Strong | Consistency::MaxStaleness(_) | Consistency::Any => {}
    }
    let pinned = follower.pin(consistency, deadline).await?;
    check_id(follower, id, pinned, deadline).await
}

/// `pinned`, if it is of the history with this id. If not, one check tells
/// whether the view is what is out of date.
async fn check_id(
    follower: &Follower,
    id: HistoryId,
    pinned: Pinned,
    deadline: Instant,
) -> Result<Pinned, PinError> {
    if pinned.history_id() == id {
        return Ok(pinned);
    }
    let fresh = follower.pin_fresh(deadline).await?;
    Err(PinError::Failure(other_id(id, fresh.history_id())))
}

fn other_id(wanted: HistoryId, found: HistoryId) -> ReadFailure {
    let detail = format!("the name belongs to {found} and not to {wanted}");
    ReadFailure::HistoryMissing { detail }
}

impl fmt::Debug for Histories {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Histories").field("store", &self.store).finish_non_exhaustive()
    }
}
