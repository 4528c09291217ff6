//! A caller that does not read.

use std::time::Duration;

use futures::StreamExt as _;
use headwater_replica::{ReplicaConfig, WatchEvent, WatchFailure};
use tokio::time::{Instant, sleep};

use super::{after, begin, end, versions};
use crate::bucket::{Rig, quiet};
use headwater_replica::Watch;

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

const BUDGET_BYTES: u64 = 256 << 10;

/// So many watches of a history of 100 versions of 8 KiB, whose callers do not
/// read.
async fn many_that_do_not_read(count: usize) -> (Rig, Vec<Watch>) {
    let config = ReplicaConfig { watch_bytes: BUDGET_BYTES, ..quiet() };
    let mut rig = Rig::new(config).await;
    for _ in 0..10 {
        rig.writer.put_versions(10, 8 << 10).await;
        rig.writer.fold().await;
    }
    let mut slow = Vec::new();
    for _ in 0..count {
        slow.push(begin(&rig, after(0)).await);
    }
    (rig, slow)
}

fn bytes_of_process(rig: &Rig) -> u64 {
    rig.replica.watch_figures(&rig.writer.head.history).unwrap().bytes_of_process
}

#[tokio::test(start_paused = true)]
async fn what_all_watches_hold_is_bounded_and_the_slowest_go_for_those_that_read() {
    let (mut rig, mut slow) = many_that_do_not_read(30).await;
    let mut reader = begin(&rig, after(0)).await;

    for expected in 1..=100 {
        assert_eq!(versions(&mut reader, 1).await, [expected]);
        assert!(bytes_of_process(&rig) <= BUDGET_BYTES, "{}", bytes_of_process(&rig));
    }
    rig.writer.put("k", "later").await;
    rig.tell();
    assert_eq!(versions(&mut reader, 1).await, [101]);

    // Those that were ended say where to go on, and nothing is lost on the way.
    let mut n_ended = 0;
    for watch in &mut slow {
        let mut taken = 0;
        let ended = loop {
            match tokio::time::timeout(Duration::from_millis(1), watch.next()).await {
                Ok(Some(Ok(told))) => taken = told.resume_after.get(),
                Ok(Some(Err(ended))) => break Some(ended),
                Ok(None) | Err(_) => break None,
            }
            assert!(bytes_of_process(&rig) <= BUDGET_BYTES);
        };
        let Some(ended) = ended else { continue };
        n_ended += 1;
        assert!(matches!(ended.why, WatchFailure::Slow { .. }), "{ended:?}");
        assert_eq!(ended.resume_after.get(), taken);
        let mut again = begin(&rig, after(taken)).await;
        assert_eq!(versions(&mut again, 1).await, [taken + 1]);
    }
    assert!(0 < n_ended, "somebody had to go");
    drop((reader, slow));
    sleep(Duration::from_secs(1)).await;
    assert_eq!(bytes_of_process(&rig), 0, "and all of it is given back");
}

#[tokio::test(start_paused = true)]
async fn where_everybody_reads_nobody_is_ended_however_little_there_is() {
    let (_rig, mut watches) = many_that_do_not_read(30).await;
    let all = watches.iter_mut().map(|watch| async move { versions(watch, 100).await });
    for told in futures::future::join_all(all).await {
        assert_eq!(told, (1..=100).collect::<Vec<_>>());
    }
}

/// What is kept for everybody is no reason to end anybody.
#[tokio::test(start_paused = true)]
async fn live_changes_beyond_the_budget_end_no_watch_that_reads() {
    let config = ReplicaConfig { watch_bytes: BUDGET_BYTES, ..quiet() };
    let mut rig = Rig::new(config).await;
    let mut watches = [begin(&rig, after(0)).await, begin(&rig, after(0)).await];
    for expected in 1..=100 {
        rig.writer.put_versions(1, 8 << 10).await;
        if expected % 10 == 0 {
            rig.writer.fold().await;
        }
        rig.tell();
        for watch in &mut watches {
            assert_eq!(versions(watch, 1).await, [expected]);
        }
        let figures = rig.replica.watch_figures(&rig.writer.head.history).unwrap();
        assert!(figures.bytes_shared <= BUDGET_BYTES / 2, "{figures:?}");
        assert!(figures.bytes_of_process <= BUDGET_BYTES, "{figures:?}");
    }
    let figures = rig.replica.watch_figures(&rig.writer.head.history).unwrap();
    assert!(BUDGET_BYTES / 4 < figures.bytes_shared, "what fits is kept: {figures:?}");
}

#[tokio::test(start_paused = true)]
async fn a_message_larger_than_the_budget_is_told_all_the_same() {
    let config = ReplicaConfig { watch_bytes: 1_000, ..quiet() };
    let mut rig = Rig::new(config).await;
    rig.writer.put_versions(3, 8 << 10).await;
    let mut watch = begin(&rig, after(0)).await;
    assert_eq!(versions(&mut watch, 3).await, [1, 2, 3]);
}
