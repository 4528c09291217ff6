//! What is particular to a directory.

#![allow(
    clippy::unwrap_used,
    clippy::wildcard_enum_match_arm,
    reason = "a test panics at what it does not expect"
)]

use std::error::Error;
use std::fs;
use std::path::Path;

use bytes::Bytes;
use headwater_core::id::Tag;
use headwater_store::{
    HeadRead, HeadWrite, KeyError, LocalDir, LocalError, NoAnswerKind, PutError, ReadError, Store,
};

fn open(root: &Path) -> LocalDir {
    LocalDir::open(root).unwrap()
}

#[tokio::test]
async fn one_name_cannot_be_an_object_and_a_folder() {
    let root = tempfile::tempdir().unwrap();
    let store = open(root.path());
    store.put("a", Bytes::new()).await.unwrap();
    store.put("b/c", Bytes::new()).await.unwrap();

    for key in ["a/b", "a/b/c", "b"] {
        match store.put(key, Bytes::new()).await {
            Err(PutError::Store(ReadError::Denied { cause, .. })) => {
                let cause = cause.downcast_ref::<KeyError>();
                assert_eq!(cause, Some(&KeyError::ObjectAndFolder), "{key}");
            }
            other => panic!("{key}: {other:?}"),
        }
        assert!(matches!(store.get(key).await, Err(ReadError::Missing { .. })), "{key}");
        assert_eq!(store.read_head(key, None).await.unwrap(), HeadRead::Missing, "{key}");
        store.delete(key).await.unwrap();
        let answer = store.replace_head(key, &Tag::new("x"), Bytes::new()).await;
        assert!(matches!(answer, HeadWrite::Gone), "{key}: {answer:?}");
    }
    match store.create_head("a/head.json", Bytes::new()).await {
        HeadWrite::NoAnswer(error) => assert_eq!(error.kind, NoAnswerKind::Denied),
        other => panic!("{other:?}"),
    }
    store.get("b/c").await.unwrap();
}

#[tokio::test]
async fn reading_writes_nothing() {
    let root = tempfile::tempdir().unwrap();
    let store = open(&root.path().join("store"));

    store.get("a").await.unwrap_err();
    store.delete("a").await.unwrap();
    assert_eq!(store.list("", None, 1).await.unwrap(), []);
    assert_eq!(store.read_head("h/head.json", None).await.unwrap(), HeadRead::Missing);

    assert_eq!(fs::read_dir(root.path()).unwrap().count(), 0);
}

#[tokio::test]
async fn a_relative_root_is_refused() {
    assert!(matches!(LocalDir::open("a/b"), Err(LocalError::Relative { .. })));
}

#[tokio::test]
async fn a_folder_that_somebody_removed_is_made_again() {
    let root = tempfile::tempdir().unwrap();
    let store = open(root.path());
    store.put("a/b/1", Bytes::new()).await.unwrap();
    fs::remove_dir_all(root.path().join("a")).unwrap();

    store.put("a/b/2", Bytes::from_static(b"x")).await.unwrap();

    assert_eq!(store.get("a/b/2").await.unwrap(), "x");
}

#[tokio::test]
async fn a_root_that_cannot_be_made_is_a_named_error() {
    let root = tempfile::tempdir().unwrap();
    fs::write(root.path().join("file"), "").unwrap();
    let store = open(&root.path().join("file/store"));

    let error = store.put("a", Bytes::new()).await.unwrap_err();

    assert!(error.source().is_some(), "{error:?}");
}

#[tokio::test]
async fn other_files_in_the_directory_are_not_ours() {
    let root = tempfile::tempdir().unwrap();
    let store = open(root.path());
    store.put("a/1", Bytes::new()).await.unwrap();
    store.create_head("h/head.json", Bytes::new()).await;
    assert!(root.path().join(".headwater/locks").is_dir());

    let keys: Vec<_> =
        store.list("", None, 9).await.unwrap().into_iter().map(|it| it.key).collect();
    assert_eq!(keys, ["a/1", "h/head.json"]);
    assert_eq!(store.list_folder("").await.unwrap().folders, ["a/", "h/"]);
    let own = store.get(".headwater/locks/00").await;
    assert!(matches!(own, Err(ReadError::Denied { .. })), "{own:?}");
}

#[tokio::test]
async fn a_file_whose_name_is_no_key_is_passed_over() {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;

    let root = tempfile::tempdir().unwrap();
    fs::write(root.path().join(OsStr::from_bytes(b"\xff")), "").unwrap();
    fs::write(root.path().join("a"), "").unwrap();

    let listed = open(root.path()).list("", None, 9).await.unwrap();

    assert_eq!(listed.len(), 1);
}

#[tokio::test]
async fn a_root_that_was_removed_is_not_an_empty_store() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join("store");
    let store = open(&root);
    assert!(matches!(store.get("h/x").await, Err(ReadError::Missing { .. })), "not there yet");
    store.put("h/x", "1".into()).await.unwrap();
    store.get("h/x").await.unwrap();

    // As when its volume is no longer mounted: gone, or an empty folder.
    fs::rename(&root, folder.path().join("away")).unwrap();
    for _ in 0..2 {
        let read = store.get("h/x").await.unwrap_err();
        assert!(matches!(read, ReadError::Unavailable { .. }), "{read:?}");
        let head = store.read_head("h/head.json", None).await.unwrap_err();
        assert!(matches!(head, ReadError::Unavailable { .. }), "{head:?}");
        store.list_folder("").await.unwrap_err();
        store.put("h/y", "2".into()).await.unwrap_err();
        fs::create_dir_all(&root).unwrap();
    }

    fs::remove_dir(&root).unwrap();
    fs::rename(folder.path().join("away"), &root).unwrap();
    assert_eq!(store.get("h/x").await.unwrap(), "1");
}
