//! Two processes on one directory, killed at any moment, on a volume with room
//! and on one that is full again and again.

#![cfg(unix)]
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
use headwater_store::{
    Entropy, HeadRead, HeadWrite, LocalDir, LocalError, NoAnswer, PutError, ReadError, Store,
};

const ROOT: &str = "HEADWATER_TEST_CHILD_ROOT";
const VOLUME: &str = "HEADWATER_TEST_CHILD_VOLUME";
const HEAD: &str = "history/head.json";

const N_PROCESSES: usize = 2;
/// What they do together on a volume with room.
const COMMITS: u64 = 10_000;
/// What they do together on a volume that is full again and again.
const COMMITS_WHILE_FULL: u64 = 1_000;

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
    format!("{id} {n} ").repeat(100).into()
}

/// One write, so that a kill cannot leave half a line.
fn say(line: &str) {
    std::io::stdout().write_all(format!("{line}\n").as_bytes()).unwrap();
}

/// A child of the tests below; nothing when it is run on its own.
#[tokio::test]
async fn child_counts_until_it_is_killed() {
    let Ok(root) = env::var(ROOT) else { return };
    let store = LocalDir::open(root).unwrap();
    let id = format!("{:016x}", Entropy::from_os().u64());
    for n in 1.. {
        while let Err(error) = store.put(&object_key(&id, n), object_bytes(&id, n)).await {
            let PutError::Store(ReadError::Unavailable { cause, .. }) = error else {
                panic!("{error:?}")
            };
            wait_for_room(&cause).await;
        }
        count(&store, &id, n).await;
        say(&format!("accepted {id} {n}"));
    }
}

/// Replaces the head by one that says `n`, as the protocol does it: without an
/// answer the head is read to find out.
async fn count(store: &LocalDir, id: &str, n: u64) {
    loop {
        let (mut counts, tag) = match store.read_head(HEAD, None).await.unwrap() {
            HeadRead::Found { bytes, tag } => (decode(&bytes), tag),
            other => panic!("the head was created before: {other:?}"),
        };
        let before = counts.insert(id.to_owned(), n).unwrap_or_default();
        if before == n {
            return;
        }
        assert_eq!(before, n - 1, "somebody lost my update");
        match store.replace_head(HEAD, &tag, encode(&counts)).await {
            HeadWrite::Replaced { .. } => return,
            HeadWrite::Mismatch => (),
            HeadWrite::Gone => panic!("nobody deletes the head"),
            HeadWrite::NoAnswer(NoAnswer { cause, .. }) => wait_for_room(&cause).await,
        }
    }
}

/// A full volume is the one failure that is expected, and is said by name.
async fn wait_for_room(cause: &headwater_store::Cause) {
    match cause.downcast_ref::<LocalError>() {
        Some(LocalError::Io { source, .. }) if source.kind() == std::io::ErrorKind::StorageFull => {
            say("full");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        other => panic!("{other:?}: {cause}"),
    }
}

/// What a process said.
#[derive(Default)]
struct Said {
    accepted: Counts,
    n_full: u64,
}

struct Process {
    child: Child,
    reading: thread::JoinHandle<Said>,
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
            let mut said = Said::default();
            for line in output.lines() {
                let line = line.unwrap();
                if let Some((_, pair)) = line.split_once("accepted ") {
                    said.accepted.extend(decode(pair.as_bytes()));
                }
                said.n_full += u64::from(line.ends_with("full"));
            }
            said
        });
        Self { child, reading }
    }

    /// Kills it; what it had said.
    fn kill(mut self) -> Said {
        assert!(self.child.try_wait().unwrap().is_none(), "it ended by itself");
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        self.reading.join().unwrap()
    }
}

/// Lets processes count, and kills one of them now and then, until they have
/// counted to `commits`; `between` goes on beside them.
async fn run(root: &Path, commits: u64, mut between: impl AsyncFnMut(&LocalDir)) -> Said {
    let store = LocalDir::open(root).unwrap();
    let created = store.create_head(HEAD, Bytes::new()).await;
    assert!(matches!(created, HeadWrite::Replaced { .. }), "{created:?}");
    let entropy = Entropy::from_os();
    let mut all = Said::default();
    let mut n_kills = 0;
    let mut add = |said: Said| {
        all.accepted.extend(said.accepted);
        all.n_full += said.n_full;
    };

    let mut processes: Vec<_> = (0..N_PROCESSES).map(|_| Process::start(root)).collect();
    while head(&store).await.values().sum::<u64>() < commits {
        thread::sleep(Duration::from_millis(20) + entropy.jitter(Duration::from_millis(80)));
        between(&store).await;
        let victim = usize::try_from(entropy.below(N_PROCESSES as u64)).unwrap();
        let killed = std::mem::replace(&mut processes[victim], Process::start(root));
        add(killed.kill());
        n_kills += 1;
    }
    for process in processes {
        add(process.kill());
    }

    let counts = head(&store).await;
    for (id, n) in &all.accepted {
        let in_head = counts.get(id).copied().unwrap_or_default();
        // The last one may have been applied unsaid.
        assert!((*n..=n + 1).contains(&in_head), "{id}: said {n}, the head has {in_head}");
    }
    println!(
        "{} commits, {n_kills} kills, {} times full",
        counts.values().sum::<u64>(),
        all.n_full
    );
    all
}

async fn head(store: &LocalDir) -> Counts {
    match store.read_head(HEAD, None).await.unwrap() {
        HeadRead::Found { bytes, .. } => decode(&bytes),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn processes_killed_at_any_moment_lose_nothing_that_was_accepted() {
    // In memory where that is possible: a killed process loses nothing that its
    // kernel has, and syncing 40,000 times takes minutes on a disk.
    let root = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();

    run(root.path(), COMMITS, async |_| ()).await;

    let store = LocalDir::open(root.path()).unwrap();
    let counts = head(&store).await;
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

/// A child of the test below, with a small volume of its own.
#[tokio::test]
async fn child_has_a_small_volume() {
    let Ok(volume) = env::var(VOLUME) else { return };
    let root = Path::new(&volume).join("store");

    // Room is made by deleting objects, and is used up before the next time.
    let said = run(&root, COMMITS_WHILE_FULL, async |store| {
        for listed in store.list("history/changes/", None, usize::MAX).await.unwrap() {
            store.delete(&listed.key).await.unwrap();
        }
    })
    .await;

    assert!(0 < said.n_full, "the volume was never full");
    println!("done");
}

#[tokio::test]
async fn on_a_full_volume_nothing_that_was_accepted_is_lost_and_room_is_all_it_needs() {
    let volume = tempfile::tempdir().unwrap();
    // A mount that only the child and its children see, and that ends with them.
    let mount = "mount -t tmpfs -o size=400k,nr_inodes=2k none \"$1\" && shift && exec \"$@\"";
    let unshare = ["--user", "--map-root-user", "--mount", "--", "sh", "-c"];
    let may = Command::new("unshare")
        .args(unshare)
        .args([mount, "sh"])
        .arg(volume.path())
        .arg("true")
        .status();
    if !may.is_ok_and(|it| it.success()) {
        println!("skipped: no volume can be mounted here");
        return;
    }

    let child = Command::new("unshare")
        .args(unshare)
        .args([mount, "sh"])
        .arg(volume.path())
        .arg(env::current_exe().unwrap())
        .args(["--exact", "child_has_a_small_volume", "--nocapture"])
        .env(VOLUME, volume.path())
        .output()
        .unwrap();

    let said = String::from_utf8_lossy(&child.stdout);
    println!("{said}");
    let problems = String::from_utf8_lossy(&child.stderr);
    assert!(child.status.success() && said.contains("done"), "{said}\n{problems}");
}
