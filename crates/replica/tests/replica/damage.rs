//! Objects that are missing, truncated or altered are named and refused.

use headwater_replica::{Consistency, ReadFailure};
use headwater_store::{Call, Fault, Rule};

use crate::bucket::{Rig, arrived, deadline, quiet, version};

/// The key that a refusal names.
fn bad_key<T: std::fmt::Debug>(answer: Result<T, ReadFailure>) -> String {
    match answer {
        Err(ReadFailure::StoredDataBad { key, .. }) => key,
        other => panic!("{other:?}"),
    }
}

fn damages() -> [Fault; 3] {
    [Fault::Corrupt, Fault::Truncated, Fault::Missing]
}

#[tokio::test]
async fn a_damaged_change_is_named() {
    for damage in damages() {
        let mut rig = Rig::open(quiet()).await;
        let key = rig.writer.put_staged("k", "v").await;
        let rule = Rule::new(damage).on(Call::Get).key_has(key.clone());
        let rule = rig.faults.add(rule);

        assert_eq!(bad_key(rig.read("k", Consistency::Strong).await), key);
        // Nothing was skipped to get further.
        rig.writer.put("k", "later").await;
        assert_eq!(bad_key(rig.read("k", Consistency::Strong).await), key);
        assert_eq!(rig.read("k", Consistency::Any).await.unwrap(), (None, 0));

        // Once it is repaired, it is served.
        rig.faults.remove(rule);
        assert_eq!(rig.read("k", Consistency::Strong).await.unwrap(), (Some("later".into()), 2));
    }
}

#[tokio::test]
async fn a_damaged_segment_or_snapshot_is_named_when_the_history_is_opened() {
    for damage in damages() {
        let mut rig = Rig::new(quiet()).await;
        rig.writer.put("k", "1").await;
        rig.writer.fold_and_sweep().await;
        let head = &rig.writer.head;
        for object in [&head.segments[0].object, &head.snapshot.object] {
            let key = head.history.object_key(&object.key);
            let rule = Rule::new(damage.clone()).on(Call::Get).key_has(key.clone());
            let rule = rig.faults.add(rule);
            for consistency in [Consistency::Strong, Consistency::Any] {
                assert_eq!(bad_key(rig.read("k", consistency).await), key);
            }
            rig.faults.remove(rule);
        }
        assert_eq!(rig.read("k", Consistency::Strong).await.unwrap().0, Some("1".into()));
    }
}

#[tokio::test]
async fn a_damaged_chunk_is_named() {
    for damage in damages() {
        let mut rig = Rig::new(quiet()).await;
        rig.writer.put("k", "1").await;
        rig.writer.compact_and_sweep().await;
        let key = rig.writer.chunk_keys().await.remove(0);
        rig.faults.add(Rule::new(damage).on(Call::Get).key_has(key.clone()));

        for consistency in [Consistency::Strong, Consistency::Any] {
            assert_eq!(bad_key(rig.read("k", consistency).await), key);
        }
    }
}

#[tokio::test]
async fn a_damaged_head_is_named() {
    for damage in [Fault::Corrupt, Fault::Truncated] {
        let mut rig = Rig::open(quiet()).await;
        rig.writer.put("k", "v").await;
        rig.faults.while_set(Call::ReadHead, damage);

        assert_eq!(bad_key(rig.read("k", Consistency::Strong).await), "h/head.json");
        assert_eq!(rig.read("k", Consistency::Any).await.unwrap(), (None, 0));

        rig.faults.clear();
        assert_eq!(rig.read("k", Consistency::Strong).await.unwrap().0, Some("v".into()));
    }
}

#[tokio::test]
async fn a_head_of_another_name_is_refused() {
    let mut rig = Rig::open(quiet()).await;
    let mut copied = rig.writer.successor().finish();
    copied.history = crate::bucket::name("elsewhere");
    rig.writer.overwrite(headwater_core::format::head::encode(&copied)).await;

    assert_eq!(bad_key(rig.read("k", Consistency::Strong).await), "h/head.json");
}

#[tokio::test]
async fn a_head_whose_chain_does_not_extend_what_was_read_is_refused() {
    let mut rig = Rig::open(quiet()).await;
    rig.writer.put("k", "right").await;
    rig.read("k", Consistency::Strong).await.unwrap();
    // A fork: the same version with another change, one revision later.
    let mut fork = Rig::open(quiet()).await;
    fork.writer.head.history_id = rig.writer.head.history_id;
    fork.writer.head.chain_hash =
        headwater_core::hash::ChainHash::first(rig.writer.head.history_id);
    fork.writer.put("k", "wrong").await;
    fork.writer.put("k", "more").await;
    let bytes = headwater_core::format::head::encode(&fork.writer.head);
    rig.writer.overwrite(bytes).await;

    assert_eq!(bad_key(rig.read("k", Consistency::Strong).await), "h/head.json");
    assert_eq!(rig.read("k", Consistency::Any).await.unwrap(), (Some("right".into()), 1));
}

#[tokio::test]
async fn a_newer_format_is_said_to_be_one() {
    let mut rig = Rig::open(quiet()).await;
    rig.writer.overwrite(r#"{"format": 9, "surprise": true}"#).await;

    let answer = rig.read("k", Consistency::Strong).await;

    assert!(
        matches!(&answer, Err(ReadFailure::FormatTooNew { key, format: 9 }) if key == "h/head.json"),
        "{answer:?}"
    );
}

#[tokio::test]
async fn an_object_that_a_newer_head_does_without_is_no_damage() {
    let mut rig = Rig::open(quiet()).await;
    for i in 1..=3 {
        rig.writer.put_staged("k", &i.to_string()).await;
    }
    // The check reads this head; before it fetches, the tail is folded away.
    let gate = rig.hold_answers(1);
    let reader = rig.reader();
    let read = tokio::spawn(async move { reader.pin(Consistency::Strong, deadline()).await });
    arrived(&gate, 1).await;
    rig.writer.fold_and_sweep().await;
    gate.open();
    assert_eq!(read.await.unwrap().unwrap().version().get(), 3);
}

#[tokio::test]
async fn a_replica_past_retention_starts_again_from_the_snapshot() {
    let mut rig = Rig::open(quiet()).await;
    for i in 1..=3 {
        rig.writer.put_staged("k", &i.to_string()).await;
    }
    rig.writer.compact_and_sweep().await;
    rig.writer.put("k", "4").await;

    assert_eq!(rig.read("k", Consistency::Strong).await.unwrap(), (Some("4".into()), 4));
    assert_eq!(rig.read("k", Consistency::Exact(version(3))).await.unwrap().1, 3);
}

#[tokio::test]
async fn a_view_whose_chunks_were_swept_reads_on_from_the_current_snapshot() {
    let mut rig = Rig::new(quiet()).await;
    rig.writer.put("a", "1").await;
    rig.writer.compact_and_sweep().await;
    rig.reader().pin(Consistency::Any, deadline()).await.unwrap();
    rig.writer.put("a", "2").await;
    rig.writer.compact_and_sweep().await;

    assert_eq!(rig.read("a", Consistency::Any).await.unwrap(), (Some("2".into()), 2));
}
