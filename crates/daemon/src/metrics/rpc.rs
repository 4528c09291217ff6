//! Every call of the gRPC port: how long it took, how it ended, how many are
//! under way.
//!
//! A call is over when its last message is: the status of gRPC comes in the
//! trailers. One whose caller goes away before that counts as `CANCELLED`.

use std::collections::HashMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use headwater_proto::FILE_DESCRIPTOR_SET;
use http::{HeaderMap, Request, Response};
use hyper::body::{Body as HttpBody, Frame, SizeHint};
use opentelemetry::KeyValue;
use opentelemetry::metrics::{Counter, Histogram, Meter, UpDownCounter};
use prost::Message as _;
use prost_types::FileDescriptorSet;
use tokio::time::Instant;
use tonic::body::Body;
use tonic::codegen::Service;
use tonic::{Code, Status};
use tower::Layer;

use super::{count, seconds};

/// The method of a call that no service of ours has: one label for whatever
/// callers make up.
pub(crate) const OTHER: &str = "_OTHER";

/// How each code of gRPC is called, by its number.
const CODES: [&str; 17] = [
    "OK",
    "CANCELLED",
    "UNKNOWN",
    "INVALID_ARGUMENT",
    "DEADLINE_EXCEEDED",
    "NOT_FOUND",
    "ALREADY_EXISTS",
    "PERMISSION_DENIED",
    "RESOURCE_EXHAUSTED",
    "FAILED_PRECONDITION",
    "ABORTED",
    "OUT_OF_RANGE",
    "UNIMPLEMENTED",
    "INTERNAL",
    "UNAVAILABLE",
    "DATA_LOSS",
    "UNAUTHENTICATED",
];

/// The outermost layer around all gRPC services of a process.
#[derive(Clone, Debug)]
pub struct RpcLayer(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    duration: Histogram<f64>,
    in_flight: UpDownCounter<i64>,
    shed: Counter<u64>,
    methods: HashMap<String, usize>,
    /// By method; the last one is [`OTHER`].
    labels: Vec<MethodLabels>,
}

#[derive(Debug)]
struct MethodLabels {
    begun: [KeyValue; 2],
    /// By code.
    ended: Vec<[KeyValue; 3]>,
}

impl RpcLayer {
    /// Measures by `meter`.
    ///
    /// # Panics
    ///
    /// Where the committed descriptor set does not decode.
    pub fn new(meter: &Meter) -> Self {
        let names = names();
        let labels = names.iter().map(String::as_str).chain([OTHER]).map(labels).collect();
        let methods = names.into_iter().enumerate().map(|(n, it)| (format!("/{it}"), n)).collect();
        let in_flight = meter
            .i64_up_down_counter("headwater.rpc.in_flight")
            .with_unit("{call}")
            .with_description("Calls that are being answered, open streams included.")
            .build();
        in_flight.add(0, &[]);
        Self(Arc::new(Shared {
            duration: seconds(
                meter,
                "rpc.server.call.duration",
                "Time from the first byte of a call to its status.",
            ),
            in_flight,
            shed: count(
                meter,
                "headwater.rpc.shed",
                "{call}",
                "Calls refused because something was full: RESOURCE_EXHAUSTED.",
            ),
            methods,
            labels,
        }))
    }
}

impl<S> Layer<S> for RpcLayer {
    type Service = Rpc<S>;

    fn layer(&self, inner: S) -> Rpc<S> {
        Rpc { inner, shared: Arc::clone(&self.0) }
    }
}

/// `package.Service/Method` of every method that there is.
fn names() -> Vec<String> {
    let own = FILE_DESCRIPTOR_SET;
    let sets = [own, tonic_health::pb::FILE_DESCRIPTOR_SET].map(|it| {
        FileDescriptorSet::decode(it)
            .unwrap_or_else(|error| panic!("the descriptor set does not decode: {error}"))
    });
    let files = sets.iter().flat_map(|it| &it.file);
    let services = files.flat_map(|file| file.service.iter().map(move |it| (file.package(), it)));
    services
        .flat_map(|(package, service)| {
            let name = |it: &str| format!("{package}.{}/{it}", service.name());
            service.method.iter().map(|it| name(it.name())).collect::<Vec<_>>()
        })
        .collect()
}

fn labels(method: &str) -> MethodLabels {
    let system = KeyValue::new("rpc.system.name", "grpc");
    let name = KeyValue::new("rpc.method", method.to_owned());
    let ended = CODES.map(|code| {
        let code = KeyValue::new("rpc.response.status_code", code);
        [system.clone(), name.clone(), code]
    });
    MethodLabels { ended: ended.to_vec(), begun: [system, name] }
}

/// How a code of gRPC is called.
pub(crate) fn code_name(code: Code) -> &'static str {
    CODES[code as usize]
}

/// A service whose calls are measured.
#[derive(Clone, Debug)]
pub struct Rpc<S> {
    inner: S,
    shared: Arc<Shared>,
}

impl<S> Service<Request<Body>> for Rpc<S>
where
    S: Service<Request<Body>, Response = Response<Body>>,
    S::Future: Send + 'static,
{
    type Response = Response<Body>;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let other = self.shared.labels.len() - 1;
        let method = self.shared.methods.get(request.uri().path()).copied().unwrap_or(other);
        let mut under_way = UnderWay::begin(Arc::clone(&self.shared), method);
        let answering = self.inner.call(request);
        Box::pin(async move {
            let response = answering.await?;
            // A refusal has its status in the headers, and nothing after them.
            under_way.note(response.headers());
            Ok(response.map(|body| Body::new(Measured { body, under_way })))
        })
    }
}

/// A call from its beginning to its end; counted when it is dropped.
struct UnderWay {
    shared: Arc<Shared>,
    method: usize,
    began: Instant,
    code: Code,
}

impl UnderWay {
    fn begin(shared: Arc<Shared>, method: usize) -> Self {
        shared.in_flight.add(1, &shared.labels[method].begun);
        Self { shared, method, began: Instant::now(), code: Code::Cancelled }
    }

    fn note(&mut self, headers: &HeaderMap) {
        if let Some(status) = Status::from_header_map(headers) {
            self.code = status.code();
        }
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        let labels = &self.shared.labels[self.method];
        let code = self.code as usize;
        self.shared.in_flight.add(-1, &labels.begun);
        self.shared.duration.record(self.began.elapsed().as_secs_f64(), &labels.ended[code]);
        if self.code == Code::ResourceExhausted {
            self.shared.shed.add(1, &[]);
        }
    }
}

/// The codes that the semantic conventions count as errors of a server.
pub(crate) fn is_servers_fault(code: Code) -> bool {
    match code {
        Code::Unknown
        | Code::DeadlineExceeded
        | Code::Unimplemented
        | Code::Internal
        | Code::Unavailable
        | Code::DataLoss => true,
        Code::Ok
        | Code::Cancelled
        | Code::InvalidArgument
        | Code::NotFound
        | Code::AlreadyExists
        | Code::PermissionDenied
        | Code::ResourceExhausted
        | Code::FailedPrecondition
        | Code::Aborted
        | Code::OutOfRange
        | Code::Unauthenticated => false,
    }
}

/// An answer, watched for its status.
struct Measured {
    body: Body,
    under_way: UnderWay,
}

impl HttpBody for Measured {
    type Data = <Body as HttpBody>::Data;
    type Error = <Body as HttpBody>::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        let this = &mut *self;
        let frame = ready!(Pin::new(&mut this.body).poll_frame(cx));
        if let Some(Ok(frame)) = &frame
            && let Some(trailers) = frame.trailers_ref()
        {
            this.under_way.note(trailers);
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
#[path = "rpc_test.rs"]
mod tests;
