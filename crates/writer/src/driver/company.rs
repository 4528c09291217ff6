//! Waiting a moment for callers that were answered together, since they ask
//! again together.
//!
//! ```text
//!  in flight:   a b c                a b c d e
//!  waits:             d e
//!  answered:              a b c  →  as many come  →  one replacement for all
//! ```
//!
//! Without it the callers of a closed loop fall apart into two halves that take
//! turns, and each waits for the other's round trip: twice as long, in batches
//! half as large.
//!
//! # Architecture invariants
//!
//! - Whoever is alone never waits: nobody is expected where one caller was
//!   answered and nobody else is there.
//! - A wait ends as soon as those who were expected have come, or when nobody
//!   has come for a moment, and after a part of a round trip at the latest.
//! - Waits that are in vain become rare: callers that come at random moments are
//!   not made to wait for each other.

use std::time::Duration;

use headwater_core::publish::{Event, Pace};
use tokio::time::Instant;

use super::{Driver, LINGER_PART, QUIET};

/// After so many waits in vain, one after the other, their number no longer
/// doubles how many replacements are made without one.
const VAIN_MAX: u32 = 6;

/// Who is waited for.
#[derive(Debug, Default)]
pub(super) struct Company {
    waiting: Option<Expected>,
    /// Waits in vain since the last one that was worth it.
    vain: u32,
    /// Replacements that are made without a wait yet.
    skip: u32,
}

#[derive(Clone, Copy, Debug)]
struct Expected {
    count: usize,
    came: usize,
    latest: Instant,
    /// Nobody else comes, if nobody has by then.
    quiet_at: Instant,
}

impl Company {
    pub(super) fn wake_at(&self) -> Option<Instant> {
        self.waiting.map(|it| it.quiet_at.min(it.latest))
    }

    pub(super) fn is_expected(&self) -> bool {
        self.waiting.is_some()
    }

    /// `count` callers are about to be answered; says whether they are to be
    /// waited for.
    fn expect(&mut self, count: usize, now: Instant, linger: Duration) -> bool {
        self.waiting = None;
        if self.skip != 0 {
            self.skip -= 1;
            return false;
        }
        let (latest, quiet_at) = (now + linger, now + QUIET);
        self.waiting = Some(Expected { count, came: 0, latest, quiet_at });
        true
    }

    /// Some have come; says whether those are all.
    fn came(&mut self, count: usize, now: Instant) -> bool {
        let Some(expected) = &mut self.waiting else { return false };
        expected.came += count;
        expected.quiet_at = now + QUIET;
        expected.count <= expected.came
    }

    /// The wait is over.
    fn end(&mut self) {
        let Some(expected) = self.waiting.take() else { return };
        if expected.count <= expected.came * 2 {
            self.vain = 0;
        } else {
            self.skip = 1 << self.vain;
            self.vain = (self.vain + 1).min(VAIN_MAX);
        }
    }
}

impl Driver {
    /// Before the publisher is told that the head is ours: whether what waits is
    /// to wait a moment longer, for those who are answered now.
    pub(super) fn expect_company(&mut self) -> Option<Event> {
        let count = self.publisher.in_flight_len();
        let linger = self.attempt / LINGER_PART;
        // A batch that is decided and staged already takes nobody along, and
        // with others about, whoever waits loses.
        let is_of_use = self.publisher.is_all_in_flight() && self.turn.contenders() == 0;
        let is_alone = self.waiting.len() + self.inbox.len() < 2;
        if count == 0 || is_alone || !is_of_use || linger < QUIET {
            return None;
        }
        let is_expected = self.company.expect(count, Instant::now(), linger);
        is_expected.then_some(Event::Paced(Pace::Gather))
    }

    /// Some have asked.
    pub(super) fn on_company(&mut self, count: usize) {
        let is_full = self.parts.config.batch_operations_max <= self.inbox.len();
        if self.company.came(count, Instant::now()) || is_full {
            self.end_company();
        }
    }

    /// Nobody is waited for any longer.
    pub(super) fn end_company(&mut self) {
        self.company.end();
        let mut events = self.take_inbox();
        events.push(Event::Paced(Pace::Publish));
        let effects = self.publisher.on_all(events);
        self.carry_out(effects);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINGER: Duration = Duration::from_millis(5);

    #[tokio::test(start_paused = true)]
    async fn a_wait_ends_with_the_last_who_was_expected() {
        let mut company = Company::default();
        let now = Instant::now();
        assert!(company.expect(3, now, LINGER));
        assert!(!company.came(2, now));
        assert!(company.came(1, now));
        company.end();
        assert!(!company.is_expected());
        assert!(company.expect(3, now, LINGER), "it was worth it");
    }

    #[tokio::test(start_paused = true)]
    async fn a_wait_ends_when_nobody_comes_and_at_the_latest_after_a_part_of_a_round_trip() {
        let mut company = Company::default();
        let began = Instant::now();
        company.expect(100, began, LINGER);
        assert_eq!(company.wake_at(), Some(began + QUIET));
        for step in 1..20 {
            company.came(1, began + QUIET * step / 2);
        }
        assert_eq!(company.wake_at(), Some(began + LINGER));
    }

    #[tokio::test(start_paused = true)]
    async fn waits_in_vain_become_rare_and_one_that_is_worth_it_makes_them_usual_again() {
        let mut company = Company::default();
        let now = Instant::now();
        let mut waits = 0;
        for _ in 0..1_000 {
            if company.expect(10, now, LINGER) {
                waits += 1;
                company.came(4, now);
                company.end();
            }
        }
        assert!((10..30).contains(&waits), "{waits} of 1,000");

        while !company.expect(10, now, LINGER) {}
        company.came(5, now);
        company.end();
        assert!(company.expect(10, now, LINGER));
    }
}
