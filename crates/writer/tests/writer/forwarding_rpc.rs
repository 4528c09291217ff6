//! Handing over as it is between real writers: gRPC over sockets, with tokens.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::{BoxFuture, join_all};
use headwater_core::id::WriterAddress;
use headwater_core::operation::{Key, KeyRange, Precondition};
use headwater_core::publish::Answer;
use headwater_core::version::StateVersion;
use headwater_daemon::auth::Role;
use headwater_daemon::auth::token::NewToken;
use headwater_daemon::limit::LimitOptions;
use headwater_daemon::security::{Security, SecurityOptions};
use headwater_daemon::serve::{Listening, Services};
use headwater_daemon::tls::{AuthOptions, TlsOptions};
use headwater_daemon::writer_line::WriterLineOptions;
use headwater_proto::limits::MESSAGE_BYTES_MAX;
use headwater_proto::v1;
use headwater_store::{Call, Clock, Entropy, Latency, Outcome, Store};
use headwater_writer::{GrpcLine, Handed, Line, LineError, Taken, WriterConfig};
use prost::Message as _;
use tempfile::TempDir;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::fixture::network::Network;
use crate::fixture::{Host, Op, World, accepted, look, name, op, rpc};
use crate::forwarding;

/// A line that counts.
#[derive(Debug)]
struct Counted {
    line: GrpcLine,
    answered: Arc<AtomicU64>,
    refused: Arc<AtomicU64>,
}

impl Line for Counted {
    fn hand(
        &self,
        address: WriterAddress,
        handed: Handed,
    ) -> BoxFuture<'static, Result<Taken, LineError>> {
        let answer = self.line.hand(address, handed);
        let (answered, refused) = (Arc::clone(&self.answered), Arc::clone(&self.refused));
        async move {
            let answer = answer.await;
            let counter = if answer.is_ok() { answered } else { refused };
            counter.fetch_add(1, Ordering::Relaxed);
            answer
        }
        .boxed()
    }
}

/// A writer that serves, and what became of the messages that it sent.
struct Served {
    host: Host,
    address: WriterAddress,
    answered: Arc<AtomicU64>,
    refused: Arc<AtomicU64>,
    _stop: DropGuard,
}

impl Served {
    fn answered(&self) -> u64 {
        self.answered.load(Ordering::Relaxed)
    }

    fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }
}

async fn serve(
    world: &World,
    name: &str,
    line: WriterLineOptions,
    rights: Option<PathBuf>,
) -> Served {
    let listening = Listening::bind("127.0.0.1:0".parse().unwrap()).await.unwrap();
    let address = format!("http://{}", listening.local_address());
    let config = WriterConfig {
        publisher_id: name.into(),
        advertise: address.clone(),
        forward_to: vec!["127.0.0.1".into()],
        ..WriterConfig::default()
    };
    let (answered, refused) = (Arc::<AtomicU64>::default(), Arc::<AtomicU64>::default());
    let line = Counted {
        line: GrpcLine::new(line),
        answered: Arc::clone(&answered),
        refused: Arc::clone(&refused),
    };
    let way = |store| -> Arc<dyn Store> {
        Arc::new(Latency::new(store, Duration::from_millis(3), Duration::from_millis(6)))
    };
    let host = world.host_linked(config, Arc::new(line), way);
    let mut services = Services::new().with(host.writer.forward_service());
    if rights.is_some() {
        services = services.with_layer(security(rights).await.layer());
    }
    let stop = CancellationToken::new();
    tokio::spawn(listening.serve(services, stop.clone(), Duration::ZERO));
    let address = WriterAddress::parse(&address).unwrap();
    Served { host, address, answered, refused, _stop: stop.drop_guard() }
}

async fn security(auth_file: Option<PathBuf>) -> Security {
    let options = SecurityOptions {
        tls: TlsOptions::default(),
        auth: AuthOptions { auth_file, credentials_interval_ms: 5_000 },
        limits: LimitOptions::default(),
    };
    options.open(Clock::system()).await.unwrap()
}

/// Has both write at once until the second has sent messages, and they have come
/// to something.
async fn contend(a: &Served, b: &Served, label: &str) {
    let before = (b.answered(), b.refused());
    for n in 0.. {
        let op = |at: &str| Op::new(format!("{label}-{at}-{n}")).add("contend", 1);
        tokio::join!(a.host.accept(op("a")), b.host.accept(op("b")));
        if before != (b.answered(), b.refused()) {
            return;
        }
        assert!(n < 5_000, "nothing is handed over");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_kind_of_operation_and_outcome_crosses_as_it_is() {
    let world = World::empty();
    let a = serve(&world, "a", WriterLineOptions::default(), None).await;
    let b = serve(&world, "b", WriterLineOptions::default(), None).await;
    a.host.create("h").await;
    a.host.accept(Op::new("seed").put("k", "v").put("text", "t").put("gone", "v")).await;
    contend(&a, &b, "first").await;

    let now = StateVersion::new(world.head().await.state_version.get());
    let all = KeyRange::new("x/".into(), Some("x0".into())).unwrap();
    let rest = KeyRange::new("y".into(), None).unwrap();
    let bytes = |text: &str| bytes::Bytes::copy_from_slice(text.as_bytes());
    let fits = Op::new("fits")
        .if_present("k")
        .if_absent("n")
        .when(Precondition::KeyAtVersion(op::key("k"), StateVersion::new(1)))
        .when(Precondition::KeyUnchangedSince(op::key("k"), now))
        .when(Precondition::RangeUnchangedSince(all.clone(), now))
        .when(Precondition::RangeUnchangedSince(rest, now))
        .when(Precondition::ValueEquals(op::key("k"), bytes("v")))
        .when(Precondition::ValueHashEquals(
            op::key("text"),
            headwater_core::hash::ContentHash::of(b"t"),
        ))
        .put("new", "")
        .delete("gone")
        .mutate(headwater_core::operation::Mutation::DeleteRange(all))
        .add("n", 7)
        .add("n", -9);
    let stands = Op::new("stands")
        .if_absent("k")
        .if_present("nothing")
        .when(Precondition::KeyUnchangedSince(op::key("k"), StateVersion::ZERO))
        .when(Precondition::ValueEquals(op::key("k"), bytes("another")))
        .add("text", 1);
    let before = b.answered();
    let told = b.host.submit(fits.clone()).await;
    let refused = b.host.submit(stands.clone()).await;
    assert!(before < b.answered(), "they were handed over");

    // The other writer says the same of them when it is asked itself.
    let receipt = accepted(told);
    assert_eq!(a.host.accept(fits).await, receipt);
    assert_eq!(receipt.results.len(), 2);
    let Answer::Rejected { conflicts, .. } = a.host.submit(stands).await else { panic!() };
    let Answer::Rejected { conflicts: crossed, .. } = refused else { panic!("{refused:?}") };
    assert_eq!(crossed, conflicts);
    assert_eq!(world.state().await[&Key::new("new").unwrap().to_string()].0, "");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn eight_writers_over_sockets_apply_everything_once() {
    let world = World::empty();
    let line = WriterLineOptions::default;
    let mut all = Vec::new();
    for n in 0..8 {
        all.push(serve(&world, &format!("w{n}"), line(), None).await);
    }
    all[0].host.create("h").await;
    let callers = all.iter().enumerate().flat_map(|(at, served)| {
        (0..4).map(move |caller| async move {
            for n in 0..60 {
                served.host.accept(Op::new(format!("{at}-{caller}-{n}")).add("n", 1)).await;
            }
        })
    });
    join_all(callers).await;

    assert_eq!(look::number(&world.state().await, "n"), 8 * 4 * 60);
    let tail = look::tail(&world.store, &name("h")).await;
    assert!(look::applied(&tail).values().all(|it| *it == 1));
    assert_eq!(world.head().await.operation_count, 8 * 4 * 60);
    let sum = |what: fn(&Served) -> u64| all.iter().map(what).sum::<u64>();
    assert!(0 < sum(Served::answered));
    let lost = sum(|it| it.host.readings().count(Call::ReplaceHead, Outcome::Mismatch));
    let made = sum(|it| it.host.readings().count(Call::ReplaceHead, Outcome::Done));
    assert!(lost < made, "{lost} races lost for {made} replacements");
}

fn rights(folder: &TempDir, token: &NewToken, role: Role, histories: &str) -> PathBuf {
    rights_with(folder, token, role, histories, "")
}

fn rights_with(
    folder: &TempDir,
    token: &NewToken,
    role: Role,
    histories: &str,
    more: &str,
) -> PathBuf {
    let (id, hash) = (&token.id, token.hash.to_text());
    let row = format!(
        "[[token]]\nname = \"writers\"\nid = \"{id}\"\nhash = \"{hash}\"\n{more}\n\
         grants = [{{ role = \"{role}\", histories = [\"{histories}\"] }}]\n"
    );
    let path = folder.path().join("rights.toml");
    std::fs::write(&path, row).unwrap();
    std::fs::write(folder.path().join("token"), token.text.as_str()).unwrap();
    path
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_writer_shows_its_token_and_needs_what_it_takes_to_submit() {
    for (role, histories, is_taken) in
        [(Role::Write, "h", true), (Role::Read, "", false), (Role::Admin, "other", false)]
    {
        let folder = TempDir::new().unwrap();
        let path = rights(&folder, &NewToken::draw(&Entropy::from_os()), role, histories);
        let world = World::empty();
        let line = || WriterLineOptions {
            writers_token_file: Some(folder.path().join("token")),
            ..WriterLineOptions::default()
        };
        let a = serve(&world, "a", line(), Some(path.clone())).await;
        let b = serve(&world, "b", line(), Some(path)).await;
        a.host.create("h").await;
        contend(&a, &b, "rights").await;
        assert_eq!((0 < b.answered(), 0 < b.refused()), (is_taken, !is_taken), "{role:?}");
        // Its own writer decides what was refused, and is sure of it.
        let answer = b.host.submit(Op::new("stands").if_absent("contend").add("n", 1)).await;
        assert!(matches!(answer, Answer::Rejected { .. }), "{answer:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_token_nothing_is_taken() {
    let folder = TempDir::new().unwrap();
    let path = rights(&folder, &NewToken::draw(&Entropy::from_os()), Role::Admin, "");
    let world = World::empty();
    let a = serve(&world, "a", WriterLineOptions::default(), Some(path.clone())).await;
    let b = serve(&world, "b", WriterLineOptions::default(), Some(path)).await;
    a.host.create("h").await;
    contend(&a, &b, "none").await;
    assert_eq!(b.answered(), 0);
    let answer = b.host.submit(Op::new("stands").if_absent("contend").add("n", 1)).await;
    assert!(matches!(answer, Answer::Rejected { .. }), "{answer:?}");
}

/// `count` operations for the history, as another writer hands them over.
async fn handed(world: &World, number: u64, count: usize) -> Handed {
    let operations = (0..count).map(|n| Op::new(format!("{number}-{n}")).add("n", 1).operation());
    forwarding::handed(world, number, operations.collect()).await
}

/// A proxy may have sent two copies of which the first was taken.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refusal_does_not_say_that_nothing_was_taken() {
    let folder = TempDir::new().unwrap();
    let path = rights(&folder, &NewToken::draw(&Entropy::from_os()), Role::Read, "");
    let world = World::empty();
    let a = serve(&world, "a", WriterLineOptions::default(), Some(path)).await;
    a.host.create("h").await;
    let line = GrpcLine::new(WriterLineOptions::default());
    let answer = line.hand(a.address.clone(), handed(&world, 0, 1).await).await;
    assert_eq!(answer.err(), Some(LineError::NoAnswer));
    // Nobody listens here: nothing was sent.
    let nobody = WriterAddress::parse("http://127.0.0.1:1").unwrap();
    let answer = line.hand(nobody, handed(&world, 1, 1).await).await;
    assert_eq!(answer.err(), Some(LineError::NotTaken));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_operation_of_a_message_is_a_call_of_a_caller_that_has_a_rate() {
    let folder = TempDir::new().unwrap();
    let token = NewToken::draw(&Entropy::from_os());
    let rate = "requests_per_second = 10";
    let path = rights_with(&folder, &token, Role::Write, "h", rate);
    let world = World::empty();
    let options = WriterLineOptions {
        writers_token_file: Some(folder.path().join("token")),
        ..WriterLineOptions::default()
    };
    let a = serve(&world, "a", options.clone(), Some(path)).await;
    a.host.create("h").await;
    let line = GrpcLine::new(options);
    // One that is refused is one call, whatever is in it. Two of one operation
    // are far from the rate; one of many is more than a minute's.
    let messages = [(0, 1, true), (1, 1_100, false), (2, 1, true), (3, 1_000, true), (4, 1, false)];
    for (number, count, is_taken) in messages {
        let answer = line.hand(a.address.clone(), handed(&world, number, count).await).await;
        assert_eq!(answer.is_ok(), is_taken, "{number}: {:?}", answer.err());
    }
    assert_eq!(world.head().await.operation_count, 1_002);
}

/// A message of another writer.
fn message(
    history_id: &str,
    number: u64,
    operations: impl Iterator<Item = v1::SubmitRequest>,
) -> v1::ForwardRequest {
    let operations =
        operations.map(|it| v1::ForwardedOperation { request: Some(it), timeout_ms: 5_000 });
    v1::ForwardRequest {
        history: "h".into(),
        history_id: history_id.into(),
        publisher_id: "another".into(),
        life: vec![7; 16].into(),
        number,
        operations: operations.collect(),
    }
}

#[tokio::test(start_paused = true)]
async fn a_writer_that_says_no_address_takes_nothing_from_others() {
    let (world, network) = (World::empty(), Network::default());
    let (silent, named) = (world.host(), network.host(&world, "named"));
    let id = silent.create("h").await.history_id;
    let request = || {
        let operation = rpc::submit_request("", "o", vec![rpc::put("k", "v")]);
        message(&id, 0, [operation].into_iter())
    };
    let refused = silent.forward(request()).await.unwrap_err();
    assert_eq!(refused.code(), tonic::Code::Unimplemented, "{refused:?}");
    assert_eq!(world.head().await.operation_count, 0);

    named.forward(request()).await.unwrap();
    assert_eq!(world.head().await.operation_count, 1);
}

/// A rejection names keys, which may be a hundred times as long as what they
/// stand in the way of.
#[tokio::test(start_paused = true)]
async fn an_answer_to_another_writer_has_a_limit_whatever_is_rejected() {
    let (world, network) = (World::empty(), Network::default());
    let host = network.host(&world, "w");
    let id = host.create("h").await.history_id;
    host.accept(Op::new("seed").put(&"k".repeat(1_024), "v")).await;

    let stands = |n: usize| {
        let range = v1::KeyRange { start: "k".into(), end: "l".into() };
        let since = v1::RangeUnchangedSince { range: Some(range), version: 0 };
        let kind = Some(v1::precondition::Kind::RangeUnchangedSince(since));
        let operation = rpc::submit_request("", &format!("{n}"), vec![rpc::put("k", "v")]);
        v1::SubmitRequest { preconditions: vec![v1::Precondition { kind }; 64], ..operation }
    };
    let answer = host.forward(message(&id, 0, (0..200).map(stands))).await.unwrap();

    assert!(answer.encoded_len() < MESSAGE_BYTES_MAX * 5 / 8, "{} bytes", answer.encoded_len());
    let is_told = |it: &v1::ForwardedResult| match &it.result {
        Some(v1::forwarded_result::Result::Response(it)) => {
            let Some(v1::submit_response::Outcome::Rejected(it)) = &it.outcome else { panic!() };
            assert_eq!(it.conflicts.len(), 64);
            true
        }
        // It was not applied, and is decided where it comes from.
        Some(v1::forwarded_result::Result::MaybeApplied(false)) => false,
        other => panic!("{other:?}"),
    };
    let told = answer.results.iter().take_while(|it| is_told(it)).count();
    assert!((50..100).contains(&told), "{told}");
    assert!(!answer.results[told..].iter().any(is_told));
    assert_eq!(answer.results.len(), 200);
}
