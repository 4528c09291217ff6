//! `headwater-writer`: the writer as a daemon of its own.

use std::net::SocketAddr;
use std::process::ExitCode;

use clap::Parser;
use headwater_daemon::options::{ProcessOptions, StoreOptions};
use headwater_daemon::process::Process;
use headwater_daemon::serve::Services;
use headwater_daemon::telemetry;
use headwater_daemon::trust::TrustOptions;
use headwater_daemon::usage::Usage;
use headwater_store::Clock;
use headwater_writer::WriterConfig;

/// Accepts operations over gRPC, and publishes them in an object store.
#[derive(Debug, Parser)]
#[command(version)]
struct Arguments {
    /// Where to listen.
    #[arg(long, default_value = "127.0.0.1:7410", env = "HEADWATER_WRITER_LISTEN")]
    listen: SocketAddr,
    #[command(flatten)]
    store: StoreOptions,
    #[command(flatten)]
    trust: TrustOptions,
    #[command(flatten)]
    process: ProcessOptions,
    #[command(flatten)]
    writer: WriterConfig,
}

#[tokio::main]
async fn main() -> ExitCode {
    match run(Arguments::parse()).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("headwater-writer: {}", telemetry::with_causes(&*error));
            ExitCode::FAILURE
        }
    }
}

async fn run(arguments: Arguments) -> Result<(), Box<dyn std::error::Error>> {
    let process = Process::start(arguments.process).await?;
    let opened = process.open(&arguments.store)?;
    process.trust(&arguments.trust, &opened).await?;
    let (entropy, clock) = (process.entropy(), Clock::system());
    let writer = headwater_writer::start(opened.store, arguments.writer, entropy, clock)?;
    let listening = process.listen(arguments.listen).await?;
    println!("headwater-writer listens on {}", listening.local_address());
    let services = Services::new()
        .with(writer.write_service())
        .with(writer.history_service())
        .with(writer.retention_service())
        .with(Usage::service(opened.meter));
    let served = process.serve(listening, services).await;
    writer.shutdown().await;
    process.end();
    Ok(served?)
}
