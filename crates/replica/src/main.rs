//! The replica daemon.

use std::error::Error;
use std::net::SocketAddr;
use std::process::ExitCode;

use clap::Parser;
use headwater_daemon::options::{ProcessOptions, StoreOptions};
use headwater_daemon::process::Process;
use headwater_daemon::serve::Services;
use headwater_daemon::telemetry;
use headwater_daemon::usage::Usage;
use headwater_replica::ReplicaConfig;

/// Follows histories on an object store and serves reads whose freshness it has
/// proved.
#[derive(Debug, Parser)]
#[command(name = "headwater-replica", version)]
struct Arguments {
    /// Where to listen. There is no encryption and no authentication: listen on
    /// addresses that only trusted callers reach.
    #[arg(long, default_value = "127.0.0.1:7411", env = "HEADWATER_REPLICA_LISTEN")]
    listen: SocketAddr,
    #[command(flatten)]
    store: StoreOptions,
    #[command(flatten)]
    replica: ReplicaConfig,
    #[command(flatten)]
    process: ProcessOptions,
}

#[tokio::main]
async fn main() -> ExitCode {
    match run(Arguments::parse()).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("headwater-replica: {}", telemetry::with_causes(&*error));
            ExitCode::FAILURE
        }
    }
}

async fn run(arguments: Arguments) -> Result<(), Box<dyn Error>> {
    let process = Process::start(arguments.process).await?;
    let opened = process.open(&arguments.store)?;
    let listening = process.listen(arguments.listen).await?;
    let address = listening.local_address();
    // For whoever started it: the port may be one that the system chose.
    println!("headwater-replica listens on {address}");
    tracing::info!(%address, "serving reads");

    let replica = headwater_replica::start(opened.store, arguments.replica, process.entropy())?;
    let services = Services::new()
        .with(replica.service())
        .with(replica.watch_service(process.leaving()))
        .with(Usage::service(opened.meter));
    let served = process.serve(listening, services).await;
    replica.shutdown().await;
    process.end();
    Ok(served?)
}
