//! Everything of one run, as its parties share it.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use headwater_core::id::HistoryName;
use headwater_replica::{PushedHead, Replica};
use headwater_writer::{Handed, HeadNotice, LineError, PublishedHead, Taken};
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep};

use crate::bucket::Bucket;
use crate::dice::Dice;
use crate::handing::Way;
use crate::plan::Plan;
use crate::process::{Process, Role, Serving, Surroundings};
use crate::trace::{Keep, Trace};
use crate::truth::Truth;
use crate::weather::{Climate, Fate, Party, Trip};

/// One run.
pub(crate) struct World {
    pub(crate) plan: Plan,
    pub(crate) trace: Arc<Trace>,
    pub(crate) climate: Arc<Climate>,
    pub(crate) bucket: Bucket,
    pub(crate) processes: Vec<Process>,
    pub(crate) histories: Vec<HistoryName>,
    truth: Arc<Mutex<Truth>>,
    network: Dice,
    /// For what goes between writers.
    handing: Dice,
    n_handed: AtomicU64,
    began: Instant,
    is_over: AtomicBool,
}

/// What a call over the network came to.
pub(crate) struct Heard<A> {
    /// `None`: the connection broke.
    pub(crate) answer: Option<A>,
    /// The network delivered the call twice.
    pub(crate) was_repeated: bool,
}

impl World {
    /// Processes that are not started yet, over an empty bucket.
    pub(crate) fn new(plan: Plan, keep: Keep) -> Arc<Self> {
        let trace = Arc::new(Trace::new(keep));
        let climate = Arc::new(Climate::default());
        let hard = plan.writers.iter().map(|it| it.head_hard_bytes).max().unwrap_or(0);
        let truth = Arc::new(Mutex::new(Truth::new(hard)));
        let bucket = Bucket::new(Arc::clone(&truth), Arc::clone(&trace), plan.replacement_interval);
        let surroundings = Surroundings {
            seed: plan.seed,
            bucket: bucket.clone(),
            climate: Arc::clone(&climate),
            trace: Arc::clone(&trace),
            to_bucket: plan.to_bucket,
            layers: plan.layers,
            disks: plan.disks,
        };
        let writers = plan.writers.iter().cloned().map(|it| Role::Writer(Box::new(it)));
        let replicas = plan.replicas.iter().cloned().map(|it| Role::Replica(Box::new(it)));
        let processes = writers
            .chain(replicas)
            .enumerate()
            .map(|(index, role)| Process::new(index, role, surroundings.clone()))
            .collect();
        let histories =
            (0..plan.histories).filter_map(|n| HistoryName::parse(&format!("h{n}")).ok());
        let network = Dice::new(plan.seed, "network");
        let handing = Dice::new(plan.seed, "network between writers");
        Arc::new(Self {
            histories: histories.collect(),
            plan,
            trace,
            climate,
            bucket,
            processes,
            truth,
            network,
            handing,
            n_handed: AtomicU64::new(0),
            began: Instant::now(),
            is_over: AtomicBool::new(false),
        })
    }

    pub(crate) fn truth(&self) -> MutexGuard<'_, Truth> {
        self.truth.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Nothing new is asked for from here on.
    pub(crate) fn end(&self) {
        self.is_over.store(true, Ordering::Relaxed);
    }

    /// Whether nothing new is asked for any more.
    pub(crate) fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }

    /// Time since the run began.
    pub(crate) fn elapsed(&self) -> Duration {
        self.began.elapsed()
    }

    /// Starts every process that does not live, and has the writers tell the
    /// replicas of what they publish.
    pub(crate) fn start_all(self: &Arc<Self>) {
        for index in 0..self.processes.len() {
            self.start(index);
        }
    }

    /// Starts a process.
    pub(crate) fn start(self: &Arc<Self>, index: usize) {
        let process = &self.processes[index];
        if process.is_alive() {
            return;
        }
        process.start(Arc::new(Way::new(self, index)));
        let world = Arc::downgrade(self);
        process.serve(move |serving| {
            serving.listen(move |notice| {
                let Some(world) = world.upgrade() else { return };
                for to in 0..world.processes.len() {
                    if !world.processes[to].is_writer() {
                        world.tell(index, to, notice.clone());
                    }
                }
            })
        });
    }

    fn tell(self: &Arc<Self>, from: usize, to: usize, notice: HeadNotice) {
        let trip = self.plan.to_processes.trip(&self.network, &self.climate, None);
        let world = Arc::clone(self);
        tokio::spawn(async move {
            sleep(trip.there).await;
            let is_lost = !matches!(trip.fate, Fate::Arrives | Fate::LosesReply);
            if is_lost || world.climate.is_cut(Party::Process(from), Party::Process(to)) {
                return;
            }
            world.processes[to].serve(|serving| async move {
                if let Serving::Replica(replica) = serving {
                    take_in(&replica, &notice);
                }
            });
        });
    }

    /// Calls a process over the network. Cancel safe in this sense: a call that
    /// was sent arrives.
    pub(crate) async fn call<A: Send + 'static>(
        self: &Arc<Self>,
        client: usize,
        to: usize,
        serve: impl Fn(Serving) -> BoxFuture<'static, A> + Send + Sync + 'static,
    ) -> Heard<A> {
        let trip = self.plan.to_processes.trip(&self.network, &self.climate, None);
        let was_repeated = matches!(trip.fate, Fate::Repeats { .. });
        let (reply, answer) = oneshot::channel();
        let world = Arc::clone(self);
        tokio::spawn(world.travel(Party::Client(client), to, trip, serve, reply));
        Heard { answer: answer.await.ok(), was_repeated }
    }

    /// Hands operations of one writer to another. What was sent arrives, also
    /// when its sender waits no longer.
    pub(crate) async fn hand(
        self: &Arc<Self>,
        from: usize,
        to: usize,
        handed: Handed,
    ) -> Result<Taken, LineError> {
        let n = handed.operations.len() as u64;
        let is_there = self.processes.get(to).is_some_and(Process::is_alive);
        self.trace.event(format_args!("process {from}: hands {n} operations to process {to}"));
        if !is_there {
            return Err(LineError::NotTaken);
        }
        self.n_handed.fetch_add(n, Ordering::Relaxed);
        let trip = self.plan.to_processes.trip(&self.handing, &self.climate, None);
        let (reply, answer) = oneshot::channel();
        let serve = move |serving: Serving| {
            let handed = handed.clone();
            async move { serving.take(handed).await }.boxed()
        };
        tokio::spawn(Arc::clone(self).travel(Party::Process(from), to, trip, serve, reply));
        answer.await.ok().flatten().ok_or(LineError::NoAnswer)
    }

    /// Operations that writers handed to each other.
    pub(crate) fn n_handed(&self) -> u64 {
        self.n_handed.load(Ordering::Relaxed)
    }

    async fn travel<A: Send + 'static>(
        self: Arc<Self>,
        from: Party,
        to: usize,
        trip: Trip,
        serve: impl Fn(Serving) -> BoxFuture<'static, A> + Send + Sync + 'static,
        reply: oneshot::Sender<A>,
    ) {
        let Trip { there, back, fate } = trip;
        sleep(there).await;
        let process = &self.processes[to];
        match fate {
            Fate::LosesCall | Fate::Refused { .. } => return,
            Fate::Late { after } => {
                drop(reply);
                sleep(after).await;
                process.serve(|serving| async move { drop(serve(serving).await) });
                return;
            }
            Fate::Arrives | Fate::LosesReply | Fate::Repeats { .. } => (),
        }
        if self.climate.is_cut(from, Party::Process(to)) {
            return;
        }
        let serve = Arc::new(serve);
        let again = Arc::clone(&serve);
        let climate = Arc::clone(&self.climate);
        let deaths = process.deaths();
        process.serve(move |serving| async move {
            let answer = serve(serving).await;
            sleep(back).await;
            if fate != Fate::LosesReply && !climate.is_cut(from, Party::Process(to)) {
                let _gone = reply.send(answer);
            }
        });
        if let Fate::Repeats { after } = fate {
            sleep(after).await;
            // What lies between two writers repeats on a connection, which ends
            // with either. A client's call may find the next life there.
            if matches!(from, Party::Process(_)) && process.deaths() != deaths {
                return;
            }
            process.serve(move |serving| async move { drop(again(serving).await) });
        }
    }
}

/// What a replica is told, as its connection to the writer would tell it.
fn take_in(replica: &Replica, notice: &HeadNotice) {
    match notice.published.as_deref().cloned() {
        Some(PublishedHead { bytes: head, tag, changes: entries }) => {
            let head = PushedHead { head, tag, entries };
            replica.push(&notice.history, notice.history_id, notice.revision, head);
        }
        None => replica.notice(&notice.history, notice.history_id, notice.revision),
    }
}
