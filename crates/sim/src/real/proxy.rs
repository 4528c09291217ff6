//! A way between two processes that can be cut.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};

/// What passes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    Open,
    /// Connections end, and new ones are ended at once.
    Closed,
    /// Nothing passes, and nobody is told.
    Silent,
}

/// Takes connections on a port of its own and passes them on. Dropping it ends
/// them.
pub(super) struct Proxy {
    address: SocketAddr,
    shared: Arc<Shared>,
    accepting: JoinHandle<()>,
}

struct Shared {
    target: Mutex<Option<SocketAddr>>,
    way: watch::Sender<Way>,
}

impl Proxy {
    pub(super) async fn start(target: Option<SocketAddr>) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let way = watch::Sender::new(Way::Open);
        let shared = Arc::new(Shared { target: Mutex::new(target), way });
        let accepting = tokio::spawn(accept(listener, Arc::clone(&shared)));
        Ok(Self { address, shared, accepting })
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Where new connections go; the old ones stay where they are.
    pub(super) fn set_target(&self, target: Option<SocketAddr>) {
        *self.shared.target.lock().unwrap_or_else(PoisonError::into_inner) = target;
    }

    pub(super) fn set_way(&self, way: Way) {
        self.shared.way.send_replace(way);
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    let mut connections = JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        while connections.try_join_next().is_some() {}
        connections.spawn(connect(stream, Arc::clone(&shared)));
    }
}

async fn connect(near: TcpStream, shared: Arc<Shared>) {
    let target = *shared.target.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(target) = target else { return };
    if *shared.way.borrow() == Way::Closed {
        return;
    }
    let Ok(far) = TcpStream::connect(target).await else { return };
    if near.set_nodelay(true).is_err() || far.set_nodelay(true).is_err() {
        return;
    }
    let ((near_read, near_write), (far_read, far_write)) = (near.into_split(), far.into_split());
    let mut closed = shared.way.subscribe();
    // The end of one direction is the end of both: nobody here half-closes.
    tokio::select! {
        () = pump(near_read, far_write, shared.way.subscribe()) => (),
        () = pump(far_read, near_write, shared.way.subscribe()) => (),
        _ = closed.wait_for(|it| *it == Way::Closed) => (),
    }
}

async fn pump(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, mut way: watch::Receiver<Way>) {
    let mut buffer = vec![0; 16 << 10];
    while let Ok(n) = from.read(&mut buffer).await {
        let is_open = way.wait_for(|it| *it != Way::Silent).await.is_ok();
        if n == 0 || !is_open || to.write_all(&buffer[..n]).await.is_err() {
            return;
        }
    }
}
