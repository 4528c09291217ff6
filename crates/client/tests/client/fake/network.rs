//! Connections in memory, which can be cut.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use futures::future::BoxFuture;
use headwater_client::{Connection, Network};
use tokio::io::DuplexStream;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

const PIPE_BYTES: usize = 64 << 10;

#[derive(Clone, Debug, Default)]
pub(crate) struct FakeNetwork(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    names: BTreeMap<String, Vec<SocketAddr>>,
    listening: BTreeMap<SocketAddr, mpsc::Sender<DuplexStream>>,
    relays: Vec<(SocketAddr, JoinHandle<()>)>,
    resolutions: usize,
    /// Queries get no answer.
    is_silent: bool,
    /// So many queries get none.
    queries_lost: usize,
    dials: Vec<SocketAddr>,
    /// Addresses at which nobody answers, not even with a refusal.
    swallowing: BTreeSet<SocketAddr>,
}

impl FakeNetwork {
    /// Makes `host` stand for these addresses from now on.
    pub(crate) fn name(&self, host: &str, addresses: impl IntoIterator<Item = SocketAddr>) {
        self.0.lock().unwrap().names.insert(host.to_owned(), addresses.into_iter().collect());
    }

    pub(crate) fn listen(&self, address: SocketAddr) -> mpsc::Receiver<DuplexStream> {
        let (sender, receiver) = mpsc::channel(64);
        self.0.lock().unwrap().listening.insert(address, sender);
        receiver
    }

    /// Ends every connection to `address`, and refuses new ones.
    pub(crate) fn take_down(&self, address: SocketAddr) {
        self.0.lock().unwrap().listening.remove(&address);
        self.cut(address);
    }

    /// Ends every connection to `address`, and answers no new ones: a host that is
    /// gone.
    pub(crate) fn swallow(&self, address: SocketAddr) {
        self.0.lock().unwrap().swallowing.insert(address);
        self.cut(address);
    }

    /// Ends every connection to `address`.
    pub(crate) fn cut(&self, address: SocketAddr) {
        for (_, relay) in self.0.lock().unwrap().relays.iter().filter(|it| it.0 == address) {
            relay.abort();
        }
    }

    /// How often a connection to `address` was tried.
    pub(crate) fn dials(&self, address: SocketAddr) -> usize {
        self.0.lock().unwrap().dials.iter().filter(|&&it| it == address).count()
    }

    /// The resolver answers no more.
    pub(crate) fn silence_the_resolver(&self) {
        self.0.lock().unwrap().is_silent = true;
    }

    /// The next `n` queries get no answer.
    pub(crate) fn lose_queries(&self, n: usize) {
        self.0.lock().unwrap().queries_lost = n;
    }

    pub(crate) fn resolutions(&self) -> usize {
        self.0.lock().unwrap().resolutions
    }
}

impl Network for FakeNetwork {
    fn resolve<'a>(&'a self, host: &'a str, _: u16) -> BoxFuture<'a, io::Result<Vec<SocketAddr>>> {
        let mut state = self.0.lock().unwrap();
        state.resolutions += 1;
        let found = state.names.get(host).cloned().ok_or(io::ErrorKind::NotFound.into());
        if state.is_silent || 0 < state.queries_lost {
            state.queries_lost = state.queries_lost.saturating_sub(1);
            return Box::pin(std::future::pending());
        }
        Box::pin(async move { found })
    }

    fn connect(&self, address: SocketAddr) -> BoxFuture<'static, io::Result<Box<dyn Connection>>> {
        let network = self.clone();
        Box::pin(async move {
            network.0.lock().unwrap().dials.push(address);
            if network.0.lock().unwrap().swallowing.contains(&address) {
                return std::future::pending().await;
            }
            let listening = network.0.lock().unwrap().listening.get(&address).cloned();
            let listening = listening.ok_or(io::ErrorKind::ConnectionRefused)?;
            let (near, mut near_end) = tokio::io::duplex(PIPE_BYTES);
            let (mut far_end, far) = tokio::io::duplex(PIPE_BYTES);
            listening.send(far).await.map_err(|_| io::ErrorKind::ConnectionRefused)?;
            let relay = tokio::spawn(async move {
                // Either end may close it, at any time.
                drop(tokio::io::copy_bidirectional(&mut near_end, &mut far_end).await);
            });
            network.0.lock().unwrap().relays.push((address, relay));
            Ok(Box::new(near) as Box<dyn Connection>)
        })
    }
}
