//! From a socket to a connection that speaks HTTP: TLS, or nothing.

use std::io;

use futures::future::{self, BoxFuture, FutureExt as _};
use http::Extensions;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;

/// A connection that bytes can be read from and written to.
pub trait Io: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Io for T {}

/// A connection that is ready for HTTP.
pub struct Accepted {
    /// The bytes, deciphered.
    pub io: Box<dyn Io>,
    /// What is known of the caller: every request of the connection gets a copy
    /// of it.
    pub extensions: Extensions,
}

/// Makes connections of sockets.
pub trait Accept: Send + Sync {
    /// Does the handshake. The server sets it a time limit and ends it by
    /// dropping the future, so that it never waits on its own.
    fn accept(&self, socket: TcpStream) -> BoxFuture<'static, io::Result<Accepted>>;
}

/// No handshake: what comes is HTTP.
#[derive(Clone, Copy, Debug, Default)]
pub struct Plain;

impl Accept for Plain {
    fn accept(&self, socket: TcpStream) -> BoxFuture<'static, io::Result<Accepted>> {
        let accepted = Accepted { io: Box::new(socket), extensions: Extensions::new() };
        future::ready(Ok(accepted)).boxed()
    }
}

impl std::fmt::Debug for Accepted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Accepted").finish_non_exhaustive()
    }
}
