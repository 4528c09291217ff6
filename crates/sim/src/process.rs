//! Writers and replicas as processes: they start, are asked, die and start
//! again.
//!
//! What runs in here is the real writer and the real replica over the real
//! decorators. A death is a drop: nothing is answered, nothing is flushed, and
//! what was sent already is on its way.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use headwater_core::id::HistoryName;
use headwater_replica::{Reader, Replica, ReplicaConfig};
use headwater_state::{DiskCache, DiskReadings};
use headwater_store::{Clock, Layers, LayersConfig, Store};
use headwater_writer::{
    AskError, Handed, HeadNotice, Line, Question, Taken, Told, Writer, WriterConfig,
};
use tokio::sync::broadcast::error::RecvError;
use tokio::task::JoinSet;

use crate::bucket::Bucket;
use crate::dice::{Dice, entropy};
use crate::disk::{Disk, DiskPlan};
use crate::link::{Hold, Link, LinkParts, Script};
use crate::trace::Trace;
use crate::weather::{Climate, Party, Weather};

/// What the clock on the wall shows when a run begins, in milliseconds since
/// 1970.
pub(crate) const CLOCK_BEGINS_MS: u64 = 1_800_000_000_000;

/// What a process is.
#[derive(Clone, Debug)]
pub(crate) enum Role {
    Writer(Box<WriterConfig>),
    Replica(Box<ReplicaConfig>),
}

/// A place for a process, and the process in it while one lives.
pub(crate) struct Process {
    pub(crate) index: usize,
    pub(crate) hold: Hold,
    surroundings: Surroundings,
    state: Mutex<State>,
}

/// What a process is started in.
#[derive(Clone)]
pub(crate) struct Surroundings {
    pub(crate) seed: u64,
    pub(crate) bucket: Bucket,
    pub(crate) climate: Arc<Climate>,
    pub(crate) trace: Arc<Trace>,
    pub(crate) to_bucket: Weather,
    pub(crate) layers: LayersConfig,
    pub(crate) disks: Option<DiskPlan>,
}

struct State {
    role: Role,
    script: Script,
    disk: Option<Disk>,
    /// What became of the caches of lives that are over.
    readings: Vec<DiskReadings>,
    n_lives: u64,
    n_deaths: u64,
    life: Option<Life>,
}

/// A process that lives. Dropping it is its death.
struct Life {
    server: Server,
    is_silent: Arc<AtomicBool>,
    cache: Option<DiskCache>,
    /// Calls that it serves, and what it does by itself.
    tasks: JoinSet<()>,
}

enum Server {
    Writer(Writer),
    Replica(Arc<Replica>),
}

impl Process {
    pub(crate) fn new(index: usize, role: Role, surroundings: Surroundings) -> Self {
        let disk = match &role {
            Role::Writer(_) => None,
            Role::Replica(_) => {
                surroundings.disks.map(|it| Disk::new(it, surroundings.seed, index))
            }
        };
        let state = State {
            role,
            script: Script::default(),
            disk,
            readings: Vec::new(),
            n_lives: 0,
            n_deaths: 0,
            life: None,
        };
        Self { index, hold: Hold::default(), surroundings, state: Mutex::new(state) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has the next life of the process meet this.
    pub(crate) fn set_script(&self, script: Script) {
        self.state().script = script;
    }

    pub(crate) fn is_alive(&self) -> bool {
        self.state().life.is_some()
    }

    /// How often it was killed.
    pub(crate) fn deaths(&self) -> u64 {
        self.state().n_deaths
    }

    /// What became of its caches, over all its lives.
    pub(crate) fn disk_readings(&self) -> Vec<DiskReadings> {
        let state = self.state();
        let now = state.life.as_ref().and_then(|it| it.cache.as_ref()).map(DiskCache::readings);
        state.readings.iter().copied().chain(now).collect()
    }

    pub(crate) fn is_writer(&self) -> bool {
        matches!(self.state().role, Role::Writer(_))
    }

    /// Whether its script had it die: it sends nothing any more.
    pub(crate) fn has_fallen_silent(&self) -> bool {
        self.state().life.as_ref().is_some_and(|it| it.is_silent.load(Ordering::Relaxed))
    }

    /// Starts a process, if none lives. Nothing is kept of the one before. A
    /// writer reaches others over `others`.
    ///
    /// # Panics
    ///
    /// When the plan's settings are refused: a defect of the plan.
    pub(crate) fn start(&self, others: Arc<dyn Line>) {
        let mut state = self.state();
        if state.life.is_some() {
            return;
        }
        state.n_lives += 1;
        let n = state.n_lives;
        let Surroundings { seed, bucket, climate, trace, to_bucket, layers, disks: _ } =
            self.surroundings.clone();
        trace.event(format_args!("process {}: starts, life {n}", self.index));
        let label = |what: &str| format!("process {} life {n}: {what}", self.index);
        let is_silent = Arc::new(AtomicBool::new(false));
        let cache = state.disk.as_mut().and_then(|it| it.next_life(&trace, self.index));
        let link = Link::new(LinkParts {
            is_silent: Arc::clone(&is_silent),
            bucket,
            climate,
            trace,
            dice: Dice::new(seed, &label("way to the bucket")),
            weather: to_bucket,
            of: Party::Process(self.index),
            hold: self.hold.clone(),
            script: std::mem::take(&mut state.script),
        });
        let layers = Layers::around(Arc::new(link), layers, entropy(seed, &label("repeats")));
        let seed = (seed, &*label("service"));
        let server = server(&state.role, layers.store, cache.clone(), seed, others);
        state.life = Some(Life { server, is_silent, cache, tasks: JoinSet::new() });
    }

    /// Kills the process.
    pub(crate) fn kill(&self) {
        let life = self.state().life.take();
        if let Some(life) = &life {
            let mut state = self.state();
            state.n_deaths += 1;
            state.readings.extend(life.cache.as_ref().map(DiskCache::readings));
            drop(state);
            self.surroundings.trace.event(format_args!("process {}: is killed", self.index));
        }
        // Outside of the lock: dropping runs the drops of all that it did.
        drop(life);
    }

    /// Serves a call in the process: `serve` ends with it. Without a process
    /// there is nobody to answer.
    pub(crate) fn serve<F>(&self, serve: impl FnOnce(Serving) -> F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let mut state = self.state();
        let Some(life) = &mut state.life else { return };
        while life.tasks.try_join_next().is_some() {}
        let serving = match &life.server {
            Server::Writer(writer) => Serving::Writer(writer.clone()),
            Server::Replica(replica) => Serving::Replica(Arc::clone(replica)),
        };
        life.tasks.spawn(serve(serving));
    }
}

fn server(
    role: &Role,
    store: Arc<dyn Store>,
    cache: Option<DiskCache>,
    (seed, label): (u64, &str),
    line: Arc<dyn Line>,
) -> Server {
    let refused = |it: &dyn std::error::Error| panic!("the plan's settings are refused: {it}");
    match role {
        Role::Writer(config) => {
            let config = WriterConfig::clone(config);
            let clock = clock(&Dice::new(seed, &format!("{label}: clock")));
            let (entropy, none) = (entropy(seed, label), headwater_daemon::metrics::none());
            let line = Some(line);
            match headwater_writer::start_linked(store, config, entropy, clock, &none, line) {
                Ok(writer) => Server::Writer(writer),
                Err(error) => refused(&error),
            }
        }
        Role::Replica(config) => {
            let config = ReplicaConfig::clone(config);
            match headwater_replica::start_over(store, cache, config, entropy(seed, label)) {
                Ok(replica) => Server::Replica(Arc::new(replica)),
                Err(error) => refused(&error),
            }
        }
    }
}

/// The clock on the wall of a process: up to an hour off, at each start another
/// way, as after a bad adjustment.
fn clock(dice: &Dice) -> Clock {
    const HOUR_MS: u64 = 3_600_000;
    let clock = Clock::virtual_from(CLOCK_BEGINS_MS);
    let off_ms = i64::try_from(dice.between(0, 2 * HOUR_MS)).unwrap_or(0);
    clock.set_skew_ms(off_ms - 3_600_000);
    clock
}

/// A process, as the calls see it that it serves.
#[derive(Clone)]
pub(crate) enum Serving {
    Writer(Writer),
    Replica(Arc<Replica>),
}

impl Serving {
    /// Asks a writer.
    pub(crate) async fn ask(
        &self,
        history: &HistoryName,
        question: Question,
    ) -> Result<Told, AskError> {
        match self {
            Self::Writer(writer) => writer.ask(history, question).await,
            Self::Replica(_) => Err(AskError::ShuttingDown),
        }
    }

    /// Hands operations of another writer over; `None` where nothing is heard.
    pub(crate) async fn take(&self, handed: Handed) -> Option<Taken> {
        match self {
            Self::Writer(writer) => writer.take_handed(handed).await,
            Self::Replica(_) => None,
        }
    }

    /// Reads from a replica; `None` where it is none.
    pub(crate) fn reader(&self, history: &HistoryName) -> Option<Reader> {
        match self {
            Self::Replica(replica) => Some(replica.reader(history.clone())),
            Self::Writer(_) => None,
        }
    }

    /// Passes heads on to `tell` as they are published, until the writer ends.
    pub(crate) async fn listen(self, mut tell: impl FnMut(HeadNotice) + Send) {
        let Self::Writer(writer) = self else { return };
        let mut notices = writer.notices();
        // It must not keep the writer that it listens to.
        drop(writer);
        loop {
            match notices.recv().await {
                Ok(notice) => tell(notice),
                Err(RecvError::Lagged(_)) => (),
                Err(RecvError::Closed) => return,
            }
        }
    }
}
