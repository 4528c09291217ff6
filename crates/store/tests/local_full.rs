//! A file system that takes no more bytes.

#![cfg(unix)]
#![allow(
    clippy::unwrap_used,
    clippy::wildcard_enum_match_arm,
    reason = "a test panics at what it does not expect"
)]

use std::env;
use std::io::ErrorKind;
use std::process::Command;

use bytes::Bytes;
use headwater_store::{
    HeadRead, HeadWrite, LocalDir, LocalError, NoAnswerKind, PutError, ReadError, Store,
};

const ROOT: &str = "HEADWATER_TEST_CHILD_ROOT";
const HEAD: &str = "h/head.json";

/// More than the limit that the child runs under, 8 KiB.
const TOO_LARGE: usize = 64 * 1024;

fn kind(cause: &headwater_store::Cause) -> ErrorKind {
    match cause.downcast_ref::<LocalError>() {
        Some(LocalError::Io { source, .. }) => source.kind(),
        other => panic!("{other:?}"),
    }
}

/// A child of the test below; nothing when it is run on its own.
#[tokio::test]
async fn child_meets_a_full_file_system() {
    let Ok(root) = env::var(ROOT) else { return };
    let store = LocalDir::open(root).unwrap();
    let large = Bytes::from(vec![7; TOO_LARGE]);
    let HeadRead::Found { tag, .. } = store.read_head(HEAD, None).await.unwrap() else {
        panic!("the head was created before");
    };

    match store.put("large", large.clone()).await {
        Err(PutError::Store(ReadError::Unavailable { cause, .. })) => {
            assert_eq!(kind(&cause), ErrorKind::FileTooLarge);
        }
        other => panic!("{other:?}"),
    }
    match store.replace_head(HEAD, &tag, large).await {
        HeadWrite::NoAnswer(error) => {
            assert_eq!((error.kind, kind(&error.cause)), {
                (NoAnswerKind::Other, ErrorKind::FileTooLarge)
            });
        }
        other => panic!("{other:?}"),
    }

    assert!(matches!(store.get("large").await, Err(ReadError::Missing { .. })));
    assert_eq!(store.read_head(HEAD, Some(&tag)).await.unwrap(), HeadRead::Unchanged);
    store.put("small", Bytes::from_static(b"x")).await.unwrap();
    let answer = store.replace_head(HEAD, &tag, Bytes::from_static(b"2")).await;
    assert!(matches!(answer, HeadWrite::Replaced { .. }), "{answer:?}");
}

#[tokio::test]
async fn what_does_not_fit_is_a_named_error_and_leaves_everything_as_it_was() {
    let root = tempfile::tempdir().unwrap();
    let store = LocalDir::open(root.path()).unwrap();
    let created = store.create_head(HEAD, Bytes::from_static(b"1")).await;
    assert!(matches!(created, HeadWrite::Replaced { .. }), "{created:?}");

    // A limit on the size of files ends a write in the middle, as a full disk
    // does. Its signal is ignored, so that the write fails instead. What the
    // child prints goes through pipes: to a file it would meet the limit too.
    let child = Command::new("sh")
        .args(["-c", "trap '' XFSZ; ulimit -f 16; exec \"$0\" \"$@\""])
        .arg(env::current_exe().unwrap())
        .args(["--exact", "child_meets_a_full_file_system"])
        .env(ROOT, root.path())
        .output()
        .unwrap();

    assert!(child.status.success(), "{child:?}");
    match store.read_head(HEAD, None).await.unwrap() {
        HeadRead::Found { bytes, .. } => assert_eq!(bytes, "2", "the child did run"),
        other => panic!("{other:?}"),
    }
}
