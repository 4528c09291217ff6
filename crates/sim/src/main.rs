//! `headwater-sim`: runs seeds, and says which one failed and how to see it.

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use clap::Parser;
use headwater_sim::{Keep, Kind, Plan, Report, Scenario, Totals, kept, run};
use headwater_store::Entropy;

/// Runs whole deployments under seeds, with everything that can go wrong, and
/// checks all that is published and answered.
#[derive(Debug, Parser)]
#[command(version)]
#[expect(clippy::struct_excessive_bools, reason = "switches of a command line")]
struct Arguments {
    /// The first seed. Drawn, and printed, where none is given.
    #[arg(long)]
    seed: Option<u64>,
    /// How many seeds: one after the other. With a time or a number of
    /// operations as well, at least so many.
    #[arg(long)]
    seeds: Option<u64>,
    /// Goes on until so many operations of clients are done.
    #[arg(long)]
    operations: Option<u64>,
    /// Goes on for so long, in minutes; or ends then at the latest, where
    /// seeds or operations are given too.
    #[arg(long)]
    minutes: Option<f64>,
    /// How plans are drawn.
    #[arg(long, value_enum, default_value = "swarm")]
    kind: Kind,
    /// Plays a story by its name instead; `list` names all of them.
    #[arg(long)]
    scenario: Option<String>,
    /// Plants this fault in a driver, and hunts it; `all` is each in turn.
    #[cfg(feature = "planted")]
    #[arg(long)]
    plant: Option<String>,
    /// Runs the seeds that once found a fault, and nothing else.
    #[arg(long, conflicts_with_all = ["seed", "seeds", "scenario"])]
    kept: bool,
    /// Fails also where fewer than one seed in three have a death, a lost reply
    /// and a sweep: such a set shows little.
    #[arg(long)]
    one_in_three: bool,
    /// Prints everything that happens.
    #[arg(long)]
    trace: bool,
    /// Runs each seed twice, and compares every event of the two.
    #[arg(long)]
    twice: bool,
    /// Threads, each with a run of its own.
    #[arg(long, default_value_t = 1)]
    threads: u64,
}

/// What all threads share.
struct Hunt {
    first: u64,
    next: AtomicU64,
    is_over: AtomicBool,
    totals: Mutex<Totals>,
    /// Seeds that are run at the moment, and since when.
    running: Mutex<BTreeMap<u64, Duration>>,
}

/// A run that takes longer than this on the wall's clock does not end: somebody
/// in it has something to do all the time, and the clock stands still.
const RUN_MAX: Duration = Duration::from_secs(150);

#[expect(clippy::print_stdout, reason = "a command says what it found")]
fn main() -> ExitCode {
    let arguments = Arguments::parse();
    #[cfg(feature = "planted")]
    if let Some(name) = &arguments.plant {
        return hunt_planted(name, &arguments);
    }
    if arguments.scenario.as_deref().is_some_and(|it| Scenario::find(it).is_none()) {
        let names: Vec<_> = Scenario::ALL.iter().map(|it| it.name).collect();
        println!("scenarios: {}", names.join(", "));
        return ExitCode::FAILURE;
    }
    if arguments.kept {
        return run_kept(&arguments);
    }
    let first = arguments.seed.unwrap_or_else(|| Entropy::from_os().below(1_000_000_000));
    let hunt = Hunt {
        first,
        next: AtomicU64::new(first),
        is_over: AtomicBool::new(false),
        totals: Mutex::default(),
        running: Mutex::default(),
    };
    let watch = Watch::begin();
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..arguments.threads.max(1))
            .map(|_| scope.spawn(|| hunt.run(&arguments, &watch)))
            .collect();
        while !threads.iter().all(std::thread::ScopedJoinHandle::is_finished) {
            std::thread::sleep(Duration::from_millis(50));
            if let Some(seed) = hunt.endless(&watch) {
                println!("seed {seed} does not end");
                println!("{}", see(&arguments, seed));
                std::process::exit(1);
            }
        }
    });
    let totals = hunt.totals.into_inner().unwrap_or_default();
    let seconds = watch.elapsed().as_secs_f64();
    println!("{totals}");
    println!("seeds {first} and following, {seconds:.1} s of wall time");
    if arguments.one_in_three && totals.with_all * 3 < totals.seeds {
        println!("fewer than one seed in three have a death, a lost reply and a sweep");
        return ExitCode::FAILURE;
    }
    if totals.failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

#[expect(clippy::print_stdout, reason = "a command says what it found")]
fn run_kept(arguments: &Arguments) -> ExitCode {
    let mut totals = Totals::default();
    for it in kept::all() {
        println!("{:?} {}: {}", it.kind, it.seed, it.found);
        let report = run(Plan::draw(it.kind, it.seed), Keep::Count);
        for violation in &report.violations {
            println!("seed {}: {violation}", it.seed);
            println!("{}", see(arguments, it.seed));
        }
        totals.add(&report);
    }
    println!("{totals}");
    if totals.failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Hunts faults that are planted in the drivers.
#[cfg(feature = "planted")]
#[expect(clippy::print_stdout, reason = "a command says what it found")]
fn hunt_planted(name: &str, arguments: &Arguments) -> ExitCode {
    use headwater_sim::planted::{ground, hunt};
    use headwater_store::planted::{Fault, plant};

    let is_meant = |it: &&Fault| name == "all" || name == it.name();
    let mut is_found = true;
    for fault in Fault::ALL.iter().filter(is_meant) {
        if let Some(seed) = arguments.seed {
            plant(Some(*fault));
            let keep = if arguments.trace { Keep::Print } else { Keep::Count };
            let report = run(ground(*fault, seed), keep);
            report.violations.iter().for_each(|it| println!("seed {seed}: {it}"));
            println!("{}", report.summary());
            continue;
        }
        let hunted = hunt(*fault, arguments.seeds.unwrap_or(60));
        println!("{}", hunted.line());
        hunted.besides.iter().for_each(|it| println!("without the fault: {it}"));
        is_found &= hunted.found.is_some() && hunted.besides.is_empty();
    }
    if is_found { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// The wall clock: of no run, only of the hunt.
struct Watch(std::time::Instant);

impl Watch {
    #[expect(clippy::disallowed_methods, reason = "a hunt ends by the clock on the wall")]
    fn begin() -> Self {
        Self(std::time::Instant::now())
    }

    fn elapsed(&self) -> Duration {
        self.0.elapsed()
    }
}

impl Hunt {
    fn run(&self, arguments: &Arguments, watch: &Watch) {
        while !self.is_over.load(Ordering::Relaxed) && !self.is_enough(arguments, watch) {
            let seed = self.next.fetch_add(1, Ordering::Relaxed);
            if let Ok(mut running) = self.running.lock() {
                running.insert(seed, watch.elapsed());
            }
            let report = one(arguments, seed);
            if let Ok(mut running) = self.running.lock() {
                running.remove(&seed);
            }
            let is_good = report.violations.is_empty();
            let Ok(mut totals) = self.totals.lock() else { return };
            totals.add(&report);
            if !is_good {
                self.is_over.store(true, Ordering::Relaxed);
            }
        }
    }

    /// A seed that has been running for too long.
    fn endless(&self, watch: &Watch) -> Option<u64> {
        let running = self.running.lock().ok()?;
        let is_late = |since: &Duration| RUN_MAX < watch.elapsed().saturating_sub(*since);
        running.iter().find(|(_, since)| is_late(since)).map(|(seed, _)| *seed)
    }

    fn is_enough(&self, arguments: &Arguments, watch: &Watch) -> bool {
        let begun = self.next.load(Ordering::Relaxed) - self.first;
        let Ok(totals) = self.totals.lock() else { return true };
        let time_max = arguments.minutes.map(|it| Duration::from_secs_f64(it.max(0.0) * 60.0));
        if time_max.is_some_and(|it| it <= watch.elapsed()) {
            return true;
        }
        match (arguments.seeds, arguments.operations) {
            (None, None) => time_max.is_none() && 1 <= begun,
            (seeds, operations) => {
                seeds.is_none_or(|it| it <= begun)
                    && operations.is_none_or(|it| it <= totals.operations)
            }
        }
    }
}

/// The command that shows a run.
fn see(arguments: &Arguments, seed: u64) -> String {
    let what = match (&arguments.scenario, arguments.kind) {
        (Some(name), _) => format!(" --scenario {name}"),
        (None, Kind::Plain) => " --kind plain".to_owned(),
        (None, Kind::Swarm) => String::new(),
    };
    format!("see it: headwater-sim --seed {seed}{what} --trace")
}

#[expect(clippy::print_stdout, reason = "a command says what it found")]
fn one(arguments: &Arguments, seed: u64) -> Report {
    let keep = match (arguments.trace, arguments.twice) {
        (true, _) => Keep::Print,
        (false, true) => Keep::Hash,
        (false, false) => Keep::Count,
    };
    let scenario = arguments.scenario.as_deref().and_then(Scenario::find);
    let once = || match scenario {
        Some(scenario) => scenario.run(seed, keep),
        None => run(Plan::draw(arguments.kind, seed), keep),
    };
    let mut report = once();
    if arguments.twice {
        let again = once();
        if again != report {
            report.violations.push("a second run of the seed is another one".into());
        }
    }
    for violation in &report.violations {
        println!("seed {seed}: {violation}");
    }
    if !report.violations.is_empty() {
        println!("{}", see(arguments, seed));
    }
    if arguments.trace || arguments.seeds.is_none() && arguments.minutes.is_none() {
        println!("{}", report.summary());
    }
    report
}
