//! One call, over as many attempts as its deadline allows.
//!
//! # Invariants
//!
//! - Whether an attempt may have been applied is remembered for the whole call:
//!   a later refusal that says `not applied` speaks of itself only.
//! - Every attempt is bounded, so that a server that took a request and went
//!   silent costs one attempt and not the call.

use std::future::Future;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::time::Instant;
use tonic::{Request, Response, Status};
use tracing::{Instrument as _, Span};

use crate::backoff::Backoff;
use crate::credentials::Line;
use crate::failure::{Determinacy, Failure};
use crate::pool::{Pool, Route};
use crate::random::Random;
use crate::trace::{Attempt, TraceContext, span_of_call};

/// How calls are repeated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetryConfig {
    /// Pauses between attempts.
    pub backoff: Backoff,
    /// Longest wait for one attempt. It must leave a slow store time to answer:
    /// an attempt that is given up too early only adds load.
    pub attempt_max: Duration,
}

impl Default for RetryConfig {
    fn default() -> Self {
        Self { backoff: Backoff::default(), attempt_max: Duration::from_secs(15) }
    }
}

/// What a call needs besides its request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CallContext<'a> {
    pub(crate) pool: &'a Pool,
    pub(crate) route: Route<'a>,
    pub(crate) config: RetryConfig,
    pub(crate) random: &'a Random,
    pub(crate) deadline: Instant,
    pub(crate) traces: &'a TraceContext,
}

/// An answer, with what came before it.
#[derive(Debug)]
pub(crate) struct Answer<T> {
    pub(crate) value: T,
    /// Who gave it.
    pub(crate) from: SocketAddr,
    /// An earlier attempt of this call may have been applied, or may be yet.
    pub(crate) in_doubt: bool,
}

/// Why a call has no answer.
#[derive(Clone, Debug)]
pub(crate) struct GaveUp {
    /// The last failure; none where there was no time for an attempt.
    pub(crate) last: Option<Box<Failure>>,
    /// Some attempt, not only the last, may have been applied.
    pub(crate) in_doubt: bool,
    /// Whether time was what ran out: the last failure was worth repeating.
    pub(crate) is_expired: bool,
}

impl GaveUp {
    /// The last failure, or that there was no time for one.
    pub(crate) fn into_failure(self) -> Failure {
        let no_time = || Failure::not_sent("the deadline left no time for an attempt");
        self.last.map_or_else(no_time, |it| *it)
    }
}

impl CallContext<'_> {
    /// The same call as a part of one that has to be over by `deadline`.
    pub(crate) fn by(self, deadline: Instant) -> Self {
        Self { deadline, ..self }
    }

    /// Makes attempts until one is answered, one is refused for good, or the
    /// deadline leaves no time. `attempt` is given a channel and what it sends
    /// along: the time it has, and its place in a trace.
    ///
    /// Cancel safe in this sense: dropped, the call may or may not have been
    /// applied.
    pub(crate) async fn run<T, F>(
        &self,
        attempt: impl Fn(Line, Attempt) -> F,
    ) -> Result<Answer<T>, GaveUp>
    where
        F: Future<Output = Result<Response<T>, Status>>,
    {
        let span = span_of_call::<T>();
        let answer = self.run_in_span(attempt).instrument(span.clone()).await;
        if answer.is_err() {
            span.record("otel.status_code", "ERROR");
        }
        answer
    }

    async fn run_in_span<T, F>(
        &self,
        attempt: impl Fn(Line, Attempt) -> F,
    ) -> Result<Answer<T>, GaveUp>
    where
        F: Future<Output = Result<Response<T>, Status>>,
    {
        let mut state = GaveUp { last: None, in_doubt: false, is_expired: true };
        let mut failures = 0;
        let mut avoid = None;
        loop {
            let left = self.deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(state);
            }
            Span::current().record("headwater.attempts", failures + 1);
            let failure = match self.attempt_once(&attempt, avoid, left).await {
                Ok((value, from)) => {
                    return Ok(Answer { value, from, in_doubt: state.in_doubt });
                }
                Err((failure, from)) => {
                    avoid = from.filter(|_| failure.is_reason_to_move());
                    failure
                }
            };
            failures += 1;
            state.in_doubt |= failure.determinacy == Determinacy::MaybeApplied;
            let is_worth_repeating = failure.is_worth_repeating();
            let pause = self.config.backoff.pause(failures, failure.retry_after, self.random);
            tracing::debug!(attempt = failures, error = %failure, "an attempt failed");
            state.last = Some(Box::new(failure));
            if !is_worth_repeating {
                state.is_expired = false;
                return Err(state);
            }
            // Waiting for a deadline that the pause cannot meet helps nobody.
            if Instant::now() + pause >= self.deadline {
                return Err(state);
            }
            tokio::time::sleep(pause).await;
        }
    }

    async fn attempt_once<T, F>(
        &self,
        attempt: impl Fn(Line, Attempt) -> F,
        avoid: Option<SocketAddr>,
        left: Duration,
    ) -> Result<(T, SocketAddr), (Failure, Option<SocketAddr>)>
    where
        F: Future<Output = Result<Response<T>, Status>>,
    {
        let picking = self.pool.pick(self.route, avoid);
        let picked = match tokio::time::timeout(left, picking).await {
            Ok(Ok(picked)) => picked,
            Ok(Err(unresolved)) => return Err((Failure::not_sent(unresolved.to_string()), None)),
            Err(_) => return Err((Failure::not_sent("names were not resolved in time"), None)),
        };
        let from = picked.address;
        let left = self.deadline.saturating_duration_since(Instant::now());
        let time = left.min(self.config.attempt_max);
        Span::current().record("server.address", tracing::field::display(from));
        let shown = picked.token.shown();
        let attempt = attempt(picked.channel, self.traces.attempt(time));
        let attempt = async {
            tokio::select! {
                biased;
                answer = attempt => answer.map_err(|status| Failure::from_status(&status)),
                // A read changes nothing, whether it was sent or not.
                () = self.pool.is_better_elsewhere(from), if self.route.is_of_reads() => {
                    Err(Failure::not_sent("no connection in time"))
                }
            }
        };
        let mut failure = match tokio::time::timeout(time, attempt).await {
            Ok(Ok(response)) => {
                self.pool.answered(from);
                return Ok((response.into_inner(), from));
            }
            Ok(Err(failure)) => failure,
            Err(_) => Failure::unanswered(),
        };
        picked.token.look_again(shown.as_ref(), &mut failure);
        // A server is not to blame for a deadline that was too short for it.
        if failure.is_the_peers() && Instant::now() < self.deadline {
            self.pool.failed(from);
        } else {
            self.pool.answered(from);
        }
        Err((failure, Some(from)))
    }
}

/// `message` as a request that says how long it may take.
pub(crate) fn timed<T>(message: T, attempt: Attempt) -> Request<T> {
    attempt.timed(message)
}
