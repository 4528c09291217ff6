//! `headwater-load`: load for servers that somebody else runs, and the checks of
//! everything that they answered.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use headwater_sim::real::{Outcome, Outside, Shown, load_outside};
use headwater_store::Entropy;

/// Sends operations and reads to a deployment on the S3 endpoint for tests, and
/// checks what was answered against every version in the bucket.
#[derive(Debug, Parser)]
#[command(version)]
struct Arguments {
    /// Writers, HOST:PORT or https://HOST:PORT, several separated by commas.
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
    /// Reads a second, at even distances. Fewer than 95 of 100 of them are a
    /// failure (exit code 3): nothing is shown by a load that was not there.
    #[arg(long, default_value_t = 0)]
    reads_per_second: u32,
    /// Authorities of the servers' certificates, as PEM.
    #[arg(long)]
    tls_ca: Option<PathBuf>,
    /// A certificate to show, as PEM.
    #[arg(long, requires = "tls_key")]
    tls_cert: Option<PathBuf>,
    /// Its key.
    #[arg(long, requires = "tls_cert")]
    tls_key: Option<PathBuf>,
    /// A token to show.
    #[arg(long)]
    token_file: Option<PathBuf>,
    /// Fail if one call fails for its client.
    #[arg(long)]
    strict: bool,
    /// Give each client one of the writers and not all, so that writers contend
    /// for the history.
    #[arg(long)]
    contend: bool,
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
        contends: arguments.contend,
        shown: Shown {
            authorities: arguments.tls_ca,
            identity: arguments.tls_cert.zip(arguments.tls_key),
            token: arguments.token_file,
        },
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
            let by_second = &outcome.reads_by_second;
            println!(
                "{} reads a second, {} in the slowest one; the slowest read took {:.0?}",
                outcome.reads / by_second.len().max(1),
                by_second.iter().min().copied().unwrap_or_default(),
                outcome.slowest_read
            );
            if !outcome.violations.is_empty() {
                return ExitCode::FAILURE;
            }
            let asked = u64::from(arguments.reads_per_second) * arguments.seconds;
            if has_carried(&outcome, asked) { ExitCode::SUCCESS } else { ExitCode::from(3) }
        }
    }
}

/// Whether the load was there.
#[expect(clippy::print_stdout, reason = "a command says what it found")]
fn has_carried(outcome: &Outcome, asked: u64) -> bool {
    let is_carried = asked * 95 / 100 <= outcome.reads as u64;
    if !is_carried {
        println!("not carried: {} reads where {asked} were to be made", outcome.reads);
    }
    is_carried
}
