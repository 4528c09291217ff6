//! Several processes on one directory, killed at any moment.

#![allow(
    clippy::unwrap_used,
    clippy::wildcard_enum_match_arm,
    reason = "a test panics at what it does not expect"
)]

use std::collections::BTreeMap;
use std::env;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use bytes::Bytes;
use headwater_store::{Entropy, HeadRead, HeadWrite, LocalDir, Store};

const ROOT: &str = "HEADWATER_TEST_CHILD_ROOT";
const HEAD: &str = "history/head.json";

const N_PROCESSES: usize = 3;
const N_KILLS: usize = 24;
/// What they do together before the last of them is killed.
const ACCEPTED_MIN: u64 = 400;

/// How many replacements each process did, as the head has it.
type Counts = BTreeMap<String, u64>;

fn encode(counts: &Counts) -> Bytes {
    let lines: Vec<_> = counts.iter().map(|(id, n)| format!("{id} {n}\n")).collect();
    lines.concat().into()
}

fn decode(bytes: &[u8]) -> Counts {
    let text = str::from_utf8(bytes).unwrap();
    let pair = |line: &str| line.split_once(' ').map(|(id, n)| (id.into(), n.parse().unwrap()));
    text.lines().map(|line| pair(line).unwrap()).collect()
}

fn object_key(id: &str, n: u64) -> String {
    format!("history/changes/{id}-{n}")
}

fn object_bytes(id: &str, n: u64) -> Bytes {
    format!("{id} {n} ").repeat(1_000).into()
}

/// A child of the test below; nothing when it is run on its own.
#[tokio::test]
async fn child_counts_until_it_is_killed() {
    let Ok(root) = env::var(ROOT) else { return };
    let store = LocalDir::open(root).unwrap();
    let id = format!("{:016x}", Entropy::from_os().u64());
    for n in 1.. {
        store.put(&object_key(&id, n), object_bytes(&id, n)).await.unwrap();
        loop {
            let HeadRead::Found { bytes, tag } = store.read_head(HEAD, None).await.unwrap() else {
                panic!("the head was created before");
            };
            let mut counts = decode(&bytes);
            let before = counts.insert(id.clone(), n);
            assert_eq!(before.unwrap_or_default(), n - 1, "somebody lost my update");
            match store.replace_head(HEAD, &tag, encode(&counts)).await {
                HeadWrite::Replaced { .. } => break,
                HeadWrite::Mismatch => (),
                HeadWrite::Gone => panic!("nobody deletes the head"),
                HeadWrite::NoAnswer(error) => panic!("{error}"),
            }
        }
        // One write, so that a kill cannot leave half a line.
        let line = format!("accepted {id} {n}\n");
        std::io::stdout().write_all(line.as_bytes()).unwrap();
    }
}

struct Process {
    child: Child,
    reading: thread::JoinHandle<Counts>,
}

impl Process {
    fn start(root: &Path) -> Self {
        let mut child = Command::new(env::current_exe().unwrap())
            .args(["--exact", "child_counts_until_it_is_killed", "--nocapture"])
            .env(ROOT, root)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        let reading = thread::spawn(move || {
            let mut accepted = Counts::new();
            for line in output.lines() {
                let line = line.unwrap();
                if let Some((_, pair)) = line.split_once("accepted ") {
                    accepted.extend(decode(pair.as_bytes()));
                }
            }
            accepted
        });
        Self { child, reading }
    }

    /// Kills it; what it had said to be accepted.
    fn kill(mut self) -> Counts {
        assert!(self.child.try_wait().unwrap().is_none(), "it ended by itself");
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        self.reading.join().unwrap()
    }
}

#[tokio::test]
async fn processes_killed_at_any_moment_lose_nothing_that_was_accepted() {
    let root = tempfile::tempdir().unwrap();
    let store = LocalDir::open(root.path()).unwrap();
    let created = store.create_head(HEAD, Bytes::new()).await;
    assert!(matches!(created, HeadWrite::Replaced { .. }), "{created:?}");
    let entropy = Entropy::from_os();
    let mut accepted = Counts::new();

    let start = || Process::start(root.path());
    let mut processes: Vec<_> = (0..N_PROCESSES).map(|_| start()).collect();
    for _ in 0..N_KILLS {
        thread::sleep(Duration::from_millis(20) + entropy.jitter(Duration::from_millis(80)));
        let victim = usize::try_from(entropy.below(N_PROCESSES as u64)).unwrap();
        let killed = std::mem::replace(&mut processes[victim], start());
        accepted.extend(killed.kill());
    }
    while head(&store).await.values().sum::<u64>() < ACCEPTED_MIN {
        thread::sleep(Duration::from_millis(10));
    }
    for process in processes {
        accepted.extend(process.kill());
    }

    let counts = head(&store).await;
    for (id, n) in &accepted {
        let in_head = counts.get(id).copied().unwrap_or_default();
        // The last one may have been applied unsaid.
        assert!((*n..=n + 1).contains(&in_head), "{id}: said {n}, the head has {in_head}");
    }
    for (id, n_max) in &counts {
        for n in 1..=*n_max {
            assert_eq!(store.get(&object_key(id, n)).await.unwrap(), object_bytes(id, n));
        }
    }
    // The dead left files behind; they are no objects, and the next one to
    // write takes them away.
    let n_objects = store.list("", None, usize::MAX).await.unwrap().len() as u64;
    let n_counted = counts.values().sum::<u64>();
    assert!((n_counted + 1..).contains(&n_objects));
    drop(store);
    let next = LocalDir::open(root.path()).unwrap();
    next.put("next", Bytes::new()).await.unwrap();
    let staging = root.path().join(".headwater/staging");
    assert_eq!(std::fs::read_dir(staging).unwrap().count(), 1, "only that of `next`");
}

async fn head(store: &LocalDir) -> Counts {
    match store.read_head(HEAD, None).await.unwrap() {
        HeadRead::Found { bytes, .. } => decode(&bytes),
        other => panic!("{other:?}"),
    }
}
