//! When the head may be replaced again: the rest that its store wants, and the
//! wait for a fold that has fallen behind, spent before a batch is closed.

use std::collections::VecDeque;
use std::time::Duration;

use headwater_core::head::REFERENCE_BYTES_MAX;
use headwater_core::publish::{Event, Pace};
use headwater_store::{HeadWrite, NoAnswerKind};
use tokio::time::Instant;

use super::Driver;

/// Longest time that the store is left alone because it asked for it. Callers
/// have deadlines; a store that wants minutes is down.
const REST_MAX: Duration = Duration::from_secs(5);
/// A shorter rest is over before a timer could tell.
const REST_MIN: Duration = Duration::from_millis(1);
/// Uploads are begun this much earlier than their replacement, in times of an
/// attempt: they take about one, and a little is left for a slow one.
const LEAD_ATTEMPTS: u32 = 2;

/// Others publish to the history as long as one of their heads was seen within
/// this time.
const CONTENDED: Duration = Duration::from_secs(5);
/// Who has lost a race tries again within so many attempts, for each of the
/// others: all of them together then send less than four for each replacement. A
/// bound that went on doubling would leave whoever has lost most the least
/// chance.
const AFTER_LOSS_ATTEMPTS: u32 = 4;
/// The same where few others were seen yet.
const AFTER_LOSS_ATTEMPTS_MIN: u32 = 16;
/// How long replacements of a head that is full wait for the fold under way at
/// most. A fold takes a few round trips; a store that takes longer than this for
/// them must not stop what could be accepted still, up to the hard limit.
const ROOM_WAIT_MAX: Duration = Duration::from_secs(1);

/// Others that are told apart; of more the last to publish are.
const OTHERS_MAX: usize = 64;

/// What the publisher was told about the next replacement, and what it is to be
/// told when.
#[derive(Debug, Default)]
pub(super) struct Turn {
    next: Option<(Instant, Pace)>,
    publish_at: Option<Instant>,
    /// Other processes, with the time at which a head of each was seen last; the
    /// latest comes last.
    others: VecDeque<(String, Instant)>,
    /// Whether the last replacement was lost to one of them.
    has_lost: bool,
    /// When the replacement may be sent though the head is full: what the store
    /// wants. None while no room is waited for.
    without_room_at: Option<Instant>,
    /// Since when the head is full.
    full_since: Option<Instant>,
}

impl Turn {
    /// A head of another process was seen.
    pub(super) fn met(&mut self, publisher_id: &str) {
        self.others.retain(|(id, at)| id != publisher_id && at.elapsed() < CONTENDED);
        if self.others.len() == OTHERS_MAX {
            self.others.pop_front();
        }
        self.others.push_back((publisher_id.to_owned(), Instant::now()));
    }

    /// How many others publish at the moment.
    pub(super) fn contenders(&self) -> usize {
        self.others.iter().filter(|(_, at)| at.elapsed() < CONTENDED).count()
    }

    /// Whether the last replacement was lost to another process.
    pub(super) fn has_lost(&self) -> bool {
        self.has_lost
    }

    pub(super) fn wake_at(&self) -> Option<Instant> {
        self.next.map(|(at, _)| at)
    }
}

impl Driver {
    /// After a replacement: when the next one may be sent. What the publisher
    /// is to be told, before it is told of the answer.
    pub(super) fn next_turn(&mut self, reply: &HeadWrite) -> Option<Pace> {
        self.turn.has_lost = matches!(reply, HeadWrite::Mismatch);
        self.parts.route.sent(self.turn.has_lost, self.attempt);
        let rest = self.pause_of_store(self.rest_after(reply));
        let room = self.wait_for_room();
        self.turn.without_room_at = (rest < room).then(|| Instant::now() + rest);
        self.turn_after(rest.max(room))
    }

    /// How long the next replacement waits for a fold. Replacements of a store
    /// that takes hardly any time can outrun the folds, which read, hash and
    /// compress: without this the head would grow past its soft limit for as
    /// long as they do, and cost whoever writes and reads it more each time.
    fn wait_for_room(&mut self) -> Duration {
        let config = &self.parts.config;
        // What the next replacement adds at least, and the one after it, which is
        // sent before its fold is begun.
        let next_bytes = 2 * config.batches_ahead_max * REFERENCE_BYTES_MAX;
        if self.publisher.sent_settled_bytes() + next_bytes <= config.head_soft_bytes {
            self.turn.full_since = None;
            return Duration::ZERO;
        }
        if !self.upkeep.is_making_room() {
            return Duration::ZERO;
        }
        let now = Instant::now();
        let since = *self.turn.full_since.get_or_insert(now);
        ROOM_WAIT_MAX.saturating_sub(now - since)
    }

    /// There is room now, or there will be none for a while.
    pub(super) fn end_wait_for_room(&mut self) {
        let Some(at) = self.turn.without_room_at.take() else { return };
        self.turn.publish_at = Some(at);
        self.turn.next = Some((at, Pace::Publish));
        if at <= Instant::now() {
            self.on_turn();
        }
    }

    /// Before the first replacement: an earlier driver of this process may have
    /// sent one a moment ago, or the history was created then. What other
    /// processes did is not known, and asking costs one refusal at most.
    pub(super) fn first_turn(&mut self) {
        if let Some(pace) = self.turn_after(self.pause_of_store(Duration::ZERO)) {
            let effects = self.publisher.on(Event::Paced(pace));
            self.carry_out(effects);
        }
    }

    /// At least `rest`, and as long as the store is known to want.
    fn pause_of_store(&self, rest: Duration) -> Duration {
        let known = self.parts.store.replacement_pause(&self.parts.history.head_key());
        known.max(rest).min(REST_MAX)
    }

    fn turn_after(&mut self, pause: Duration) -> Option<Pace> {
        let now = Instant::now();
        if pause < REST_MIN {
            // It was said that the replacement may be sent, or it would not
            // have been.
            (self.turn.next, self.turn.publish_at) = (None, None);
            return None;
        }
        let publish_at = now + pause;
        let lead = self.attempt.saturating_mul(LEAD_ATTEMPTS);
        let (pace, next) = match pause.checked_sub(lead) {
            Some(rest) => (Pace::Gather, (now + rest, Pace::Stage)),
            None => (Pace::Stage, (publish_at, Pace::Publish)),
        };
        (self.turn.next, self.turn.publish_at) = (Some(next), Some(publish_at));
        Some(pace)
    }

    /// The bound of the pause before another try, `doubled` being what it comes
    /// to by doubling. Where others are in the way, and not the store, it begins
    /// and ends with how many they are.
    pub(super) fn bound_of_pause(&self, doubled: Duration) -> Duration {
        if !self.turn.has_lost || doubled.is_zero() {
            return doubled;
        }
        let others = u32::try_from(self.turn.contenders()).unwrap_or(u32::MAX);
        let last = (AFTER_LOSS_ATTEMPTS * others).max(AFTER_LOSS_ATTEMPTS_MIN);
        // A store that takes no time is not to be asked without a pause.
        let attempt = self.attempt.max(REST_MIN);
        let attempts = |count: u32| attempt.saturating_mul(count);
        doubled.max(attempts(others)).min(attempts(last))
    }

    /// What the answer itself asks for.
    fn rest_after(&self, reply: &HeadWrite) -> Duration {
        match reply {
            HeadWrite::Replaced { .. } | HeadWrite::Mismatch | HeadWrite::Gone => Duration::ZERO,
            HeadWrite::NoAnswer(it) => match it.kind {
                // It names no time: at least one attempt's.
                NoAnswerKind::Throttled => it.retry_after.unwrap_or(self.attempt),
                NoAnswerKind::Conflict | NoAnswerKind::Denied | NoAnswerKind::Other => {
                    it.retry_after.unwrap_or_default()
                }
            },
        }
    }

    /// The next moment has come.
    pub(super) fn on_turn(&mut self) {
        let Some((_, pace)) = self.turn.next.take() else { return };
        if pace == Pace::Publish {
            self.turn.without_room_at = None;
        }
        if pace == Pace::Stage {
            self.turn.next = self.turn.publish_at.map(|at| (at, Pace::Publish));
        }
        let mut events = self.take_inbox();
        events.push(Event::Paced(pace));
        let effects = self.publisher.on_all(events);
        self.carry_out(effects);
    }
}
