//! How much callers may ask for.
//!
//! ```text
//! call -> rate of the caller -> calls of the caller -> calls of all -> bytes of all -> service
//! ```
//!
//! Whatever is over a limit is refused at once, before any work is done for it,
//! with `TOO_MANY_REQUESTS` and how long to stay away. Nothing waits in here: a
//! queue in front of a server that has too much only makes its answers late.
//!
//! # Invariants
//!
//! - What is counted is given back when the call's answer is finished or
//!   dropped, whichever way it ends.
//! - No caller holds more than its part of the bytes of all, so that none alone
//!   has others refused.
//! - Callers are remembered only while they have calls under way or a rate to
//!   pay off, and never more than [`CALLERS_MAX`].

mod options;
mod rate;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;
use tonic::Status;

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
    /// Bytes of requests that were received and are not answered.
    bytes: AtomicU64,
}

#[derive(Debug, Default)]
struct State {
    calls: u64,
    callers: BTreeMap<Arc<str>, Counted>,
}

#[derive(Debug)]
struct Counted {
    calls: u64,
    rate: Rate,
    /// Bytes of its requests that were received and are not answered.
    bytes: Arc<AtomicU64>,
}

impl Limits {
    /// Nothing is counted yet.
    pub fn new(options: LimitOptions) -> Arc<Self> {
        Arc::new(Self { options, state: Mutex::default(), bytes: AtomicU64::new(0) })
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
        let rate_max = own_rate.or(self.options.rate());
        self.count(caller, rate_max, self.options.caller_requests_max, true)
    }

    /// Lets a call in that counts towards nothing but its caller's own limit.
    ///
    /// # Errors
    ///
    /// `TOO_MANY_REQUESTS`.
    pub(crate) fn admit_apart(
        self: &Arc<Self>,
        caller: &Arc<str>,
        calls_max: u64,
    ) -> Result<Permit, Status> {
        self.count(caller, None, calls_max, false)
    }

    fn count(
        self: &Arc<Self>,
        caller: &Arc<str>,
        rate_max: Option<u32>,
        calls_max: u64,
        is_of_all: bool,
    ) -> Result<Permit, Status> {
        let now = Instant::now();
        let mut state = self.state();
        if !state.callers.contains_key(caller) && CALLERS_MAX <= state.callers.len() {
            state.callers.retain(|_, it| 0 < it.calls || !it.rate.is_paid_off(now));
            if CALLERS_MAX <= state.callers.len() {
                return Err(too_many("callers at a time", CALLERS_MAX as u64, RETRY_AFTER));
            }
        }
        let of_all_max = self.options.requests_max;
        if calls_max <= state.callers.get(caller).map_or(0, |it| it.calls) {
            return Err(too_many("calls of this caller at a time", calls_max, RETRY_AFTER));
        }
        if is_of_all && of_all_max <= state.calls {
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
        state.calls += u64::from(is_of_all);
        Ok(Permit { limits: Arc::clone(self), caller: Arc::clone(caller), bytes, is_of_all })
    }

    /// Calls under way, of all callers.
    pub fn calls(&self) -> u64 {
        self.state().calls
    }

    /// Bytes of requests that were received and are not answered.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
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
    bytes: Arc<AtomicU64>,
    /// Whether it counts towards the calls of all callers.
    is_of_all: bool,
}

impl Permit {
    /// Nothing of the call's request was received yet.
    pub fn charge(&self) -> Charge {
        let of_caller = Arc::clone(&self.bytes);
        Charge { limits: Arc::clone(&self.limits), of_caller, bytes: AtomicU64::new(0) }
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
        state.calls -= u64::from(self.is_of_all);
        if let Some(counted) = state.callers.get_mut(&self.caller) {
            counted.calls -= 1;
            if counted.calls == 0 && counted.rate.is_paid_off(now) {
                state.callers.remove(&self.caller);
            }
        }
    }
}

/// The bytes of one request. Gives them back when it is dropped.
#[derive(Debug)]
pub struct Charge {
    limits: Arc<Limits>,
    of_caller: Arc<AtomicU64>,
    bytes: AtomicU64,
}

impl Charge {
    /// Counts bytes that have just been received. What is refused is not
    /// counted: it is thrown away.
    ///
    /// # Errors
    ///
    /// `TOO_MANY_REQUESTS`: the requests of this caller, or all requests
    /// together, hold more than they may.
    pub fn add(&self, len: u64) -> Result<(), Status> {
        let options = &self.limits.options;
        let max = options.caller_request_bytes_max();
        if !take(&self.of_caller, len, max) {
            return Err(too_many("bytes of this caller's unanswered requests", max, RETRY_AFTER));
        }
        let max = options.request_bytes_max;
        if !take(&self.limits.bytes, len, max) {
            self.of_caller.fetch_sub(len, Ordering::Relaxed);
            return Err(too_many("bytes of unanswered requests", max, RETRY_AFTER));
        }
        self.bytes.fetch_add(len, Ordering::Relaxed);
        Ok(())
    }
}

/// Adds, unless that is over `max`.
fn take(counter: &AtomicU64, len: u64, max: u64) -> bool {
    let more = |held: u64| held.checked_add(len).filter(|it| *it <= max);
    counter.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok()
}

impl Drop for Charge {
    fn drop(&mut self) {
        let bytes = *self.bytes.get_mut();
        self.of_caller.fetch_sub(bytes, Ordering::Relaxed);
        self.limits.bytes.fetch_sub(bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
#[path = "limit_test.rs"]
mod tests;
