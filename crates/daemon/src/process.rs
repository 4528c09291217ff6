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

use headwater_store::Entropy;
use headwater_store::probe::Unfit;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use crate::admin::{Admin, AdminPort, loglevel};
use crate::health::{self, For, Health};
use crate::options::{OpenStore, ProcessOptions, StoreError, StoreOptions};
use crate::serve::{BindError, Listening, Plain, ServeError, Services, Serving};
use crate::signals::{AtHangup, StopSignal};
use crate::telemetry::{self, TelemetryError};
use crate::trust::{TrustOptions, Untrusted};

/// A process that runs.
#[derive(Debug)]
pub struct Process {
    options: ProcessOptions,
    entropy: Entropy,
    stop: StopSignal,
    leaving: CancellationToken,
    health: Health,
    admin: Admin,
    admin_port: Option<AdminPort>,
    _at_hangup: AtHangup,
    /// They end with the process.
    tasks: Vec<AbortOnDropHandle<()>>,
}

/// Why a process does not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// Logs or telemetry cannot be set up.
    #[error(transparent)]
    Telemetry(#[from] TelemetryError),
    /// Signals cannot be watched.
    #[error("cannot watch signals")]
    Signals(#[source] io::Error),
    /// The admin port cannot be had.
    #[error(transparent)]
    Bind(#[from] BindError),
}

impl Process {
    /// Sets up logs, watches for signals, and answers on the admin port; not
    /// ready yet.
    ///
    /// # Errors
    ///
    /// [`StartError`].
    pub async fn start(options: ProcessOptions) -> Result<Self, StartError> {
        let level = telemetry::init(&options.log)?;
        let stop = StopSignal::install().map_err(StartError::Signals)?;
        let (hangup_level, origin) = (level.clone(), options.config.origin.clone());
        let at_hangup = AtHangup::install(move || hangup_level.reread(&origin));
        let at_hangup = at_hangup.map_err(StartError::Signals)?;
        let health = Health::new();
        let admin = Admin::new(health.clone());
        admin.merge(loglevel::router(level));
        let admin_port = match options.admin.admin_listen {
            Some(address) => Some(admin.listen(address).await?),
            None => None,
        };
        if let Some(port) = &admin_port {
            tracing::info!(address = %port.local_address(), "the admin port answers");
        }
        let (entropy, leaving) = (Entropy::from_os(), CancellationToken::new());

        Ok(Self {
            options,
            entropy,
            stop,
            leaving,
            health,
            admin,
            admin_port,
            _at_hangup: at_hangup,
            tasks: Vec::new(),
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

    /// Opens the store. Nothing is read from it or written yet.
    ///
    /// # Errors
    ///
    /// [`StoreError`].
    pub fn open(&mut self, store: &StoreOptions) -> Result<OpenStore, StoreError> {
        let opened = store.open(self.entropy())?;
        let (meter, options) = (Arc::clone(&opened.meter), self.options.ready.clone());
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

    /// Binds the address of the services.
    ///
    /// # Errors
    ///
    /// [`BindError`].
    pub async fn listen(&self, address: SocketAddr) -> Result<Listening, BindError> {
        Listening::bind(address).await
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
            acceptor: Arc::new(Plain),
            entropy: self.entropy(),
        };
        listening.serve_with(services, serving).await
    }

    /// The end of the process: the admin port answers no more.
    pub fn end(self) {
        tracing::info!("stopped");
    }
}
