//! All connections of a server, with a limit.
//!
//! # Invariants
//!
//! - There are never more than the limit. Where a new one finds it reached,
//!   connections without a call make room, those that have been so for longest
//!   first; a connection with a call never does. Calls of health do not count.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// A connection has this long for its first call before it may have to make
/// room, so that a flood of new ones does not drive out each other's callers.
const IDLE_MIN: Duration = Duration::from_millis(500);
/// Room is made for this share of the limit at a time, one in so many: looking
/// for it takes time by the number of connections.
const ROOM_PART: usize = 64;

/// What the server knows of one connection.
#[derive(Debug)]
pub(super) struct Connection {
    calls: AtomicUsize,
    /// When a call that counts last began or ended, in milliseconds since `began`.
    used_ms: AtomicU64,
    began: Instant,
    /// Cancelled when no more calls are taken.
    pub(super) leaving: CancellationToken,
    /// Cancelled when it is to end whatever it does.
    pub(super) cut: CancellationToken,
}

impl Connection {
    pub(super) fn begin_call(&self) {
        self.calls.fetch_add(1, Ordering::Relaxed);
        self.touch();
    }

    pub(super) fn end_call(&self) {
        self.touch();
        self.calls.fetch_sub(1, Ordering::Relaxed);
    }

    pub(super) fn has_calls(&self) -> bool {
        0 < self.calls.load(Ordering::Relaxed)
    }

    fn touch(&self) {
        self.used_ms.store(as_ms(self.began.elapsed()), Ordering::Relaxed);
    }

    fn idle_since(&self) -> Option<Instant> {
        let used = Duration::from_millis(self.used_ms.load(Ordering::Relaxed));
        (self.calls.load(Ordering::Relaxed) == 0).then(|| self.began + used)
    }
}

fn as_ms(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// The connections of a server.
#[derive(Debug)]
pub(super) struct Connections {
    max: usize,
    open: Mutex<Open>,
}

#[derive(Debug, Default)]
struct Open {
    by_number: BTreeMap<u64, Arc<Connection>>,
    next: u64,
    /// When room was last looked for in vain.
    looked: Option<Instant>,
}

/// A place among the connections, until it is dropped.
pub(super) struct Place {
    number: u64,
    connections: Arc<Connections>,
    pub(super) connection: Arc<Connection>,
}

impl Connections {
    pub(super) fn new(max: usize) -> Arc<Self> {
        Arc::new(Self { max: max.max(1), open: Mutex::default() })
    }

    /// A place for a new connection, whose tokens are children of these. `None`
    /// where all are taken by connections that have something to do.
    pub(super) fn place(
        self: &Arc<Self>,
        leaving: &CancellationToken,
        cut: &CancellationToken,
    ) -> Option<Place> {
        let mut open = self.lock();
        if self.max <= open.by_number.len() {
            open.make_room((self.max / ROOM_PART).max(1));
        }
        if self.max <= open.by_number.len() {
            return None;
        }
        let connection = Arc::new(Connection {
            calls: AtomicUsize::new(0),
            used_ms: AtomicU64::new(0),
            began: Instant::now(),
            leaving: leaving.child_token(),
            cut: cut.child_token(),
        });
        let number = open.next;
        open.next += 1;
        open.by_number.insert(number, Arc::clone(&connection));
        Some(Place { number, connections: Arc::clone(self), connection })
    }

    /// Ends a few that have nothing to do, where the system has no more room.
    pub(super) fn make_room(&self) {
        self.lock().make_room((self.max / ROOM_PART).max(1));
    }

    pub(super) fn len(&self) -> usize {
        self.lock().by_number.len()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Open {
    fn make_room(&mut self, wanted: usize) {
        let now = Instant::now();
        // A flood asks more often than the answer changes.
        if self.looked.is_some_and(|it| now < it + IDLE_MIN / 10) {
            return;
        }
        let idle =
            self.by_number.iter().filter_map(|(number, it)| Some((it.idle_since()?, *number)));
        let mut idle: Vec<_> = idle.filter(|(since, _)| *since + IDLE_MIN <= now).collect();
        idle.sort_unstable();
        if idle.is_empty() {
            self.looked = Some(now);
        }
        for (_, number) in idle.into_iter().take(wanted) {
            // It counts no more from here on; its task ends as soon as it runs.
            if let Some(connection) = self.by_number.remove(&number) {
                connection.cut.cancel();
            }
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.connections.lock().by_number.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tokens() -> (CancellationToken, CancellationToken) {
        (CancellationToken::new(), CancellationToken::new())
    }

    #[tokio::test(start_paused = true)]
    async fn those_that_were_idle_for_longest_make_room() {
        let connections = Connections::new(2);
        let (leaving, cut) = tokens();
        let first = connections.place(&leaving, &cut).unwrap();
        let second = connections.place(&leaving, &cut).unwrap();
        tokio::time::advance(IDLE_MIN).await;
        first.connection.begin_call();
        first.connection.end_call();
        tokio::time::advance(IDLE_MIN).await;

        let third = connections.place(&leaving, &cut);

        assert!(third.is_some() && second.connection.cut.is_cancelled());
        assert!(!first.connection.cut.is_cancelled());
        assert_eq!(connections.len(), 2);
        drop(second);
        assert_eq!(connections.len(), 2, "its place was taken before");
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_with_a_call_stays_and_a_new_one_is_refused() {
        let connections = Connections::new(1);
        let (leaving, cut) = tokens();
        let busy = connections.place(&leaving, &cut).unwrap();
        busy.connection.begin_call();
        tokio::time::advance(IDLE_MIN * 10).await;

        assert!(connections.place(&leaving, &cut).is_none());
        assert!(!busy.connection.cut.is_cancelled());

        busy.connection.end_call();
        tokio::time::advance(IDLE_MIN).await;
        assert!(connections.place(&leaving, &cut).is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn a_new_connection_gets_time_for_its_first_call() {
        let connections = Connections::new(1);
        let (leaving, cut) = tokens();
        let _new = connections.place(&leaving, &cut).unwrap();

        assert!(connections.place(&leaving, &cut).is_none());
    }
}
