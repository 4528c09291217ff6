//! The servers of one role, and which of them is asked next.
//!
//! # Invariants
//!
//! - A server that failed is put aside for a growing time, and still asked when
//!   there is no other: the pool never refuses to try.
//! - Names are resolved again after a failure, not more often than
//!   [`RESOLVE_INTERVAL`]. Addresses that are still there keep their connection.
//! - Nobody waits for a slow resolver while a server is known that has not failed,
//!   and not for long while any is known.
//! - A server without a connection is tried by one read at a time while there are
//!   others: an address that answers nothing, as that of a pod that is gone, holds
//!   up one and not every one that comes to it in turn. That one goes on elsewhere
//!   after [`CONNECTION_WAIT`].

mod resolution;

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};
use tonic::service::interceptor::InterceptedService;

use self::resolution::Resolution;
use crate::address::Address;
use crate::backoff::Backoff;
use crate::credentials::{Credentials, Line, Token};
use crate::network::{self, Link, Network};
use crate::random::Random;

/// Least time between two resolutions.
const RESOLVE_INTERVAL: Duration = Duration::from_secs(1);

/// Longest wait for names while there is a server that could be asked. Resolvers
/// answer within milliseconds, or after seconds: when a query is lost.
const RESOLVE_WAIT: Duration = Duration::from_millis(250);

/// Likewise where all of them have failed. They may be back under their addresses,
/// and a name that leads to others is asked for again with the next attempt.
const RESOLVE_WAIT_SUSPECT: Duration = Duration::from_secs(1);

/// Longest wait of a read for a connection, while another server has one: first so
/// long, and twice as long after each time in vain, so that servers which are far
/// away are reached too. Others take a round trip, or three with TLS.
const CONNECTION_WAIT: Duration = Duration::from_millis(500);

/// How long the first one who tries a server without a connection counts as trying
/// it: longer than connections are waited for, for those who went away meanwhile.
const TRIAL_MAX: Duration = Duration::from_secs(4);

/// Most servers of one role. A name that resolves to more is cut.
const PEERS_MAX: usize = 1_024;

/// How long a server that failed is put aside.
const ASIDE: Backoff = Backoff { first: Duration::from_millis(200), max: Duration::from_secs(10) };

/// Which server is preferred.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Route<'a> {
    /// The next one in turn.
    Balanced,
    /// This one, as long as it is live.
    Prefer(SocketAddr),
    /// The one that every client with the same list would take for this
    /// history: a writer alone on a history never loses a publication.
    History(&'a str),
}

impl Route<'_> {
    /// Whether what goes there changes nothing.
    pub(crate) fn is_of_reads(self) -> bool {
        match self {
            Self::Balanced | Self::Prefer(_) => true,
            Self::History(_) => false,
        }
    }
}

/// A server to ask.
#[derive(Clone, Debug)]
pub(crate) struct Picked {
    pub(crate) address: SocketAddr,
    pub(crate) channel: Line,
    /// What the channel shows.
    pub(crate) token: Token,
}

/// No name of the role has an address.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{host} has no address: {detail}")]
pub(crate) struct Unresolved {
    host: String,
    detail: String,
}

#[derive(Debug)]
pub(crate) struct Pool {
    addresses: Vec<Address>,
    network: Arc<dyn Network>,
    credentials: Arc<Credentials>,
    random: Arc<Random>,
    state: Mutex<State>,
    /// Names that are being resolved: callers who wait share it, and what they do
    /// not wait for to its end goes on.
    resolving: tokio::sync::Mutex<Option<Resolution>>,
}

#[derive(Debug, Default)]
struct State {
    peers: Vec<Peer>,
    turn: usize,
    resolved_at: Option<Instant>,
    /// Something failed since then.
    is_suspect: bool,
}

#[derive(Debug)]
struct Peer {
    picked: Picked,
    link: Link,
    failures: u32,
    aside_until: Option<Instant>,
    /// Reads that waited for a connection and went elsewhere. Refusals do not
    /// count: there may be many at once, and nobody waits for them.
    waited_in_vain: u32,
    /// Since when somebody tries it, for want of a connection.
    tried_since: Option<Instant>,
}

impl Peer {
    fn is_live(&self, now: Instant) -> bool {
        self.aside_until.is_none_or(|until| until <= now)
    }

    /// Whether one more call may be sent there. Writers are not spread over: who
    /// comes while the connection is being made waits for it for a moment.
    fn has_room(&self, route: Route<'_>, now: Instant) -> bool {
        let Some(since) = self.tried_since.filter(|_| !self.link.is_up()) else { return true };
        let tried = now.saturating_duration_since(since);
        let is_waited_for = matches!(route, Route::History(_)) && tried < CONNECTION_WAIT;
        is_waited_for || TRIAL_MAX <= tried
    }
}

impl Pool {
    pub(crate) fn new(
        addresses: Vec<Address>,
        network: Arc<dyn Network>,
        credentials: Arc<Credentials>,
        random: Arc<Random>,
    ) -> Self {
        let state = Mutex::new(State::default());
        Self {
            addresses,
            network,
            credentials,
            random,
            state,
            resolving: tokio::sync::Mutex::default(),
        }
    }

    /// The server to ask next; `avoid` is taken only where there is no other.
    ///
    /// # Errors
    ///
    /// [`Unresolved`] when no address is known and none can be found.
    pub(crate) async fn pick(
        &self,
        route: Route<'_>,
        avoid: Option<SocketAddr>,
    ) -> Result<Picked, Unresolved> {
        self.resolve_where_due().await?;
        Ok(self.state().pick(route, avoid))
    }

    /// The server answered, whatever it said.
    pub(crate) fn answered(&self, address: SocketAddr) {
        if let Some(peer) = self.state().peer(address) {
            peer.failures = 0;
            peer.aside_until = None;
            peer.waited_in_vain = 0;
            peer.tried_since = None;
        }
    }

    /// The server failed.
    pub(crate) fn failed(&self, address: SocketAddr) {
        let mut state = self.state();
        state.is_suspect = true;
        if let Some(peer) = state.peer(address) {
            peer.failures = peer.failures.saturating_add(1);
            peer.tried_since = None;
            // At least half of the bound: no failing server comes back at once.
            let half = ASIDE.bound(peer.failures) / 2;
            peer.aside_until = Some(Instant::now() + half + self.random.jitter(half));
        }
    }

    /// Returns when a read that went to `address` does better to go elsewhere: it
    /// has no connection for longer than one takes, and another server has one.
    pub(crate) async fn is_better_elsewhere(&self, address: SocketAddr) {
        loop {
            let in_vain = self.state().peer(address).map_or(0, |it| it.waited_in_vain);
            let wait = CONNECTION_WAIT.saturating_mul(1 << in_vain.min(8));
            sleep(wait.min(network::CONNECT_MAX)).await;
            let mut state = self.state();
            if state.is_better_elsewhere(address) {
                if let Some(peer) = state.peer(address) {
                    peer.waited_in_vain = peer.waited_in_vain.saturating_add(1);
                }
                return;
            }
        }
    }

    async fn resolve_where_due(&self) -> Result<(), Unresolved> {
        let has_live = {
            let state = self.state();
            if !state.is_resolution_due() {
                return Ok(());
            }
            state.has_live()
        };
        if has_live {
            // One caller tries for a moment; the others go on with what is known.
            let Ok(mut resolving) = self.resolving.try_lock() else { return Ok(()) };
            return self.resolve_within(&mut resolving, RESOLVE_WAIT).await;
        }
        let mut resolving = self.resolving.lock().await;
        let (is_due, knows_none) = {
            let state = self.state();
            (state.is_resolution_due(), state.peers.is_empty())
        };
        if !is_due {
            return Ok(());
        }
        if knows_none {
            self.resolve(&mut resolving).await
        } else {
            self.resolve_within(&mut resolving, RESOLVE_WAIT_SUSPECT).await
        }
    }

    /// For a pool that knows servers: goes on with those after `wait`. What was
    /// asked for is not lost by that.
    async fn resolve_within(
        &self,
        resolving: &mut Option<Resolution>,
        wait: Duration,
    ) -> Result<(), Unresolved> {
        if let Ok(resolved) = timeout(wait, self.resolve(resolving)).await {
            return resolved;
        }
        self.state().resolved_at = Some(Instant::now());
        Ok(())
    }

    async fn resolve(&self, resolving: &mut Option<Resolution>) -> Result<(), Unresolved> {
        let resolution =
            resolving.get_or_insert_with(|| Resolution::begin(&self.addresses, &self.network));
        while let Some((address, found)) = resolution.next().await {
            self.add(&address, &found);
        }
        let (found, unresolved) =
            resolving.take().map(|it| (it.found, it.unresolved)).unwrap_or_default();
        let mut state = self.state();
        state.resolved_at = Some(Instant::now());
        // A resolver that is down takes no server away.
        if unresolved.is_none() {
            state.is_suspect = false;
            state.peers.retain(|peer| found.contains(&peer.picked.address));
        }
        if state.peers.is_empty() {
            return Err(unresolved.unwrap_or_else(|| Unresolved {
                host: self.addresses.first().map(|it| it.host.clone()).unwrap_or_default(),
                detail: "the name has none".to_owned(),
            }));
        }
        Ok(())
    }

    fn add(&self, address: &Address, found: &[SocketAddr]) {
        let mut state = self.state();
        for &socket in found {
            if state.peers.len() < PEERS_MAX && state.peer(socket).is_none() {
                let network = Arc::clone(&self.network);
                let tls = self.credentials.tls(address);
                let (uri, link) = (address.uri.clone(), Link::default());
                let channel = network::channel(network, socket, uri, tls, link.clone());
                let token = self.credentials.token(address, socket);
                let channel = InterceptedService::new(channel, token.clone());
                let picked = Picked { address: socket, channel, token };
                state.peers.push(Peer {
                    picked,
                    link,
                    failures: 0,
                    aside_until: None,
                    waited_in_vain: 0,
                    tried_since: None,
                });
            }
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // State is whole between its statements, so a panic elsewhere left it so.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn is_resolution_due(&self) -> bool {
        match self.resolved_at {
            None => true,
            Some(_) if self.peers.is_empty() => true,
            Some(at) => self.is_suspect && at.elapsed() >= RESOLVE_INTERVAL,
        }
    }

    fn has_live(&self) -> bool {
        let now = Instant::now();
        self.peers.iter().any(|it| it.is_live(now))
    }

    fn is_better_elsewhere(&self, address: SocketAddr) -> bool {
        let now = Instant::now();
        let (mut here, others) =
            self.peers.iter().partition::<Vec<_>, _>(|it| it.picked.address == address);
        here.retain(|it| it.link.is_up());
        here.is_empty() && others.iter().any(|it| it.is_live(now) && it.link.is_up())
    }

    fn peer(&mut self, address: SocketAddr) -> Option<&mut Peer> {
        self.peers.iter_mut().find(|it| it.picked.address == address)
    }

    /// # Panics
    ///
    /// Without a peer; callers have just made sure that there is one.
    fn pick(&mut self, route: Route<'_>, avoid: Option<SocketAddr>) -> Picked {
        let now = Instant::now();
        let mut choice: Vec<&Peer> = self.peers.iter().filter(|it| it.is_live(now)).collect();
        if choice.iter().any(|it| it.has_room(route, now)) {
            choice.retain(|it| it.has_room(route, now));
        }
        if choice.is_empty() {
            // Whoever comes back first.
            choice.extend(self.peers.iter().min_by_key(|it| it.aside_until));
        }
        if choice.iter().any(|it| Some(it.picked.address) != avoid) {
            choice.retain(|it| Some(it.picked.address) != avoid);
        }
        let preferred = match route {
            Route::Balanced => None,
            Route::Prefer(address) => choice.iter().find(|it| it.picked.address == address),
            Route::History(name) => choice.iter().max_by_key(|it| rank(name, it.picked.address)),
        };
        let picked = match preferred {
            Some(peer) => peer.picked.clone(),
            None => choice[self.turn % choice.len()].picked.clone(),
        };
        self.turn = self.turn.wrapping_add(1);
        if let Some(peer) = self.peer(picked.address)
            && peer.has_room(Route::Balanced, now)
            && !peer.link.is_up()
        {
            peer.tried_since = Some(now);
        }
        picked
    }
}

/// Rendezvous hashing: losing one server moves only its own histories.
fn rank(history: &str, address: SocketAddr) -> [u8; 32] {
    let mut hasher = blake3::Hasher::new();
    hasher.update(history.as_bytes());
    hasher.update(b"\n");
    hasher.update(address.to_string().as_bytes());
    *hasher.finalize().as_bytes()
}
