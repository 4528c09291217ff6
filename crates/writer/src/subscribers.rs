//! Who is told of new heads, for those who look.
//!
//! Streams enter here when they begin and leave with their [`Entry`]. A notice
//! on its way only adds to a counter of its own stream.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use headwater_core::id::HistoryName;
use headwater_daemon::overview::NoticeSubscriber;
use tokio::time::Instant;

use crate::figures::ms;

/// Streams in one answer.
const LISTED_MAX: usize = 100;
/// Histories of one stream that are named.
const NAMED_MAX: usize = 5;

/// All streams that are open. Clones share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Subscribers(Arc<Mutex<Open>>);

#[derive(Debug, Default)]
struct Open {
    by_number: BTreeMap<u64, Arc<Stream>>,
    n_entered: u64,
}

#[derive(Debug)]
struct Stream {
    peer: Option<SocketAddr>,
    began: Instant,
    /// When it was last heard of, in milliseconds after it began.
    seen_ms: AtomicU64,
    notices: AtomicU64,
    follows: Mutex<Follows>,
}

#[derive(Clone, Debug, Default)]
struct Follows {
    count: usize,
    first: Vec<String>,
}

/// One stream's place, which it leaves when this is dropped.
#[derive(Debug)]
pub(crate) struct Entry {
    all: Subscribers,
    number: u64,
    stream: Arc<Stream>,
}

impl Subscribers {
    /// A stream from `peer` has begun.
    pub(crate) fn enter(&self, peer: Option<SocketAddr>) -> Entry {
        let stream = Arc::new(Stream {
            peer,
            began: Instant::now(),
            seen_ms: AtomicU64::new(0),
            notices: AtomicU64::new(0),
            follows: Mutex::default(),
        });
        let mut open = lock(&self.0);
        open.n_entered += 1;
        let number = open.n_entered;
        open.by_number.insert(number, Arc::clone(&stream));
        Entry { all: self.clone(), number, stream }
    }

    /// How many there are, and those that came first.
    pub(crate) fn list(&self) -> (u64, Vec<NoticeSubscriber>) {
        let (count, streams) = {
            let open = lock(&self.0);
            let first = open.by_number.values().take(LISTED_MAX).cloned();
            (open.by_number.len() as u64, first.collect::<Vec<_>>())
        };
        (count, streams.iter().map(|it| it.shown()).collect())
    }
}

impl Entry {
    /// It follows these from now on.
    pub(crate) fn follows(&self, histories: &BTreeSet<HistoryName>) {
        let first = histories.iter().take(NAMED_MAX).map(ToString::to_string).collect();
        *lock(&self.stream.follows) = Follows { count: histories.len(), first };
        self.stream.seen();
    }

    /// It takes a notice.
    pub(crate) fn told(&self) {
        self.stream.notices.fetch_add(1, Ordering::Relaxed);
        self.stream.seen();
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        lock(&self.all.0).by_number.remove(&self.number);
    }
}

impl Stream {
    fn seen(&self) {
        self.seen_ms.store(ms(self.began), Ordering::Relaxed);
    }

    fn shown(&self) -> NoticeSubscriber {
        let connected_ms = ms(self.began);
        let Follows { count, first } = lock(&self.follows).clone();
        NoticeSubscriber {
            peer: self.peer.map(|it| it.to_string()),
            connected_ms,
            seen_ms: connected_ms.saturating_sub(self.seen_ms.load(Ordering::Relaxed)),
            histories: count as u64,
            histories_first: first,
            notices: self.notices.load(Ordering::Relaxed),
        }
    }
}

/// Nobody who holds one of these panics halfway through a change.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::advance;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_stream_is_listed_from_its_beginning_to_its_end() {
        let all = Subscribers::default();
        let peer = "10.0.0.7:4000".parse().unwrap();
        let entry = all.enter(Some(peer));
        let names = (0..9).map(|it| HistoryName::parse(&format!("h{it}")).unwrap());
        entry.follows(&names.collect());
        advance(Duration::from_secs(2)).await;
        entry.told();
        advance(Duration::from_secs(1)).await;

        let (count, listed) = all.list();
        assert_eq!(count, 1);
        assert_eq!(listed[0].peer.as_deref(), Some("10.0.0.7:4000"));
        assert_eq!((listed[0].connected_ms, listed[0].seen_ms), (3_000, 1_000));
        assert_eq!((listed[0].histories, listed[0].notices), (9, 1));
        assert_eq!(listed[0].histories_first, ["h0", "h1", "h2", "h3", "h4"]);

        drop(entry);
        assert_eq!(all.list(), (0, Vec::new()));
    }

    #[tokio::test]
    async fn what_is_listed_has_a_limit_and_the_count_has_none() {
        let all = Subscribers::default();
        let entries: Vec<_> = (0..LISTED_MAX + 3).map(|_| all.enter(None)).collect();
        let (count, listed) = all.list();
        assert_eq!((count, listed.len()), (entries.len() as u64, LISTED_MAX));
    }
}
