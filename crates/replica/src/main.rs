//! The replica daemon.

use std::error::Error;
use std::net::SocketAddr;
use std::process::ExitCode;

use clap::Parser;
use headwater_daemon::options::{ProcessOptions, StoreOptions};
use headwater_daemon::serve::{Listening, Services};
use headwater_daemon::signals::StopSignal;
use headwater_daemon::telemetry;
use headwater_daemon::usage::Usage;
use headwater_replica::ReplicaConfig;
use headwater_store::Entropy;

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
    let arguments = Arguments::parse();
    if let Err(error) = telemetry::init(arguments.process.log_format) {
        eprintln!("headwater-replica: {}", telemetry::with_causes(&error));
        return ExitCode::FAILURE;
    }
    match run(arguments).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!(error = telemetry::with_causes(&*error), "stopped");
            ExitCode::FAILURE
        }
    }
}

async fn run(arguments: Arguments) -> Result<(), Box<dyn Error>> {
    let Arguments { listen, store, replica, process } = arguments;
    let stop = StopSignal::install()?;
    let entropy = Entropy::from_os();
    let store = store.open(entropy.clone())?;
    let listening = Listening::bind(listen).await?;
    let address = listening.local_address();
    // For whoever started it: the port may be one that the system chose.
    println!("headwater-replica listens on {address}");
    tracing::info!(%address, "serving reads");

    let replica = headwater_replica::start(store.store, replica, entropy)?;
    let services = Services::new()
        .with(replica.service())
        .with(replica.watch_service(stop.token()))
        .with(Usage::service(store.meter));
    let served = listening.serve(services, stop.token(), process.drain_max()).await;
    replica.shutdown().await;
    served?;
    tracing::info!("stopped");
    Ok(())
}
