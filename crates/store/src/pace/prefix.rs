//! How many calls a prefix of keys takes, learned from the answers.

use std::time::Duration;

use tokio::time::Instant;

/// Calls a second that no failure brings the pace below: a store that comes
/// back is noticed, and one that is gone is not stormed.
const RATE_MIN: u64 = 20;
/// Past this the pace is no longer a limit: about three prefixes of S3.
const RATE_MAX: u64 = 10_000;
/// What a second without failures adds to the rate at first; doubled with each
/// further one, so that five of them bring back 1,550 calls a second.
const STEP: u64 = 50;
/// Doublings of [`STEP`] at most.
const DOUBLINGS_MAX: u32 = 8;
/// The rate is cut once in this time. What fails within it was sent before the
/// cut could help.
const CUT_EVERY: Duration = Duration::from_secs(1);
/// Without a failure for this long there is no pace.
const PEACE: Duration = Duration::from_secs(30);
/// One failure in this many calls is a fault of that call and no sign.
const NOISE: u64 = 50;
/// Calls that may go at once after a silence, as a part of a second's.
const BURST: u32 = 10;

/// The pace of one prefix: additive increase, multiplicative decrease. There is
/// none before the first failure.
#[derive(Debug)]
pub(super) struct PrefixPace {
    /// Calls a second.
    rate: Option<u64>,
    next_at: Instant,
    cut_at: Instant,
    raised_at: Instant,
    failed_at: Instant,
    /// Calls and failures of the second under way, and calls of the one before.
    second: Second,
    calls_before: u64,
}

#[derive(Clone, Copy, Debug)]
struct Second {
    began: Instant,
    calls: u64,
    failures: u64,
}

impl PrefixPace {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            rate: None,
            next_at: now,
            cut_at: now,
            raised_at: now,
            failed_at: now,
            second: Second { began: now, calls: 0, failures: 0 },
            calls_before: 0,
        }
    }

    pub(super) fn is_plain(&self) -> bool {
        self.rate.is_none()
    }

    /// Takes the next free moment for a call, unless it is later than `latest`.
    pub(super) fn reserve(&mut self, now: Instant, latest: Instant) -> Option<Instant> {
        self.roll(now);
        let Some(rate) = self.rate else {
            self.second.calls += 1;
            return Some(now);
        };
        let gap = Duration::from_secs(1) / u32::try_from(rate.max(1)).unwrap_or(u32::MAX);
        let earliest = now.checked_sub(Duration::from_secs(1) / BURST).unwrap_or(now);
        let at = self.next_at.max(earliest);
        if latest < at {
            return None;
        }
        self.second.calls += 1;
        self.next_at = at + gap;
        Some(at.max(now))
    }

    pub(super) fn answered(&mut self, now: Instant) {
        self.roll(now);
        let Some(rate) = self.rate else { return };
        let peace = now.duration_since(self.failed_at.max(self.cut_at));
        let since = now.duration_since(self.raised_at);
        if PEACE <= peace {
            self.rate = None;
            return;
        }
        let doublings = u32::try_from(peace.as_secs()).unwrap_or(u32::MAX).min(DOUBLINGS_MAX);
        let step = u128::from(STEP << doublings) * since.as_millis() / 1_000;
        let step = u64::try_from(step).unwrap_or(u64::MAX);
        if 0 < step {
            let raised = rate.saturating_add(step);
            self.rate = Some(raised).filter(|it| *it < RATE_MAX);
            self.raised_at = now;
        }
    }

    pub(super) fn failed(&mut self, now: Instant) {
        self.roll(now);
        self.second.failures += 1;
        let calls = self.second.calls.max(self.calls_before);
        if self.second.failures * NOISE < calls {
            return;
        }
        self.failed_at = now;
        let is_first = self.rate.is_none();
        if !is_first && now.duration_since(self.cut_at) < CUT_EVERY {
            return;
        }
        let rate = self.rate.unwrap_or(calls);
        self.rate = Some((rate * 7 / 10).max(RATE_MIN));
        (self.cut_at, self.raised_at) = (now, now);
        if is_first {
            self.next_at = now;
        }
    }

    /// Begins another second where it is time.
    fn roll(&mut self, now: Instant) {
        let since = now.duration_since(self.second.began);
        if since < Duration::from_secs(1) {
            return;
        }
        let is_next = since < Duration::from_secs(2);
        self.calls_before = if is_next { self.second.calls } else { 0 };
        self.second = Second { began: now, calls: 0, failures: 0 };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Calls one after the other for `time`, each refused when more than `limit`
    /// were carried out within the last second. What was carried out, and what
    /// was refused.
    fn play(
        pace: &mut PrefixPace,
        now: &mut Instant,
        limit: usize,
        time: Duration,
    ) -> (usize, usize) {
        let end = *now + time;
        let mut done: Vec<Instant> = Vec::new();
        let mut n_refused = 0;
        while *now < end {
            let at = pace.reserve(*now, *now + time).unwrap();
            *now = at.max(*now + Duration::from_micros(500));
            let lately = done.iter().rev().take_while(|it| now.duration_since(**it).as_secs() < 1);
            if lately.count() < limit {
                done.push(*now);
                pace.answered(*now);
            } else {
                n_refused += 1;
                pace.failed(*now);
            }
        }
        (done.len(), n_refused)
    }

    #[tokio::test(start_paused = true)]
    async fn there_is_no_pace_before_the_first_failure() {
        let mut now = Instant::now();
        let mut pace = PrefixPace::new(now);
        let (done, refused) = play(&mut pace, &mut now, usize::MAX, Duration::from_secs(3));
        assert_eq!((done, refused), (6_000, 0));
        assert!(pace.is_plain());
    }

    #[tokio::test(start_paused = true)]
    async fn a_limit_is_used_and_seldom_passed() {
        let mut now = Instant::now();
        let mut pace = PrefixPace::new(now);
        let (done, refused) = play(&mut pace, &mut now, 300, Duration::from_secs(60));
        assert!(60 * 200 < done, "{done}");
        assert!(refused * 4 < done, "{refused} of {done}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_prefix_in_trouble_gets_a_trickle_and_then_all_again() {
        let mut now = Instant::now();
        let mut pace = PrefixPace::new(now);
        play(&mut pace, &mut now, usize::MAX, Duration::from_secs(2));
        let (_, refused) = play(&mut pace, &mut now, 0, Duration::from_secs(60));
        assert!(refused < 10_000, "{refused}; without a pace there would be 120,000");
        let from = now;
        let (_, refused) = play(&mut pace, &mut now, 0, Duration::from_secs(10));
        assert!(refused <= 210 && now < from + Duration::from_secs(11), "{refused}");

        play(&mut pace, &mut now, usize::MAX, Duration::from_secs(5));
        let (done, _) = play(&mut pace, &mut now, usize::MAX, Duration::from_secs(1));
        assert!(1_000 < done, "{done} in the sixth second");
        play(&mut pace, &mut now, usize::MAX, Duration::from_secs(30));
        assert!(pace.is_plain());
    }

    #[tokio::test(start_paused = true)]
    async fn a_moment_too_far_away_is_not_taken() {
        let now = Instant::now();
        let mut pace = PrefixPace::new(now);
        pace.failed(now);
        let latest = now + Duration::from_secs(1);
        let taken = (0..1_000).filter(|_| pace.reserve(now, latest).is_some()).count();
        assert!((20..=23).contains(&taken), "{taken}");
    }
}
