//! Exact versions: kept, made again from the tail, retired, or not there yet.

use headwater_replica::{ChangeRange, Consistency, ReadFailure, ReplicaConfig};
use headwater_state::LoadedChange;
use headwater_store::{Call, Fault, Rule};

use crate::bucket::{Rig, deadline, quiet, version};

fn exact(number: u64) -> Consistency {
    Consistency::Exact(version(number))
}

async fn with_versions(config: ReplicaConfig, count: u64) -> Rig {
    let mut rig = Rig::open(config).await;
    for i in 1..=count {
        rig.writer.put("k", &i.to_string()).await;
    }
    rig.read("k", Consistency::Strong).await.unwrap();
    rig.faults.clear_log();
    rig
}

#[tokio::test]
async fn recent_versions_are_served_without_asking() {
    // One check brought all twenty: those on the way are at hand as well.
    let rig = with_versions(quiet(), 20).await;
    for i in 1..=20 {
        assert_eq!(rig.read("k", exact(i)).await.unwrap(), (Some(i.to_string()), i));
    }
    assert_eq!(rig.read("k", exact(0)).await.unwrap(), (None, 0));
    assert!(rig.faults.log().is_empty());
}

#[tokio::test]
async fn a_version_that_is_not_kept_is_made_from_the_tail() {
    let rig = with_versions(ReplicaConfig { recent_versions_max: 3, ..quiet() }, 20).await;

    assert_eq!(rig.read("k", exact(7)).await.unwrap(), (Some("7".into()), 7));
    // The snapshot's index, once; the changes are in the head.
    assert_eq!(rig.count(Call::Get), 1);
    rig.faults.clear_log();
    // And is kept for a while.
    assert_eq!(rig.read("k", exact(7)).await.unwrap(), (Some("7".into()), 7));
    assert!(rig.faults.log().is_empty());
}

#[tokio::test]
async fn a_replica_that_has_just_opened_has_the_whole_tail() {
    let mut rig = Rig::new(quiet()).await;
    for i in 1..=5 {
        rig.writer.put("k", &i.to_string()).await;
    }
    rig.writer.fold_and_sweep().await;
    for i in 6..=9 {
        rig.writer.put_staged("k", &i.to_string()).await;
    }
    for i in [9, 1, 4, 7, 0] {
        let value = (0 < i).then(|| i.to_string());
        assert_eq!(rig.read("k", exact(i)).await.unwrap(), (value, i));
    }
}

#[tokio::test]
async fn below_what_is_at_hand_a_version_is_retired_and_the_answer_says_what_is_there() {
    let mut rig = Rig::new(quiet()).await;
    for i in 1..=5 {
        rig.writer.put("k", &i.to_string()).await;
    }
    rig.writer.compact_and_sweep().await;
    rig.writer.put("k", "6").await;

    let answer = rig.read("k", exact(4)).await;

    let Err(ReadFailure::VersionRetired { wanted, oldest, newest }) = answer else {
        panic!("{answer:?}")
    };
    assert_eq!((wanted, oldest, newest), (version(4), version(5), version(6)));
    assert_eq!(rig.read("k", exact(5)).await.unwrap(), (Some("5".into()), 5));
}

#[tokio::test]
async fn above_what_is_known_one_check_is_made() {
    let mut rig = Rig::open(quiet()).await;
    rig.writer.put("k", "1").await;

    assert_eq!(rig.read("k", exact(1)).await.unwrap(), (Some("1".into()), 1));
    rig.faults.clear_log();
    let answer = rig.read("k", exact(2)).await;

    assert!(
        matches!(answer, Err(ReadFailure::VersionAhead { newest, .. }) if newest == version(1)),
        "{answer:?}"
    );
    assert_eq!(rig.count(Call::ReadHead), 1);
}

#[tokio::test]
async fn a_version_whose_chunks_were_swept_moves_to_the_new_snapshot() {
    let mut rig = Rig::new(quiet()).await;
    rig.writer.put("a", "1").await;
    rig.writer.compact().await;
    // The replica opens over a snapshot of version 1 and reads no chunk yet.
    rig.writer.put("b", "2").await;
    rig.read("b", Consistency::Strong).await.unwrap();
    rig.writer.put("a", "3").await;
    rig.read("b", Consistency::Strong).await.unwrap();
    let old_chunks = rig.writer.chunk_keys().await;
    rig.writer.compact_and_sweep().await;
    for chunk in old_chunks {
        rig.faults.add(Rule::new(Fault::Missing).on(Call::Get).key_has(chunk));
    }

    // Version 3 is that of the new snapshot, version 2 is before it.
    assert_eq!(rig.read("a", exact(3)).await.unwrap(), (Some("3".into()), 3));
    let answer = rig.read("a", exact(2)).await;
    assert!(
        matches!(answer, Err(ReadFailure::VersionRetired { oldest, .. }) if oldest <= version(3)),
        "{answer:?}"
    );
}

fn range(from: u64, versions_max: u64) -> ChangeRange {
    ChangeRange { from: version(from), versions_max, bytes_max: 1 << 20 }
}

fn numbers(changes: &[LoadedChange]) -> Vec<u64> {
    changes.iter().map(|it| it.version.get()).collect()
}

#[tokio::test]
async fn changes_are_listed_as_far_back_as_the_tail_reaches() {
    let mut rig = Rig::new(quiet()).await;
    for i in 1..=4 {
        rig.writer.put("k", &i.to_string()).await;
    }
    rig.writer.compact_and_sweep().await;
    for i in 5..=8 {
        rig.writer.put_staged("k", &i.to_string()).await;
    }
    let reader = rig.reader();
    let list = async |from, max, consistency| {
        let (changes, _) = reader.changes(range(from, max), consistency, deadline()).await.unwrap();
        changes.map(|it| numbers(&it))
    };

    assert_eq!(list(0, 100, Consistency::Strong).await, Some(vec![5, 6, 7, 8]));
    assert_eq!(list(6, 2, Consistency::Strong).await, Some(vec![6, 7]));
    assert_eq!(list(5, 100, exact(6)).await, Some(vec![5, 6]));
    assert_eq!(list(9, 100, Consistency::Strong).await, Some(vec![]));
    assert_eq!(list(4, 100, Consistency::Strong).await, None);
}

#[tokio::test]
async fn only_the_changes_asked_for_are_fetched() {
    let mut rig = Rig::new(quiet()).await;
    for i in 1..=8 {
        rig.writer.put_staged("k", &i.to_string()).await;
    }
    rig.read("k", Consistency::Strong).await.unwrap();
    rig.faults.clear_log();

    rig.reader().changes(range(3, 2), Consistency::Any, deadline()).await.unwrap();

    assert_eq!(rig.count(Call::Get), 2);
}

#[tokio::test]
async fn changes_that_were_folded_meanwhile_are_found_in_the_segment() {
    let mut rig = Rig::new(quiet()).await;
    for i in 1..=4 {
        rig.writer.put_staged("k", &i.to_string()).await;
    }
    rig.read("k", Consistency::Strong).await.unwrap();
    rig.writer.fold_and_sweep().await;

    let (changes, _) =
        rig.reader().changes(range(2, 100), Consistency::Any, deadline()).await.unwrap();

    assert_eq!(numbers(&changes.unwrap()), [2, 3, 4]);
}
