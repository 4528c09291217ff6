//! The whole stack over a socket to an S3 endpoint that misbehaves as ordered:
//! client, gRPC, writer, object store client, and back through a replica.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot set up has failed")]

use std::sync::Arc;
use std::time::Duration;

use headwater_client::{
    Client, Consistency, Determinacy, IssueVersion, KeyRange, Operation, Outcome, ReadError,
    Reason, Session, TxnOptions,
};
use headwater_daemon::serve::{Listening, Services};
use headwater_replica::{Replica, ReplicaConfig};
use headwater_s3_double::{Fault, Gate, Op, Rule, S3Double, Wait};
use headwater_store::{
    Clock, Entropy, Layers, LayersConfig, S3Bucket, S3Credentials, S3Options, Store,
};
use headwater_writer::{Writer, WriterConfig};
use tokio_util::sync::CancellationToken;

const HISTORY: &str = "shop/stock";

#[tokio::test(flavor = "multi_thread")]
async fn a_replacement_whose_answer_is_lost_is_applied_once_and_answered_as_it_was() {
    let s3 = S3Double::start().await.unwrap();
    let process = Process::start(&s3, WriterConfig::default()).await;
    process.client.create_history(HISTORY, false).await.unwrap();

    s3.faults().on_next(Op::Put, "head.json", Fault::close_after());
    let first = accepted(process.session.submit(add(&process, 5)).await.unwrap());
    s3.faults().on_next(Op::Put, "head.json", Fault::reset_after());
    let second = accepted(process.session.submit(add(&process, 7)).await.unwrap());

    assert_eq!(sums(&first), [5]);
    assert_eq!(sums(&second), [12], "each was applied once");
    assert_eq!(process.stock(Consistency::Strong).await, 12);
    assert_eq!(process.operation_count().await, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_answer_is_found_out_though_another_writer_commits_first() {
    let s3 = S3Double::start().await.unwrap();
    let one = Process::start(&s3, WriterConfig::default()).await;
    let other = Process::start(&s3, WriterConfig::default()).await;
    one.client.create_history(HISTORY, false).await.unwrap();
    accepted(one.session.submit(add(&one, 1)).await.unwrap());

    // The answer is lost, and finding out is held until the other has committed.
    let gate = Gate::new();
    s3.faults().on_next(Op::Put, "head.json", Fault::close_after());
    let held = Fault::none().wait_before(Wait::Gate(gate.clone()));
    s3.faults().on_next(Op::Get, "head.json", held);
    let operation = add(&one, 10);
    let session = one.session.clone();
    let lost = tokio::spawn(async move { session.submit(operation).await });
    gate.arrived(1).await;
    let between = accepted(other.session.submit(add(&other, 100)).await.unwrap());
    gate.open();
    let lost = accepted(lost.await.unwrap().unwrap());

    assert_eq!(sums(&lost), [11], "the original result");
    assert_eq!(sums(&between), [111], "on top of it");
    assert!(lost.state_version < between.state_version);
    assert_eq!(other.stock(Consistency::Strong).await, 111);
    assert_eq!(other.operation_count().await, 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_answer_past_the_window_is_unknown_and_never_applied_again() {
    let s3 = S3Double::start().await.unwrap();
    let small = WriterConfig { receipt_versions_max: 2, ..WriterConfig::default() };
    let one = Process::start(&s3, small.clone()).await;
    let other = Process::start(&s3, small).await;
    one.client.create_history(HISTORY, false).await.unwrap();
    accepted(one.session.submit(add(&one, 1)).await.unwrap());

    let gate = Gate::new();
    s3.faults().on_next(Op::Put, "head.json", Fault::close_after());
    let held = Fault::none().wait_before(Wait::Gate(gate.clone()));
    s3.faults().on_next(Op::Get, "head.json", held);
    let operation = add(&one, 10);
    let session = one.session.clone();
    let lost = tokio::spawn(async move { session.submit(operation).await });
    gate.arrived(1).await;
    for _ in 0..4 {
        accepted(other.session.submit(add(&other, 100)).await.unwrap());
    }
    gate.open();

    let outcome = lost.await.unwrap().unwrap();
    assert!(matches!(outcome, Outcome::Unknown(_)), "{outcome:?}");
    assert_eq!(other.stock(Consistency::Strong).await, 411, "the lost one is in it once");
    assert_eq!(other.operation_count().await, 6);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_writer_that_dies_after_a_lost_answer_is_succeeded_by_one_that_knows() {
    let s3 = S3Double::start().await.unwrap();
    let dying = Process::start(&s3, WriterConfig::default()).await;
    dying.client.create_history(HISTORY, false).await.unwrap();
    accepted(dying.session.submit(add(&dying, 1)).await.unwrap());
    let gate = Gate::new();
    s3.faults().on_next(Op::Put, "head.json", Fault::close_after());
    let held = Fault::none().wait_before(Wait::Gate(gate.clone()));
    s3.faults().on_next(Op::Get, "head.json", held);
    let operation = add(&dying, 10).issued(IssueVersion::At(1));
    let (session, sent) = (dying.session.clone(), operation.clone());
    let lost = tokio::spawn(async move { session.submit(sent).await });
    gate.arrived(1).await;
    lost.abort();
    drop(dying);

    let heir = Process::start(&s3, WriterConfig::default()).await;
    let again = accepted(heir.session.submit(operation).await.unwrap());

    assert_eq!(sums(&again), [11]);
    assert!(again.from_receipt);
    assert_eq!(heir.stock(Consistency::Strong).await, 11);
    gate.open();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_answers_409_429_500_and_503_now_and_then_only_costs_time() {
    let s3 = S3Double::start().await.unwrap();
    let process = Process::start(&s3, WriterConfig::default()).await;
    process.client.create_history(HISTORY, false).await.unwrap();
    let faults = [
        Fault::status_before(409),
        Fault::status_after(503).with_retry_after(0),
        Fault::status_before(429),
        Fault::status_after(500),
        Fault::status_after(409),
        Fault::status_before(503),
        Fault::status_after(429),
        Fault::close_before(),
        Fault::repeat(),
    ];
    for (n, fault) in (0..).zip(faults) {
        // Each of them twice, at replacements and at what else is written.
        s3.faults()
            .add(Rule::new(fault.clone()).on(Op::Put).key_has("head.json").skip(3 * n).times(1));
        s3.faults().add(Rule::new(fault).on(Op::Put).key_has("changes/").skip(2 * n).times(1));
    }

    let value = vec![b'v'; 6_000];
    for n in 0..60 {
        // Over the inline limit, so that the candidate is uploaded.
        let operation = add(&process, 1).put(format!("filler/{n}"), value.clone());
        accepted(process.session.submit(operation).await.unwrap());
    }

    assert_eq!(process.stock(Consistency::Strong).await, 60, "each was applied once");
    assert_eq!(process.operation_count().await, 60);
}

#[tokio::test(flavor = "multi_thread")]
async fn while_the_store_is_gone_strong_reads_fail_and_others_say_their_age() {
    let mut s3 = S3Double::start().await.unwrap();
    let process = Process::start(&s3, WriterConfig::default()).await;
    process.client.create_history(HISTORY, false).await.unwrap();
    accepted(process.session.submit(add(&process, 3)).await.unwrap());
    assert_eq!(process.stock(Consistency::Strong).await, 3);

    s3.stop().await;
    let hurried = process.session.with_deadline(Duration::from_secs(2));
    let refused = hurried.get("stock", Consistency::Strong).await.unwrap_err();
    let any = hurried.get("stock", Consistency::Any).await.unwrap();
    let submitted = hurried.submit(add(&process, 1)).await.unwrap_err();

    assert!(
        matches!(&refused, ReadError::Expired(it) if it.reason == Reason::FreshnessUnverified),
        "{refused:?}"
    );
    assert_eq!(any.value.unwrap().value.as_ref(), 3_i64.to_be_bytes());
    assert!(Duration::ZERO < any.stamp.proof_age);
    // A replacement may have been on its way when the store went.
    println!("a submission meanwhile: {submitted} ({:?})", submitted.determinacy());

    s3.restart().await.unwrap();
    accepted(process.session.submit(add(&process, 2)).await.unwrap());
    let stock = process.stock(Consistency::Strong).await;
    match submitted.determinacy() {
        Determinacy::NotApplied => assert_eq!(stock, 5),
        Determinacy::MaybeApplied => assert!(stock == 5 || stock == 6, "{stock}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn bodies_cut_in_half_are_read_again() {
    let s3 = S3Double::start().await.unwrap();
    let process = Process::start(&s3, WriterConfig::default()).await;
    process.client.create_history(HISTORY, false).await.unwrap();
    let value = vec![b'v'; 100_000];
    let operation = process.client.operation().put("large", value.clone());
    accepted(process.session.submit(operation).await.unwrap());

    s3.faults().on_next(Op::Get, "head.json", Fault::half_body());
    s3.faults().on_next(Op::Get, "changes/", Fault::half_body());
    let read = process.session.get("large", Consistency::Strong).await.unwrap();

    assert_eq!(read.value.unwrap().value, value);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_transaction_that_read_up_to_a_longest_key_is_accepted() {
    let s3 = S3Double::start().await.unwrap();
    let process = Process::start(&s3, WriterConfig::default()).await;
    process.client.create_history(HISTORY, false).await.unwrap();
    let longest = "k".repeat(1_024);
    let operation = process.client.operation().put(longest.clone(), "1").put("z", "1");
    accepted(process.session.submit(operation).await.unwrap());

    let committed = process
        .session
        .transact(TxnOptions::default(), async |txn| {
            let first = txn.scan(KeyRange::all(), 1).await?.remove(0);
            txn.put("z", "2");
            Ok::<_, ReadError>(first.key)
        })
        .await
        .unwrap();

    assert_eq!(committed.value, longest);
    assert_eq!(committed.accepted.unwrap().state_version, 2);
}

/// Writer and replica over one endpoint, served on one port.
struct Process {
    client: Client,
    session: Session,
    stop: CancellationToken,
    server: tokio::task::JoinHandle<()>,
    _writer: Writer,
    _replica: Replica,
}

impl Process {
    async fn start(s3: &S3Double, config: WriterConfig) -> Self {
        let entropy = Entropy::from_os();
        let mut options = S3Options::parse(&s3.url("tests")).unwrap();
        options.credentials = Some(S3Credentials {
            access_key_id: headwater_s3_double::ACCESS_KEY_ID.to_owned(),
            secret_access_key: headwater_s3_double::SECRET_ACCESS_KEY.to_owned(),
        });
        let bucket: Arc<dyn Store> = Arc::new(S3Bucket::open(&options).unwrap());
        let store = Layers::around(bucket, LayersConfig::default(), entropy.clone()).store;
        let writer =
            headwater_writer::start(Arc::clone(&store), config, entropy.clone(), Clock::system())
                .unwrap();
        let replica = headwater_replica::start(store, ReplicaConfig::default(), entropy).unwrap();
        let listening = Listening::bind(([127, 0, 0, 1], 0).into()).await.unwrap();
        let address = listening.local_address().to_string();
        let services = Services::new()
            .with(writer.write_service())
            .with(writer.history_service())
            .with(replica.service());
        let stop = CancellationToken::new();
        let serving = listening.serve(services, stop.clone(), Duration::ZERO);
        let server = tokio::spawn(async move { serving.await.unwrap() });
        let client = Client::builder()
            .writers([address.clone()])
            .replicas([address])
            .deadline(Duration::from_secs(60))
            .build()
            .unwrap();
        let session = client.session(HISTORY);
        Self { client, session, stop, server, _writer: writer, _replica: replica }
    }

    async fn stock(&self, consistency: Consistency) -> i64 {
        let read = self.session.get("stock", consistency).await.unwrap();
        i64::from_be_bytes(read.value.unwrap().value.as_ref().try_into().unwrap())
    }

    async fn operation_count(&self) -> u64 {
        self.client.get_history(HISTORY).await.unwrap().operation_count
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.stop.cancel();
        self.server.abort();
    }
}

fn add(process: &Process, delta: i64) -> Operation {
    process.client.operation().add("stock", delta)
}

fn accepted(outcome: Outcome) -> headwater_client::Accepted {
    match outcome {
        Outcome::Accepted(accepted) => accepted,
        Outcome::Rejected(_) | Outcome::Unknown(_) => panic!("{outcome:?}"),
    }
}

fn sums(accepted: &headwater_client::Accepted) -> Vec<i64> {
    accepted.sums.iter().map(|(_, sum)| *sum).collect()
}
