//! Calls a second of one caller: a token bucket that holds one second's worth,
//! kept as the moment at which it will be full again (GCRA). No floating point,
//! and nothing runs while nobody calls.

use std::time::Duration;

use tokio::time::Instant;

/// What a caller may have in advance: so much of its rate at once.
const BURST: Duration = Duration::from_secs(1);

#[derive(Clone, Copy, Debug)]
pub(super) struct Rate {
    /// When everything taken so far is paid off.
    paid_at: Instant,
}

impl Rate {
    pub(super) fn new(now: Instant) -> Self {
        Self { paid_at: now }
    }

    pub(super) fn is_paid_off(&self, now: Instant) -> bool {
        self.paid_at <= now
    }

    /// Takes one; or says how long to wait for one.
    pub(super) fn take(&mut self, now: Instant, per_second: u32) -> Result<(), Duration> {
        let cost = BURST / per_second.max(1);
        let paid_at = self.paid_at.max(now) + cost;
        let ahead = paid_at - now;
        match ahead.checked_sub(BURST) {
            Some(wait) if !wait.is_zero() => Err(wait),
            Some(_) | None => {
                self.paid_at = paid_at;
                Ok(())
            }
        }
    }
}

impl Rate {
    /// Takes `count` that have come already, and says how long nothing more is
    /// to come: until no more than one burst is owed.
    pub(super) fn owe(&mut self, now: Instant, per_second: u32, count: u32) -> Option<Duration> {
        let cost = BURST / per_second.max(1);
        self.paid_at = self.paid_at.max(now) + cost.saturating_mul(count);
        (self.paid_at - now).checked_sub(BURST).filter(|it| !it.is_zero())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn what_has_come_is_owed() {
        let mut rate = Rate::new(Instant::now());
        assert_eq!(rate.owe(Instant::now(), 10, 10), None);
        assert_eq!(rate.owe(Instant::now(), 10, 30), Some(Duration::from_secs(3)));
        assert!(rate.take(Instant::now(), 10).is_err());

        tokio::time::advance(Duration::from_secs(4)).await;
        assert_eq!(rate.owe(Instant::now(), 10, 10), None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_second_comes_at_once_and_the_rest_at_the_rate() {
        let mut rate = Rate::new(Instant::now());
        let mut taken = 0;
        while rate.take(Instant::now(), 10).is_ok() {
            taken += 1;
        }
        assert_eq!(taken, 10);
        let wait = rate.take(Instant::now(), 10).unwrap_err();
        assert_eq!(wait, Duration::from_millis(100));

        tokio::time::advance(wait).await;
        assert!(rate.take(Instant::now(), 10).is_ok());
        assert!(rate.take(Instant::now(), 10).is_err());

        tokio::time::advance(Duration::from_secs(60)).await;
        assert!(rate.is_paid_off(Instant::now()));
        assert_eq!((0..20).filter(|_| rate.take(Instant::now(), 10).is_ok()).count(), 10);
    }
}
