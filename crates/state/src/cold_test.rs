//! Opening as a process that starts: long tails, and snapshots that are lost.

use std::sync::Arc;
use std::time::Duration;

use headwater_core::follow::Position;
use headwater_store::{Call, Fault, Latency, Rule};
use tokio::time::Instant;

use crate::bucket::{Bucket, key, put};
use crate::{ChunkCache, LoadOptions, Loader, StateError};

#[tokio::test(start_paused = true)]
async fn ten_thousand_changes_in_the_tail_are_open_in_under_three_seconds() {
    let mut bucket = Bucket::new().await;
    for number in 1..=10_000 {
        bucket.commit(vec![put(format!("key-{}", number % 500), number.to_string())]).await;
        if number % 128 == 0 {
            bucket.fold().await;
        }
    }
    let n_objects = bucket.head.segments.len() + 1;
    assert!(n_objects <= 80, "{n_objects} segments and the index");
    let read = Duration::from_millis(30);
    let far: Arc<dyn headwater_store::Store> =
        Arc::new(Latency::new(bucket.faults.store(), read, read));
    let cache = ChunkCache::new(64 << 20);
    let loader = Loader::new(far, bucket.head.history.clone(), cache, LoadOptions::default());
    bucket.faults.clear_log();
    let began = Instant::now();

    let opened = loader.open(&bucket.head).await.unwrap();

    assert!(began.elapsed() < Duration::from_secs(3), "{:?}", began.elapsed());
    assert_eq!(opened.changes.len(), 10_000);
    let log = bucket.faults.log();
    assert_eq!(log.len(), n_objects);
    assert!(log.iter().all(|(call, _)| *call == Call::Get));
    let entry = opened.view.get(&key("key-0")).await.unwrap().unwrap();
    assert_eq!(entry.value, "10000");
}

/// A history with an older snapshot in its archive, the way from there, and a
/// tail.
async fn archived() -> Bucket {
    let mut bucket = Bucket::new().await;
    bucket.keeps_versions(1_000);
    for number in 0..3 {
        bucket.commit(vec![put(format!("k{number}"), "first")]).await;
        bucket.compact_and_archive().await;
        bucket.commit(vec![put(format!("l{number}"), "between")]).await;
    }
    bucket.compact_and_archive().await;
    bucket.commit(vec![put("k0", "newest")]).await;
    bucket
}

#[tokio::test]
async fn a_lost_snapshot_is_made_up_for_by_an_older_one_and_the_changes() {
    let bucket = archived().await;
    let snapshot = bucket.full_key(&bucket.head.snapshot.object);
    for fault in [Fault::Corrupt, Fault::Truncated, Fault::Missing] {
        bucket.faults.add(Rule::new(fault.clone()).on(Call::Get).key_has(&snapshot));
        let loader = bucket.cold_loader();

        let opened = loader.open(&bucket.head).await.unwrap();

        assert_eq!(loader.snapshot_fallbacks(), 1, "{fault:?}");
        assert_eq!(opened.view.version(), bucket.head.state_version);
        assert_eq!(opened.view.chain_hash(), bucket.head.chain_hash);
        assert!(opened.view.snapshot().version < bucket.head.snapshot.version);
        for (at, expected) in [("k0", "newest"), ("k2", "first"), ("l2", "between")] {
            let entry = opened.view.get(&key(at)).await.unwrap().unwrap();
            assert_eq!(entry.value, expected, "{fault:?}, {at}");
            let right = bucket.view.get(&key(at)).await.unwrap().unwrap();
            assert_eq!(entry.version, right.version);
        }
        bucket.faults.clear();
    }
    let loader = bucket.cold_loader();
    loader.open(&bucket.head).await.unwrap();
    assert_eq!(loader.snapshot_fallbacks(), 0);
}

#[tokio::test]
async fn where_nothing_else_is_left_the_lost_snapshot_is_named() {
    let bucket = archived().await;
    for fault in [Fault::Corrupt, Fault::Missing] {
        // Every snapshot, the older ones too.
        bucket.faults.add(Rule::new(fault).on(Call::Get).key_has("snapshots/"));
        let loader = bucket.cold_loader();

        let error = loader.open(&bucket.head).await.unwrap_err();

        let (StateError::Missing { key } | StateError::Bad { key, .. }) = error else {
            panic!("{error:?}")
        };
        assert_eq!(key, bucket.full_key(&bucket.head.snapshot.object));
        assert_eq!(loader.snapshot_fallbacks(), 0);
        bucket.faults.clear();
    }
}

#[tokio::test(start_paused = true)]
async fn a_history_that_was_opened_from_an_older_snapshot_is_followed_on() {
    let mut bucket = archived().await;
    let snapshot = bucket.full_key(&bucket.head.snapshot.object);
    bucket.faults.add(Rule::new(Fault::Corrupt).on(Call::Get).key_has(&snapshot));
    let loader = bucket.cold_loader();
    let opened = loader.open(&bucket.head).await.unwrap();
    assert_eq!(loader.snapshot_fallbacks(), 1);
    bucket.faults.clear_log();
    let mut view = opened.view;
    for round in 0..5 {
        let position = Position::of(&bucket.head);
        bucket.commit(vec![put("k1", format!("newer still {round}"))]).await;

        view = loader.advance(&view, &position, &bucket.head).await.unwrap().view;

        assert_eq!(view.version(), bucket.head.state_version);
        let entry = view.get(&key("k1")).await.unwrap().unwrap();
        assert_eq!(entry.value, format!("newer still {round}"));
    }
    let asked = |bucket: &Bucket| bucket.faults.log().iter().any(|(_, key)| *key == snapshot);
    assert!(!asked(&bucket), "what is lost is not asked for with each head");
    // It is looked for again after a while, and one that can be read takes over.
    for is_whole in [false, true] {
        if is_whole {
            bucket.faults.clear();
        }
        tokio::time::advance(Duration::from_secs(61)).await;
        let position = Position::of(&bucket.head);
        bucket.commit(vec![put("k1", "the newest")]).await;
        view = loader.advance(&view, &position, &bucket.head).await.unwrap().view;
        assert!(asked(&bucket));
        assert_eq!(loader.snapshot_fallbacks(), 2, "one more, a minute later");
        assert_eq!(view.snapshot() == &bucket.head.snapshot, is_whole);
        bucket.faults.clear_log();
    }
}
