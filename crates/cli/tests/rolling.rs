//! Real processes that end by SIGTERM and start again, one after another, while
//! clients work: nobody sees a failed call, nothing is lost, nothing is applied
//! twice, and watches go on elsewhere without a gap.
//!
//! `HEADWATER_TEST_CALLS_PER_SECOND` sets the load; the default is what two
//! noisy cores carry in a debug build.
#![cfg(unix)]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot set up has failed")]

mod support;

use std::future::Future;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use headwater_client::{Client, Consistency, Outcome, Session, Watch, WatchEvent, WatchOptions};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval, sleep, timeout};
use tokio_util::sync::CancellationToken;

use crate::support::{PATIENCE, Served};

const HISTORY: &str = "shop/stock";
const KEY: &str = "stock";
/// More than the client keeps waiting on these servers; a leak shows.
const IN_FLIGHT_MAX: usize = 512;
const N_WATCHES: usize = 100;

fn calls_per_second(default: u64) -> u64 {
    let given = std::env::var("HEADWATER_TEST_CALLS_PER_SECOND");
    given.ok().and_then(|it| it.parse().ok()).unwrap_or(default)
}

/// Servers over one directory, each on its address for as long as the test.
struct Fleet {
    root: tempfile::TempDir,
    served: Vec<Option<Served>>,
    addresses: Vec<String>,
}

impl Fleet {
    fn start(n: usize) -> Self {
        let root = tempfile::tempdir().unwrap();
        let served: Vec<_> = (0..n).map(|_| Served::start(root.path())).collect();
        let addresses = served.iter().map(|it| it.address.clone()).collect();
        Self { root, served: served.into_iter().map(Some).collect(), addresses }
    }

    fn root(&self) -> PathBuf {
        self.root.path().to_owned()
    }

    /// Ends one by SIGTERM, which it has to do well, and starts it again.
    async fn restart(&mut self, n: usize) {
        let served = self.served[n].take().unwrap();
        let (root, address) = (self.root(), self.addresses[n].clone());
        let again = tokio::task::spawn_blocking(move || {
            assert_eq!(served.stop(), 0, "it ends with success");
            start_at(&root, &address)
        });
        self.served[n] = Some(timeout(PATIENCE, again).await.expect("it ends").unwrap());
    }
}

fn start_at(root: &Path, address: &str) -> Served {
    Served::start_on(root, address, &[])
}

fn client(writers: &[String], replicas: &[String]) -> Client {
    Client::builder()
        .writers(writers)
        .replicas(replicas)
        .deadline(Duration::from_secs(30))
        .build()
        .unwrap()
}

async fn add_one(session: &Session) -> Result<(), String> {
    match session.submit(session.client().operation().add(KEY, 1)).await {
        Ok(Outcome::Accepted(_)) => Ok(()),
        other => Err(format!("{other:?}")),
    }
}

/// Makes calls at a steady rate, whatever becomes of those before, until it is
/// told to stop. Returns how many succeeded, and what was wrong with the others.
async fn load<F, Fut>(per_second: u64, stop: CancellationToken, call: F) -> (u64, Vec<String>)
where
    F: Fn(u64) -> Fut,
    Fut: Future<Output = Result<(), String>> + Send + 'static,
{
    let places = Arc::new(Semaphore::new(IN_FLIGHT_MAX));
    let mut ticks = interval(Duration::from_micros(1_000_000 / per_second));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
    let mut calls = JoinSet::new();
    let (mut n_sent, mut n_done, mut failed) = (0, 0, Vec::new());
    let mut count = |outcome: Result<(), String>| match outcome {
        Ok(()) => n_done += 1,
        Err(why) => failed.push(why),
    };
    while !stop.is_cancelled() {
        ticks.tick().await;
        let place = Arc::clone(&places).acquire_owned().await.unwrap();
        let call = call(n_sent);
        n_sent += 1;
        calls.spawn(async move {
            let outcome = call.await;
            drop(place);
            outcome
        });
        while let Some(outcome) = calls.try_join_next() {
            count(outcome.unwrap());
        }
    }
    while let Some(outcome) = calls.join_next().await {
        count(outcome.unwrap());
    }
    (n_done, failed)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_read_fails_while_all_replicas_are_restarted() {
    let mut replicas = Fleet::start(3);
    let writer = Served::start(replicas.root.path());
    let client = client(std::slice::from_ref(&writer.address), &replicas.addresses);
    client.create_history(HISTORY, false).await.unwrap();
    let session = client.session(HISTORY);
    add_one(&session).await.unwrap();

    let stop = CancellationToken::new();
    let reading = tokio::spawn(load(calls_per_second(500), stop.clone(), move |n| {
        let session = session.clone();
        async move {
            let level = if n % 2 == 0 { Consistency::Strong } else { Consistency::Any };
            session.get(KEY, level).await.map(drop).map_err(|error| format!("{error:?}"))
        }
    }));
    for n in 0..3 {
        sleep(Duration::from_millis(300)).await;
        replicas.restart(n).await;
    }
    sleep(Duration::from_millis(300)).await;
    stop.cancel();

    let (n_done, failed) = reading.await.unwrap();
    assert!(failed.is_empty(), "{} of {}: {}", failed.len(), n_done, failed[0]);
    assert!(100 < n_done, "{n_done}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_write_fails_or_is_lost_or_doubled_while_both_writers_are_restarted() {
    let mut writers = Fleet::start(2);
    let replica = Served::start(writers.root.path());
    let client = client(&writers.addresses, std::slice::from_ref(&replica.address));
    client.create_history(HISTORY, false).await.unwrap();
    let session = client.session(HISTORY);

    let stop = CancellationToken::new();
    let writing = tokio::spawn({
        let session = session.clone();
        load(calls_per_second(500).div_ceil(5), stop.clone(), move |_| {
            let session = session.clone();
            async move { add_one(&session).await }
        })
    });
    for n in [0, 1, 0, 1] {
        sleep(Duration::from_millis(300)).await;
        writers.restart(n).await;
    }
    sleep(Duration::from_millis(300)).await;
    stop.cancel();

    let (n_done, failed) = writing.await.unwrap();
    assert!(failed.is_empty(), "{} of {}: {}", failed.len(), n_done, failed[0]);
    let sum = session.get(KEY, Consistency::Strong).await.unwrap().value.unwrap();
    let sum = i64::from_be_bytes(sum.value.as_ref().try_into().unwrap());
    assert_eq!(u64::try_from(sum).unwrap(), n_done, "each acknowledged one, once");
    assert_eq!(client.get_history(HISTORY).await.unwrap().operation_count, n_done);
    assert!(50 < n_done, "{n_done}");
}

/// Reads on until `last`; every version comes once and in order.
async fn follow(mut watch: Watch, seen: &mut u64, last: u64) -> Watch {
    while *seen < last {
        match timeout(PATIENCE, watch.next()).await.expect("it goes on").unwrap() {
            WatchEvent::Version { version, .. } => {
                assert_eq!(version, *seen + 1, "no gap, and nothing twice");
                *seen = version;
            }
            WatchEvent::Progress { .. } => {}
            WatchEvent::SnapshotBegin { .. }
            | WatchEvent::SnapshotEntries(_)
            | WatchEvent::SnapshotEnd { .. } => panic!("no version is gone"),
        }
    }
    watch
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hundred_watches_end_with_their_process_and_go_on_elsewhere_without_a_gap() {
    let root = tempfile::tempdir().unwrap();
    let writer = Served::start(root.path());
    // It may wait for its calls for longer than this test does.
    let slow = ["--drain-seconds-max", "600"];
    let first = Served::start_on(root.path(), "127.0.0.1:0", &slow);
    let second = Served::start(root.path());
    let second_address = second.address.clone();
    // Nobody there yet, so that all watches begin at the first.
    second.kill();
    let replicas = [first.address.clone(), second_address.clone()];
    let client = client(std::slice::from_ref(&writer.address), &replicas);
    client.create_history(HISTORY, false).await.unwrap();
    let session = client.session(HISTORY);
    add_one(&session).await.unwrap();

    let mut watches = JoinSet::new();
    for _ in 0..N_WATCHES {
        let watch = session.watch(WatchOptions { after: Some(0), ..WatchOptions::default() });
        watches.spawn(async move {
            let mut seen = 0;
            let watch = follow(watch, &mut seen, 1).await;
            (watch, seen)
        });
    }
    let watches = watches.join_all().await;

    // All of them are open, at the first. Versions go on through its end.
    let stop = CancellationToken::new();
    let writing = tokio::spawn({
        let session = session.clone();
        load(50, stop.clone(), move |_| {
            let session = session.clone();
            async move { add_one(&session).await }
        })
    });
    let second = start_at(root.path(), &second_address);
    let ended = tokio::task::spawn_blocking(move || first.stop());
    assert_eq!(
        timeout(PATIENCE, ended).await.expect("it ends though watches are open").unwrap(),
        0
    );
    sleep(Duration::from_millis(300)).await;
    stop.cancel();
    let (_, failed) = writing.await.unwrap();
    assert!(failed.is_empty(), "{failed:?}");
    let last = client.get_history(HISTORY).await.unwrap().state_version;

    let mut following = JoinSet::new();
    for (watch, mut seen) in watches {
        following.spawn(async move {
            drop(follow(watch, &mut seen, last).await);
            seen
        });
    }
    for seen in following.join_all().await {
        assert_eq!(seen, last);
    }
    assert!(3 < last, "{last}");
    drop(second);
}
