//! What a directory asks of the system, and what it makes of a refusal: the order
//! in which things become durable, and permissions.

#![cfg(unix)]
#![allow(
    clippy::unwrap_used,
    clippy::wildcard_enum_match_arm,
    reason = "a test panics at what it does not expect"
)]

use std::collections::BTreeMap;
use std::env;
use std::fs::{self, Permissions};
use std::io::ErrorKind;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

use bytes::Bytes;
use headwater_store::{
    Cause, HeadRead, HeadWrite, LocalDir, LocalError, NoAnswerKind, PutError, ReadError, Store,
};

const ROOT: &str = "HEADWATER_TEST_CHILD_ROOT";
const HEAD: &str = "h/head.json";

fn child(program: &[&str], test: &str, root: &Path) -> Command {
    let mut command = Command::new(program[0]);
    command.args(&program[1..]).arg(env::current_exe().unwrap());
    command.args(["--exact", test, "--nocapture"]).env(ROOT, root);
    command
}

/// A child of the test below; nothing when it is run on its own.
#[tokio::test]
async fn child_writes_one_of_each() {
    let Ok(root) = env::var(ROOT) else { return };
    let store = LocalDir::open(root).unwrap();
    store.put("h/changes/1", Bytes::from_static(b"object")).await.unwrap();
    let tag = match store.create_head(HEAD, Bytes::from_static(b"created")).await {
        HeadWrite::Replaced { tag } => tag,
        other => panic!("{other:?}"),
    };
    let answer = store.replace_head(HEAD, &tag, Bytes::from_static(b"replaced")).await;
    assert!(matches!(answer, HeadWrite::Replaced { .. }), "{answer:?}");
    store.delete("h/changes/1").await.unwrap();
}

/// What the system was asked for that decides what is left after a power loss.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Step {
    /// The content of a file, or the names in a folder.
    Sync(String),
    /// A file got this name.
    Named { from: String, to: String },
    /// A name went away.
    Removed(String),
    /// Bytes were written to a file.
    Written(String),
    /// A folder was made.
    Made(String),
}

/// Reads a line of strace's, with its paths below `root`.
fn step(line: &str, root: &str) -> Option<Step> {
    let (_, rest) = line.split_once(' ')?;
    let (call, rest) = rest.trim_start().split_once('(')?;
    if !line.contains("= 0") && call != "write" {
        return None;
    }
    // Paths are in quotes, or in angle brackets after the number of a file.
    let below = |it: &&str| it.starts_with(root);
    let mut paths = rest.split(['"', '<', '>']).filter(below);
    let mut path = || Some(paths.next()?.trim_start_matches(root).to_owned());
    Some(match call {
        "fsync" | "fdatasync" => Step::Sync(path()?),
        "rename" | "renameat" | "renameat2" | "link" | "linkat" => {
            let from = path()?;
            Step::Named { from, to: path()? }
        }
        "unlink" | "unlinkat" => Step::Removed(path()?),
        "mkdir" | "mkdirat" => Step::Made(path()?),
        "write" => Step::Written(path()?),
        _ => return None,
    })
}

/// The lines of a trace, each with its end: strace cuts a call in two where
/// another thread makes one meanwhile. In the order in which calls ended.
fn whole(trace: &str) -> Vec<String> {
    let mut begun = BTreeMap::new();
    let mut lines = Vec::new();
    for line in trace.lines() {
        let thread = line.split(' ').next().unwrap();
        if let Some((start, _)) = line.split_once("<unfinished") {
            begun.insert(thread, start.trim_end());
        } else if let Some((_, end)) = line.split_once("resumed>") {
            lines.push(format!("{}{end}", begun.remove(thread).unwrap_or_default()));
        } else {
            lines.push(line.to_owned());
        }
    }
    lines
}

/// The steps before `at` and those after it.
fn around(steps: &[Step], is_it: impl Fn(&Step) -> bool) -> (&[Step], &[Step]) {
    let at = steps.iter().position(is_it).unwrap_or_else(|| panic!("never done: {steps:#?}"));
    (&steps[..at], &steps[at + 1..])
}

#[test]
fn bytes_are_durable_before_their_name_and_the_name_before_the_answer() {
    let root = tempfile::tempdir().unwrap();
    let root_path = fs::canonicalize(root.path()).unwrap();
    let trace = root_path.join("trace");
    let calls = "trace=fsync,fdatasync,rename,renameat,renameat2,link,linkat,unlink,unlinkat,mkdir,\
                 mkdirat,write";
    let strace = ["strace", "-f", "-y", "-s", "0", "-e", calls, "-o", trace.to_str().unwrap()];
    let store = root_path.join("store");
    let ran = child(&strace, "child_writes_one_of_each", &store).output();
    match ran {
        Ok(ran) if ran.status.success() => (),
        Ok(ran) if String::from_utf8_lossy(&ran.stderr).contains("PTRACE_TRACEME") => {
            println!("skipped: no process may be traced here");
            return;
        }
        Ok(ran) => panic!("{ran:?}"),
        Err(_) => {
            println!("skipped: there is no strace");
            return;
        }
    }

    let lines = whole(&fs::read_to_string(&trace).unwrap());
    let root = store.to_str().unwrap();
    let steps: Vec<_> = lines.iter().filter_map(|it| step(it, root)).collect();

    let mut rest = &steps[..];
    for (key, folder) in
        [("/h/changes/1", "/h/changes"), ("/h/head.json", "/h"), ("/h/head.json", "/h")]
    {
        let is_named = |it: &Step| matches!(it, Step::Named { to, .. } if to == key);
        let (before, after) = around(rest, is_named);
        let Step::Named { from, .. } = &rest[before.len()] else { unreachable!("it is one") };
        let is_about_content =
            |it: &&Step| matches!(it, Step::Written(path) | Step::Sync(path) if path == from);
        let content: Vec<_> = before.iter().filter(is_about_content).collect();
        let (written, synced) = (Step::Written(from.clone()), Step::Sync(from.clone()));
        assert_eq!(content, [&written, &synced], "{key}: {steps:#?}");
        // The name, before anything else of this call is answered.
        let (between, later) = around(after, |it| *it == Step::Sync(folder.to_owned()));
        let is_next = |it: &Step| matches!(it, Step::Written(_));
        assert!(!between.iter().any(is_next), "{key}: {steps:#?}");
        rest = later;
    }
    let (_, after) = around(rest, |it| *it == Step::Removed("/h/changes/1".into()));
    assert_eq!(after.first(), Some(&Step::Sync("/h/changes".into())), "{steps:#?}");
    // A folder whose own name is lost is lost with what is in it.
    for (folder, parent) in [("", None), ("/h", Some("")), ("/h/changes", Some("/h"))] {
        let (_, after) = around(&steps, |it| *it == Step::Made(folder.to_owned()));
        if let Some(parent) = parent {
            let (between, _) = around(after, |it| *it == Step::Sync(parent.to_owned()));
            assert!(!between.iter().any(|it| matches!(it, Step::Named { .. })), "{steps:#?}");
        }
    }
}

fn refused(cause: &Cause, path: &Path) {
    match cause.downcast_ref::<LocalError>() {
        Some(LocalError::Io { source, path: named, .. }) => {
            assert_eq!(source.kind(), ErrorKind::PermissionDenied);
            assert!(named.starts_with(path), "{} is not below {}", named.display(), path.display());
        }
        other => panic!("{other:?}: {cause}"),
    }
}

/// A child of the test below; nothing when it is run on its own.
#[tokio::test]
async fn child_may_read_only() {
    let Ok(root) = env::var(ROOT) else { return };
    let store = LocalDir::open(&root).unwrap();
    let HeadRead::Found { tag, bytes } = store.read_head(HEAD, None).await.unwrap() else {
        panic!("the head was created before");
    };
    assert_eq!(bytes, "1");
    assert_eq!(store.get("h/changes/1").await.unwrap(), "object");
    assert_eq!(store.list("", None, 9).await.unwrap().len(), 3);

    let root = Path::new(&root);
    match store.put("h/changes/2", Bytes::new()).await {
        Err(PutError::Store(ReadError::Denied { key, cause })) => {
            assert_eq!(key, "h/changes/2");
            refused(&cause, root);
        }
        other => panic!("{other:?}"),
    }
    match store.replace_head(HEAD, &tag, Bytes::from_static(b"2")).await {
        HeadWrite::NoAnswer(it) => {
            assert_eq!(it.kind, NoAnswerKind::Denied);
            refused(&it.cause, root);
        }
        other => panic!("{other:?}"),
    }
    match store.delete("h/changes/1").await {
        Err(ReadError::Denied { cause, .. }) => refused(&cause, root),
        other => panic!("{other:?}"),
    }
    match store.get("secret").await {
        Err(ReadError::Denied { key, cause }) => {
            assert_eq!(key, "secret");
            refused(&cause, &root.join("secret"));
        }
        other => panic!("{other:?}"),
    }
    println!("refused");
}

#[tokio::test]
async fn what_is_not_permitted_is_denied_with_the_path_and_changes_nothing() {
    let root = tempfile::tempdir().unwrap();
    {
        let store = LocalDir::open(root.path()).unwrap();
        store.put("h/changes/1", Bytes::from_static(b"object")).await.unwrap();
        store.put("secret", Bytes::from_static(b"object")).await.unwrap();
        let created = store.create_head(HEAD, Bytes::from_static(b"1")).await;
        assert!(matches!(created, HeadWrite::Replaced { .. }), "{created:?}");
    }
    let folders = ["", "h", "h/changes", ".headwater", ".headwater/staging", ".headwater/locks"];
    let set = |mode: u32| {
        for folder in folders {
            fs::set_permissions(root.path().join(folder), Permissions::from_mode(mode)).unwrap();
        }
    };
    set(0o555);
    fs::set_permissions(root.path().join("secret"), Permissions::from_mode(0o000)).unwrap();

    // Root may do anything; within a name space of its own it may not.
    let ran = child(&["unshare", "--user", "--"], "child_may_read_only", root.path()).output();
    set(0o755);

    match ran {
        Ok(ran) if ran.status.success() => {
            let said = String::from_utf8_lossy(&ran.stdout);
            assert!(said.contains("refused"), "{said}");
        }
        Ok(ran) if String::from_utf8_lossy(&ran.stderr).contains("unshare: ") => {
            println!("skipped: no name space can be made here");
        }
        Ok(ran) => panic!("{ran:?}"),
        Err(_) => println!("skipped: there is no unshare"),
    }
    let store = LocalDir::open(root.path()).unwrap();
    assert_eq!(store.get("h/changes/1").await.unwrap(), "object");
    match store.read_head(HEAD, None).await.unwrap() {
        HeadRead::Found { bytes, .. } => assert_eq!(bytes, "1"),
        other => panic!("{other:?}"),
    }
}
