//! From one head to another: what is fetched, and what is not followed.

use std::vec;

use super::*;
use crate::head::{Append, Publisher, SnapshotRef, Successor};
use crate::id::{HistoryName, Nonce};
use crate::keys::{ObjectKey, ObjectKind};

const HISTORY: HistoryId = HistoryId::from_bytes([1; 16]);

fn version(number: u64) -> StateVersion {
    StateVersion::new(number)
}

fn object(kind: ObjectKind, text: &str) -> ObjectRef {
    ObjectRef::to_content(kind, Revision::new(1), text.as_bytes())
}

fn publisher(nonce: u8) -> Publisher {
    Publisher { id: "w".into(), nonce: Nonce::from_bytes([nonce; 16]), address: None }
}

fn first(history: HistoryId) -> Head {
    let name = HistoryName::parse("a").unwrap();
    let empty = object(ObjectKind::Snapshot, "empty");
    Head::first(name, history, Revision::FIRST, false, publisher(0), empty)
}

fn content(number: u64) -> Bytes {
    Bytes::from(std::format!("change {number}"))
}

/// `head` with `count` more changes, every second one staged.
fn after(head: &Head, count: u64) -> Head {
    let mut successor = Successor::of(head, publisher(head.publisher.nonce.as_bytes()[0] + 1));
    for _ in 0..count {
        let number = successor.head().state_version.get() + 1;
        let bytes = content(number);
        let hash = ContentHash::of(&bytes);
        let body = if number.is_multiple_of(2) {
            let nonce = Nonce::from_bytes([u8::try_from(number).unwrap(); 16]);
            let key = ObjectKey::change(Revision::FIRST, nonce);
            ChangeBody::Staged(ObjectRef { key, hash, size_bytes: bytes.len() as u64 })
        } else {
            ChangeBody::Inline(bytes)
        };
        successor.append(Append { hash, body, operations: 1 });
    }
    successor.finish()
}

/// Versions 1 to 8; 3 and 4 in one segment, 1 and 2 in the snapshot.
fn folded() -> Head {
    let mut head = after(&first(HISTORY), 8);
    head.snapshot = SnapshotRef { version: version(2), object: object(ObjectKind::Snapshot, "s") };
    let run =
        RunRef { from: version(3), to: version(4), object: object(ObjectKind::Segment, "3-4") };
    head.segments = vec![run];
    head.changes.drain(..4);
    head.receipt_coverage_from = version(3);
    head.check().unwrap();
    head
}

fn position_at(head: &Head) -> Position {
    Position::of(head)
}

#[test]
fn only_what_is_missing_is_fetched_in_order() {
    let head = folded();
    let describe = |it: &Step| match it {
        Step::Inline { version, hash, bytes } => {
            assert_eq!(*hash, ContentHash::of(bytes));
            std::format!("inline {version}")
        }
        Step::Change { version, object } => {
            assert_eq!(object.hash, ContentHash::of(&content(version.get())));
            std::format!("change {version}")
        }
        Step::Segment { from, run } => {
            std::format!("segment {} to {} from {from}", run.from, run.to)
        }
    };
    let cases: [(u64, &[&str]); 6] = [
        (2, &["segment v3 to v4 from v3", "inline v5", "change v6", "inline v7", "change v8"]),
        (3, &["segment v3 to v4 from v4", "inline v5", "change v6", "inline v7", "change v8"]),
        (4, &["inline v5", "change v6", "inline v7", "change v8"]),
        (6, &["inline v7", "change v8"]),
        (7, &["change v8"]),
        (8, &[]),
    ];
    for (at, expected) in cases {
        let before = after(&first(HISTORY), at);
        let position = Position { revision: Revision::FIRST, ..position_at(&before) };
        let Ok(Plan::Extend(steps)) = plan(&position, &head) else { panic!("{at}") };
        assert_eq!(steps.iter().map(describe).collect::<Vec<_>>(), expected, "{at}");
        assert_eq!(steps, steps_after(version(at), &head));
    }
}

#[test]
fn a_position_before_the_snapshot_starts_again_from_it() {
    let before = after(&first(HISTORY), 1);
    let position = Position { revision: Revision::FIRST, ..position_at(&before) };
    assert_eq!(plan(&position, &folded()), Ok(Plan::Reopen));
}

#[test]
fn the_same_head_and_one_of_maintenance_need_nothing() {
    let head = after(&first(HISTORY), 3);
    assert_eq!(plan(&position_at(&head), &head), Ok(Plan::Extend(Vec::new())));
    let next = after(&head, 0);
    assert_eq!(plan(&position_at(&head), &next), Ok(Plan::Extend(Vec::new())));
}

#[test]
fn another_history_of_the_name_is_not_followed() {
    let other = HistoryId::from_bytes([2; 16]);
    let found = after(&first(other), 5);
    let position = position_at(&after(&first(HISTORY), 3));
    assert_eq!(plan(&position, &found), Err(FollowError::Replaced { found: other }));
}

#[test]
fn a_head_that_went_back_or_aside_is_not_followed() {
    let seen = after(&after(&first(HISTORY), 3), 3);
    let changes: [fn(&mut Head); 5] = [
        |it| it.revision = Revision::new(2),
        |it| it.chain_hash = ChainHash::from_bytes([9; 32]),
        |it| it.state_version = version(7),
        |it| it.state_version = version(5),
        |it| {
            it.revision = it.revision.next();
            it.state_version = version(5);
        },
    ];
    for (change, index) in changes.into_iter().zip(0..) {
        let mut found = seen.clone();
        change(&mut found);
        let result = plan(&position_at(&seen), &found);
        assert!(matches!(result, Err(FollowError::WentBack { .. })), "{index}: {result:?}");
    }
}

#[test]
fn a_chain_ends_where_the_head_is_or_is_broken() {
    let before = after(&first(HISTORY), 3);
    let head = after(&before, 3);
    let extend = |numbers: &[u64]| {
        let mut chain = Chain::at(before.state_version, before.chain_hash);
        for number in numbers {
            chain.extend(ContentHash::of(&content(*number)));
        }
        chain.finish(&head)
    };
    assert_eq!(extend(&[4, 5, 6]), Ok(()));
    for wrong in [&[4, 5][..], &[4, 5, 6, 7], &[4, 6, 5], &[4, 5, 7], &[]] {
        assert!(matches!(extend(wrong), Err(FollowError::ChainBroken { .. })), "{wrong:?}");
    }
}

#[test]
fn histories_with_equal_changes_have_different_chains() {
    let a = after(&first(HISTORY), 2);
    let b = after(&first(HistoryId::from_bytes([2; 16])), 2);
    assert_ne!(a.chain_hash, b.chain_hash);
}
