//! Runs with a story: what is to happen is written down, and the rest is as in
//! any run, the checks included.
//!
//! Their names are those of the cases that broke other systems.

mod doubt;
mod formats;
mod pressure;
mod restarts;
mod zombies;

use std::sync::Arc;
use std::time::Duration;

use headwater_core::head::Head;
use headwater_core::id::OperationId;
use headwater_core::operation::{Issue, Key, KeyRange, Mutation, Operation, Request};
use headwater_core::version::StateVersion;
use headwater_replica::{Consistency, ReplicaConfig};
use headwater_writer::WriterConfig;
use tokio::time::sleep;

use crate::client::{Client, Done, End};
use crate::plan::{Chaos, Kind, Mix, Plan};
use crate::requests;
use crate::run::{self, Report};
use crate::trace::Keep;
use crate::weather::Weather;
use crate::world::World;

/// A run with a story.
#[derive(Clone, Copy, Debug)]
pub struct Scenario {
    /// Its name.
    pub name: &'static str,
    run: fn(u64, Keep) -> Report,
}

impl Scenario {
    /// All of them.
    pub const ALL: &[Self] = &[
        Self { name: "self-conflict", run: doubt::self_conflict },
        Self { name: "self-conflict-after-a-commit", run: doubt::self_conflict_after_a_commit },
        Self { name: "repeated-by-the-client", run: doubt::repeated_by_the_client },
        Self { name: "deadline-shorter-than-retry", run: doubt::deadline_shorter_than_retry },
        Self { name: "zombie-after-sweep", run: zombies::zombie_after_sweep },
        Self { name: "paused-writer", run: zombies::paused_writer },
        Self { name: "replica-past-retention", run: zombies::replica_past_retention },
        Self { name: "retry-storm", run: pressure::retry_storm },
        Self { name: "storm-of-503", run: pressure::storm_of_503 },
        Self { name: "one-per-second", run: pressure::one_per_second },
        Self { name: "killed-after-every-call", run: restarts::killed_after_every_call },
        Self { name: "rollout-at-one", run: restarts::rollout_at_one },
        Self { name: "stale-start", run: restarts::stale_start },
        Self { name: "two-formats", run: formats::two_formats },
    ];

    /// The one of this name.
    pub fn find(name: &str) -> Option<Self> {
        Self::ALL.iter().find(|it| it.name == name).copied()
    }

    /// Runs it on this thread.
    pub fn run(self, seed: u64, keep: Keep) -> Report {
        (self.run)(seed, keep)
    }
}

/// A deployment, and those who look at it.
struct Stage {
    world: Arc<World>,
    done: Arc<Done>,
}

/// A store and a network that work.
fn quiet(seed: u64, writers: Vec<WriterConfig>) -> Plan {
    let way = |ms| Weather { round_trip: Duration::from_millis(ms), ..Weather::default() };
    let mix = Mix {
        reads: 0,
        look_ups: 0,
        again: 0,
        conditions: 0,
        deletions: 0,
        patience_ms: (60_000, 60_000),
        ..Mix::plain()
    };
    Plan {
        writers,
        replicas: vec![ReplicaConfig::default()],
        clients: 1,
        operations_each: 0,
        mix,
        to_bucket: way(20),
        to_processes: way(2),
        chaos: Chaos::default(),
        ..Plan::draw(Kind::Plain, seed)
    }
}

/// Settings under which maintenance happens all the time.
fn busy_upkeep() -> WriterConfig {
    WriterConfig {
        fold_changes: 8,
        compact_tail_versions: 40,
        compact_keep_versions: 4,
        retain_versions: 50,
        retain_age_ms: 0,
        sweep_every_ms: 1_000,
        sweep_grace_ms: 500,
        ..WriterConfig::default()
    }
}

/// Plays `story` on a stage, and looks at everything once more at its end.
fn play<F: Future<Output = ()>>(
    plan: Plan,
    keep: Keep,
    story: impl FnOnce(Arc<Stage>) -> F,
) -> Report {
    run::on_virtual_time(async move {
        let world = World::new(plan, keep);
        let stage = Arc::new(Stage { world, done: Arc::default() });
        stage.world.start_all();
        run::create_histories(&stage.world).await;
        story(Arc::clone(&stage)).await;
        run::calm(&stage.world).await;
        run::settle(&stage.world, &stage.done).await;
        run::report(&stage.world, &stage.done)
    })
}

impl Stage {
    /// A client that talks to one writer only.
    fn client_of(&self, index: usize, writer: usize) -> Client {
        Client { only_writer: Some(writer), ..Client::new(&self.world, &self.done, index) }
    }

    /// Takes down what is not as it must be.
    fn expect(&self, is_so: bool, what: &str) {
        if !is_so {
            self.world.truth().violation(what.to_owned());
        }
    }

    fn expect_accepted(&self, end: End) {
        self.expect(matches!(end, End::Accepted(_)), &format!("accepted is expected: {end:?}"));
    }

    fn head(&self) -> Arc<Head> {
        let key = self.world.histories[0].head_key();
        self.world.truth().head(&key).unwrap_or_else(|| unreachable!("the history was created"))
    }

    /// Sweeps have passed, and deleted something.
    fn expect_sweeps(&self) {
        let tally = self.world.truth().tally;
        let (sweeps, deleted) = (tally.sweeps, tally.deleted);
        self.expect(0 < sweeps && 0 < deleted, &format!("{sweeps} sweeps deleted {deleted}"));
    }

    /// Has so many operations accepted, one after the other.
    async fn commit(&self, client: &mut Client, label: &str, n: u64) {
        for n in 0..n {
            let end = client.submit(&add(&format!("{label}-{n}"), client.knowing.seen)).await;
            self.expect_accepted(end);
        }
    }

    /// Waits until something is so; takes it down if it never is.
    async fn until(&self, is_so: impl Fn(&Self) -> bool) {
        for _ in 0..60_000 {
            if is_so(self) {
                return;
            }
            sleep(Duration::from_millis(1)).await;
        }
        self.expect(false, "it never came to what the story waits for");
    }

    /// Kills a process and starts it again after a moment.
    async fn restart(&self, process: usize) {
        self.world.processes[process].kill();
        sleep(Duration::from_millis(50)).await;
        self.world.start(process);
    }

    /// Reads everything, strongly, and has it checked.
    async fn read_all(&self, replica: usize) {
        let mut client = Client::new(&self.world, &self.done, 0);
        let everything = KeyRange::everything();
        let is_whole = client.read_range(replica, Consistency::Strong, everything, 100).await;
        self.expect(is_whole, "everything is served");
    }
}

/// An operation that shows when it is done twice.
fn add(id: &str, issued_from: u64) -> Operation {
    operation(id, issued_from, vec![Mutation::Add(key("n"), 1)])
}

/// An operation that does not fit into the head.
fn put_large(id: &str, issued_from: u64) -> Operation {
    let value = vec![b'x'; 8 << 10];
    let mutations = vec![Mutation::Add(key("n"), 1), Mutation::Put(key("large"), value.into())];
    operation(id, issued_from, mutations)
}

fn operation(id: &str, issued_from: u64, mutations: Vec<Mutation>) -> Operation {
    let made = OperationId::parse(id).ok().zip(Request::new(Vec::new(), mutations).ok());
    let Some((id, request)) = made else { unreachable!("names in here are ids") };
    Operation::new(id, request, Issue::ClientKept(StateVersion::new(issued_from)))
}

fn key(text: &str) -> Key {
    requests::key(text).unwrap_or_else(|| unreachable!("names in here are keys"))
}
