//! Streams over a real socket.

use std::sync::Arc;
use std::time::Duration;

use headwater_daemon::auth::{Caller, Grant, Principal, Role};
use headwater_daemon::overview::Window;
use headwater_daemon::serve::{Listening, Services};
use headwater_proto::v1::history_service_client::HistoryServiceClient;
use headwater_proto::v1::submit_stream_response::Result as Outcome;
use headwater_proto::v1::write_service_client::WriteServiceClient;
use headwater_proto::{reason, v1};
use headwater_store::{Call, Fault, Gate};
use prost::Message as _;
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_stream::StreamExt as _;
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::{CancellationToken, DropGuard};
use tonic::transport::Channel;
use tonic_types::StatusExt as _;

use crate::fixture::{Host, Op, World, look, rpc};

/// Longer than anything here takes; a test that waits for it has failed.
const PATIENCE: Duration = Duration::from_secs(20);

async fn serve(host: &Host) -> (Channel, DropGuard) {
    let listening = Listening::bind("127.0.0.1:0".parse().unwrap()).await.unwrap();
    let uri = format!("http://{}", listening.local_address());
    let stop = CancellationToken::new();
    let services =
        Services::new().with(host.writer.write_service()).with(host.writer.history_service());
    tokio::spawn(listening.serve(services, stop.clone(), Duration::ZERO));
    let channel = Channel::from_shared(uri).unwrap().connect().await.unwrap();
    (channel, stop.drop_guard())
}

fn add(id: &str) -> v1::SubmitRequest {
    let add = v1::Add { key: "n".into(), delta: 1 };
    let mutations = vec![v1::Mutation { kind: Some(v1::mutation::Kind::Add(add)) }];
    v1::SubmitRequest { mutations, ..rpc::submit_request("h", id, Vec::new()) }
}

fn place(response: &v1::SubmitStreamResponse) -> (u64, u32) {
    let Some(Outcome::Response(it)) = &response.result else { panic!("{response:?}") };
    let Some(v1::submit_response::Outcome::Accepted(it)) = &it.outcome else { panic!("{it:?}") };
    (it.state_version, it.position)
}

fn refusal(response: &v1::SubmitStreamResponse) -> String {
    let Some(Outcome::ErrorStatus(bytes)) = &response.result else { panic!("{response:?}") };
    let decoded = tonic_types::Status::decode(bytes.clone()).unwrap();
    let status = tonic::Status::with_details(
        tonic::Code::from_i32(decoded.code),
        decoded.message,
        bytes.clone(),
    );
    status.get_details_error_info().unwrap().reason
}

#[tokio::test]
async fn a_stream_keeps_the_order_in_which_operations_came() {
    let (world, host) = World::new().await;
    let (channel, _server) = serve(&host).await;
    let mut client = WriteServiceClient::new(channel);
    let requests = (0..1_000).map(|n| {
        let mut request = add(&format!("o{n}"));
        if n != 0 {
            request.history = String::new();
        }
        request
    });

    let answers = client.submit_stream(tokio_stream::iter(requests)).await.unwrap().into_inner();
    let answers: Vec<_> =
        timeout(PATIENCE, answers.collect::<Result<Vec<_>, _>>()).await.unwrap().unwrap();

    let mut places: Vec<_> = answers
        .iter()
        .map(|it| (it.operation_id[1..].parse::<u32>().unwrap(), place(it)))
        .collect();
    places.sort_unstable();
    assert_eq!(places.len(), 1_000);
    assert!(places.windows(2).all(|it| it[0].1 < it[1].1), "in the order of the stream");
    assert_eq!(look::number(&world.state().await, "n"), 1_000);
}

#[tokio::test]
async fn a_stream_goes_on_after_a_refusal() {
    let (_world, host) = World::new().await;
    let (channel, _server) = serve(&host).await;
    let mut client = WriteServiceClient::new(channel);
    let (sender, receiver) = mpsc::channel(10);
    let answers = client.submit_stream(ReceiverStream::new(receiver)).await.unwrap();
    let mut answers = answers.into_inner();
    let mut ask = async |request: v1::SubmitRequest| {
        sender.send(request).await.unwrap();
        timeout(PATIENCE, answers.next()).await.unwrap().unwrap().unwrap()
    };

    let invalid = ask(v1::SubmitRequest { mutations: Vec::new(), ..add("invalid") }).await;
    assert_eq!(
        (invalid.operation_id.as_str(), &*refusal(&invalid)),
        ("invalid", reason::FIELD_INVALID)
    );
    assert_eq!(place(&ask(add("first")).await), (1, 0));
    let elsewhere = ask(v1::SubmitRequest { history: "g".into(), ..add("elsewhere") }).await;
    assert_eq!(refusal(&elsewhere), reason::FIELD_INVALID);
    let reused = rpc::submit_request("h", "first", vec![rpc::put("k", "v")]);
    assert_eq!(refusal(&ask(reused).await), reason::OPERATION_ID_REUSED);
    let exists = v1::precondition::Kind::KeyExists("missing".into());
    let preconditions = vec![v1::Precondition { kind: Some(exists) }];
    let rejected = ask(v1::SubmitRequest { preconditions, ..add("rejected") }).await;
    let Some(Outcome::Response(response)) = rejected.result else { panic!("{rejected:?}") };
    assert!(matches!(response.outcome, Some(v1::submit_response::Outcome::Rejected(_))));
    assert_eq!(place(&ask(add("second")).await), (2, 0));
    drop(sender);
    assert!(timeout(PATIENCE, answers.next()).await.unwrap().is_none());
}

#[tokio::test]
async fn what_a_broken_stream_handed_over_is_still_decided() {
    let (world, host) = World::new().await;
    host.accept(Op::new("warm").add("n", 1)).await;
    let (channel, _server) = serve(&host).await;
    let mut client = WriteServiceClient::new(channel);
    let gate = Gate::new();
    host.faults.on_next(Call::ReplaceHead, Fault::Hold(gate.clone()));
    let (sender, receiver) = mpsc::channel(10);
    sender.send(add("o")).await.unwrap();
    let answers = client.submit_stream(ReceiverStream::new(receiver)).await.unwrap();
    timeout(PATIENCE, gate.arrived(1)).await.unwrap();

    drop((answers, sender, client));
    gate.open();

    timeout(PATIENCE, async {
        while world.head().await.state_version.get() < 2 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await
    .unwrap();
    host.accept(Op::new("next").add("n", 1)).await;
}

#[tokio::test]
async fn subscribers_are_told_of_heads_of_their_histories() {
    let (world, host) = World::new().await;
    host.create("g").await;
    let (channel, _server) = serve(&host).await;
    let mut client = WriteServiceClient::new(channel.clone());
    let (sender, receiver) = mpsc::channel(10);
    let subscribe = |name: &str| v1::SubscribeHeadsRequest { histories: vec![name.into()] };
    sender.send(subscribe("h")).await.unwrap();
    let notices = client.subscribe_heads(ReceiverStream::new(receiver)).await.unwrap();
    let mut notices = notices.into_inner();
    let mut until = async |version: u64| loop {
        let notice = timeout(PATIENCE, notices.next()).await.unwrap().unwrap().unwrap();
        assert_eq!(notice.history, "h");
        if version <= notice.state_version {
            return notice;
        }
    };

    let other = rpc::submit_request("g", "o", vec![rpc::put("k", "v")]);
    client.submit(other).await.unwrap();
    // A subscription takes a moment to arrive; a hint that came before it is
    // no loss.
    let mut n = 0;
    let notice = loop {
        n += 1;
        assert!(n < 50, "no notice comes");
        client.submit(add(&format!("o{n}"))).await.unwrap();
        if let Ok(notice) = timeout(Duration::from_millis(200), until(n)).await {
            break notice;
        }
    };

    let head = world.head().await;
    assert_eq!(notice.history_id, head.history_id.to_string());
    assert_eq!(notice.revision, head.revision.get());
    // Heads that another writer published are told once they are seen.
    world.host().accept(Op::new("theirs").add("n", 1)).await;
    client.submit(add("mine")).await.unwrap();
    until(n + 2).await;
    // A name that cannot be ends the subscription with the reason.
    sender.send(subscribe("a//b")).await.unwrap();
    let status = timeout(PATIENCE, notices.next()).await.unwrap().unwrap().unwrap_err();
    assert_eq!(rpc::fields(&status), ["histories[0]"]);
    drop(channel);
}

/// Who may read histories whose names begin so.
fn reader_of(prefix: &str) -> Arc<Caller> {
    let grant = Grant { role: Role::Read, histories: vec![prefix.to_owned()] };
    let principal = Principal {
        name: "token r".into(),
        grants: [grant].into(),
        requests_per_second: None,
        expires_at_ms: None,
    };
    Arc::new(Caller { principal: Some(principal), name: "token r".into(), peer: None })
}

#[tokio::test(start_paused = true)]
async fn a_subscription_leaves_out_what_its_caller_may_not_read_and_goes_on() {
    let (_world, host) = World::new().await;
    host.create("g").await;
    let mut client = WriteServiceClient::new(host.writer.write_service());
    let put = |id: &str| rpc::submit_request("g", id, vec![rpc::put("k", "v")]);
    client.submit(put("warm")).await.unwrap();
    client.submit(add("warm")).await.unwrap();
    let (sender, receiver) = mpsc::channel(10);
    let subscribe = |names: &[&str]| {
        let histories = names.iter().map(ToString::to_string).collect();
        v1::SubscribeHeadsRequest { histories }
    };
    let mut request = tonic::Request::new(ReceiverStream::new(receiver));
    request.extensions_mut().insert(reader_of("h"));
    sender.send(subscribe(&["g", "missing", "h"])).await.unwrap();
    let notices = client.subscribe_heads(request).await.unwrap();
    let mut notices = notices.into_inner();
    let mut told = async || timeout(Duration::from_secs(1), notices.next()).await;
    assert!(told().await.is_err(), "nothing is published yet, and the stream is open");

    for n in 0..3 {
        client.submit(put(&format!("o{n}"))).await.unwrap();
        client.submit(add(&format!("o{n}"))).await.unwrap();
        let notice = told().await.unwrap().unwrap().unwrap();
        assert_eq!((&*notice.history, notice.state_version), ("h", n + 2));
        // Asked for once more, alone.
        sender.send(subscribe(&["g"])).await.unwrap();
        assert!(told().await.is_err());
    }
    let shown = host.writer.overview(&Window::default());
    assert_eq!(shown.subscribers[0].histories, 1);
}

#[tokio::test]
async fn errors_keep_their_details_over_the_wire() {
    let (_world, host) = World::new().await;
    let (channel, _server) = serve(&host).await;
    let mut client = HistoryServiceClient::new(channel.clone());

    let status = client.get_history(v1::GetHistoryRequest { name: "x".into() }).await.unwrap_err();

    assert_eq!(rpc::reason(&status), reason::HISTORY_MISSING);
    assert_eq!(status.code(), tonic::Code::NotFound);
    // A message that is as large as an operation may be is read.
    let mutations = (0..4).map(|n| rpc::put(&format!("k{n}"), vec![0; 1_000_000])).collect();
    let mut client = WriteServiceClient::new(channel);
    client.submit(rpc::submit_request("h", "large", mutations)).await.unwrap();
}
