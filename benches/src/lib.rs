//! `headwater-bench`: figures that anyone can run, as JSON lines.
//!
//! ```sh
//! cargo run --release -p headwater-benches --bin headwater-bench -- commit
//! cargo run --release -p headwater-benches --bin headwater-bench -- compaction
//! ```
//!
//! Callers are closed loop: each sends its next operation when it has the
//! answer to the one before. With `--per-second` they are open loop: calls are
//! made at even distances, and times count from the moment at which each was
//! due. Otherwise times are from the call to the answer. Every line
//! says what the store was told to take, and what one call to it took in the
//! same run (timers are coarse): ratios are to that.

mod compaction;
pub mod cpu;
mod growing;
pub mod load;
pub mod report;
mod scenario;
pub mod system;

use std::process::ExitCode;
use std::time::Duration;

use clap::{Parser, Subcommand};

use self::compaction::CompactionArgs;
use self::growing::GrowingArgs;
use self::scenario::Scenario;

/// Measures Headwater over a store with set latencies, in one process.
#[derive(Debug, Parser)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
struct Arguments {
    #[command(subcommand)]
    by_itself: Option<ByItself>,
    /// What to measure.
    #[arg(value_enum, required = true)]
    scenario: Option<Scenario>,
    /// Callers at a time; one line for each.
    #[arg(long, value_delimiter = ',', default_value = "1,64,1024")]
    callers: Vec<usize>,
    /// How long each measurement takes, in seconds, after one second of
    /// warm-up.
    #[arg(long, default_value_t = 5)]
    seconds: u64,
    /// What a write takes in the store, in milliseconds.
    #[arg(long, default_value_t = 20)]
    write_ms: u64,
    /// What a read takes in the store, in milliseconds.
    #[arg(long, default_value_t = 10)]
    read_ms: u64,
    /// Bytes of a value.
    #[arg(long, default_value_t = 1_024)]
    value_bytes: usize,
    /// Open loop: this many calls a second, whatever becomes of those before.
    #[arg(long)]
    per_second: Option<u64>,
    /// Writers of `commit-contended`.
    #[arg(long, default_value_t = 8)]
    writers: usize,
    /// Replicas of `replicas` and `idle`.
    #[arg(long, default_value_t = 16)]
    replicas: usize,
    /// MiB of keys and values of `cold-start` and `scan`.
    #[arg(long, default_value_t = 64)]
    state_mib: usize,
    /// Changes in the tail of `cold-start`; commits of `long-history`.
    #[arg(long, default_value_t = 1_000)]
    changes: u64,
    /// Through gRPC over loopback instead of in process.
    #[arg(long)]
    grpc: bool,
    /// Print JSON lines only, without the table on standard error.
    #[arg(long)]
    json: bool,
}

/// What is measured in a way of its own, and has its own options.
#[derive(Debug, Subcommand)]
enum ByItself {
    /// Memory, requests and bytes of opening and compacting a large state, in a
    /// directory, without a writer or a replica.
    Compaction(CompactionArgs),
    /// A history of a million operations: size of every head, p50 at the end
    /// against the start, objects, and a check of all of it. Fails if one of
    /// them is out of bounds.
    GrowingHead(GrowingArgs),
}

/// What one measurement is told.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Callers at a time.
    pub callers: usize,
    /// Calls a second of an open loop; closed loop without.
    pub per_second: Option<u64>,
    /// How long is counted.
    pub time: Duration,
    /// What a write takes in the store.
    pub write: Duration,
    /// What a read takes in the store.
    pub read: Duration,
    /// Bytes of a value.
    pub value_bytes: usize,
    /// Through gRPC over loopback.
    pub is_grpc: bool,
    /// Writers that contend.
    pub writers: usize,
    /// Replicas that follow.
    pub replicas: usize,
    /// MiB of keys and values.
    pub state_mib: usize,
    /// Changes in the tail, or in all.
    pub changes: u64,
}

/// Runs what the command line says.
pub async fn run() -> ExitCode {
    let arguments = Arguments::parse();
    match &arguments.by_itself {
        Some(ByItself::Compaction(args)) => return exit(compaction::run(args).await),
        Some(ByItself::GrowingHead(args)) => return exit(growing::run(args).await),
        None => {}
    }
    let Some(scenario) = arguments.scenario else { return ExitCode::FAILURE };
    if !arguments.json {
        report::header();
    }
    for &callers in &arguments.callers {
        let plan = arguments.plan(callers);
        match scenario.measure(plan).await {
            Ok(lines) => lines.iter().for_each(|it| report::print(it, arguments.json)),
            Err(error) => return exit(Err(error)),
        }
    }
    ExitCode::SUCCESS
}

fn exit(outcome: Result<(), system::BoxError>) -> ExitCode {
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("headwater-bench: {error}");
            ExitCode::FAILURE
        }
    }
}

impl Arguments {
    fn plan(&self, callers: usize) -> Plan {
        Plan {
            callers: callers.max(1),
            per_second: self.per_second,
            time: Duration::from_secs(self.seconds.max(1)),
            write: Duration::from_millis(self.write_ms),
            read: Duration::from_millis(self.read_ms),
            value_bytes: self.value_bytes,
            is_grpc: self.grpc,
            writers: self.writers.max(1),
            replicas: self.replicas,
            state_mib: self.state_mib.max(1),
            changes: self.changes.max(1),
        }
    }
}
