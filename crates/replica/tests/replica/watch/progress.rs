//! What is told when there is nothing to tell.

use std::time::Duration;

use futures::StreamExt as _;
use headwater_replica::{KeyFilter, ReplicaConfig, WatchEvent, WatchMessage, WatchOptions};
use headwater_store::Call;
use tokio::time::{Instant, timeout};

use super::{after, begin, next, range};
use crate::bucket::{Rig, quiet, version};

fn progress(told: &WatchMessage) -> (u64, u64, Duration) {
    let WatchEvent::Progress { newest, proof_age } = &told.event else { panic!("{told:?}") };
    (told.resume_after.get(), newest.get(), *proof_age)
}

#[tokio::test(start_paused = true)]
async fn the_first_message_says_where_a_watch_from_now_begins() {
    let mut rig = Rig::new(quiet()).await;
    rig.writer.put_versions(7, 1).await;

    let mut watch = begin(&rig, after(None)).await;

    let (position, newest, _) = progress(&next(&mut watch).await.unwrap());
    assert_eq!((position, newest), (7, 7));
}

#[tokio::test(start_paused = true)]
async fn progress_comes_at_its_interval_while_nothing_happens_and_says_how_fresh_it_is() {
    let rig = Rig::new(ReplicaConfig { poll_ms: 1_000, ..quiet() }).await;
    let mut watch = begin(&rig, after(0)).await;
    let began = Instant::now();
    for tick in 0..5 {
        let told = next(&mut watch).await.unwrap();
        let (position, newest, age) = progress(&told);
        assert_eq!((position, newest), (0, 0));
        assert!(age <= Duration::from_secs(1), "{age:?}");
        assert_eq!(began.elapsed().as_secs(), tick * 10);
    }
}

#[tokio::test(start_paused = true)]
async fn versions_without_a_matching_key_are_not_told_but_progress_is() {
    let mut rig = Rig::new(ReplicaConfig { poll_ms: 100, ..quiet() }).await;
    let filter = KeyFilter::of(vec![range("a", "b")]).unwrap();
    let mut watch = begin(&rig, WatchOptions { filter, ..after(0) }).await;
    next(&mut watch).await.unwrap();
    let mut positions = Vec::new();
    for _ in 0..35 {
        rig.writer.put("k", "v").await;
        if let Ok(told) = timeout(Duration::from_secs(1), watch.next()).await {
            positions.push(progress(&told.unwrap().unwrap()).0);
        }
    }
    assert_eq!(positions.len(), 3, "{positions:?}");
    assert!(positions.is_sorted() && 8 < positions[0], "{positions:?}");
}

#[tokio::test(start_paused = true)]
async fn the_age_of_progress_grows_while_the_store_is_away_and_the_watch_goes_on() {
    let mut rig = Rig::new(ReplicaConfig { poll_ms: 1_000, ..quiet() }).await;
    let mut watch = begin(&rig, after(0)).await;
    next(&mut watch).await.unwrap();
    rig.faults.set_outage(true);
    let mut ages = Vec::new();
    for _ in 0..3 {
        ages.push(progress(&next(&mut watch).await.unwrap()).2.as_secs());
    }
    assert!(8 < ages[0] && ages[0] + 9 < ages[1] && ages[1] + 9 < ages[2], "{ages:?}");

    rig.faults.set_outage(false);
    rig.writer.put("k", "v").await;
    let told = super::news(&mut watch).await.unwrap();
    assert_eq!(told.resume_after, version(1));
}

#[tokio::test(start_paused = true)]
async fn without_polling_and_notices_a_watch_asks_by_itself_once_an_interval() {
    let mut rig = Rig::open(quiet()).await;
    let mut watch = begin(&rig, after(0)).await;
    next(&mut watch).await.unwrap();
    rig.faults.clear_log();
    rig.writer.put("k", "v").await;

    let told = super::news(&mut watch).await.unwrap();

    assert_eq!(told.resume_after, version(1));
    assert_eq!(rig.count(Call::ReadHead), 1);
}
