//! Names to addresses, and addresses to connections.
//!
//! A seam: the rest of the client reaches the outside through [`Network`] only,
//! so that tests and simulators can hand it connections of their own.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures::future::BoxFuture;
use headwater_tls::Connector;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tonic::codegen::Service;
use tonic::transport::{Channel, Endpoint, Uri};

/// Longest wait for a connection. One that is not made in this time is not made
/// by waiting, and the next address may answer.
const CONNECT_MAX: Duration = Duration::from_secs(3);

/// How often a connection is asked for a sign of life, and how long it may take
/// to give one. A server whose host died is noticed in their sum.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(10);
const KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(5);

/// Unacknowledged bytes of one connection and of one stream.
const CONNECTION_WINDOW_BYTES: u32 = 8 << 20;
const STREAM_WINDOW_BYTES: u32 = 2 << 20;

/// A connection to a server.
pub trait Connection: AsyncRead + AsyncWrite + Send + Unpin + 'static {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin + 'static> Connection for T {}

/// How the client reaches servers.
pub trait Network: fmt::Debug + Send + Sync + 'static {
    /// All addresses of a host. Asked again after failures.
    fn resolve<'a>(
        &'a self,
        host: &'a str,
        port: u16,
    ) -> BoxFuture<'a, io::Result<Vec<SocketAddr>>>;

    /// Connects. An error means that nothing was sent.
    fn connect(&self, address: SocketAddr) -> BoxFuture<'static, io::Result<Box<dyn Connection>>>;
}

/// The operating system's resolver and TCP.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemNetwork;

impl Network for SystemNetwork {
    fn resolve<'a>(
        &'a self,
        host: &'a str,
        port: u16,
    ) -> BoxFuture<'a, io::Result<Vec<SocketAddr>>> {
        Box::pin(async move { Ok(tokio::net::lookup_host((host, port)).await?.collect()) })
    }

    fn connect(&self, address: SocketAddr) -> BoxFuture<'static, io::Result<Box<dyn Connection>>> {
        Box::pin(async move {
            let stream = TcpStream::connect(address).await?;
            stream.set_nodelay(true)?;
            Ok(Box::new(stream) as Box<dyn Connection>)
        })
    }
}

/// A channel to one address, which connects when it is first used and again
/// when the connection was lost.
pub(crate) fn channel(
    network: Arc<dyn Network>,
    address: SocketAddr,
    authority: Uri,
    tls: Option<(Connector, String)>,
) -> Channel {
    Endpoint::from(authority)
        .http2_keep_alive_interval(KEEPALIVE_INTERVAL)
        .keep_alive_timeout(KEEPALIVE_TIMEOUT)
        .keep_alive_while_idle(true)
        .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
        .initial_stream_window_size(STREAM_WINDOW_BYTES)
        .connect_with_connector_lazy(Dialer { network, address, tls })
}

/// Dials one address, whatever URI it is asked for. The time-out is in here and
/// not in tonic's `Endpoint`: tonic 0.14 puts its own around the connector,
/// where it does not become a `ConnectError`, and so would not prove that
/// nothing was sent.
struct Dialer {
    network: Arc<dyn Network>,
    address: SocketAddr,
    /// With the name that the server's certificate has to be for.
    tls: Option<(Connector, String)>,
}

impl Service<Uri> for Dialer {
    type Response = TokioIo<Pin<Box<dyn Connection>>>;
    type Error = io::Error;
    type Future = BoxFuture<'static, Result<Self::Response, Self::Error>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Uri) -> Self::Future {
        let connecting = self.network.connect(self.address);
        let tls = self.tls.clone();
        Box::pin(async move {
            let connecting = async {
                let connection = connecting.await?;
                let Some((connector, host)) = tls else { return Ok(connection) };
                let agreed = connector.connect(&host, connection).await;
                let agreed = agreed.map_err(io::Error::other)?;
                Ok::<Box<dyn Connection>, io::Error>(Box::new(agreed))
            };
            let connection = tokio::time::timeout(CONNECT_MAX, connecting).await??;
            Ok(TokioIo::new(Pin::from(connection)))
        })
    }
}
