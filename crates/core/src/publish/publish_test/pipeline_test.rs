//! Batches: when they form, what is uploaded, and what goes out together.

use std::string::ToString as _;
use std::vec::Vec;

use super::bucket::Bucket;
use super::maintain;
use super::op::{Op, add, version};
use super::rig::{Fate, Kind, Rig, Work, settings};
use crate::head::{ChangeBody, HeadLimits};
use crate::publish::{Answer, Control, Event, Settings, SubmitError, Trouble};

#[test]
fn a_single_operation_goes_at_once_and_needs_no_upload() {
    let mut rig = Rig::new();
    let writer = rig.writer();
    rig.submit(writer, &Op::new("a").put("k", "v"));
    assert!(rig.has(writer, Kind::Read));
    rig.run_but(writer, &[Kind::Publish]);
    assert!(rig.has(writer, Kind::Publish));
    assert!(rig.bucket.uploads.is_empty());
}

#[test]
fn small_operations_wait_for_what_is_in_flight_and_go_together() {
    let mut rig = Rig::new();
    let writer = rig.writer();
    rig.submit(writer, &add("first", 1));
    rig.run_but(writer, &[Kind::Publish]);
    let tickets: Vec<_> =
        (0..3).map(|it| rig.submit(writer, &Op::new(it.to_string()).put("k", "v"))).collect();
    assert!(!rig.has(writer, Kind::Facts));
    rig.run(writer);
    for (ticket, position) in tickets.into_iter().zip(0..) {
        assert_eq!(rig.receipt(ticket).accepted_at, version(2));
        assert_eq!(rig.receipt(ticket).position, position);
    }
}

#[test]
fn large_batches_are_staged_while_one_is_in_flight_and_published_in_one_replacement() {
    let mut rig = Rig::new();
    let writer = rig.writer_with(Settings { batch_operations_max: 1, ..settings() });
    rig.submit(writer, &add("first", 1));
    rig.run_but(writer, &[Kind::Publish]);
    let tickets: Vec<_> = (0..3)
        .map(|it| {
            let ticket = rig.submit(writer, &add(it.to_string(), 1).large());
            rig.run_but(writer, &[Kind::Publish]);
            ticket
        })
        .collect();
    assert_eq!(rig.bucket.uploads.len(), 3);
    let revision = rig.bucket.head().revision;

    rig.publish(writer, Fate::Answered);
    rig.publish(writer, Fate::Answered);

    assert_eq!(rig.bucket.head().revision, revision.next().next());
    for (ticket, number) in tickets.into_iter().zip(2..) {
        assert_eq!(rig.receipt(ticket).accepted_at, version(number));
    }
}

#[test]
fn nothing_shares_a_version_with_what_ends_it() {
    let mut rig = Rig::new();
    let writer = rig.writer();
    let restore = Op::new("restore").put("k", "old").ending_version();
    let ops = [add("before", 1), restore, add("after", 1), add("later", 1)];
    let tickets = rig.submit_all(writer, &ops);
    rig.commit_elsewhere(&add("other", 1));
    rig.run(writer);

    let at: Vec<_> = tickets.into_iter().map(|it| rig.receipt(it).accepted_at).collect();
    assert_eq!(rig.ids(), ["other", "before", "restore", "after", "later"]);
    assert_eq!(at[0], at[1], "what was there before is its own condition's matter");
    assert!(at[1] < at[2]);
    assert_eq!(at[2], at[3]);
}

#[test]
fn only_what_is_staged_is_published() {
    let mut rig = Rig::new();
    let writer = rig.writer();
    let first = rig.submit(writer, &add("a", 1).large());
    rig.run_but(writer, &[Kind::Stage]);
    assert!(!rig.has(writer, Kind::Publish));
    let second = rig.submit(writer, &add("b", 1));
    rig.run_but(writer, &[Kind::Stage]);
    assert!(!rig.has(writer, Kind::Publish), "order is kept: the second waits for the first");
    rig.run(writer);
    assert!(rig.receipt(first).accepted_at < rig.receipt(second).accepted_at);
}

#[test]
fn order_is_kept_across_a_rollback() {
    let mut rig = Rig::new();
    let writer = rig.writer();
    rig.submit(writer, &add("first", 1));
    rig.run_but(writer, &[Kind::Publish]);
    for number in 0..3 {
        let ops = [add(std::format!("{number}a"), 1).large(), add(std::format!("{number}b"), 1)];
        rig.submit_all(writer, &ops);
        rig.run_but(writer, &[Kind::Publish]);
    }
    rig.submit(writer, &add("last", 1));
    rig.commit_elsewhere(&add("other", 1));
    rig.run(writer);
    let expected = ["other", "first", "0a", "0b", "1a", "1b", "2a", "2b", "last"];
    assert_eq!(rig.ids(), expected);
}

#[test]
fn a_candidate_is_not_uploaded_again_after_a_lost_race_if_it_is_still_exact() {
    let mut rig = Rig::new();
    let writer = rig.writer();
    rig.submit_all(writer, &[Op::new("a").large(), Op::new("b").put("k", "b")]);
    rig.run_but(writer, &[Kind::Publish]);
    // Comes later; must not join the batch that was uploaded.
    rig.submit(writer, &Op::new("c").put("k", "c"));
    rig.commit_elsewhere(&add("other", 1));
    let uploads = rig.bucket.uploads.len();
    rig.run(writer);

    assert_eq!(rig.bucket.uploads.len(), uploads);
    assert_eq!(rig.ids(), ["other", "a", "b", "c"]);
}

#[test]
fn a_candidate_that_would_record_something_else_is_uploaded_again() {
    let mut rig = Rig::new();
    let writer = rig.writer();
    let ticket = rig.submit(writer, &add("a", 1).large());
    rig.run_but(writer, &[Kind::Publish]);
    rig.commit_elsewhere(&add("other", 10));
    rig.run(writer);
    assert_eq!(rig.receipt(ticket).results[0].sum, 11);
    assert_eq!(rig.bucket.uploads.len(), 2);
}

#[test]
fn a_candidate_below_the_sweep_boundary_is_uploaded_again() {
    let mut rig = Rig::new();
    let writer = rig.writer();
    let ticket = rig.submit(writer, &Op::new("a").large());
    rig.run_but(writer, &[Kind::Publish]);
    rig.commit_elsewhere(&add("other", 1));
    maintain::raise_sweep_boundary(&mut rig.bucket, 77);
    maintain::sweep(&mut rig.bucket);
    assert!(rig.bucket.uploads.iter().all(|it| !rig.bucket.objects.contains_key(it)));
    rig.run(writer);

    rig.receipt(ticket);
    assert_eq!(rig.bucket.uploads.len(), 2);
    assert!(rig.bucket.head().sweep_from <= rig.bucket.uploads[1].staged());
}

#[test]
fn the_pipeline_and_the_batch_have_limits() {
    let mut rig = Rig::new();
    let writer = rig.writer_with(Settings {
        batch_operations_max: 2,
        batches_ahead_max: 3,
        batch_bytes_max: 2500,
        ..settings()
    });
    rig.submit(writer, &add("first", 1));
    rig.run_but(writer, &[Kind::Publish]);
    let ops: Vec<_> = (0..12).map(|it| add(it.to_string(), 1).large()).collect();
    let tickets = rig.submit_all(writer, &ops);
    rig.run_but(writer, &[Kind::Publish]);
    assert_eq!(rig.bucket.uploads.len(), 2, "and one in flight");
    rig.run(writer);
    for (ticket, index) in tickets.into_iter().zip(0_u64..) {
        assert_eq!(rig.receipt(ticket).accepted_at, version(2 + index / 2));
    }
}

#[test]
fn an_operation_larger_than_a_batch_is_a_batch_by_itself() {
    let mut rig = Rig::new();
    let writer = rig.writer_with(Settings { batch_bytes_max: 500, ..settings() });
    let ops = [add("a", 1), add("b", 1).large(), add("c", 1)];
    let tickets = rig.submit_all(writer, &ops);
    rig.run(writer);
    let versions = tickets.into_iter().map(|it| rig.receipt(it).accepted_at.get());
    assert_eq!(versions.collect::<Vec<_>>(), [1, 2, 3]);
}

#[test]
fn failed_facts_and_uploads_are_repeated() {
    let mut rig = Rig::new();
    let writer = rig.writer();
    let ticket = rig.submit(writer, &add("a", 1).large());
    for kind in [Kind::Read, Kind::Facts, Kind::Facts, Kind::Stage, Kind::Stage] {
        rig.run_but(writer, &[kind]);
        rig.fail(writer, kind, Trouble::Unavailable);
        assert!(rig.has(writer, kind));
    }
    rig.run(writer);
    rig.receipt(ticket);
    assert_eq!(rig.bucket.uploads.len(), 1);
}

#[test]
fn a_fold_rides_on_an_ordinary_publication() {
    let mut rig = Rig::new();
    let writer = rig.writer();
    for number in 0..3 {
        rig.submit(writer, &add(number.to_string(), 1));
        rig.run(writer);
    }
    let head = rig.bucket.head().clone();
    let fold = maintain::fold(&mut rig.bucket, &head, 2);
    rig.on(writer, Event::Prepared(fold.clone()));
    assert!(!rig.has(writer, Kind::Publish), "not worth a replacement of its own");

    rig.submit(writer, &add("a", 1));
    rig.run(writer);

    assert_eq!(rig.bucket.head().revision, head.revision.next());
    assert_eq!(rig.bucket.head().segments.len(), 1);
    assert_eq!(rig.bucket.head().changes.len(), 2);
    assert_eq!(rig.writers[writer].maintained, [(fold, true)]);
}

#[test]
fn a_snapshot_is_published_alone_when_it_is_calm_and_rides_along_when_it_is_not() {
    for is_calm in [true, false] {
        let mut rig = Rig::new();
        let writer = rig.writer();
        rig.submit(writer, &add("a", 1));
        rig.run(writer);
        let head = rig.bucket.head().clone();
        let compaction = maintain::compact(&mut rig.bucket, &head, version(1));
        if !is_calm {
            rig.submit(writer, &add("b", 1));
        }
        rig.on(writer, Event::Prepared(compaction.clone()));
        rig.run(writer);

        let now = rig.bucket.head();
        assert_eq!(now.revision, head.revision.next());
        assert_eq!(now.snapshot.version, version(1));
        assert_eq!(now.receipt_coverage_from, version(1));
        assert_eq!(now.state_version, version(if is_calm { 1 } else { 2 }));
        assert_eq!(rig.writers[writer].maintained, [(compaction, true)]);

        // The page and the tail are evidence as before.
        let other = rig.writer();
        let again = rig.submit(other, &add("a", 1));
        rig.run(other);
        assert!(matches!(rig.answer(again), Answer::Accepted { is_from_receipt: true, .. }));
    }
}

#[test]
fn overtaken_maintenance_is_dropped() {
    let mut rig = Rig::new();
    let (writer, other) = (rig.writer(), rig.writer());
    for number in 0..2 {
        rig.submit(writer, &add(number.to_string(), 1));
        rig.run(writer);
    }
    let head = rig.bucket.head().clone();
    let fold = maintain::fold(&mut rig.bucket, &head, 1);
    rig.on(writer, Event::Prepared(fold.clone()));
    let compaction = maintain::compact(&mut rig.bucket, &head, version(2));
    rig.submit(other, &add("b", 1));
    rig.on(other, Event::Prepared(compaction));
    rig.run(other);

    rig.submit(writer, &add("c", 1));
    rig.run(writer);
    assert_eq!(rig.writers[writer].maintained, [(fold, false)]);
}

#[test]
fn maintenance_staged_below_the_sweep_boundary_is_dropped() {
    let mut rig = Rig::new();
    let writer = rig.writer();
    rig.submit(writer, &add("a", 1));
    rig.run(writer);
    let head = rig.bucket.head().clone();
    let fold = maintain::fold(&mut rig.bucket, &head, 1);
    rig.on(writer, Event::Prepared(fold.clone()));
    rig.commit_elsewhere(&add("other", 1));
    maintain::raise_sweep_boundary(&mut rig.bucket, 77);
    maintain::sweep(&mut rig.bucket);
    rig.submit(writer, &add("b", 1));
    rig.run(writer);
    assert_eq!(rig.writers[writer].maintained, [(fold, false)]);
}

/// The boundary is raised by a head that this publisher has read already when
/// what was staged below it is handed over.
#[test]
fn maintenance_handed_over_below_a_boundary_that_is_known_is_dropped_at_once() {
    let mut rig = Rig::new();
    let writer = rig.writer();
    for number in 0..2 {
        rig.submit(writer, &add(number.to_string(), 1));
        rig.run(writer);
    }
    let head = rig.bucket.head().clone();
    let fold = maintain::fold(&mut rig.bucket, &head, 1);
    let compaction = maintain::compact(&mut rig.bucket, &head, version(1));
    maintain::raise_sweep_boundary(&mut rig.bucket, 77);
    maintain::raise_sweep_boundary(&mut rig.bucket, 78);
    rig.submit(writer, &add("b", 1));
    rig.run(writer);
    assert!(head.revision < rig.bucket.head().sweep_from, "it was staged below the boundary");

    for maintenance in [fold, compaction] {
        rig.on(writer, Event::Prepared(maintenance.clone()));
        rig.run(writer);
        assert_eq!(rig.writers[writer].maintained.pop(), Some((maintenance, false)));
    }
    assert!(rig.bucket.head().segments.is_empty(), "nothing of it was named");
}

/// The state at hand names what a sweep has taken: the batch is decided again
/// from the head that there is now, and nobody is told of it.
#[test]
fn facts_that_were_overtaken_are_looked_up_again_from_the_head_that_there_is() {
    let mut rig = Rig::new();
    let writer = rig.writer();
    rig.submit(writer, &add("a", 1));
    rig.run(writer);
    let ticket = rig.submit(writer, &add("b", 2));
    rig.run_but(writer, &[Kind::Facts]);
    rig.commit_elsewhere(&add("other", 10));

    let key = "chunks/gone".into();
    rig.fail(writer, Kind::Facts, Trouble::Overtaken { key });
    assert!(!rig.is_answered(ticket));
    assert!(rig.has(writer, Kind::Read), "the head is read before anything is decided");
    assert!(!rig.has(writer, Kind::Facts));
    rig.run(writer);

    assert_eq!(rig.receipt(ticket).results[0].sum, 13);
    assert_eq!(rig.ids(), ["a", "other", "b"]);
}

#[test]
fn what_is_in_flight_goes_on_when_the_batch_behind_it_was_overtaken() {
    let mut rig = Rig::new();
    let writer = rig.writer();
    rig.submit(writer, &add("warm", 1));
    rig.run(writer);
    let first = rig.submit(writer, &add("a", 1));
    rig.run_but(writer, &[Kind::Publish]);
    let behind = rig.submit_all(writer, &[add("b", 1).large(), add("c", 1).large()]);
    rig.run_but(writer, &[Kind::Facts, Kind::Publish]);
    assert!(rig.has(writer, Kind::Facts), "the batch behind is being looked up");

    rig.fail(writer, Kind::Facts, Trouble::Overtaken { key: "chunks/gone".into() });
    assert!(!rig.has(writer, Kind::Read), "nothing is read while a publication is in flight");
    rig.publish(writer, Fate::Answered);
    assert_eq!(rig.receipt(first).results[0].sum, 2);
    rig.run(writer);

    assert_eq!(rig.receipt(behind[1]).results[0].sum, 4);
    assert_eq!(rig.ids(), ["warm", "a", "b", "c"]);
}

/// Time that runs out meanwhile: nothing was published for it.
#[test]
fn an_overtaken_operation_that_expires_is_not_applied() {
    let mut rig = Rig::new();
    let writer = rig.writer();
    rig.submit(writer, &add("a", 1));
    rig.run(writer);
    let ticket = rig.submit(writer, &add("b", 2));
    rig.run_but(writer, &[Kind::Facts]);
    rig.fail(writer, Kind::Facts, Trouble::Overtaken { key: "chunks/gone".into() });
    rig.expire(writer, ticket);
    assert_eq!(*rig.error(ticket), SubmitError::StoreUnavailable);
    rig.run(writer);
    assert_eq!(rig.ids(), ["a"]);
}

#[test]
fn a_snapshot_whose_pages_may_be_swept_is_dropped() {
    let mut rig = Rig::new();
    let writer = rig.writer();
    rig.submit(writer, &add("a", 1));
    rig.run(writer);
    // The page was uploaded long before the snapshot.
    let old = rig.bucket.head().clone();
    let page = maintain::compact(&mut rig.bucket, &old, version(1));
    maintain::raise_sweep_boundary(&mut rig.bucket, 77);
    let head = rig.bucket.head().clone();
    let mut compaction = maintain::compact(&mut rig.bucket, &head, version(1));
    {
        use crate::publish::Maintenance::Compact;
        let (Compact(new), Compact(page)) = (&mut compaction, page) else { panic!() };
        new.receipt_pages = page.receipt_pages;
    }
    maintain::raise_sweep_boundary(&mut rig.bucket, 78);
    maintain::sweep(&mut rig.bucket);
    rig.on(writer, Event::Prepared(compaction.clone()));
    rig.submit(writer, &add("b", 1));
    rig.run(writer);
    assert_eq!(rig.writers[writer].maintained, [(compaction, false)]);
}

#[test]
fn maintenance_without_an_answer_is_found_out_and_nothing_is_published_before_that() {
    for fate in [Fate::AnswerLost, Fate::RequestLost] {
        let mut rig = Rig::new();
        let writer = rig.writer();
        rig.submit(writer, &add("a", 1));
        rig.run(writer);
        let head = rig.bucket.head().clone();
        let compaction = maintain::compact(&mut rig.bucket, &head, version(1));
        rig.on(writer, Event::Prepared(compaction.clone()));
        rig.publish(writer, fate);
        rig.fail(writer, Kind::Read, Trouble::Unavailable);
        assert!(!rig.has(writer, Kind::Publish), "what became of the last one is not known");
        rig.run(writer);
        assert_eq!(rig.writers[writer].maintained, [(compaction, true)]);
    }
}

#[test]
fn a_head_at_its_limit_takes_no_operation_until_maintenance_has_made_room() {
    let tight = HeadLimits { soft_bytes: 1200, hard_bytes: 2000 };
    let mut rig = Rig::new();
    let writer = rig.writer_with(Settings { head: tight, ..settings() });
    let mut refused = None;
    for number in 0..20 {
        let ticket = rig.submit(writer, &add(number.to_string(), 1));
        rig.run(writer);
        if let Answer::Failed(error) = rig.answer(ticket) {
            refused = Some((number, error.clone()));
            break;
        }
    }
    let (number, error) = refused.expect("the head grows without end");
    assert_eq!(error, SubmitError::HeadTooLarge);
    assert!(rig.writers[writer].publisher.head_bytes() <= tight.hard_bytes);

    let head = rig.bucket.head().clone();
    let fold = maintain::fold(&mut rig.bucket, &head, head.changes.len());
    rig.on(writer, Event::Prepared(fold));
    rig.run(writer);
    let ticket = rig.submit(writer, &add(number.to_string(), 1));
    rig.run(writer);
    assert_eq!(rig.receipt(ticket).results[0].sum, number + 1);
}

#[test]
fn what_is_published_together_stays_below_the_soft_limit_together() {
    let tight = HeadLimits { soft_bytes: 2_700, hard_bytes: 64_000 };
    let mut rig = Rig::new();
    let one = Settings { head: tight, batch_operations_max: 1, ..settings() };
    let writer = rig.writer_with(one);
    rig.submit(writer, &add("first", 1));
    rig.run_but(writer, &[Kind::Publish]);
    // Behind an upload, full batches are decided at once.
    rig.submit(writer, &add("large", 1).large());
    rig.run_but(writer, &[Kind::Publish]);
    let value = "v".repeat(400);
    for id in ["a", "b"] {
        rig.submit(writer, &Op::new(id).put(id, &value));
        rig.run_but(writer, &[Kind::Publish]);
    }
    rig.publish(writer, Fate::Answered);
    let revision = rig.bucket.head().revision;
    rig.publish(writer, Fate::Answered);

    let head = rig.bucket.head();
    assert_eq!(head.revision, revision.next());
    let inline: Vec<_> =
        head.changes.iter().map(|it| matches!(it.body, ChangeBody::Inline(_))).collect();
    assert_eq!(
        inline,
        [true, false, true, false],
        "the first, and one of the two: {}",
        rig.writers[writer].publisher.head_bytes()
    );
    assert!(rig.writers[writer].publisher.head_bytes() <= tight.soft_bytes);
}

#[test]
fn what_waits_behind_operations_that_are_refused_for_size_goes_on() {
    let full = HeadLimits { soft_bytes: 0, hard_bytes: 0 };
    let mut rig = Rig::over(Bucket::new(1, true));
    let writer = rig.writer_with(Settings { head: full, ..settings() });
    let refused = rig.submit(writer, &Op::new("a").put("k", "v"));
    let raised = rig.control(writer, Control::RaiseWriterEpoch { expected: None });
    rig.run(writer);
    assert_eq!(*rig.error(refused), SubmitError::HeadTooLarge);
    assert_eq!(*rig.answer(raised), Answer::WriterEpochRaised { writer_epoch: 1 });
}

#[test]
fn back_off_grows_with_trouble_and_ends_with_it() {
    let mut rig = Rig::new();
    let writer = rig.writer();
    let failures = |rig: &mut Rig| match rig.take(writer, Kind::Read) {
        Work::Read { failures, known } => {
            rig.writers[writer].works.push_back(Work::Read { known, failures });
            failures
        }
        other => panic!("{other:?}"),
    };
    let missing = Op::new("x").if_present("missing").put("k", "v");
    rig.submit(writer, &missing);
    for number in 0..3 {
        assert_eq!(failures(&mut rig), number);
        rig.fail(writer, Kind::Read, Trouble::Unavailable);
    }
    rig.run(writer);
    // The store is there again. Nothing was published, and nothing has to be.
    rig.submit(writer, &missing);
    rig.run_but(writer, &[Kind::Read]);
    assert_eq!(failures(&mut rig), 0);
    rig.run(writer);

    // A store that takes no writes is backed off from, though it can be read.
    rig.submit(writer, &add("a", 1));
    for number in 1..4 {
        rig.run_but(writer, &[Kind::Publish]);
        rig.publish(writer, Fate::RequestLost);
        assert_eq!(failures(&mut rig), number);
    }
    rig.run(writer);
    rig.submit(writer, &missing);
    rig.run_but(writer, &[Kind::Read]);
    assert_eq!(failures(&mut rig), 0);
}

#[test]
fn a_publisher_is_idle_when_nothing_is_under_way() {
    let mut rig = Rig::new();
    let writer = rig.writer();
    assert!(rig.writers[writer].publisher.is_idle());
    rig.submit(writer, &add("a", 1));
    assert!(!rig.writers[writer].publisher.is_idle());
    rig.run(writer);
    assert!(rig.writers[writer].publisher.is_idle());
    assert!(rig.writers[writer].works.is_empty());
}
