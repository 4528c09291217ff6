//! Replicas: how soon they see a commit, what they cost the writer, and what
//! they ask while nothing happens.

use std::sync::Arc;
use std::time::Duration;

use headwater_replica::{Consistency, PushedHead, Replica, ReplicaConfig};
use headwater_store::{Call, Meter, Readings};
use headwater_writer::{HeadNotice, PublishedHead, Writer};
use tokio::sync::broadcast::error::RecvError;
use tokio::task::{JoinHandle, yield_now};
use tokio::time::{Instant, sleep};

use crate::Plan;
use crate::load::{self, Measured};
use crate::report::{Line, line};
use crate::system::{BoxError, World};

/// Puts one after the other; after each, how long until the replica has it.
pub(super) async fn lag(plan: Plan) -> Result<Vec<Line>, BoxError> {
    let mut lines = Vec::new();
    for is_pushed in [true, false] {
        let world = World::new(plan).await?;
        let (writer, _) = world.writer()?;
        let (replica, meter) = world.replica(ReplicaConfig::default()).await?;
        let replica = Arc::new(replica);
        let told = is_pushed.then(|| tell(&writer, &replica));
        let putter = world.putter(&writer, plan.value_bytes);
        let reader = replica.reader(world.history.clone());
        let mut measured = Measured::empty(plan.time);
        let (before, end) = (meter.read(), Instant::now() + plan.time);
        let mut n = 0;
        while Instant::now() < end {
            let version = putter.put_version(0, n).await?;
            n += 1;
            let acknowledged = Instant::now();
            // Whatever is at hand: a read that asked for more would make the
            // replica look.
            while reader.pin(Consistency::Any, end + plan.time).await?.view().version() < version {
                if plan.time + Duration::from_secs(10) < acknowledged.elapsed() {
                    return Err("the replica does not follow".into());
                }
                yield_now().await;
            }
            measured.note(acknowledged.elapsed(), true);
        }
        let floor_ms = plan.read.as_secs_f64() * 1_000.0;
        let store = meter.read().since(&before);
        let pushed = f64::from(u8::from(is_pushed));
        lines.push(line("follow-lag", plan, floor_ms, &measured, &store).with("pushed", pushed));
        stop(writer, [replica], told).await;
    }
    Ok(lines)
}

/// Puts with nobody following, with `plan.replicas` that look for themselves,
/// and with as many that are told: those do the work of each version, all of
/// them in this process.
pub(super) async fn replicas(plan: Plan) -> Result<Vec<Line>, BoxError> {
    let mut lines = Vec::new();
    let mut alone = None;
    for (count, is_pushed) in [(0, false), (plan.replicas, false), (plan.replicas, true)] {
        let world = World::new(plan).await?;
        let (writer, meter) = world.writer()?;
        let mut followers = Vec::new();
        let mut told = Vec::new();
        for _ in 0..count {
            let (replica, _) = world.replica(ReplicaConfig::default()).await?;
            let replica = Arc::new(replica);
            told.extend(is_pushed.then(|| tell(&writer, &replica)));
            followers.push(replica);
        }
        let putter = world.putter(&writer, plan.value_bytes);
        let call = move |caller, n| {
            let putter = putter.clone();
            async move { putter.put(caller, n).await }
        };
        let before = meter.read();
        let measured = load::run(plan.callers, plan.time, call, || ()).await;
        let store = meter.read().since(&before);
        let floor_ms = plan.write.as_secs_f64() * 1_000.0;
        let rate = measured.rate();
        let to_none = rate / *alone.get_or_insert(rate);
        #[expect(clippy::cast_precision_loss, reason = "a figure for people")]
        let count = count as f64;
        let line = line("replicas", plan, floor_ms, &measured, &store);
        let pushed = f64::from(u8::from(is_pushed));
        lines.push(line.with("replicas", count).with("pushed", pushed).with("toNone", to_none));
        for it in told {
            it.abort();
        }
        stop(writer, followers, None).await;
    }
    Ok(lines)
}

/// Nothing is written and nothing read.
pub(super) async fn idle(plan: Plan) -> Result<Line, BoxError> {
    let world = World::new(plan).await?;
    let (writer, writer_meter) = world.writer()?;
    let mut meters: Vec<Arc<Meter>> = vec![writer_meter];
    let mut followers = Vec::new();
    for _ in 0..plan.replicas {
        let (replica, meter) = world.replica(ReplicaConfig::default()).await?;
        meters.push(meter);
        followers.push(Arc::new(replica));
    }
    let sum = |meters: &[Arc<Meter>]| {
        meters.iter().map(|it| it.read()).fold(Readings::default(), |sum, it| sum.plus(&it))
    };
    let before = sum(&meters);
    sleep(plan.time).await;
    let store = sum(&meters).since(&before);
    let measured = Measured::empty(plan.time);
    let floor_ms = plan.read.as_secs_f64() * 1_000.0;
    stop(writer, followers, None).await;
    let per_second = |count: u64| {
        #[expect(clippy::cast_precision_loss, reason = "a figure for people")]
        let count = count as f64;
        count / plan.time.as_secs_f64()
    };
    let requests = store.requests();
    #[expect(clippy::cast_precision_loss, reason = "a figure for people")]
    let replicas = plan.replicas as f64;
    Ok(line("idle", plan, floor_ms, &measured, &store)
        .with("replicas", replicas)
        .with("headReadsPerSecond", per_second(store.calls(Call::ReadHead)))
        .with("putsPerSecond", per_second(requests.puts))
        .with("getsPerSecond", per_second(requests.gets)))
}

/// Passes the writer's notices on.
fn tell(writer: &Writer, replica: &Arc<Replica>) -> JoinHandle<()> {
    let (mut notices, replica) = (writer.notices(), Arc::clone(replica));
    tokio::spawn(async move {
        loop {
            match notices.recv().await {
                Ok(it) => take_in(&replica, &it),
                Err(RecvError::Lagged(_)) => (),
                Err(RecvError::Closed) => return,
            }
        }
    })
}

fn take_in(replica: &Replica, notice: &HeadNotice) {
    let HeadNotice { history, history_id, revision, published, .. } = notice;
    match published.as_deref().cloned() {
        Some(PublishedHead { bytes: head, tag, changes: entries }) => {
            let head = PushedHead { head, tag, entries };
            replica.push(history, *history_id, *revision, head);
        }
        None => replica.notice(history, *history_id, *revision),
    }
}

async fn stop(
    writer: Writer,
    replicas: impl IntoIterator<Item = Arc<Replica>>,
    told: Option<JoinHandle<()>>,
) {
    if let Some(told) = told {
        told.abort();
        let _ended = told.await;
    }
    writer.shutdown().await;
    for replica in replicas {
        if let Some(replica) = Arc::into_inner(replica) {
            replica.shutdown().await;
        }
    }
}
