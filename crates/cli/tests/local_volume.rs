//! Two `headwater serve` on one local directory, killed and started again at
//! random while clients work: on a volume with room, and on one that is full
//! again and again.
//!
//! `HEADWATER_TEST_COMMITS` says how many operations have to be accepted; 10,000
//! take minutes, so less is the default.

#![cfg(unix)]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot set up has failed")]

use std::collections::BTreeMap;
use std::io::{ErrorKind, Write as _};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use std::{env, fs};

use headwater_client::{
    Client, Consistency, Determinacy, KeyRange, Outcome, RetryConfig, Session, SubmitError,
};
use headwater_store::Entropy;
use tokio::task::{JoinSet, block_in_place};
use tokio::time::{Instant, sleep};

mod support;

use support::{Served, headwater, run};

const VOLUME: &str = "HEADWATER_TEST_CHILD_VOLUME";
const COMMITS: &str = "HEADWATER_TEST_COMMITS";
const HISTORY: &str = "shop/stock";
const CLIENTS: u64 = 8;
/// For all of it; who waits longer waits for nothing.
const PATIENCE: Duration = Duration::from_secs(900);

fn commits() -> u64 {
    env::var(COMMITS).map_or(1_000, |it| it.parse().expect("a number of commits"))
}

/// What is common to the clients.
struct Work {
    client: Client,
    n_wanted: u64,
    n_accepted: AtomicU64,
    until: Instant,
}

fn value(client: u64, n: u64) -> Vec<u8> {
    // Some travel in the head, some are uploaded.
    format!("{client} {n} ").repeat(if n.is_multiple_of(5) { 700 } else { 3 }).into_bytes()
}

impl Work {
    fn is_done(&self) -> bool {
        self.n_wanted <= self.n_accepted.load(Ordering::Relaxed)
    }

    /// Submits one operation after the other, each until its outcome is known.
    /// How many there were.
    async fn run(self: Arc<Self>, client: u64) -> u64 {
        let session = self.client.session(HISTORY);
        let mut n = 0;
        while !self.is_done() {
            let operation = self
                .client
                .operation()
                .put(format!("key/{client}/{n:06}"), value(client, n))
                .add(format!("count/{client}"), 1);
            self.settle(&session, operation).await;
            self.n_accepted.fetch_add(1, Ordering::Relaxed);
            n += 1;
        }
        n
    }

    async fn settle(&self, session: &Session, operation: headwater_client::Operation) {
        loop {
            match session.submit(operation.clone()).await {
                Ok(Outcome::Accepted(_)) => return,
                Ok(other) => panic!("it has no preconditions, and receipts are kept: {other:?}"),
                Err(error) => assert!(may_pass(&error), "{error}"),
            }
            assert!(Instant::now() < self.until, "it never ended");
            sleep(Duration::from_millis(50)).await;
        }
    }
}

/// Whether it may come of a process that is dead or a volume that is full. Then
/// it may be sent again under its id, whatever became of it.
fn may_pass(error: &SubmitError) -> bool {
    match error {
        SubmitError::InDoubt(_) | SubmitError::Expired(_) | SubmitError::Refused(_) => true,
        SubmitError::HistoryMissing(_)
        | SubmitError::Invalid(_)
        | SubmitError::IdReused(_)
        | SubmitError::Fenced(_) => error.determinacy() == Determinacy::MaybeApplied,
    }
}

fn client(servers: &[Option<Served>]) -> Client {
    let addresses: Vec<_> = servers.iter().flatten().map(|it| it.address.clone()).collect();
    let retry = RetryConfig { attempt_max: Duration::from_secs(4), ..RetryConfig::default() };
    let builder = Client::builder().writers(addresses.clone()).replicas(addresses);
    builder.retry(retry).deadline(Duration::from_secs(30)).build().unwrap()
}

/// Takes what room there is.
fn fill(volume: &Path) -> PathBuf {
    let path = volume.join("balloon");
    let mut file = fs::File::create(&path).unwrap();
    // In small steps at the end, so that nothing fits beside it.
    for step in [1 << 16, 1 << 12, 1] {
        let bytes = vec![7; step];
        let error = loop {
            if let Err(error) = file.write_all(&bytes) {
                break error;
            }
        };
        assert_eq!(error.kind(), ErrorKind::StorageFull);
    }
    path
}

/// Runs clients against two servers over `root` while the servers are killed and
/// the volume, if it is a small one, is filled. How often nothing went on while
/// it was full.
async fn work(root: &Path, volume: Option<&Path>) -> u64 {
    let entropy = Entropy::from_os();
    let mut servers = [(); 2].map(|()| Some(block_in_place(|| Served::start(root))));
    let client = client(&servers);
    client.create_history(HISTORY, false).await.unwrap();
    let work = Arc::new(Work {
        client,
        n_wanted: commits(),
        n_accepted: AtomicU64::new(0),
        until: Instant::now() + PATIENCE,
    });
    let mut clients = JoinSet::new();
    for n in 0..CLIENTS {
        let work = Arc::clone(&work);
        clients.spawn(async move { (n, work.run(n).await) });
    }

    let (mut n_kills, mut n_stalled) = (0, 0);
    while !work.is_done() {
        sleep(Duration::from_millis(300) + entropy.jitter(Duration::from_millis(600))).await;
        assert!(Instant::now() < work.until, "it never ended");
        if let Some(volume) = volume {
            let balloon = block_in_place(|| fill(volume));
            // What was under way has ended by then.
            sleep(Duration::from_millis(200)).await;
            let before = work.n_accepted.load(Ordering::Relaxed);
            sleep(Duration::from_millis(200)).await;
            let is_stalled = before == work.n_accepted.load(Ordering::Relaxed);
            n_stalled += u64::from(is_stalled && !work.is_done());
            kill(&mut servers, &entropy, root);
            fs::remove_file(balloon).unwrap();
        } else {
            kill(&mut servers, &entropy, root);
        }
        n_kills += 1;
    }
    let mut counts = BTreeMap::new();
    while let Some(done) = clients.join_next().await {
        let (client, n) = done.unwrap();
        counts.insert(client, n);
    }
    servers.into_iter().flatten().for_each(Served::kill);
    check(root, &counts).await;
    println!(
        "{} operations, {n_kills} kills, {n_stalled} times full",
        counts.values().sum::<u64>()
    );
    n_stalled
}

/// Kills one of them, and starts another one in its place.
fn kill(servers: &mut [Option<Served>; 2], entropy: &Entropy, root: &Path) {
    let victim = usize::try_from(entropy.below(2)).unwrap();
    block_in_place(|| {
        let killed = servers[victim].take().unwrap();
        let address = killed.address.clone();
        killed.kill();
        servers[victim] = Some(Served::start_on(root, &address, &[]));
    });
}

/// Everything that was accepted is there, once, and the history is whole.
async fn check(root: &Path, counts: &BTreeMap<u64, u64>) {
    let server = [Some(block_in_place(|| Served::start(root)))];
    let session = client(&server).session(HISTORY);
    for (client, n) in counts {
        let read = session.get(format!("count/{client}"), Consistency::Strong).await.unwrap();
        let sum = read.value.map(|it| i64::from_be_bytes(it.value[..].try_into().unwrap()));
        assert_eq!(sum, Some(i64::try_from(*n).unwrap()), "{client}: each was applied once");
    }
    let mut n_found = 0;
    let mut scan = session.scan(KeyRange::prefix("key/"));
    while let Some(page) = scan.next_page().await.unwrap() {
        for entry in page.value {
            let key = String::from_utf8(entry.key.to_vec()).unwrap();
            let mut parts = key.split('/').skip(1).map(|it| it.parse::<u64>().unwrap());
            let (client, n) = (parts.next().unwrap(), parts.next().unwrap());
            assert_eq!(entry.value, value(client, n), "{key}");
            assert!(n < counts[&client], "{key} was never submitted");
            n_found += 1;
        }
    }
    assert_eq!(n_found, counts.values().sum::<u64>());
    let root = format!("file://{}", root.display());
    let verified = run(headwater(&["verify", "--store", &root, HISTORY, "--json"]), b"");
    assert_eq!(verified.code, 0, "{verified:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn servers_killed_at_any_moment_lose_nothing_that_was_accepted() {
    let root = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
    work(&root.path().join("store"), None).await;
}

/// A child of the test below, with a small volume of its own; nothing when it is
/// run on its own.
#[tokio::test(flavor = "multi_thread")]
async fn child_has_a_small_volume() {
    let Ok(volume) = env::var(VOLUME) else { return };
    let volume = Path::new(&volume);
    let n_stalled = work(&volume.join("store"), Some(volume)).await;
    assert!(0 < n_stalled, "the volume was never full for anybody");
    println!("done");
}

#[test]
fn on_a_full_volume_nothing_that_was_accepted_is_lost_and_room_is_all_it_needs() {
    let volume = tempfile::tempdir().unwrap();
    // A mount that only the child and its children see, and that ends with them.
    let mount = "mount -t tmpfs -o size=64m none \"$1\" && shift && exec \"$@\"";
    let unshare = |arguments: &[&str]| {
        let mut command = Command::new("unshare");
        command.args(["--user", "--map-root-user", "--mount", "--", "sh", "-c", mount, "sh"]);
        command.arg(volume.path()).args(arguments);
        command
    };
    if !unshare(&["true"]).status().is_ok_and(|it| it.success()) {
        println!("skipped: no volume can be mounted here");
        return;
    }

    let tests = env::current_exe().unwrap();
    let child = unshare(&[tests.to_str().unwrap(), "--exact", "child_has_a_small_volume"])
        .arg("--nocapture")
        .env(VOLUME, volume.path())
        .output()
        .unwrap();

    let said = String::from_utf8_lossy(&child.stdout);
    println!("{said}");
    let problems = String::from_utf8_lossy(&child.stderr);
    assert!(child.status.success() && said.contains("done"), "{said}\n{problems}");
}
