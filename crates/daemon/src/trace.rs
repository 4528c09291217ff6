//! Which spans are traced, and how traces go from one process to another.
//!
//! ```text
//! client call -> RPC (server) -> publish -> store call
//!                             -> freshness check -> store call
//! ```
//!
//! In here: the targets of spans that are traced, the W3C `traceparent` header,
//! the span at the root of a call ([`CallTraces`]), and the layer that makes
//! OpenTelemetry spans of them. Not in here: where
//! they go ([`crate::telemetry`]).
//!
//! # Invariants
//!
//! - A trace is decided about once, at its root: a span of [`ROOT_TARGET`] is
//!   made only where it is wanted, and one of [`TARGET`] exists only below
//!   another one. So what nobody traces costs no span, whatever it does.
//! - Spans for logs are no part of a trace. They live as long as what they
//!   describe, a history for instance, and a trace is over with its request.

mod calls;

use http::HeaderMap;
use opentelemetry::Context;
use opentelemetry::propagation::{Extractor, TextMapPropagator as _};
use opentelemetry::trace::{SpanContext, TraceContextExt as _};
use opentelemetry_sdk::propagation::TraceContextPropagator;
use opentelemetry_sdk::trace::SdkTracer;
use tracing::Span;
use tracing_opentelemetry::OpenTelemetrySpanExt as _;
use tracing_subscriber::filter::dynamic_filter_fn;
use tracing_subscriber::{Layer, Registry};

pub use self::calls::{CallTraces, Traced};

/// Target of spans that begin a trace, or go on with one from elsewhere. Made
/// only where the trace is wanted.
pub const ROOT_TARGET: &str = "headwater::trace::root";

/// Target of spans that exist below another one of a trace.
pub const TARGET: &str = "headwater::trace";

/// The header of the W3C recommendation "Trace Context".
pub const HEADER: &str = "traceparent";

/// A layer of the process's subscriber.
pub type BoxedLayer = Box<dyn Layer<Registry> + Send + Sync>;

/// Where work comes from: a span of a trace that is wanted. Goes with a request
/// to whoever works for many of them at a time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin(SpanContext);

impl Origin {
    /// The span that the caller is in, if it is traced.
    pub fn current() -> Option<Self> {
        Context::map_current(|it| it.has_active_span().then(|| it.span().span_context().clone()))
            .filter(is_wanted)
            .map(Self)
    }

    /// The caller's span by the headers of a request. `None` where there is no
    /// such header, or it does not read; the recommendation has both ignored.
    pub fn of_headers(headers: &HeaderMap) -> Option<Parent> {
        if !headers.contains_key(HEADER) {
            return None;
        }
        let context = TraceContextPropagator::new().extract(&Headers(headers));
        let span = context.span().span_context().clone();
        if !span.is_valid() {
            return None;
        }
        Some(if span.is_sampled() { Parent::Wanted(Self(span)) } else { Parent::NotWanted })
    }

    /// The value of [`HEADER`] for a call that is made for it.
    pub fn traceparent(&self) -> String {
        let Self(span) = self;
        format!("00-{}-{}-{:02x}", span.trace_id(), span.span_id(), span.trace_flags())
    }

    /// Makes `span`, which has not been entered yet, a part of the trace.
    pub fn adopt(&self, span: &Span) {
        let parent = Context::new().with_remote_span_context(self.0.clone());
        // Fails where nothing traces in this process: then there is nothing to
        // be a part of.
        let _not_traced = span.set_parent(parent);
    }

    /// Notes on `span` that it worked for this one too.
    pub fn link(&self, span: &Span) {
        span.add_link(self.0.clone());
    }
}

/// What a caller has decided about its trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Parent {
    /// It is wanted.
    Wanted(Origin),
    /// It is not, and so nothing below it.
    NotWanted,
}

fn is_wanted(span: &SpanContext) -> bool {
    span.is_valid() && span.is_sampled()
}

/// The value of [`HEADER`] for a call that is made now, if it is traced: what
/// `ClientBuilder::trace_context` of the client takes.
pub fn traceparent() -> Option<String> {
    Origin::current().map(|it| it.traceparent())
}

/// The layer that makes OpenTelemetry spans of what is traced, and of nothing
/// else.
pub fn layer(tracer: SdkTracer) -> BoxedLayer {
    // Dynamic: whether a span is below another one is not known of its place in
    // the program, which is all that other filters are asked about.
    let is_traced = dynamic_filter_fn(|span, _| match span.target() {
        ROOT_TARGET => span.is_span(),
        TARGET => span.is_span() && Context::map_current(Context::has_active_span),
        _ => false,
    });
    // The source line of every span, the thread and the idle times are for
    // whoever debugs the program: they double what is sent.
    tracing_opentelemetry::layer::<Registry>()
        .with_tracer(tracer)
        .with_location(false)
        .with_threads(false)
        .with_target(false)
        .with_tracked_inactivity(false)
        .with_filter(is_traced)
        .boxed()
}

struct Headers<'a>(&'a HeaderMap);

impl Extractor for Headers<'_> {
    fn get(&self, key: &str) -> Option<&str> {
        self.0.get(key).and_then(|it| it.to_str().ok())
    }

    fn keys(&self) -> Vec<&str> {
        self.0.keys().map(http::HeaderName::as_str).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(value: &'static str) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(HEADER, http::HeaderValue::from_static(value));
        headers
    }

    #[test]
    fn the_header_of_the_recommendation_is_read() {
        let wanted = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
        let Some(Parent::Wanted(Origin(span))) = Origin::of_headers(&headers(wanted)) else {
            panic!("the sampled flag is set");
        };
        assert_eq!(span.trace_id().to_string(), "0af7651916cd43dd8448eb211c80319c");
        assert_eq!(span.span_id().to_string(), "b7ad6b7169203331");
        let not_wanted = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00";
        assert_eq!(Origin::of_headers(&headers(not_wanted)), Some(Parent::NotWanted));
    }

    #[test]
    fn what_is_no_header_is_ignored() {
        assert_eq!(Origin::of_headers(&HeaderMap::new()), None);
        for bad in
            ["", "00", "00-0-0-01", "zz-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"]
        {
            assert_eq!(Origin::of_headers(&headers(bad)), None, "{bad:?}");
        }
    }

    #[test]
    fn nothing_is_traced_where_no_span_is() {
        assert_eq!(Origin::current(), None);
        assert_eq!(traceparent(), None);
    }
}
