//! How much callers may ask for.
//!
//! ```text
//! call -> rate of the caller -> calls of the caller -> calls of all -> bytes of all -> service
//!         messages of a stream: rate, bytes                answers <- bytes of all <--'
//! ```
//!
//! Whatever is over a limit is refused at once, before any work is done for it,
//! with `TOO_MANY_REQUESTS` and how long to stay away. No call waits in here: a
//! queue in front of a server that has too much only makes its answers late.
//! Streams that are under way do: their callers see that as flow control.
//!
//! # Invariants
//!
//! - What is counted is given back when the call's answer is finished or
//!   dropped, whichever way it ends.
//! - Every call counts towards a limit of all callers: those that anybody may make
//!   towards one of their own, so that they neither take the places of others nor
//!   are kept out by them.
//! - No caller holds more than its part of the bytes of all, so that none alone
//!   has others refused.
//! - Callers are remembered only while they have calls under way, bytes that
//!   count or a rate to pay off, until the next call of theirs or until there are
//!   [`CALLERS_MAX`], and never more.

mod bytes;
mod options;
mod rate;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;
use tonic::Status;

use self::bytes::Counters;
pub use self::bytes::{Answers, Charge, OnTheWay, Taken};
pub use self::options::LimitOptions;
use self::rate::Rate;
use crate::status;

/// Callers that are remembered at a time.
pub const CALLERS_MAX: usize = 65_536;

/// How long a caller is asked to stay away when too many calls are under way.
const RETRY_AFTER: Duration = Duration::from_millis(100);

/// The limits of one process, and what counts towards them.
#[derive(Debug)]
pub struct Limits {
    options: LimitOptions,
    state: Mutex<State>,
    /// Bytes of all callers.
    bytes: Counters,
    /// Told where answers were full and are not any more.
    has_room: Notify,
}

#[derive(Debug, Default)]
struct State {
    calls: Calls,
    callers: BTreeMap<Arc<str>, Counted>,
}

/// Which calls a call counts among. Each kind has [`LimitOptions::requests_max`]
/// places.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Those of callers with a right to them.
    Ordinary,
    /// Those that anybody may make, and that are over once they are answered.
    Open,
    /// Those of them that last: they keep no short ones out.
    OpenStream,
}

/// Calls under way.
#[derive(Debug, Default)]
struct Calls {
    ordinary: u64,
    open: u64,
    open_streams: u64,
}

impl Calls {
    fn of(&mut self, kind: Kind) -> &mut u64 {
        match kind {
            Kind::Ordinary => &mut self.ordinary,
            Kind::Open => &mut self.open,
            Kind::OpenStream => &mut self.open_streams,
        }
    }
}

#[derive(Debug)]
struct Counted {
    calls: u64,
    rate: Rate,
    bytes: Arc<Counters>,
}

impl Counted {
    /// Whether nothing of the caller is left to remember. Its answers may be on
    /// their way for longer than its calls.
    fn is_over(&self, now: Instant) -> bool {
        self.calls == 0 && self.rate.is_paid_off(now) && self.bytes.is_empty()
    }
}

impl Limits {
    /// Nothing is counted yet.
    pub fn new(options: LimitOptions) -> Arc<Self> {
        let (state, bytes, has_room) = (Mutex::default(), Counters::default(), Notify::new());
        Arc::new(Self { options, state, bytes, has_room })
    }

    /// Lets a call of `caller` in, at its own rate where it has one.
    ///
    /// # Errors
    ///
    /// `TOO_MANY_REQUESTS`.
    pub fn admit(
        self: &Arc<Self>,
        caller: &Arc<str>,
        own_rate: Option<u32>,
    ) -> Result<Permit, Status> {
        let rate_max = own_rate.or_else(|| self.options.rate());
        self.count(caller, rate_max, self.options.caller_requests_max, Kind::Ordinary)
    }

    /// Lets a call in that anybody may make: it counts among its like alone.
    ///
    /// # Errors
    ///
    /// `TOO_MANY_REQUESTS`.
    pub(crate) fn admit_open(
        self: &Arc<Self>,
        caller: &Arc<str>,
        calls_max: u64,
        is_stream: bool,
    ) -> Result<Permit, Status> {
        let kind = if is_stream { Kind::OpenStream } else { Kind::Open };
        self.count(caller, None, calls_max, kind)
    }

    fn count(
        self: &Arc<Self>,
        caller: &Arc<str>,
        rate_max: Option<u32>,
        calls_max: u64,
        kind: Kind,
    ) -> Result<Permit, Status> {
        let now = Instant::now();
        let mut state = self.state();
        if !state.callers.contains_key(caller) && CALLERS_MAX <= state.callers.len() {
            state.callers.retain(|_, it| !it.is_over(now));
            if CALLERS_MAX <= state.callers.len() {
                return Err(too_many("callers at a time", CALLERS_MAX as u64, RETRY_AFTER));
            }
        }
        let of_all_max = self.options.requests_max;
        if calls_max <= state.callers.get(caller).map_or(0, |it| it.calls) {
            return Err(too_many("calls of this caller at a time", calls_max, RETRY_AFTER));
        }
        if of_all_max <= *state.calls.of(kind) {
            return Err(too_many("calls of all callers at a time", of_all_max, RETRY_AFTER));
        }
        let key = Arc::clone(caller);
        let counted = state.callers.entry(key).or_insert_with(|| Counted {
            calls: 0,
            rate: Rate::new(now),
            bytes: Arc::default(),
        });
        if let Some(rate_max) = rate_max
            && let Err(wait) = counted.rate.take(now, rate_max)
        {
            return Err(too_many("calls of this caller a second", rate_max.into(), wait));
        }
        counted.calls += 1;
        let bytes = Arc::clone(&counted.bytes);
        *state.calls.of(kind) += 1;
        let caller = Arc::clone(caller);
        Ok(Permit { limits: Arc::clone(self), caller, bytes, rate_max, kind })
    }

    /// Calls under way, of all callers, without those that anybody may make.
    pub fn calls(&self) -> u64 {
        self.state().calls.ordinary
    }

    /// Bytes of requests that were received and are not answered.
    pub fn bytes(&self) -> u64 {
        self.bytes.requests()
    }

    /// Bytes of answers that were made and are not taken.
    pub fn answer_bytes(&self) -> u64 {
        self.bytes.answers()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Whole between its statements, so a panic elsewhere left it so.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn too_many(subject: &str, limit: u64, retry_after: Duration) -> Status {
    status::too_many_requests(subject, &limit.to_string(), retry_after)
}

/// A call that was let in. Gives its place back when it is dropped.
pub struct Permit {
    limits: Arc<Limits>,
    caller: Arc<str>,
    /// Those of the caller.
    bytes: Arc<Counters>,
    /// Its calls a second, where they are limited.
    rate_max: Option<u32>,
    /// Which calls it counts among.
    kind: Kind,
}

impl Permit {
    /// Nothing of the call's request was received yet.
    pub fn charge(&self) -> Charge {
        Charge::new(Arc::clone(&self.limits), Arc::clone(&self.bytes))
    }

    /// What answers of the call count towards, on their way over a connection.
    pub fn answers(&self, on_the_way: OnTheWay) -> Answers {
        Answers::new(Arc::clone(&self.limits), Arc::clone(&self.bytes), on_the_way)
    }

    /// Whether messages of a stream are calls of a caller that has a rate.
    pub(crate) fn has_rate(&self) -> bool {
        self.rate_max.is_some()
    }

    /// Charges the call as `count` calls more: one that carries what others send
    /// one by one. It has come already; the next call pays for it.
    pub fn owe(&self, count: u32) {
        self.take_messages(count);
    }

    /// Charges messages of a stream as calls. They have come already; the time
    /// that is returned is to pass before more of them are read.
    pub(crate) fn take_messages(&self, count: u32) -> Option<Duration> {
        let rate_max = self.rate_max?;
        let mut state = self.limits.state();
        // It is there for as long as it has a call under way.
        let counted = state.callers.get_mut(&self.caller)?;
        counted.rate.owe(Instant::now(), rate_max, count)
    }
}

impl fmt::Debug for Permit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Permit").field(&self.caller).finish()
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let now = Instant::now();
        let mut state = self.limits.state();
        *state.calls.of(self.kind) -= 1;
        if let Some(counted) = state.callers.get_mut(&self.caller) {
            counted.calls -= 1;
            if counted.is_over(now) {
                state.callers.remove(&self.caller);
            }
        }
    }
}

#[cfg(test)]
#[path = "limit_test.rs"]
mod tests;
