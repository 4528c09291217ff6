//! The writer as a daemon of its own.

use std::net::SocketAddr;
use std::sync::Arc;

use clap::Parser;
use headwater_daemon::daemon::{BoxError, Daemon};
use headwater_daemon::options::{ProcessOptions, StoreOptions};
use headwater_daemon::process::{PageOf, Process};
use headwater_daemon::serve::Services;
use headwater_daemon::trust::TrustOptions;
use headwater_daemon::usage::Usage;
use headwater_daemon::writer_line::WriterLineOptions;
use headwater_store::Clock;

use crate::{GrpcLine, WriterConfig};

/// Accepts operations over gRPC, and publishes them in an object store.
#[derive(Clone, Debug, Parser)]
#[command(name = "headwater-writer", version)]
pub struct WriterDaemon {
    /// Where to listen.
    #[arg(
        long,
        value_name = "ADDRESS",
        default_value = "127.0.0.1:7410",
        env = "HEADWATER_LISTEN"
    )]
    pub listen: SocketAddr,
    /// The store.
    #[command(flatten)]
    pub store: StoreOptions,
    /// Whether the store is asked at start.
    #[command(flatten)]
    pub trust: TrustOptions,
    /// What every process has.
    #[command(flatten)]
    pub process: ProcessOptions,
    /// The writer's own settings.
    #[command(flatten, next_help_heading = "Writer")]
    pub writer: WriterConfig,
    /// How it connects to other writers.
    #[command(flatten)]
    pub writers_line: WriterLineOptions,
}

impl Daemon for WriterDaemon {
    const NAME: &'static str = "headwater-writer";

    fn options(&mut self) -> &mut ProcessOptions {
        &mut self.process
    }

    fn check(&self) -> Result<(), BoxError> {
        self.store.check()?;
        self.writer.validate()?;
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
        process.trust(&self.trust, &opened).await?;
        let (entropy, clock) = (process.entropy(), Clock::system());
        let meter = process.meter();
        let line = Arc::new(GrpcLine::new(self.writers_line));
        let writer =
            crate::start_linked(opened.store, self.writer, entropy, clock, &meter, Some(line))?;
        let listening = process.listen(self.listen).await?;
        println!("headwater-writer listens on {}", listening.local_address());
        process.show(PageOf {
            name: "writer",
            store: self.store.url.clone(),
            meter: Some(Arc::clone(&opened.meter)),
            writer: Some(Arc::new(writer.clone())),
            replica: None,
        });
        let services = Services::new()
            .with(writer.write_service())
            .with(writer.history_service())
            .with(writer.retention_service())
            .with(writer.forward_service())
            .with(Usage::service(opened.meter));
        let served = process.serve(listening, services).await;
        writer.shutdown().await;
        process.end().await;
        Ok(served?)
    }
}
