//! Negative answers: told only of a head that was shown current after the
//! question arrived, and never of one that is not published.

use super::op::{Op, add, key, range, version};
use super::rig::{Fate, Kind, Rig, settings};
use crate::decide::{ConflictKind, Place};
use crate::operation::Precondition;
use crate::publish::{Answer, Settings, SubmitError, Trouble};

fn is_rejected(answer: &Answer) -> bool {
    matches!(answer, Answer::Rejected { .. })
}

#[test]
fn stale_rejection() {
    let mut rig = Rig::new();
    let writer = rig.writer();
    rig.submit(writer, &add("first", 1));
    rig.run(writer);
    // The precondition holds only after what another writer has acknowledged.
    rig.commit_elsewhere(&Op::new("a").put("k", "v"));

    let ticket = rig.submit(writer, &Op::new("b").if_present("k").put("k", "w"));
    rig.run(writer);

    rig.receipt(ticket);
    assert_eq!(rig.ids(), ["first", "a", "b"]);
}

#[test]
fn a_publication_proves_nothing_for_questions_that_came_before_its_answer() {
    let mut rig = Rig::new();
    let writer = rig.writer();
    rig.submit(writer, &add("first", 1));
    rig.run_but(writer, &[Kind::Publish]);
    // Carried out; another writer is next; and the answer comes last.
    rig.publish(writer, Fate::AnswerSlow);
    rig.commit_elsewhere(&Op::new("a").put("k", "v"));
    let ticket = rig.submit(writer, &Op::new("b").if_present("k").put("k", "w"));
    rig.run(writer);

    rig.receipt(ticket);
    assert_eq!(rig.ids(), ["first", "a", "b"]);
}

#[test]
fn predicted_rejection() {
    let mut rig = Rig::new();
    let writer = rig.writer();
    let a = rig.submit(writer, &Op::new("a").if_absent("other").put("k", "a").large());
    rig.run_but(writer, &[Kind::Publish]);
    // Decided on top of `a`, which is not published yet: rejected.
    let b = rig.submit(writer, &Op::new("b").if_absent("k").put("k", "b").large());
    rig.run_but(writer, &[Kind::Publish]);
    assert!(!rig.is_answered(b));

    // `a` loses, and is rejected itself; `b` is decided again.
    rig.commit_elsewhere(&Op::new("c").put("other", "c"));
    rig.run(writer);

    assert!(is_rejected(rig.answer(a)));
    rig.receipt(b);
    assert_eq!(rig.ids(), ["c", "b"]);
}

#[test]
fn a_rejection_by_a_neighbour_in_the_batch_comes_with_the_neighbours_publication() {
    let mut rig = Rig::new();
    let writer = rig.writer();
    let ops = [Op::new("a").put("k", "a"), Op::new("b").if_absent("k").put("k", "b")];
    let tickets = rig.submit_all(writer, &ops);
    rig.run_but(writer, &[Kind::Publish]);
    assert!(!rig.is_answered(tickets[1]));

    rig.publish(writer, Fate::Answered);

    let Answer::Rejected { at, conflicts } = rig.answer(tickets[1]) else { panic!() };
    assert_eq!(*at, version(1));
    assert_eq!(conflicts[0].kind, ConflictKind::KeyPresent);
    assert_eq!(conflicts[0].place, Place::Precondition(0));
    assert_eq!(conflicts[0].key, *key("k").as_bytes());
    assert_eq!(conflicts[0].version_seen, version(1));
}

#[test]
fn a_rejection_waits_for_a_check_that_began_after_it_arrived() {
    let mut rig = Rig::new();
    let writer = rig.writer();
    rig.submit(writer, &Op::new("a").put("k", "a"));
    rig.run(writer);

    let first = rig.submit(writer, &Op::new("b").if_absent("k").put("k", "b"));
    rig.run_but(writer, &[Kind::Read]);
    assert!(!rig.is_answered(first), "the head at hand may be old");
    assert!(rig.has(writer, Kind::Read));
    // Arrives while the check is under way, which therefore proves nothing
    // for it.
    let second = rig.submit(writer, &Op::new("c").if_absent("k").put("k", "c"));
    let work = rig.take(writer, Kind::Read);
    rig.carry_out(writer, work);
    rig.run_but(writer, &[Kind::Read]);
    assert!(is_rejected(rig.answer(first)));
    assert!(!rig.is_answered(second));

    rig.run(writer);
    assert!(is_rejected(rig.answer(second)));
}

#[test]
fn a_check_that_fails_is_repeated() {
    let mut rig = Rig::new();
    let writer = rig.writer();
    rig.submit(writer, &Op::new("a").put("k", "a"));
    rig.run(writer);
    let ticket = rig.submit(writer, &Op::new("b").if_absent("k").put("k", "b"));
    rig.run_but(writer, &[Kind::Read]);
    rig.fail(writer, Kind::Read, Trouble::Unavailable);
    assert!(!rig.is_answered(ticket));

    rig.run(writer);
    assert!(is_rejected(rig.answer(ticket)));
}

#[test]
fn old_rejections_are_told_even_while_others_keep_moving_the_head() {
    let mut rig = Rig::new();
    let writer = rig.writer();
    rig.submit(writer, &Op::new("a").put("k", "a"));
    rig.run(writer);
    let ticket = rig.submit(writer, &Op::new("b").if_absent("k").put("k", "b"));
    for round in 0..5 {
        // In each round somebody asks, and somebody else commits, before the
        // check that is under way returns.
        rig.run_but(writer, &[Kind::Read]);
        let next = Op::new(std::format!("c{round}")).if_absent("k").put("k", "c");
        rig.submit(writer, &next);
        rig.commit_elsewhere(&add(std::format!("d{round}"), 1));
        if rig.has(writer, Kind::Read) {
            let work = rig.take(writer, Kind::Read);
            rig.carry_out(writer, work);
        }
    }
    rig.run_but(writer, &[Kind::Read]);
    assert!(is_rejected(rig.answer(ticket)));
}

#[test]
fn a_conflict_never_fails_its_neighbours() {
    let mut rig = Rig::new();
    let writer = rig.writer();
    let ops = [
        Op::new("a").if_absent("k").put("k", "a"),
        Op::new("bad").if_present("missing").put("k", "bad").add("n", 1000),
        Op::new("overflow").add("n", 1).add("n", i64::MAX),
        Op::new("b").if_present("k").put("k", "b").add("n", 1),
    ];
    let tickets = rig.submit_all(writer, &ops);
    rig.run(writer);

    rig.receipt(tickets[0]);
    assert!(is_rejected(rig.answer(tickets[1])));
    assert!(is_rejected(rig.answer(tickets[2])));
    assert_eq!(rig.receipt(tickets[3]).results[0].sum, 1);
    assert_eq!(rig.receipt(tickets[3]).position, 1);
    assert_eq!(rig.ids(), ["a", "b"]);
}

#[test]
fn an_operation_whose_preconditions_still_hold_is_rebased_without_its_caller_knowing() {
    let mut rig = Rig::new();
    let writer = rig.writer();
    let ticket = rig.submit(writer, &Op::new("a").if_absent("k").put("k", "a").add("n", 1));
    rig.run_but(writer, &[Kind::Publish]);
    rig.commit_elsewhere(&add("b", 10));
    rig.run(writer);

    assert_eq!(rig.receipt(ticket).results[0].sum, 11);
    assert_eq!(rig.receipt(ticket).accepted_at, version(2));
}

#[test]
fn a_range_that_changed_rejects_and_one_that_did_not_does_not() {
    let mut rig = Rig::new();
    let writer = rig.writer();
    rig.submit(writer, &Op::new("a").put("k1", "a"));
    rig.run(writer);
    let unchanged =
        |from, to, since| Precondition::RangeUnchangedSince(range(from, to), version(since));
    let ops = [
        Op::new("b").when(unchanged("k", "l", 0)).put("x", "b"),
        Op::new("c").when(unchanged("k", "l", 1)).put("x", "c"),
        Op::new("d").when(unchanged("k2", "l", 0)).put("x", "d"),
    ];
    let tickets = rig.submit_all(writer, &ops);
    rig.run(writer);
    let Answer::Rejected { conflicts, .. } = rig.answer(tickets[0]) else { panic!() };
    assert_eq!((conflicts[0].kind, conflicts[0].version_seen), (ConflictKind::Changed, version(1)));
    rig.receipt(tickets[1]);
    rig.receipt(tickets[2]);
}

#[test]
fn an_issue_version_ahead_of_the_history_is_refused_only_if_it_really_is() {
    let mut rig = Rig::new();
    let writer = rig.writer();
    rig.submit(writer, &add("first", 1));
    rig.run(writer);
    rig.commit_elsewhere(&add("b", 1));

    // Version 2 exists, though this writer has not seen it yet.
    let seen = rig.submit(writer, &add("c", 1).issued_from(2));
    rig.run(writer);
    rig.receipt(seen);

    let ahead = rig.submit(writer, &add("d", 1).issued_from(9));
    let far = rig.submit(writer, &add("e", 1).issued_from(u64::MAX));
    rig.run(writer);
    assert_eq!(*rig.error(ahead), SubmitError::IssuedAhead { state_version: version(3) });
    assert!(matches!(rig.error(far), SubmitError::IssuedAhead { .. }));
    assert_eq!(rig.ids(), ["first", "b", "c"]);
}

#[test]
fn a_new_operation_stays_decidable_behind_a_full_pipeline_and_the_smallest_window() {
    let narrow = crate::receipt::Window { versions_max: 1, bytes_max: 0 };
    let mut rig = Rig::new();
    let writer = rig.writer_with(Settings { window: narrow, ..settings() });
    rig.submit(writer, &add("first", 1));
    rig.run(writer);
    // Each is a batch of its own, issued from the newest version that anybody
    // can have seen.
    let tickets: std::vec::Vec<_> = (0..4)
        .map(|it| {
            let ticket = rig.submit(writer, &add(std::format!("a{it}"), 1).large().issued_from(1));
            rig.run_but(writer, &[Kind::Publish]);
            ticket
        })
        .collect();
    rig.run(writer);
    for ticket in tickets {
        assert!(matches!(rig.answer(ticket), Answer::Accepted { .. } | Answer::Unknown { .. }));
    }
}
