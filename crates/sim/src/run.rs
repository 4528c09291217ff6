//! One run, from an empty bucket to the last check.

use std::cell::RefCell;
use std::panic;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Once};
use std::time::Duration;

use headwater_core::id::HistoryId;
use headwater_core::operation::KeyRange;
use headwater_replica::Consistency;
use headwater_verify::{Options, Progress, Verdict, Verifier};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use crate::chaos;
use crate::client::{Client, Done};
use crate::dice::Dice;
use crate::plan::Plan;
use crate::process::Serving;
use crate::steward::Steward;
use crate::trace::Keep;
use crate::truth::Tally;
use crate::watching::Watching;
use crate::world::World;

/// Once everything works again, some operation ends within this time, until all
/// have. There is no bound for all of them: a store that takes one replacement a
/// second, and batches of one operation, take their time.
const PROGRESS_MAX: Duration = Duration::from_secs(300);

/// What a run came to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// The seed of its plan.
    pub seed: u64,
    /// What was wrong; nothing, where everything held.
    pub violations: Vec<String>,
    /// Operations and reads of clients that ended.
    pub operations: u64,
    /// Reads among them.
    pub reads: u64,
    /// Operations that writers handed to each other.
    pub handed: u64,
    /// Submissions, repeats included.
    pub attempts: u64,
    /// Rejections that clients were told.
    pub rejected: u64,
    /// Operations of which nobody knows.
    pub unknown: u64,
    /// Submissions that were answered `in doubt`.
    pub in_doubt: u64,
    /// What the bucket took.
    pub tally: Tally,
    /// Processes that were killed.
    pub deaths: u64,
    /// Objects that were read from disks, files on them that were found to be
    /// damaged, and writes that failed.
    pub disk: (u64, u64, u64),
    /// Replies that were lost, of the bucket's and of processes.
    pub lost_replies: u64,
    /// Messages that a partition stopped.
    pub cut_off: u64,
    /// Calls to the store that were throttled.
    pub throttled: u64,
    /// Events, which the trace counts.
    pub events: u64,
    /// Simulated time.
    pub took: Duration,
    /// Hash of the trace, where it was asked for.
    pub digest: String,
    /// The trace, where it was asked for.
    pub text: String,
}

thread_local! {
    /// Panics of tasks, which the runtime catches: each is a violation.
    static PANICS: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
}

/// Has panics taken down. A panic in a task would otherwise be a task that
/// ended.
fn watch_panics() {
    static WATCH: Once = Once::new();
    WATCH.call_once(|| {
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            PANICS.with_borrow_mut(|it| it.push(format!("a panic: {info}")));
            before(info);
        }));
    });
}

fn take_panics() -> Vec<String> {
    PANICS.with_borrow_mut(std::mem::take)
}

/// Runs a plan on this thread.
///
/// # Panics
///
/// When the runtime cannot be made.
pub fn run(plan: Plan, keep: Keep) -> Report {
    on_virtual_time(async move {
        let world = World::new(plan, keep);
        let done = Arc::new(Done::default());
        live(&world, &done).await;
        report(&world, &done)
    })
}

/// Runs `future` on this thread, with a clock that stands still while anybody
/// has something to do. Panics in tasks become panics here.
///
/// # Panics
///
/// When the runtime cannot be made, and as said.
pub(crate) fn on_virtual_time<T>(future: impl Future<Output = T>) -> T {
    watch_panics();
    drop(take_panics());
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    match runtime {
        Ok(runtime) => runtime.block_on(future),
        Err(error) => panic!("no runtime: {error}"),
    }
}

async fn live(world: &Arc<World>, done: &Arc<Done>) {
    world.start_all();
    create_histories(world).await;
    let mut clients = JoinSet::new();
    for index in 0..world.plan.clients {
        clients.spawn(Client::new(world, done, index).run());
    }
    let mut watchers = JoinSet::new();
    for index in 0..world.plan.watchers {
        watchers.spawn(Watching::new(world, index).run());
    }
    let mut stewards = JoinSet::new();
    if let Some(every) = world.plan.stewards {
        for index in 0..world.histories.len() {
            stewards.spawn(Steward::new(world, done, index).run(every));
        }
    }
    let mut trouble = tokio::spawn(chaos::run(Arc::clone(world)));
    tokio::select! {
        biased;
        () = join_all(&mut clients) => trouble.abort(),
        _ = &mut trouble => (),
    }
    calm(world).await;
    let ended = || done.operations.load(Ordering::Relaxed);
    let mut before = ended();
    while timeout(PROGRESS_MAX, join_all(&mut clients)).await.is_err() {
        if before == ended() {
            world.truth().violation(format!("nothing ended for {PROGRESS_MAX:?} of calm"));
            break;
        }
        before = ended();
    }
    world.end();
    join_all(&mut stewards).await;
    if timeout(PROGRESS_MAX, join_all(&mut watchers)).await.is_err() {
        world.truth().violation(format!("a watch has not come to its end after {PROGRESS_MAX:?}"));
    }
    settle(world, done).await;
}

/// Lets everything arrive that is on its way, and looks at all of it once more.
pub(crate) async fn settle(world: &Arc<World>, done: &Arc<Done>) {
    sleep(Duration::from_secs(40)).await;
    last_look(world, done).await;
    verify(world).await;
    world.truth().finish();
}

/// What `headwater verify` has to say about the bucket in the end.
async fn verify(world: &Arc<World>) {
    let (store, stop) = (world.bucket.behind(), CancellationToken::new());
    let verifier = Verifier::new(store, Options::default(), Progress::default(), stop);
    for history in &world.histories {
        let what = match verifier.verify(history).await {
            Ok(report) if report.verdict() < Verdict::Unchecked => continue,
            Ok(report) => format!("{:?}: {:?}", report.verdict(), report.findings),
            Err(error) => error.to_string(),
        };
        world.truth().violation(format!("verify of {history}: {what}"));
    }
}

async fn join_all(clients: &mut JoinSet<()>) {
    while clients.join_next().await.is_some() {}
}

/// The histories exist before anything goes wrong: creating them is the
/// writer's own tests' business.
pub(crate) async fn create_histories(world: &Arc<World>) {
    let dice = Dice::new(world.plan.seed, "history ids");
    for history in &world.histories {
        world.truth().expect(&history.head_key());
        let mut id = [0; 16];
        id[..8].copy_from_slice(&dice.below(u64::MAX).to_be_bytes());
        let id = HistoryId::from_bytes(id);
        for _ in 0..1_000 {
            let (told, is_created) = tokio::sync::oneshot::channel();
            let (name, is_exclusive) = (history.clone(), world.plan.is_exclusive);
            world.processes[0].serve(|serving| async move {
                if let Serving::Writer(writer) = serving {
                    let _gone = told.send(writer.create(&name, id, is_exclusive).await.is_ok());
                }
            });
            if is_created.await == Ok(true) {
                break;
            }
        }
    }
}

/// Everything works from here on.
pub(crate) async fn calm(world: &Arc<World>) {
    world.trace.event(format_args!("everything works from here on"));
    world.climate.calm();
    for process in &world.processes {
        process.hold.set(None);
    }
    // A process that was about to be started is started twice otherwise.
    sleep(Duration::from_secs(3)).await;
    world.start_all();
}

/// Every replica serves the state that the history has come to.
async fn last_look(world: &Arc<World>, done: &Arc<Done>) {
    let n_writers = world.plan.writers.len();
    for replica in n_writers..world.processes.len() {
        for index in 0..world.histories.len() {
            let mut client = Client::new(world, done, index);
            let everything = KeyRange::everything();
            let whole = client.read_range(replica, Consistency::Strong, everything, 500).await;
            if !whole {
                let what = format!("process {replica} does not serve {}", client.history);
                world.truth().violation(what);
            }
        }
    }
}

fn disk_readings(world: &World) -> (u64, u64, u64) {
    let all = world.processes.iter().flat_map(crate::process::Process::disk_readings);
    all.fold((0, 0, 0), |sum, it| (sum.0 + it.hits, sum.1 + it.damaged, sum.2 + it.write_failures))
}

/// The run in numbers, and what was wrong.
pub(crate) fn report(world: &Arc<World>, done: &Done) -> Report {
    let count = |it: &std::sync::atomic::AtomicU64| it.load(Ordering::Relaxed);
    let truth = world.truth();
    let mut violations = truth.violations().to_vec();
    violations.extend(take_panics());
    Report {
        seed: world.plan.seed,
        violations,
        operations: count(&done.operations),
        reads: count(&done.reads),
        handed: world.n_handed(),
        attempts: count(&done.attempts),
        rejected: count(&done.rejected),
        unknown: count(&done.unknown),
        in_doubt: count(&done.in_doubt),
        tally: truth.tally,
        deaths: world.processes.iter().map(crate::process::Process::deaths).sum(),
        disk: disk_readings(world),
        lost_replies: count(&world.climate.lost_replies),
        cut_off: count(&world.climate.cut_off),
        throttled: count(&world.climate.throttled),
        events: world.trace.now(),
        took: world.elapsed(),
        digest: world.trace.digest(),
        text: world.trace.text(),
    }
}
