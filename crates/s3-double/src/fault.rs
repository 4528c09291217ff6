//! What happens to which request.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use http::StatusCode;
use tokio::time::sleep;

use crate::gate::Gate;
use crate::op::{Op, Request};

/// What to wait for.
#[derive(Clone, Debug)]
pub enum Wait {
    /// This long.
    Time(Duration),
    /// Until the gate is open.
    Gate(Gate),
}

impl Wait {
    pub(crate) async fn end(&self) {
        match self {
            Self::Time(duration) => sleep(*duration).await,
            Self::Gate(gate) => gate.pass().await,
        }
    }
}

/// How often a request is applied.
#[derive(Clone, Debug)]
pub(crate) enum Apply {
    Never,
    Once,
    Twice,
    /// Once, after the answer was given, when the wait is over.
    Late(Wait),
}

/// What the client gets.
#[derive(Clone, Debug)]
pub(crate) enum Reply {
    /// The bucket's answer.
    Answer,
    /// The bucket's answer, with half of its body and then no connection.
    HalfBody,
    /// An end of the connection.
    Close,
    /// A reset of the connection.
    Reset,
    /// Another answer.
    Status { status: StatusCode, retry_after_s: Option<u64> },
}

/// What happens to one request. Made by one of the functions here, and changed
/// by the methods.
#[derive(Clone, Debug)]
pub struct Fault {
    pub(crate) before: Option<Wait>,
    pub(crate) apply: Apply,
    pub(crate) after: Option<Wait>,
    pub(crate) reply: Reply,
}

impl Fault {
    const fn new(apply: Apply, reply: Reply) -> Self {
        Self { before: None, apply, after: None, reply }
    }

    /// Nothing yet: for [`Fault::wait_before`] and [`Fault::wait_after`].
    pub const fn none() -> Self {
        Self::new(Apply::Once, Reply::Answer)
    }

    /// The connection ends and the request is lost.
    pub const fn close_before() -> Self {
        Self::new(Apply::Never, Reply::Close)
    }

    /// The request is applied, and the connection ends without an answer.
    pub const fn close_after() -> Self {
        Self::new(Apply::Once, Reply::Close)
    }

    /// The request is applied, and the connection is reset without an answer.
    pub const fn reset_after() -> Self {
        Self::new(Apply::Once, Reply::Reset)
    }

    /// Answered with `status`, and not applied.
    ///
    /// # Panics
    ///
    /// When `status` is not from 100 to 999.
    pub fn status_before(status: u16) -> Self {
        Self::status(Apply::Never, status)
    }

    /// Applied, and answered with `status`.
    ///
    /// # Panics
    ///
    /// When `status` is not from 100 to 999.
    pub fn status_after(status: u16) -> Self {
        Self::status(Apply::Once, status)
    }

    fn status(apply: Apply, status: u16) -> Self {
        let Ok(status) = StatusCode::from_u16(status) else { panic!("not a status: {status}") };
        Self::new(apply, Reply::Status { status, retry_after_s: None })
    }

    /// The connection ends without an answer; the request is applied later.
    pub const fn apply_late(wait: Wait) -> Self {
        Self::new(Apply::Late(wait), Reply::Close)
    }

    /// Applied twice, and answered as the second time was: a client or a proxy
    /// that repeats.
    pub const fn repeat() -> Self {
        Self::new(Apply::Twice, Reply::Answer)
    }

    /// The first half of the body, and the end of the connection.
    pub const fn half_body() -> Self {
        Self::new(Apply::Once, Reply::HalfBody)
    }

    /// Waits before the request is applied.
    #[must_use]
    pub fn wait_before(mut self, wait: Wait) -> Self {
        self.before = Some(wait);
        self
    }

    /// Waits between applying and answering.
    #[must_use]
    pub fn wait_after(mut self, wait: Wait) -> Self {
        self.after = Some(wait);
        self
    }

    /// Adds Retry-After to an answer of [`Fault::status_before`] or
    /// [`Fault::status_after`].
    #[must_use]
    pub fn with_retry_after(mut self, seconds: u64) -> Self {
        if let Reply::Status { retry_after_s, .. } = &mut self.reply {
            *retry_after_s = Some(seconds);
        }
        self
    }
}

/// When a fault acts. Starts as every request; each method narrows it.
#[derive(Clone, Debug)]
pub struct Rule {
    fault: Fault,
    op: Option<Op>,
    key_part: String,
    skip: u64,
    times: Option<u64>,
}

impl Rule {
    /// `fault` at every request.
    pub fn new(fault: Fault) -> Self {
        Self { fault, op: None, key_part: String::new(), skip: 0, times: None }
    }

    /// Only at requests that do this.
    #[must_use]
    pub fn on(mut self, op: Op) -> Self {
        self.op = Some(op);
        self
    }

    /// Only at keys with this in them.
    #[must_use]
    pub fn key_has(mut self, part: impl Into<String>) -> Self {
        self.key_part = part.into();
        self
    }

    /// Not at the first `n` requests that would match.
    #[must_use]
    pub fn skip(mut self, n: u64) -> Self {
        self.skip = n;
        self
    }

    /// At most `n` times.
    #[must_use]
    pub fn times(mut self, n: u64) -> Self {
        self.times = Some(n);
        self
    }

    /// Counts a request; whether the rule is due at it.
    fn is_due(&mut self, request: &Request) -> bool {
        let matches =
            self.op.is_none_or(|it| it == request.op) && request.key.contains(&self.key_part);
        if !matches {
            return false;
        }
        if 0 < self.skip {
            self.skip -= 1;
            return false;
        }
        self.times != Some(0)
    }
}

/// The faults that a test orders. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct Faults(Arc<Mutex<Vec<Rule>>>);

impl Faults {
    /// Adds a rule. Of the rules that are due, the one added first acts.
    pub fn add(&self, rule: Rule) {
        self.rules().push(rule);
    }

    /// `fault` at the next such request that no earlier rule takes.
    pub fn on_next(&self, op: Op, key_part: &str, fault: Fault) {
        self.add(Rule::new(fault).on(op).key_has(key_part).times(1));
    }

    /// Takes all rules back. Requests that wait go on waiting.
    pub fn clear(&self) {
        self.rules().clear();
    }

    pub(crate) fn take(&self, request: &Request) -> Option<Fault> {
        let mut rules = self.rules();
        let mut chosen = None;
        for (at, rule) in rules.iter_mut().enumerate() {
            if rule.is_due(request) {
                chosen = chosen.or(Some(at));
            }
        }
        let rule = &mut rules[chosen?];
        rule.times = rule.times.map(|it| it - 1);
        let fault = rule.fault.clone();
        rules.retain(|it| it.times != Some(0));
        Some(fault)
    }

    fn rules(&self) -> MutexGuard<'_, Vec<Rule>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
