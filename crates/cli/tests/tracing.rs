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
use headwater_daemon::auth::token::NewToken;
use headwater_daemon::logs::LogOptions;
use headwater_daemon::telemetry;
use headwater_daemon::telemetry::otlp::{Telemetry, TelemetryOptions};
use headwater_daemon::trace;
use headwater_proto::v1;
use headwater_proto::v1::history_service_client::HistoryServiceClient;
use headwater_store::Entropy;
use headwater_tls::{Acceptor, ClientCertificates, ServerFiles};
use opentelemetry_proto::tonic::trace::v1::Span;
use opentelemetry_proto::tonic::trace::v1::span::SpanKind;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use receiver::Received;
use support::{PATIENCE, Served};
use tonic::transport::Channel;

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

/// Lists histories, in a trace that is wanted.
async fn list(served: &Served, token: Option<&str>) -> Result<(), tonic::Code> {
    let uri = format!("http://{}", served.address);
    let channel = Channel::from_shared(uri).unwrap().connect().await.unwrap();
    let wanted = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let request = v1::ListHistoriesRequest::default();
    let mut request = tonic::Request::new(request);
    request.metadata_mut().insert("traceparent", wanted.parse().unwrap());
    if let Some(token) = token {
        let shown = format!("Bearer {token}").parse().unwrap();
        request.metadata_mut().insert("authorization", shown);
    }
    let answer = HistoryServiceClient::new(channel).list_histories(request).await;
    answer.map(drop).map_err(|it| it.code())
}

#[tokio::test(flavor = "multi_thread")]
async fn who_has_no_right_to_call_has_nothing_traced_and_the_receiver_is_reached_over_tls() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    let text = |name: &str| path(name).to_str().unwrap().to_owned();
    // The receiver's certificate, which a file of authorities of the process
    // leads to.
    let mut params = CertificateParams::new(Vec::<String>::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let ca = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
    let key = KeyPair::generate().unwrap();
    let params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
    std::fs::write(path("ca.pem"), ca.pem()).unwrap();
    std::fs::write(path("tls.crt"), params.signed_by(&key, &ca).unwrap().pem()).unwrap();
    std::fs::write(path("tls.key"), key.serialize_pem()).unwrap();
    let files = ServerFiles {
        certificate: path("tls.crt"),
        key: path("tls.key"),
        client_authorities: None,
        client_certificates: ClientCertificates::Optional,
    };
    let acceptor = Acceptor::load(files, Acceptor::GRPC).await.unwrap();
    let (received, address) = Received::listen_with(acceptor).await;
    let known = NewToken::draw(&Entropy::from_os());
    let (id, hash) = (&known.id, known.hash.to_text());
    let rights = format!(
        "[[token]]\nname = \"t\"\nid = \"{id}\"\nhash = \"{hash}\"\n\
         grants = [{{ role = \"read\", histories = [\"\"] }}]\n"
    );
    std::fs::write(path("rights.toml"), rights).unwrap();
    let endpoint = format!("https://localhost:{}", address.port());
    let (rights, authority) = (text("rights.toml"), text("ca.pem"));
    let options = ["--auth-file", &rights, "--otlp-endpoint", &endpoint, "--otlp-tls-ca"];
    let options = [&options[..], &[&authority, "--trace-sample-ratio", "0"]].concat();
    let served = Served::start_on(&path("data"), "127.0.0.1:0", &options);

    let unknown = NewToken::draw(&Entropy::from_os());
    for token in [None, Some("nonsense"), Some(unknown.text.as_str())] {
        assert_eq!(list(&served, token).await, Err(tonic::Code::Unauthenticated));
    }
    list(&served, Some(&known.text)).await.unwrap();

    // Whatever was traced has come once the process has ended.
    assert_eq!(served.stop(), 0);
    let called = "headwater.v1.HistoryService/ListHistories";
    let roots: Vec<_> = names(&received).into_iter().filter(|it| it == called).collect();
    assert_eq!(roots.len(), 1, "{:?}", names(&received));
}
