//! Heads that went back while nobody followed.

use std::time::Duration;

use headwater_core::format::head::encode;
use headwater_core::head::Head;
use headwater_replica::{Consistency, ReadFailure, ReplicaConfig};
use headwater_store::HeadWrite;

use crate::bucket::{Rig, TestWriter, deadline, name, quiet};

const IDLE: Duration = Duration::from_secs(60);

fn bad_key<T: std::fmt::Debug>(answer: Result<T, ReadFailure>) -> String {
    match answer {
        Err(ReadFailure::StoredDataBad { key, .. }) => key,
        other => panic!("{other:?}"),
    }
}

/// A history of two versions that was read and then dropped; and the head that
/// it had at the first of them.
async fn dropped() -> (Rig, Head) {
    let mut rig = Rig::open(ReplicaConfig { idle_ms: 60_000, ..quiet() }).await;
    rig.writer.put("k", "one").await;
    let before = rig.writer.head.clone();
    rig.writer.put("k", "two").await;
    rig.read("k", Consistency::Strong).await.unwrap();
    tokio::time::sleep(2 * IDLE).await;
    assert!(rig.replica.open_histories().is_empty());
    (rig, before)
}

#[tokio::test(start_paused = true)]
async fn a_head_that_went_back_after_the_history_was_dropped_is_refused() {
    let (mut rig, before) = dropped().await;
    rig.writer.overwrite(encode(&before)).await;

    for consistency in [Consistency::Any, Consistency::Strong, Consistency::Any] {
        assert_eq!(bad_key(rig.read("k", consistency).await), "h/head.json");
    }

    // And is served once it is right again.
    rig.writer.overwrite(encode(&rig.writer.head.clone())).await;
    assert_eq!(rig.read("k", Consistency::Any).await.unwrap(), (Some("two".into()), 2));
}

#[tokio::test(start_paused = true)]
async fn an_older_head_that_was_written_to_since_is_refused_by_its_chain() {
    let (mut rig, before) = dropped().await;
    rig.writer.head = before;
    for value in ["other", "more", "newest"] {
        rig.writer.put("k", value).await;
    }

    assert_eq!(bad_key(rig.read("k", Consistency::Any).await), "h/head.json");
}

#[tokio::test(start_paused = true)]
async fn a_head_that_came_back_older_after_a_deletion_is_refused() {
    let mut rig = Rig::open(quiet()).await;
    let before = encode(&rig.writer.head);
    rig.writer.put("k", "one").await;
    rig.read("k", Consistency::Strong).await.unwrap();
    let store = rig.faults.behind();
    store.delete("h/head.json").await.unwrap();
    let answer = rig.read("k", Consistency::Strong).await;
    assert!(matches!(answer, Err(ReadFailure::HistoryMissing { .. })), "{answer:?}");
    let created = store.create_head("h/head.json", before.into()).await;
    assert!(matches!(created, HeadWrite::Replaced { .. }), "{created:?}");

    assert_eq!(bad_key(rig.read("k", Consistency::Any).await), "h/head.json");
}

#[tokio::test(start_paused = true)]
async fn a_head_that_went_back_after_others_took_its_place_is_refused() {
    let mut rig = Rig::open(ReplicaConfig { histories_max: 1, ..quiet() }).await;
    let before = encode(&rig.writer.head);
    rig.writer.put("k", "one").await;
    rig.read("k", Consistency::Strong).await.unwrap();
    TestWriter::create(rig.faults.behind(), "other", 7).await;
    let other = rig.replica.reader(name("other"));
    other.pin(Consistency::Any, deadline()).await.unwrap();
    assert_eq!(rig.replica.open_histories(), [name("other")]);
    rig.writer.overwrite(before).await;

    assert_eq!(bad_key(rig.read("k", Consistency::Any).await), "h/head.json");
}

#[tokio::test(start_paused = true)]
async fn another_history_under_the_name_of_a_dropped_one_is_news() {
    let (rig, _) = dropped().await;
    let store = rig.faults.behind();
    store.delete("h/head.json").await.unwrap();
    let second = TestWriter::create(store, "h", 2).await;

    let pinned = rig.reader().pin(Consistency::Any, deadline()).await.unwrap();

    assert_eq!(pinned.history_id(), second.head.history_id);
    assert_eq!(pinned.version(), second.version());
}

#[tokio::test(start_paused = true)]
async fn a_dropped_history_that_went_on_is_opened() {
    let (mut rig, _) = dropped().await;
    rig.writer.put("k", "three").await;
    assert_eq!(rig.read("k", Consistency::Any).await.unwrap(), (Some("three".into()), 3));
    // Also where its tail no longer reaches back.
    tokio::time::sleep(2 * IDLE).await;
    rig.writer.put("k", "four").await;
    rig.writer.compact_and_sweep().await;
    assert_eq!(rig.read("k", Consistency::Any).await.unwrap(), (Some("four".into()), 4));
}
