//! What was there before.

use headwater_core::change::Resolved;
use headwater_replica::{ReadFailure, ReplicaConfig, WatchOptions};
use headwater_store::{Call, Fault, Gate, Rule};

use super::{after, begin, lines, range};
use crate::bucket::{Rig, arrived, key, put, quiet, version};

fn with_previous(number: u64) -> WatchOptions {
    WatchOptions { previous_values: true, ..after(number) }
}

/// No version is kept but the newest: those that are behind have to make their
/// own.
fn forgetful() -> ReplicaConfig {
    ReplicaConfig { recent_versions_max: 1, scans_max: 1, ..quiet() }
}

async fn story(rig: &mut Rig) {
    rig.writer.change(vec![put("a", "1"), put("b", "1"), put("d", "1")]).await;
    rig.writer.compact().await;
    rig.writer.put("c", "2").await;
    rig.writer
        .change(vec![
            put("a", "3"),
            put("a", "3b"),
            Resolved::DeleteRange(range("a", "d")),
            put("b", "3"),
            Resolved::Delete(key("b")),
            Resolved::DeleteRange(range("c", "")),
        ])
        .await;
    rig.writer.change(vec![Resolved::Delete(key("none")), put("d", "4")]).await;
}

const STORY: [&[&str]; 4] = [
    &["put a=1 []", "put b=1 []", "put d=1 []"],
    &["put c=2 []"],
    &[
        "put a=3 [a=1@1]",
        "put a=3b [a=3@3]",
        r#"delete ["a", "d") [a=3b@3 b=1@1 c=2@2]"#,
        "put b=3 []",
        "delete b [b=3@3]",
        r#"delete ["c", ..) [d=1@1]"#,
    ],
    &["delete none []", "put d=4 []"],
];

#[tokio::test(start_paused = true)]
async fn previous_values_are_those_right_before_each_mutation() {
    for config in [quiet(), forgetful()] {
        let mut rig = Rig::new(config).await;
        let mut live = begin(&rig, with_previous(0)).await;
        story(&mut rig).await;
        rig.tell();
        // Version 1 went into a snapshot before the replica heard of it.
        let mut behind = begin(&rig, with_previous(1)).await;
        let ended = super::end(&mut live).await;
        assert_eq!(ended.1, 0, "{ended:?}");

        for expected in &STORY[1..] {
            assert_eq!(lines(&mut behind).await, *expected);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_watcher_that_keeps_up_is_told_the_same() {
    let mut rig = Rig::new(quiet()).await;
    let mut watch = begin(&rig, with_previous(0)).await;
    rig.writer.change(vec![put("a", "1"), put("b", "1"), put("d", "1")]).await;
    rig.tell();
    assert_eq!(lines(&mut watch).await, STORY[0]);
    rig.writer.compact_and_sweep().await;
    rig.writer.put("c", "2").await;
    rig.tell();
    assert_eq!(lines(&mut watch).await, STORY[1]);
    rig.writer.compact_and_sweep().await;
    // The chunks that the replica's view is over are gone: it finds the same
    // values over the new snapshot.
    rig.writer.change(vec![put("a", "3"), Resolved::DeleteRange(range("", ""))]).await;
    rig.tell();
    assert_eq!(
        lines(&mut watch).await,
        ["put a=3 [a=1@1]", r#"delete ["", ..) [a=3@3 b=1@1 c=2@2 d=1@1]"#]
    );
}

#[tokio::test(start_paused = true)]
async fn a_chunk_that_is_gone_ends_the_watch_and_says_whether_it_should_be_there() {
    for is_compacted in [false, true] {
        let mut rig = Rig::new(quiet()).await;
        rig.writer.change(vec![put("a", "1"), put("b", "1")]).await;
        rig.writer.compact().await;
        let chunks = rig.writer.chunk_keys().await;
        let mut watch = begin(&rig, with_previous(1)).await;
        rig.writer.change(vec![put("b", "2"), Resolved::Delete(key("a"))]).await;
        let gate = Gate::new();
        let fault = if is_compacted { Fault::Hold(gate.clone()) } else { Fault::Missing };
        rig.faults.add(Rule::new(fault).on(Call::Get).key_has(chunks[0].clone()));
        rig.tell();
        if is_compacted {
            arrived(&gate, 1).await;
            rig.writer.compact_and_sweep().await;
            gate.open();
        }

        let (failure, resume_after) = super::end(&mut watch).await;

        assert_eq!(resume_after, 1);
        let failure = super::read_failure(failure);
        let is_expected = match (&failure, is_compacted) {
            // Version 1 was let go of.
            (ReadFailure::VersionRetired { oldest, .. }, true) => *oldest == version(2),
            // The snapshot is what the head names.
            (ReadFailure::StoredDataBad { key, .. }, false) => *key == chunks[0],
            _ => false,
        };
        assert!(is_expected, "{failure:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_deleted_range_with_many_entries_comes_in_pieces_that_cover_it() {
    let mut rig = Rig::new(quiet()).await;
    let large = "v".repeat(60 << 10);
    for number in 0..10 {
        rig.writer.put_staged(&format!("k{number}"), &large).await;
    }
    let mut watch = begin(&rig, with_previous(10)).await;
    rig.writer.change(vec![Resolved::DeleteRange(range("k", "l")), put("k3", "new")]).await;
    rig.tell();

    let mut pieces = Vec::new();
    let mut removed = Vec::new();
    for _ in 0..3 {
        let told = super::news(&mut watch).await.unwrap();
        let headwater_replica::WatchEvent::Change(change) = told.event else { panic!() };
        for it in change.mutations {
            let keys = it.previous.iter().map(|it| it.key.to_string());
            match it.kind {
                Resolved::DeleteRange(range) => {
                    removed.extend(keys);
                    pieces.push(range);
                }
                Resolved::Put(key, _) => {
                    assert_eq!((key.to_string().as_str(), keys.count()), ("k3", 0));
                }
                Resolved::Delete(_) => panic!(),
            }
        }
        assert_eq!(told.resume_after, version(if change.is_continued { 10 } else { 11 }));
    }
    assert_eq!(removed, (0..10).map(|it| format!("k{it}")).collect::<Vec<_>>());
    assert_eq!(pieces.first().unwrap().start(), "k");
    assert_eq!(pieces.last().unwrap().end().unwrap(), "l");
    assert!(pieces.windows(2).all(|it| it[0].end() == Some(it[1].start())), "{pieces:?}");
}

#[tokio::test(start_paused = true)]
async fn a_watcher_far_behind_carries_its_view_and_does_not_replay_the_tail_each_time() {
    let mut rig = Rig::new(forgetful()).await;
    rig.writer.put_versions(100, 1).await;
    for _ in 0..20 {
        rig.writer.put_versions(100, 4).await;
        rig.writer.fold_and_sweep().await;
    }
    rig.read("k00", headwater_replica::Consistency::Strong).await.unwrap();
    rig.faults.clear_log();

    let mut watch = begin(&rig, with_previous(100)).await;
    for number in 101..=2_100 {
        let before = number - 100;
        let width = if before <= 100 { 1 } else { 4 };
        let expected = format!(
            "put k{key:02}={number:04} [k{key:02}={before:0width$}@{before}]",
            key = number % 100
        );
        assert_eq!(lines(&mut watch).await, [expected]);
    }

    // The segments, each once for the changes; and the tail up to the view that
    // was begun with, and again to each that took its place.
    assert!(rig.count(Call::Get) < 60, "{}", rig.count(Call::Get));
}
