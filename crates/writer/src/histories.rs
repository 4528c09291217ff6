//! The histories that are open in this process.

mod forwarding;
mod overview;

pub(crate) use self::forwarding::Asker;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use headwater_core::follow::Position;
use headwater_core::id::{HistoryId, HistoryName, Tag};
use headwater_core::publish::Maintenance;
use headwater_core::version::{Revision, StateVersion};
use headwater_daemon::trace::Origin;
use headwater_state::{ChunkCache, DiskCache, DiskReadings, LoadOptions, Loader, Memory, Seen};
use headwater_store::{Clock, Entropy, Store};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, broadcast, mpsc, oneshot, watch};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::config::WriterConfig;
use crate::driver::{AskError, Asked, Command, Driver, Parts, Question, Told};
use crate::figures::{Figures, Shown};
use crate::forward::{Forwarding, Line, Outbound, Repeats, Route, Rules};
use crate::keeper::keep;
use crate::metrics::{Full, WriterMetrics};
use crate::room::{Place, Room};
use crate::subscribers::Subscribers;

/// Notices kept for a receiver that is slow to take them.
/// At most 96 MiB, with what is told in each: [`PUSHED_HEAD_BYTES_MAX`] and
/// [`PUSHED_BYTES_MAX`].
const NOTICES_MAX: usize = 256;
/// Pieces of maintenance of one history that wait to be taken.
const MAINTENANCE_MAX: usize = 16;
/// The queue's bytes are counted in units of this size.
const BYTES_UNIT: usize = 1_024;
/// Longest time that a stop waits for drivers to answer what they have.
const SHUTDOWN_MAX: Duration = Duration::from_secs(35);

/// A head that this process published or saw.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeadNotice {
    /// The history.
    pub history: HistoryName,
    /// Its id.
    pub history_id: HistoryId,
    /// The head's revision.
    pub revision: Revision,
    /// Its state version.
    pub state_version: StateVersion,
    /// The head itself, where this process published it, and it is no larger than
    /// [`PUSHED_HEAD_BYTES_MAX`].
    pub published: Option<Arc<PublishedHead>>,
}

/// A head that this process published: the store said so.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PublishedHead {
    /// As stored.
    pub bytes: Bytes,
    /// Its tag.
    pub tag: Tag,
    /// Change entries that it is the first to name, where they lie in objects
    /// of their own: [`PUSHED_BYTES_MAX`] of them at most.
    pub changes: Vec<Bytes>,
}

/// Bytes of change entries that are told with one head. Larger ones are
/// fetched by those who follow.
pub const PUSHED_BYTES_MAX: usize = 128 << 10;

/// Bytes of a head that is told. Of a larger one it is told that it is there.
pub const PUSHED_HEAD_BYTES_MAX: usize = 256 << 10;

/// Opens histories on demand, and hands questions to their drivers.
pub(crate) struct Histories {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) config: Arc<WriterConfig>,
    pub(crate) entropy: Entropy,
    pub(crate) clock: Clock,
    pub(crate) publisher_id: String,
    pub(crate) metrics: Arc<WriterMetrics>,
    cache: ChunkCache,
    disk: Option<DiskCache>,
    /// What the tails of open histories take.
    memory: Memory,
    snapshot_fallbacks: Arc<AtomicU64>,
    /// How far each history was followed: one that went back is refused, also
    /// after it was closed.
    seen: Seen,
    notices: broadcast::Sender<HeadNotice>,
    figures: Arc<Figures>,
    pub(crate) subscribers: Subscribers,
    /// What every history's route keeps to.
    rules: Arc<Rules>,
    /// The way to other writers, where there is one.
    forwarding: Option<Forwarding>,
    /// Messages of other writers that came already.
    repeats: Mutex<Repeats>,
    open: Mutex<Open>,
    /// Ends what runs beside the drivers.
    stopping: CancellationToken,
}

struct Open {
    /// `None` once the process is stopping.
    histories: Option<BTreeMap<HistoryName, Handle>>,
    tasks: JoinSet<()>,
    generation: u64,
    /// Counts uses, for the order of them.
    n_uses: u64,
    has_keeper: bool,
}

/// A way to one driver.
#[derive(Clone, Debug)]
struct Handle {
    commands: mpsc::Sender<Command>,
    generation: u64,
    operations: Arc<Semaphore>,
    bytes: Arc<Semaphore>,
    maintenance: Arc<Semaphore>,
    place: Arc<Place>,
    /// When it was used last, by the count of uses.
    used: u64,
    /// What its driver leaves for those who look.
    shown: watch::Receiver<Option<Shown>>,
    route: Arc<Route>,
    /// What hands operations over, once it was needed.
    outgoing: Option<mpsc::Sender<Outbound>>,
}

impl Handle {
    /// Whether somebody waits for an answer.
    fn is_busy(&self, operations_max: usize) -> bool {
        self.operations.available_permits() < operations_max
            || self.maintenance.available_permits() < MAINTENANCE_MAX
    }
}

impl std::fmt::Debug for Histories {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Histories")
            .field("publisher_id", &self.publisher_id)
            .finish_non_exhaustive()
    }
}

impl Histories {
    pub(crate) fn new(
        store: Arc<dyn Store>,
        disk: Option<DiskCache>,
        config: WriterConfig,
        entropy: Entropy,
        clock: Clock,
        metrics: WriterMetrics,
        line: Option<Arc<dyn Line>>,
    ) -> Arc<Self> {
        let publisher_id = match config.publisher_id.as_str() {
            "" => format!("writer-{:016x}", entropy.u64()),
            chosen => chosen.to_owned(),
        };
        let open = Open {
            histories: Some(BTreeMap::new()),
            tasks: JoinSet::new(),
            generation: 0,
            n_uses: 0,
            has_keeper: false,
        };
        let rules = Arc::new(config.rules(publisher_id.clone()));
        Arc::new(Self {
            store,
            rules,
            forwarding: line.map(|it| Forwarding::new(it, entropy.clone())),
            repeats: Mutex::default(),
            cache: ChunkCache::new(config.chunk_cache_bytes),
            disk,
            memory: Memory::default(),
            snapshot_fallbacks: Arc::default(),
            seen: Seen::default(),
            config: Arc::new(config),
            entropy,
            clock,
            publisher_id,
            metrics: Arc::new(metrics),
            notices: broadcast::channel(NOTICES_MAX).0,
            figures: Arc::default(),
            subscribers: Subscribers::default(),
            open: Mutex::new(open),
            stopping: CancellationToken::new(),
        })
    }

    pub(crate) fn notices(&self) -> broadcast::Receiver<HeadNotice> {
        self.notices.subscribe()
    }

    /// Asks for a caller, until the configured time is up.
    pub(crate) async fn ask(
        self: &Arc<Self>,
        history: &HistoryName,
        question: Question,
    ) -> Result<Told, AskError> {
        let deadline = Instant::now() + self.config.operation_timeout();
        let told = self.send_for(Asker::Caller, history, question, deadline)?;
        told.await.map_err(|_| AskError::Lost)
    }

    /// [`Histories::send_for`] nobody but this process.
    pub(crate) fn send(
        self: &Arc<Self>,
        history: &HistoryName,
        question: Question,
        deadline: Instant,
    ) -> Result<oneshot::Receiver<Told>, AskError> {
        self.send_for(Asker::Process, history, question, deadline)
    }

    /// Hands a question over. Questions of one task are taken in the order in
    /// which it hands them over, but for those of an [`Asker::Caller`]; the answer
    /// comes by the deadline.
    ///
    /// Dropping the receiver does not take the question back.
    pub(crate) fn send_for(
        self: &Arc<Self>,
        by: Asker,
        history: &HistoryName,
        question: Question,
        deadline: Instant,
    ) -> Result<oneshot::Receiver<Told>, AskError> {
        let mut open = self.lock();
        let handle = self.handle(&mut open, history)?;
        if by.is_caller() {
            handle.route.heard(None);
        }
        let permits = self.permits(handle, &question)?;
        let may_move = by == Asker::Caller && self.may_hand_over();
        let goes_away = may_move && question.is_handed_over(&handle.route);
        let (reply, answer) = oneshot::channel();
        let asked = Asked {
            question,
            at: Instant::now(),
            origin: Origin::current(),
            deadline,
            reply,
            permits,
            // Not once it has come back; yet where it waits for long.
            may_move: may_move && !goes_away,
            is_handed: by == Asker::Writer,
        };
        if goes_away {
            self.hand_to_writer(&mut open, history, asked)?;
        } else {
            self.hand_to_driver(&mut open, history, asked)?;
        }
        Ok(answer)
    }

    fn hand_to_driver(
        self: &Arc<Self>,
        open: &mut Open,
        history: &HistoryName,
        asked: Asked,
    ) -> Result<(), AskError> {
        let handle = self.handle(open, history)?;
        let command = Command::Ask(asked);
        // Room for every permit: it is never full. It is closed when its driver
        // has ended for want of questions; a new one takes over, with a queue
        // of its own.
        if let Err(mpsc::error::TrySendError::Closed(Command::Ask(mut asked))) =
            handle.commands.try_send(command)
        {
            if let Some(histories) = &mut open.histories {
                histories.remove(history);
            }
            let handle = self.handle(open, history)?;
            asked.permits = self.permits(handle, &asked.question)?;
            handle.commands.try_send(Command::Ask(asked)).map_err(|_| AskError::Lost)?;
        }
        Ok(())
    }

    /// Has maintenance published that was prepared outside of the driver; says
    /// whether it was, or no longer fitted.
    pub(crate) async fn maintain(
        self: &Arc<Self>,
        history: &HistoryName,
        maintenance: Maintenance,
    ) -> Result<bool, AskError> {
        let (reply, is_applied) = oneshot::channel();
        self.hand(history, |permit| Command::Maintain { maintenance, reply, permit })?;
        is_applied.await.map_err(|_| AskError::Lost)
    }

    /// Has a snapshot made of the present version; says whether there is one.
    pub(crate) async fn compact(self: &Arc<Self>, history: &HistoryName) -> Result<bool, AskError> {
        // Nothing is raised by this; it makes sure that the head is read.
        let nothing = Maintenance::RaiseSweep { sweep_from: Revision::new(0) };
        self.maintain(history, nothing).await?;
        let (reply, is_there) = oneshot::channel();
        self.hand(history, |permit| Command::Compact { reply, permit })?;
        is_there.await.map_err(|_| AskError::Lost)
    }

    fn hand(
        self: &Arc<Self>,
        history: &HistoryName,
        command: impl FnOnce(OwnedSemaphorePermit) -> Command,
    ) -> Result<(), AskError> {
        let mut open = self.lock();
        if self.handle(&mut open, history)?.commands.is_closed()
            && let Some(histories) = &mut open.histories
        {
            histories.remove(history);
        }
        let handle = self.handle(&mut open, history)?;
        let limit = MAINTENANCE_MAX;
        let permit = Arc::clone(&handle.maintenance).try_acquire_owned().map_err(|_| {
            self.metrics.full.add(Full::Maintenance);
            AskError::QueueFull { what: "pieces of maintenance", limit }
        })?;
        handle.commands.try_send(command(permit)).map_err(|_| AskError::Lost)
    }

    fn permits(
        &self,
        handle: &Handle,
        question: &Question,
    ) -> Result<[OwnedSemaphorePermit; 2], AskError> {
        let limit = self.config.queue_operations_max;
        let operation = Arc::clone(&handle.operations).try_acquire_owned().map_err(|_| {
            self.metrics.full.add(Full::Operations);
            AskError::QueueFull { what: "operations", limit }
        })?;
        // An operation larger than the whole queue is let in when it is alone.
        let units = units(question.size_bytes()).min(units(self.config.queue_bytes_max));
        let limit = self.config.queue_bytes_max;
        let bytes = Arc::clone(&handle.bytes).try_acquire_many_owned(units).map_err(|_| {
            self.metrics.full.add(Full::Bytes);
            AskError::QueueFull { what: "bytes of operations", limit }
        })?;
        Ok([operation, bytes])
    }

    /// The way to a history's driver, which is opened if it is not open yet.
    fn handle<'a>(
        self: &Arc<Self>,
        open: &'a mut Open,
        history: &HistoryName,
    ) -> Result<&'a Handle, AskError> {
        let Open { histories, tasks, generation, n_uses, has_keeper } = open;
        let histories = histories.as_mut().ok_or(AskError::ShuttingDown)?;
        *n_uses += 1;
        if histories.contains_key(history) {
            let handle = histories.get_mut(history).ok_or(AskError::Lost)?;
            handle.used = *n_uses;
            return Ok(handle);
        }
        let limit = self.config.histories_max;
        let operations_max = self.config.queue_operations_max;
        let is_fixed = |it: &&Handle| !it.place.has_head() || it.is_busy(operations_max);
        if limit <= histories.values().filter(is_fixed).count() {
            self.metrics.full.add(Full::Histories);
            return Err(AskError::TooManyHistories { limit });
        }
        *generation += 1;
        let place = Arc::new(Place::new(&self.memory));
        let (commands, taken) = mpsc::channel(self.config.queue_operations_max + MAINTENANCE_MAX);
        let (left, shown) = watch::channel(None);
        let handle = Handle {
            commands,
            generation: *generation,
            operations: Arc::new(Semaphore::new(self.config.queue_operations_max)),
            bytes: Arc::new(Semaphore::new(units(self.config.queue_bytes_max) as usize)),
            maintenance: Arc::new(Semaphore::new(MAINTENANCE_MAX)),
            place: Arc::clone(&place),
            used: *n_uses,
            shown,
            route: Arc::new(Route::new(history.clone(), Arc::clone(&self.rules))),
            outgoing: None,
        };
        while tasks.try_join_next().is_some() {}
        let driver = Driver::new(self.parts(history, place, left, Arc::clone(&handle.route)));
        let may_end = {
            let (this, history) = (Arc::downgrade(self), history.clone());
            let generation = *generation;
            move |commands: &mpsc::Receiver<Command>| {
                let Some(this) = this.upgrade() else { return true };
                this.forget(&history, generation, commands)
            }
        };
        tasks.spawn(driver.run(taken, may_end));
        if self.config.sweep_every_ms != 0 && !std::mem::replace(has_keeper, true) {
            let keeper = keep(Arc::downgrade(self));
            let stopping = self.stopping.clone();
            tasks.spawn(async move {
                stopping.run_until_cancelled(keeper).await;
            });
        }
        Ok(histories.entry(history.clone()).or_insert(handle))
    }

    /// Operations that wait for their outcome.
    pub(crate) fn n_waiting(&self) -> u64 {
        let open = self.lock();
        let handles = open.histories.iter().flat_map(BTreeMap::values);
        let max = self.config.queue_operations_max;
        handles.map(|it| (max - it.operations.available_permits()) as u64).sum()
    }

    /// The histories that are open.
    pub(crate) fn open_names(&self) -> BTreeSet<HistoryName> {
        self.lock().histories.iter().flat_map(BTreeMap::keys).cloned().collect()
    }

    /// How far a history was followed.
    pub(crate) fn position(&self, history: &HistoryName) -> Option<Position> {
        self.seen.position(history)
    }

    pub(crate) fn loader(&self, history: &HistoryName) -> Loader {
        let (store, cache) = (Arc::clone(&self.store), self.cache.clone());
        let loader = Loader::new(store, history.clone(), cache, LoadOptions::default())
            .with_fallbacks_in(Arc::clone(&self.snapshot_fallbacks));
        match &self.disk {
            Some(disk) => loader.with_disk(disk.clone()),
            None => loader,
        }
    }

    fn parts(
        self: &Arc<Self>,
        history: &HistoryName,
        place: Arc<Place>,
        shown: watch::Sender<Option<Shown>>,
        route: Arc<Route>,
    ) -> Parts {
        let room = Room { histories: Arc::downgrade(self), history: history.clone(), place };
        Parts {
            store: Arc::clone(&self.store),
            history: history.clone(),
            loader: self.loader(history),
            config: Arc::clone(&self.config),
            publisher_id: self.publisher_id.clone(),
            entropy: self.entropy.clone(),
            clock: self.clock.clone(),
            seen: self.seen.clone(),
            notices: self.notices.clone(),
            room,
            metrics: Arc::clone(&self.metrics),
            figures: Arc::clone(&self.figures),
            shown,
            route,
        }
    }

    /// Keeps the number of open histories.
    pub(crate) fn keep_number(&self, but: &HistoryName) {
        let mut open = self.lock();
        let Some(histories) = &mut open.histories else { return };
        let mut n_open = histories.values().filter(|it| it.place.has_head()).count();
        while self.config.histories_max < n_open {
            if !self.close_one(histories, but, |_| true) {
                return;
            }
            n_open -= 1;
        }
    }

    /// Keeps what the tails of open histories take in memory, as far as there
    /// are histories that nobody waits for.
    pub(crate) fn keep_memory(&self, but: &HistoryName) {
        let limit = self.config.overlay_bytes;
        if self.memory.size_bytes() <= limit {
            return;
        }
        let mut open = self.lock();
        let Some(histories) = &mut open.histories else { return };
        while limit < self.memory.size_bytes() {
            if !self.close_one(histories, but, |it| 0 < it.place.overlay_bytes()) {
                return;
            }
        }
    }

    /// Closes the open history that nobody waits for, and nobody has used for the
    /// longest time. Its driver ends by itself.
    fn close_one(
        &self,
        histories: &mut BTreeMap<HistoryName, Handle>,
        but: &HistoryName,
        is_wanted: impl Fn(&Handle) -> bool,
    ) -> bool {
        let operations_max = self.config.queue_operations_max;
        let others = histories.iter().filter(|(name, it)| {
            *name != but && it.place.has_head() && is_wanted(it) && !it.is_busy(operations_max)
        });
        let oldest = others.min_by_key(|(_, it)| it.used).map(|(name, _)| name.clone());
        let Some((name, handle)) = oldest.and_then(|it| histories.remove_entry(&it)) else {
            return false;
        };
        tracing::debug!(history = %name, "closed: others are used more");
        handle.place.let_go();
        true
    }

    pub(crate) fn overlay_bytes(&self) -> u64 {
        self.memory.size_bytes()
    }

    pub(crate) fn disk_readings(&self) -> Option<DiskReadings> {
        self.disk.as_ref().map(DiskCache::readings)
    }

    pub(crate) fn snapshot_fallbacks(&self) -> u64 {
        self.snapshot_fallbacks.load(Ordering::Relaxed)
    }

    /// Lets go of a driver that wants to end, unless it was asked something at
    /// the last moment: what comes after must not overtake that in another one.
    fn forget(
        &self,
        history: &HistoryName,
        generation: u64,
        commands: &mpsc::Receiver<Command>,
    ) -> bool {
        let mut open = self.lock();
        let Some(histories) = &mut open.histories else { return true };
        // Questions are handed over under the same lock.
        if !commands.is_empty() {
            return false;
        }
        // A history whose operations are handed over is in use, though not here.
        let is_this = |it: &&Handle| it.generation == generation;
        if histories.get(history).filter(is_this).is_some_and(|it| it.route.is_handing()) {
            return false;
        }
        if histories.get(history).is_some_and(|it| it.generation == generation) {
            histories.remove(history);
        }
        true
    }

    /// Ends every driver once it has answered what it has.
    pub(crate) async fn shutdown(&self) {
        self.stopping.cancel();
        let mut tasks = {
            let mut open = self.lock();
            // The queues close with their handles.
            drop(open.histories.take());
            std::mem::take(&mut open.tasks)
        };
        let all = async { while tasks.join_next().await.is_some() {} };
        if tokio::time::timeout(SHUTDOWN_MAX, all).await.is_err() {
            tracing::warn!("some publishers did not end in time; they are cut");
        }
    }

    fn lock(&self) -> MutexGuard<'_, Open> {
        // Nothing in here panics halfway through a change.
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn units(size_bytes: usize) -> u32 {
    u32::try_from(size_bytes.div_ceil(BYTES_UNIT)).unwrap_or(u32::MAX)
}
