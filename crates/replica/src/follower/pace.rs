//! When the next freshness check may begin.

use std::time::Duration;

use headwater_store::Entropy;
use tokio::time::Instant;

/// Bound of the first pause after a failure; each further one doubles it. The
/// store's own decorators have repeated the read already.
const PAUSE_FIRST: Duration = Duration::from_millis(50);
/// Bound of the longest pause: how late a store that came back may be noticed.
const PAUSE_MAX: Duration = Duration::from_millis(500);
/// Longest that a store is left alone because it asked for it.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(30);

/// Spreads checks over the time that one takes.
///
/// A read that arrives just after a check began has to wait for the next one.
/// With `n` in flight, evenly spread, the next one begins within an `n`-th of a
/// round trip. Starting all of them at once would help nobody.
#[derive(Debug)]
pub(super) struct Pace {
    in_flight_max: u32,
    /// What a check took lately; zero until one succeeded.
    round_trip: Duration,
    last_began: Option<Instant>,
    n_failures: u32,
    retry_at: Option<Instant>,
}

impl Pace {
    pub(super) fn new(in_flight_max: usize) -> Self {
        Self {
            in_flight_max: u32::try_from(in_flight_max).unwrap_or(u32::MAX).max(1),
            round_trip: Duration::ZERO,
            last_began: None,
            n_failures: 0,
            retry_at: None,
        }
    }

    /// The earliest moment for a check to begin while `n_live` are under way;
    /// `None` until one of them ends.
    pub(super) fn earliest(&self, n_live: usize, now: Instant) -> Option<Instant> {
        if self.in_flight_max as usize <= n_live {
            return None;
        }
        let spread = self.last_began.filter(|_| 0 < n_live);
        let spread = spread.map(|it| it + self.round_trip / self.in_flight_max);
        Some(now.max(spread.unwrap_or(now)).max(self.retry_at.unwrap_or(now)))
    }

    pub(super) fn began(&mut self, now: Instant) {
        self.last_began = Some(now);
    }

    /// The last check began so long ago that another is due.
    pub(super) fn due_after(&self, interval: Duration) -> Option<Instant> {
        self.last_began.map(|it| it + interval)
    }

    /// The store answered.
    pub(super) fn answered(&mut self, took: Duration) {
        // Half of what is new: a store that has become slow is known to be so
        // after two or three answers.
        self.round_trip =
            if self.round_trip.is_zero() { took } else { (self.round_trip + took) / 2 };
        self.n_failures = 0;
        self.retry_at = None;
    }

    /// The store did not answer, or asked to be left alone.
    pub(super) fn failed(&mut self, retry_after: Option<Duration>, now: Instant, jitter: &Entropy) {
        let bound = PAUSE_FIRST.saturating_mul(1 << self.n_failures.min(16)).min(PAUSE_MAX);
        self.n_failures = self.n_failures.saturating_add(1);
        let floor = retry_after.map_or(bound / 2, |it| it.min(RETRY_AFTER_MAX));
        self.retry_at = Some(now + floor + jitter.jitter(bound / 2));
    }

    pub(super) fn is_failing(&self) -> bool {
        0 < self.n_failures
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[tokio::test(start_paused = true)]
    async fn checks_are_spread_over_a_round_trip_and_bounded() {
        let now = Instant::now();
        let mut pace = Pace::new(3);
        assert_eq!(pace.earliest(0, now), Some(now));
        pace.began(now);
        pace.answered(ms(30));

        // Nothing under way: at once. Something: a third of a round trip later.
        assert_eq!(pace.earliest(0, now), Some(now));
        assert_eq!(pace.earliest(1, now), Some(now + ms(10)));
        assert_eq!(pace.earliest(2, now + ms(25)), Some(now + ms(25)));
        assert_eq!(pace.earliest(3, now), None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_store_that_fails_is_asked_later_and_later_up_to_a_bound() {
        let now = Instant::now();
        let entropy = Entropy::from_seed(1);
        let mut pace = Pace::new(3);
        for bound in [50, 100, 200, 400, 500, 500] {
            pace.failed(None, now, &entropy);
            let at = pace.earliest(0, now).unwrap();
            assert!((now + ms(bound / 2)..now + ms(bound)).contains(&at), "{bound}");
        }
        pace.failed(Some(ms(9_000)), now, &entropy);
        assert!(now + ms(9_000) <= pace.earliest(0, now).unwrap());
        assert!(pace.is_failing());

        pace.answered(ms(1));

        assert_eq!(pace.earliest(0, now), Some(now));
        assert!(!pace.is_failing());
    }
}
