//! Publications without an answer: what may have been applied is never said
//! not to have been, and is never applied again.

use std::string::ToString as _;

use super::op::{add, look_up};
use super::rig::{Fate, Kind, Rig, settings};
use crate::head::HeadLimits;
use crate::publish::{Answer, Determinacy, Settings, SubmitError, Trouble};
use crate::receipt::Window;

#[test]
fn a_lost_reply_is_answered_with_the_original_result_and_applied_once() {
    let mut rig = Rig::new();
    let writer = rig.writer();
    let ticket = rig.submit(writer, &add("a", 2));
    rig.run_but(writer, &[Kind::Publish]);

    rig.publish(writer, Fate::AnswerLost);
    assert!(!rig.is_answered(ticket));
    rig.run(writer);

    assert_eq!(rig.receipt(ticket).results[0].sum, 2);
    assert_eq!(rig.ids(), ["a"]);
}

#[test]
fn a_lost_reply_is_found_by_its_receipt_after_another_writer_committed() {
    let mut rig = Rig::new();
    let writer = rig.writer();
    let ticket = rig.submit(writer, &add("a", 2));
    rig.run_but(writer, &[Kind::Publish]);

    rig.publish(writer, Fate::AnswerLost);
    rig.commit_elsewhere(&add("b", 5));
    rig.run(writer);

    assert_eq!(rig.receipt(ticket).results[0].sum, 2);
    assert!(matches!(rig.answer(ticket), Answer::Accepted { is_from_receipt: true, .. }));
    assert_eq!(rig.ids(), ["a", "b"]);
}

#[test]
fn a_lost_reply_whose_receipt_the_window_has_passed_is_unknown_and_not_applied_again() {
    let narrow = Window { versions_max: 1, bytes_max: 1 << 20 };
    let narrow = Settings { window: narrow, ..settings() };
    for op in [add("a", 2), add("a", 2).service_kept()] {
        let mut rig = Rig::new();
        let writer = rig.writer_with(narrow.clone());
        let other = rig.writer_with(narrow.clone());
        let ticket = rig.submit(writer, &op);
        rig.run_but(writer, &[Kind::Publish]);

        rig.publish(writer, Fate::AnswerLost);
        for id in ["b", "c"] {
            let issued_from = rig.bucket.version().get();
            rig.submit(other, &add(id, 1).issued_from(issued_from));
            rig.run(other);
        }
        rig.run(writer);

        assert!(matches!(rig.answer(ticket), Answer::Unknown { .. }), "{:?}", rig.answer(ticket));
        assert_eq!(rig.ids(), ["a", "b", "c"]);
    }
}

#[test]
fn an_echo_is_answered_with_the_original_result_and_applied_once() {
    for other in [None, Some(add("b", 5))] {
        let mut rig = Rig::new();
        let writer = rig.writer();
        let ticket = rig.submit(writer, &add("a", 2));
        rig.run_but(writer, &[Kind::Publish]);
        rig.publish(writer, Fate::Echoed);
        if let Some(other) = &other {
            rig.commit_elsewhere(other);
        }
        rig.run(writer);

        assert_eq!(rig.receipt(ticket).results[0].sum, 2);
        assert_eq!(rig.bucket.accepted(&add("a", 2).id()).len(), 1);
    }
}

#[test]
fn an_echo_is_doubt_until_the_head_is_read() {
    for trouble in [None, Some(Trouble::Unavailable), Some(Trouble::Denied)] {
        let mut rig = Rig::new();
        let writer = rig.writer();
        let ticket = rig.submit(writer, &add("a", 2));
        rig.run_but(writer, &[Kind::Publish]);
        rig.publish(writer, Fate::Echoed);
        if let Some(trouble) = trouble {
            rig.fail(writer, Kind::Read, trouble);
        }
        rig.expire(writer, ticket);

        assert_eq!(*rig.error(ticket), SubmitError::InDoubt);
        rig.run(writer);
        assert_eq!(rig.ids(), ["a"]);
    }
}

#[test]
fn a_loss_to_another_writer_is_doubt_until_the_head_is_read_and_none_after_that() {
    for is_read in [false, true] {
        let mut rig = Rig::new();
        let writer = rig.writer();
        let ticket = rig.submit(writer, &add("a", 2));
        rig.run_but(writer, &[Kind::Publish]);
        rig.commit_elsewhere(&add("b", 1));
        rig.publish(writer, Fate::Answered);
        if is_read {
            rig.run_but(writer, &[Kind::Facts]);
        }
        rig.expire(writer, ticket);

        let expected = if is_read { SubmitError::Contended } else { SubmitError::InDoubt };
        assert_eq!(*rig.error(ticket), expected);
        rig.run(writer);
        assert_eq!(rig.ids(), ["b"]);
    }
}

#[test]
fn a_request_that_was_lost_is_published_again() {
    let mut rig = Rig::new();
    let writer = rig.writer();
    let ticket = rig.submit(writer, &add("a", 2));
    rig.run_but(writer, &[Kind::Publish]);

    rig.publish(writer, Fate::RequestLost);
    rig.run(writer);

    assert_eq!(rig.receipt(ticket).results[0].sum, 2);
    assert_eq!(rig.ids(), ["a"]);
}

#[test]
fn a_replacement_that_is_applied_while_its_repetition_is_on_the_way_wins() {
    let mut rig = Rig::new();
    let writer = rig.writer();
    let ticket = rig.submit(writer, &add("a", 2));
    rig.run_but(writer, &[Kind::Publish]);
    rig.publish(writer, Fate::Late);
    rig.run_but(writer, &[Kind::Publish]);
    assert!(rig.has(writer, Kind::Publish), "the head is as it was, so it is tried again");

    assert!(rig.apply_late());
    rig.run(writer);

    assert_eq!(rig.receipt(ticket).results[0].sum, 2);
    assert_eq!(rig.ids(), ["a"]);
}

#[test]
fn a_replacement_that_comes_after_its_repetition_changes_nothing() {
    let mut rig = Rig::new();
    let writer = rig.writer();
    let ticket = rig.submit(writer, &add("a", 2));
    rig.run_but(writer, &[Kind::Publish]);
    rig.publish(writer, Fate::Late);
    rig.run(writer);
    rig.receipt(ticket);

    assert!(!rig.apply_late());
    assert_eq!(rig.ids(), ["a"]);
}

#[test]
fn a_first_attempt_applied_after_two_without_answer_is_found_by_its_receipt() {
    let mut rig = Rig::new();
    let writer = rig.writer();
    let ticket = rig.submit(writer, &add("a", 2));
    for _ in 0..2 {
        rig.run_but(writer, &[Kind::Publish]);
        rig.publish(writer, Fate::Late);
    }

    assert!(rig.apply_late());
    rig.run(writer);

    assert_eq!(rig.receipt(ticket).results[0].sum, 2);
    assert!(!rig.apply_late());
    assert_eq!(rig.ids(), ["a"]);
}

#[test]
fn a_deadline_in_an_unanswered_publication_is_doubt_and_not_failure() {
    // In flight; unanswered; unanswered and seen not to be applied yet; and the
    // same while reading fails.
    for (stage, fate) in (0..4).flat_map(|it| [(it, Fate::Late), (it, Fate::AnswerLost)]) {
        let mut rig = Rig::new();
        let writer = rig.writer();
        let ticket = rig.submit(writer, &add("a", 2));
        rig.run_but(writer, &[Kind::Publish]);
        if 0 < stage {
            rig.publish(writer, fate);
        }
        if stage == 2 {
            rig.run_but(writer, &[Kind::Publish]);
        }
        if stage == 3 {
            rig.fail(writer, Kind::Read, Trouble::Unavailable);
        }
        if rig.is_answered(ticket) {
            continue;
        }

        rig.expire(writer, ticket);

        assert_eq!(*rig.error(ticket), SubmitError::InDoubt, "{stage} {fate:?}");
        assert_eq!(rig.error(ticket).determinacy(), Determinacy::MaybeApplied);
        rig.run(writer);
        assert!(rig.ids().len() <= 1);
    }
}

#[test]
fn the_same_id_finds_out_what_became_of_a_doubtful_operation() {
    let mut rig = Rig::new();
    let writer = rig.writer();
    let first = rig.submit(writer, &add("a", 2));
    rig.run_but(writer, &[Kind::Publish]);
    rig.publish(writer, Fate::AnswerLost);
    rig.expire(writer, first);
    let again = rig.submit(writer, &add("a", 2));
    rig.run(writer);

    assert_eq!(*rig.error(first), SubmitError::InDoubt);
    assert_eq!(rig.receipt(again).results[0].sum, 2);
    assert_eq!(rig.ids(), ["a"]);
}

#[test]
fn doubt_ends_when_the_head_is_seen_with_another_tag() {
    let mut rig = Rig::new();
    let writer = rig.writer();
    let ticket = rig.submit(writer, &add("a", 2));
    rig.run_but(writer, &[Kind::Publish]);
    rig.publish(writer, Fate::Late);
    rig.commit_elsewhere(&add("b", 1));
    rig.run_but(writer, &[Kind::Publish, Kind::Facts]);

    // The condition can never hold again: the deadline finds it not applied.
    rig.expire(writer, ticket);
    assert_eq!(rig.error(ticket).determinacy(), Determinacy::NotApplied);
    rig.run(writer);

    assert!(!rig.apply_late());
    assert_eq!(rig.ids(), ["b"]);
}

#[test]
fn an_applied_operation_that_expires_before_it_is_decided_again_is_not_called_unapplied() {
    let narrow = Window { versions_max: 1, bytes_max: 1 << 20 };
    for (window, is_known) in [(settings().window, true), (narrow, false)] {
        let mut rig = Rig::new();
        let writer = rig.writer();
        let ticket = rig.submit(writer, &add("a", 2));
        rig.run_but(writer, &[Kind::Publish]);
        rig.publish(writer, Fate::AnswerLost);
        let other = rig.writer_with(Settings { window, ..settings() });
        for number in 1..3 {
            rig.submit(other, &add(number.to_string(), 1).issued_from(number));
            rig.run(other);
        }
        rig.run_but(writer, &[Kind::Facts]);
        rig.expire(writer, ticket);

        match rig.answer(ticket) {
            Answer::Accepted { receipt, .. } => assert!(is_known && receipt.results[0].sum == 2),
            Answer::Unknown { .. } => assert!(!is_known),
            other => panic!("{other:?}"),
        }
        rig.run(writer);
        assert_eq!(rig.ids(), ["a", "1", "2"]);
    }
}

#[test]
fn a_failed_read_does_not_end_doubt() {
    let mut rig = Rig::new();
    let writer = rig.writer();
    let ticket = rig.submit(writer, &add("a", 2));
    rig.run_but(writer, &[Kind::Publish]);
    rig.publish(writer, Fate::AnswerLost);
    let trouble = Trouble::BadData { key: "head.json".into(), what: "truncated".into() };
    rig.fail(writer, Kind::Read, trouble);

    assert_eq!(*rig.error(ticket), SubmitError::InDoubt);
}

#[test]
fn an_operation_that_expires_in_the_queue_is_not_applied() {
    let mut rig = Rig::new();
    let writer = rig.writer();
    let first = rig.submit(writer, &add("a", 1));
    rig.run_but(writer, &[Kind::Publish]);
    let ticket = rig.submit(writer, &add("b", 1));
    rig.expire(writer, ticket);
    assert_eq!(*rig.error(ticket), SubmitError::Expired);

    rig.run(writer);
    rig.receipt(first);
    assert_eq!(rig.ids(), ["a"]);
}

#[test]
fn an_operation_that_expires_while_staged_is_not_applied_and_its_neighbours_are() {
    let mut rig = Rig::new();
    let writer = rig.writer();
    rig.submit(writer, &add("first", 0));
    rig.run_but(writer, &[Kind::Publish]);
    let ops = [add("a", 1).large(), add("b", 1), add("c", 1)];
    let tickets = rig.submit_all(writer, &ops);
    rig.run_but(writer, &[Kind::Publish]);

    rig.expire(writer, tickets[1]);
    assert_eq!(rig.error(tickets[1]).determinacy(), Determinacy::NotApplied);
    rig.run(writer);

    assert_eq!(rig.receipt(tickets[2]).results[0].sum, 2);
    assert_eq!(rig.ids(), ["first", "a", "c"]);
}

#[test]
fn time_that_ran_out_names_what_it_ran_out_on() {
    let mut rig = Rig::new();
    let writer = rig.writer();
    let ticket = rig.submit(writer, &add("a", 1));
    rig.fail(writer, Kind::Read, Trouble::Unavailable);
    rig.expire(writer, ticket);
    assert_eq!(*rig.error(ticket), SubmitError::StoreUnavailable);
    rig.run(writer);

    let ticket = rig.submit(writer, &add("a", 1));
    rig.run_but(writer, &[Kind::Publish]);
    rig.commit_elsewhere(&add("b", 1));
    rig.publish(writer, Fate::Answered);
    rig.run_but(writer, &[Kind::Facts]);
    rig.expire(writer, ticket);
    assert_eq!(*rig.error(ticket), SubmitError::Contended);
    assert_eq!(rig.error(ticket).determinacy(), Determinacy::NotApplied);
}

#[test]
fn an_expired_ticket_that_was_answered_is_not_answered_again() {
    let mut rig = Rig::new();
    let writer = rig.writer();
    let ticket = rig.submit(writer, &add("a", 1));
    rig.run(writer);
    rig.receipt(ticket);
    rig.expire(writer, ticket);
    rig.receipt(ticket);
}

#[test]
fn a_doubtful_question_that_nothing_else_would_settle_is_settled_by_a_publication() {
    let mut rig = Rig::new();
    let tight = HeadLimits { soft_bytes: 1000, hard_bytes: 1350 };
    let settings = Settings { head: tight, batch_bytes_max: 500, ..settings() };
    let writer = rig.writer_with(settings);
    let tickets = rig.ask_all(writer, [add("a", 1).ask(), look_up("a", 0)]);
    rig.run_but(writer, &[Kind::Publish]);
    // With what is staged meanwhile it is more than the head can take: all
    // goes back, and the look-up is what is left of the first publication.
    for number in 0..3 {
        rig.submit(writer, &add(number.to_string(), 1).large());
        rig.run_but(writer, &[Kind::Publish]);
    }
    let other = rig.submit(writer, &add("c", 1).large());
    rig.publish(writer, Fate::Late);
    rig.run_but(writer, &[Kind::Publish]);
    assert_eq!(*rig.error(tickets[0]), SubmitError::InDoubt);
    assert_eq!(*rig.error(other), SubmitError::HeadTooLarge);
    assert!(!rig.is_answered(tickets[1]));

    rig.run(writer);

    assert!(matches!(rig.answer(tickets[1]), Answer::NotAccepted { .. }));
    assert!(!rig.apply_late());
}

#[test]
fn a_look_up_tells_what_is_published_and_nothing_that_is_predicted() {
    let mut rig = Rig::new();
    let writer = rig.writer();
    rig.submit(writer, &add("a", 1));
    rig.run_but(writer, &[Kind::Publish]);
    let early = rig.ask(writer, look_up("a", 0));
    rig.publish(writer, Fate::Late);
    rig.run_but(writer, &[Kind::Publish]);
    assert!(!rig.is_answered(early));
    rig.run(writer);
    rig.receipt(early);

    let never = rig.ask(writer, look_up("never", 0));
    rig.run(writer);
    assert!(matches!(rig.answer(never), Answer::NotAccepted { .. }));
}

#[test]
fn a_look_up_past_the_window_is_unknown() {
    let narrow = Window { versions_max: 1, bytes_max: 1 << 20 };
    let mut rig = Rig::new();
    let writer = rig.writer_with(Settings { window: narrow, ..settings() });
    for id in ["a", "b", "c"] {
        let issued_from = rig.bucket.version().get();
        rig.submit(writer, &add(id, 1).issued_from(issued_from));
        rig.run(writer);
    }

    let asks = [0, 2].map(|it| look_up("x", it));
    let tickets = rig.ask_all(writer, asks);
    rig.run(writer);

    assert!(matches!(rig.answer(tickets[0]), Answer::Unknown { .. }));
    assert!(matches!(rig.answer(tickets[1]), Answer::NotAccepted { .. }));
}

#[test]
fn a_look_up_from_a_version_that_cannot_be_is_answered() {
    let mut rig = Rig::new();
    let writer = rig.writer();
    let ticket = rig.ask(writer, look_up("x", u64::MAX));
    rig.run(writer);
    assert!(matches!(rig.answer(ticket), Answer::NotAccepted { .. }));
}
