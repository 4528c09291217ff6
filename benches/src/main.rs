//! `headwater-bench`: figures that anyone can run, as JSON lines.
//!
//! ```sh
//! cargo run --release -p headwater-benches --bin headwater-bench -- commit
//! ```
//!
//! Callers are closed loop: each sends its next operation when it has the
//! answer to the one before. Times are from the call to the answer. Every line
//! says what the store was told to take, and what one call to it took in the
//! same run (timers are coarse): ratios are to that.

mod load;
mod report;
mod scenario;
mod system;

use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;

use self::scenario::Scenario;

/// Measures Headwater over a store with set latencies, in one process.
#[derive(Debug, Parser)]
struct Arguments {
    /// What to measure.
    #[arg(value_enum)]
    scenario: Scenario,
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
    /// Through gRPC over loopback instead of in process.
    #[arg(long)]
    grpc: bool,
    /// Print JSON lines only, without the table on standard error.
    #[arg(long)]
    json: bool,
}

/// What one measurement is told.
#[derive(Clone, Copy, Debug)]
struct Plan {
    callers: usize,
    time: Duration,
    write: Duration,
    read: Duration,
    value_bytes: usize,
    is_grpc: bool,
}

#[tokio::main]
async fn main() -> ExitCode {
    let arguments = Arguments::parse();
    if !arguments.json {
        report::header();
    }
    for &callers in &arguments.callers {
        let plan = Plan {
            callers: callers.max(1),
            time: Duration::from_secs(arguments.seconds.max(1)),
            write: Duration::from_millis(arguments.write_ms),
            read: Duration::from_millis(arguments.read_ms),
            value_bytes: arguments.value_bytes,
            is_grpc: arguments.grpc,
        };
        match arguments.scenario.measure(plan).await {
            Ok(lines) => lines.iter().for_each(|it| report::print(it, arguments.json)),
            Err(error) => {
                eprintln!("headwater-bench: {error}");
                return ExitCode::FAILURE;
            }
        }
    }
    ExitCode::SUCCESS
}
