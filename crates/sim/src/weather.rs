//! What the way between two parties does to messages.
//!
//! Everything that may go wrong on a way is drawn when a message is sent. The
//! message itself then belongs to the network: whoever sent it may die, and it
//! arrives all the same.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use headwater_store::{Call, NoAnswerKind};

use crate::dice::Dice;

/// How often something goes wrong on a way, in thousandths of its messages, and
/// how long a message takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Weather {
    /// What there and back takes together, usually.
    pub round_trip: Duration,
    /// Whether some messages take many times as long.
    pub has_long_tail: bool,
    /// Messages that do not arrive.
    pub lost_calls: u64,
    /// Answers that do not arrive.
    pub lost_replies: u64,
    /// Messages that arrive twice, the second one later.
    pub repeated: u64,
    /// Messages that arrive long after whoever sent them was told that they
    /// were lost.
    pub late: u64,
    /// Calls to the store that are answered with 409.
    pub conflicts: u64,
    /// Calls to the store that are answered with 429 or 503.
    pub throttled: u64,
    /// Calls to the store that are answered with 500, applied or not.
    pub errors: u64,
}

/// Someone who sends and receives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Party {
    Bucket,
    Process(usize),
    Client(usize),
}

/// What is going on besides the weather of each way.
#[derive(Debug, Default)]
pub(crate) struct Climate {
    cut: Mutex<BTreeSet<(Party, Party)>>,
    /// Calls to the store that are throttled on top, in thousandths.
    storm: AtomicU64,
    /// Whether nothing goes wrong any more.
    is_calm: AtomicU64,
    pub(crate) lost_replies: AtomicU64,
    pub(crate) lost_calls: AtomicU64,
    pub(crate) repeated: AtomicU64,
    pub(crate) throttled: AtomicU64,
    pub(crate) cut_off: AtomicU64,
    calls: [AtomicU64; Call::ALL.len()],
}

/// What becomes of one message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    Arrives,
    LosesCall,
    LosesReply,
    Repeats {
        after: Duration,
    },
    Late {
        after: Duration,
    },
    /// Refused by the other end, before it did anything.
    Refused {
        kind: NoAnswerKind,
        retry_after: Option<Duration>,
    },
}

/// One message's way.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Trip {
    pub(crate) there: Duration,
    pub(crate) back: Duration,
    pub(crate) fate: Fate,
}

impl Weather {
    /// Draws what becomes of a message.
    pub(crate) fn trip(&self, dice: &Dice, climate: &Climate, call: Option<Call>) -> Trip {
        let half = self.round_trip / 2;
        let time = || if self.has_long_tail { dice.long_tailed(half) } else { half };
        let (there, back) = (time(), time());
        Trip { there, back, fate: self.fate(dice, climate, call) }
    }

    fn fate(&self, dice: &Dice, climate: &Climate, call: Option<Call>) -> Fate {
        if climate.is_calm() {
            return Fate::Arrives;
        }
        if call.is_some() && dice.per_mille(climate.storm.load(Ordering::Relaxed)) {
            return throttled(dice, climate);
        }
        let lost_calls = self.lost_calls;
        let chances = [lost_calls, self.lost_replies, self.repeated, self.late];
        let store = [self.conflicts, self.throttled, self.errors];
        let sum: u64 = chances.iter().chain(store.iter().filter(|_| call.is_some())).sum();
        if sum == 0 {
            return Fate::Arrives;
        }
        let mut drawn = dice.below(1_000);
        let mut is_in = |chance: u64| {
            let is_in = drawn < chance;
            drawn = drawn.saturating_sub(chance);
            // Past the one that was drawn nothing else is.
            drawn = if is_in { u64::MAX } else { drawn };
            is_in
        };
        if is_in(lost_calls) {
            climate.lost_calls.fetch_add(1, Ordering::Relaxed);
            return Fate::LosesCall;
        }
        if is_in(self.lost_replies) {
            climate.lost_replies.fetch_add(1, Ordering::Relaxed);
            return Fate::LosesReply;
        }
        if is_in(self.repeated) {
            climate.repeated.fetch_add(1, Ordering::Relaxed);
            return Fate::Repeats { after: dice.ms(0, 400) };
        }
        if is_in(self.late) {
            climate.lost_replies.fetch_add(1, Ordering::Relaxed);
            return Fate::Late { after: dice.ms(10, 20_000) };
        }
        if call.is_none() {
            return Fate::Arrives;
        }
        if is_in(self.conflicts) {
            return Fate::Refused { kind: NoAnswerKind::Conflict, retry_after: None };
        }
        if is_in(self.throttled) {
            return throttled(dice, climate);
        }
        if is_in(self.errors) {
            if dice.percent(50) {
                climate.lost_replies.fetch_add(1, Ordering::Relaxed);
                return Fate::LosesReply;
            }
            return Fate::Refused { kind: NoAnswerKind::Other, retry_after: None };
        }
        Fate::Arrives
    }
}

fn throttled(dice: &Dice, climate: &Climate) -> Fate {
    climate.throttled.fetch_add(1, Ordering::Relaxed);
    let retry_after = dice.percent(30).then(|| dice.ms(10, 1_000));
    Fate::Refused { kind: NoAnswerKind::Throttled, retry_after }
}

impl Climate {
    /// A call is sent to the store.
    pub(crate) fn count(&self, call: Call) {
        self.calls[call as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// Calls that were sent to the store so far.
    pub(crate) fn calls(&self, call: Call) -> u64 {
        self.calls[call as usize].load(Ordering::Relaxed)
    }

    /// Whether nothing goes wrong any more.
    pub(crate) fn is_calm(&self) -> bool {
        self.is_calm.load(Ordering::Relaxed) != 0
    }

    /// Nothing goes wrong from here on.
    pub(crate) fn calm(&self) {
        self.is_calm.store(1, Ordering::Relaxed);
        self.set_storm(0);
        self.cut.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    /// Has so many thousandths of all calls to the store throttled.
    pub(crate) fn set_storm(&self, per_mille: u64) {
        self.storm.store(per_mille, Ordering::Relaxed);
    }

    /// Cuts the way between two parties, or mends it.
    pub(crate) fn set_cut(&self, a: Party, b: Party, is_cut: bool) {
        let pair = (a.min(b), a.max(b));
        let mut cut = self.cut.lock().unwrap_or_else(PoisonError::into_inner);
        if is_cut {
            cut.insert(pair);
        } else {
            cut.remove(&pair);
        }
    }

    /// Whether nothing passes between two parties.
    pub(crate) fn is_cut(&self, a: Party, b: Party) -> bool {
        let cut = self.cut.lock().unwrap_or_else(PoisonError::into_inner);
        let is_cut = !cut.is_empty() && cut.contains(&(a.min(b), a.max(b)));
        if is_cut {
            self.cut_off.fetch_add(1, Ordering::Relaxed);
        }
        is_cut
    }
}
