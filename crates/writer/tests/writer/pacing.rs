//! A store that allows less than is asked for: everything is accepted all the
//! same, in larger batches, and the store is asked for about what it allows.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use headwater_core::decide::Ask;
use headwater_core::publish::Answer;
use headwater_proto::v1::history_service_client::HistoryServiceClient;
use headwater_store::{
    Call, Clock, Entropy, Fault, Faults, Latency, Layers, LayersConfig, Limited, Memory, Meter,
    Outcome, PaceConfig, Rule, Store,
};
use headwater_writer::{Question, Writer, WriterConfig};
use tokio::task::JoinSet;
use tokio::time::{Instant, interval, sleep};

use crate::fixture::rpc::create_request;
use crate::fixture::{NAME, Op, World, name};

const READ: Duration = Duration::from_millis(10);
const WRITE: Duration = Duration::from_millis(20);

/// A writer as a process has it, with every decorator.
struct Process {
    writer: Writer,
    store: Arc<dyn Store>,
    meter: Arc<Meter>,
}

async fn process(adapter: Arc<dyn Store>, pace: PaceConfig) -> Process {
    let world = World::over(Arc::clone(&adapter));
    world.host().create(NAME).await;
    let config = LayersConfig { pace, ..LayersConfig::default() };
    let Layers { store, meter } = Layers::around(adapter, config, Entropy::from_seed(1));
    let entropy = Entropy::from_seed(2);
    let clock = Clock::virtual_from(1_700_000_000_000);
    let config = WriterConfig::default();
    let writer = headwater_writer::start(Arc::clone(&store), config, entropy, clock);
    Process { writer: writer.unwrap(), store, meter }
}

fn submit(writer: &Writer, op: Op) -> impl Future<Output = Answer> + Send + use<> {
    let writer = writer.clone();
    let question = Question::Ask(Ask::Submit(op.operation()));
    async move { writer.ask(&name(NAME), question).await.unwrap().answer }
}

/// `per_second` operations in each second of `time`, however long they take;
/// waits for all of them. How many were accepted.
async fn load(writer: &Writer, label: &str, per_second: u32, time: Duration) -> usize {
    let mut tasks = JoinSet::new();
    let mut ticks = interval(Duration::from_millis(10));
    let began = Instant::now();
    let mut n_sent = 0;
    while began.elapsed() < time {
        ticks.tick().await;
        let due = began.elapsed().as_millis() * u128::from(per_second) / 1_000;
        while n_sent < due {
            let key = format!("k{}", n_sent % 5_000);
            let op = Op::new(format!("{label}-{n_sent}")).put(&key, &"v".repeat(100));
            tasks.spawn(submit(writer, op));
            n_sent += 1;
        }
    }
    tasks.join_all().await.iter().map(|it| assert!(is_accepted(it), "{it:?}")).count()
}

fn is_accepted(answer: &Answer) -> bool {
    matches!(answer, Answer::Accepted { .. })
}

async fn a_thousand_a_second_over_one_a_second(pace: PaceConfig) -> f64 {
    let limited = Limited::new(Arc::new(Memory::new()), Duration::from_secs(1));
    let process = process(Arc::new(Latency::new(Arc::new(limited), READ, WRITE)), pace).await;
    sleep(Duration::from_secs(3)).await;
    let began = Instant::now();

    let n_accepted = load(&process.writer, "op", 1_000, Duration::from_secs(30)).await;

    assert_eq!(n_accepted, 30_000);
    let took = began.elapsed();
    assert!(took < Duration::from_secs(34), "the last ones waited no longer: {took:?}");
    let readings = process.meter.read();
    let sent = readings.calls(Call::ReplaceHead);
    #[expect(clippy::cast_precision_loss, reason = "some dozens")]
    let per_second = sent as f64 / took.as_secs_f64();
    per_second
}

#[tokio::test(start_paused = true)]
async fn a_store_that_allows_one_replacement_a_second_is_found_out_and_obeyed() {
    let per_second = a_thousand_a_second_over_one_a_second(PaceConfig::default()).await;
    assert!(per_second < 1.3, "{per_second} replacements a second, refused ones included");
}

#[tokio::test(start_paused = true)]
async fn a_store_whose_limit_is_known_is_obeyed_from_the_first_one_on() {
    let known = PaceConfig::of_url("gs://bucket/prefix");
    let per_second = a_thousand_a_second_over_one_a_second(known).await;
    assert!(per_second < 1.0, "{per_second} replacements a second");
}

#[tokio::test(start_paused = true)]
async fn the_first_replacement_rests_after_the_creation_and_after_an_earlier_driver() {
    let limited = Limited::new(Arc::new(Memory::new()), Duration::from_secs(1));
    let adapter: Arc<dyn Store> = Arc::new(Latency::new(Arc::new(limited), READ, WRITE));
    let config =
        LayersConfig { pace: PaceConfig::of_url("gs://bucket/prefix"), ..LayersConfig::default() };
    let Layers { store, meter } = Layers::around(adapter, config, Entropy::from_seed(1));
    // Let go of at once, so that each operation has a driver of its own.
    let config = WriterConfig { history_idle_ms: 1, ..WriterConfig::default() };
    let clock = Clock::virtual_from(1_700_000_000_000);
    let writer = headwater_writer::start(store, config, Entropy::from_seed(2), clock).unwrap();
    let mut histories = HistoryServiceClient::new(writer.history_service());
    histories.create_history(create_request(NAME)).await.unwrap();

    for n in 0..5 {
        let answer = submit(&writer, Op::new(format!("op-{n}")).put("k", "v")).await;
        assert!(is_accepted(&answer), "{answer:?}");
        sleep(Duration::from_millis(20)).await;
    }

    let readings = meter.read();
    assert_eq!(readings.count(Call::ReplaceHead, Outcome::Done), 5);
    assert_eq!(readings.count(Call::ReplaceHead, Outcome::NoAnswer), 0, "none came too early");
}

/// Reads and writes of objects beside the operations: one each `every`, until
/// dropped. Panics at an error.
fn bulk(store: &Arc<dyn Store>, every: Duration) -> JoinSet<()> {
    let mut tasks = JoinSet::new();
    let store = Arc::clone(store);
    tasks.spawn(async move {
        let mut calls = JoinSet::new();
        let mut ticks = interval(every);
        for n in 0_u64.. {
            ticks.tick().await;
            let store = Arc::clone(&store);
            calls.spawn(async move {
                let began = Instant::now();
                let key = format!("bulk/chunks/{n}");
                store.put(&key, Bytes::from_static(b"x")).await.unwrap();
                assert_eq!(store.get_sized(&key, 1).await.unwrap(), "x");
                assert!(began.elapsed() < Duration::from_secs(30));
            });
            while let Some(done) = calls.try_join_next() {
                done.unwrap();
            }
        }
    });
    tasks
}

#[tokio::test(start_paused = true)]
async fn a_bucket_that_fails_every_fifth_call_for_a_minute_costs_little_and_is_forgiven() {
    const MINUTE: Duration = Duration::from_secs(60);
    let faults = Faults::new(Arc::new(Latency::new(Arc::new(Memory::new()), READ, WRITE)));
    let process = process(faults.store(), PaceConfig::default()).await;
    let (writer, meter) = (&process.writer, &process.meter);
    let mut beside = bulk(&process.store, Duration::from_millis(50));
    load(writer, "warm", 200, Duration::from_secs(2)).await;

    let before = meter.read();
    load(writer, "calm", 200, MINUTE).await;
    let calm = meter.read().since(&before);

    let share = Rule::new(Fault::Throttled(None)).percent(20, Entropy::from_seed(3));
    let rule = faults.add(share);
    let before = meter.read();
    load(writer, "bad", 200, MINUTE).await;
    let bad = meter.read().since(&before);
    faults.remove(rule);

    load(writer, "better", 200, Duration::from_secs(5)).await;
    let before = meter.read();
    let began = Instant::now();
    for n in 0..100 {
        let answer = submit(writer, Op::new(format!("after-{n}")).put("k", "v")).await;
        assert!(is_accepted(&answer));
    }
    let took = began.elapsed();
    let after = meter.read().since(&before);

    assert!(300 < bad.count(Call::Get, Outcome::Unavailable), "the bucket was bad");
    assert!(bad.total() * 2 <= calm.total() * 3, "{} for {}", bad.total(), calm.total());
    assert!(took <= WRITE * 100 + WRITE * 10, "one round trip each again: {took:?}");
    assert_eq!(after.count(Call::ReplaceHead, Outcome::Done), 100);
    while let Some(done) = beside.try_join_next() {
        done.unwrap();
    }
}
