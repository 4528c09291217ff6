//! Entries that travel in the head while they are uploaded.

use bytes::Bytes;

use super::maintain;
use super::op::{Op, add, version};
use super::rig::{Fate, Kind, Rig, settings};
use crate::hash::ContentHash;
use crate::head::{ChangeBody, ChangeRef, HeadLimits};
use crate::publish::{Answer, Event, Settings, Trouble};
use crate::receipt::Window;

fn travelling() -> Settings {
    Settings { beside_bytes_max: 4_000, ..settings() }
}

/// A writer that has found out that nobody else publishes.
fn writer_alone(rig: &mut Rig, settings: Settings) -> usize {
    let writer = rig.writer_with(settings);
    rig.writers[writer].publisher.beside.assume_alone();
    writer
}

/// The change that led to a version, as the head has it.
fn change(rig: &Rig, number: u64) -> &ChangeRef {
    let head = rig.bucket.head();
    head.changes.iter().find(|it| it.version == version(number)).expect("it is in the tail")
}

fn inline(rig: &Rig, number: u64) -> Option<Bytes> {
    match &change(rig, number).body {
        ChangeBody::Inline(bytes) => Some(bytes.clone()),
        ChangeBody::Staged(_) => None,
    }
}

/// The bytes that the head names for a version; they are in the bucket.
fn named(rig: &Rig, number: u64) -> Option<Bytes> {
    match &change(rig, number).body {
        ChangeBody::Inline(_) => None,
        ChangeBody::Staged(object) => Some(rig.bucket.objects[&object.key].clone()),
    }
}

#[test]
fn one_round_trip_is_enough_and_the_next_head_names_the_same_bytes() {
    let mut rig = Rig::new();
    let writer = writer_alone(&mut rig, travelling());
    let first = rig.submit(writer, &add("a", 1).large());
    rig.run_but(writer, &[Kind::Stage, Kind::Publish]);
    assert!(rig.has(writer, Kind::Stage) && rig.has(writer, Kind::Publish), "side by side");

    rig.publish(writer, Fate::Answered);
    assert_eq!(rig.receipt(first).accepted_at, version(1), "nobody waits for the upload");
    let carried = inline(&rig, 1).expect("the head carries it");
    assert!(rig.bucket.uploads.is_empty());

    rig.run(writer);
    assert_eq!(rig.bucket.uploads.len(), 1);
    rig.submit(writer, &add("b", 1));
    rig.run(writer);
    let stored = named(&rig, 1).expect("the next head names it");
    assert_eq!(stored, carried);
    assert_eq!(ContentHash::of(&stored), change(&rig, 1).hash);
    assert_eq!(rig.bucket.uploads.len(), 1, "and no request was made for that");
}

#[test]
fn an_upload_that_takes_longer_is_named_by_a_later_head() {
    let mut rig = Rig::new();
    let writer = writer_alone(&mut rig, travelling());
    rig.submit(writer, &add("a", 1).large());
    rig.run_but(writer, &[Kind::Stage]);
    rig.submit(writer, &add("b", 1));
    rig.run_but(writer, &[Kind::Stage]);
    assert!(inline(&rig, 1).is_some(), "what is not durable is not named");

    rig.run(writer);
    rig.submit(writer, &add("c", 1));
    rig.run(writer);
    assert!(named(&rig, 1).is_some());
}

#[test]
fn an_upload_that_fails_leaves_the_change_in_the_head() {
    for trouble in [Trouble::Unavailable, Trouble::Denied] {
        let mut rig = Rig::new();
        let writer = writer_alone(&mut rig, travelling());
        let first = rig.submit(writer, &add("a", 1).large());
        rig.run_but(writer, &[Kind::Stage, Kind::Publish]);
        rig.fail(writer, Kind::Stage, trouble);
        assert!(!rig.has(writer, Kind::Stage), "it is folded instead");
        rig.run(writer);
        rig.receipt(first);

        let second = rig.submit(writer, &add("b", 1));
        rig.run(writer);
        assert_eq!(rig.receipt(second).results[0].sum, 2);
        assert!(inline(&rig, 1).is_some());
    }
}

#[test]
fn a_publication_without_an_answer_is_found_out_and_its_upload_is_used() {
    for fate in [Fate::AnswerLost, Fate::RequestLost, Fate::Echoed] {
        let mut rig = Rig::new();
        let writer = writer_alone(&mut rig, travelling());
        let first = rig.submit(writer, &add("a", 1).large());
        rig.run_but(writer, &[Kind::Stage, Kind::Publish]);
        rig.publish(writer, fate);
        assert!(!rig.is_answered(first), "{fate:?}");
        // The upload ends while the head is being read.
        rig.run_but(writer, &[Kind::Read]);
        rig.run(writer);
        assert_eq!(rig.receipt(first).accepted_at, version(1), "{fate:?}");

        rig.submit(writer, &add("b", 1));
        rig.run(writer);
        assert_eq!(rig.bucket.uploads.len(), 1, "{fate:?}");
        assert!(named(&rig, 1).is_some(), "{fate:?}");
        assert_eq!(rig.ids(), ["a", "b"], "{fate:?}");
    }
}

#[test]
fn what_lost_the_race_names_its_upload_if_it_is_still_exact() {
    let mut rig = Rig::new();
    let writer = writer_alone(&mut rig, travelling());
    let first = rig.submit(writer, &Op::new("a").large());
    rig.run_but(writer, &[Kind::Publish]);
    rig.commit_elsewhere(&add("other", 1));
    rig.run(writer);

    assert_eq!(rig.receipt(first).accepted_at, version(2));
    assert_eq!(rig.bucket.uploads.len(), 1, "it is not uploaded again");
    assert!(named(&rig, 2).is_some(), "and does not travel again");
}

#[test]
fn what_would_record_something_else_after_a_lost_race_is_uploaded_again() {
    let mut rig = Rig::new();
    let writer = writer_alone(&mut rig, travelling());
    let first = rig.submit(writer, &add("a", 1).large());
    rig.run_but(writer, &[Kind::Publish]);
    rig.commit_elsewhere(&add("other", 10));
    rig.run(writer);

    assert_eq!(rig.receipt(first).results[0].sum, 11);
    assert_eq!(rig.bucket.uploads.len(), 2);
    assert!(named(&rig, 2).is_some(), "the bytes that were accepted, and not the others");
}

/// The object is garbage by then, and gone.
#[test]
fn an_upload_below_the_sweep_boundary_is_never_named() {
    let mut rig = Rig::new();
    let writer = writer_alone(&mut rig, travelling());
    rig.submit(writer, &add("a", 1).large());
    rig.run(writer);
    maintain::raise_sweep_boundary(&mut rig.bucket, 77);
    maintain::raise_sweep_boundary(&mut rig.bucket, 78);
    maintain::sweep(&mut rig.bucket);
    assert!(!rig.bucket.objects.contains_key(&rig.bucket.uploads[0]), "nothing kept it");

    let second = rig.submit(writer, &add("b", 1));
    rig.run(writer);
    assert_eq!(rig.receipt(second).results[0].sum, 2);
    assert!(inline(&rig, 1).is_some());
    // It is an entry like any other that the head has in full: it counts towards
    // the limits of heads, or nothing would ever make room for it.
    let publisher = &rig.writers[writer].publisher;
    assert_eq!(publisher.beside.iter().count(), 0, "nothing travels any more");
    assert_eq!(publisher.settled_bytes(), publisher.head_bytes());
}

/// Whoever won would be ahead of the others for ever.
#[test]
fn nothing_travels_before_it_is_known_that_nobody_else_publishes() {
    let mut rig = Rig::new();
    let head = HeadLimits { soft_bytes: 1 << 20, hard_bytes: 4 << 20 };
    let window = Window { versions_max: 1_000, bytes_max: 1 << 20 };
    let writer = rig.writer_with(Settings { window, head, ..travelling() });
    let mut number = 0;
    let mut does_travel = |rig: &mut Rig| {
        number += 1;
        let ticket = rig.submit(writer, &add(std::format!("{number}"), 1).large());
        rig.run_but(writer, &[Kind::Stage]);
        let is_answered = rig.is_answered(ticket);
        rig.run(writer);
        rig.receipt(ticket);
        is_answered
    };
    for other in ["other", "another"] {
        let until_alone = (0..100).position(|_| does_travel(&mut rig)).expect("not for ever");
        assert!((10..30).contains(&until_alone), "after {until_alone} publications");
        rig.commit_elsewhere(&add(other, 1));
        assert!(!does_travel(&mut rig), "it was sent, and lost; then it is uploaded first");
    }
    // The head is left alone now and then, or nobody else would get a turn.
    let travelled = (0..300).filter(|_| does_travel(&mut rig)).count();
    assert!((250..299).contains(&travelled), "{travelled} of 300");
}

/// What needs no upload leaves nobody a turn, however much of it there is.
#[test]
fn the_head_is_left_alone_now_and_then_also_where_most_publications_are_small() {
    let head = HeadLimits { soft_bytes: 1 << 20, hard_bytes: 4 << 20 };
    let window = Window { versions_max: 1_000, bytes_max: 1 << 20 };
    // Wherever the first of them is.
    for smalls_before in [0, 3] {
        let mut rig = Rig::new();
        let writer = writer_alone(&mut rig, Settings { window, head, ..travelling() });
        let mut number = 0;
        let mut id = || {
            number += 1;
            std::format!("{number}")
        };
        let mut smalls = |rig: &mut Rig, count: usize| {
            for _ in 0..count {
                rig.submit(writer, &add(id(), 1));
                rig.run(writer);
            }
        };
        smalls(&mut rig, smalls_before);
        let mut staged = 0;
        for round in 0..65 {
            let large = rig.submit(writer, &add(std::format!("large-{round}"), 1).large());
            rig.run_but(writer, &[Kind::Stage]);
            staged += u32::from(!rig.is_answered(large));
            rig.run(writer);
            rig.receipt(large);
            smalls(&mut rig, 4);
        }
        // Of 325 publications; a large one has to come by.
        assert!((4..=5).contains(&staged), "{staged} staged first after {smalls_before} small");
    }
}

/// Behind a publication there is time to upload, and nothing is sent twice.
#[test]
fn what_comes_while_one_is_in_flight_waits_and_then_travels_whole() {
    let mut rig = Rig::new();
    let writer = writer_alone(&mut rig, travelling());
    rig.submit(writer, &add("first", 1));
    rig.run_but(writer, &[Kind::Publish]);
    let ops = [add("a", 1).large(), add("b", 1).large()];
    let tickets = ops.map(|it| rig.submit(writer, &it));
    assert!(!rig.has(writer, Kind::Stage), "one batch of it is made when the head is free");
    rig.publish(writer, Fate::Answered);
    rig.run_but(writer, &[Kind::Stage]);
    assert!(tickets.iter().all(|it| rig.receipt(*it).accepted_at == version(2)));

    // Too large for that: uploaded meanwhile, and named at once.
    rig.submit(writer, &add("c", 1));
    rig.run_but(writer, &[Kind::Stage, Kind::Publish]);
    let ops: [_; 5] = core::array::from_fn(|n| add(std::format!("d{n}"), 1).large());
    rig.submit_all(writer, &ops);
    rig.run_but(writer, &[Kind::Publish]);
    rig.run(writer);
    assert!(named(&rig, 4).is_some());
}

#[test]
fn a_batch_with_a_record_to_write_does_not_travel() {
    let mut rig = Rig::new();
    let writer = writer_alone(&mut rig, travelling());
    let ticket = rig.submit(writer, &add("a", 1).large().service_kept());
    rig.run_but(writer, &[Kind::Stage]);
    assert!(!rig.has(writer, Kind::Publish), "the record comes first");
    rig.run(writer);
    rig.receipt(ticket);
    assert!(named(&rig, 1).is_some(), "it was uploaded beside its record");
}

/// Uploads that never end: the head does not grow with them.
#[test]
fn what_travels_is_bounded_and_counts_for_no_other_limit() {
    let head = HeadLimits { soft_bytes: 8_000, hard_bytes: 64_000 };
    let mut rig = Rig::new();
    let writer = writer_alone(&mut rig, Settings { head, ..travelling() });
    let mut travelled = 0;
    for number in 0..40 {
        let ticket = rig.submit(writer, &add(std::format!("{number}"), 1).large());
        rig.run_but(writer, &[Kind::Stage]);
        if !rig.is_answered(ticket) {
            break;
        }
        travelled += 1;
    }
    let publisher = &rig.writers[writer].publisher;
    assert!((5..30).contains(&travelled), "{travelled} travelled");
    assert!(publisher.head_bytes() <= head.soft_bytes + 2 * 4_000 * 4 / 3 + 8);
    assert!(publisher.settled_bytes() < head.soft_bytes, "folds are not for what travels");

    rig.run(writer);
    let small = rig.submit(writer, &add("small", 1));
    rig.run(writer);
    assert!(matches!(rig.answer(small), Answer::Accepted { .. }));
    let publisher = &rig.writers[writer].publisher;
    assert_eq!(publisher.settled_bytes(), publisher.head_bytes(), "all of them are named");
}

#[test]
fn a_fold_takes_what_travels_along() {
    let mut rig = Rig::new();
    let writer = writer_alone(&mut rig, travelling());
    for number in 0..2 {
        rig.submit(writer, &add(std::format!("{number}"), 1).large());
        rig.run_but(writer, &[Kind::Stage]);
    }
    let head = rig.bucket.head().clone();
    let fold = maintain::fold(&mut rig.bucket, &head, 2);
    rig.on(writer, Event::Prepared(fold.clone()));
    rig.run(writer);
    rig.submit(writer, &add("a", 1));
    rig.run(writer);

    assert_eq!(rig.writers[writer].maintained, [(fold, true)]);
    assert_eq!(rig.bucket.head().changes.len(), 1);
    rig.submit(writer, &add("b", 1));
    rig.run(writer);
    maintain::check_clean(&mut rig.bucket, 99);
}
