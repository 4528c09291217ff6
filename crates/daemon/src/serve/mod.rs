//! Listening, and stopping without cutting anybody off.
//!
//! ```text
//! bind -> serve ... stop -> health says NOT_SERVING -> no new connections
//!                        -> calls in flight finish -> (drain_max) -> cut
//! ```
//!
//! Besides the services it is given, a server has `grpc.health.v1` and server
//! reflection (v1).
//!
//! # Invariants
//!
//! - [`Listening::serve`] returns within `drain_max` of the stop, whatever the
//!   callers do: a stream that a caller keeps open would otherwise hold the
//!   process for ever. Connections still open then are cut, so that nothing of
//!   the server outlives the call.

mod cut;

use std::convert::Infallible;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio_stream::StreamExt;
use tokio_util::sync::CancellationToken;
use tonic::body::Body;
use tonic::codegen::Service;
use tonic::codegen::http::{Request, Response};
use tonic::server::NamedService;
use tonic::service::RoutesBuilder;
use tonic::transport::Server;
use tonic::transport::server::TcpIncoming;
use tonic_health::ServingStatus;
use tonic_health::server::HealthReporter;

use self::cut::CutOnCancel;

/// How often an idle connection is asked for a sign of life, and how long it
/// may take to give one. A caller whose host died is noticed in their sum.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(20);
const KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(10);

/// Unacknowledged bytes of one connection and of one stream: a stream can fill
/// 1 Gbit/s at 16 ms, and one slow stream cannot hold all of a connection.
const CONNECTION_WINDOW_BYTES: u32 = 8 << 20;
const STREAM_WINDOW_BYTES: u32 = 2 << 20;

/// Calls of one connection at a time; more wait.
const STREAMS_MAX: u32 = 4_096;

/// After the cut, how long connections get to notice it.
const CUT_GRACE: Duration = Duration::from_secs(1);

/// Why a server could not start.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen on {address}")]
pub struct BindError {
    /// The address that was asked for.
    pub address: SocketAddr,
    /// What the system said.
    #[source]
    pub source: io::Error,
}

/// Why a server stopped before it was told to.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The committed descriptor set does not decode.
    #[error("the descriptor set cannot be served")]
    Reflection(#[from] tonic_reflection::server::Error),
    /// The transport failed.
    #[error("the server failed")]
    Transport(#[from] tonic::transport::Error),
}

/// The services of one server.
#[derive(Default)]
pub struct Services {
    routes: RoutesBuilder,
    names: Vec<&'static str>,
}

impl Services {
    /// None yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a generated server, limits set: see
    /// [`headwater_proto::limits::MESSAGE_BYTES_MAX`].
    #[must_use]
    pub fn with<S>(mut self, service: S) -> Self
    where
        S: Service<Request<Body>, Response = Response<Body>, Error = Infallible>
            + NamedService
            + Clone
            + Send
            + Sync
            + 'static,
        S::Future: Send + 'static,
    {
        self.routes.add_service(service);
        self.names.push(S::NAME);
        self
    }
}

impl fmt::Debug for Services {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Services").field(&self.names).finish()
    }
}

/// A bound address that does not answer yet.
#[derive(Debug)]
pub struct Listening {
    incoming: TcpIncoming,
    local_address: SocketAddr,
}

impl Listening {
    /// Binds `address`. Port 0 is one that the system chooses.
    ///
    /// # Errors
    ///
    /// [`BindError`].
    pub async fn bind(address: SocketAddr) -> Result<Self, BindError> {
        let failed = |source| BindError { address, source };
        let listener = TcpListener::bind(address).await.map_err(failed)?;
        let local_address = listener.local_addr().map_err(failed)?;
        let incoming = TcpIncoming::from(listener).with_nodelay(Some(true));
        Ok(Self { incoming, local_address })
    }

    /// Where it listens, with the port that the system chose.
    pub fn local_address(&self) -> SocketAddr {
        self.local_address
    }

    /// Serves until `stop` is cancelled, and drains for up to `drain_max`.
    ///
    /// Dropping the future stops accepting; connections then end with the
    /// runtime.
    ///
    /// # Errors
    ///
    /// [`ServeError`]; draining past its time is not one.
    pub async fn serve(
        self,
        services: Services,
        stop: CancellationToken,
        drain_max: Duration,
    ) -> Result<(), ServeError> {
        let Services { mut routes, names } = services;
        let (health, health_service) = tonic_health::server::health_reporter();
        set_health(&health, &names, ServingStatus::Serving).await;
        let reflection = tonic_reflection::server::Builder::configure()
            .register_encoded_file_descriptor_set(headwater_proto::FILE_DESCRIPTOR_SET)
            .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
            .build_v1()?;
        routes.add_service(health_service).add_service(reflection);

        let cut = CancellationToken::new();
        // Whoever stops waiting for the server has no use for its connections.
        let _cut_at_the_end = cut.clone().drop_guard();
        let connections = {
            let cut = cut.clone();
            self.incoming.map(move |it| it.map(|io| CutOnCancel::new(io, cut.clone())))
        };
        let draining = async {
            stop.cancelled().await;
            set_health(&health, &names, ServingStatus::NotServing).await;
        };
        let serving = builder()
            .add_routes(routes.routes())
            .serve_with_incoming_shutdown(connections, draining);
        tokio::pin!(serving);

        tokio::select! {
            outcome = &mut serving => return Ok(outcome?),
            () = drained_too_long(&stop, drain_max) => {}
        }
        tracing::warn!(
            drain_ms = drain_max.as_millis(),
            "calls were still in flight; cutting them"
        );
        cut.cancel();
        match tokio::time::timeout(CUT_GRACE, serving).await {
            Ok(outcome) => Ok(outcome?),
            Err(_) => Ok(()),
        }
    }
}

fn builder() -> Server {
    Server::builder()
        .http2_keepalive_interval(Some(KEEPALIVE_INTERVAL))
        .http2_keepalive_timeout(Some(KEEPALIVE_TIMEOUT))
        .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
        .initial_stream_window_size(STREAM_WINDOW_BYTES)
        .max_concurrent_streams(STREAMS_MAX)
}

async fn set_health(health: &HealthReporter, names: &[&'static str], status: ServingStatus) {
    // The empty name stands for the whole server.
    for name in names.iter().copied().chain([""]) {
        health.set_service_status(name, status).await;
    }
}

async fn drained_too_long(stop: &CancellationToken, drain_max: Duration) {
    stop.cancelled().await;
    tokio::time::sleep(drain_max).await;
}
