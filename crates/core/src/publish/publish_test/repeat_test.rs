//! One operation, submitted more than once; request records.

use std::string::ToString as _;

use super::op::{Op, add, version};
use super::rig::{Fate, Kind, Rig, settings};
use crate::operation::Issue;
use crate::publish::{Answer, Event, Settings, SubmitError, Trouble};
use crate::receipt::Window;

#[test]
fn repetitions_in_a_batch_in_the_pipeline_and_in_the_queue_share_one_application() {
    let mut rig = Rig::new();
    let writer = rig.writer();
    let op = add("a", 2).large();
    let mut tickets = rig.submit_all(writer, &[op.clone(), op.clone()]);
    rig.run_but(writer, &[Kind::Publish]);
    // Small enough together to wait, and large enough to be decided at once.
    tickets.push(rig.submit(writer, &op));
    rig.run_but(writer, &[Kind::Publish]);
    tickets.push(rig.submit(writer, &op));
    rig.publish(writer, Fate::AnswerLost);
    tickets.push(rig.submit(writer, &op));
    rig.run(writer);
    tickets.push(rig.submit(writer, &op));
    rig.run(writer);

    assert_eq!(rig.ids(), ["a"]);
    let first = rig.receipt(tickets[0]).clone();
    for ticket in tickets {
        assert_eq!(*rig.receipt(ticket), first);
    }
}

#[test]
fn a_repetition_outlives_the_first_submission() {
    let mut rig = Rig::new();
    let writer = rig.writer();
    rig.submit(writer, &add("first", 0));
    rig.run_but(writer, &[Kind::Publish]);
    let op = add("a", 2).large();
    let tickets = rig.submit_all(writer, &[op.clone(), op]);
    rig.run_but(writer, &[Kind::Publish]);

    rig.expire(writer, tickets[0]);
    rig.run(writer);

    assert_eq!(*rig.error(tickets[0]), SubmitError::Expired);
    rig.receipt(tickets[1]);
    assert_eq!(rig.ids(), ["first", "a"]);
}

#[test]
fn a_repetition_that_expires_is_in_doubt_since_the_first_goes_on() {
    let mut rig = Rig::new();
    let writer = rig.writer();
    rig.submit(writer, &add("first", 0));
    rig.run_but(writer, &[Kind::Publish]);
    let op = add("a", 2).large();
    let tickets = rig.submit_all(writer, &[op.clone(), op]);
    rig.run_but(writer, &[Kind::Publish]);

    rig.expire(writer, tickets[1]);
    rig.run(writer);

    assert_eq!(*rig.error(tickets[1]), SubmitError::InDoubt);
    rig.receipt(tickets[0]);
}

#[test]
fn an_id_with_two_requests_is_refused_by_receipt_and_in_the_batch() {
    let mut rig = Rig::new();
    let writer = rig.writer();
    let tickets = rig.submit_all(writer, &[add("a", 1), add("a", 2)]);
    rig.run_but(writer, &[Kind::Publish]);
    assert!(!rig.is_answered(tickets[1]), "the first is not published yet");
    rig.run(writer);
    rig.receipt(tickets[0]);
    assert_eq!(*rig.error(tickets[1]), SubmitError::IdReused);

    let later = rig.submit(writer, &add("a", 3));
    rig.run(writer);
    assert_eq!(*rig.error(later), SubmitError::IdReused);
    assert_eq!(rig.ids(), ["a"]);
}

#[test]
fn an_id_reused_against_an_operation_that_loses_is_decided_again() {
    let mut rig = Rig::new();
    let writer = rig.writer();
    let a = Op::new("a").if_absent("k").put("k", "a").large();
    let first = rig.submit(writer, &a);
    rig.run_but(writer, &[Kind::Publish]);
    let second = rig.submit(writer, &add("a", 1).large());
    rig.run_but(writer, &[Kind::Publish]);
    rig.commit_elsewhere(&Op::new("b").put("k", "b"));
    rig.run(writer);

    assert!(matches!(rig.answer(first), Answer::Rejected { .. }));
    rig.receipt(second);
    assert_eq!(rig.ids(), ["b", "a"]);
}

#[test]
fn a_record_is_durable_before_the_first_publication() {
    let mut rig = Rig::new();
    let writer = rig.writer();
    let ticket = rig.submit(writer, &add("a", 1).service_kept());
    rig.run_but(writer, &[Kind::Stage]);
    assert!(!rig.has(writer, Kind::Publish));
    rig.fail(writer, Kind::Stage, Trouble::Unavailable);
    rig.run_but(writer, &[Kind::Stage]);
    assert!(!rig.has(writer, Kind::Publish));

    rig.run(writer);

    rig.receipt(ticket);
    let record = &rig.bucket.records[&add("a", 1).id()];
    assert_eq!(record.issued_from, version(0));
}

/// The record is known to be there: asked again, the operation is uploaded
/// nothing for, and its issue version is still the first one.
#[test]
fn a_repetition_of_an_operation_whose_record_is_known_writes_no_record() {
    let mut rig = Rig::new();
    let writer = rig.writer();
    let op = add("a", 1).service_kept();
    let first = rig.submit(writer, &op);
    rig.run(writer);
    rig.receipt(first);
    rig.submit(writer, &add("b", 1).issued_from(1));
    rig.run(writer);

    let again = rig.submit(writer, &op);
    rig.run_but(writer, &[Kind::Stage]);
    assert!(!rig.has(writer, Kind::Stage), "nothing is to be written");
    assert_eq!(rig.receipt(again), rig.receipt(first));

    // Another request under the id is told apart by what is stored.
    let other = rig.submit(writer, &add("a", 2).service_kept());
    rig.run(writer);
    assert_eq!(*rig.error(other), SubmitError::IdReused);
}

#[test]
fn a_known_record_keeps_an_operation_whose_receipt_is_gone_from_being_applied_again() {
    let narrow = Window { versions_max: 1, bytes_max: 1 << 20 };
    let mut rig = Rig::new();
    let writer = rig.writer_with(Settings { window: narrow, ..settings() });
    let op = add("a", 1).service_kept();
    rig.submit(writer, &op);
    rig.run(writer);
    for number in 1..4 {
        rig.submit(writer, &add(number.to_string(), 1).issued_from(number));
        rig.run(writer);
    }

    let again = rig.submit(writer, &op);
    rig.run(writer);

    assert!(matches!(rig.answer(again), Answer::Unknown { .. }), "{:?}", rig.answer(again));
    assert_eq!(rig.bucket.accepted(&op.id()).len(), 1);
}

/// The same name, the same id, the same request, and a history that has no
/// record of it: were the one of the history before taken for it, the operation
/// could be applied once more when its receipt is gone.
#[test]
fn a_record_of_a_deleted_history_is_none_of_the_one_that_took_its_name() {
    let narrow = Settings { window: Window { versions_max: 1, bytes_max: 1 << 20 }, ..settings() };
    let mut rig = Rig::new();
    let writer = rig.writer_with(narrow.clone());
    let op = add("row-17", 1).service_kept();
    rig.submit(writer, &op);
    rig.run(writer);

    // Asked before the writer can know of the other history.
    let new = rig.recreate(2);
    let op = op.of(new);
    let first = rig.submit(writer, &op);
    rig.run(writer);

    rig.receipt(first);
    let record = rig.bucket.records.get(&op.id()).expect("a record in the new history");
    assert_eq!((record.history_id, record.issued_from), (new, version(0)));

    // The caller comes back to another process once the receipt is gone.
    for number in 1..3 {
        rig.submit(writer, &add(number.to_string(), 1).issued_from(number));
        rig.run(writer);
    }
    let other = rig.writer_with(narrow);
    let again = rig.submit(other, &op);
    rig.run(other);
    assert!(matches!(rig.answer(again), Answer::Unknown { .. }), "{:?}", rig.answer(again));
    assert_eq!(rig.bucket.accepted(&op.id()).len(), 1);
}

#[test]
fn a_found_record_with_an_older_version_leads_to_the_receipt_or_to_unknown() {
    let narrow = Window { versions_max: 2, bytes_max: 1 << 20 };
    let narrow = Settings { window: narrow, ..settings() };
    for (commits, is_known) in [(1, true), (3, false)] {
        let mut rig = Rig::new();
        let writer = rig.writer_with(narrow.clone());
        let op = add("a", 1).service_kept();
        rig.submit(writer, &op);
        rig.run(writer);
        for number in 0..commits {
            let issued_from = rig.bucket.version().get();
            rig.submit(writer, &add(number.to_string(), 1).issued_from(issued_from));
            rig.run(writer);
        }

        // The caller comes back to another process.
        let other = rig.writer_with(narrow.clone());
        let again = rig.submit(other, &op);
        rig.run(other);

        match (rig.answer(again), is_known) {
            (Answer::Accepted { receipt, .. }, true) => assert_eq!(receipt.results[0].sum, 1),
            (Answer::Unknown { earliest, .. }, false) => assert_eq!(*earliest, version(1)),
            (other, _) => panic!("{other:?}"),
        }
        assert_eq!(rig.ids().iter().filter(|it| *it == "a").count(), 1);
    }
}

#[test]
fn a_rejected_retry_of_an_accepted_operation_is_unknown_once_its_receipt_is_gone() {
    let narrow = Window { versions_max: 1, bytes_max: 1 << 20 };
    let mut rig = Rig::new();
    let writer = rig.writer_with(Settings { window: narrow, ..settings() });
    let op = Op::new("a").if_absent("k").put("k", "a").service_kept();
    rig.submit(writer, &op);
    rig.run(writer);
    for number in 1..3 {
        rig.submit(writer, &add(number.to_string(), 1).issued_from(number));
        rig.run(writer);
    }

    // Its own success stands in its way; the record knows better.
    let again = rig.submit(writer, &op);
    rig.run(writer);
    assert!(matches!(rig.answer(again), Answer::Unknown { .. }));
}

#[test]
fn a_record_of_another_request_refuses_the_id() {
    let mut rig = Rig::new();
    let writer = rig.writer();
    let other = rig.writer();
    // The first submission never gets past its record.
    rig.submit(other, &add("a", 1).service_kept());
    rig.run_but(other, &[Kind::Publish]);
    let neighbour = add("b", 1).service_kept();
    let tickets = rig.submit_all(writer, &[add("a", 2).service_kept(), neighbour]);
    rig.run(writer);

    assert_eq!(*rig.error(tickets[0]), SubmitError::IdReused);
    rig.receipt(tickets[1]);
    rig.run(other);
    assert_eq!(rig.ids(), ["b", "a"]);
}

#[test]
fn a_record_that_was_made_is_not_made_again_after_a_lost_race() {
    let mut rig = Rig::new();
    let writer = rig.writer();
    let ticket = rig.submit(writer, &add("a", 1).service_kept());
    rig.run_but(writer, &[Kind::Publish]);
    rig.commit_elsewhere(&add("b", 1));
    rig.run_but(writer, &[Kind::Stage]);

    assert!(!rig.has(writer, Kind::Stage));
    assert_eq!(rig.receipt(ticket).accepted_at, version(2));
    assert_eq!(rig.bucket.records[&add("a", 1).id()].issued_from, version(0));
}

#[test]
fn a_proposed_issue_version_is_that_of_a_head_that_was_read() {
    let mut rig = Rig::new();
    let writer = rig.writer();
    rig.submit(writer, &add("a", 1).large());
    rig.run_but(writer, &[Kind::Publish]);
    // Decided on top of a version that is not published: issued before it.
    rig.submit(writer, &add("b", 1).large().service_kept());
    rig.run_but(writer, &[Kind::Publish]);
    assert_eq!(rig.bucket.records[&add("b", 1).id()].issued_from, version(0));
    rig.run(writer);
    assert_eq!(rig.ids(), ["a", "b"]);
}

#[test]
fn reports_about_batches_that_were_rolled_back_are_ignored() {
    let mut rig = Rig::new();
    let writer = rig.writer();
    rig.submit(writer, &add("first", 0));
    rig.run_but(writer, &[Kind::Publish]);
    let tickets = rig.submit_all(writer, &[add("a", 1).large(), add("b", 1)]);
    rig.run_but(writer, &[Kind::Publish, Kind::Facts]);
    let facts = rig.take(writer, Kind::Facts);
    rig.expire(writer, tickets[0]);
    rig.carry_out(writer, facts);
    rig.run_but(writer, &[Kind::Publish, Kind::Stage]);

    let c = rig.submit(writer, &add("c", 1).large());
    rig.run_but(writer, &[Kind::Publish, Kind::Stage]);
    let super::rig::Work::Stage { batch, .. } = rig.take(writer, Kind::Stage) else { panic!() };
    rig.expire(writer, c);
    rig.on(writer, Event::Staged { batch, records: std::vec::Vec::new() });
    rig.on(writer, Event::StageFailed { batch, trouble: Trouble::Denied });
    rig.on(writer, Event::FactsFailed { batch, trouble: Trouble::Denied });
    rig.run(writer);

    rig.receipt(tickets[1]);
    assert_eq!(rig.ids(), ["first", "b"]);
}

#[test]
fn the_issue_version_of_a_client_never_moves() {
    let mut rig = Rig::new();
    let writer = rig.writer();
    rig.submit(writer, &add("a", 1));
    rig.run_but(writer, &[Kind::Publish]);
    for number in 0..3 {
        rig.commit_elsewhere(&add(number.to_string(), 1));
        rig.run_but(writer, &[Kind::Publish]);
    }
    assert_eq!(add("a", 1).operation().issue, Issue::ClientKept(version(0)));
    rig.run(writer);
    assert_eq!(rig.ids(), ["0", "1", "2", "a"]);
}

#[test]
fn a_record_made_at_a_version_that_was_not_seen_yet_asks_for_a_newer_proof() {
    let mut rig = Rig::new();
    let (writer, other) = (rig.writer(), rig.writer());
    // This writer has proof of version 0 from after the question; the record
    // comes into being at version 1.
    let op = Op::new("a").if_present("missing").put("k", "a").service_kept();
    let ticket = rig.submit(writer, &op);
    rig.run_but(writer, &[Kind::Stage]);
    rig.submit(other, &add("b", 1));
    rig.run(other);
    rig.submit(other, &op);
    rig.run(other);
    assert_eq!(rig.bucket.records[&op.id()].issued_from, version(1));

    rig.run(writer);
    assert!(matches!(rig.answer(ticket), Answer::Rejected { .. }), "{:?}", rig.answer(ticket));
}
