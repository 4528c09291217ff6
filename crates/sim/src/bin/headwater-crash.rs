//! `headwater-crash`: real processes, killed, stopped, replaced and cut off
//! while clients work; every answer checked.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use headwater_sim::real::{Options, run};
use headwater_store::Entropy;

/// Runs writers and replicas as processes against an S3 endpoint, makes trouble
/// and checks what clients are told.
#[derive(Debug, Parser)]
#[command(version)]
struct Arguments {
    /// How long trouble goes on, in seconds.
    #[arg(long, default_value_t = 60, env = "HEADWATER_CRASH_SECONDS")]
    seconds: u64,
    /// Decides what is sent, and what is done to whom. Drawn, and printed, where
    /// none is given.
    #[arg(long)]
    seed: Option<u64>,
    /// Where `headwater-writer` and `headwater-replica` are; beside this program
    /// otherwise.
    #[arg(long)]
    programs: Option<PathBuf>,
    /// Says what is done to whom.
    #[arg(long)]
    verbose: bool,
}

#[expect(clippy::print_stdout, clippy::print_stderr, reason = "a command says what it found")]
#[tokio::main]
async fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let seed = arguments.seed.unwrap_or_else(|| Entropy::from_os().below(1_000_000_000));
    let beside = || std::env::current_exe().ok()?.parent().map(PathBuf::from);
    let programs = arguments.programs.or_else(beside).unwrap_or_default();
    let lasts = Duration::from_secs(arguments.seconds);
    println!("seed {seed}");
    let options = Options { seed, lasts, programs, is_talkative: arguments.verbose };
    match run(options).await {
        Err(error) => {
            let source = std::error::Error::source(&error).map(ToString::to_string);
            eprintln!("{error}: {}", source.unwrap_or_default());
            ExitCode::FAILURE
        }
        Ok(outcome) => {
            for violation in &outcome.violations {
                println!("violation: {violation}");
            }
            println!(
                "{} operations in {} versions, {} of them with an unknown end; {} reads",
                outcome.operations, outcome.versions, outcome.open, outcome.reads
            );
            for (kind, count) in &outcome.faults {
                println!("{kind}: {count}");
            }
            if outcome.violations.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
        }
    }
}
