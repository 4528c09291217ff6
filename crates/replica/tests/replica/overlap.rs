//! Checks that overtake each other.

use std::time::Duration;

use headwater_replica::{Consistency, ReadFailure};
use headwater_store::Call;

use crate::bucket::{Rig, arrived, deadline, quiet, version};

#[tokio::test(start_paused = true)]
async fn answers_that_pass_each_other_do_not_take_the_view_back() {
    let mut rig = Rig::open(quiet()).await;
    rig.writer.put("k", "one").await;
    // The first check reads version 1 and is held up; the second one reads
    // version 2 and is answered.
    let gate = rig.hold_answers(1);
    let reader = rig.reader();
    let slow = tokio::spawn(async move { reader.pin(Consistency::Strong, deadline()).await });
    arrived(&gate, 1).await;
    rig.writer.put("k", "two").await;
    assert_eq!(rig.read("k", Consistency::Strong).await.unwrap().1, 2);
    // The second one has answered the first read as well.
    let slow = slow.await.unwrap().unwrap();
    assert_eq!(slow.version(), version(2));

    gate.open();
    tokio::time::sleep(Duration::from_millis(1)).await;

    assert_eq!(rig.read("k", Consistency::Any).await.unwrap(), (Some("two".into()), 2));
    assert_eq!(rig.read("k", Consistency::Strong).await.unwrap().1, 2);
}

#[tokio::test(start_paused = true)]
async fn a_check_that_read_an_older_head_than_an_earlier_one_accuses_nobody() {
    let mut rig = Rig::open(quiet()).await;
    rig.writer.put("k", "one").await;
    let read = |reader: headwater_replica::Reader| {
        tokio::spawn(async move { reader.pin(Consistency::Strong, deadline()).await })
    };
    // The first check has begun and not read yet; the second one reads version
    // 1, and its answer is held up until the first has brought version 2.
    let gates = [rig.hold_checks(1), rig.hold_answers(1)];
    let first = read(rig.reader());
    arrived(&gates[0], 1).await;
    let second = read(rig.reader());
    arrived(&gates[1], 1).await;
    rig.writer.put("k", "two").await;
    gates[0].open();
    assert_eq!(first.await.unwrap().unwrap().version(), version(2));
    gates[1].open();

    assert_eq!(second.await.unwrap().unwrap().version(), version(2));
    assert_eq!(rig.count(Call::ReadHead), 2);
}

#[tokio::test(start_paused = true)]
async fn a_read_that_waits_for_a_later_check_is_not_served_by_an_earlier_one() {
    let mut rig = Rig::open(quiet()).await;
    let gates = [rig.hold_answers(1), rig.hold_checks(1)];
    let read = |reader: headwater_replica::Reader| {
        tokio::spawn(async move { reader.pin(Consistency::Strong, deadline()).await })
    };
    let first = read(rig.reader());
    arrived(&gates[0], 1).await;
    let second = read(rig.reader());
    arrived(&gates[1], 1).await;
    rig.writer.put("k", "new").await;

    // The first check ends: it proves nothing about after the second began.
    gates[0].open();
    assert_eq!(first.await.unwrap().unwrap().version(), version(0));
    tokio::time::sleep(Duration::from_millis(1)).await;
    assert!(!second.is_finished());
    gates[1].open();

    assert_eq!(second.await.unwrap().unwrap().version(), version(1));
}

#[tokio::test(start_paused = true)]
async fn a_head_that_went_back_is_refused_once_no_check_can_have_passed_another() {
    let mut rig = Rig::open(quiet()).await;
    rig.writer.put("k", "one").await;
    let before = headwater_core::format::head::encode(&rig.writer.head);
    rig.writer.put("k", "two").await;
    rig.read("k", Consistency::Strong).await.unwrap();
    rig.writer.overwrite(before).await;

    let answer = rig.read("k", Consistency::Strong).await;

    let Err(ReadFailure::StoredDataBad { key, .. }) = answer else { panic!("{answer:?}") };
    assert_eq!(key, "h/head.json");
    // What is at hand was right when it was read, and says how old it is.
    assert_eq!(rig.read("k", Consistency::Any).await.unwrap(), (Some("two".into()), 2));
}

#[tokio::test(start_paused = true)]
async fn checks_in_flight_are_bounded() {
    let rig = Rig::open(quiet()).await;
    let gate = rig.hold_checks(100);
    let mut reads = Vec::new();
    for _ in 0..20 {
        let reader = rig.reader();
        reads.push(tokio::spawn(async move { reader.pin(Consistency::Strong, deadline()).await }));
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(rig.count(Call::ReadHead), 3);
    gate.open();
    for read in reads {
        read.await.unwrap().unwrap();
    }
}
