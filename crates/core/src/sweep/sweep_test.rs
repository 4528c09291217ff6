//! What a sweep takes for reached, young, and deletable.

use std::vec;
use std::vec::Vec;

use super::*;
use crate::archive::{ArchivedRun, ArchivedSnapshot};
use crate::head::{ArchiveRef, ObjectRef, Publisher, RunRef};
use crate::id::{HistoryId, HistoryName, Nonce};
use crate::version::StateVersion;

fn object(kind: ObjectKind, staged: u64, content: &str) -> ObjectRef {
    ObjectRef::to_content(kind, Revision::new(staged), content.as_bytes())
}

const ID: HistoryId = HistoryId::from_bytes([1; 16]);

/// Swept below 20, to be swept below 30. An archived snapshot staged at 10, the
/// head's at 25.
fn planned(is_full: bool) -> Sweep {
    let snapshot = |at, staged| SnapshotRef {
        version: StateVersion::new(at),
        object: object(ObjectKind::Snapshot, staged, "snapshot"),
    };
    let run = RunRef {
        from: StateVersion::new(1),
        to: StateVersion::new(2),
        object: object(ObjectKind::Segment, 21, "run"),
    };
    let archive = Archive {
        runs: vec![ArchivedRun { run, decided_from_ms: 0, decided_to_ms: 0 }],
        snapshots: vec![ArchivedSnapshot {
            snapshot: snapshot(0, 10),
            needs_base: false,
            replaced: Vec::new(),
        }],
        released: vec![
            object(ObjectKind::Chunk, 5, "let go").key,
            object(ObjectKind::Chunk, 29, "let go").key,
            object(ObjectKind::Chunk, 30, "let go").key,
            // Named again by a head that says so would be a defect; it is not
            // deleted all the same.
            object(ObjectKind::Segment, 21, "run").key,
        ],
        ..Archive::empty(ID)
    };
    let name = HistoryName::parse("events").unwrap();
    let publisher = Publisher { id: "w".into(), nonce: Nonce::from_bytes([1; 16]), address: None };
    let empty = object(ObjectKind::Snapshot, 0, "empty");
    let head = Head {
        revision: Revision::new(35),
        snapshot: snapshot(2, 25),
        state_version: StateVersion::new(2),
        sweep_from: Revision::new(30),
        swept_to: Revision::new(20),
        archive: Some(ArchiveRef {
            retained_from: StateVersion::new(0),
            object: object(ObjectKind::Archive, 26, "archive"),
        }),
        ..Head::first(name, ID, Revision::FIRST, false, publisher, empty)
    };
    Sweep::of(&head, &archive, is_full)
}

#[test]
fn what_the_head_and_its_archive_name_is_reached() {
    let sweep = planned(false);
    for (kind, staged, content) in [
        (ObjectKind::Snapshot, 25, "snapshot"),
        (ObjectKind::Snapshot, 10, "snapshot"),
        (ObjectKind::Segment, 21, "run"),
        (ObjectKind::Archive, 26, "archive"),
    ] {
        let key = object(kind, staged, content).key;
        assert_eq!(sweep.judge(&key), Judgement::Reached, "{key}");
    }
}

#[test]
fn what_was_staged_at_the_boundary_or_later_is_left_alone() {
    let sweep = planned(false);
    let judge = |staged| sweep.judge(&object(ObjectKind::Chunk, staged, "stray").key);
    assert_eq!(judge(29), Judgement::Unreached);
    assert_eq!(judge(30), Judgement::Young);
    assert_eq!(judge(1_000), Judgement::Young);
    assert!(Judgement::Unreached.is_deletable() && Judgement::Released.is_deletable());
    assert!(!Judgement::Reached.is_deletable() && !Judgement::Young.is_deletable());
}

#[test]
fn what_a_snapshot_reaches_is_told() {
    let mut sweep = planned(false);
    let chunk = object(ObjectKind::Chunk, 25, "chunk").key;
    assert_eq!(sweep.judge(&chunk), Judgement::Unreached);
    sweep.reach(chunk.clone());
    assert_eq!(sweep.judge(&chunk), Judgement::Reached);
}

#[test]
fn only_what_is_new_is_looked_at_unless_everything_is_asked_for() {
    let sweep = planned(false);
    // The archived snapshot is older than anything that is listed.
    assert_eq!(sweep.snapshots().len(), 1);
    assert_eq!(sweep.lists_from(ObjectKind::Chunk), Revision::new(20));
    assert_eq!(sweep.lists_from(ObjectKind::Segment), Revision::new(20));
    assert_eq!(sweep.lists_from(ObjectKind::Change), Revision::new(0));
    let sweep = planned(true);
    assert_eq!(sweep.snapshots().len(), 2);
    for kind in ObjectKind::ALL {
        assert_eq!(sweep.lists_from(kind), Revision::new(0));
    }
}

#[test]
fn what_was_let_go_is_deleted_by_name_once_it_is_below_the_boundary() {
    let sweep = planned(false);
    let chunk = |staged| object(ObjectKind::Chunk, staged, "let go").key;
    assert_eq!(sweep.released(), [chunk(5), chunk(29)]);
}

#[test]
fn an_archive_forgets_what_is_deleted() {
    let key = |staged| object(ObjectKind::Chunk, staged, "let go").key;
    let archive = Archive { released: vec![key(1), key(2)], ..Archive::empty(ID) };
    let rest = archive.without_released(&[key(1), key(9)].into()).unwrap();
    assert_eq!(rest.released, [key(2)]);
    assert_eq!(rest.without_released(&[key(9)].into()), None);
}
