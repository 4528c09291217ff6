//! The next moment at which a driver has something to do by itself.
//!
//! One timer for all of them: the loop goes round for every few questions, and
//! a timer for each of them would be set and taken back each time.

use std::pin::Pin;

use tokio::time::{Instant, Sleep};

use super::Driver;

/// What the moment is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Alarm {
    /// Somebody's time is up.
    Deadline,
    /// The store may be asked to replace the head.
    Turn,
    /// Nobody is waited for any longer.
    Company,
    /// What was asked is handed to the publisher.
    HandOver,
    /// Maintenance may be due.
    Upkeep,
    /// Nobody has asked for long.
    Idle,
}

impl Driver {
    /// The next of them; of several at one moment the first in order of
    /// [`Alarm`]. `idle_at` where the history could be closed then; no maintenance
    /// unless it `is_quiet`.
    pub(super) fn next_alarm(
        &self,
        idle_at: Option<Instant>,
        is_quiet: bool,
    ) -> Option<(Instant, Alarm)> {
        let all = [
            (self.waiting.next_deadline(), Alarm::Deadline),
            (self.inbox.next_deadline(), Alarm::Deadline),
            (self.turn.wake_at(), Alarm::Turn),
            (self.company.wake_at(), Alarm::Company),
            (self.inbox.hand_over_at(), Alarm::HandOver),
            (self.upkeep.wake_at().filter(|_| is_quiet), Alarm::Upkeep),
            (idle_at, Alarm::Idle),
        ];
        let set = all.into_iter().filter_map(|(at, alarm)| Some((at?, alarm)));
        set.min_by_key(|(at, _)| *at)
    }

    /// What is to be done then, but for [`Alarm::Idle`].
    pub(super) fn on_alarm(&mut self, alarm: Alarm) {
        match alarm {
            Alarm::Deadline => self.on_deadline(),
            Alarm::Turn => self.on_turn(),
            Alarm::Company => self.end_company(),
            Alarm::HandOver => self.hand_in(),
            Alarm::Upkeep => self.begin_upkeep(),
            Alarm::Idle => (),
        }
    }
}

/// The alarm, once the timer that was set for it goes off.
pub(super) async fn ring(timer: Pin<&mut Sleep>, next: Option<(Instant, Alarm)>) -> Alarm {
    let Some((_, alarm)) = next else { return std::future::pending().await };
    timer.await;
    alarm
}
