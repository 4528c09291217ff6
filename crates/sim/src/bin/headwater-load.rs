//! `headwater-load`: load for servers that somebody else runs, and the checks of
//! everything that they answered.

use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use headwater_sim::real::{Outside, load_outside};
use headwater_store::Entropy;

/// Sends operations and reads to a deployment on the S3 endpoint for tests, and
/// checks what was answered against every version in the bucket.
#[derive(Debug, Parser)]
#[command(version)]
struct Arguments {
    /// Writers, HOST:PORT, several separated by commas.
    #[arg(long, value_delimiter = ',', required = true)]
    writer: Vec<String>,
    /// Replicas, likewise.
    #[arg(long, value_delimiter = ',', required = true)]
    replica: Vec<String>,
    /// The URL of their store.
    #[arg(long)]
    store: String,
    /// A history that does not exist yet.
    #[arg(long)]
    history: String,
    /// How long it goes on, in seconds.
    #[arg(long, default_value_t = 30)]
    seconds: u64,
    /// Reads a second, at even distances.
    #[arg(long, default_value_t = 0)]
    reads_per_second: u32,
    /// Fail if one call fails for its client.
    #[arg(long)]
    strict: bool,
    /// Decides what is sent. Drawn, and printed, where none is given.
    #[arg(long)]
    seed: Option<u64>,
}

#[expect(clippy::print_stdout, clippy::print_stderr, reason = "a command says what it found")]
#[tokio::main]
async fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let seed = arguments.seed.unwrap_or_else(|| Entropy::from_os().below(1_000_000_000));
    println!("seed {seed}");
    let options = Outside {
        writers: arguments.writer,
        replicas: arguments.replica,
        store: arguments.store,
        history: arguments.history,
        seed,
        lasts: Duration::from_secs(arguments.seconds),
        reads_per_second: arguments.reads_per_second,
        is_strict: arguments.strict,
    };
    match load_outside(options).await {
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
        Ok(outcome) => {
            for violation in &outcome.violations {
                println!("violation: {violation}");
            }
            for failure in &outcome.first_failures {
                println!("failed {failure}");
            }
            println!(
                "{} operations in {} versions, {} of them with an unknown end; {} reads; \
                 {} calls failed",
                outcome.operations, outcome.versions, outcome.open, outcome.reads, outcome.failed
            );
            if outcome.violations.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
        }
    }
}
