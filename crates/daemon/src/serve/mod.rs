//! Listening, and stopping without cutting anybody off.
//!
//! ```text
//! bind -> serve ... stop -> health: not ready     (drain delay; all is served)
//!                        -> no new connections, GOAWAY, streams told to end
//!                        -> calls in flight finish (drain max) -> cut
//! ```
//!
//! Besides the services it is given, a server has `grpc.health.v1` and server
//! reflection (v1). The accept loop is our own: tonic's closes its listener at
//! the first word, and has no way to end a connection whose stream stays open.
//!
//! ```text
//! socket -> accept (TLS) -> connection -> calls -> layers -> services
//!              handshake    limit, age    deadline   tracing, authentication
//!              time limit
//! ```
//!
//! # Invariants
//!
//! - [`Listening::serve`] returns within `drain_delay + drain_max` of the stop,
//!   whatever the callers do: a stream that a caller keeps open would otherwise
//!   hold the process for ever. Connections still open then are cut, and their
//!   calls with them, so that nothing of the server outlives it.
//! - Every connection and every call is a task that the server waits for.

mod accept;
mod calls;
mod connection;
mod connections;
mod leaving;
mod options;

use std::convert::Infallible;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use headwater_store::Entropy;
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tonic::body::Body;
use tonic::codegen::Service;
use tonic::codegen::http::{Request, Response};
use tonic::server::NamedService;
use tonic::service::RoutesBuilder;
use tower::Layer;
use tower::util::BoxCloneSyncService;

pub use self::accept::{Accept, Accepted, Io, Plain};
use self::connection::Terms;
use self::connections::Connections;
pub use self::leaving::Leaving;
pub use self::options::{ServerOptions, ServerOptionsError};
use crate::health::{Health, HealthRpc};

/// After the cut, how long connections get to notice it.
const CUT_GRACE: Duration = Duration::from_secs(1);

/// After a socket could not be taken, for want of file descriptors mostly.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Age limits are spread by up to one part in so many.
const AGE_JITTER_PART: u32 = 10;

/// All gRPC services of a server as one, with some of the layers around it.
pub type GrpcService = BoxCloneSyncService<Request<Body>, Response<Body>, Infallible>;

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

/// Why a server did not serve.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The committed descriptor set does not decode.
    #[error("the descriptor set cannot be served")]
    Reflection(#[from] tonic_reflection::server::Error),
}

type BoxedLayer = Box<dyn FnOnce(GrpcService) -> GrpcService + Send>;

/// The services of one server, and what is around all of them.
#[derive(Default)]
pub struct Services {
    routes: RoutesBuilder,
    names: Vec<&'static str>,
    /// Outermost first.
    layers: Vec<BoxedLayer>,
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

    /// Puts a layer around all services, health and reflection among them,
    /// inside of those that were added before.
    #[must_use]
    pub fn with_layer<L>(mut self, layer: L) -> Self
    where
        L: Layer<GrpcService> + Send + 'static,
        L::Service: Service<Request<Body>, Response = Response<Body>, Error = Infallible>
            + Clone
            + Send
            + Sync
            + 'static,
        <L::Service as Service<Request<Body>>>::Future: Send + 'static,
    {
        self.layers.push(Box::new(move |inner| GrpcService::new(layer.layer(inner))));
        self
    }

    /// Puts a layer around all others.
    #[must_use]
    pub fn with_outermost<L>(mut self, layer: L) -> Self
    where
        L: Layer<GrpcService> + Send + 'static,
        L::Service: Service<Request<Body>, Response = Response<Body>, Error = Infallible>
            + Clone
            + Send
            + Sync
            + 'static,
        <L::Service as Service<Request<Body>>>::Future: Send + 'static,
    {
        self.layers.insert(0, Box::new(move |inner| GrpcService::new(layer.layer(inner))));
        self
    }

    /// With the standard services, all layers around.
    fn whole(mut self, health: &Health) -> Result<GrpcService, ServeError> {
        health.serves(self.names.iter().copied());
        let reflection = tonic_reflection::server::Builder::configure()
            .register_encoded_file_descriptor_set(headwater_proto::FILE_DESCRIPTOR_SET)
            .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
            .build_v1()?;
        self.routes.add_service(HealthRpc::service(health.clone())).add_service(reflection);
        let routes = GrpcService::new(self.routes.routes().prepare());
        Ok(self.layers.into_iter().rev().fold(routes, |inner, layer| layer(inner)))
    }
}

impl fmt::Debug for Services {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Services").field(&self.names).finish()
    }
}

/// How a server is run.
pub struct Serving {
    /// Ready until the stop.
    pub health: Health,
    /// Begins the drain.
    pub stop: CancellationToken,
    /// Cancelled by the server when the delay of the drain is over: streams end
    /// then.
    pub leaving: CancellationToken,
    /// Limits of connections and of the drain.
    pub options: ServerOptions,
    /// Makes connections of sockets.
    pub acceptor: Arc<dyn Accept>,
    /// Spreads the ages of connections.
    pub entropy: Entropy,
}

impl fmt::Debug for Serving {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Serving").field("options", &self.options).finish_non_exhaustive()
    }
}

impl Serving {
    /// Without TLS, and with the default settings.
    pub fn new(stop: CancellationToken) -> Self {
        Self {
            health: Health::new(),
            leaving: CancellationToken::new(),
            stop,
            options: ServerOptions::default(),
            acceptor: Arc::new(Plain),
            entropy: Entropy::from_os(),
        }
    }
}

/// A bound address that does not answer yet.
#[derive(Debug)]
pub struct Listening {
    listener: TcpListener,
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
        Ok(Self { listener, local_address })
    }

    /// Where it listens, with the port that the system chose.
    pub fn local_address(&self) -> SocketAddr {
        self.local_address
    }

    /// Serves until `stop` is cancelled, and drains for up to `drain_max`:
    /// [`Listening::serve_with`] for programs that need no more.
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
        self.serve_for(services, Serving::new(stop), drain_max).await
    }

    /// Serves until the stop, and drains as the options say.
    ///
    /// # Errors
    ///
    /// [`ServeError`]; draining past its time is not one.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future cuts all connections.
    pub async fn serve_with(self, services: Services, serving: Serving) -> Result<(), ServeError> {
        let drain_max = serving.options.drain_max();
        self.serve_for(services, serving, drain_max).await
    }

    async fn serve_for(
        self,
        services: Services,
        serving: Serving,
        drain_max: Duration,
    ) -> Result<(), ServeError> {
        let Serving { health, stop, leaving, options, acceptor, entropy } = serving;
        let tasks = TaskTracker::new();
        let cut = CancellationToken::new();
        // Whoever stops waiting for the server has no use for its connections.
        let _cut_at_the_end = cut.clone().drop_guard();
        let server = Server {
            terms: Arc::new(Terms {
                service: services.whole(&health)?,
                acceptor,
                handshake_timeout: options.handshake_timeout(),
                age_grace: options.age_grace(),
                tasks: tasks.clone(),
            }),
            connections: Connections::new(options.connections_max),
            tasks,
            leaving,
            cut,
            age_max: options.age_max(),
            entropy,
        };
        let draining = async {
            stop.cancelled().await;
            health.drain();
            tokio::time::sleep(options.drain_delay()).await;
        };
        tokio::select! {
            () = draining => {}
            never = server.accept(&self.listener) => match never {},
        }
        // From here on new callers are refused, and go elsewhere.
        drop(self.listener);
        server.leave(drain_max).await;
        Ok(())
    }
}

/// A server that runs.
struct Server {
    terms: Arc<Terms>,
    connections: Arc<Connections>,
    tasks: TaskTracker,
    leaving: CancellationToken,
    cut: CancellationToken,
    age_max: Option<Duration>,
    entropy: Entropy,
}

impl Server {
    async fn accept(&self, listener: &TcpListener) -> Infallible {
        loop {
            match listener.accept().await {
                Ok((socket, _)) => self.begin(socket),
                Err(error) => {
                    tracing::warn!(%error, "a connection could not be taken");
                    self.connections.make_room();
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }

    fn begin(&self, socket: TcpStream) {
        let Some(place) = self.connections.place(&self.leaving, &self.cut) else {
            // Dropped, which the caller sees at once.
            return tracing::debug!("a connection was refused: there are too many");
        };
        if let Err(error) = socket.set_nodelay(true) {
            return tracing::debug!(%error, "a connection was gone at once");
        }
        let age = self.age_max.map(|it| it + self.entropy.jitter(it / AGE_JITTER_PART));
        self.tasks.spawn(connection::run(Arc::clone(&self.terms), socket, age, place));
    }

    async fn leave(self, drain_max: Duration) {
        self.leaving.cancel();
        self.tasks.close();
        if tokio::time::timeout(drain_max, self.tasks.wait()).await.is_ok() {
            return;
        }
        let connections = self.connections.len();
        let drain_ms = drain_max.as_millis();
        tracing::warn!(drain_ms, connections, "calls were still in flight; cutting them");
        self.cut.cancel();
        if tokio::time::timeout(CUT_GRACE, self.tasks.wait()).await.is_err() {
            tracing::warn!("some calls did not notice that they were cut");
        }
    }
}
