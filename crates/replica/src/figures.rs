//! What this process has done, counted for those who look at it.
//!
//! Reads and followers count as they go, by relaxed additions; whoever looks
//! reads the counters. Nobody waits for that.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use headwater_daemon::overview::{ReplicaTotals, WriterLink};
use headwater_daemon::tally::Durations;
use tokio::time::Instant;

/// What all followers count together.
#[derive(Debug)]
pub(crate) struct Figures {
    began: Instant,
    reads: AtomicU64,
    reads_failed: AtomicU64,
    lags: Durations,
    links: Vec<Link>,
}

/// The stream from one writer.
#[derive(Debug)]
pub(crate) struct Link {
    address: String,
    is_listening: AtomicBool,
    notices: AtomicU64,
    last_notice: Moment,
}

/// A moment, or none, in microseconds of a clock of ours.
#[derive(Debug, Default)]
pub(crate) struct Moment(AtomicU64);

impl Figures {
    /// Of a replica that listens to these writers.
    pub(crate) fn new(writers: &[String]) -> Self {
        let link = |address: &String| Link {
            address: without_credentials(address),
            is_listening: AtomicBool::new(false),
            notices: AtomicU64::new(0),
            last_notice: Moment::default(),
        };
        Self {
            began: Instant::now(),
            reads: AtomicU64::new(0),
            reads_failed: AtomicU64::new(0),
            lags: Durations::default(),
            links: writers.iter().map(link).collect(),
        }
    }

    pub(crate) fn read(&self, is_answered: bool) {
        let counter = if is_answered { &self.reads } else { &self.reads_failed };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    /// A head is told of that is not followed yet. Only the first one counts
    /// until it is followed: `since` is when that was.
    pub(crate) fn noticed(&self, since: &Moment) {
        let now = self.now_us();
        let _kept = since.0.compare_exchange(0, now, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// What was told of is followed, or a part of it is.
    ///
    /// Where heads come faster than they are followed, the rest is counted from
    /// here on, which is later than it was told of.
    pub(crate) fn followed(&self, since: &Moment, is_all: bool) {
        let now = self.now_us();
        let noticed = since.0.swap(if is_all { 0 } else { now }, Ordering::Relaxed);
        if noticed != 0 {
            self.lags.record(Duration::from_micros(now.saturating_sub(noticed)));
        }
    }

    /// What was told of could not be followed for another while.
    pub(crate) fn not_followed(&self, since: &Moment) {
        let noticed = since.0.load(Ordering::Relaxed);
        if noticed != 0 {
            self.lags.record(Duration::from_micros(self.now_us().saturating_sub(noticed)));
        }
    }

    /// The stream from the writer that was named at this place.
    pub(crate) fn link(&self, at: usize) -> Option<&Link> {
        self.links.get(at)
    }

    pub(crate) fn heard(&self, link: &Link) {
        link.notices.fetch_add(1, Ordering::Relaxed);
        link.last_notice.0.store(self.now_us(), Ordering::Relaxed);
    }

    pub(crate) fn links(&self) -> Vec<WriterLink> {
        self.links.iter().map(|it| it.shown(self.now_us())).collect()
    }

    pub(crate) fn totals(&self) -> ReplicaTotals {
        ReplicaTotals {
            reads: self.reads.load(Ordering::Relaxed),
            reads_failed: self.reads_failed.load(Ordering::Relaxed),
            lags: self.lags.read(),
        }
    }

    /// Never 0, which stands for no moment.
    fn now_us(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_micros()).unwrap_or(u64::MAX).max(1)
    }
}

impl Link {
    pub(crate) fn set_listening(&self, is_listening: bool) {
        self.is_listening.store(is_listening, Ordering::Relaxed);
    }

    fn shown(&self, now_us: u64) -> WriterLink {
        let last = self.last_notice.0.load(Ordering::Relaxed);
        WriterLink {
            address: self.address.clone(),
            is_listening: self.is_listening.load(Ordering::Relaxed),
            notices: self.notices.load(Ordering::Relaxed),
            notice_age_ms: (last != 0).then(|| now_us.saturating_sub(last) / 1_000),
        }
    }
}

/// How long ago, in milliseconds.
pub(crate) fn ms(since: Instant) -> u64 {
    u64::try_from(since.elapsed().as_millis()).unwrap_or(u64::MAX)
}

/// `http://user:password@host/` is an address too.
fn without_credentials(address: &str) -> String {
    let (scheme, rest) = address.split_once("://").map_or(("", address), |(it, rest)| (it, rest));
    let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    if scheme.is_empty() { format!("{host}{path}") } else { format!("{scheme}://{host}{path}") }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn lag_is_from_the_first_notice_to_the_moment_of_serving() {
        let (figures, since) = (Figures::new(&[]), Moment::default());
        advance(Duration::from_secs(1)).await;
        figures.noticed(&since);
        advance(Duration::from_millis(20)).await;
        figures.noticed(&since);
        advance(Duration::from_millis(20)).await;
        figures.followed(&since, true);
        figures.followed(&since, true);

        let lags = figures.totals().lags;
        assert_eq!(lags.total(), 1);
        assert!((40_000..=45_000).contains(&lags.quantile_us(500).unwrap()));
    }

    #[tokio::test(start_paused = true)]
    async fn what_cannot_be_followed_shows_before_it_is_over() {
        let (figures, since) = (Figures::new(&[]), Moment::default());
        figures.not_followed(&since);
        assert_eq!(figures.totals().lags.total(), 0);
        figures.noticed(&since);
        advance(Duration::from_secs(60)).await;
        figures.not_followed(&since);
        assert!(60_000_000 <= figures.totals().lags.quantile_us(500).unwrap());
    }

    #[tokio::test(start_paused = true)]
    async fn a_part_that_is_followed_leaves_the_rest_to_be_followed() {
        let (figures, since) = (Figures::new(&[]), Moment::default());
        figures.noticed(&since);
        advance(Duration::from_millis(8)).await;
        figures.followed(&since, false);
        advance(Duration::from_millis(8)).await;
        figures.followed(&since, true);
        assert_eq!(figures.totals().lags.total(), 2);
    }

    #[tokio::test]
    async fn an_address_is_shown_without_its_password() {
        let figures = Figures::new(&["http://me:secret@w:7410/x".into(), "w:1".into()]);
        let shown: Vec<_> = figures.links().into_iter().map(|it| it.address).collect();
        assert_eq!(shown, ["http://w:7410/x", "w:1"]);
    }
}
