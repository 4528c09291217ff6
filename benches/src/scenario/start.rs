//! State that has to be fetched first.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures::{StreamExt as _, TryStreamExt as _, stream};
use headwater_core::operation::KeyRange;
use headwater_core::version::StateVersion;
use headwater_replica::{Consistency, Reader, Replica, ReplicaConfig};
use headwater_state::Scan;
use headwater_store::{Meter, Readings};
use tokio::time::Instant;

use crate::Plan;
use crate::load::Measured;
use crate::report::{Line, line};
use crate::system::{BoxError, World};

/// Reads of the plain comparison at a time: as many as a load makes.
const FETCHES: usize = 16;
/// Entries of a page, and its bytes at most.
const PAGE_ENTRIES: usize = 1_000;
const PAGE_BYTES: usize = 4 << 20;

/// Writes the state, and a tail of small changes on top of its snapshot.
async fn build(world: &World, plan: Plan) -> Result<(), BoxError> {
    let (writer, _) = world.writer()?;
    let putter = world.putter(&writer, plan.value_bytes);
    let count = (plan.state_mib << 20) / (plan.value_bytes + 20).max(1);
    // Receipts do not reach back to the first of a million operations: each is
    // issued from a version that was seen a moment ago.
    let newest = AtomicU64::new(0);
    let puts = stream::iter(0..count as u64).map(|n| {
        let (putter, newest) = (putter.clone(), &newest);
        async move {
            let seen = StateVersion::new(newest.load(Ordering::Relaxed));
            let accepted_at = putter.put_at(seen, &format!("state/{n:010}"), n).await?;
            newest.fetch_max(accepted_at.get(), Ordering::Relaxed);
            Ok::<(), BoxError>(())
        }
    });
    puts.buffer_unordered(4_096).try_for_each(async |()| Ok(())).await?;
    let mut seen = StateVersion::new(newest.into_inner());
    for n in 0..plan.changes {
        seen = putter.put_since(seen, &format!("tail-{n}"), format!("tail/{n:010}")).await?;
    }
    writer.shutdown().await;
    Ok(())
}

/// A replica that knows nothing, its first strong answer, and then everything.
pub(super) async fn cold(plan: Plan) -> Result<Line, BoxError> {
    let built = Plan { read: Duration::ZERO, write: Duration::ZERO, ..plan };
    let near = World::new(built).await?;
    build(&near, plan).await?;
    let world = near.seen_from(plan);
    let (store, meter) = world.store();
    let began = Instant::now();
    let replica = world.bare_replica(store)?;
    world.open(&replica).await?;
    let first = began.elapsed();
    let mut measured = Measured::empty(plan.time);
    measured.note(first, true);
    let until_first = meter.read();
    let entries = walk(&replica.reader(world.history.clone())).await?;
    let whole = began.elapsed();
    let all = meter.read();
    replica.shutdown().await;
    let at_best = fetch_all(&world).await?;
    let floor_ms = plan.read.as_secs_f64() * 1_000.0;
    Ok(line("cold-start", plan, floor_ms, &measured, &until_first)
        .with("firstAnswerMs", first.as_secs_f64() * 1_000.0)
        .with("wholeMs", whole.as_secs_f64() * 1_000.0)
        .with("entries", number(entries))
        .with("wholeGets", number(all.requests().gets))
        .with("wholeMiB", number(all.bytes_down()) / 1_048_576.0)
        .with("plainMs", at_best.as_secs_f64() * 1_000.0)
        .with("plainToWhole", at_best.as_secs_f64() / whole.as_secs_f64()))
}

/// Reads the snapshot's chunks as fast as plain parallel reads can.
async fn fetch_all(world: &World) -> Result<Duration, BoxError> {
    let (store, _) = world.store();
    let prefix = format!("{}/chunks/", world.history);
    let listed = store.list(&prefix, None, 1_000_000).await?;
    let began = Instant::now();
    stream::iter(listed)
        .map(|it| {
            let store = Arc::clone(&store);
            async move { store.get(&it.key).await }
        })
        .buffer_unordered(FETCHES)
        .try_for_each(async |_| Ok(()))
        .await?;
    Ok(began.elapsed())
}

/// All entries, twice: chunks are fetched first, and are at hand then.
pub(super) async fn scan(plan: Plan) -> Result<Vec<Line>, BoxError> {
    let built = Plan { read: Duration::ZERO, write: Duration::ZERO, changes: 1, ..plan };
    let near = World::new(built).await?;
    build(&near, Plan { changes: 1, ..plan }).await?;
    let world = near.seen_from(plan);
    let (replica, meter) = world.replica(ReplicaConfig::default()).await?;
    let mut lines = Vec::new();
    for is_cold in [true, false] {
        lines.push(scan_once(&world, &replica, &meter, plan, is_cold).await?);
    }
    replica.shutdown().await;
    Ok(lines)
}

async fn scan_once(
    world: &World,
    replica: &Replica,
    meter: &Meter,
    plan: Plan,
    is_cold: bool,
) -> Result<Line, BoxError> {
    let before: Readings = meter.read();
    let began = Instant::now();
    let entries = walk(&replica.reader(world.history.clone())).await?;
    let took = began.elapsed();
    let mut measured = Measured::empty(took);
    measured.note(took, true);
    let floor_ms = plan.read.as_secs_f64() * 1_000.0;
    let bytes = number(entries) * number(plan.value_bytes as u64);
    Ok(line("scan", plan, floor_ms, &measured, &meter.read().since(&before))
        .with("cold", f64::from(u8::from(is_cold)))
        .with("entries", number(entries))
        .with("entriesPerSecond", number(entries) / took.as_secs_f64())
        .with("mibPerSecond", bytes / 1_048_576.0 / took.as_secs_f64()))
}

/// Every page of the newest version. How many entries there are.
async fn walk(reader: &Reader) -> Result<u64, BoxError> {
    let mut scan = Scan {
        range: KeyRange::new(Bytes::new(), None)?,
        after: None,
        reverse: false,
        keys_only: false,
        entries_max: PAGE_ENTRIES,
        bytes_max: PAGE_BYTES,
    };
    let mut consistency = Consistency::Strong;
    let mut entries = 0;
    loop {
        let deadline = Instant::now() + Duration::from_secs(60);
        let (page, pinned) = reader.scan(&scan, consistency, deadline).await?;
        entries += page.entries.len() as u64;
        if page.next.is_none() {
            return Ok(entries);
        }
        scan.after = page.next;
        consistency = Consistency::Exact(pinned.view().version());
    }
}

#[expect(clippy::cast_precision_loss, reason = "a figure for people")]
fn number(count: u64) -> f64 {
    count as f64
}
