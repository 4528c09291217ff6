//! What a thousand watchers of a history cost.

use futures::future::join_all;
use headwater_replica::{ReplicaConfig, WatchFigures};
use headwater_store::Call;

use super::{after, begin, versions};
use crate::bucket::{Rig, quiet};

const WATCHERS: usize = 1_000;

fn figures(rig: &Rig) -> WatchFigures {
    rig.replica.watch_figures(&rig.writer.head.history).unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_thousand_watchers_cost_one_decode_and_one_fetch_of_each_change() {
    let mut rig = Rig::open(quiet()).await;
    let mut watches = Vec::new();
    for _ in 0..WATCHERS {
        watches.push(begin(&rig, after(None)).await);
    }
    assert_eq!(figures(&rig).watchers, WATCHERS);
    let before = figures(&rig).changes_decoded;
    rig.faults.clear_log();

    let watching = join_all(watches.iter_mut().map(|it| versions(it, 200)));
    let writing = async {
        for number in 0..200 {
            rig.writer.put_staged("k", &number.to_string()).await;
            rig.tell();
            if number % 3 == 0 {
                tokio::time::sleep(std::time::Duration::from_millis(1)).await;
            }
        }
    };
    let (seen, ()) = tokio::join!(watching, writing);

    let expected: Vec<u64> = (1..=200).collect();
    assert!(seen.iter().all(|it| *it == expected));
    assert_eq!(figures(&rig).changes_decoded - before, 200);
    assert_eq!(rig.count(Call::Get), 200);
}

#[tokio::test(start_paused = true)]
async fn a_thousand_watchers_that_are_behind_cost_one_more_decode() {
    let mut rig = Rig::new(quiet()).await;
    rig.writer.put_versions(100, 1).await;
    rig.writer.fold_and_sweep().await;
    for number in 0..100 {
        rig.writer.put_staged("k", &number.to_string()).await;
    }
    rig.read("k", headwater_replica::Consistency::Strong).await.unwrap();
    rig.faults.clear_log();
    let before = figures_of_open(&rig);

    let mut watches = Vec::new();
    for number in 0..WATCHERS {
        // From different places, the last of which is asked for first.
        watches.push(begin(&rig, after(99 - number as u64 % 100)).await);
    }
    let watching = watches.iter_mut().zip(0..).map(|(watch, number): (_, usize)| {
        let count = 101 + number % 100;
        async move { (versions(watch, count).await, count) }
    });
    for (seen, count) in join_all(watching).await {
        let first = 201 - count as u64;
        assert_eq!(seen, (first..=200).collect::<Vec<_>>());
    }

    assert_eq!(figures(&rig).changes_decoded - before, 200);
    assert_eq!(rig.count(Call::Get), 101);
}

fn figures_of_open(rig: &Rig) -> u64 {
    figures(rig).changes_decoded
}

#[tokio::test(start_paused = true)]
async fn what_is_shared_is_bounded_and_goes_with_the_last_watcher() {
    let config = ReplicaConfig { watch_live_bytes: 20_000, watch_older_bytes: 20_000, ..quiet() };
    let mut rig = Rig::new(config).await;
    for _ in 0..10 {
        rig.writer.put_versions(20, 1_000).await;
        rig.writer.fold_and_sweep().await;
    }
    let mut early = begin(&rig, after(0)).await;
    let mut late = begin(&rig, after(None)).await;
    versions(&mut early, 200).await;
    // A segment is about 21,000 bytes: the one that was read last is kept.
    assert!(figures(&rig).bytes_shared < 25_000, "{:?}", figures(&rig));
    for _ in 0..10 {
        rig.writer.put_versions(20, 1_000).await;
        rig.writer.fold_and_sweep().await;
        rig.tell();
        versions(&mut late, 20).await;
    }
    assert!(figures(&rig).bytes_shared < 45_000, "{:?}", figures(&rig));
    versions(&mut early, 200).await;

    drop((early, late));
    tokio::time::sleep(std::time::Duration::from_millis(1)).await;

    let figures = figures(&rig);
    assert_eq!((figures.watchers, figures.watchers_of_process, figures.bytes_shared), (0, 0, 0));
}
