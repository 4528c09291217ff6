//! Every version, in order, none left out and none twice.

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use headwater_core::change::Resolved;
use headwater_replica::{KeyFilter, Replica, WatchEvent, prefix_range, start};
use headwater_store::{Entropy, Faults, Memory};
use tokio::time::{sleep, timeout};

use super::{after, begin, lines, news, range, versions};
use crate::bucket::{PATIENCE, Rig, TestWriter, deadline, key, put, quiet, version};

#[tokio::test(start_paused = true)]
async fn a_watch_tells_every_version_after_the_one_it_names() {
    let mut rig = Rig::new(quiet()).await;
    rig.writer.put_versions(5, 1).await;
    rig.writer.fold_and_sweep().await;
    rig.writer.put_staged("k", "6").await;
    rig.writer.put("k", "7").await;

    let mut from_the_beginning = begin(&rig, after(0)).await;
    let mut from_the_middle = begin(&rig, after(3)).await;
    let mut from_now = begin(&rig, after(None)).await;
    rig.writer.put("k", "8").await;
    rig.tell();

    assert_eq!(versions(&mut from_the_beginning, 8).await, [1, 2, 3, 4, 5, 6, 7, 8]);
    assert_eq!(versions(&mut from_the_middle, 5).await, [4, 5, 6, 7, 8]);
    assert_eq!(versions(&mut from_now, 1).await, [8]);
}

#[tokio::test(start_paused = true)]
async fn a_version_that_the_replica_does_not_know_yet_is_waited_for() {
    let mut rig = Rig::open(quiet()).await;
    rig.writer.put_versions(3, 1).await;

    let mut watch = begin(&rig, after(2)).await;

    assert_eq!(versions(&mut watch, 1).await, [3]);
}

#[tokio::test(start_paused = true)]
async fn a_filter_takes_keys_and_the_part_of_a_range_that_it_has() {
    let mut rig = Rig::new(quiet()).await;
    let filter = KeyFilter::of(vec![prefix_range("b/".into()).unwrap(), range("m", "n")]);
    let mut watch =
        begin(&rig, headwater_replica::WatchOptions { filter: filter.unwrap(), ..after(0) }).await;

    rig.writer.put("a", "1").await;
    rig.writer.change(vec![put("b/x", "2"), put("c", "2"), put("m1", "2")]).await;
    rig.writer.change(vec![Resolved::Delete(key("a")), Resolved::Delete(key("b/x"))]).await;
    rig.writer.change(vec![Resolved::DeleteRange(range("a", ""))]).await;
    rig.writer.change(vec![Resolved::DeleteRange(range("n", ""))]).await;
    rig.writer.put("b/", "6").await;
    rig.tell();

    assert_eq!(lines(&mut watch).await, ["put b/x=2 []", "put m1=2 []"]);
    assert_eq!(lines(&mut watch).await, ["delete b/x []"]);
    assert_eq!(lines(&mut watch).await, [r#"delete ["b/", "b0") []"#, r#"delete ["m", "n") []"#]);
    let told = news(&mut watch).await.unwrap();
    assert_eq!(told.resume_after, version(6), "version 5 has nothing for it");
}

#[tokio::test(start_paused = true)]
async fn a_large_version_comes_in_parts_of_bounded_size() {
    let mut rig = Rig::new(quiet()).await;
    let large = "v".repeat(100 << 10);
    let mutations: Vec<_> = (0..8).map(|it| put(&format!("k{it}"), &large)).collect();
    let mut watch = begin(&rig, after(0)).await;
    rig.writer.change(mutations).await;
    rig.writer.put("k", &"w".repeat(1 << 20)).await;
    rig.tell();

    let mut parts = Vec::new();
    for _ in 0..4 {
        let told = news(&mut watch).await.unwrap();
        let WatchEvent::Change(change) = told.event else { panic!() };
        assert_eq!(change.version, version(1));
        assert_eq!(told.resume_after, version(u64::from(!change.is_continued)));
        parts.push((change.mutations.len(), change.is_continued));
    }
    assert_eq!(parts, [(2, true), (2, true), (2, true), (2, false)]);
    // A value that is larger than a part is one.
    assert_eq!(versions(&mut watch, 1).await, [2]);
}

struct Three {
    writer: TestWriter,
    replicas: Vec<Replica>,
}

impl Three {
    async fn new() -> Self {
        let faults = Faults::new(Arc::new(Memory::new()));
        let writer = TestWriter::create(faults.behind(), "h", 1).await;
        let replica = |seed| {
            let config = headwater_replica::ReplicaConfig { poll_ms: 20, ..quiet() };
            start(faults.store(), config, Entropy::from_seed(seed)).unwrap()
        };
        Self { writer, replicas: (1..=3).map(replica).collect() }
    }
}

/// Three replicas that follow at their own times; segments and snapshots take
/// the place of what was read a moment ago.
#[tokio::test(start_paused = true)]
async fn a_watcher_reconnected_200_times_to_three_replicas_sees_10_000_versions_once() {
    const VERSIONS: u64 = 10_000;
    let Three { mut writer, replicas } = Three::new().await;
    let readers: Vec<_> =
        replicas.iter().map(|it| it.reader(writer.head.history.clone())).collect();
    let writing = tokio::spawn(async move {
        let dice = Entropy::from_seed(7);
        while writer.version().get() < VERSIONS {
            let count = u64::from(dice.bytes16()[0] % 40) + 1;
            writer.put_versions(count.min(VERSIONS - writer.version().get()), 1).await;
            if 400 < writer.head.changes.len() {
                writer.fold_and_sweep().await;
            }
            sleep(Duration::from_millis(10)).await;
        }
        writer
    });

    let dice = Entropy::from_seed(8);
    let (mut seen, mut position, mut n_connections) = (Vec::new(), 0, 0);
    let mut n_told = 0;
    while n_connections <= 200 || position < VERSIONS {
        n_connections += 1;
        let bytes = dice.bytes16();
        let reader = &readers[usize::from(bytes[0]) % readers.len()];
        let mut watch = reader.watch(after(position), deadline()).await.unwrap();
        // Cut off after some versions, or never once the count is reached.
        let is_last = 200 < n_connections;
        let cut_after = if is_last { usize::MAX } else { usize::from(bytes[1]) % 100 };
        for _ in 0..cut_after {
            if position == VERSIONS {
                break;
            }
            let told = timeout(PATIENCE, watch.next()).await.unwrap().unwrap().unwrap();
            n_told += 1;
            assert!(n_told < 2 * VERSIONS, "nothing but progress after version {position}");
            if let WatchEvent::Change(change) = told.event {
                seen.push(change.version.get());
            }
            position = told.resume_after.get();
        }
    }

    assert!(200 < n_connections, "{n_connections}");
    assert_eq!(seen, (1..=VERSIONS).collect::<Vec<_>>());
    assert_eq!(writing.await.unwrap().version(), version(VERSIONS));
}
