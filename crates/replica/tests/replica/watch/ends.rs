//! Limits, and how a watch ends.

use std::time::Duration;

use headwater_replica::{Consistency, ReadFailure, ReplicaConfig, WatchFailure};
use headwater_store::{Call, Fault, Rule};

use super::{after, begin, end, next, read_failure, refused, versions};
use crate::bucket::{Rig, deadline, quiet, version};

#[tokio::test(start_paused = true)]
async fn watches_have_a_limit_for_the_history_and_for_the_process() {
    for (watchers_max, history_watchers_max, expected) in
        [(3, 9, "this process"), (9, 3, "this history")]
    {
        let config = ReplicaConfig { watchers_max, history_watchers_max, ..quiet() };
        let mut rig = Rig::new(config).await;
        let mut watches = Vec::new();
        for _ in 0..3 {
            watches.push(begin(&rig, after(0)).await);
        }
        let failure = refused(&rig, after(0)).await;
        assert!(
            matches!(failure, WatchFailure::TooMany { limit: 3, of } if of == expected),
            "{failure:?}"
        );

        // Who leaves makes room.
        watches.pop();
        tokio::time::sleep(Duration::from_millis(1)).await;
        watches.push(begin(&rig, after(0)).await);
        rig.writer.put("k", "1").await;
        rig.tell();
        for watch in &mut watches {
            assert_eq!(versions(watch, 1).await, [1]);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_version_that_does_not_exist_is_ahead_at_the_deadline() {
    let rig = Rig::new(quiet()).await;

    let failure = read_failure(refused(&rig, after(9)).await);

    assert!(
        matches!(failure, ReadFailure::VersionAhead { wanted, newest, .. }
            if wanted == version(9) && newest == version(0)),
        "{failure:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn another_history_under_the_name_is_not_watched() {
    let rig = Rig::new(quiet()).await;
    let other = headwater_core::id::HistoryId::from_bytes([7; 16]);

    let failure = rig.reader().of_id(Some(other)).watch(after(0), deadline()).await.unwrap_err();

    assert!(matches!(read_failure(failure), ReadFailure::HistoryMissing { .. }));
}

#[tokio::test(start_paused = true)]
async fn a_replica_that_stops_says_where_to_go_on() {
    let mut rig = Rig::new(quiet()).await;
    rig.writer.put_versions(5, 1).await;
    let mut watch = begin(&rig, after(2)).await;
    assert_eq!(versions(&mut watch, 2).await, [3, 4]);
    tokio::time::sleep(Duration::from_millis(1)).await;

    rig.replica.shutdown().await;

    // What was put in before is told before the end.
    assert_eq!(versions(&mut watch, 1).await, [5]);
    let (failure, resume_after) = end(&mut watch).await;
    assert!(matches!(read_failure(failure), ReadFailure::ShuttingDown));
    assert_eq!(resume_after, 5);
}

#[tokio::test(start_paused = true)]
async fn a_deleted_history_ends_its_watches() {
    let mut rig = Rig::new(quiet()).await;
    rig.writer.put("k", "1").await;
    let mut watch = begin(&rig, after(0)).await;
    assert_eq!(versions(&mut watch, 1).await, [1]);
    rig.writer.retire().await;
    rig.tell();

    let (failure, resume_after) = end(&mut watch).await;

    assert!(matches!(read_failure(failure), ReadFailure::HistoryMissing { .. }));
    assert_eq!(resume_after, 1);
}

#[tokio::test(start_paused = true)]
async fn a_damaged_change_ends_the_watches_that_need_it_and_is_named() {
    let mut rig = Rig::new(quiet()).await;
    let damaged = rig.writer.put_staged("k", "1").await;
    rig.read("k", Consistency::Strong).await.unwrap();
    rig.faults.add(Rule::new(Fault::Corrupt).on(Call::Get).key_has(damaged.clone()));
    let mut watch = begin(&rig, after(0)).await;

    let (failure, resume_after) = end(&mut watch).await;

    let failure = read_failure(failure);
    assert!(
        matches!(&failure, ReadFailure::StoredDataBad { key, .. } if *key == damaged),
        "{failure:?}"
    );
    assert_eq!(resume_after, 0);
}

#[tokio::test(start_paused = true)]
async fn changes_folded_and_swept_before_they_were_read_are_found_in_the_segment() {
    let mut rig = Rig::new(quiet()).await;
    for number in 1..=4 {
        rig.writer.put_staged("k", &number.to_string()).await;
    }
    rig.read("k", Consistency::Strong).await.unwrap();
    rig.writer.fold_and_sweep().await;

    assert_eq!(versions(&mut begin(&rig, after(1)).await, 3).await, [2, 3, 4]);
}

#[tokio::test(start_paused = true)]
async fn a_watched_history_is_not_idle() {
    let config = ReplicaConfig { idle_ms: 1_000, ..quiet() };
    let mut rig = Rig::new(config).await;
    let mut watch = begin(&rig, after(0)).await;
    next(&mut watch).await.unwrap();
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert_eq!(rig.replica.open_histories().len(), 1);
    rig.writer.put("k", "1").await;
    rig.tell();
    assert_eq!(versions(&mut watch, 1).await, [1]);

    drop(watch);
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert_eq!(rig.replica.open_histories().len(), 0);
}
