//! One assembly for every binary: logs, signals, health, the admin port, the
//! server and its layers, and the end.
//!
//! ```text
//! start ─▶ open a store ─▶ trust it ─▶ services ─▶ serve ... drain ─▶ end
//!   │ logs, signals, admin port                      │ layers, TLS
//! ```
//!
//! What is added here is there in `headwater serve`, in the writer and in the
//! replica at once; their own code says which services they have.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use headwater_store::probe::Unfit;
use headwater_store::{Clock, Entropy, Meter as StoreMeter};
use opentelemetry::metrics::Meter;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use crate::admin::{Admin, AdminPort, loglevel};
use crate::health::{self, Check, For, Health};
use crate::metrics;
use crate::options::{OpenStore, ProcessOptions, StoreError, StoreOptions};
use crate::overview::{ReplicaSource, WriterSource};
use crate::page::{Page, Parts};
use crate::prices;
use crate::security::{Security, SecurityError};
use crate::serve::{BindError, Listening, ServeError, Services, Serving};
use crate::signals::{AtHangup, StopSignal};
use crate::telemetry::otlp::{self, Telemetry};
use crate::telemetry::{self, TelemetryError};
use crate::tls::TlsOptionsError;
use crate::trust::{TrustOptions, Untrusted};
use crate::writer_line::{WatchedFiles, WriterLineOptions};

/// A process that runs.
#[derive(Debug)]
pub struct Process {
    options: ProcessOptions,
    entropy: Entropy,
    stop: StopSignal,
    leaving: CancellationToken,
    began: Instant,
    health: Health,
    /// Ready once the services are served: what else has to be well is
    /// registered by then.
    starting: Check,
    security: Security,
    admin: Admin,
    page: Option<Page>,
    admin_port: Option<AdminPort>,
    _at_hangup: AtHangup,
    /// They end with the process.
    tasks: Vec<AbortOnDropHandle<()>>,
    telemetry: Telemetry,
}

/// What the status page of a process is about.
#[derive(Clone, Debug)]
pub struct PageOf {
    /// What the process was started as: `serve`, `writer`, `replica`.
    pub name: &'static str,
    /// The store's URL, as it was given.
    pub store: String,
    /// Counts the calls to the store.
    pub meter: Option<Arc<StoreMeter>>,
    /// Its writer, if it has one.
    pub writer: Option<Arc<dyn WriterSource>>,
    /// Its replica, if it has one.
    pub replica: Option<Arc<dyn ReplicaSource>>,
}

/// Why a process does not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// Logs or telemetry cannot be set up.
    #[error(transparent)]
    Logs(#[from] TelemetryError),
    /// Metrics or traces cannot be set up.
    #[error(transparent)]
    Telemetry(#[from] otlp::StartError),
    /// Signals cannot be watched.
    #[error("cannot watch signals")]
    Signals(#[source] io::Error),
    /// Certificates or rights cannot be used.
    #[error(transparent)]
    Security(#[from] SecurityError),
    /// The admin port cannot be had.
    #[error(transparent)]
    Listen(#[from] ListenError),
}

/// Why a process does not listen.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// It would be served to others than this machine in the clear, or without
    /// a way to know them.
    #[error(transparent)]
    Unsafe(#[from] TlsOptionsError),
    /// The address cannot be had.
    #[error(transparent)]
    Bind(#[from] BindError),
}

impl Process {
    /// Sets up logs and telemetry, watches for signals, and answers on the admin
    /// port; not ready yet. `service` is what the process is called in traces.
    ///
    /// # Errors
    ///
    /// [`StartError`].
    pub async fn start(service: &'static str, options: ProcessOptions) -> Result<Self, StartError> {
        let began = Instant::now();
        let entropy = Entropy::from_os();
        let telemetry = Telemetry::start(service, &options.telemetry, &entropy)?;
        let level = telemetry::init(&options.log, telemetry.trace_layer())?;
        let stop = StopSignal::install().map_err(StartError::Signals)?;
        let (hangup_level, origin) = (level.clone(), options.config.origin.clone());
        let at_hangup = AtHangup::install(move || hangup_level.reread(&origin));
        let at_hangup = at_hangup.map_err(StartError::Signals)?;
        let health = Health::new();
        // Before the admin port: without any check it would say that the
        // process is ready.
        let starting = health.check(health::STARTING, For::All);
        let security = options.security.open(Clock::system()).await?;
        security.measure(&telemetry.meter());
        let admin = Admin::new(health.clone(), security.gate());
        admin.merge(loglevel::router(level));
        admin.merge(telemetry.routes());
        let admin_port = match options.admin.admin_listen {
            Some(address) => {
                options.security.check_admin_address(address).map_err(ListenError::from)?;
                let port = admin.listen(address, security.admin_acceptor()).await;
                Some(port.map_err(ListenError::from)?)
            }
            None => None,
        };
        if let Some(port) = &admin_port {
            tracing::info!(address = %port.local_address(), "the admin port answers");
        }
        let leaving = CancellationToken::new();
        let files_of_receiver = telemetry.keep_fresh(options.security.auth.interval());
        let watching = tokio::spawn(async move { match files_of_receiver.await {} });

        Ok(Self {
            options,
            entropy,
            stop,
            leaving,
            began,
            health,
            starting,
            security,
            admin,
            page: None,
            admin_port,
            _at_hangup: at_hangup,
            tasks: vec![AbortOnDropHandle::new(watching)],
            telemetry,
        })
    }

    /// The randomness of this process.
    pub fn entropy(&self) -> Entropy {
        self.entropy.clone()
    }

    /// What it is ready for.
    pub fn health(&self) -> &Health {
        &self.health
    }

    /// What its admin port shows.
    pub fn admin(&self) -> &Admin {
        &self.admin
    }

    /// What is measured is measured by this.
    pub fn meter(&self) -> Meter {
        self.telemetry.meter()
    }

    /// Looks at the files of connections to writers, and measures whether they can
    /// be used.
    pub fn watch_line(&mut self, options: &WriterLineOptions) {
        let files = WatchedFiles::new(options);
        files.measure(&self.meter());
        let interval = self.options.security.auth.interval();
        let watching = async move { match files.keep_fresh(interval).await {} };
        self.tasks.push(AbortOnDropHandle::new(tokio::spawn(watching)));
    }

    /// Puts the status page on the admin port, if there is one.
    pub fn show(&mut self, about: PageOf) {
        if self.admin_port.is_none() || self.page.is_some() {
            return;
        }
        let PageOf { name, store, meter, writer, replica } = about;
        let (began, health) = (self.began, self.health.clone());
        let page = Page::start(Parts { name, store, began, health, meter, writer, replica });
        self.admin.merge(page.router());
        self.page = Some(page);
    }

    /// Histories that are measured each under its name.
    pub fn histories_measured_max(&self) -> usize {
        self.telemetry.histories_max()
    }

    /// Where the admin port is, if there is one.
    pub fn admin_address(&self) -> Option<SocketAddr> {
        self.admin_port.as_ref().map(AdminPort::local_address)
    }

    /// Cancelled by the first signal.
    pub fn stop(&self) -> CancellationToken {
        self.stop.token()
    }

    /// Cancelled when connections are about to end: streams that go on for ever
    /// end then.
    pub fn leaving(&self) -> CancellationToken {
        self.leaving.clone()
    }

    /// Opens the store, and measures its calls. Nothing is read from it or
    /// written yet.
    ///
    /// # Errors
    ///
    /// [`StoreError`].
    pub fn open(&mut self, store: &StoreOptions) -> Result<OpenStore, StoreError> {
        let name = self.options.telemetry.metrics_prices.as_deref();
        let prices = prices::of_store(&store.url, name)?;
        let opened = store.open(self.entropy())?;
        metrics::store::measure(&self.meter(), &opened.meter, prices);
        let (meter, options) = (Arc::clone(&opened.meter), self.options.ready.clone());
        // Here and not first in the task, which may begin after the services.
        self.health.check(health::STORE, For::All);
        let watching = tokio::spawn(health::store::watch(self.health.clone(), meter, options));
        self.tasks.push(AbortOnDropHandle::new(watching));
        Ok(opened)
    }

    /// Asks the store whether it may be written to. Until it has answered, the
    /// process is not ready.
    ///
    /// # Errors
    ///
    /// [`Untrusted`].
    pub async fn trust(&self, trust: &TrustOptions, opened: &OpenStore) -> Result<(), Untrusted> {
        let check = self.health.check("store-trusted", For::All);
        let stop = self.stop();
        let asking = trust.wait(opened, &self.entropy, &check);
        match stop.run_until_cancelled(asking).await {
            Some(asked) => asked,
            // Nothing is known of it, so it is not used, not for a drain either.
            None => Err(Untrusted(Unfit::Unanswered(vec!["the process was told to end".into()]))),
        }
    }

    /// Binds the address of the services. Without TLS, or without a way to
    /// know callers, it is one that only this machine reaches, unless it was said
    /// that the network is safe.
    ///
    /// # Errors
    ///
    /// [`ListenError`].
    pub async fn listen(&self, address: SocketAddr) -> Result<Listening, ListenError> {
        self.options.security.check_address(address)?;
        Ok(Listening::bind(address).await?)
    }

    /// Serves until a signal, and drains. Every feature that is around all
    /// services is put around them here.
    ///
    /// # Errors
    ///
    /// [`ServeError`].
    pub async fn serve(&self, listening: Listening, services: Services) -> Result<(), ServeError> {
        let serving = Serving {
            health: self.health.clone(),
            stop: self.stop(),
            leaving: self.leaving(),
            options: self.options.server.clone(),
            acceptor: self.security.acceptor(),
            entropy: self.entropy(),
        };
        let mut services = services.with_layer(self.security.layer());
        // Inside of it: who has no right to call has nothing traced.
        if let Some(traces) = self.telemetry.call_traces(&self.entropy) {
            services = services.with_layer(traces);
        }
        let services = services.with_outermost(self.telemetry.rpc_layer());
        self.starting.ready();
        tokio::select! {
            served = listening.serve_with(services, serving) => served,
            never = self.security.clone().keep_fresh() => match never {},
        }
    }

    /// The end of the process: the admin port answers no more, and what is left
    /// of metrics and traces is sent, for a few seconds at most.
    pub async fn end(self) {
        tracing::info!("stopped");
        drop(self.admin_port);
        self.telemetry.shutdown().await;
    }
}
