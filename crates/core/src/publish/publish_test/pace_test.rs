//! A head that may be replaced only now and then: what waits, what is done
//! meanwhile, and that one replacement takes all of it.

use std::string::ToString as _;
use std::vec::Vec;

use super::bucket::Bucket;
use super::op::{add, key, look_up, version};
use super::rig::{Fate, Kind, Rig};
use crate::operation::Precondition;
use crate::publish::{Answer, Control, Event, Pace};

/// A writer that has read its head and published once.
fn warm() -> (Rig, usize) {
    let mut rig = Rig::over(Bucket::new(1, true));
    let writer = rig.writer();
    let first = rig.submit(writer, &add("first", 1));
    rig.run(writer);
    rig.receipt(first);
    (rig, writer)
}

#[test]
fn what_arrives_while_the_head_rests_goes_in_one_replacement() {
    let (mut rig, writer) = warm();
    rig.on(writer, Event::Paced(Pace::Gather));
    let tickets: Vec<_> = (0..5).map(|it| rig.submit(writer, &add(it.to_string(), 1))).collect();
    rig.run(writer);
    assert!(tickets.iter().all(|it| !rig.is_answered(*it)));
    rig.on(writer, Event::Paced(Pace::Stage));
    rig.run(writer);
    assert!(rig.bucket.uploads.is_empty(), "small ones need no upload, and can still grow");

    rig.on(writer, Event::Paced(Pace::Publish));
    rig.run(writer);

    for ticket in tickets {
        assert_eq!(rig.receipt(ticket).accepted_at, version(2));
    }
}

#[test]
fn large_operations_are_staged_shortly_before_and_published_in_time() {
    let (mut rig, writer) = warm();
    rig.on(writer, Event::Paced(Pace::Gather));
    let early: Vec<_> =
        (0..3).map(|it| rig.submit(writer, &add(it.to_string(), 1).large())).collect();
    rig.run(writer);
    assert!(rig.bucket.uploads.is_empty(), "one upload for all of them, when it is time");

    rig.on(writer, Event::Paced(Pace::Stage));
    rig.run(writer);
    assert_eq!(rig.bucket.uploads.len(), 1);
    let late = rig.submit(writer, &add("late", 1));
    rig.run(writer);
    assert!(!rig.is_answered(early[0]) && !rig.is_answered(late));
    let revision = rig.bucket.head().revision;
    rig.on(writer, Event::Paced(Pace::Publish));
    rig.run(writer);

    assert_eq!(rig.bucket.head().revision, revision.next(), "the late one goes along");
    for ticket in early {
        assert_eq!(rig.receipt(ticket).accepted_at, version(2));
    }
    assert_eq!(rig.receipt(late).accepted_at, version(3));
}

#[test]
fn full_batches_do_not_wait_to_be_staged() {
    let (mut rig, writer) = warm();
    rig.on(writer, Event::Paced(Pace::Gather));
    let ops: Vec<_> = (0..8).map(|it| add(it.to_string(), 1).large()).collect();
    let tickets = rig.submit_all(writer, &ops);
    rig.run(writer);

    assert_eq!(rig.bucket.uploads.len(), 1);
    assert!(!rig.is_answered(tickets[0]), "but to be published they do");
}

#[test]
fn a_replacement_that_was_throttled_takes_along_what_came_meanwhile() {
    let (mut rig, writer) = warm();
    let first = rig.submit(writer, &add("a", 1));
    rig.run_but(writer, &[Kind::Publish]);
    let revision = rig.bucket.head().revision;
    rig.writers[writer].publisher.on(Event::Paced(Pace::Gather));
    rig.publish(writer, Fate::RequestLost);
    let second = rig.submit(writer, &add("b", 1));
    rig.run(writer);
    assert!(!rig.has(writer, Kind::Publish), "it waits, with the head already read");

    rig.on(writer, Event::Paced(Pace::Publish));
    rig.run(writer);

    assert_eq!(rig.bucket.head().revision, revision.next());
    assert_eq!(rig.receipt(first).accepted_at, version(2));
    assert_eq!(rig.receipt(second).accepted_at, version(3));
}

#[test]
fn controls_wait_too() {
    let (mut rig, writer) = warm();
    rig.on(writer, Event::Paced(Pace::Gather));
    let raise = rig.control(writer, Control::RaiseWriterEpoch { expected: None });
    rig.run(writer);
    assert!(!rig.is_answered(raise));

    rig.on(writer, Event::Paced(Pace::Publish));
    rig.run(writer);

    assert_eq!(*rig.answer(raise), Answer::WriterEpochRaised { writer_epoch: 1 });
}

#[test]
fn answers_that_need_no_replacement_come_before_it() {
    let (mut rig, writer) = warm();
    rig.on(writer, Event::Paced(Pace::Gather));
    let rejected = add("a", 1).large().when(Precondition::KeyAbsent(key("n")));
    let rejected = rig.submit(writer, &rejected);
    let looked_up = rig.ask(writer, look_up("first", 0));
    rig.on(writer, Event::Paced(Pace::Stage));
    rig.run(writer);

    assert!(matches!(rig.answer(rejected), Answer::Rejected { .. }));
    assert!(matches!(rig.answer(looked_up), Answer::Accepted { .. }));
}
