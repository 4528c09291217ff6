//! A replica as one thing to start and to stop.

use std::sync::Arc;
use std::time::Duration;

use headwater_core::id::{HistoryId, HistoryName};
use headwater_core::version::Revision;
use headwater_daemon::health::Health;
use headwater_proto::v1::read_service_server::ReadServiceServer;
use headwater_proto::v1::watch_service_server::WatchServiceServer;
use headwater_state::{DiskCache, DiskCacheInUse, DiskReadings, Seen};
use headwater_store::{Clock, Entropy, Store};
use opentelemetry::metrics::Meter;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::config::{ConfigError, ReplicaConfig};
use crate::figures::Figures;
use crate::follower::{FollowerOptions, PushedHead};
use crate::histories::Histories;
use crate::metrics::{self, ReplicaMetrics};
use crate::push;
use crate::reader::Reader;
use crate::ready::{self, ReadinessOptions};
use crate::service::{ReadRpc, WatchRpc};
use crate::watch::{Budget, WatchFigures};
use headwater_state::Memory;

/// A running replica.
///
/// Dropping it stops its tasks without waiting for them; [`Replica::shutdown`]
/// waits.
#[derive(Debug)]
pub struct Replica {
    histories: Arc<Histories>,
    config: Arc<ReplicaConfig>,
    tasks: TaskTracker,
    stop: CancellationToken,
}

/// Why a replica does not start.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StartError {
    /// A setting cannot be.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// Another process has the directory of the cache on disk.
    #[error(transparent)]
    Cache(#[from] DiskCacheInUse),
}

/// Starts a replica over `store`. Nothing is read until a history is asked for.
///
/// # Errors
///
/// [`StartError`]; nothing was started.
///
/// # Panics
///
/// Outside a tokio runtime with time enabled.
pub fn start(
    store: Arc<dyn Store>,
    config: ReplicaConfig,
    entropy: Entropy,
) -> Result<Replica, StartError> {
    let metrics = ReplicaMetrics::new(&headwater_daemon::metrics::none(), None);
    start_with(store, config, entropy, metrics)
}

/// As [`start`], and measures by `meter` what it does. `clock` tells how long
/// ago a writer decided what is followed, and nothing else.
///
/// # Errors
///
/// [`StartError`]; nothing was started.
///
/// # Panics
///
/// Outside a tokio runtime with time enabled.
pub fn start_measured(
    store: Arc<dyn Store>,
    config: ReplicaConfig,
    entropy: Entropy,
    clock: Clock,
    meter: &Meter,
) -> Result<Replica, StartError> {
    let replica = start_with(store, config, entropy, ReplicaMetrics::new(meter, Some(clock)))?;
    metrics::observe(meter, &replica.histories);
    Ok(replica)
}

fn start_with(
    store: Arc<dyn Store>,
    config: ReplicaConfig,
    entropy: Entropy,
    metrics: ReplicaMetrics,
) -> Result<Replica, StartError> {
    config.validate()?;
    let disk = match &config.cache_dir {
        Some(dir) => Some(DiskCache::open(dir, config.cache_disk_bytes)?),
        None => None,
    };
    begin(store, disk, config, entropy, metrics)
}

/// As [`start`], with a cache on disk that was opened elsewhere; `config` names
/// another one in vain.
///
/// # Errors
///
/// [`StartError`]; nothing was started.
///
/// # Panics
///
/// As [`start`].
pub fn start_over(
    store: Arc<dyn Store>,
    disk: Option<DiskCache>,
    config: ReplicaConfig,
    entropy: Entropy,
) -> Result<Replica, StartError> {
    let metrics = ReplicaMetrics::new(&headwater_daemon::metrics::none(), None);
    begin(store, disk, config, entropy, metrics)
}

fn begin(
    store: Arc<dyn Store>,
    disk: Option<DiskCache>,
    config: ReplicaConfig,
    entropy: Entropy,
    metrics: ReplicaMetrics,
) -> Result<Replica, StartError> {
    config.validate()?;
    let config = Arc::new(config);
    let (tasks, stop) = (TaskTracker::new(), CancellationToken::new());
    let subscribers_entropy = entropy.clone();
    let options = FollowerOptions {
        config: Arc::clone(&config),
        entropy,
        stop: stop.clone(),
        seen: Seen::default(),
        hydration: config.hydration(),
        memory: Memory::default(),
        watch_budget: Budget::new(config.watch_bytes),
        metrics: Arc::new(metrics),
        figures: Arc::new(Figures::new(&config.writers)),
    };
    let histories = Arc::new(Histories::new(store, disk, options, tasks.clone()));
    tasks.spawn(drop_idle(Arc::clone(&histories), config.idle(), stop.clone()));
    for (at, address) in config.writers.iter().enumerate() {
        let subscriber = push::Subscriber::new(
            (at, address.clone()),
            config.writers_line.clone(),
            Arc::clone(&histories),
            subscribers_entropy.clone(),
        );
        tasks.spawn(stop.clone().run_until_cancelled_owned(subscriber.run()));
    }
    Ok(Replica { histories, config, tasks, stop })
}

impl Replica {
    /// The gRPC service, to be added to a server.
    pub fn service(&self) -> ReadServiceServer<ReadRpc> {
        let rpc = ReadRpc::new(Arc::clone(&self.histories), self.config.request_timeout());
        ReadServiceServer::new(rpc)
            .max_decoding_message_size(headwater_proto::limits::MESSAGE_BYTES_MAX)
    }

    /// The gRPC service of watches. Once `drain` is cancelled, every watch is
    /// told that the process shuts down and where to go on, and no other begins:
    /// so that they do not hold the server while it drains.
    pub fn watch_service(&self, drain: CancellationToken) -> WatchServiceServer<WatchRpc> {
        WatchServiceServer::new(WatchRpc::new(Arc::clone(&self.histories), drain))
            .max_decoding_message_size(headwater_proto::limits::MESSAGE_BYTES_MAX)
    }

    /// Opens histories as `options` say, and reports to `health` how that goes,
    /// until the replica is shut down. Without any named there is nothing to
    /// report.
    pub fn keep_ready(&self, options: ReadinessOptions, health: Health) {
        if !options.open.is_empty() {
            // Registered here: a task that begins late would leave a replica
            // ready that has opened nothing.
            let opened = ready::check(&health);
            let keeping = ready::run(Arc::clone(&self.histories), options, health, opened);
            self.tasks.spawn(self.stop.clone().run_until_cancelled_owned(keeping));
        }
    }

    /// How watches of a history stand; `None` where it is not open.
    pub fn watch_figures(&self, history: &HistoryName) -> Option<WatchFigures> {
        self.histories.watch_figures(history)
    }

    /// Reads a history in this process.
    pub fn reader(&self, history: HistoryName) -> Reader {
        Reader::new(Arc::clone(&self.histories), history)
    }

    /// Tells of a head that was published, as a writer in the same process
    /// would. A hint: it makes catching up earlier, and changes no answer.
    pub fn notice(&self, history: &HistoryName, id: HistoryId, revision: Revision) {
        self.histories.notice(history, id, revision);
    }

    /// Takes in a head that a writer has published, as the store told it. What
    /// it brings becomes visible here before the store is asked again; a strong
    /// read still asks. Only for writers that are trusted: until the next check
    /// their word is served to reads that want no proof.
    pub fn push(&self, history: &HistoryName, id: HistoryId, revision: Revision, it: PushedHead) {
        self.histories.push(history, id, revision, it);
    }

    /// How the cache on disk stands; `None` where there is none.
    pub fn disk_readings(&self) -> Option<DiskReadings> {
        self.histories.disk_readings()
    }

    /// What the tails of the open histories take in memory, in bytes, about.
    pub fn overlay_bytes(&self) -> u64 {
        self.histories.overlay_bytes()
    }

    pub(crate) fn histories(&self) -> &Arc<Histories> {
        &self.histories
    }

    /// Measures the first `max` of the histories that are open, in order of
    /// their names, each under its own.
    pub fn measure_histories(&self, meter: &Meter, max: usize) {
        if max != 0 {
            metrics::observe_each(meter, &self.histories, max);
        }
    }

    /// Names of the histories that are open, in order.
    pub fn open_histories(&self) -> Vec<HistoryName> {
        self.histories.open_names()
    }

    /// Ends every task and waits for them. Reads that wait get
    /// [`ReadFailure::ShuttingDown`](crate::ReadFailure::ShuttingDown).
    ///
    /// Drain the server first: calls that come later are refused.
    pub async fn shutdown(self) {
        self.stop.cancel();
        self.tasks.close();
        self.tasks.wait().await;
    }
}

impl Drop for Replica {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

/// Looks for histories that nobody reads, often enough to be late by an eighth
/// of the idle time.
async fn drop_idle(histories: Arc<Histories>, idle: Duration, stop: CancellationToken) {
    let interval = (idle / 8).max(Duration::from_millis(100));
    while stop.run_until_cancelled(tokio::time::sleep(interval)).await.is_some() {
        histories.drop_idle();
    }
}
