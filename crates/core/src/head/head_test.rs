//! Invariants of one head and of two in a row, each broken on its own; and what
//! a successor leaves out.

#![allow(
    clippy::wildcard_enum_match_arm,
    clippy::clone_on_ref_ptr,
    clippy::needless_for_each,
    clippy::type_complexity,
    reason = "a test names what it expects, and fails on the rest"
)]

use std::collections::BTreeSet;
use std::vec;
use std::vec::Vec;

use super::*;
use crate::archive::ArchiveUpdate;
use crate::format;
use crate::format::snapshot::SnapshotIndex;
use crate::id::PinName;

fn version(number: u64) -> StateVersion {
    StateVersion::new(number)
}

fn revision(number: u64) -> Revision {
    Revision::new(number)
}

fn object(kind: ObjectKind, staged: u64, content: &str) -> ObjectRef {
    ObjectRef::to_content(kind, revision(staged), content.as_bytes())
}

fn run(kind: ObjectKind, from: u64, to: u64) -> RunRef {
    let object = object(kind, 9, &std::format!("{from}-{to}"));
    RunRef { from: version(from), to: version(to), object }
}

fn inline(number: u64, content: &'static str) -> ChangeRef {
    let bytes = Bytes::from_static(content.as_bytes());
    ChangeRef {
        version: version(number),
        hash: ContentHash::of(&bytes),
        body: ChangeBody::Inline(bytes),
    }
}

fn staged(number: u64, content: &str) -> ChangeRef {
    let hash = ContentHash::of(content.as_bytes());
    let key = ObjectKey::change(revision(9), Nonce::from_bytes([9; 16]));
    let object = ObjectRef { key, hash, size_bytes: content.len() as u64 };
    ChangeRef { version: version(number), hash, body: ChangeBody::Staged(object) }
}

fn publisher(nonce: u8) -> Publisher {
    Publisher { id: "writer-1".into(), nonce: Nonce::from_bytes([nonce; 16]), address: None }
}

/// Revision 12 at version 8: a snapshot at 4, a segment 5 to 6, changes 7 and 8;
/// receipts from 3 on, in pages 2 to 3 and 4.
pub(super) fn head() -> Head {
    let id = HistoryId::from_bytes([1; 16]);
    let index = format::snapshot::encode(&SnapshotIndex::empty(id));
    let empty = ObjectRef::to_content(ObjectKind::Snapshot, revision(0), &index);
    let name = HistoryName::parse("datasets/events").unwrap();
    Head {
        revision: revision(12),
        state_version: version(8),
        operation_count: 20,
        is_exclusive: true,
        writer_epoch: 3,
        snapshot: SnapshotRef {
            version: version(4),
            object: object(ObjectKind::Snapshot, 8, "snapshot"),
        },
        segments: vec![run(ObjectKind::Segment, 5, 6)],
        changes: vec![inline(7, "seven"), staged(8, "eight")],
        receipt_coverage_from: version(3),
        receipt_pages: vec![run(ObjectKind::Receipts, 2, 3), run(ObjectKind::Receipts, 4, 4)],
        sweep_from: revision(5),
        ..Head::first(name, id, revision(1), true, publisher(1), empty)
    }
}

fn next() -> Head {
    Successor::of(&head(), publisher(2)).finish()
}

#[test]
fn the_heads_of_these_tests_are_right() {
    assert_eq!(head().check(), Ok(()));
    assert_eq!(next().check(), Ok(()));
    assert_eq!(next().check_follows(&head()), Ok(()));
}

type Break = fn(&mut Head);

#[test]
fn each_invariant_of_a_head_is_checked_and_its_field_named() {
    let cases: &[(&str, &str, Break)] = &[
        ("revision", "revision 0", |it| it.revision = revision(0)),
        ("revision", "no revision after it", |it| it.revision = revision(u64::MAX)),
        ("publisher", "no id", |it| it.publisher.id.clear()),
        ("publisher", "long id", |it| it.publisher.id = "x".repeat(65)),
        ("publisher", "odd id", |it| it.publisher.id = "a b".into()),
        ("snapshot", "kind", |it| it.snapshot.object = object(ObjectKind::Chunk, 8, "x")),
        ("segments", "kind", |it| it.segments = vec![run(ObjectKind::Receipts, 5, 6)]),
        ("segments", "gap", |it| it.segments = vec![run(ObjectKind::Segment, 6, 6)]),
        ("segments", "overlap", |it| it.segments = vec![run(ObjectKind::Segment, 4, 6)]),
        ("segments", "inverted", |it| it.segments = vec![run(ObjectKind::Segment, 5, 4)]),
        ("segments", "snapshot moved", |it| it.snapshot.version = version(3)),
        ("changes", "gap", |it| it.changes[0].version = version(8)),
        ("changes", "order", |it| it.changes.reverse()),
        ("changes", "gap after segments", |it| it.segments.clear()),
        ("changes", "inline hash", |it| it.changes[0].hash = ContentHash::of(b"other")),
        ("changes", "staged hash", |it| it.changes[1].hash = ContentHash::of(b"other")),
        ("changes", "kind", |it| {
            let object = object(ObjectKind::Data, 9, "eight");
            it.changes[1].hash = object.hash;
            it.changes[1].body = ChangeBody::Staged(object);
        }),
        ("sweptTo", "above sweepFrom", |it| it.swept_to = revision(6)),
        ("archive", "kind", |it| {
            let object = object(ObjectKind::Chunk, 9, "x");
            it.archive = Some(ArchiveRef { object, ..archive_at(2) });
        }),
        ("archive", "after the snapshot", |it| it.archive = Some(archive_at(5))),
        ("pins", "order", |it| it.pins = vec![pin_at("b", 1), pin_at("a", 1)]),
        ("pins", "twice", |it| it.pins = vec![pin_at("a", 1), pin_at("a", 1)]),
        ("pins", "to come", |it| it.pins = vec![pin_at("a", 9)]),
        ("pins", "from a later head", |it| {
            it.pins = vec![Pin { revision: revision(13), ..pin_at("a", 1) }];
        }),
        ("pins", "too many", |it| {
            it.pins = (0..129).map(|n| pin_at(&std::format!("p{n:03}"), 1)).collect();
        }),
        ("stateVersion", "too high", |it| it.state_version = version(9)),
        ("stateVersion", "too low", |it| it.state_version = version(7)),
        ("stateVersion", "no version after it", |it| {
            it.state_version = version(u64::MAX);
            it.snapshot.version = version(u64::MAX);
            it.segments.clear();
            it.changes.clear();
        }),
        ("receiptCoverageFrom", "zero", |it| it.receipt_coverage_from = version(0)),
        ("receiptCoverageFrom", "too high", |it| it.receipt_coverage_from = version(10)),
        ("receiptPages", "begin late", |it| {
            it.receipt_pages.remove(0);
        }),
        ("receiptPages", "end early", |it| {
            it.receipt_pages.pop();
        }),
        ("receiptPages", "end late", |it| {
            it.receipt_pages.push(run(ObjectKind::Receipts, 5, 5));
        }),
        ("receiptPages", "gap", |it| it.receipt_pages[1] = run(ObjectKind::Receipts, 5, 5)),
        ("receiptPages", "kind", |it| it.receipt_pages[1] = run(ObjectKind::Segment, 4, 4)),
        ("receiptPages", "none", |it| it.receipt_pages.clear()),
        ("receiptPages", "from zero", |it| it.receipt_pages[0] = run(ObjectKind::Receipts, 0, 3)),
        ("writerEpoch", "not exclusive", |it| it.is_exclusive = false),
        ("sweepFrom", "above the revision", |it| it.sweep_from = revision(13)),
        ("operationCount", "fewer than versions", |it| it.operation_count = 7),
    ];
    for (field, what, change) in cases {
        let mut head = head();
        change(&mut head);
        let error = head.check().expect_err(what);
        assert_eq!(error.field, *field, "{what}: {error}");
    }
}

#[test]
fn a_head_at_its_edges_is_right() {
    let edges: &[Break] = &[
        |it| it.receipt_coverage_from = version(2),
        |it| {
            it.receipt_coverage_from = version(9);
            it.receipt_pages.clear();
        },
        |it| {
            it.receipt_coverage_from = version(5);
            it.receipt_pages.clear();
        },
        |it| it.sweep_from = revision(12),
        |it| it.operation_count = 8,
        |it| {
            it.is_exclusive = false;
            it.writer_epoch = 0;
        },
        |it| it.publisher.id = "x".repeat(64),
    ];
    for (change, index) in edges.iter().zip(0..) {
        let mut head = head();
        change(&mut head);
        assert_eq!(head.check(), Ok(()), "{index}");
    }
}

#[test]
fn each_rule_between_two_heads_is_checked_and_its_field_named() {
    let cases: &[(&str, &str, Break)] = &[
        ("historyId", "id", |it| it.history_id = HistoryId::from_bytes([2; 16])),
        ("historyId", "name", |it| it.history = HistoryName::parse("datasets/other").unwrap()),
        ("exclusive", "changed", |it| it.is_exclusive = false),
        ("revision", "the same", |it| it.revision = revision(12)),
        ("revision", "a gap", |it| it.revision = revision(14)),
        ("publisher", "the same nonce", |it| it.publisher = publisher(1)),
        ("stateVersion", "falls", |it| it.state_version = version(7)),
        ("operationCount", "falls", |it| it.operation_count = 19),
        ("writerEpoch", "falls", |it| it.writer_epoch = 2),
        ("receiptCoverageFrom", "falls", |it| it.receipt_coverage_from = version(2)),
        ("sweepFrom", "falls", |it| it.sweep_from = revision(4)),
        ("snapshot", "falls", |it| it.snapshot.version = version(3)),
        ("sweepFrom", "names a swept object", |it| {
            it.receipt_pages[0].object = object(ObjectKind::Receipts, 4, "new");
        }),
    ];
    for (field, what, change) in cases {
        let mut next = next();
        change(&mut next);
        let error = next.check_follows(&head()).expect_err(what);
        assert_eq!(error.field, *field, "{what}: {error}");
    }
    // What is kept alive may be older than the boundary.
    let mut previous = head();
    previous.sweep_from = revision(12);
    let mut next = next();
    next.sweep_from = revision(12);
    assert_eq!(next.check_follows(&previous), Ok(()));
}

#[test]
fn a_history_moves_only_forward_to_its_end() {
    use Lifecycle::{Cleared, Live, Retiring};
    for (from, to, is_right) in [
        (Live, Retiring, true),
        (Retiring, Cleared, true),
        (Retiring, Live, false),
        (Cleared, Retiring, false),
        (Cleared, Live, false),
    ] {
        let previous = Head { lifecycle: from, ..head() };
        let next = Head { lifecycle: to, ..next() };
        let result = next.check_follows(&previous).map_err(|it| it.field);
        assert_eq!(result, if is_right { Ok(()) } else { Err("lifecycle") }, "{from:?} {to:?}");
    }
}

#[test]
fn a_successor_appends_and_extends_the_chain() {
    let before = head();
    let mut successor = Successor::of(&before, publisher(2));
    let append = |content: &'static str, operations| {
        let ChangeRef { hash, body, .. } = inline(0, content);
        Append { hash, body, operations }
    };
    assert_eq!(successor.append(append("nine", 2)), version(9));
    assert_eq!(successor.append(append("ten", 3)), version(10));
    let next = successor.finish();
    assert_eq!(next.check(), Ok(()));
    assert_eq!(next.check_follows(&head()), Ok(()));
    assert_eq!(next.operation_count, 25);
    let nine = head().chain_hash.extend(version(9), ContentHash::of(b"nine"));
    assert_eq!(next.chain_hash, nine.extend(version(10), ContentHash::of(b"ten")));
}

#[test]
fn raising_coverage_lets_go_of_pages_that_are_wholly_below() {
    for (to, pages) in [(2, 2), (3, 2), (4, 1), (5, 0), (9, 0)] {
        let before = head();
        let mut successor = Successor::of(&before, publisher(2));
        successor.raise_coverage(version(to));
        let next = successor.finish();
        assert_eq!(next.receipt_pages.len(), pages, "{to}");
        assert_eq!(next.receipt_coverage_from, version(to.max(3)));
        assert_eq!(next.check(), Ok(()), "{to}");
    }
}

fn fold(from: u64, to: u64, last_change: &str) -> Fold {
    Fold {
        segment: run(ObjectKind::Segment, from, to),
        last_change: ContentHash::of(last_change.as_bytes()),
    }
}

#[test]
fn a_fold_takes_the_front_of_the_changes_if_they_are_still_those() {
    let cases = [
        (fold(7, 7, "seven"), Some(1)),
        (fold(7, 8, "eight"), Some(0)),
        (fold(7, 8, "other"), None),
        (fold(8, 8, "eight"), None),
        (fold(6, 7, "seven"), None),
        (fold(7, 9, "eight"), None),
    ];
    for (fold, left) in cases {
        let before = head();
        let mut successor = Successor::of(&before, publisher(2));
        assert_eq!(successor.fold(&fold), left.is_some(), "{fold:?}");
        let next = successor.finish();
        assert_eq!(next.changes.len(), left.unwrap_or(2));
        assert_eq!(next.check(), Ok(()));
        assert_eq!(next.check_follows(&head()), Ok(()));
        assert_eq!((next.state_version, next.chain_hash), (version(8), head().chain_hash));
    }
}

fn nothing_kept() -> ArchiveUpdate {
    ArchiveUpdate {
        based_on: None,
        becomes: None,
        named: Vec::new(),
        accounted: vec![run(ObjectKind::Segment, 5, 6).object.key],
        pinned: BTreeSet::new(),
        forks: BTreeSet::new(),
        expired: Vec::new(),
        needs_base: false,
    }
}

fn compaction(at: u64, pages: &[(u64, u64)]) -> Compaction {
    Compaction {
        snapshot: SnapshotRef {
            version: version(at),
            object: object(ObjectKind::Snapshot, 12, "new"),
        },
        based_on: head().snapshot,
        receipt_pages: pages.iter().map(|it| run(ObjectKind::Receipts, it.0, it.1)).collect(),
        archive: nothing_kept(),
    }
}

#[test]
fn a_snapshot_takes_the_place_of_the_tail_up_to_it_and_keeps_the_receipts() {
    // Version, pages, and what is left: segments, changes, pages.
    let cases: [(u64, &[(u64, u64)], Option<[usize; 3]>); 9] = [
        (6, &[(5, 6)], Some([0, 2, 3])),
        (7, &[(5, 6), (7, 7)], Some([0, 1, 4])),
        (8, &[(5, 8)], Some([0, 0, 3])),
        // Inside a segment, not newer, ahead.
        (5, &[(5, 5)], None),
        (4, &[(4, 4)], None),
        (9, &[(5, 9)], None),
        // Receipts are missing.
        (6, &[], None),
        (6, &[(6, 6)], None),
        (8, &[(5, 7)], None),
    ];
    for (at, pages, left) in cases {
        let before = head();
        let mut successor = Successor::of(&before, publisher(2));
        assert_eq!(successor.compact(&compaction(at, pages)), left.is_some(), "{at} {pages:?}");
        let next = successor.finish();
        let lens = [next.segments.len(), next.changes.len(), next.receipt_pages.len()];
        assert_eq!(lens, left.unwrap_or([1, 2, 2]));
        assert_eq!(next.check(), Ok(()), "{at} {pages:?}");
        assert_eq!(next.check_follows(&head()), Ok(()));
        assert_eq!(next.receipt_coverage_from, version(3));
        assert_eq!(next.state_version, version(8));
    }
}

#[test]
fn a_snapshot_needs_no_page_of_what_is_below_coverage() {
    // Coverage, pages, and whether that is enough for a snapshot at 8.
    let cases: [(u64, &[(u64, u64)], bool); 6] = [
        (9, &[], true),
        (8, &[], false),
        (7, &[(7, 8)], true),
        (7, &[(6, 8)], true),
        (7, &[(8, 8)], false),
        (4, &[(6, 8)], false),
    ];
    for (coverage, pages, is_enough) in cases {
        let before = head();
        let mut successor = Successor::of(&before, publisher(2));
        successor.raise_coverage(version(coverage));
        assert_eq!(successor.compact(&compaction(8, pages)), is_enough, "{coverage} {pages:?}");
        assert_eq!(successor.finish().check(), Ok(()), "{coverage} {pages:?}");
    }
}

#[test]
fn small_pages_are_replaced_by_one_that_holds_them() {
    // Coverage, the page of a snapshot at 8, and the pages that are left.
    let cases: [(u64, (u64, u64), Option<&[(u64, u64)]>); 5] = [
        (3, (4, 8), Some(&[(2, 3), (4, 8)])),
        (3, (2, 8), Some(&[(2, 8)])),
        (4, (5, 8), Some(&[(4, 4), (5, 8)])),
        // Inside a page: only where its older part is not covered any more.
        (3, (3, 8), Some(&[(3, 8)])),
        (2, (3, 8), Some(&[(3, 8)])),
    ];
    for (coverage, page, left) in cases {
        let before = head();
        let mut successor = Successor::of(&before, publisher(2));
        successor.raise_coverage(version(coverage));
        let is_applied = successor.compact(&compaction(8, &[page]));
        assert_eq!(is_applied, left.is_some(), "{coverage} {page:?}");
        let next = successor.finish();
        assert_eq!(next.check(), Ok(()), "{coverage} {page:?}");
        if let Some(left) = left {
            let pages = next.receipt_pages.iter().map(|it| (it.from.get(), it.to.get()));
            assert!(pages.eq(left.iter().copied()), "{coverage} {page:?}");
        }
    }
}

#[test]
fn a_snapshot_built_from_another_one_is_left_out() {
    let mut compaction = compaction(8, &[(5, 8)]);
    assert!(Successor::of(&head(), publisher(2)).compact(&compaction));
    compaction.based_on.object = object(ObjectKind::Snapshot, 8, "another");
    assert!(!Successor::of(&head(), publisher(2)).compact(&compaction));
}

#[test]
fn a_snapshot_whose_tail_is_not_accounted_for_is_left_out() {
    let mut compaction = compaction(8, &[(5, 8)]);
    compaction.archive.accounted.clear();
    assert!(!Successor::of(&head(), publisher(2)).compact(&compaction));
}

fn pin_at(name: &str, at: u64) -> Pin {
    let name = PinName::parse(name).unwrap();
    Pin { name, version: version(at), revision: revision(9), expires_at_ms: None, child: None }
}

fn archive_at(retained_from: u64) -> ArchiveRef {
    let object = object(ObjectKind::Archive, 9, &std::format!("archive {retained_from}"));
    ArchiveRef { retained_from: version(retained_from), object }
}

/// The head with an archive from 2 on, and pins on 1 and 3.
fn kept() -> Head {
    Head { archive: Some(archive_at(2)), pins: vec![pin_at("a", 1), pin_at("b", 3)], ..head() }
}

#[test]
fn an_archive_takes_the_place_of_the_one_that_it_was_made_from() {
    let update = ArchiveUpdate {
        based_on: Some(archive_at(2)),
        becomes: Some(archive_at(4)),
        named: vec![object(ObjectKind::Segment, 5, "named")],
        pinned: [version(1), version(3)].into(),
        ..nothing_kept()
    };
    let before = kept();
    assert_eq!(before.check(), Ok(()));
    let mut successor = Successor::of(&before, publisher(2));
    assert!(successor.release(&update));
    let next = successor.finish();
    assert_eq!(next.check(), Ok(()));
    assert_eq!(next.check_follows(&before), Ok(()));
    assert_eq!(next.retained_from(), version(4));
    assert!(next.is_retained(version(3)) && !next.is_retained(version(2)));

    let refused: [(&str, fn(&mut ArchiveUpdate)); 5] = [
        ("another archive", |it| it.based_on = Some(archive_at(1))),
        ("none", |it| it.based_on = None),
        ("a pin is not kept", |it| it.pinned = [version(1)].into()),
        ("less than is gone", |it| it.becomes = Some(archive_at(1))),
        ("what may be swept", |it| it.named = vec![object(ObjectKind::Segment, 4, "old")]),
    ];
    for (what, alter) in refused {
        let mut update = update.clone();
        alter(&mut update);
        assert!(!Successor::of(&before, publisher(2)).release(&update), "{what}");
    }
    // What the head named itself is there, however old it is.
    let named = vec![before.snapshot.object.clone()];
    assert!(Successor::of(&before, publisher(2)).release(&ArchiveUpdate { named, ..update }));
}

#[test]
fn an_archive_that_was_made_without_a_fork_is_left_out() {
    let child = HistoryRef {
        history: HistoryName::parse("child").unwrap(),
        history_id: HistoryId::from_bytes([2; 16]),
    };
    let mut before = kept();
    before.pins[1].child = Some(child);
    let mut update = ArchiveUpdate {
        based_on: before.archive.clone(),
        becomes: Some(archive_at(3)),
        pinned: [version(1)].into(),
        ..nothing_kept()
    };
    assert!(!Successor::of(&before, publisher(2)).release(&update));
    update.forks.insert(before.pins[1].name.clone());
    assert!(Successor::of(&before, publisher(2)).release(&update));
}

#[test]
fn an_expired_pin_goes_with_the_archive_that_kept_it() {
    let before = kept();
    let update = ArchiveUpdate {
        based_on: before.archive.clone(),
        becomes: None,
        pinned: [version(3)].into(),
        expired: vec![pin_at("a", 1)],
        ..nothing_kept()
    };
    let mut successor = Successor::of(&before, publisher(2));
    assert!(successor.release(&update));
    assert_eq!(successor.finish().pins, [pin_at("b", 3)]);
    // Made anew meanwhile on another version, it is another pin.
    let other = Head { pins: vec![pin_at("a", 2), pin_at("b", 3)], ..kept() };
    assert!(!Successor::of(&other, publisher(2)).release(&update));
}

#[test]
fn a_version_that_is_gone_cannot_be_pinned() {
    let before = kept();
    for (at, result) in [(0, Err("pins")), (1, Ok(())), (2, Ok(())), (8, Ok(()))] {
        let mut successor = Successor::of(&before, publisher(2));
        successor.pin(pin_at("c", at));
        let next = successor.finish();
        assert_eq!(next.check(), Ok(()));
        assert_eq!(next.check_follows(&before).map_err(|it| it.field), result, "{at}");
    }
}

#[test]
fn the_sweep_boundary_is_raised_to_what_is_past_and_followed_by_what_is_swept() {
    let before = head();
    let mut successor = Successor::of(&before, publisher(2));
    assert!(!successor.raise_sweep(revision(5)));
    assert!(!successor.raise_sweep(revision(13)));
    assert!(successor.raise_sweep(revision(12)));
    assert!(!successor.swept(revision(13), None));
    assert!(successor.swept(revision(12), None));
    assert!(!successor.swept(revision(12), None));
    let next = successor.finish();
    assert_eq!((next.sweep_from, next.swept_to), (revision(12), revision(12)));
    assert_eq!(next.check(), Ok(()));
    assert_eq!(next.check_follows(&before), Ok(()));
}

#[test]
fn a_head_names_its_snapshot_runs_and_staged_changes() {
    let head = head();
    let folders: Vec<_> = head.references().map(|it| it.key.kind().folder()).collect();
    assert_eq!(folders, ["snapshots", "segments", "receipts", "receipts", "changes"]);
    assert_eq!(head.tail_from(), version(5));
}

#[test]
fn a_reference_is_to_its_bytes_only() {
    let reference = object(ObjectKind::Chunk, 1, "content");
    assert!(reference.is_to(b"content"));
    assert!(!reference.is_to(b"contenT"));
    assert!(!reference.is_to(b"content "));
    let wrong_len = ObjectRef { size_bytes: 8, ..reference };
    assert!(!wrong_len.is_to(b"content"));
}

#[test]
fn a_rebuilt_snapshot_takes_the_place_of_the_damaged_one_and_moves_nothing_else() {
    let before = kept();
    let archive = ArchiveUpdate {
        based_on: Some(archive_at(2)),
        becomes: Some(archive_at(2)),
        pinned: [version(1)].into(),
        ..nothing_kept()
    };
    let at = |staged: u64, number: u64| SnapshotRef {
        version: version(number),
        object: object(ObjectKind::Snapshot, staged, "rebuilt"),
    };
    let fits =
        Rebuilt { snapshot: at(12, 4), damaged: before.snapshot.clone(), archive: archive.clone() };
    let mut successor = Successor::of(&before, publisher(2));
    assert!(successor.replace_snapshot(&fits));
    let next = successor.finish();
    assert_eq!(next.check(), Ok(()));
    assert_eq!(next.check_follows(&before), Ok(()));
    let expected = Head { snapshot: at(12, 4), ..Successor::of(&before, publisher(2)).finish() };
    assert_eq!(next, expected);

    let other_archive = ArchiveUpdate { based_on: None, ..archive.clone() };
    let forgets_a_pin = ArchiveUpdate { pinned: BTreeSet::new(), ..archive };
    for refused in [
        Rebuilt { snapshot: at(12, 5), ..fits.clone() },
        Rebuilt { snapshot: before.snapshot.clone(), ..fits.clone() },
        Rebuilt { damaged: at(11, 4), ..fits.clone() },
        // Its parts may be swept by now.
        Rebuilt { snapshot: at(4, 4), ..fits.clone() },
        Rebuilt { archive: other_archive, ..fits.clone() },
        Rebuilt { archive: forgets_a_pin, ..fits.clone() },
    ] {
        let mut successor = Successor::of(&before, publisher(2));
        assert!(!successor.replace_snapshot(&refused), "{refused:?}");
        assert_eq!(successor.finish(), Successor::of(&before, publisher(2)).finish());
    }
}
