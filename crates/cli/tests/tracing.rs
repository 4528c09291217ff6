//! A trace from the Rust client, over gRPC, to the store and back to a receiver.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot set up has failed")]

#[path = "support/otlp.rs"]
mod receiver;
mod support;

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::Duration;

use clap::Parser;
use futures::future::join_all;
use headwater_client::{Client, Consistency, Outcome};
use headwater_daemon::logs::LogOptions;
use headwater_daemon::telemetry;
use headwater_daemon::telemetry::otlp::{Telemetry, TelemetryOptions};
use headwater_daemon::trace;
use headwater_store::Entropy;
use opentelemetry_proto::tonic::trace::v1::Span;
use opentelemetry_proto::tonic::trace::v1::span::SpanKind;
use receiver::Received;
use support::{PATIENCE, Served};

/// Operations that are sent at once: they share publications.
const OPERATIONS: usize = 64;

#[derive(Parser)]
struct Arguments {
    #[command(flatten)]
    telemetry: TelemetryOptions,
}

/// Telemetry of this process, as a user of the client has it.
fn own_telemetry(receiver: SocketAddr) -> Telemetry {
    let endpoint = format!("http://{receiver}");
    let options = Arguments::parse_from(["test", "--otlp-endpoint", &endpoint]).telemetry;
    let telemetry = Telemetry::start("test-client", &options, &Entropy::from_os()).unwrap();
    telemetry::init(&LogOptions::default(), telemetry.trace_layer()).unwrap();
    telemetry
}

fn client(served: &Served) -> Client {
    let builder = Client::builder().writers([served.address.as_str()]);
    builder.trace_context(trace::traceparent).build().unwrap()
}

/// The spans that `find` takes, once there is one and all have come.
async fn wait_for(received: &Received, count: usize, find: impl Fn(&Span) -> bool) -> Vec<Span> {
    let found = async {
        loop {
            let mut spans = received.spans();
            spans.retain(&find);
            if count <= spans.len() {
                return spans;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    let found = tokio::time::timeout(PATIENCE, found).await;
    found.unwrap_or_else(|_| panic!("{count} spans of {:?}", names(received)))
}

fn names(received: &Received) -> Vec<String> {
    received.spans().into_iter().map(|it| it.name).collect()
}

fn is_below(parent: &Span) -> impl Fn(&Span) -> bool {
    let (trace, id) = (parent.trace_id.clone(), parent.span_id.clone());
    move |it| it.trace_id == trace && it.parent_span_id == id
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_is_joined_from_the_client_to_the_store() {
    let root = tempfile::tempdir().unwrap();
    let (received, address) = Received::listen().await;
    let endpoint = format!("http://{address}");
    // The server begins no trace: every span of it is below one of the client.
    let options = ["--otlp-endpoint", &endpoint, "--trace-sample-ratio", "0"];
    let options = [&options[..], &["--otlp-metrics-seconds", "1"]].concat();
    let served = Served::start_on(root.path(), "127.0.0.1:0", &options);
    let own = own_telemetry(address);
    let client = client(&served);
    client.create_history("traced", false).await.unwrap();
    let session = client.session("traced");

    let submissions = (0..OPERATIONS).map(|n| {
        let operation = client.operation().put(format!("key-{n}"), "value");
        session.submit(operation)
    });
    for outcome in join_all(submissions).await {
        assert!(matches!(outcome.unwrap(), Outcome::Accepted(_)));
    }
    session.get("key-1", Consistency::Strong).await.unwrap();
    own.shutdown().await;

    let calls = wait_for(&received, OPERATIONS, |it| it.name == "Submit").await;
    assert_eq!(calls.len(), OPERATIONS);
    let submit = "headwater.v1.WriteService/Submit";
    let mut rpcs = Vec::new();
    for call in &calls {
        assert_eq!(call.kind(), SpanKind::Client);
        let below = wait_for(&received, 1, is_below(call)).await;
        assert_eq!((below.len(), below[0].name.as_str()), (1, submit));
        assert_eq!(below[0].kind(), SpanKind::Server);
        rpcs.extend(below);
    }

    // Every operation is linked from the publication that accepted it.
    let id_of = |it: &Span| (it.trace_id.clone(), it.span_id.clone());
    let all: BTreeSet<_> = rpcs.iter().map(id_of).collect();
    let linked = |publications: &[Span]| -> BTreeSet<_> {
        let links = publications.iter().flat_map(|it| &it.links);
        links.map(|it| (it.trace_id.clone(), it.span_id.clone())).collect()
    };
    let found = async {
        while !linked(&received.spans()).is_superset(&all) {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(PATIENCE, found).await.expect("a link to each operation");
    let publications = wait_for(&received, 1, |it| it.name == "publish").await;
    assert!(publications.len() < OPERATIONS, "they share publications");
    assert!(linked(&publications).is_superset(&all), "it is publications that have the links");

    // And it is below one of them, with the call to the store below it.
    for publication in &publications {
        let is_parent = |it: &&Span| is_below(it)(publication);
        assert!(rpcs.iter().any(|it| is_parent(&it)), "{publication:?}");
        let below = wait_for(&received, 1, is_below(publication)).await;
        assert_eq!(below[0].name, "replace_head");
        assert_eq!(below[0].kind(), SpanKind::Client);
    }
    a_read_is_joined_too(&received).await;
    assert_eq!(served.stop(), 0);
    let metrics = received.metrics();
    assert!(metrics.contains("rpc.server.call.duration"), "{metrics:?}");
    assert!(metrics.contains("headwater.publications"), "{metrics:?}");
}

async fn a_read_is_joined_too(received: &Received) {
    let read = wait_for(received, 1, |it| it.name == "headwater.v1.ReadService/Get").await;
    let check = wait_for(received, 1, is_below(&read[0])).await;
    assert_eq!(check[0].name, "freshness_check");
    let call = wait_for(received, 1, is_below(&check[0])).await;
    assert_eq!(call[0].name, "read_head");
}
