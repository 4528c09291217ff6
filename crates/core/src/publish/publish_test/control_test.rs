//! Exclusive histories, the end of a history, and histories that changed under
//! a writer.

use super::bucket::Bucket;
use super::op::{Op, add};
use super::rig::{Fate, Kind, Rig};
use crate::publish::{Answer, Control, Determinacy, SubmitError, Trouble};

fn exclusive() -> Rig {
    Rig::over(Bucket::new(1, true))
}

const RAISE: Control = Control::RaiseWriterEpoch { expected: None };

fn raise_from(expected: u64) -> Control {
    Control::RaiseWriterEpoch { expected: Some(expected) }
}

fn retire(rig: &Rig) -> Control {
    Control::Retire { history_id: rig.bucket.head().history_id }
}

#[test]
fn a_raised_epoch_fences_the_former_owner() {
    let mut rig = exclusive();
    let (old, new) = (rig.writer(), rig.writer());
    let before = rig.submit(old, &add("a", 1));
    rig.run(old);
    rig.receipt(before);

    let raised = rig.control(new, raise_from(0));
    rig.run(new);
    assert_eq!(*rig.answer(raised), Answer::WriterEpochRaised { writer_epoch: 1 });
    let fenced = rig.submit(old, &add("b", 1));
    let owner = rig.submit(new, &add("c", 1).epoch(1));
    rig.run(old);
    rig.run(new);

    assert_eq!(*rig.error(fenced), SubmitError::Fenced { writer_epoch: 1 });
    rig.receipt(owner);
    // A receipt comes before the fence.
    let again = rig.submit(old, &add("a", 1));
    rig.run(old);
    rig.receipt(again);
    assert_eq!(rig.ids(), ["a", "c"]);
}

#[test]
fn a_writer_that_has_not_seen_the_new_epoch_does_not_fence_its_owner() {
    let mut rig = exclusive();
    let (old, new) = (rig.writer(), rig.writer());
    rig.submit(old, &add("a", 1));
    rig.run(old);
    rig.control(new, RAISE);
    rig.run(new);

    let owner = rig.submit(old, &add("b", 1).epoch(1));
    rig.run(old);
    rig.receipt(owner);
}

#[test]
fn an_epoch_is_raised_only_from_the_one_that_is_expected() {
    let mut rig = exclusive();
    let (a, b) = (rig.writer(), rig.writer());
    rig.submit(b, &add("first", 1));
    rig.run(b);
    let won = rig.control(a, raise_from(0));
    rig.run(a);
    // Its head at hand still has epoch 0: it loses, and is told why.
    let lost = rig.control(b, raise_from(0));
    rig.run(b);
    assert_eq!(*rig.answer(won), Answer::WriterEpochRaised { writer_epoch: 1 });
    assert_eq!(*rig.error(lost), SubmitError::Fenced { writer_epoch: 1 });
    // Refused by a head at hand that is old: only after a check.
    let stale = rig.control(b, raise_from(2));
    let again = rig.control(a, raise_from(1));
    rig.run(a);
    rig.run(b);
    assert_eq!(*rig.answer(again), Answer::WriterEpochRaised { writer_epoch: 2 });
    assert_eq!(*rig.answer(stale), Answer::WriterEpochRaised { writer_epoch: 3 });
}

#[test]
fn an_epoch_of_a_history_that_has_none_is_refused() {
    let mut rig = Rig::new();
    let writer = rig.writer();
    let ticket = rig.control(writer, RAISE);
    rig.run(writer);
    assert_eq!(*rig.error(ticket), SubmitError::NotExclusive);
}

#[test]
fn a_control_waits_for_what_came_before_it_and_holds_back_what_came_after() {
    let mut rig = exclusive();
    let writer = rig.writer();
    let before = rig.submit(writer, &add("a", 1));
    let raised = rig.control(writer, RAISE);
    let after = rig.submit(writer, &add("b", 1).epoch(1));
    rig.run(writer);

    rig.receipt(before);
    assert_eq!(*rig.answer(raised), Answer::WriterEpochRaised { writer_epoch: 1 });
    rig.receipt(after);
}

#[test]
fn a_control_whose_answer_was_lost_is_carried_out_once() {
    for fate in [Fate::AnswerLost, Fate::Echoed, Fate::RequestLost, Fate::Late] {
        let mut rig = exclusive();
        let writer = rig.writer();
        let ticket = rig.control(writer, RAISE);
        rig.run_but(writer, &[Kind::Publish]);
        rig.publish(writer, fate);
        rig.run(writer);
        assert_eq!(*rig.answer(ticket), Answer::WriterEpochRaised { writer_epoch: 1 });
    }
}

#[test]
fn a_control_that_expires_is_in_doubt_once_it_was_sent() {
    for fate in [Fate::AnswerLost, Fate::RequestLost, Fate::Answered] {
        let mut rig = exclusive();
        let writer = rig.writer();
        let ticket = rig.control(writer, RAISE);
        rig.run_but(writer, &[Kind::Publish]);
        rig.expire(writer, ticket);
        assert_eq!(*rig.error(ticket), SubmitError::InDoubt);
        rig.publish(writer, fate);
        let next = rig.submit(writer, &add("a", 1).epoch(1));
        rig.run(writer);
        match (rig.answer(next), rig.bucket.head().writer_epoch) {
            (Answer::Accepted { .. }, 1)
            | (Answer::Failed(SubmitError::Fenced { writer_epoch: 0 }), 0) => (),
            other => panic!("{other:?}"),
        }
    }
}

/// The head says who lost, where it is the very next one. A revision later the
/// raise may have been ours.
#[test]
fn a_control_that_met_a_mismatch_is_refused_only_where_the_head_proves_that_it_lost() {
    for n_since in [0, 1] {
        let mut rig = exclusive();
        let (writer, other) = (rig.writer(), rig.writer());
        rig.submit(writer, &add("warm", 1));
        rig.run(writer);
        let expected = Control::RaiseWriterEpoch { expected: Some(0) };
        let ticket = rig.control(writer, expected);
        rig.run_but(writer, &[Kind::Publish]);
        rig.control(other, RAISE);
        rig.run(other);
        for _ in 0..n_since {
            rig.submit(other, &add("b", 1).epoch(1));
            rig.run(other);
        }
        rig.publish(writer, Fate::Answered);
        rig.run(writer);

        let lost = SubmitError::Fenced { writer_epoch: 1 };
        let expected = if n_since == 0 { lost } else { SubmitError::InDoubt };
        assert_eq!(*rig.error(ticket), expected);
    }
}

#[test]
fn a_control_that_expires_in_the_queue_is_not_carried_out() {
    let mut rig = exclusive();
    let writer = rig.writer();
    rig.submit(writer, &add("a", 1));
    let ticket = rig.control(writer, RAISE);
    rig.expire(writer, ticket);
    rig.run(writer);
    assert_eq!(rig.error(ticket).determinacy(), Determinacy::NotApplied);
    assert_eq!(rig.bucket.head().writer_epoch, 0);
}

#[test]
fn a_control_that_expired_after_it_got_no_answer_is_not_mistaken_for_the_next_one() {
    let mut rig = exclusive();
    let writer = rig.writer();
    let raise = rig.control(writer, RAISE);
    rig.run_but(writer, &[Kind::Publish]);
    rig.publish(writer, Fate::AnswerLost);
    rig.expire(writer, raise);
    assert_eq!(*rig.error(raise), SubmitError::InDoubt);
    let retired = rig.control(writer, retire(&rig));
    rig.run_but(writer, &[Kind::Publish]);
    assert!(!rig.is_answered(retired), "what was carried out is the raise");

    rig.run(writer);
    assert_eq!(*rig.answer(retired), Answer::Retired);
    assert!(rig.bucket.head().is_retired());
}

#[test]
fn a_raise_found_out_late_fences_what_was_decided_before_it() {
    let mut rig = exclusive();
    let writer = rig.writer();
    let raise = rig.control(writer, RAISE);
    rig.run_but(writer, &[Kind::Publish]);
    rig.publish(writer, Fate::Late);
    rig.expire(writer, raise);
    let ticket = rig.submit(writer, &add("a", 1));
    rig.run_but(writer, &[Kind::Publish]);
    assert!(rig.apply_late());
    rig.run(writer);

    assert_eq!(*rig.error(ticket), SubmitError::Fenced { writer_epoch: 1 });
    assert!(rig.ids().is_empty());
}

#[test]
fn a_retired_history_accepts_nothing_any_more() {
    let mut rig = Rig::new();
    let (writer, other) = (rig.writer(), rig.writer());
    rig.submit(other, &add("first", 1));
    rig.run(other);
    let before = rig.submit(writer, &add("a", 1));
    let retired = rig.control(writer, retire(&rig));
    let after = rig.submit(writer, &add("b", 1));
    rig.run(writer);
    // It is sent before the end is known, and nothing can be read any more
    // that would tell whether it came in before.
    let elsewhere = rig.submit(other, &add("c", 1));
    rig.run(other);
    let later = rig.submit(other, &add("c", 1));
    rig.run(other);
    let again = rig.control(other, retire(&rig));
    rig.run(other);

    rig.receipt(before);
    assert_eq!(*rig.answer(retired), Answer::Retired);
    assert_eq!(*rig.error(after), SubmitError::HistoryMissing);
    assert_eq!(*rig.error(elsewhere), SubmitError::InDoubt);
    assert_eq!(*rig.error(later), SubmitError::HistoryMissing);
    assert_eq!(*rig.answer(again), Answer::Retired);
    assert_eq!(rig.ids(), ["first", "a"]);
}

/// The retired head is the very next one: what was sent against the one before
/// cannot be in it.
#[test]
fn what_lost_to_a_retirement_is_not_applied() {
    let mut rig = Rig::new();
    let (writer, other) = (rig.writer(), rig.writer());
    rig.submit(writer, &add("warm", 1));
    rig.run(writer);
    let lost = rig.submit(writer, &add("a", 1));
    rig.run_but(writer, &[Kind::Publish]);
    rig.control(other, retire(&rig));
    rig.run(other);
    rig.publish(writer, Fate::Answered);
    rig.run(writer);
    assert_eq!(*rig.error(lost), SubmitError::HistoryMissing);
}

#[test]
fn a_retirement_whose_answer_was_lost_is_found_out() {
    let mut rig = Rig::new();
    let writer = rig.writer();
    let ticket = rig.control(writer, retire(&rig));
    rig.run_but(writer, &[Kind::Publish]);
    rig.publish(writer, Fate::AnswerLost);
    rig.run(writer);
    assert_eq!(*rig.answer(ticket), Answer::Retired);
}

#[test]
fn a_retirement_of_another_history_is_refused() {
    let mut rig = Rig::new();
    let writer = rig.writer();
    let other = Bucket::new(9, false).head().history_id;
    let ticket = rig.control(writer, Control::Retire { history_id: other });
    rig.run(writer);
    assert!(matches!(rig.error(ticket), SubmitError::OtherHistory { .. }));
    assert!(!rig.bucket.head().is_retired());
}

#[test]
fn a_history_replaced_under_a_writer_is_never_merged() {
    let mut rig = Rig::new();
    let writer = rig.writer();
    let doubtful = rig.submit(writer, &add("a", 1));
    rig.run_but(writer, &[Kind::Publish]);
    rig.publish(writer, Fate::RequestLost);
    let waiting = rig.submit(writer, &add("b", 1));
    let new = rig.recreate(2);
    let meant = rig.submit(writer, &add("c", 1).of(new));
    rig.run(writer);

    // What may have been applied to the old one is in doubt for ever.
    assert_eq!(*rig.error(doubtful), SubmitError::InDoubt);
    assert_eq!(*rig.error(waiting), SubmitError::HistoryMissing);
    rig.receipt(meant);
    assert_eq!(rig.ids(), ["c"]);

    let next = rig.submit(writer, &add("d", 1));
    rig.run(writer);
    rig.receipt(next);
}

#[test]
fn nothing_staged_for_one_history_is_named_by_the_next() {
    let mut rig = Rig::new();
    let writer = rig.writer();
    let op = add("a", 1).large();
    rig.submit(writer, &op);
    rig.run_but(writer, &[Kind::Publish]);
    // The same name; the objects of the old one are gone.
    rig.recreate(2);
    rig.run(writer);
    let again = rig.submit(writer, &op);
    rig.run(writer);
    rig.receipt(again);
}

#[test]
fn an_operation_meant_for_another_history_is_refused() {
    let mut rig = Rig::new();
    let writer = rig.writer();
    let other = Bucket::new(9, false).head().history_id;
    let ticket = rig.submit(writer, &add("a", 1).of(other).service_kept());
    rig.run(writer);
    assert!(matches!(rig.error(ticket), SubmitError::OtherHistory { .. }));
    assert!(rig.bucket.records.is_empty(), "and leaves no record in this one");
}

#[test]
fn a_missing_head_is_a_missing_history_or_doubt() {
    let mut rig = Rig::new();
    let writer = rig.writer();
    let doubtful = rig.submit(writer, &add("a", 1));
    rig.run_but(writer, &[Kind::Publish]);
    rig.publish(writer, Fate::AnswerLost);
    let waiting = rig.submit(writer, &add("b", 1));
    rig.bucket.lose_head();
    rig.run(writer);
    assert_eq!(*rig.error(doubtful), SubmitError::InDoubt);
    assert_eq!(*rig.error(waiting), SubmitError::HistoryMissing);

    let later = rig.submit(writer, &add("c", 1));
    rig.run(writer);
    assert_eq!(*rig.error(later), SubmitError::HistoryMissing);
}

#[test]
fn trouble_that_trying_again_does_not_cure_is_told_at_once() {
    let key = || std::string::String::from("head.json");
    let cases = [
        (Trouble::Denied, SubmitError::StoreDenied),
        (
            Trouble::BadData { key: key(), what: "truncated".into() },
            SubmitError::StoredDataBad { key: key(), what: "truncated".into() },
        ),
        (
            Trouble::TooNew { key: key(), format: 2 },
            SubmitError::FormatTooNew { key: key(), format: 2 },
        ),
    ];
    for (trouble, error) in cases {
        for kind in [Kind::Read, Kind::Facts, Kind::Stage] {
            let mut rig = Rig::new();
            let writer = rig.writer();
            let ticket = rig.submit(writer, &add("a", 1).large());
            let control = rig.control(writer, RAISE);
            rig.run_but(writer, &[kind]);
            rig.fail(writer, kind, trouble.clone());
            assert_eq!(*rig.error(ticket), error, "{kind:?}");
            assert_eq!(*rig.error(control), error, "{kind:?}");
            rig.run(writer);
            assert!(rig.ids().is_empty());
        }
    }
}

#[test]
fn what_is_in_flight_goes_on_when_a_later_batch_is_in_trouble() {
    let mut rig = Rig::new();
    let writer = rig.writer();
    let first = rig.submit(writer, &Op::new("a").put("k", "a").large());
    rig.run_but(writer, &[Kind::Publish]);
    let second = rig.submit(writer, &add("b", 1).large());
    rig.run_but(writer, &[Kind::Publish, Kind::Stage]);
    rig.fail(writer, Kind::Stage, Trouble::Denied);
    rig.run(writer);

    rig.receipt(first);
    assert_eq!(*rig.error(second), SubmitError::StoreDenied);
    assert_eq!(rig.ids(), ["a"]);
}
