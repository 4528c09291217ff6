//! The second port: plain HTTP for probes, scrapes and people.
//!
//! It is put together from parts, by whoever has something to show:
//! [`Admin::merge`]. Its own part are the probes. It answers from before the
//! process is ready until after its last call, so that a probe never mistakes a
//! process that starts or drains for one that is dead.
//!
//! # Invariants
//!
//! - It listens only where an address is given, and never on the port of gRPC.
//! - Every request passes the [`Gate`] before it reaches a part.
//! - No answer waits for the store.
//! - It has few connections, and none of them without a time limit: for the next
//!   request, and for a request to arrive and its answer to be taken.

pub(crate) mod gate;
pub(crate) mod loglevel;
mod probes;

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use http::{Request, Response};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout, timeout_at};
use tokio_util::task::AbortOnDropHandle;
use tonic::transport::server::Connected as _;
use tower::ServiceExt as _;

pub use self::gate::Gate;
use crate::health::Health;
use crate::serve::{Accept, BindError};

/// Connections at a time. Past it new ones wait.
const CONNECTIONS_MAX: usize = 256;
/// Longest time for the head of a request.
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);
/// Longest time from the head of a request until its answer has been taken. A
/// connection that takes longer is ended.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);
/// After a socket could not be taken.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Where the admin port is.
#[derive(Clone, Debug, Default, PartialEq, Eq, clap::Args)]
#[command(next_help_heading = "Admin port")]
pub struct AdminOptions {
    /// Where probes (`/livez`, `/readyz`), metrics and the status page are
    /// served over HTTP. Without it they are not.
    #[arg(long, value_name = "ADDRESS", env = "HEADWATER_ADMIN_LISTEN")]
    pub admin_listen: Option<SocketAddr>,
}

/// What the admin port shows. Clones share it.
#[derive(Clone, Debug)]
pub struct Admin {
    router: Arc<Mutex<Router>>,
    gate: Gate,
}

impl Admin {
    /// With the probes. `gate` decides who may ask for what.
    pub fn new(health: Health, gate: Gate) -> Self {
        Self { router: Arc::new(Mutex::new(probes::router(health))), gate }
    }

    /// Adds a part, at any time: requests that come later see it.
    ///
    /// # Panics
    ///
    /// Where a path is there already.
    pub fn merge(&self, part: Router) {
        let mut router = self.router.lock().unwrap_or_else(PoisonError::into_inner);
        *router = std::mem::take(&mut *router).merge(part);
    }

    /// Answers one request.
    pub async fn answer(&self, mut request: Request<Body>) -> Response<Body> {
        if let Err(refused) = self.gate.check(&mut request) {
            return *refused;
        }
        let router = self.router.lock().unwrap_or_else(PoisonError::into_inner).clone();
        match router.oneshot(request).await {
            Ok(response) => response,
            Err(never) => match never {},
        }
    }

    /// Binds `address` and answers there, until the handle is dropped.
    ///
    /// # Errors
    ///
    /// [`BindError`].
    pub async fn listen(
        &self,
        address: SocketAddr,
        acceptor: Arc<dyn Accept>,
    ) -> Result<AdminPort, BindError> {
        let failed = |source| BindError { address, source };
        let listener = TcpListener::bind(address).await.map_err(failed)?;
        let local_address = listener.local_addr().map_err(failed)?;
        let admin = self.clone();
        let task = tokio::spawn(async move { match admin.accept(listener, acceptor).await {} });
        Ok(AdminPort { local_address, _task: AbortOnDropHandle::new(task) })
    }

    async fn accept(self, listener: TcpListener, acceptor: Arc<dyn Accept>) -> Infallible {
        let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
        // Aborts them all when it is dropped.
        let mut connections = JoinSet::new();
        loop {
            while connections.try_join_next().is_some() {}
            let Ok(place) = Arc::clone(&places).acquire_owned().await else { continue };
            match listener.accept().await {
                Ok((socket, _)) => {
                    let (admin, acceptor) = (self.clone(), Arc::clone(&acceptor));
                    connections.spawn(async move {
                        admin.connection(socket, &*acceptor).await;
                        drop(place);
                    });
                }
                Err(error) => {
                    tracing::warn!(%error, "a connection to the admin port could not be taken");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }

    async fn connection(&self, socket: TcpStream, acceptor: &dyn Accept) {
        let about = socket.connect_info();
        let Ok(Ok(accepted)) = timeout(HEAD_TIMEOUT, acceptor.accept(socket)).await else {
            return tracing::debug!("a handshake with the admin port failed");
        };
        let mut known = accepted.extensions;
        known.insert(about);
        // When the last request began. Around the connection and not the answer:
        // one that nobody reads is not asked for its next part.
        let began = watch::Sender::new(Instant::now());
        let answering = service_fn(|request: Request<Incoming>| {
            began.send_replace(Instant::now());
            let mut request = request.map(Body::new);
            request.extensions_mut().extend(known.clone());
            async move { Ok::<_, Infallible>(self.answer(request).await) }
        });
        let served = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(HEAD_TIMEOUT)
            .serve_connection(TokioIo::new(accepted.io), answering);
        tokio::select! {
            served = served => if let Err(error) = served {
                tracing::debug!(%error, "a connection to the admin port failed");
            },
            () = is_late(began.subscribe()) => {
                tracing::debug!("a request to the admin port took too long");
            }
        }
    }
}

/// Waits until the last request has been there for too long.
async fn is_late(mut began: watch::Receiver<Instant>) {
    loop {
        let late_at = *began.borrow_and_update() + REQUEST_TIMEOUT;
        // A sender that is gone makes no more requests.
        let Ok(Ok(())) = timeout_at(late_at, began.changed()).await else { return };
    }
}

/// An admin port that answers. Dropping it ends that.
#[derive(Debug)]
pub struct AdminPort {
    local_address: SocketAddr,
    _task: AbortOnDropHandle<()>,
}

impl AdminPort {
    /// Where it listens, with the port that the system chose.
    pub fn local_address(&self) -> SocketAddr {
        self.local_address
    }
}

#[cfg(test)]
#[path = "admin_test.rs"]
mod tests;
