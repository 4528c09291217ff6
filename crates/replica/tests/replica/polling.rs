//! What an open history costs when nobody asks.

use std::time::Duration;

use headwater_replica::{Consistency, ReplicaConfig, start};
use headwater_store::{Call, Entropy};

use crate::bucket::{Rig, deadline, quiet};

fn polling() -> ReplicaConfig {
    ReplicaConfig { poll_ms: 1_000, idle_ms: 100_000_000, ..quiet() }
}

/// An hour of so many followers, in which nothing happens.
async fn idle_hour(followers: u64) {
    let rig = Rig::open(polling()).await;
    let reader = |it: &headwater_replica::Replica| it.reader(rig.writer.head.history.clone());
    let mut replicas = Vec::new();
    for seed in 1..followers {
        let replica = start(rig.faults.store(), polling(), Entropy::from_seed(seed)).unwrap();
        reader(&replica).pin(Consistency::Any, deadline()).await.unwrap();
        replicas.push(replica);
    }
    let bucket = rig.faults.behind();
    let before = bucket.list("", None, 1_000).await.unwrap();
    let head = bucket.get("h/head.json").await.unwrap();
    // The log keeps the last 100,000 calls.
    let mut asked = 0;
    for _ in 0..60 {
        rig.faults.clear_log();
        tokio::time::sleep(Duration::from_secs(60)).await;
        let log = rig.faults.log();
        assert!(log.iter().all(|(call, _)| *call == Call::ReadHead), "conditional reads only");
        asked += log.len() as u64;
    }

    // One a second of each of them; one of the last minute may be on its way.
    let polls = followers * 3_600;
    assert!((polls - followers..=polls + followers).contains(&asked), "{asked} for {polls}");
    assert_eq!(bucket.get("h/head.json").await.unwrap(), head, "revision and all");
    assert_eq!(bucket.list("", None, 1_000).await.unwrap(), before, "nothing is written");
}

#[tokio::test(start_paused = true)]
async fn ten_followers_of_an_idle_history_ask_for_its_head_and_nothing_else() {
    idle_hour(10).await;
}

#[tokio::test(start_paused = true)]
async fn idle_heartbeats() {
    idle_hour(50).await;
}

#[tokio::test(start_paused = true)]
async fn polling_brings_what_was_committed() {
    let mut rig = Rig::open(polling()).await;
    rig.writer.put("k", "v").await;

    tokio::time::sleep(Duration::from_millis(1_001)).await;

    assert_eq!(rig.read("k", Consistency::Any).await.unwrap().1, 1);
}

#[tokio::test(start_paused = true)]
async fn a_read_takes_the_place_of_a_poll() {
    let rig = Rig::open(polling()).await;
    for _ in 0..10 {
        tokio::time::sleep(Duration::from_millis(900)).await;
        rig.read("k", Consistency::Strong).await.unwrap();
    }
    assert_eq!(rig.count(Call::ReadHead), 10);
}

#[tokio::test(start_paused = true)]
async fn without_polling_nothing_is_asked() {
    let rig = Rig::open(quiet()).await;
    tokio::time::sleep(Duration::from_secs(300)).await;
    assert!(rig.faults.log().is_empty());
}

#[tokio::test(start_paused = true)]
async fn polling_survives_an_outage() {
    let mut rig = Rig::open(polling()).await;
    rig.faults.set_outage(true);
    tokio::time::sleep(Duration::from_secs(60)).await;
    // Once a second, not more: nobody waits.
    assert!((55..=65).contains(&rig.count(Call::ReadHead)), "{}", rig.count(Call::ReadHead));
    rig.faults.set_outage(false);
    rig.writer.put("k", "v").await;
    tokio::time::sleep(Duration::from_secs(2)).await;

    assert_eq!(rig.read("k", Consistency::Any).await.unwrap().1, 1);
}
