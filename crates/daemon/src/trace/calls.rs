//! The span at the root of a call's trace.
//!
//! # Invariants
//!
//! - It is made behind authentication and the limits: who has no right to call,
//!   or calls too often, has nothing traced and nothing sent, whatever its
//!   `traceparent` says.
//! - Of calls that anybody may make, as many are traced as would be anyway.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};

use futures::future::{BoxFuture, Either};
use http::{HeaderMap, Request, Response};
use hyper::body::{Body as HttpBody, Frame, SizeHint};
use tonic::body::Body;
use tonic::codegen::Service;
use tonic::{Code, Status};
use tower::Layer;
use tracing::field::Empty;
use tracing::{Instrument as _, Span};

use super::{Origin, Parent, ROOT_TARGET};
use crate::auth::methods::{self, Need};
use crate::metrics::rpc::{OTHER, code_name, is_servers_fault};

/// The layer next to all services of a process, where traces are sent.
#[derive(Clone, Debug)]
pub struct CallTraces(Arc<Sampler>);

/// Which calls begin a trace whose callers have decided nothing.
#[derive(Debug)]
struct Sampler {
    /// A draw below it does.
    below: u64,
    state: AtomicU64,
}

impl CallTraces {
    /// Of the calls that bring no trace along, the part `sampled` (0 to 1)
    /// begins one; `seed` is where the draws begin.
    pub fn new(sampled: f64, seed: u64) -> Self {
        Self(Arc::new(Sampler::new(sampled, seed)))
    }
}

impl<S> Layer<S> for CallTraces {
    type Service = Traced<S>;

    fn layer(&self, inner: S) -> Traced<S> {
        Traced { inner, sampler: Arc::clone(&self.0) }
    }
}

impl Sampler {
    fn new(part: f64, seed: u64) -> Self {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            clippy::cast_precision_loss,
            reason = "casts of floats saturate, and a chance may be off by the last bit"
        )]
        let below = (part.clamp(0.0, 1.0) * u64::MAX as f64) as u64;
        Self { below, state: AtomicU64::new(seed) }
    }

    /// Draws. Callers do not wait for each other: a counter, mixed (`SplitMix64`,
    /// Steele, Lea and Flood 2014).
    fn draw(&self) -> bool {
        const GAMMA: u64 = 0x9e37_79b9_7f4a_7c15;
        if self.below == 0 {
            return false;
        }
        let mut it = self.state.fetch_add(GAMMA, Ordering::Relaxed);
        it = (it ^ (it >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        it = (it ^ (it >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        it ^ (it >> 31) <= self.below
    }

    /// The span of a call; a disabled one where nobody wants its trace.
    fn span(&self, path: &str, headers: &HeaderMap) -> Span {
        let row = methods::find(path);
        let is_open = row.is_some_and(|it| it.need == Need::Open);
        let parent = match Origin::of_headers(headers) {
            // Of those that nobody knows, as many as would be traced anyway.
            Some(Parent::Wanted(origin)) if !is_open || self.draw() => Some(origin),
            None if self.draw() => None,
            Some(Parent::Wanted(_) | Parent::NotWanted) | None => return Span::none(),
        };
        let method = row.map_or(OTHER, |it| it.path.trim_start_matches('/'));
        let span = tracing::info_span!(
            target: ROOT_TARGET,
            parent: None,
            "rpc",
            otel.name = method,
            otel.kind = "server",
            otel.status_code = Empty,
            rpc.system.name = "grpc",
            rpc.method = method,
            rpc.response.status_code = Empty,
        );
        if let Some(origin) = parent {
            origin.adopt(&span);
        }
        span
    }
}

/// A service whose calls are traced, where that is wanted.
#[derive(Clone, Debug)]
pub struct Traced<S> {
    inner: S,
    sampler: Arc<Sampler>,
}

impl<S> Service<Request<Body>> for Traced<S>
where
    S: Service<Request<Body>, Response = Response<Body>>,
    S::Error: Send + 'static,
    S::Future: Send + 'static,
{
    type Response = Response<Body>;
    type Error = S::Error;
    type Future = Either<S::Future, BoxFuture<'static, Result<Response<Body>, S::Error>>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let span = self.sampler.span(request.uri().path(), request.headers());
        if span.is_none() {
            return Either::Left(self.inner.call(request));
        }
        let mut call = Call { span: span.clone(), code: Code::Cancelled };
        let answering = span.in_scope(|| self.inner.call(request));
        let traced = async move {
            let response = answering.await?;
            // A refusal has its status in the headers, and nothing after them.
            call.note(response.headers());
            Ok(response.map(|body| Body::new(TracedBody { body, call })))
        };
        Either::Right(Box::pin(traced.instrument(span)))
    }
}

/// A call from its beginning to its end; its span has the status it had when it
/// is dropped.
struct Call {
    span: Span,
    code: Code,
}

impl Call {
    fn note(&mut self, headers: &HeaderMap) {
        if let Some(status) = Status::from_header_map(headers) {
            self.code = status.code();
        }
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        self.span.record("rpc.response.status_code", code_name(self.code));
        if is_servers_fault(self.code) {
            self.span.record("otel.status_code", "ERROR");
        }
    }
}

struct TracedBody {
    body: Body,
    call: Call,
}

impl HttpBody for TracedBody {
    type Data = <Body as HttpBody>::Data;
    type Error = <Body as HttpBody>::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        let this = &mut *self;
        // What a stream does to make its next message is work of the call.
        let polled = this.call.span.in_scope(|| Pin::new(&mut this.body).poll_frame(cx));
        let frame = ready!(polled);
        if let Some(Ok(frame)) = &frame
            && let Some(trailers) = frame.trailers_ref()
        {
            this.call.note(trailers);
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn anybody_cannot_ask_for_traces_of_what_is_open() {
        let is_traced = |share, path: &str, flags: &str| {
            let sampler = Sampler::new(share, 1);
            let mut headers = HeaderMap::new();
            let parent = format!("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-{flags}");
            headers.insert(crate::trace::HEADER, parent.parse().unwrap());
            tracing::subscriber::with_default(tracing_subscriber::registry(), || {
                !sampler.span(path, &headers).is_none()
            })
        };
        let submit = "/headwater.v1.WriteService/Submit";
        let health = "/grpc.health.v1.Health/Check";
        assert!(is_traced(0.0, submit, "01"));
        assert!(!is_traced(0.0, health, "01"));
        assert!(is_traced(1.0, health, "01"));
        assert!(!is_traced(1.0, health, "00"));
    }

    #[test]
    fn the_share_of_traces_is_the_one_that_was_asked_for() {
        let drawn = |share| {
            let sampler = Sampler::new(share, 7);
            (0..100_000).filter(|_| sampler.draw()).count()
        };
        assert_eq!(drawn(0.0), 0);
        assert_eq!(drawn(1.0), 100_000);
        let some = drawn(0.01);
        assert!((850..1_150).contains(&some), "{some}");
    }
}
