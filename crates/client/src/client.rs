//! The client: two pools of servers, and how calls to them are made.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use headwater_proto::limits::MESSAGE_BYTES_MAX;
use headwater_proto::v1::history_service_client::HistoryServiceClient;
use headwater_proto::v1::read_service_client::ReadServiceClient;
use headwater_proto::v1::retention_service_client::RetentionServiceClient;
use headwater_proto::v1::watch_service_client::WatchServiceClient;
use headwater_proto::v1::write_service_client::WriteServiceClient;
use headwater_tls::{BearerFile, ClientFiles, Connector};
use tokio::time::Instant;

use crate::address::{Address, AddressError};
use crate::call::{CallContext, RetryConfig};
use crate::credentials::{Credentials, Line};
use crate::id::{OperationId, Token};
use crate::network::{Network, SystemNetwork};
use crate::operation::{IssueVersion, Operation};
use crate::pool::{Pool, Route};
use crate::random::Random;
use crate::session::Session;
use crate::trace::TraceContext;

/// Longest time for a call whose caller names none.
pub const DEADLINE_DEFAULT: Duration = Duration::from_secs(30);

/// Longest time that a caller may ask for. Nobody waits longer for a call, and
/// the clock can count it.
const DEADLINE_MAX: Duration = Duration::from_secs(24 * 60 * 60);

/// Talks to the writers and replicas of one deployment. Cheap to clone; clones
/// share connections.
#[derive(Clone, Debug)]
pub struct Client {
    pub(crate) inner: Arc<Inner>,
    pub(crate) deadline: Duration,
}

#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) writers: Pool,
    pub(crate) replicas: Pool,
    pub(crate) random: Arc<Random>,
    pub(crate) retry: RetryConfig,
    pub(crate) traces: TraceContext,
}

/// Sets a [`Client`] up.
#[derive(Debug)]
#[must_use = "a builder does nothing until `build`"]
pub struct ClientBuilder {
    writers: Vec<String>,
    replicas: Vec<String>,
    network: Arc<dyn Network>,
    random: Arc<Random>,
    retry: RetryConfig,
    deadline: Duration,
    traces: TraceContext,
    tls: ClientFiles,
    bearer: Option<BearerFile>,
    is_plain_allowed: bool,
}

impl Client {
    /// Begins to set a client up.
    pub fn builder() -> ClientBuilder {
        ClientBuilder {
            writers: Vec::new(),
            replicas: Vec::new(),
            network: Arc::new(SystemNetwork),
            random: Arc::new(Random::from_os()),
            retry: RetryConfig::default(),
            deadline: DEADLINE_DEFAULT,
            traces: TraceContext::default(),
            tls: ClientFiles::default(),
            bearer: None,
            is_plain_allowed: false,
        }
    }

    /// The same client, with another time for each call. All attempts of a call
    /// together stay within it.
    #[must_use]
    pub fn with_deadline(&self, deadline: Duration) -> Self {
        Self { inner: Arc::clone(&self.inner), deadline }
    }

    /// Longest time for one call.
    pub fn deadline(&self) -> Duration {
        self.deadline
    }

    /// Works on one history, from whatever version is current.
    pub fn session(&self, history: impl Into<String>) -> Session {
        Session::new(self.clone(), history.into(), None)
    }

    /// Works on one history, from a version that another process has seen.
    pub fn session_from(&self, history: impl Into<String>, token: Token) -> Session {
        Session::new(self.clone(), history.into(), Some(token))
    }

    /// A fresh operation id: 128 random bits.
    pub fn operation_id(&self) -> OperationId {
        self.inner.random.operation_id()
    }

    /// An operation with a fresh id, issued from the newest version that the
    /// session has seen when it is first sent.
    pub fn operation(&self) -> Operation {
        Operation::new(self.operation_id(), IssueVersion::Newest)
    }

    /// When a call that begins now has to be over.
    pub(crate) fn deadline_from_now(&self) -> Instant {
        Instant::now() + self.deadline.min(DEADLINE_MAX)
    }

    /// A call to writers about `history`, begun now.
    pub(crate) fn to_writers<'a>(&'a self, history: &'a str) -> CallContext<'a> {
        self.call(&self.inner.writers, Route::History(history))
    }

    /// A call to replicas, begun now. Pages of one scan and reads of one
    /// transaction prefer the replica that has their version at hand.
    pub(crate) fn to_replicas(&self, prefer: Option<SocketAddr>) -> CallContext<'_> {
        self.call(&self.inner.replicas, prefer.map_or(Route::Balanced, Route::Prefer))
    }

    fn call<'a>(&'a self, pool: &'a Pool, route: Route<'a>) -> CallContext<'a> {
        CallContext {
            pool,
            route,
            config: self.inner.retry,
            random: &self.inner.random,
            deadline: self.deadline_from_now(),
            traces: &self.inner.traces,
        }
    }
}

impl ClientBuilder {
    /// Where writers are: `https://HOST:PORT`, `http://HOST:PORT` or `HOST:PORT`,
    /// any number. A name stands for all its addresses. Without a scheme it is
    /// https where anything of TLS is set, and http elsewhere.
    pub fn writers<T: Into<String>>(mut self, addresses: impl IntoIterator<Item = T>) -> Self {
        self.writers.extend(addresses.into_iter().map(Into::into));
        self
    }

    /// Where replicas are. None: where the writers are, as for `headwater serve`.
    pub fn replicas<T: Into<String>>(mut self, addresses: impl IntoIterator<Item = T>) -> Self {
        self.replicas.extend(addresses.into_iter().map(Into::into));
        self
    }

    /// Trusts servers whose certificates are of the authorities in this file
    /// (PEM), instead of those that this machine trusts.
    pub fn tls_authorities(mut self, file: impl Into<PathBuf>) -> Self {
        self.tls.authorities = Some(file.into());
        self
    }

    /// Shows this certificate, which is for clients, and proves it with the key
    /// (PEM). The files are read for each connection, so they may be replaced.
    pub fn tls_identity(
        mut self,
        certificate: impl Into<PathBuf>,
        key: impl Into<PathBuf>,
    ) -> Self {
        self.tls.identity = Some((certificate.into(), key.into()));
        self
    }

    /// The name that servers' certificates have to be for, where it is not the
    /// one of their address.
    pub fn tls_server_name(mut self, name: impl Into<String>) -> Self {
        self.tls.server_name = Some(name.into());
        self
    }

    /// Shows the token in this file with each request. The file is looked at
    /// once a second, so it may be replaced. A token is sent over TLS and to
    /// this machine only: see [`Self::token_over_plain`].
    pub fn token_file(mut self, file: impl Into<PathBuf>) -> Self {
        self.bearer = Some(BearerFile::new(file));
        self
    }

    /// Sends the token also in the clear to other machines: for networks that
    /// encrypt by themselves.
    pub fn token_over_plain(mut self, is_allowed: bool) -> Self {
        self.is_plain_allowed = is_allowed;
        self
    }

    /// Longest time for one call, all its attempts together;
    /// [`DEADLINE_DEFAULT`] otherwise.
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.deadline = deadline;
        self
    }

    /// How calls are repeated.
    pub fn retry(mut self, retry: RetryConfig) -> Self {
        self.retry = retry;
        self
    }

    /// Draws ids and jitter from a seed, so that a run can be replayed. For
    /// tests: two clients with one seed draw the same operation ids.
    pub fn seed(mut self, seed: u64) -> Self {
        self.random = Arc::new(Random::from_seed(seed));
        self
    }

    /// Where in a trace a call is: asked for each attempt, in the `tracing` span
    /// of its call. What it returns is sent as `traceparent`, the header of the
    /// W3C recommendation "Trace Context"; `None` sends nothing. It has to be
    /// quick.
    pub fn trace_context(
        mut self,
        context: impl Fn() -> Option<String> + Send + Sync + 'static,
    ) -> Self {
        self.traces = TraceContext::new(context);
        self
    }

    /// Reaches servers another way than over TCP.
    pub fn network(mut self, network: impl Network) -> Self {
        self.network = Arc::new(network);
        self
    }

    /// The client. Nothing is resolved or connected yet.
    ///
    /// # Errors
    ///
    /// [`AddressError`] names the address that is wrong.
    pub fn build(self) -> Result<Client, AddressError> {
        let is_tls = self.tls != ClientFiles::default();
        let credentials = Arc::new(Credentials {
            connector: Connector::new(self.tls),
            bearer: self.bearer,
            is_plain_allowed: self.is_plain_allowed,
        });
        let read = |texts: &[String], role| -> Result<Vec<Address>, AddressError> {
            if texts.is_empty() {
                return Err(AddressError::None { role });
            }
            texts.iter().map(|it| Address::parse(it, is_tls)).collect()
        };
        let pool = |addresses| {
            let network = Arc::clone(&self.network);
            Pool::new(addresses, network, Arc::clone(&credentials), Arc::clone(&self.random))
        };
        let writers = read(&self.writers, "writer")?;
        let replicas = match self.replicas.as_slice() {
            [] => writers.clone(),
            texts => read(texts, "replica")?,
        };
        let inner = Inner {
            writers: pool(writers),
            replicas: pool(replicas),
            random: Arc::clone(&self.random),
            retry: self.retry,
            traces: self.traces.clone(),
        };
        Ok(Client { inner: Arc::new(inner), deadline: self.deadline })
    }
}

pub(crate) fn write_service(channel: Line) -> WriteServiceClient<Line> {
    WriteServiceClient::new(channel).max_decoding_message_size(MESSAGE_BYTES_MAX)
}

pub(crate) fn read_service(channel: Line) -> ReadServiceClient<Line> {
    ReadServiceClient::new(channel).max_decoding_message_size(MESSAGE_BYTES_MAX)
}

pub(crate) fn watch_service(channel: Line) -> WatchServiceClient<Line> {
    WatchServiceClient::new(channel).max_decoding_message_size(MESSAGE_BYTES_MAX)
}

pub(crate) fn retention_service(channel: Line) -> RetentionServiceClient<Line> {
    RetentionServiceClient::new(channel).max_decoding_message_size(MESSAGE_BYTES_MAX)
}

pub(crate) fn history_service(channel: Line) -> HistoryServiceClient<Line> {
    HistoryServiceClient::new(channel).max_decoding_message_size(MESSAGE_BYTES_MAX)
}
