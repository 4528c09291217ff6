//! A connection that can be cut from outside.
//!
//! tonic gives every connection a task of its own and no way to end one: a
//! graceful shutdown asks, and a stream that stays open never agrees.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};
use tonic::transport::server::Connected;

/// Fails every read and write once its token is cancelled.
pub(crate) struct CutOnCancel<S> {
    io: S,
    cancelled: Pin<Box<WaitForCancellationFutureOwned>>,
    is_cut: bool,
}

impl<S> CutOnCancel<S> {
    pub(crate) fn new(io: S, cut: CancellationToken) -> Self {
        Self { io, cancelled: Box::pin(cut.cancelled_owned()), is_cut: false }
    }

    /// Registers the caller to be woken by the cut.
    fn check(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        self.is_cut = self.is_cut || self.cancelled.as_mut().poll(cx).is_ready();
        if self.is_cut { Err(io::ErrorKind::ConnectionAborted.into()) } else { Ok(()) }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for CutOnCancel<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.check(cx)?;
        Pin::new(&mut self.io).poll_read(cx, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for CutOnCancel<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.check(cx)?;
        Pin::new(&mut self.io).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.check(cx)?;
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.check(cx)?;
        Pin::new(&mut self.io).poll_write_vectored(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }
}

impl<S: Connected> Connected for CutOnCancel<S> {
    type ConnectInfo = S::ConnectInfo;

    fn connect_info(&self) -> Self::ConnectInfo {
        self.io.connect_info()
    }
}
