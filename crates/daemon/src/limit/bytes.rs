//! Bytes that calls hold: of requests that are not answered, and of answers that
//! are not taken.
//!
//! HTTP/2 takes an answer from the service at once, and keeps it until its
//! caller has room for it. So an answer counts until its bytes are written to
//! the connection or thrown away, and not until the service is done with it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use tonic::Status;

use super::options::Most;
use super::{Limits, RETRY_AFTER, too_many};

/// What a frame on its way out takes beside its bytes: the state of its stream,
/// and of the frame itself. So that many empty answers count too.
pub(super) const FRAME_BYTES: u64 = 1_024;

/// Bytes of one caller, or of all.
#[derive(Debug, Default)]
pub(super) struct Counters {
    requests: AtomicU64,
    answers: AtomicU64,
}

impl Counters {
    pub(super) fn requests(&self) -> u64 {
        self.requests.load(Ordering::Relaxed)
    }

    pub(super) fn answers(&self) -> u64 {
        self.answers.load(Ordering::Relaxed)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.requests() == 0 && self.answers() == 0
    }
}

/// Adds, unless that is over `max`.
fn take(counter: &AtomicU64, len: u64, max: u64) -> bool {
    let more = |held: u64| held.checked_add(len).filter(|it| *it <= max);
    counter.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok()
}

/// As [`take`], and what is larger than `max` is let through where nothing is
/// held: it would be refused for ever otherwise.
fn take_one(counter: &AtomicU64, len: u64, max: u64) -> bool {
    let more = |held: u64| held.checked_add(len).filter(|it| *it <= max || held == 0);
    counter.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok()
}

/// The bytes of one request. Gives them back when it is dropped.
#[derive(Debug)]
pub struct Charge {
    limits: Arc<Limits>,
    of_caller: Arc<Counters>,
    bytes: AtomicU64,
}

impl Charge {
    pub(super) fn new(limits: Arc<Limits>, of_caller: Arc<Counters>) -> Self {
        Self { limits, of_caller, bytes: AtomicU64::new(0) }
    }

    /// Counts bytes that have just been received. What is refused is not
    /// counted: it is thrown away.
    ///
    /// # Errors
    ///
    /// `TOO_MANY_REQUESTS`: the requests of this caller, or all requests
    /// together, hold more than they may.
    pub fn add(&self, len: u64) -> Result<(), Status> {
        let Most { of_all, of_caller } = self.limits.options.request_bytes();
        if !take(&self.of_caller.requests, len, of_caller) {
            let subject = "bytes of this caller's unanswered requests";
            return Err(too_many(subject, of_caller, RETRY_AFTER));
        }
        if !take(&self.limits.bytes.requests, len, of_all) {
            self.of_caller.requests.fetch_sub(len, Ordering::Relaxed);
            return Err(too_many("bytes of unanswered requests", of_all, RETRY_AFTER));
        }
        self.bytes.fetch_add(len, Ordering::Relaxed);
        Ok(())
    }

    /// Gives all back but `len` bytes of it.
    pub(crate) fn keep(&self, len: u64) {
        let before = self.bytes.fetch_min(len, Ordering::Relaxed);
        self.give_back(before.saturating_sub(len));
    }

    fn give_back(&self, len: u64) {
        self.of_caller.requests.fetch_sub(len, Ordering::Relaxed);
        self.limits.bytes.requests.fetch_sub(len, Ordering::Relaxed);
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        let len = *self.bytes.get_mut();
        self.give_back(len);
    }
}

/// Frames of answers on one connection. Among the extensions of its requests.
#[derive(Clone, Debug, Default)]
pub struct OnTheWay(Arc<Frames>);

#[derive(Debug, Default)]
struct Frames {
    made: AtomicU64,
    taken: AtomicU64,
}

impl OnTheWay {
    /// Frames that were taken so far, or thrown away; `None` where none is on
    /// its way.
    pub(crate) fn taken(&self) -> Option<u64> {
        let taken = self.0.taken.load(Ordering::Relaxed);
        (taken != self.0.made.load(Ordering::Relaxed)).then_some(taken)
    }
}

/// What the answers of one call count towards.
#[derive(Clone, Debug)]
pub struct Answers {
    limits: Arc<Limits>,
    of_caller: Arc<Counters>,
    on_the_way: OnTheWay,
}

impl Answers {
    pub(super) fn new(limits: Arc<Limits>, of_caller: Arc<Counters>, on_the_way: OnTheWay) -> Self {
        Self { limits, of_caller, on_the_way }
    }

    /// Counts a frame, if there is room for it.
    ///
    /// # Errors
    ///
    /// `TOO_MANY_REQUESTS`: the answers of this caller, or all together, hold
    /// more than they may. Nothing is counted.
    pub fn take(&self, len: usize) -> Result<Taken, Status> {
        let len = len as u64 + FRAME_BYTES;
        let Most { of_all, of_caller } = self.limits.options.answer_bytes();
        if !take_one(&self.of_caller.answers, len, of_caller) {
            let subject = "bytes of answers that this caller has not taken";
            return Err(too_many(subject, of_caller, RETRY_AFTER));
        }
        if !take_one(&self.limits.bytes.answers, len, of_all) {
            self.of_caller.answers.fetch_sub(len, Ordering::Relaxed);
            return Err(too_many("bytes of answers that are not taken", of_all, RETRY_AFTER));
        }
        Ok(Taken::new(self.clone(), len, len))
    }

    /// Counts a frame that cannot be refused any more: what it tells has been
    /// done, or is a part of a stream that had room when it was asked. What is
    /// over the caller's own part takes no room from others.
    pub fn hold(&self, len: usize) -> Taken {
        let len = len as u64 + FRAME_BYTES;
        let max = self.limits.options.answer_bytes().of_caller;
        let before = self.of_caller.answers.fetch_add(len, Ordering::Relaxed);
        let of_all = if before.saturating_add(len) <= max { len } else { 0 };
        self.limits.bytes.answers.fetch_add(of_all, Ordering::Relaxed);
        Taken::new(self.clone(), len, of_all)
    }

    /// Whether there is any room at all.
    pub fn has_room(&self) -> bool {
        let Most { of_all, of_caller } = self.limits.options.answer_bytes();
        self.of_caller.answers() < of_caller && self.limits.bytes.answers() < of_all
    }

    /// Waits until there is room.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe.
    pub async fn room(self) {
        loop {
            let mut given_back = std::pin::pin!(self.limits.has_room.notified());
            // From here on none is missed.
            given_back.as_mut().enable();
            if self.has_room() {
                return;
            }
            given_back.await;
        }
    }
}

/// A frame that is counted, until it is dropped.
#[derive(Debug)]
pub struct Taken {
    answers: Answers,
    len: u64,
    /// How much of it counts for all callers together.
    of_all: u64,
}

impl Taken {
    /// Its bytes are counted already.
    fn new(answers: Answers, len: u64, of_all: u64) -> Self {
        answers.on_the_way.0.made.fetch_add(1, Ordering::Relaxed);
        Self { answers, len, of_all }
    }

    /// `bytes`, which count until the last of them is dropped.
    pub fn with(self, bytes: Bytes) -> Bytes {
        Bytes::from_owner(Frame { bytes, _taken: self })
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        let Answers { limits, of_caller, on_the_way } = &self.answers;
        on_the_way.0.taken.fetch_add(1, Ordering::Relaxed);
        let Most { of_all: all_max, of_caller: caller_max } = limits.options.answer_bytes();
        let of_caller = of_caller.answers.fetch_sub(self.len, Ordering::Relaxed);
        let of_all = limits.bytes.answers.fetch_sub(self.of_all, Ordering::Relaxed);
        // Only where room has come: this is done for every answer.
        let has_come = |before: u64, len: u64, max: u64| max <= before && before - len < max;
        if has_come(of_caller, self.len, caller_max) || has_come(of_all, self.of_all, all_max) {
            limits.has_room.notify_waiters();
        }
    }
}

struct Frame {
    bytes: Bytes,
    _taken: Taken,
}

impl AsRef<[u8]> for Frame {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}
