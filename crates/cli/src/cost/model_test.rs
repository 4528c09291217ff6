//! The model against the real writer and the real replica, in virtual time.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use headwater_core::decide::Ask;
use headwater_core::id::{HistoryId, HistoryName, OperationId};
use headwater_core::operation::{Issue, Key, Mutation, Operation, Request};
use headwater_core::publish::Answer;
use headwater_core::version::StateVersion;
use headwater_replica::ReplicaConfig;
use headwater_store::{
    Call, Clock, Entropy, Latency, Memory, Meter, Pace, PaceConfig, Readings, Store,
};
use headwater_writer::{Question, Writer, WriterConfig};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until};

use super::*;

const WRITE: Duration = Duration::from_millis(40);
const READ: Duration = Duration::from_millis(20);

fn load(operations_per_second: f64, value_bytes: u32) -> Load {
    Load {
        operations_per_second,
        value_bytes: value_bytes.into(),
        is_service_kept: false,
        replicas: 1.0,
        strong_reads_per_second: 0.0,
        is_pushed: false,
        state_bytes: 1e6,
        write_seconds: WRITE.as_secs_f64(),
        read_seconds: READ.as_secs_f64(),
        head_interval_seconds: 0.0,
        writer: WriterConfig::default(),
        // Nobody reads: it would be dropped.
        replica: ReplicaConfig { idle_ms: 86_400_000, ..ReplicaConfig::default() },
    }
}

/// Operations at random moments, `rate` a second on average, for `time`; with a
/// replica that has been read from once. What the writer and the replica asked
/// of the store.
async fn real(load: &Load, time: Duration) -> (Readings, Readings) {
    let memory: Arc<dyn Store> = Arc::new(Memory::new());
    let far: Arc<dyn Store> = Arc::new(Latency::new(memory, READ, WRITE));
    let meters = [0; 2].map(|_| Arc::new(Meter::new(Arc::clone(&far))));
    let rest = Duration::from_secs_f64(load.head_interval_seconds);
    let pace = PaceConfig { head_interval: rest, ..PaceConfig::default() };
    let stores = meters.each_ref().map(|meter| {
        let counted: Arc<dyn Store> = Arc::<Meter>::clone(meter);
        let paced: Arc<dyn Store> = Arc::new(Pace::new(counted, pace));
        paced
    });
    let entropy = Entropy::from_seed(1);
    let clock = Clock::virtual_from(1_700_000_000_000);
    let [writing, reading] = stores;
    let writer =
        headwater_writer::start(writing, load.writer.clone(), entropy.clone(), clock).unwrap();
    let replica = headwater_replica::start(reading, load.replica.clone(), entropy.clone());
    let replica = Arc::new(replica.unwrap());
    let name = HistoryName::parse("h").unwrap();
    writer.create(&name, HistoryId::from_bytes([1; 16]), false).await.unwrap();
    let reader = replica.reader(name.clone());
    let key = Key::new("k").unwrap();
    let soon = Instant::now() + Duration::from_secs(5);
    reader.get(&key, headwater_replica::Consistency::Strong, soon).await.unwrap();
    if load.is_pushed {
        let (mut notices, replica) = (writer.notices(), Arc::clone(&replica));
        tokio::spawn(async move {
            while let Ok(it) = notices.recv().await {
                crate::serve::take_in(&replica, &it);
            }
        });
    }
    sleep(Duration::from_secs(1)).await;
    let before = meters.each_ref().map(|it| it.read());
    submit_all(&writer, load, time, &entropy).await;
    let [writing, reading] = meters;
    (writing.read().since(&before[0]), reading.read().since(&before[1]))
}

async fn submit_all(writer: &Writer, load: &Load, time: Duration, entropy: &Entropy) {
    let (began, mut at, mut n) = (Instant::now(), Instant::now(), 0_u64);
    let mut tasks = JoinSet::new();
    while at < began + time {
        sleep_until(at).await;
        let operation = operation(n, load.value_bytes);
        let writer = writer.clone();
        tasks.spawn(async move {
            let name = HistoryName::parse("h").unwrap();
            let told = writer.ask(&name, Question::Ask(Ask::Submit(operation))).await.unwrap();
            assert!(matches!(told.answer, Answer::Accepted { .. }), "{told:?}");
        });
        n += 1;
        // Gaps of an exponential distribution: arrivals know nothing of each
        // other.
        #[expect(clippy::cast_precision_loss, reason = "chance")]
        let unit = (entropy.below(1 << 30) + 1) as f64 / (1_u64 << 30) as f64;
        at += Duration::from_secs_f64(-unit.ln() / load.operations_per_second);
    }
    tasks.join_all().await;
}

fn operation(n: u64, value_bytes: f64) -> Operation {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "small")]
    let value = Bytes::from(vec![b'v'; value_bytes as usize]);
    let put = Mutation::Put(Key::new(format!("key/{:012}", n % 1_000)).unwrap(), value);
    let request = Request::new(Vec::new(), vec![put]).unwrap();
    let id = OperationId::parse(&format!("00000000-0000-0000-0000-{n:012}")).unwrap();
    Operation::new(id, request, Issue::ClientKept(StateVersion::ZERO))
}

fn puts(readings: &Readings) -> f64 {
    sum(readings, &[Call::ReplaceHead, Call::Put])
}

fn gets(readings: &Readings) -> f64 {
    sum(readings, &[Call::ReadHead, Call::Get])
}

#[expect(clippy::cast_precision_loss, reason = "small")]
fn sum(readings: &Readings, calls: &[Call]) -> f64 {
    calls.iter().map(|it| readings.calls(*it)).sum::<u64>() as f64
}

#[track_caller]
fn close(what: &str, estimated: f64, real: f64, share: f64) {
    let is_close = (estimated - real).abs() <= share * real.max(1.0);
    assert!(is_close, "{what}: estimated {estimated:.1}, was {real:.1}");
}

/// Compares a load over `seconds`. A replica's reads may be off by `share`:
/// where changes are about as large as what travels in a head, what is folded
/// when is chance.
async fn check(load: Load, seconds: u32, share: f64) {
    let (writer, replica) = real(&load, Duration::from_secs(seconds.into())).await;
    let parts = load.parts();
    let all = parts.commits.plus(parts.upkeep).times(seconds.into());
    let follow = parts.replicas.times(seconds.into());
    close("puts", all.puts, puts(&writer), 0.15);
    close("gets of a replica", follow.gets, gets(&replica), share);
    #[expect(clippy::cast_precision_loss, reason = "small")]
    let (up_bytes, down_bytes) = (writer.bytes_up() as f64, replica.bytes_down() as f64);
    close("bytes up", all.up_bytes, up_bytes, 0.4);
    close("bytes down", follow.down_bytes, down_bytes, 0.7);
}

#[tokio::test(start_paused = true)]
async fn few_operations_cost_a_replacement_each() {
    check(load(1.0, 100), 4_500, 0.1).await;
}

#[tokio::test(start_paused = true)]
async fn operations_that_overlap_share_replacements() {
    check(load(20.0, 100), 400, 0.1).await;
}

#[tokio::test(start_paused = true)]
async fn large_batches_are_uploaded() {
    check(load(200.0, 1_000), 60, 0.1).await;
}

#[tokio::test(start_paused = true)]
async fn batches_at_the_edge_of_what_travels_in_the_head() {
    check(load(400.0, 100), 40, 0.4).await;
}

#[tokio::test(start_paused = true)]
async fn a_replica_that_is_told_costs_its_polls() {
    check(Load { is_pushed: true, ..load(5.0, 100) }, 1_500, 0.1).await;
}

#[tokio::test(start_paused = true)]
async fn a_head_that_rests_makes_batches_larger() {
    let rested = Load { head_interval_seconds: 1.05, ..load(100.0, 200) };
    check(rested, 120, 0.1).await;
}

#[test]
fn nothing_costs_nothing_but_polls() {
    let parts = load(0.0, 100).parts();
    assert_eq!(parts.commits.plus(parts.upkeep), Usage::default());
    assert!((parts.replicas.gets - 1.0).abs() < 1e-9);
}

#[test]
fn a_batch_is_large_as_often_as_chance_says() {
    assert!(share_above(1.0, 2.0) < 1e-9);
    assert!(1.0 - 1e-9 < share_above(3.0, 0.5));
    // One and a Poisson number of mean 3: more than 4 in all.
    assert!((share_above(4.0, 4.0) - 0.3528).abs() < 1e-3, "{}", share_above(4.0, 4.0));
    assert!((share_above(1_000.0, 1_000.0) - 0.5).abs() < 0.05);
}
