//! What each consistency promises.

use std::time::Duration;

use headwater_replica::{Consistency, ReadFailure};
use headwater_store::Call;
use tokio::time::{Instant, advance};

use crate::bucket::{Rig, arrived, deadline, quiet, version};

#[tokio::test]
async fn a_strong_read_sees_what_was_committed_before_it_began() {
    let mut rig = Rig::open(quiet()).await;
    for i in 0..50 {
        let value = i.to_string();
        rig.writer.put("k", &value).await;
        let read = rig.read("k", Consistency::Strong).await.unwrap();
        assert_eq!(read, (Some(value), i + 1));
    }
}

#[tokio::test(start_paused = true)]
async fn a_strong_read_does_not_share_a_check_that_is_under_way() {
    let mut rig = Rig::open(quiet()).await;
    // The first read's check has read the head, and its answer is on its way.
    let gate = rig.hold_answers(1);
    let reader = rig.reader();
    let early = tokio::spawn(async move { reader.pin(Consistency::Strong, deadline()).await });
    arrived(&gate, 1).await;
    rig.writer.put("k", "new").await;

    let reader = rig.reader();
    let late = tokio::spawn(async move { reader.pin(Consistency::Strong, deadline()).await });
    tokio::time::sleep(Duration::from_millis(1)).await;
    gate.open();

    let early = early.await.unwrap().unwrap();
    let late = late.await.unwrap().unwrap();
    assert!(early.version() <= late.version());
    assert_eq!(late.version(), version(1));
}

#[tokio::test]
async fn racing_strong_reads_never_miss_an_acknowledged_commit() {
    let mut rig = Rig::open(quiet()).await;
    let (acknowledged, seen) = tokio::sync::watch::channel(0);
    let readers: Vec<_> = (0..32)
        .map(|_| {
            let (reader, seen) = (rig.reader(), seen.clone());
            tokio::spawn(async move {
                let mut last = 0;
                while last < 200 {
                    let floor = *seen.borrow();
                    let pinned = reader.pin(Consistency::Strong, deadline()).await.unwrap();
                    let found = pinned.version().get();
                    assert!(floor <= found, "acknowledged {floor}, read {found}");
                    assert!(last <= found, "went back from {last} to {found}");
                    last = found;
                }
            })
        })
        .collect();
    for i in 1..=200 {
        rig.writer.put("k", &i.to_string()).await;
        acknowledged.send(i).unwrap();
        tokio::task::yield_now().await;
    }
    for reader in readers {
        reader.await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn any_answers_from_what_is_at_hand_and_asks_nobody() {
    let mut rig = Rig::open(quiet()).await;
    rig.writer.put("k", "new").await;

    let read = rig.read("k", Consistency::Any).await.unwrap();

    assert_eq!(read, (None, 0));
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(rig.faults.log().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_bounded_read_asks_only_when_the_proof_is_too_old() {
    let mut rig = Rig::open(quiet()).await;
    rig.writer.put("k", "new").await;
    advance(Duration::from_secs(5)).await;

    let bound = |seconds| Consistency::MaxStaleness(Duration::from_secs(seconds));
    assert_eq!(rig.read("k", bound(5)).await.unwrap().1, 0);
    assert_eq!(rig.count(Call::ReadHead), 0);
    assert_eq!(rig.read("k", bound(4)).await.unwrap().1, 1);
    assert_eq!(rig.count(Call::ReadHead), 1);
    // The proof counts from when its check began.
    advance(Duration::from_secs(3)).await;
    assert_eq!(rig.read("k", bound(3)).await.unwrap().1, 1);
    assert_eq!(rig.count(Call::ReadHead), 1);
}

#[tokio::test(start_paused = true)]
async fn the_age_of_a_proof_counts_from_when_its_check_began() {
    let rig = Rig::open(quiet()).await;
    let gate = rig.hold_answers(1);
    let reader = rig.reader();
    let read = tokio::spawn(async move { reader.pin(Consistency::Strong, deadline()).await });
    arrived(&gate, 1).await;
    advance(Duration::from_secs(2)).await;
    gate.open();

    let pinned = read.await.unwrap().unwrap();

    assert_eq!(pinned.proof_age(), Duration::from_secs(2));
}

#[tokio::test(start_paused = true)]
async fn at_least_waits_until_the_version_is_there() {
    let mut rig = Rig::open(quiet()).await;
    let reader = rig.reader();
    let began = Instant::now();
    let waiting =
        tokio::spawn(async move { reader.pin(Consistency::AtLeast(version(2)), deadline()).await });
    tokio::time::sleep(Duration::from_secs(1)).await;
    rig.writer.put("k", "a").await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(!waiting.is_finished());
    rig.writer.put("k", "b").await;

    let pinned = waiting.await.unwrap().unwrap();

    assert_eq!(pinned.version(), version(2));
    assert!(began.elapsed() < Duration::from_secs(3), "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn at_least_a_version_at_hand_asks_nobody() {
    let mut rig = Rig::open(quiet()).await;
    rig.writer.put("k", "a").await;
    rig.read("k", Consistency::Strong).await.unwrap();
    rig.faults.clear_log();

    for number in [0, 1] {
        let consistency = Consistency::AtLeast(version(number));
        assert_eq!(rig.read("k", consistency).await.unwrap().1, 1);
    }
    // Time for the driver to do what it was asked, if it was.
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(rig.faults.log(), []);
}

#[tokio::test(start_paused = true)]
async fn at_least_a_version_that_never_comes_is_ahead_by_the_deadline() {
    let rig = Rig::open(quiet()).await;
    let until = Instant::now() + Duration::from_secs(3);

    let answer = rig.reader().pin(Consistency::AtLeast(version(9)), until).await;

    assert_eq!(Instant::now(), until);
    let Err(ReadFailure::VersionAhead { wanted, oldest, newest }) = answer else {
        panic!("{answer:?}")
    };
    assert_eq!((wanted, oldest, newest), (version(9), version(0), version(0)));
    // About five checks a second while it waits, not a busy loop.
    assert!((2..30).contains(&rig.count(Call::ReadHead)), "{}", rig.count(Call::ReadHead));
}

#[tokio::test(start_paused = true)]
async fn at_least_without_a_store_is_unverified_and_not_ahead() {
    let rig = Rig::open(quiet()).await;
    rig.faults.set_outage(true);
    let until = Instant::now() + Duration::from_secs(3);

    let answer = rig.reader().pin(Consistency::AtLeast(version(9)), until).await;

    assert!(matches!(answer, Err(ReadFailure::FreshnessUnverified { .. })), "{answer:?}");
    assert_eq!(Instant::now(), until);
}
