//! Reads that wait share checks; those that go away leave nothing behind.

use std::time::Duration;

use headwater_replica::{Consistency, ReplicaConfig};
use headwater_store::{Call, Fault};

use crate::bucket::{Rig, arrived, deadline, quiet};

#[tokio::test(start_paused = true)]
async fn a_thousand_reads_that_wait_cost_one_check() {
    let rig = Rig::open(ReplicaConfig { checks_in_flight_max: 1, ..quiet() }).await;
    let gate = rig.hold_answers(1);
    let first = rig.reader();
    let first = tokio::spawn(async move { first.pin(Consistency::Strong, deadline()).await });
    arrived(&gate, 1).await;
    let reads: Vec<_> = (0..1_000)
        .map(|_| {
            let reader = rig.reader();
            tokio::spawn(async move { reader.pin(Consistency::Strong, deadline()).await })
        })
        .collect();
    tokio::time::sleep(Duration::from_millis(1)).await;
    gate.open();

    first.await.unwrap().unwrap();
    for read in reads {
        read.await.unwrap().unwrap();
    }
    assert_eq!(rig.count(Call::ReadHead), 2);
}

#[tokio::test(start_paused = true)]
async fn busy_readers_cost_a_few_checks_a_round_trip_and_wait_little_more_than_one() {
    let rig = Rig::open(ReplicaConfig { checks_in_flight_max: 3, ..quiet() }).await;
    rig.faults.while_set(Call::ReadHead, Fault::Delay(Duration::from_millis(30)));
    rig.read("k", Consistency::Strong).await.unwrap();
    rig.faults.clear_log();
    let began = tokio::time::Instant::now();
    let readers: Vec<_> = (0..64)
        .map(|i| {
            let reader = rig.reader();
            tokio::spawn(async move {
                tokio::time::sleep(Duration::from_millis(i % 30)).await;
                let mut longest = Duration::ZERO;
                for _ in 0..100 {
                    let asked = tokio::time::Instant::now();
                    reader.pin(Consistency::Strong, deadline()).await.unwrap();
                    longest = longest.max(asked.elapsed());
                }
                longest
            })
        })
        .collect();
    let mut longest = Duration::ZERO;
    for reader in readers {
        longest = longest.max(reader.await.unwrap());
    }
    let round_trips = began.elapsed().as_millis() / 30;

    assert!(longest <= Duration::from_millis(45), "{longest:?}");
    let checks = rig.count(Call::ReadHead) as u128;
    assert!(checks <= 3 * round_trips + 3, "{checks} checks in {round_trips} round trips");
}

#[tokio::test(start_paused = true)]
async fn a_read_that_goes_away_does_not_take_the_check_with_it() {
    let rig = Rig::open(ReplicaConfig { checks_in_flight_max: 1, ..quiet() }).await;
    let gate = rig.hold_answers(1);
    let (gone, stays) = (rig.reader(), rig.reader());
    let gone = tokio::spawn(async move { gone.pin(Consistency::Strong, deadline()).await });
    let stays = tokio::spawn(async move { stays.pin(Consistency::Strong, deadline()).await });
    arrived(&gate, 1).await;
    gone.abort();
    assert!(gone.await.unwrap_err().is_cancelled());
    gate.open();

    stays.await.unwrap().unwrap();
    assert!(rig.count(Call::ReadHead) <= 2);
}

#[tokio::test(start_paused = true)]
async fn nobody_asks_a_store_that_is_down_for_those_who_went_away() {
    let rig = Rig::open(quiet()).await;
    rig.faults.set_outage(true);
    let soon = tokio::time::Instant::now() + Duration::from_secs(2);
    rig.reader().pin(Consistency::Strong, soon).await.unwrap_err();
    rig.faults.clear_log();

    tokio::time::sleep(Duration::from_secs(60)).await;

    assert_eq!(rig.count(Call::ReadHead), 0);
}

#[tokio::test(start_paused = true)]
async fn opening_is_shared_too() {
    let rig = Rig::new(quiet()).await;
    let reads: Vec<_> = (0..100)
        .map(|_| {
            let reader = rig.reader();
            tokio::spawn(async move { reader.pin(Consistency::Any, deadline()).await })
        })
        .collect();
    for read in reads {
        read.await.unwrap().unwrap();
    }
    assert_eq!(rig.count(Call::ReadHead), 1);
    assert_eq!(rig.count(Call::Get), 1, "the snapshot's index");
}
