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
//! Callers of other writers, whose operations are handed over, are waited for as
//! well. They come later, after a message back and one here, and all of a writer
//! at once.
//!
//! # Architecture invariants
//!
//! - Whoever is alone never waits: nobody is expected where one caller was
//!   answered and nobody else is there.
//! - A wait ends as soon as those who were expected have come, or when nobody
//!   has come for a moment, and after a part of a round trip at the latest.
//! - Waits that are in vain become rare: callers that come at random moments, or
//!   from too far away, are not made to wait for each other.

use std::ops::AddAssign;
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
    near: Bet,
    far: Bet,
}

/// Callers, by the way on which they come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Callers {
    /// Of this process.
    pub(super) near: usize,
    /// Of other writers, which hand their operations over.
    pub(super) far: usize,
}

impl Callers {
    pub(super) fn count(are_handed: impl Iterator<Item = bool>) -> Self {
        are_handed.fold(Self::default(), |counted, is_handed| Self {
            near: counted.near + usize::from(!is_handed),
            far: counted.far + usize::from(is_handed),
        })
    }
}

impl AddAssign for Callers {
    fn add_assign(&mut self, other: Self) {
        (self.near, self.far) = (self.near + other.near, self.far + other.far);
    }
}

#[derive(Clone, Copy, Debug)]
struct Expected {
    /// Nobody of those who are not worth it at the moment.
    wanted: Callers,
    came: Callers,
    began: Instant,
    latest: Instant,
    /// Nobody else comes, if nobody has by then.
    quiet_at: Instant,
}

/// Whether it is worth it to wait for callers of one kind.
#[derive(Clone, Copy, Debug, Default)]
struct Bet {
    /// Waits in vain since the last one that was worth it.
    vain: u32,
    /// Replacements that are made without a wait yet.
    skip: u32,
}

impl Bet {
    /// How many of `count` who are about to be answered are to be waited for:
    /// all of them or none.
    fn wanted(&mut self, count: usize) -> usize {
        if count == 0 || self.skip == 0 {
            return count;
        }
        self.skip -= 1;
        0
    }

    /// The wait is over.
    fn settle(&mut self, wanted: usize, came: usize) {
        if wanted == 0 {
            return;
        }
        if wanted <= came * 2 {
            self.vain = 0;
        } else {
            self.skip = 1 << self.vain;
            self.vain = (self.vain + 1).min(VAIN_MAX);
        }
    }
}

impl Company {
    pub(super) fn wake_at(&self) -> Option<Instant> {
        self.waiting.map(|it| it.quiet_at.min(it.latest))
    }

    pub(super) fn is_expected(&self) -> bool {
        self.waiting.is_some()
    }

    /// `callers` are about to be answered; says whether they are to be waited
    /// for.
    fn expect(&mut self, callers: Callers, now: Instant, linger: Duration) -> bool {
        let wanted =
            Callers { near: self.near.wanted(callers.near), far: self.far.wanted(callers.far) };
        let latest = now + linger;
        // The way of those who are far away is not known before one has come.
        let quiet_at = if wanted.far == 0 { now + QUIET } else { latest };
        let expected = Expected { wanted, came: Callers::default(), began: now, latest, quiet_at };
        self.waiting = Some(expected).filter(|it| it.wanted != Callers::default());
        self.waiting.is_some()
    }

    /// Some have come; says whether those are all.
    fn came(&mut self, callers: Callers, now: Instant) -> bool {
        let Some(Expected { wanted, came, began, quiet_at, .. }) = &mut self.waiting else {
            return false;
        };
        *came += callers;
        if wanted.far <= came.far {
            *quiet_at = now + QUIET;
        } else if callers.far != 0 {
            // The others of them are about as far away.
            *quiet_at = now + (now - *began).max(QUIET);
        }
        wanted.near <= came.near && wanted.far <= came.far
    }

    /// The wait is over.
    fn end(&mut self) {
        let Some(Expected { wanted, came, .. }) = self.waiting.take() else { return };
        self.near.settle(wanted.near, came.near);
        self.far.settle(wanted.far, came.far);
    }
}

impl Driver {
    /// Before the publisher is told that the head is ours: whether what waits is
    /// to wait a moment longer, for those who are answered now.
    pub(super) fn expect_company(&mut self) -> Option<Event> {
        let linger = self.attempt / LINGER_PART;
        // A batch that is decided and staged already takes nobody along, and
        // with others about, whoever waits loses.
        let is_of_use = self.publisher.is_all_in_flight() && !self.parts.route.has_rivals();
        let is_alone = self.waiting.len() + self.inbox.len() < 2;
        if is_alone || !is_of_use || linger < QUIET {
            return None;
        }
        let answered = self.publisher.in_flight().filter_map(|it| self.waiting.find(it));
        let callers = Callers::count(answered.map(|it| it.is_handed));
        let is_expected = self.company.expect(callers, Instant::now(), linger);
        is_expected.then_some(Event::Paced(Pace::Gather))
    }

    /// Some have asked.
    pub(super) fn on_company(&mut self, callers: Callers) {
        let is_full = self.parts.config.batch_operations_max <= self.inbox.len();
        if self.company.came(callers, Instant::now()) || is_full {
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

    fn near(count: usize) -> Callers {
        Callers { near: count, far: 0 }
    }

    fn far(count: usize) -> Callers {
        Callers { near: 0, far: count }
    }

    #[tokio::test(start_paused = true)]
    async fn a_wait_ends_with_the_last_who_was_expected() {
        let mut company = Company::default();
        let now = Instant::now();
        assert!(company.expect(near(3), now, LINGER));
        assert!(!company.came(near(2), now));
        assert!(company.came(near(1), now));
        company.end();
        assert!(!company.is_expected());
        assert!(company.expect(near(3), now, LINGER), "it was worth it");

        assert!(company.expect(Callers { near: 2, far: 2 }, now, LINGER));
        assert!(!company.came(near(2), now));
        assert!(!company.came(near(2), now), "each kind is waited for");
        assert!(company.came(far(2), now));
        assert!(!company.expect(Callers::default(), now, LINGER), "nobody is answered");
    }

    #[tokio::test(start_paused = true)]
    async fn a_wait_ends_when_nobody_comes_and_at_the_latest_after_a_part_of_a_round_trip() {
        let mut company = Company::default();
        let began = Instant::now();
        company.expect(near(100), began, LINGER);
        assert_eq!(company.wake_at(), Some(began + QUIET));
        for step in 1..20 {
            company.came(near(1), began + QUIET * step / 2);
        }
        assert_eq!(company.wake_at(), Some(began + LINGER));
    }

    #[tokio::test(start_paused = true)]
    async fn those_who_are_far_away_are_waited_for_as_long_as_the_first_of_them_took() {
        let mut company = Company::default();
        let began = Instant::now();
        company.expect(Callers { near: 3, far: 4 }, began, LINGER);
        company.came(near(2), began);
        assert_eq!(company.wake_at(), Some(began + LINGER), "they have a way to go");
        company.came(far(1), began + QUIET * 2);
        assert_eq!(company.wake_at(), Some(began + QUIET * 4));
        company.came(far(3), began + QUIET * 3);
        assert_eq!(company.wake_at(), Some(began + QUIET * 4), "one from here is missing");
        company.end();

        // As soon as can be told.
        company.expect(far(4), began, LINGER);
        company.came(far(1), began);
        assert_eq!(company.wake_at(), Some(began + QUIET));
    }

    #[tokio::test(start_paused = true)]
    async fn waits_in_vain_become_rare_and_one_that_is_worth_it_makes_them_usual_again() {
        for kind in [near, far] {
            let mut company = Company::default();
            let now = Instant::now();
            let mut waits = 0;
            for _ in 0..1_000 {
                if company.expect(kind(10), now, LINGER) {
                    waits += 1;
                    company.came(kind(4), now);
                    company.end();
                }
            }
            assert!((10..30).contains(&waits), "{waits} of 1,000");

            while !company.expect(kind(10), now, LINGER) {}
            company.came(kind(5), now);
            company.end();
            assert!(company.expect(kind(10), now, LINGER));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn those_who_come_too_late_do_not_keep_the_others_from_being_waited_for() {
        let mut company = Company::default();
        let now = Instant::now();
        let mut waits_for_all = 0;
        for _ in 0..100 {
            assert!(company.expect(Callers { near: 4, far: 8 }, now, LINGER));
            waits_for_all += u32::from(company.wake_at() == Some(now + LINGER));
            company.came(near(4), now);
            company.end();
        }
        assert!(waits_for_all < 10, "{waits_for_all} of 100");
    }
}
