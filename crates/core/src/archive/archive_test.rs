//! What stays readable, what is let go, and that nothing is let go of that is
//! still needed: by hand, and against a model of many compactions.

use std::collections::{BTreeMap, BTreeSet};
use std::vec;
use std::vec::Vec;

use super::*;
use crate::format;
use crate::format::snapshot::SnapshotIndex;
use crate::head::{HistoryRef, Pin, Publisher, Retention};
use crate::id::{HistoryName, Nonce, PinName};
use crate::keys::ObjectKind;
use crate::version::Revision;

fn version(number: u64) -> StateVersion {
    StateVersion::new(number)
}

fn object(kind: ObjectKind, staged: u64, content: &str) -> ObjectRef {
    ObjectRef::to_content(kind, Revision::new(staged), content.as_bytes())
}

fn chunk(staged: u64, content: &str) -> ObjectKey {
    object(ObjectKind::Chunk, staged, content).key
}

fn snapshot(at: u64) -> SnapshotRef {
    let object = object(ObjectKind::Snapshot, 10 * at, &std::format!("snapshot {at}"));
    SnapshotRef { version: version(at), object }
}

fn archived(at: u64, replaced: Vec<ObjectKey>) -> ArchivedSnapshot {
    ArchivedSnapshot { snapshot: snapshot(at), needs_base: false, replaced }
}

/// Decided at 1,000 times its versions.
fn run(from: u64, to: u64) -> ArchivedRun {
    let object = object(ObjectKind::Segment, 10 * to, &std::format!("{from} to {to}"));
    let run = RunRef { from: version(from), to: version(to), object };
    ArchivedRun { run, decided_from_ms: 1_000 * from, decided_to_ms: 1_000 * to }
}

fn pin(name: &str, at: u64) -> Pin {
    let name = PinName::parse(name).unwrap();
    let revision = Revision::new(400);
    Pin { name, version: version(at), revision, expires_at_ms: None, child: None }
}

const ID: HistoryId = HistoryId::from_bytes([1; 16]);

/// At version 50, with its snapshot at 40.
fn head() -> Head {
    let index = format::snapshot::encode(&SnapshotIndex::empty(ID));
    let empty = ObjectRef::to_content(ObjectKind::Snapshot, Revision::new(0), &index);
    let name = HistoryName::parse("events").unwrap();
    let publisher = Publisher { id: "w".into(), nonce: Nonce::from_bytes([1; 16]), address: None };
    Head {
        revision: Revision::new(500),
        state_version: version(50),
        snapshot: snapshot(40),
        retention: Retention { versions: 1_000, age_ms: 0 },
        archive: Some(ArchiveRef {
            retained_from: version(0),
            object: object(ObjectKind::Archive, 400, "archive"),
        }),
        ..Head::first(name, ID, Revision::FIRST, false, publisher, empty)
    }
}

/// Snapshots at 0, 10, 20 and 30, and every change between.
fn archive() -> Archive {
    Archive {
        history_id: ID,
        runs: vec![run(1, 10), run(11, 20), run(21, 30), run(31, 40)],
        snapshots: vec![
            archived(0, Vec::new()),
            archived(10, vec![chunk(100, "a")]),
            // One that the snapshot at 10 has too, and one of its own.
            archived(20, vec![chunk(100, "b"), chunk(200, "c")]),
            archived(30, vec![chunk(300, "d")]),
        ],
        released: Vec::new(),
    }
}

const NOW: Keep = Keep { now_ms: 50_000, clock_error_ms: 0 };

fn keep(head: &Head) -> Kept {
    archive().keep(head, None, &NOW)
}

fn versions(archive: &Archive) -> (Vec<u64>, Vec<u64>) {
    let snapshots = archive.snapshots.iter().map(|it| it.snapshot.version.get());
    (snapshots.collect(), archive.runs.iter().map(|it| it.run.from.get()).collect())
}

fn readable(archive: &Archive) -> Vec<u64> {
    (0..40).filter(|it| archive.way_to(version(*it)).is_some()).collect()
}

#[test]
fn a_version_is_read_from_the_newest_snapshot_below_it_and_what_follows() {
    let archive = archive();
    let way = |at| {
        let way = archive.way_to(version(at)).unwrap();
        (way.snapshot.version.get(), way.runs.iter().map(|it| it.from.get()).collect::<Vec<_>>())
    };
    assert_eq!(way(0), (0, vec![]));
    assert_eq!(way(9), (0, vec![1]));
    assert_eq!(way(10), (10, vec![]));
    assert_eq!(way(39), (30, vec![31]));
    // With a longer way where there are fewer snapshots.
    let mut sparse = archive.clone();
    sparse.snapshots.drain(1..3);
    assert_eq!(sparse.way_to(version(25)).unwrap().runs.len(), 3);
    // Not over a gap, and not from nothing.
    sparse.runs.remove(1);
    assert_eq!(readable(&sparse), (0..=10).chain(30..40).collect::<Vec<_>>());
    sparse.snapshots.clear();
    assert!(readable(&sparse).is_empty());
}

#[test]
fn snapshots_close_to_one_another_are_let_go_and_no_version_is() {
    let kept = keep(&head());
    assert_eq!(kept.retained_from, version(0));
    assert_eq!(versions(&kept.archive), (vec![0], vec![1, 11, 21, 31]));
    assert_eq!(readable(&kept.archive), (0..40).collect::<Vec<_>>());
    // What only they had goes; so does what no older one has.
    let released: BTreeSet<_> = kept.archive.released.iter().cloned().collect();
    let gone = [10, 20, 30].map(|it| snapshot(it).object.key);
    let chunks = [chunk(100, "a"), chunk(100, "b"), chunk(200, "c"), chunk(300, "d")];
    assert_eq!(released, gone.into_iter().chain(chunks).collect());
}

#[test]
fn some_snapshots_stay_where_the_way_would_be_long() {
    let mut archive = archive();
    for it in &mut archive.runs {
        it.run.object.size_bytes = REPLAY_BYTES_MAX / 2 + 1;
    }
    let kept = archive.keep(&head(), None, &NOW);
    assert_eq!(versions(&kept.archive), (vec![0, 10, 20, 30], vec![1, 11, 21, 31]));
    for it in &mut archive.runs {
        it.run.object.size_bytes = REPLAY_BYTES_MAX / 2;
    }
    let kept = archive.keep(&head(), None, &NOW);
    assert_eq!(versions(&kept.archive).0, [0, 20]);
}

#[test]
fn what_an_older_snapshot_has_too_stays_with_it() {
    // By versions: 20 are kept, so 10 goes and what it shares with 0 would stay.
    let head = Head { retention: Retention { versions: 25, age_ms: 0 }, ..head() };
    let kept = keep(&head);
    assert_eq!(kept.retained_from, version(25));
    assert_eq!(versions(&kept.archive), (vec![20], vec![21, 31]));
    let released: BTreeSet<_> = kept.archive.released.iter().cloned().collect();
    assert!(released.contains(&chunk(100, "a")) && released.contains(&chunk(300, "d")));
    assert!(!released.contains(&chunk(100, "b")) && !released.contains(&chunk(200, "c")));
    // 30 went, and 20 is the last: what 30 had from 20 on is its to keep.
    assert_eq!(kept.archive.snapshots[0].replaced, [chunk(100, "b"), chunk(200, "c")]);

    let mut shared = archive();
    shared.snapshots[3].replaced = vec![chunk(200, "e"), chunk(201, "f")];
    let kept = shared.keep(&head, None, &NOW);
    let last = &kept.archive.snapshots[0].replaced;
    assert_eq!(*last, [chunk(100, "b"), chunk(200, "c"), chunk(200, "e")]);
    assert!(kept.archive.released.contains(&chunk(201, "f")));
}

#[test]
fn retention_keeps_by_count_or_by_age_whichever_is_more() {
    let from = |versions, age_ms, now_ms, clock_error_ms| {
        let head = Head { retention: Retention { versions, age_ms }, ..head() };
        archive().keep(&head, None, &Keep { now_ms, clock_error_ms }).retained_from.get()
    };
    assert_eq!(from(0, 0, 50_000, 0), 40);
    assert_eq!(from(15, 0, 50_000, 0), 35);
    assert_eq!(from(100, 0, 50_000, 0), 0);
    // The run of 21 to 30 has one that was decided 20 s ago.
    assert_eq!(from(0, 20_000, 50_000, 0), 20);
    assert_eq!(from(0, 19_999, 50_000, 0), 30);
    assert_eq!(from(15, 19_999, 50_000, 0), 30);
    assert_eq!(from(15, 5_000, 50_000, 0), 35);
    // Clocks that may be apart make it wait.
    assert_eq!(from(0, 19_999, 50_000, 1), 20);
    assert_eq!(from(0, 1, 53_600_000, 3_600_000), 40);
    // A clock that is behind keeps everything.
    assert_eq!(from(0, 1, 0, 0), 0);
}

#[test]
fn what_is_gone_stays_gone() {
    let archive_ref = head().archive.unwrap();
    let archive_ref = Some(ArchiveRef { retained_from: version(22), ..archive_ref });
    let kept = keep(&Head { archive: archive_ref, ..head() });
    assert_eq!(kept.retained_from, version(22));
    // And what was never kept cannot be had, whatever is wanted now.
    let mut gap = archive();
    gap.runs.remove(2);
    let kept = gap.keep(&head(), None, &NOW);
    assert_eq!(kept.retained_from, version(30));
    assert_eq!(versions(&kept.archive), (vec![30], vec![31]));
}

#[test]
fn a_pin_keeps_its_version_and_nothing_else() {
    let pins = vec![pin("a", 10), pin("b", 13), pin("c", 13)];
    let head = Head { retention: Retention::default(), pins, ..head() };
    let kept = keep(&head);
    assert_eq!(kept.retained_from, version(40));
    assert_eq!(kept.pinned, [version(10), version(13)].into());
    assert_eq!(versions(&kept.archive), (vec![10], vec![11]));
    assert!(kept.archive.way_to(version(13)).is_some());

    // A pin on a snapshot takes no run.
    let head = Head { pins: vec![pin("a", 10)], ..head };
    assert_eq!(versions(&keep(&head).archive), (vec![10], vec![]));
}

#[test]
fn a_pin_goes_when_its_time_is_up_on_every_clock_unless_a_fork_needs_it() {
    let mut pins = vec![pin("a", 10), pin("b", 10), pin("c", 10)];
    pins[0].expires_at_ms = Some(49_000);
    pins[1].expires_at_ms = Some(49_999);
    pins[2].expires_at_ms = Some(1);
    pins[2].child = Some(HistoryRef { history: HistoryName::parse("f").unwrap(), history_id: ID });
    let head = Head { pins: pins.clone(), ..head() };
    let expired = |clock_error_ms| {
        archive().keep(&head, None, &Keep { now_ms: 50_000, clock_error_ms }).expired
    };
    assert_eq!(expired(0), pins[..2]);
    assert_eq!(expired(1), pins[..1]);
    assert_eq!(expired(1_000), []);
}

#[test]
fn the_snapshots_that_a_fork_may_have_been_made_from_stay() {
    // Pinned on 35, by revision 250: the snapshot at 20 was staged at 200, the
    // one at 30 after the pin, and the one at 10 may be the newest then.
    let mut fork = pin("fork:1", 35);
    fork.revision = Revision::new(250);
    fork.child = Some(HistoryRef { history: HistoryName::parse("f").unwrap(), history_id: ID });
    let head = Head { pins: vec![fork.clone()], ..head() };
    assert_eq!(versions(&keep(&head).archive).0, [0, 10, 20, 30]);
    // None after the version, and none before those.
    let head = Head { retention: Retention::default(), ..head };
    assert_eq!(versions(&keep(&head).archive).0, [10, 20, 30]);
    fork.version = version(25);
    let head = Head { pins: vec![fork.clone()], ..head };
    assert_eq!(versions(&keep(&head).archive).0, [10, 20]);
    fork.revision = Revision::new(50);
    let head = Head { pins: vec![fork.clone()], ..head };
    assert_eq!(versions(&keep(&head).archive).0, [0, 10, 20]);
    // Without the fork one is enough.
    fork.child = None;
    let head = Head { pins: vec![fork], ..head };
    assert_eq!(versions(&keep(&head).archive).0, [20]);
}

#[test]
fn without_retention_a_compaction_lets_everything_go() {
    let moved = Moved {
        snapshot: archived(40, vec![chunk(400, "x")]),
        becomes: snapshot(50),
        needs_base: false,
        runs: Vec::new(),
        segments: vec![object(ObjectKind::Segment, 450, "tail").key],
    };
    let head = Head { retention: Retention::default(), archive: None, ..head() };
    let kept = Archive::empty(ID).keep(&head, Some(&moved), &NOW);
    assert_eq!(kept.retained_from, version(50));
    assert_eq!(versions(&kept.archive), (vec![], vec![]));
    let released: BTreeSet<_> = kept.archive.released.iter().cloned().collect();
    let gone = [moved.segments[0].clone(), chunk(400, "x"), snapshot(40).object.key];
    assert_eq!(released, gone.into());
    // Without a compaction there is nothing to publish.
    assert!(!Archive::empty(ID).keep(&head, None, &NOW).is_news(&head, &Archive::empty(ID)));
}

#[test]
fn runs_that_are_written_again_take_the_place_of_the_ones_before() {
    let moved = Moved {
        snapshot: archived(40, Vec::new()),
        becomes: snapshot(50),
        needs_base: false,
        runs: vec![run(31, 50)],
        segments: Vec::new(),
    };
    let kept = archive().keep(&head(), Some(&moved), &NOW);
    assert_eq!(versions(&kept.archive).1, [1, 11, 21, 31]);
    assert!(kept.archive.released.contains(&run(31, 40).run.object.key));
    assert!(kept.archive.way_to(version(49)).is_some());
}

/// Compaction after compaction under changing retention and pins. The model
/// knows which chunks each snapshot has.
#[test]
fn whatever_is_kept_can_be_read_and_whatever_is_let_go_is_needed_by_nothing() {
    let mut random = 7_u64;
    let mut below = |bound: u64| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (random >> 33) % bound
    };
    for _ in 0..200 {
        let mut head = Head { archive: None, retention: Retention::default(), ..head() };
        let mut archive = Archive::empty(ID);
        let mut chunks: BTreeMap<StateVersion, BTreeSet<ObjectKey>> = BTreeMap::new();
        chunks.insert(head.snapshot.version, BTreeSet::new());
        for _ in 0..12 {
            let before = head.snapshot.clone();
            let next = head.snapshot.version.get() + 1 + below(9);
            let staged = 10 * next;
            let mut has = chunks[&before.version].clone();
            let gone: Vec<_> = has.iter().filter(|_| below(3) == 0).cloned().collect();
            has.retain(|it| !gone.contains(it));
            has.extend((0..below(4)).map(|it| chunk(staged, &std::format!("{it}"))));
            chunks.insert(version(next), has);
            let mut long = run(before.version.get() + 1, next);
            if below(3) == 0 {
                long.run.object.size_bytes = REPLAY_BYTES_MAX + 1;
            }
            let is_kept = head.retention.versions != 0
                || head.pins.iter().any(|it| before.version < it.version);
            let moved = Moved {
                snapshot: ArchivedSnapshot { snapshot: before, needs_base: false, replaced: gone },
                becomes: snapshot(next),
                needs_base: false,
                runs: if is_kept { vec![long] } else { Vec::new() },
                segments: Vec::new(),
            };
            let kept = archive.keep(&head, Some(&moved), &NOW);
            check(&head, &kept, &moved.becomes, &chunks);
            archive = kept.archive;
            archive.released.clear();
            let object = object(ObjectKind::Archive, staged, "archive");
            head.archive = Some(ArchiveRef { retained_from: kept.retained_from, object });
            head.snapshot = moved.becomes;
            head.state_version = version(next + below(5));
            head.revision = Revision::new(staged + 5);
            head.retention.versions = [0, 5, 30, 1_000][usize::try_from(below(4)).unwrap()];
            head.pins.retain(|_| below(4) != 0);
            let at = head.state_version.get() - below(20).min(head.state_version.get());
            if head.is_retained(version(at)) && head.pins.is_empty() {
                head.pins.push(pin("p", at));
            }
            let kept = archive.keep(&head, None, &NOW);
            check(&head, &kept, &head.snapshot, &chunks);
        }
    }
}

fn check(
    head: &Head,
    kept: &Kept,
    newest: &SnapshotRef,
    chunks: &BTreeMap<StateVersion, BTreeSet<ObjectKey>>,
) {
    let archive = &kept.archive;
    for at in kept.retained_from.get()..newest.version.get() {
        assert!(archive.way_to(version(at)).is_some(), "{at} of {kept:?}");
    }
    for it in head.pins.iter().filter(|it| it.version < newest.version) {
        assert!(archive.way_to(it.version).is_some(), "{it:?} of {kept:?}");
    }
    assert!(head.retained_from() <= kept.retained_from);
    let live: BTreeSet<_> = archive
        .snapshots
        .iter()
        .map(|it| &it.snapshot)
        .chain([newest])
        .flat_map(|it| chunks[&it.version].iter().chain([&it.object.key]))
        .chain(archive.runs.iter().map(|it| &it.run.object.key))
        .collect();
    for it in &archive.released {
        assert!(!live.contains(it), "{it} is needed");
    }
    // What is in an older snapshot and not in the next one is on its list, so
    // that it will be let go one day.
    let mut snapshots: Vec<_> = archive.snapshots.iter().map(|it| &it.snapshot).collect();
    snapshots.push(newest);
    for (pair, it) in snapshots.windows(2).zip(&archive.snapshots) {
        let gone = chunks[&pair[0].version].difference(&chunks[&pair[1].version]);
        assert_eq!(it.replaced.iter().collect::<BTreeSet<_>>(), gone.collect(), "{it:?}");
    }
}
