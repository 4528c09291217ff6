//! `serve`: a writer and a replica in one process, on one address.
//!
//! The replica is told of the writer's heads directly, which makes reads catch
//! up early; it proves freshness against the store like any other replica.
//!
//! # Invariant
//!
//! - On a signal, calls in flight finish first; then the writer answers what it
//!   has taken, and the process ends. Nothing that was accepted depends on it.

mod options;

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;

use clap::Args;
use headwater_daemon::config::Shown;
use headwater_daemon::daemon::{self, BoxError};
use headwater_daemon::keys::KeyOptions;
use headwater_daemon::options::{ProcessOptions, StoreOptions};
use headwater_daemon::process::{PageOf, Process};
use headwater_daemon::serve::Services;
use headwater_daemon::telemetry::with_causes;
use headwater_daemon::trust::{TrustOptions, Untrusted};
use headwater_daemon::usage::Usage;
use headwater_daemon::writer_line::WriterLineOptions;
use headwater_replica::{PushedHead, ReadinessOptions, Replica};
use headwater_store::Clock;
use headwater_store::probe::Unfit;
use headwater_writer::{GrpcLine, HeadNotice, PublishedHead, WriterConfig};
use serde_json::json;
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::RecvError;

pub(crate) use self::options::{Place, ReplicaFlags};
use crate::args::ADDRESS_DEFAULT;
use crate::exit::Exit;
use crate::failed::Failed;
use crate::output::Output;

/// `serve`
#[derive(Clone, Debug, Args)]
pub struct ServeArgs {
    /// Where histories are kept.
    #[command(flatten)]
    pub place: Place,
    /// The keys that the store's objects are sealed with.
    #[command(flatten)]
    pub keys: KeyOptions,
    /// Whether the store is asked at start.
    #[command(flatten)]
    pub trust: TrustOptions,
    /// Where to listen. Port 0 is one that the system chooses.
    #[arg(long, value_name = "ADDRESS", default_value = ADDRESS_DEFAULT, env = "HEADWATER_LISTEN")]
    pub listen: SocketAddr,
    /// Logging and stopping.
    #[command(flatten)]
    pub process: ProcessOptions,
    /// The writer's settings.
    #[command(flatten, next_help_heading = "Writer")]
    pub writer: WriterConfig,
    /// How it connects to other writers.
    #[command(flatten)]
    pub writers_line: WriterLineOptions,
    /// The replica's settings.
    #[command(flatten)]
    pub replica: ReplicaFlags,
    /// What the replica does before it is ready.
    #[command(flatten, next_help_heading = "Replica")]
    pub readiness: ReadinessOptions,
    /// All settings, with where they came from.
    #[arg(skip)]
    pub shown: Vec<Shown>,
}

impl ServeArgs {
    /// Checks all settings, without touching anything remote.
    fn check(&self) -> Result<(), BoxError> {
        self.process.check()?;
        if let Place::Store(url) = &self.place {
            StoreOptions { url: url.clone(), keys: self.keys.clone() }.check()?;
        }
        self.writer.validate()?;
        self.replica.0.validate()?;
        self.process.security.check_address(self.listen)?;
        Ok(())
    }

    /// Loads the files that it would load at its start, and nothing remote.
    async fn check_files(&self) -> Result<(), BoxError> {
        self.process.check_files().await?;
        self.keys.check_files()?;
        self.writers_line.check_files().await?;
        Ok(())
    }
}

pub(crate) async fn serve(args: &ServeArgs, output: &mut Output) -> Result<Exit, Failed> {
    let refused = |error: &dyn std::error::Error| Failed::usage(with_causes(error));
    if let Some(format) = args.process.config.show_config {
        daemon::print(&args.shown, format).map_err(|error| refused(&error))?;
        return Ok(Exit::Done);
    }
    args.check().map_err(|error| refused(&*error))?;
    if args.process.config.check_config {
        args.check_files().await.map_err(|error| refused(&*error))?;
        output.answer(
            || json!({ "settings": "fit", "files": "fit" }),
            || "the settings are fit, and the files that they name".to_owned(),
        )?;
        return Ok(Exit::Done);
    }
    let mut process =
        Process::start("headwater", args.process.clone()).await.map_err(|error| refused(&error))?;
    process.watch_line(&args.writers_line);
    let url = args.place.url()?;
    let store = StoreOptions { url: url.clone(), keys: args.keys.clone() };
    let opened = process.open(&store).map_err(|error| refused(&error))?;
    process.trust(&args.trust, &opened).await.map_err(|error| untrusted(&error))?;
    let listening = process.listen(args.listen).await.map_err(|error| refused(&error))?;
    let meter = process.meter();
    let line = GrpcLine::new(args.writers_line.clone());
    let writer = headwater_writer::start_linked(
        Arc::clone(&opened.store),
        args.writer.clone(),
        process.entropy(),
        Clock::system(),
        &meter,
        Some(Arc::new(line)),
    )
    .map_err(|error| refused(&error))?;
    let replica = headwater_replica::start_measured(
        opened.store,
        args.replica.0.clone(),
        process.entropy(),
        Clock::system(),
        &meter,
    )
    .map_err(|error| refused(&error))?;
    replica.measure_histories(&meter, process.histories_measured_max());
    replica.keep_ready(args.readiness.clone(), process.health().clone());
    process.show(PageOf {
        name: "serve",
        store: url.clone(),
        meter: Some(Arc::clone(&opened.meter)),
        writer: Some(Arc::new(writer.clone())),
        replica: Some(replica.source()),
    });
    let services = Services::new()
        .with(writer.write_service())
        .with(writer.history_service())
        .with(writer.retention_service())
        .with(writer.forward_service())
        .with(replica.service())
        .with(Usage::service(opened.meter))
        .with(replica.watch_service(process.leaving()));
    announce(listening.local_address(), process.admin_address(), &url, output)?;

    let served = tokio::select! {
        served = process.serve(listening, services) => served,
        never = tell(writer.notices(), &replica) => match never {},
    };
    writer.shutdown().await;
    replica.shutdown().await;
    process.end().await;
    served.map_err(|error| Failed::new(Exit::Unexpected, with_causes(&error)))?;
    Ok(Exit::Done)
}

fn untrusted(error: &Untrusted) -> Failed {
    let exit = match error.0 {
        Unfit::Broken(_) => Exit::Rejected,
        Unfit::Unanswered(_) => Exit::Unavailable,
    };
    Failed::new(exit, error.to_string())
}

/// Passes the writer's heads on to the replica, for as long as it is asked to.
/// Missing some changes no answer.
async fn tell(mut notices: broadcast::Receiver<HeadNotice>, replica: &Replica) -> Infallible {
    loop {
        match notices.recv().await {
            Ok(it) => take_in(replica, &it),
            Err(RecvError::Lagged(_)) => {}
            Err(RecvError::Closed) => std::future::pending().await,
        }
    }
}

/// Tells a replica in this process what one elsewhere is told over its
/// connection.
pub(crate) fn take_in(replica: &Replica, notice: &HeadNotice) {
    let HeadNotice { history, history_id, revision, published, .. } = notice;
    match published.as_deref().cloned() {
        Some(PublishedHead { bytes: head, tag, changes: entries }) => {
            let head = PushedHead { head, tag, entries };
            replica.push(history, *history_id, *revision, head);
        }
        None => replica.notice(history, *history_id, *revision),
    }
}

/// Says where it listens, and a line to try. The first line is for programs
/// that wait for it.
fn announce(
    address: SocketAddr,
    admin: Option<SocketAddr>,
    url: &str,
    output: &mut Output,
) -> Result<(), Failed> {
    let page = admin
        .map(|it| {
            format!("\nthe status page is http://{it}/, and probes are at http://{it}/readyz")
        })
        .unwrap_or_default();
    let option = if address.to_string() == ADDRESS_DEFAULT {
        String::new()
    } else {
        format!(" --writer {address}")
    };
    output.answer(
        || {
            let admin = admin.map(|it| it.to_string());
            json!({ "listening": address.to_string(), "admin": admin, "store": url })
        },
        || {
            format!(
                "listening on {address}\n\
                 histories are in {url}\n\
                 try: headwater create demo{option} && headwater put demo greeting \
                 hello{option} && headwater get demo greeting{option}{page}"
            )
        },
    )?;
    output.flush()
}
