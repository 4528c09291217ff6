//! How often one head may be replaced, learned from the answers.

use std::time::Duration;

use tokio::time::Instant;

/// Longest rest between two replacements that is ever learned. Stores that
/// limit one object allow about one replacement a second; what refuses at
/// longer gaps than this is in trouble, and no pace helps.
const INTERVAL_MAX: Duration = Duration::from_secs(2);
/// Below this a rest is not worth a timer.
const INTERVAL_MIN: Duration = Duration::from_millis(1);
/// Refusals in a row from which on a gap that was fine once is doubted.
const DOUBTS_MAX: u32 = 4;
/// Refusals in a row at gaps past [`INTERVAL_MAX`], after which what was
/// learned is forgotten: it was an outage.
const OUTAGE_REFUSALS: u32 = 4;
/// What a rest is multiplied with while none is known to be long enough: five
/// refusals from 20 ms to a second.
const FIRST_STEPS: u32 = 3;
/// Replacements in peace before a gap that was refused is tried again: few, for
/// it may have been chance.
const PEACE_FIRST: u32 = 2;
/// Times as many after each time that it is refused again.
const PEACE_GROWTH: u32 = 4;
/// And never more: a minute of a store that allows one a second.
const PEACE_MAX: u32 = 64;

/// How the store answered a replacement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It was carried out.
    Applied,
    /// It was not, for its condition or for a reason that no pace changes.
    Other,
    /// 409, 429, 503: too much, or too close to another one.
    Refused {
        /// How long the store asked to be left alone.
        retry_after: Option<Duration>,
    },
}

/// The pace of one head.
///
/// Refusals multiply the rest (multiplicative decrease) until one is long enough.
/// Then the limit lies between the longest gap that was refused and the
/// shortest that was not, and is closed in on by halves (additive increase, by
/// a shrinking step). Raising the rate steadily instead would have every third
/// replacement refused on a store that allows one a second.
///
/// A limit on one object shows in this: a gap is refused, and no shorter one is
/// carried out. Where one is, the refusal said something about the bucket and
/// nothing about the head; its rest shrinks fast. So answers of 503 at random
/// slow nobody down for long.
#[derive(Debug)]
pub(super) struct HeadPace {
    /// The rest that the store is known to want. Never less.
    floor: Duration,
    interval: Duration,
    /// The longest gap that was refused while no shorter one was fine.
    too_short: Duration,
    /// The shortest gap that was fine.
    fine: Option<Duration>,
    refusals: u32,
    /// Times that a gap was tried again and refused again.
    confirmed: u32,
    /// Replacements carried out since the last refusal.
    peace: u32,
    applied_at: Option<Instant>,
    sent_at: Option<Instant>,
    /// The store asked to be left alone until then.
    rest_until: Option<Instant>,
}

impl HeadPace {
    pub(super) fn new(floor: Duration) -> Self {
        Self {
            floor,
            interval: floor,
            too_short: Duration::ZERO,
            fine: None,
            refusals: 0,
            confirmed: 0,
            peace: 0,
            applied_at: None,
            sent_at: None,
            rest_until: None,
        }
    }

    /// How long from `now` the head should rest.
    pub(super) fn pause(&self, now: Instant) -> Duration {
        // What was refused does not count: the store did nothing.
        let rested = self.applied_at.map(|it| it + self.interval);
        let until = rested.max(self.rest_until);
        until.map_or(Duration::ZERO, |it| it.saturating_duration_since(now))
    }

    /// Whether nothing would be lost with this.
    pub(super) fn is_plain(&self, now: Instant) -> bool {
        self.interval == self.floor && self.pause(now).is_zero()
    }

    pub(super) fn sent(&mut self, now: Instant) {
        self.sent_at = Some(now);
    }

    pub(super) fn answered(&mut self, verdict: Verdict, now: Instant) {
        let sent_at = self.sent_at.unwrap_or(now);
        let gap = self.applied_at.map(|it| sent_at.saturating_duration_since(it));
        match verdict {
            Verdict::Applied => {
                self.applied_at = Some(sent_at);
                self.rest_until = None;
                self.refusals = 0;
                if let Some(gap) = gap {
                    self.was_fine(gap);
                }
            }
            Verdict::Other => self.refusals = 0,
            Verdict::Refused { retry_after } => {
                let asked = retry_after.map(|it| now + it);
                self.rest_until = self.rest_until.max(asked);
                // Before the first one was carried out there is no gap.
                if let Some(gap) = gap {
                    self.was_refused(gap);
                }
            }
        }
        self.interval = self.interval.clamp(self.floor, INTERVAL_MAX.max(self.floor));
    }

    fn was_fine(&mut self, gap: Duration) {
        self.peace = self.peace.saturating_add(1);
        if gap <= self.too_short {
            (self.too_short, self.confirmed) = (Duration::ZERO, 0);
        }
        // After a long silence any store carries one out.
        if self.interval.is_zero() || gap <= self.interval * 3 / 2 {
            self.fine = Some(self.fine.map_or(gap, |it| it.min(gap)));
        }
        if self.too_short.is_zero() {
            self.interval /= 2;
            if self.interval < INTERVAL_MIN {
                self.interval = Duration::ZERO;
            }
            return;
        }
        let Some(fine) = self.fine else { return };
        let middle = fine.min(self.interval).saturating_add(self.too_short) / 2;
        if self.too_short + self.too_short / 10 < middle {
            self.interval = middle;
        } else if self.peace_needed() <= self.peace {
            self.interval = self.too_short * 19 / 20;
            self.peace = 0;
        }
    }

    fn peace_needed(&self) -> u32 {
        PEACE_FIRST.saturating_mul(PEACE_GROWTH.saturating_pow(self.confirmed)).min(PEACE_MAX)
    }

    fn was_refused(&mut self, gap: Duration) {
        self.refusals = self.refusals.saturating_add(1);
        self.peace = 0;
        if INTERVAL_MAX < gap {
            if OUTAGE_REFUSALS <= self.refusals {
                self.interval = self.floor;
                (self.too_short, self.fine, self.confirmed) = (Duration::ZERO, None, 0);
            }
            return;
        }
        if let Some(fine) = self.fine.filter(|it| *it <= gap) {
            // By chance, or the store has become stricter: a little at a time,
            // and nothing is held against any gap.
            if DOUBTS_MAX <= self.refusals {
                self.fine = Some(fine.max(INTERVAL_MIN) * 2);
                self.interval = self.interval.max(fine * 2);
                (self.too_short, self.confirmed) = (Duration::ZERO, 0);
            }
            return;
        }
        if gap <= self.too_short {
            self.confirmed = self.confirmed.saturating_add(1);
        }
        self.too_short = self.too_short.max(gap);
        self.interval = match self.fine {
            Some(fine) => fine,
            None => self.interval.max(gap).max(INTERVAL_MIN) * FIRST_STEPS,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const REFUSED: Verdict = Verdict::Refused { retry_after: None };

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    /// A store that carries a replacement out if the last one was `limit` ago,
    /// asked as often as the pace allows but not more often than each `natural`,
    /// for `time`. What was sent, and what was carried out.
    fn play(pace: &mut HeadPace, limit: Duration, natural: Duration, time: Duration) -> (u32, u32) {
        let (mut now, mut n_sent, mut n_applied) = (Instant::now() + ms(3_600_000), 0, 0);
        let (end, mut last) = (now + time, None);
        while now < end {
            pace.sent(now);
            n_sent += 1;
            let is_fine = last.is_none_or(|it| limit <= now.duration_since(it));
            if is_fine {
                last = Some(now);
                n_applied += 1;
            }
            pace.answered(if is_fine { Verdict::Applied } else { REFUSED }, now + natural);
            now += natural.max(natural + pace.pause(now + natural));
        }
        (n_sent, n_applied)
    }

    #[tokio::test(start_paused = true)]
    async fn a_limit_of_one_a_second_is_found_and_kept() {
        let mut pace = HeadPace::new(Duration::ZERO);

        let (n_sent, n_applied) = play(&mut pace, ms(1_000), ms(20), ms(30_000));
        assert!(n_sent <= 38 && 20 <= n_applied, "{n_sent} {n_applied}");
        let (n_sent, n_applied) = play(&mut pace, ms(1_000), ms(20), ms(600_000));
        assert!(n_sent <= 660, "{n_sent}");
        assert!(500 <= n_applied, "{n_applied}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_store_without_a_limit_is_not_paced() {
        let mut pace = HeadPace::new(Duration::ZERO);
        let (n_sent, n_applied) = play(&mut pace, Duration::ZERO, ms(20), ms(10_000));
        assert_eq!((n_sent, n_applied), (500, 500));
    }

    #[tokio::test(start_paused = true)]
    async fn a_limit_that_is_lifted_is_noticed() {
        let mut pace = HeadPace::new(Duration::ZERO);
        play(&mut pace, ms(1_000), ms(20), ms(60_000));
        play(&mut pace, Duration::ZERO, ms(20), ms(90_000));
        assert_eq!(pace.interval, Duration::ZERO);
    }

    #[tokio::test(start_paused = true)]
    async fn a_known_limit_is_kept_from_the_first_one_on() {
        let mut pace = HeadPace::new(ms(1_050));
        let (n_sent, n_applied) = play(&mut pace, ms(1_000), ms(20), ms(60_000));
        assert_eq!(n_sent, n_applied, "nothing was refused");
        assert!(54 <= n_applied, "{n_applied}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_bucket_that_refuses_at_random_is_not_taken_for_a_limit() {
        let mut pace = HeadPace::new(Duration::ZERO);
        let dice = crate::Entropy::from_seed(1);
        let mut now = Instant::now();
        let mut n_applied = 0;
        let end = now + ms(60_000);
        while now < end {
            pace.sent(now);
            let is_refused = dice.below(5) == 0;
            n_applied += u32::from(!is_refused);
            now += ms(20);
            pace.answered(if is_refused { REFUSED } else { Verdict::Applied }, now);
            now += pace.pause(now);
        }
        // 2,400 would be all that is not refused.
        assert!(1_200 < n_applied, "{n_applied}");
        play(&mut pace, Duration::ZERO, ms(20), ms(5_000));
        let (n_sent, _) = play(&mut pace, Duration::ZERO, ms(20), ms(1_000));
        assert!(48 <= n_sent, "full speed again within five seconds: {n_sent}");
    }

    #[tokio::test(start_paused = true)]
    async fn after_an_outage_there_is_no_pace() {
        let mut pace = HeadPace::new(Duration::ZERO);
        let mut now = Instant::now();
        pace.answered(Verdict::Applied, now);
        for _ in 0..30 {
            now += ms(500);
            pace.sent(now);
            pace.answered(REFUSED, now);
        }
        assert_eq!(pace.pause(now), Duration::ZERO);
        assert_eq!(pace.interval, Duration::ZERO);
    }

    #[tokio::test(start_paused = true)]
    async fn a_store_that_names_a_time_is_left_alone_until_then() {
        let mut pace = HeadPace::new(Duration::ZERO);
        let now = Instant::now();
        pace.sent(now);
        pace.answered(Verdict::Refused { retry_after: Some(ms(7_000)) }, now);
        assert_eq!(pace.pause(now), ms(7_000));
    }
}
