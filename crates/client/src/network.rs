//! Names to addresses, and addresses to connections.
//!
//! A seam: the rest of the client reaches the outside through [`Network`] only,
//! so that tests and simulators can hand it connections of their own.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use futures::future::BoxFuture;
use headwater_tls::Connector;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tonic::codegen::Service;
use tonic::transport::{Channel, Endpoint, Uri};

/// Longest wait for a connection. One that is not made in this time is not made
/// by waiting, and the next address may answer.
pub(crate) const CONNECT_MAX: Duration = Duration::from_secs(3);

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

/// Whether a channel has a connection. One that has none makes one with the next
/// call, and nobody knows for how long.
#[derive(Clone, Debug, Default)]
pub(crate) struct Link(Arc<AtomicUsize>);

impl Link {
    pub(crate) fn is_up(&self) -> bool {
        0 < self.0.load(Ordering::Relaxed)
    }
}

/// A connection, which its link counts until it is dropped.
struct Counted {
    io: Pin<Box<dyn Connection>>,
    link: Link,
}

impl Counted {
    fn new(io: Box<dyn Connection>, link: Link) -> Self {
        link.0.fetch_add(1, Ordering::Relaxed);
        Self { io: Pin::from(io), link }
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.link.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl AsyncRead for Counted {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.io.as_mut().poll_read(cx, buffer)
    }
}

impl AsyncWrite for Counted {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.io.as_mut().poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.io.as_mut().poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.io.as_mut().poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.io.as_mut().poll_write_vectored(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }
}

/// A channel to one address, which connects when it is first used and again
/// when the connection was lost. `link` says whether it has a connection.
pub(crate) fn channel(
    network: Arc<dyn Network>,
    address: SocketAddr,
    authority: Uri,
    tls: Option<(Connector, String)>,
    link: Link,
) -> Channel {
    Endpoint::from(authority)
        .http2_keep_alive_interval(KEEPALIVE_INTERVAL)
        .keep_alive_timeout(KEEPALIVE_TIMEOUT)
        .keep_alive_while_idle(true)
        .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
        .initial_stream_window_size(STREAM_WINDOW_BYTES)
        .connect_with_connector_lazy(Dialer { network, address, tls, link })
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
    link: Link,
}

impl Service<Uri> for Dialer {
    type Response = TokioIo<Counted>;
    type Error = io::Error;
    type Future = BoxFuture<'static, Result<Self::Response, Self::Error>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Uri) -> Self::Future {
        let connecting = self.network.connect(self.address);
        let (tls, link) = (self.tls.clone(), self.link.clone());
        Box::pin(async move {
            let connecting = async {
                let connection = connecting.await?;
                let Some((connector, host)) = tls else { return Ok(connection) };
                let agreed = connector.connect(&host, connection).await;
                let agreed = agreed.map_err(io::Error::other)?;
                Ok::<Box<dyn Connection>, io::Error>(Box::new(agreed))
            };
            let connection = tokio::time::timeout(CONNECT_MAX, connecting).await??;
            Ok(TokioIo::new(Counted::new(connection, link)))
        })
    }
}
