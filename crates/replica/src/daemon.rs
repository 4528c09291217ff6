//! The replica as a daemon of its own.

use std::net::SocketAddr;
use std::sync::Arc;

use clap::Parser;
use headwater_daemon::daemon::{BoxError, Daemon};
use headwater_daemon::options::{ProcessOptions, StoreOptions};
use headwater_daemon::process::{PageOf, Process};
use headwater_daemon::serve::Services;
use headwater_daemon::usage::Usage;
use headwater_store::Clock;

use crate::{ReadinessOptions, ReplicaConfig, WriterLineOptions};

/// Follows histories on an object store and serves reads whose freshness it has
/// proved.
#[derive(Clone, Debug, Parser)]
#[command(name = "headwater-replica", version)]
pub struct ReplicaDaemon {
    /// Where to listen.
    #[arg(
        long,
        value_name = "ADDRESS",
        default_value = "127.0.0.1:7411",
        env = "HEADWATER_LISTEN"
    )]
    pub listen: SocketAddr,
    /// The store.
    #[command(flatten)]
    pub store: StoreOptions,
    /// What every process has.
    #[command(flatten)]
    pub process: ProcessOptions,
    /// The replica's own settings.
    #[command(flatten, next_help_heading = "Replica")]
    pub replica: ReplicaConfig,
    /// What it does before it is ready.
    #[command(flatten, next_help_heading = "Replica")]
    pub readiness: ReadinessOptions,
    /// Its connections to writers.
    #[command(flatten)]
    pub writers_line: WriterLineOptions,
}

impl Daemon for ReplicaDaemon {
    const NAME: &'static str = "headwater-replica";

    fn options(&mut self) -> &mut ProcessOptions {
        &mut self.process
    }

    fn check(&self) -> Result<(), BoxError> {
        self.store.check()?;
        self.replica.validate()?;
        self.process.security.check_address(self.listen)?;
        Ok(())
    }

    async fn check_files(&self) -> Result<(), BoxError> {
        self.store.check_files()?;
        self.writers_line.check_files().await?;
        Ok(())
    }

    async fn run(self) -> Result<(), BoxError> {
        let mut process = Process::start(Self::NAME, self.process).await?;
        let opened = process.open(&self.store)?;
        process.watch_line(&self.writers_line);
        let listening = process.listen(self.listen).await?;
        let address = listening.local_address();
        // For whoever started it: the port may be one that the system chose.
        println!("headwater-replica listens on {address}");
        tracing::info!(%address, "serving reads");

        let config = ReplicaConfig { writers_line: self.writers_line, ..self.replica };
        let (entropy, meter) = (process.entropy(), process.meter());
        let clock = Clock::system();
        let replica = crate::start_measured(opened.store, config, entropy, clock, &meter)?;
        replica.measure_histories(&meter, process.histories_measured_max());
        replica.keep_ready(self.readiness, process.health().clone());
        process.show(PageOf {
            name: "replica",
            store: self.store.url.clone(),
            meter: Some(Arc::clone(&opened.meter)),
            writer: None,
            replica: Some(replica.source()),
        });
        let services = Services::new()
            .with(replica.service())
            .with(replica.watch_service(process.leaving()))
            .with(Usage::service(opened.meter));
        let served = process.serve(listening, services).await;
        replica.shutdown().await;
        process.end().await;
        Ok(served?)
    }
}
