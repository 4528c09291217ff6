use std::convert::Infallible;
use std::future::{Ready, ready};

use bytes::Bytes;
use http_body_util::{BodyExt as _, StreamBody};
use opentelemetry::metrics::MeterProvider as _;
use opentelemetry_sdk::metrics::SdkMeterProvider;
use prometheus::{Registry, TextEncoder};
use tokio_stream::iter;

use super::*;

const SUBMIT: &str = "/headwater.v1.WriteService/Submit";

/// Answers with what it is told to.
#[derive(Clone)]
enum Answers {
    Refusal(Code),
    Message { code: &'static str },
}

impl Service<Request<Body>> for Answers {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Ready<Result<Response<Body>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request<Body>) -> Self::Future {
        ready(Ok(match self {
            Self::Refusal(code) => Status::new(*code, "no").into_http(),
            Self::Message { code } => {
                let mut trailers = HeaderMap::new();
                trailers.insert("grpc-status", http::HeaderValue::from_static(code));
                let data = Frame::data(Bytes::from_static(b"message"));
                let frames: [Result<_, Status>; 2] = [Ok(data), Ok(Frame::trailers(trailers))];
                Response::new(Body::new(StreamBody::new(iter(frames))))
            }
        }))
    }
}

struct Measured {
    registry: Registry,
    layer: RpcLayer,
    _provider: SdkMeterProvider,
}

impl Measured {
    fn new() -> Self {
        let registry = Registry::new();
        let reader =
            opentelemetry_prometheus::exporter().with_registry(registry.clone()).build().unwrap();
        let provider = SdkMeterProvider::builder().with_reader(reader).build();
        let layer = RpcLayer::new(&provider.meter("test"));
        Self { registry, layer, _provider: provider }
    }

    async fn call(&self, path: &str, answers: Answers) -> Response<Body> {
        let request = Request::builder().uri(path).body(Body::empty()).unwrap();
        self.layer.layer(answers).call(request).await.unwrap()
    }

    fn value(&self, name: &str, labels: &[&str]) -> f64 {
        let text = TextEncoder::new().encode_to_string(&self.registry.gather()).unwrap();
        let mut lines = text.lines().filter(|it| {
            it.starts_with(&format!("{name}{{")) && labels.iter().all(|label| it.contains(label))
        });
        let line = lines.next().unwrap_or_else(|| panic!("{name} {labels:?} in\n{text}"));
        line.rsplit_once(' ').unwrap().1.parse().unwrap()
    }
}

#[tokio::test]
async fn a_call_ends_with_its_trailers() {
    let measured = Measured::new();
    let answer = measured.call(SUBMIT, Answers::Message { code: "0" }).await;
    let labels = ["rpc_method=\"headwater.v1.WriteService/Submit\""];
    assert!((measured.value("headwater_rpc_in_flight", &labels) - 1.0).abs() < 0.1);

    answer.into_body().collect().await.unwrap();

    assert!(measured.value("headwater_rpc_in_flight", &labels).abs() < 0.1);
    let labels = [labels[0], "rpc_response_status_code=\"OK\"", "rpc_system_name=\"grpc\""];
    assert!((measured.value("rpc_server_call_duration_seconds_count", &labels) - 1.0).abs() < 0.1);
}

#[tokio::test]
async fn a_refusal_is_counted_by_its_code_and_shedding_by_itself() {
    let measured = Measured::new();
    for _ in 0..2 {
        drop(measured.call(SUBMIT, Answers::Refusal(Code::ResourceExhausted)).await);
    }
    drop(measured.call(SUBMIT, Answers::Refusal(Code::Internal)).await);

    let count = "rpc_server_call_duration_seconds_count";
    let shed = ["rpc_response_status_code=\"RESOURCE_EXHAUSTED\""];
    assert!((measured.value(count, &shed) - 2.0).abs() < 0.1);
    assert!((measured.value(count, &["\"INTERNAL\""]) - 1.0).abs() < 0.1);
    assert!((measured.value("headwater_rpc_shed_total", &[]) - 2.0).abs() < 0.1);
}

#[tokio::test]
async fn an_answer_that_nobody_reads_to_its_end_was_cancelled() {
    let measured = Measured::new();
    drop(measured.call(SUBMIT, Answers::Message { code: "0" }).await);

    let count = "rpc_server_call_duration_seconds_count";
    assert!((measured.value(count, &["\"CANCELLED\""]) - 1.0).abs() < 0.1);
}

#[tokio::test]
async fn paths_that_callers_make_up_are_one_label() {
    let measured = Measured::new();
    for path in ["/a.B/C", "/headwater.v1.WriteService/submit", "/"] {
        drop(measured.call(path, Answers::Refusal(Code::Unimplemented)).await);
    }
    let count = "rpc_server_call_duration_seconds_count";
    assert!((measured.value(count, &["rpc_method=\"_OTHER\""]) - 3.0).abs() < 0.1);
}

#[test]
fn every_method_of_the_contract_is_known() {
    let methods = names();
    for method in ["headwater.v1.ReadService/Get", "headwater.v1.WatchService/Watch"] {
        assert!(methods.iter().any(|it| it == method), "{method} of {methods:?}");
    }
    assert!(methods.iter().any(|it| it == "grpc.health.v1.Health/Check"));
}
