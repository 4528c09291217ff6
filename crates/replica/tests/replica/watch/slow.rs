//! A caller that does not read.

use std::time::Duration;

use futures::StreamExt as _;
use headwater_replica::{ReplicaConfig, WatchEvent, WatchFailure};
use tokio::time::{Instant, sleep};

use super::{after, begin, end, versions};
use crate::bucket::{Rig, quiet};

/// Messages that may wait for a caller.
const WAITING_MAX: usize = 4;

#[tokio::test(start_paused = true)]
async fn a_caller_that_does_not_read_is_held_back_and_then_told_where_to_go_on() {
    let mut rig = Rig::new(ReplicaConfig { watch_stall_ms: 30_000, ..quiet() }).await;
    let mut watch = begin(&rig, after(0)).await;
    rig.writer.put_versions(100, 1).await;
    rig.tell();
    assert_eq!(versions(&mut watch, 10).await.len(), 10);

    // Slow is not stalled: what is taken within the time keeps the watch.
    for expected in 11..=15 {
        sleep(Duration::from_secs(29)).await;
        assert_eq!(versions(&mut watch, 1).await, [expected]);
    }
    sleep(Duration::from_secs(31)).await;
    let figures = rig.replica.watch_figures(&rig.writer.head.history).unwrap();
    assert_eq!((figures.watchers, figures.bytes_shared), (0, 0), "it holds nothing any more");

    let mut taken = Vec::new();
    let (failure, resume_after) = loop {
        match watch.next().await.unwrap() {
            Ok(told) => taken.push(told.resume_after.get()),
            Err(ended) => break (ended.why, ended.resume_after.get()),
        }
    };
    assert!(
        matches!(failure, WatchFailure::Slow { stalled } if stalled == Duration::from_secs(30)),
        "{failure:?}"
    );
    assert_eq!(taken.len(), WAITING_MAX);
    assert_eq!(taken.last(), Some(&resume_after));
    let mut again = begin(&rig, after(resume_after)).await;
    let rest = versions(&mut again, 100 - usize::try_from(resume_after).unwrap()).await;
    assert_eq!(rest, (resume_after + 1..=100).collect::<Vec<_>>());
}

#[tokio::test(start_paused = true)]
async fn nothing_to_send_is_not_slow() {
    let rig = Rig::new(ReplicaConfig { watch_stall_ms: 1_000, poll_ms: 1_000, ..quiet() }).await;
    let options =
        headwater_replica::WatchOptions { progress: Duration::from_secs(600), ..after(0) };
    let mut watch = begin(&rig, options).await;
    let began = Instant::now();
    sleep(Duration::from_secs(1_500)).await;

    for _ in 0..3 {
        let told = watch.next().await.unwrap().unwrap();
        assert!(matches!(told.event, WatchEvent::Progress { .. }));
    }
    assert!(Duration::from_secs(1_500) <= began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn an_end_is_told_even_when_everything_before_it_waits() {
    let mut rig = Rig::new(quiet()).await;
    rig.writer.put_versions(50, 1).await;
    let mut watch = begin(&rig, after(0)).await;
    sleep(Duration::from_secs(1)).await;
    rig.replica.shutdown().await;

    // The first message is progress.
    assert_eq!(versions(&mut watch, WAITING_MAX - 1).await, [1, 2, 3]);
    assert_eq!(end(&mut watch).await.1, 3);
}
