//! Histories that end, and names that pass to another one.

use std::time::Duration;

use headwater_core::head::Lifecycle;
use headwater_replica::{Consistency, ReadFailure, ReplicaConfig};

use crate::bucket::{Rig, TestWriter, deadline, quiet, version};

fn is_missing<T>(answer: &Result<T, ReadFailure>) -> bool {
    matches!(answer, Err(ReadFailure::HistoryMissing { .. }))
}

async fn recreate(rig: &Rig) -> TestWriter {
    let store = rig.faults.behind();
    store.delete("h/head.json").await.unwrap();
    TestWriter::create(store, "h", 2).await
}

#[tokio::test]
async fn a_name_without_a_history_is_missing() {
    let rig = Rig::new(quiet()).await;
    let reader = rig.replica.reader(crate::bucket::name("none"));

    for consistency in [Consistency::Strong, Consistency::Any] {
        assert!(is_missing(&reader.pin(consistency, deadline()).await));
    }
    assert!(rig.replica.open_histories().is_empty());
}

#[tokio::test]
async fn a_history_that_is_deleted_is_missing_from_then_on() {
    let rig = Rig::open(quiet()).await;
    rig.faults.behind().delete("h/head.json").await.unwrap();
    // Nobody has looked yet.
    assert!(rig.read("k", Consistency::Any).await.is_ok());

    assert!(is_missing(&rig.read("k", Consistency::Strong).await));
    assert!(is_missing(&rig.read("k", Consistency::Any).await));
}

#[tokio::test]
async fn a_retired_history_is_missing() {
    let mut rig = Rig::open(quiet()).await;
    rig.writer.put("k", "v").await;
    rig.writer.retire().await;

    assert!(is_missing(&rig.read("k", Consistency::Strong).await));
    assert!(is_missing(&rig.read("k", Consistency::Any).await));
    assert_eq!(rig.writer.head.lifecycle, Lifecycle::Retiring);
}

#[tokio::test]
async fn a_history_that_was_deleted_and_created_again_is_opened_afresh_and_never_merged() {
    let mut rig = Rig::open(quiet()).await;
    rig.writer.put("old", "1").await;
    rig.read("old", Consistency::Strong).await.unwrap();
    let old_id = rig.writer.head.history_id;
    let mut second = recreate(&rig).await;
    for i in 0..3 {
        second.put("new", &i.to_string()).await;
    }

    let (entry, pinned) = rig
        .reader()
        .get(&crate::bucket::key("old"), Consistency::Strong, deadline())
        .await
        .unwrap();

    assert_eq!(entry, None);
    assert_eq!(pinned.history_id(), second.head.history_id);
    assert_eq!(rig.read("new", Consistency::Any).await.unwrap(), (Some("2".into()), 3));
    let pinned = rig.reader().of_id(Some(old_id)).pin(Consistency::Strong, deadline()).await;
    assert!(is_missing(&pinned));
}

#[tokio::test]
async fn a_request_for_an_id_meets_the_other_history_before_its_versions() {
    let rig = Rig::open(quiet()).await;
    let old_id = rig.writer.head.history_id;
    let second = recreate(&rig).await;

    // The replica has the old one at hand; the requests know of the new one.
    let new = rig.reader().of_id(Some(second.head.history_id));
    assert!(new.pin(Consistency::AtLeast(version(0)), deadline()).await.is_ok());
    let old = rig.reader().of_id(Some(old_id));
    for consistency in [
        Consistency::AtLeast(version(9)),
        Consistency::Exact(version(9)),
        Consistency::Any,
        Consistency::MaxStaleness(Duration::from_secs(9)),
    ] {
        assert!(is_missing(&old.pin(consistency, deadline()).await), "{consistency:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_read_that_waits_is_told_when_the_history_ends() {
    let rig = Rig::open(quiet()).await;
    let reader = rig.reader();
    let waiting =
        tokio::spawn(async move { reader.pin(Consistency::AtLeast(version(5)), deadline()).await });
    tokio::time::sleep(Duration::from_secs(1)).await;
    rig.faults.behind().delete("h/head.json").await.unwrap();

    assert!(is_missing(&waiting.await.unwrap()));
}

#[tokio::test(start_paused = true)]
async fn an_idle_history_is_dropped_and_opened_again() {
    let config = ReplicaConfig { idle_ms: 60_000, ..quiet() };
    let rig = Rig::open(config).await;
    let reader = rig.reader();
    // While a read is under way it is not idle.
    let waiting = tokio::spawn(async move {
        let until = tokio::time::Instant::now() + Duration::from_secs(300);
        reader.pin(Consistency::AtLeast(version(1)), until).await
    });
    tokio::time::sleep(Duration::from_secs(120)).await;
    assert_eq!(rig.replica.open_histories().len(), 1);
    let mut writer = rig.writer;
    writer.put("k", "v").await;
    assert_eq!(waiting.await.unwrap().unwrap().version(), version(1));
    tokio::time::sleep(Duration::from_secs(120)).await;
    assert!(rig.replica.open_histories().is_empty());

    let reader = rig.replica.reader(writer.head.history.clone());
    assert_eq!(reader.pin(Consistency::Any, deadline()).await.unwrap().version(), version(1));
    assert_eq!(rig.replica.open_histories().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_dropped_history_is_not_polled() {
    let config = ReplicaConfig { idle_ms: 60_000, poll_ms: 1_000, ..quiet() };
    let rig = Rig::open(config).await;
    tokio::time::sleep(Duration::from_secs(120)).await;
    rig.faults.clear_log();

    tokio::time::sleep(Duration::from_secs(3_600)).await;

    assert!(rig.faults.log().is_empty());
}

#[tokio::test(start_paused = true)]
async fn past_the_limit_the_history_used_least_recently_is_dropped() {
    let config = ReplicaConfig { histories_max: 2, ..quiet() };
    let rig = Rig::open(config).await;
    for name in ["b", "c"] {
        TestWriter::create(rig.faults.behind(), name, 7).await;
    }
    let open = async |text: &str| {
        tokio::time::sleep(Duration::from_secs(1)).await;
        let reader = rig.replica.reader(crate::bucket::name(text));
        reader.pin(Consistency::Any, deadline()).await.unwrap();
    };
    open("b").await;
    open("h").await;
    open("c").await;

    let names: Vec<String> = rig.replica.open_histories().iter().map(ToString::to_string).collect();
    assert_eq!(names, ["c", "h"]);
}

#[tokio::test]
async fn names_that_do_not_exist_push_nothing_out() {
    let config = ReplicaConfig { histories_max: 1, ..quiet() };
    let rig = Rig::open(config).await;
    for i in 0..20 {
        let reader = rig.replica.reader(crate::bucket::name(&format!("none-{i}")));
        assert!(is_missing(&reader.pin(Consistency::Any, deadline()).await));
    }
    assert_eq!(rig.replica.open_histories().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn shutting_down_answers_those_who_wait_and_joins_all_tasks() {
    let rig = Rig::open(quiet()).await;
    rig.faults.set_outage(true);
    let reader = rig.reader();
    let later = rig.reader();
    let waiting = tokio::spawn(async move { reader.pin(Consistency::Strong, deadline()).await });
    tokio::time::sleep(Duration::from_secs(1)).await;

    rig.replica.shutdown().await;

    let answer = waiting.await.unwrap();
    assert!(matches!(answer, Err(ReadFailure::ShuttingDown)), "{answer:?}");
    let answer = later.pin(Consistency::Any, deadline()).await;
    assert!(matches!(answer, Err(ReadFailure::ShuttingDown)), "{answer:?}");
}
