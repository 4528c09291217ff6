//! One connection, from its handshake to its end.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use futures::future::{Either, pending};
use hyper::server::conn::http2;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tonic::transport::server::Connected as _;

use super::accept::{Accept, Io};
use super::calls::Calls;
use super::connections::Place;
use super::{GrpcService, Leaving};
use crate::limit::OnTheWay;

/// How often an idle connection is asked for a sign of life, and how long it
/// may take to give one. A caller whose host died is noticed in their sum, and
/// so is one that sends a frame byte by byte: it cannot answer in between.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(20);
const KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(10);

/// Unacknowledged bytes of one connection and of one stream: a stream can fill
/// 1 Gbit/s at 16 ms, and one slow stream cannot hold all of a connection.
const CONNECTION_WINDOW_BYTES: u32 = 8 << 20;
const STREAM_WINDOW_BYTES: u32 = 2 << 20;

/// Calls of one connection at a time; more wait.
const STREAMS_MAX: u32 = 4_096;

/// Bytes of one request's headers, all together: tokens and trace contexts fit
/// many times over.
const HEADERS_BYTES_MAX: u32 = 16 << 10;

/// A connection that is to go, has no call, and over which nothing has moved for
/// so long is closed. Whoever is there answers a GOAWAY within a round trip, and
/// is gone by then; whoever is not would hold the drain to its end.
const QUIET_MAX: Duration = Duration::from_secs(2);

/// How often a connection is looked at for answers that its caller does not
/// take, and how many bytes of them it has to take meanwhile: 2 KiB a second.
/// Somebody with a slow network takes more; who takes less holds what others are
/// refused for.
const TAKING_INTERVAL: Duration = Duration::from_secs(30);
const TAKING_BYTES_MIN: usize = 64 << 10;

/// What every HTTP/2 connection begins with: the preface and the header of the
/// first settings (RFC 9113, 3.4). Who has sent these is no port scanner.
const FIRST_BYTES: usize = 24 + 9;

/// What all connections of a server have in common.
pub(super) struct Terms {
    pub(super) service: GrpcService,
    pub(super) acceptor: Arc<dyn Accept>,
    pub(super) handshake_timeout: Duration,
    pub(super) age_grace: Duration,
    pub(super) tasks: TaskTracker,
}

/// Serves one connection until it ends, or is ended by its tokens or its age.
pub(super) async fn run(terms: Arc<Terms>, socket: TcpStream, age: Option<Duration>, place: Place) {
    let connection = Arc::clone(&place.connection);
    let cut = connection.cut.clone();
    if cut.run_until_cancelled(serve(&terms, socket, age, &place)).await.is_none() {
        tracing::debug!("a connection was cut");
    }
}

async fn serve(terms: &Terms, socket: TcpStream, age: Option<Duration>, place: &Place) {
    let about = socket.connect_info();
    let accepting = timeout(terms.handshake_timeout, terms.acceptor.accept(socket));
    let accepted = match place.connection.leaving.run_until_cancelled(accepting).await {
        Some(Ok(Ok(accepted))) => accepted,
        Some(Ok(Err(error))) => return tracing::debug!(%error, "a handshake failed"),
        Some(Err(_)) => return tracing::debug!("a handshake took too long"),
        None => return tracing::debug!("a handshake came too late"),
    };
    let mut extensions = accepted.extensions;
    extensions.insert(about);
    extensions.insert(Leaving::new(place.connection.leaving.clone()));
    let on_the_way = OnTheWay::default();
    extensions.insert(on_the_way.clone());
    let calls = Calls {
        service: terms.service.clone(),
        connection: Arc::clone(&place.connection),
        extensions,
    };
    let moved = Arc::new(Moved::default());
    let io = Counted { io: accepted.io, moved: Arc::clone(&moved) };
    let executor = Owned { cut: place.connection.cut.clone(), tasks: terms.tasks.clone() };
    let mut http = std::pin::pin!(protocol(executor).serve_connection(TokioIo::new(io), calls));

    let first_bytes_by = Instant::now() + terms.handshake_timeout;
    let mut stage = Stage::New { first_bytes_by };
    let old_at = age.map(|it| Instant::now() + it);
    let mut taking = Taking::from_now(&moved, &on_the_way);
    loop {
        let is_leaving = matches!(stage, Stage::Leaving { .. });
        tokio::select! {
            biased;
            done = http.as_mut() => {
                if let Err(error) = done {
                    tracing::debug!(%error, "a connection failed");
                }
                return;
            }
            () = place.connection.leaving.cancelled(), if !is_leaving => {
                http.as_mut().graceful_shutdown();
                let cut_at = old_at.map(|it| it + terms.age_grace);
                stage = Stage::Leaving { cut_at, quiet: Quiet::from_now(&moved) };
            }
            () = sleep_until(taking.look_at) => {
                if taking.is_stuck(&moved, &on_the_way) {
                    return tracing::debug!("a caller did not take its answers");
                }
                taking = Taking::from_now(&moved, &on_the_way);
            }
            () = until(old_at), if !is_leaving => place.connection.leaving.cancel(),
            () = until(stage.ends_at()) => match stage {
                Stage::New { .. } if FIRST_BYTES <= moved.received() => stage = Stage::Open,
                Stage::New { .. } | Stage::Open => {
                    return tracing::debug!("a connection sent nothing");
                }
                Stage::Leaving { cut_at, .. } if cut_at.is_some_and(|it| it <= Instant::now()) => {
                    return tracing::debug!("calls outlived their connection's age");
                }
                Stage::Leaving { cut_at, quiet } => {
                    // An answer that is still being sent is no call any more.
                    let has_calls =
                        place.connection.has_calls() || on_the_way.taken().is_some();
                    if !has_calls && quiet.is_still(&moved) {
                        return tracing::debug!("a caller did not answer that it was to go");
                    }
                    stage = Stage::Leaving { cut_at, quiet: Quiet::from_now(&moved) };
                }
            },
        }
    }
}

/// How far a connection is.
#[derive(Clone, Copy)]
enum Stage {
    /// Its first bytes are waited for.
    New { first_bytes_by: Instant },
    /// It is used.
    Open,
    /// No more calls are taken. `cut_at` is the end of its age; a drain has a
    /// limit of its own.
    Leaving { cut_at: Option<Instant>, quiet: Quiet },
}

/// What had moved when it was last looked at.
#[derive(Clone, Copy)]
struct Quiet {
    look_at: Instant,
    moved: usize,
}

impl Quiet {
    fn from_now(moved: &Moved) -> Self {
        Self { look_at: Instant::now() + QUIET_MAX, moved: moved.both() }
    }

    fn is_still(&self, moved: &Moved) -> bool {
        self.moved == moved.both()
    }
}

impl Stage {
    fn ends_at(self) -> Option<Instant> {
        match self {
            Self::New { first_bytes_by } => Some(first_bytes_by),
            Self::Open => None,
            Self::Leaving { cut_at: Some(cut_at), quiet } => Some(cut_at.min(quiet.look_at)),
            Self::Leaving { cut_at: None, quiet } => Some(quiet.look_at),
        }
    }
}

/// How the answers of a connection stood when they were last looked at.
struct Taking {
    look_at: Instant,
    sent: usize,
    /// Frames that were taken by then; `None` where none was on its way.
    taken: Option<u64>,
}

impl Taking {
    fn from_now(moved: &Moved, on_the_way: &OnTheWay) -> Self {
        let look_at = Instant::now() + TAKING_INTERVAL;
        Self { look_at, sent: moved.sent(), taken: on_the_way.taken() }
    }

    /// Whether no answer was taken since, of those that there were, and hardly
    /// anything of them.
    fn is_stuck(&self, moved: &Moved, on_the_way: &OnTheWay) -> bool {
        let is_where_it_was = self.taken.is_some() && self.taken == on_the_way.taken();
        is_where_it_was && moved.sent().wrapping_sub(self.sent) < TAKING_BYTES_MIN
    }
}

async fn until(moment: Option<Instant>) {
    match moment {
        Some(moment) => Either::Left(sleep_until(moment)),
        None => Either::Right(pending()),
    }
    .await;
}

/// Runs the calls of a connection: they end with it when it is cut, and the
/// server waits for them.
#[derive(Clone)]
struct Owned {
    cut: CancellationToken,
    tasks: TaskTracker,
}

impl<F: Future<Output = ()> + Send + 'static> hyper::rt::Executor<F> for Owned {
    fn execute(&self, call: F) {
        let cut = self.cut.clone();
        self.tasks.spawn(async move { cut.run_until_cancelled_owned(call).await });
    }
}

fn protocol(executor: Owned) -> http2::Builder<Owned> {
    let mut builder = http2::Builder::new(executor);
    builder
        .timer(TokioTimer::new())
        .keep_alive_interval(KEEPALIVE_INTERVAL)
        .keep_alive_timeout(KEEPALIVE_TIMEOUT)
        .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
        .initial_stream_window_size(STREAM_WINDOW_BYTES)
        .max_concurrent_streams(STREAMS_MAX)
        .max_header_list_size(HEADERS_BYTES_MAX);
    builder
}

/// Bytes of a connection, as far as they are asked for.
#[derive(Default)]
struct Moved {
    received: AtomicUsize,
    sent: AtomicUsize,
}

impl Moved {
    fn received(&self) -> usize {
        self.received.load(Ordering::Relaxed)
    }

    fn sent(&self) -> usize {
        self.sent.load(Ordering::Relaxed)
    }

    /// Another number than before, if anything moved.
    fn both(&self) -> usize {
        self.received().wrapping_add(self.sent())
    }
}

/// Counts what is read and written.
struct Counted {
    io: Box<dyn Io>,
    moved: Arc<Moved>,
}

impl Counted {
    fn count_sent(&self, sent: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        if let Poll::Ready(Ok(sent)) = &sent {
            self.moved.sent.fetch_add(*sent, Ordering::Relaxed);
        }
        sent
    }
}

impl AsyncRead for Counted {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.io).poll_read(cx, buffer))?;
        let read = buffer.filled().len() - before;
        self.moved.received.fetch_add(read, Ordering::Relaxed);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Counted {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let sent = Pin::new(&mut self.io).poll_write(cx, bytes);
        self.count_sent(sent)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
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
        let sent = Pin::new(&mut self.io).poll_write_vectored(cx, slices);
        self.count_sent(sent)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }
}
