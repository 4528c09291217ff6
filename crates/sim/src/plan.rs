//! What a run is made of. Everything in it is drawn from the seed, so that a
//! seed and the name of its kind of plan are all that it takes to run it again.

use std::time::Duration;

use headwater_replica::ReplicaConfig;
use headwater_store::LayersConfig;
use headwater_writer::WriterConfig;

use crate::dice::Dice;
use crate::disk::DiskPlan;
use crate::handing;
use crate::weather::Weather;

/// How a plan is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Kind {
    /// Everything is drawn: settings, weather, deaths, limits of the store.
    Swarm,
    /// The default settings and a store that works: what the speed of the
    /// simulator is measured with.
    Plain,
}

/// One run.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Decides everything.
    pub seed: u64,
    /// How it was drawn.
    pub kind: Kind,
    pub(crate) writers: Vec<WriterConfig>,
    pub(crate) replicas: Vec<ReplicaConfig>,
    pub(crate) histories: usize,
    pub(crate) clients: usize,
    /// Parties that watch.
    pub(crate) watchers: usize,
    /// Whether operations carry a writer epoch.
    pub(crate) is_exclusive: bool,
    /// About how often somebody pins, forks, restores and the like.
    pub(crate) stewards: Option<Duration>,
    /// What the disks of replicas are like, where they have any.
    pub(crate) disks: Option<DiskPlan>,
    pub(crate) operations_each: u64,
    pub(crate) mix: Mix,
    pub(crate) to_bucket: Weather,
    pub(crate) to_processes: Weather,
    pub(crate) layers: LayersConfig,
    /// Least time between two replacements of one object; zero is no limit.
    pub(crate) replacement_interval: Duration,
    pub(crate) chaos: Chaos,
}

/// What clients do. Parts of a hundred, unless it says otherwise.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mix {
    pub(crate) reads: u64,
    /// Reads that want a range, or change entries.
    pub(crate) long_reads: u64,
    pub(crate) strong_reads: u64,
    /// How many versions back exact reads go, and reads of changes. Far back
    /// each makes the tail again, which is all that a plain run would then do.
    pub(crate) reads_back_max: u64,
    pub(crate) conditions: u64,
    pub(crate) deletions: u64,
    pub(crate) service_kept: u64,
    pub(crate) large_values: u64,
    pub(crate) look_ups: u64,
    /// Operations that are sent once more after they were answered.
    pub(crate) again: u64,
    /// Operations whose client goes away when it has to try again.
    pub(crate) abandoned: u64,
    /// Keys of each history.
    pub(crate) keys: u64,
    /// Longest pause between two operations of a client.
    pub(crate) think_ms: u64,
    /// How long a client waits for an answer.
    pub(crate) patience_ms: (u64, u64),
}

/// What happens to processes and ways. Each is drawn at intervals of up to
/// twice the time given; none where there is none.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Chaos {
    pub(crate) deaths: Option<Duration>,
    pub(crate) partitions: Option<Duration>,
    pub(crate) storms: Option<Duration>,
    pub(crate) holds: Option<Duration>,
    /// When it ends.
    pub(crate) lasts: Duration,
}

impl Plan {
    /// The plan of this kind under a seed.
    pub fn draw(kind: Kind, seed: u64) -> Self {
        match kind {
            Kind::Swarm => swarm(seed),
            Kind::Plain => Self::plain(seed),
        }
    }

    /// The same plan with so many operations for each client.
    #[must_use]
    pub fn with_operations(self, operations_each: u64) -> Self {
        Self { operations_each, ..self }
    }

    pub(crate) fn plain(seed: u64) -> Self {
        let way = |ms| Weather { round_trip: Duration::from_millis(ms), ..Weather::default() };
        Self {
            seed,
            kind: Kind::Plain,
            writers: vec![WriterConfig::default(); 2],
            replicas: vec![ReplicaConfig::default()],
            histories: 1,
            clients: 256,
            watchers: 0,
            is_exclusive: false,
            stewards: None,
            disks: None,
            operations_each: 400,
            mix: Mix::plain(),
            to_bucket: way(20),
            to_processes: way(1),
            layers: LayersConfig::default(),
            replacement_interval: Duration::ZERO,
            chaos: Chaos::default(),
        }
    }
}

impl Mix {
    pub(crate) fn plain() -> Self {
        Self {
            reads: 40,
            long_reads: 2,
            strong_reads: 50,
            reads_back_max: 64,
            conditions: 20,
            deletions: 5,
            service_kept: 0,
            large_values: 1,
            look_ups: 1,
            again: 1,
            abandoned: 0,
            keys: 2_000,
            think_ms: 0,
            patience_ms: (20_000, 30_000),
        }
    }
}

/// Draws everything. The ranges are wide and independent, so that some runs
/// have nothing of a kind and others little else.
fn swarm(seed: u64) -> Plan {
    let dice = Dice::new(seed, "plan");
    let n_writers = dice.pick(&[1, 1, 2, 2, 3, 3, 4, 6, 8]);
    let n_replicas = dice.pick(&[1, 1, 2, 3]);
    let is_limited = dice.percent(10);
    let shared = writer_config(&dice);
    let mut writers: Vec<_> = (0..n_writers)
        // Processes of one service have one configuration, mostly.
        .map(|_| if dice.percent(80) { shared.clone() } else { writer_config(&dice) })
        .map(|it| able(it, is_limited))
        .collect();
    let replicas = (0..n_replicas).map(|_| replica_config(&dice)).collect();
    let clients = dice.between(8, 96);
    let replacement_interval = if is_limited { Duration::from_secs(1) } else { Duration::ZERO };
    let lasts = dice.ms(5_000, 60_000);
    // By labels of their own, so that seeds which were kept stay what they are.
    let more = Dice::new(seed, "plan: watches and stewards");
    let linked = Dice::new(seed, "plan: writers that hand over");
    if linked.percent(60) {
        // All of a deployment, mostly.
        let part = linked.pick(&[100, 100, 70]);
        let some = writers.iter_mut().enumerate().filter(|_| linked.percent(part));
        some.for_each(|(index, it)| handing::link_up(index, it));
    }
    Plan {
        seed,
        kind: Kind::Swarm,
        writers,
        replicas,
        histories: usize::try_from(dice.pick(&[1_u64, 1, 1, 2, 3])).unwrap_or(1),
        clients: usize::try_from(clients).unwrap_or(8),
        watchers: more.pick(&[0, 1, 2, 6]),
        is_exclusive: more.percent(20),
        disks: more.percent(50).then(|| disk_plan(&more)),
        stewards: more.percent(60).then(|| more.ms(200, 3_000)),
        operations_each: 6_000 / clients,
        mix: mix(&dice),
        to_bucket: bucket_weather(&dice),
        to_processes: network_weather(&dice),
        layers: LayersConfig::default(),
        replacement_interval,
        chaos: chaos(&dice, lasts),
    }
}

/// Settings under which the clients of a plan can be served at all: a hundred of
/// them wait in line for batches of one, each for longer than a short limit.
/// Whoever is first in line is then the one whose time is up.
fn able(config: WriterConfig, is_limited: bool) -> WriterConfig {
    let batch_operations_max =
        if is_limited { config.batch_operations_max.max(64) } else { config.batch_operations_max };
    let least_ms = match batch_operations_max {
        0..=7 => 30_000,
        8..=63 => 8_000,
        _ if is_limited => 8_000,
        _ => config.operation_timeout_ms,
    };
    WriterConfig {
        batch_operations_max,
        operation_timeout_ms: config.operation_timeout_ms.max(least_ms),
        ..config
    }
}

fn writer_config(dice: &Dice) -> WriterConfig {
    let head_soft_bytes = dice.pick(&[4 << 10, 16 << 10, 64 << 10]);
    WriterConfig {
        batch_operations_max: dice.pick(&[1, 2, 8, 64, 512, 4_096]),
        batch_bytes_max: dice.pick(&[16 << 10, 64 << 10, 4 << 20]),
        inline_bytes_max: dice.pick(&[0, 256, 1_024, 4_096]),
        batches_ahead_max: dice.pick(&[1, 2, 4, 8]),
        receipt_versions_max: dice.pick(&[8, 50, 200, 1_000, 65_536]),
        receipt_bytes_max: dice.pick(&[4 << 10, 256 << 10, 32 << 20]),
        head_soft_bytes,
        head_hard_bytes: head_soft_bytes * dice.pick(&[2, 4, 16]),
        fold_changes: dice.pick(&[2, 5, 16, 128]),
        compact_tail_bytes: dice.pick(&[8 << 10, 256 << 10, 64 << 20]),
        compact_tail_versions: dice.pick(&[5, 30, 200, 4_096]),
        compact_keep_versions: dice.pick(&[0, 3, 16, 256]),
        operation_timeout_ms: dice.pick(&[500, 2_000, 8_000, 30_000]),
        history_idle_ms: dice.pick(&[300, 5_000, 600_000]),
        retain_versions: dice.pick(&[0, 10, 100, 10_000]),
        retain_age_ms: dice.pick(&[0, 0, 0, 60_000]),
        sweep_every_ms: dice.pick(&[0, 300, 1_000, 1_000, 5_000]),
        sweep_grace_ms: dice.pick(&[1, 100, 1_000, 20_000]),
        sweep_deletes_max: dice.pick(&[5, 100, 100_000]),
        queue_operations_max: dice.pick(&[16, 1_024, 16_384]),
        beside_bytes_max: dice.pick(&[0, 2 << 10, 16 << 10, 128 << 10]),
        ..WriterConfig::default()
    }
}

fn replica_config(dice: &Dice) -> ReplicaConfig {
    ReplicaConfig {
        poll_ms: dice.pick(&[0, 100, 1_000, 10_000]),
        idle_ms: dice.pick(&[500, 10_000, 600_000]),
        checks_in_flight_max: dice.pick(&[1, 2, 3, 8]),
        recent_versions_max: dice.pick(&[1, 8, 1_024]),
        scans_max: dice.pick(&[1, 4, 256]),
        scan_ms: dice.pick(&[500, 60_000]),
        fetches_max: dice.pick(&[1, 4, 16]),
        ..ReplicaConfig::default()
    }
}

fn disk_plan(dice: &Dice) -> DiskPlan {
    DiskPlan {
        bytes_max: dice.pick(&[10 << 10, 100 << 10, 10 << 20]),
        read_takes: dice.ms(0, 20),
        full: dice.pick(&[0, 0, 50, 500]),
    }
}

fn mix(dice: &Dice) -> Mix {
    let least = dice.pick(&[100, 1_000, 5_000]);
    Mix {
        reads: dice.pick(&[10, 30, 60]),
        long_reads: dice.pick(&[0, 5, 20]),
        strong_reads: dice.pick(&[20, 50, 100]),
        reads_back_max: dice.pick(&[10, 1_000, 1_000_000]),
        conditions: dice.pick(&[0, 20, 60]),
        deletions: dice.pick(&[0, 5, 20]),
        service_kept: dice.pick(&[0, 10, 50]),
        large_values: dice.pick(&[0, 1, 10]),
        look_ups: dice.pick(&[0, 2, 5]),
        again: dice.pick(&[0, 5, 20]),
        abandoned: dice.pick(&[0, 0, 5, 30]),
        keys: dice.pick(&[5, 50, 500, 3_000]),
        think_ms: dice.pick(&[0, 50, 300]),
        patience_ms: (least, least * 4),
    }
}

fn bucket_weather(dice: &Dice) -> Weather {
    let rare = || dice.pick(&[0, 0, 1, 5, 20]);
    Weather {
        round_trip: dice.ms(2, 60),
        has_long_tail: dice.percent(70),
        lost_calls: rare(),
        lost_replies: dice.pick(&[0, 2, 5, 20, 60]),
        repeated: rare(),
        late: rare(),
        conflicts: rare(),
        throttled: rare(),
        errors: rare(),
    }
}

fn network_weather(dice: &Dice) -> Weather {
    let rare = || dice.pick(&[0, 0, 1, 5, 20]);
    Weather {
        round_trip: dice.ms(0, 10),
        has_long_tail: dice.percent(50),
        lost_calls: rare(),
        lost_replies: rare(),
        repeated: rare(),
        late: rare(),
        ..Weather::default()
    }
}

fn chaos(dice: &Dice, lasts: Duration) -> Chaos {
    let some = |percent, least, most| dice.percent(percent).then(|| dice.ms(least, most));
    Chaos {
        deaths: some(75, 100, 4_000),
        partitions: some(40, 500, 6_000),
        storms: some(25, 2_000, 10_000),
        holds: some(30, 1_000, 8_000),
        lasts,
    }
}
