//! What a replica holds: histories within limits of number and memory, and
//! objects on the local disk.

use std::sync::Arc;
use std::time::Duration;

use headwater_core::operation::KeyRange;
use headwater_replica::{
    Consistency, KeyFilter, ReadFailure, Reader, Replica, ReplicaConfig, SnapshotMode, StartError,
    WatchOptions, start,
};
use headwater_state::Scan;
use headwater_store::{Call, Entropy, Faults, Memory};
use tempfile::TempDir;

use crate::bucket::{PATIENCE, TestWriter, deadline, key, name, quiet};

/// Three histories with 10 kB in the tail of each.
async fn three() -> (Faults, [TestWriter; 3]) {
    let faults = Faults::new(Arc::new(Memory::new()));
    let mut writers = Vec::new();
    for (history, seed) in [("a", 1), ("b", 2), ("c", 3)] {
        let mut writer = TestWriter::create(faults.behind(), history, seed).await;
        writer.put_staged("k", &"v".repeat(10_000)).await;
        writers.push(writer);
    }
    (faults, writers.try_into().unwrap_or_else(|_| panic!("three were made")))
}

fn replica(faults: &Faults, config: ReplicaConfig) -> Replica {
    start(faults.store(), config, Entropy::from_seed(1)).unwrap()
}

async fn read(replica: &Replica, history: &str) -> Result<(), ReadFailure> {
    let reader = replica.reader(name(history));
    let (entry, _) = reader.get(&key("k"), Consistency::Strong, deadline()).await?;
    assert_eq!(entry.unwrap().value.len(), 10_000);
    Ok(())
}

fn open(replica: &Replica) -> Vec<String> {
    replica.open_histories().iter().map(ToString::to_string).collect()
}

/// For what a task does by itself.
async fn until(what: &str, is_so: impl Fn() -> bool) {
    let looked = async {
        while !is_so() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(PATIENCE, looked).await.unwrap_or_else(|_| panic!("never: {what}"));
}

fn one_at_a_time() -> Scan {
    Scan {
        range: KeyRange::everything(),
        after: None,
        reverse: false,
        keys_only: false,
        entries_max: 1,
        bytes_max: usize::MAX,
    }
}

/// Leaves a scan between two pages.
async fn begin_scan(reader: &Reader) {
    let (page, _) = reader.scan(&one_at_a_time(), Consistency::Any, deadline()).await.unwrap();
    assert!(page.next.is_some());
}

#[tokio::test]
async fn past_the_limit_on_memory_the_idle_history_used_least_recently_is_dropped() {
    let (faults, _writers) = three().await;
    let replica = replica(&faults, ReplicaConfig { overlay_bytes: 25_000, ..quiet() });
    for history in ["a", "b", "a"] {
        read(&replica, history).await.unwrap();
    }
    assert!((20_000..22_000).contains(&replica.overlay_bytes()), "{}", replica.overlay_bytes());

    read(&replica, "c").await.unwrap();

    assert_eq!(open(&replica), ["a", "c"]);
    assert!(replica.overlay_bytes() <= 25_000);
    // And it is there again when it is wanted.
    read(&replica, "b").await.unwrap();
    assert_eq!(open(&replica), ["b", "c"]);
}

#[tokio::test]
async fn a_tail_that_grows_pushes_out_others_and_not_itself() {
    let (faults, [mut a, ..]) = three().await;
    let replica = replica(&faults, ReplicaConfig { overlay_bytes: 32_000, ..quiet() });
    for history in ["a", "b", "c"] {
        read(&replica, history).await.unwrap();
    }
    a.put_staged("l", &"v".repeat(40_000)).await;

    read(&replica, "a").await.unwrap();

    assert_eq!(open(&replica), ["a"]);
}

#[tokio::test]
async fn a_history_with_a_scan_under_way_or_a_watcher_is_not_idle() {
    let (faults, [mut a, ..]) = three().await;
    a.put_staged("l", "another entry").await;
    let replica = replica(&faults, ReplicaConfig { overlay_bytes: 1, ..quiet() });
    begin_scan(&replica.reader(name("a"))).await;
    let watched = replica.reader(name("b"));
    let options = WatchOptions {
        after: None,
        filter: KeyFilter::everything(),
        previous_values: false,
        progress: PATIENCE,
        snapshot: SnapshotMode::Never,
    };
    let watch = watched.watch(options, deadline()).await.unwrap();

    read(&replica, "c").await.unwrap();
    assert_eq!(open(&replica), ["a", "b", "c"]);

    // Nobody watches it any more, as soon as the watch's task has ended.
    drop(watch);
    let looked = async {
        while open(&replica) != ["a"] {
            a.put_staged("l", "looked at again").await;
            read(&replica, "a").await.unwrap();
        }
    };
    tokio::time::timeout(PATIENCE, looked).await.expect("the others are idle");
}

#[tokio::test]
async fn a_history_more_than_the_limit_opens_only_if_another_one_is_idle() {
    let (faults, [mut a, mut b, _c]) = three().await;
    for writer in [&mut a, &mut b] {
        writer.put_staged("l", "another entry").await;
    }
    let replica = replica(&faults, ReplicaConfig { histories_max: 2, ..quiet() });
    begin_scan(&replica.reader(name("a"))).await;
    read(&replica, "b").await.unwrap();
    read(&replica, "c").await.unwrap();
    assert_eq!(open(&replica), ["a", "c"], "b was used longest ago but for the scan");
    read(&replica, "b").await.unwrap();
    begin_scan(&replica.reader(name("b"))).await;

    let refused = read(&replica, "c").await.unwrap_err();

    assert!(matches!(refused, ReadFailure::TooManyHistories { limit: 2 }), "{refused:?}");
    assert_eq!(open(&replica), ["a", "b"]);
}

/// A history whose entries are all in its snapshot.
async fn compacted() -> (Faults, TestWriter) {
    let faults = Faults::new(Arc::new(Memory::new()));
    let mut writer = TestWriter::create(faults.behind(), "h", 1).await;
    writer.put_staged("k", &"v".repeat(10_000)).await;
    writer.compact().await;
    (faults, writer)
}

fn on_disk(dir: &TempDir) -> ReplicaConfig {
    ReplicaConfig { cache_dir: Some(dir.path().into()), ..quiet() }
}

fn gets(faults: &Faults) -> usize {
    faults.log().iter().filter(|(call, _)| *call == Call::Get).count()
}

#[tokio::test]
async fn a_replica_that_starts_again_reads_the_head_alone() {
    let (faults, _writer) = compacted().await;
    let dir = tempfile::tempdir().unwrap();
    let first = replica(&faults, on_disk(&dir));
    read(&first, "h").await.unwrap();
    until("index and chunk are on the disk", || first.disk_readings().unwrap().objects == 2).await;
    first.shutdown().await;
    faults.clear_log();

    let second = replica(&faults, on_disk(&dir));
    read(&second, "h").await.unwrap();

    assert_eq!(gets(&faults), 0, "{:?}", faults.log());
    assert_eq!(second.disk_readings().unwrap().hits, 2);
}

#[tokio::test]
async fn the_disk_is_filled_in_the_background_and_with_each_new_snapshot() {
    let (faults, mut writer) = compacted().await;
    let dir = tempfile::tempdir().unwrap();
    let replica = replica(&faults, on_disk(&dir));
    let reader = replica.reader(name("h"));

    // Opened, and nothing read.
    reader.pin(Consistency::Strong, deadline()).await.unwrap();
    until("the chunk is on the disk", || replica.disk_readings().unwrap().objects == 2).await;

    writer.put_staged("k", &"w".repeat(10_000)).await;
    writer.compact().await;
    reader.pin(Consistency::Strong, deadline()).await.unwrap();
    until("and the next one", || replica.disk_readings().unwrap().objects >= 4).await;
    faults.clear_log();
    read(&replica, "h").await.unwrap();
    assert_eq!(gets(&faults), 0, "{:?}", faults.log());
}

#[tokio::test]
async fn a_replica_that_stops_does_not_wait_for_the_disk_to_be_filled() {
    let (faults, _writer) = compacted().await;
    let dir = tempfile::tempdir().unwrap();
    // The first chunk goes at once, and nothing after it for hours.
    let config = ReplicaConfig { hydrate_bytes_per_second: 1, ..on_disk(&dir) };
    let replica = replica(&faults, config.clone());
    for _ in 0..2 {
        replica.reader(name("h")).pin(Consistency::Strong, deadline()).await.unwrap();
    }
    tokio::time::timeout(PATIENCE, replica.shutdown()).await.expect("it stops");
    // The directory is free again.
    self::replica(&faults, config).shutdown().await;
}

#[tokio::test]
async fn without_a_rate_the_disk_is_filled_by_reads_alone() {
    let (faults, _writer) = compacted().await;
    let dir = tempfile::tempdir().unwrap();
    let replica = replica(&faults, ReplicaConfig { hydrate_bytes_per_second: 0, ..on_disk(&dir) });
    replica.reader(name("h")).pin(Consistency::Strong, deadline()).await.unwrap();
    until("the index is on the disk", || replica.disk_readings().unwrap().objects == 1).await;
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert_eq!(replica.disk_readings().unwrap().objects, 1);
}

#[tokio::test]
async fn a_cache_directory_that_another_process_has_is_refused_at_start() {
    let (faults, _writer) = compacted().await;
    let dir = tempfile::tempdir().unwrap();
    let _first = replica(&faults, on_disk(&dir));

    let refused = start(faults.store(), on_disk(&dir), Entropy::from_seed(2)).unwrap_err();

    assert!(matches!(refused, StartError::Cache(_)), "{refused}");
    assert!(refused.to_string().contains(&dir.path().display().to_string()), "{refused}");
}
