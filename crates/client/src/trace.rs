//! Traces across processes: the W3C `traceparent` header of each attempt.
//!
//! The client knows no library of traces. It makes a `tracing` span for each
//! call, and asks a function of its user for the header while it is in that
//! span. With `tracing-opentelemetry` in the subscriber that is
//!
//! ```text
//! builder.trace_context(|| {
//!     let span = opentelemetry::Context::current().span().span_context().clone();
//!     let (trace, id, flags) = (span.trace_id(), span.span_id(), span.trace_flags());
//!     span.is_valid().then(|| format!("00-{trace}-{id}-{flags:02x}"))
//! })
//! ```

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tonic::Request;
use tonic::metadata::AsciiMetadataValue;
use tracing::Span;
use tracing::field::Empty;

/// The header of the W3C recommendation "Trace Context".
const HEADER: &str = "traceparent";
/// Its longest value of version 00, and then some for later ones.
const VALUE_LEN_MAX: usize = 128;

/// Says where in a trace a call is.
#[derive(Clone, Default)]
pub(crate) struct TraceContext(Option<Arc<Source>>);

type Source = dyn Fn() -> Option<String> + Send + Sync;

impl TraceContext {
    pub(crate) fn new(source: impl Fn() -> Option<String> + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(source)))
    }

    /// The header's value, asked for in the current span. What does not fit a
    /// header is left out: a call is worth more than its trace.
    fn value(&self) -> Option<AsciiMetadataValue> {
        let text = self.0.as_ref()?()?;
        if VALUE_LEN_MAX < text.len() {
            return None;
        }
        text.parse().ok()
    }

    /// What an attempt that begins now, in the current span, sends along.
    pub(crate) fn attempt(&self, time: Duration) -> Attempt {
        Attempt { time, traceparent: self.value() }
    }
}

impl fmt::Debug for TraceContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("TraceContext").field(&self.0.is_some()).finish()
    }
}

/// What one attempt sends along with its message.
#[derive(Clone, Debug)]
pub(crate) struct Attempt {
    time: Duration,
    traceparent: Option<AsciiMetadataValue>,
}

impl Attempt {
    /// `message` as a request that says how long it may take.
    pub(crate) fn timed<T>(self, message: T) -> Request<T> {
        let time = self.time;
        let mut request = self.open_ended(message);
        request.set_timeout(time);
        request
    }

    /// The same without a time, which would end a stream.
    pub(crate) fn open_ended<T>(self, message: T) -> Request<T> {
        let mut request = Request::new(message);
        if let Some(value) = self.traceparent {
            request.metadata_mut().insert(HEADER, value);
        }
        request
    }
}

/// The span of one call with all its attempts, named by the answer that it is
/// to have: every method of the contract answers with its own name and
/// `Response`.
pub(crate) fn span_of_call<Answer>() -> Span {
    let span = tracing::debug_span!(
        target: "headwater::trace::root",
        "call",
        otel.name = Empty,
        otel.kind = "client",
        otel.status_code = Empty,
        rpc.system.name = "grpc",
        server.address = Empty,
        headwater.attempts = Empty,
    );
    if !span.is_disabled() {
        let name = std::any::type_name::<Answer>();
        let name = name.rsplit("::").next().unwrap_or(name).trim_end_matches('>');
        span.record("otel.name", name.strip_suffix("Response").unwrap_or(name));
    }
    span
}

#[cfg(test)]
mod tests {
    use super::*;

    const VALUE: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    #[test]
    fn an_attempt_says_where_in_the_trace_it_is() {
        let traces = TraceContext::new(|| Some(VALUE.to_owned()));
        let request = traces.attempt(Duration::from_secs(1)).timed(());
        assert_eq!(request.metadata().get(HEADER).unwrap(), VALUE);
        assert!(request.metadata().get("grpc-timeout").is_some());
        let request = traces.attempt(Duration::from_secs(1)).open_ended(());
        assert!(request.metadata().get("grpc-timeout").is_none());
    }

    #[test]
    fn what_is_no_header_is_left_out() {
        for bad in ["\n".to_owned(), "x".repeat(VALUE_LEN_MAX + 1)] {
            let traces = TraceContext::new(move || Some(bad.clone()));
            assert_eq!(traces.value(), None);
        }
        assert_eq!(TraceContext::default().value(), None);
    }
}
