//! A sealed store through the binary: what is on disk, and keys that come and
//! go between runs.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot set up has failed")]

use std::fs;
use std::path::{Path, PathBuf};

mod support;

use support::Served;

const VALUE: &str = "a value that would be found again on disk";

fn secret(digit: char) -> String {
    digit.to_string().repeat(64)
}

/// A file of keys: the first one seals.
fn keys(root: &Path, name: &str, ids: &[(&str, char)]) -> String {
    let lines = ids.iter().map(|(id, digit)| format!("key {id} {}\n", secret(*digit)));
    let path = root.join(name);
    fs::write(&path, format!("names {}\n{}", secret('0'), lines.collect::<String>())).unwrap();
    path.to_str().unwrap().into()
}

fn serve(root: &Path, options: &[&str]) -> Served {
    Served::start_on(&root.join("data"), "127.0.0.1:0", options)
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { found.extend(files(&path)) } else { found.push(path) }
    }
    found
}

fn has(file: &Path, text: &str) -> bool {
    let bytes = fs::read(file).unwrap();
    bytes.windows(text.len()).any(|it| it == text.as_bytes())
}

#[test]
fn keys_rotate_between_runs_and_a_key_that_is_missing_is_named() {
    let root = tempfile::tempdir().unwrap();
    let root = root.path();
    let first = keys(root, "first", &[("2026-05", '1')]);
    let rotated = keys(root, "rotated", &[("2026-11", '2'), ("2026-05", '1')]);
    let second = keys(root, "second", &[("2026-11", '2')]);

    let served = serve(root, &["--store-key-file", &first]);
    served.ask(&["create", "demo"]);
    // Past what travels in the head.
    let large = "x".repeat(10_000);
    served.ask(&["put", "demo", "secret-key", VALUE]);
    served.ask(&["put", "demo", "large", &large]);
    served.ask(&["put", "demo", "a", "1", "--operation-id", "op-kept", "--service-kept"]);
    assert_eq!(served.stop(), 0);
    let on_disk = files(&root.join("data/demo"));
    assert!(4 <= on_disk.len(), "head, snapshot, change, request record: {on_disk:?}");
    for file in &on_disk {
        for text in [VALUE, "secret-key", "xxxxxxxx", "op-kept", "stateVersion"] {
            assert!(!has(file, text), "{} holds {text}", file.display());
        }
        assert!(has(file, "2026-05"), "{}", file.display());
    }

    // In the middle of the rotation; the keys come from a command.
    let served = serve(root, &["--store-key-command", &format!("cat {rotated}")]);
    assert!(served.ask(&["get", "demo", "large"])["value"] == large);
    served.ask(&["put", "demo", "b", "2"]);
    assert_eq!(served.stop(), 0);
    assert!(has(&root.join("data/demo/head.json"), "2026-11"));

    // Too early: what the first key sealed is still needed.
    let served = serve(root, &["--store-key-file", &second]);
    for arguments in [&["get", "demo", "large"][..], &["put", "demo", "c", "3"]] {
        let error = served.run(arguments).error();
        assert_eq!(error["reason"], "STORED_DATA_BAD", "{error}");
        let message = error["message"].as_str().unwrap();
        assert!(message.contains("key `2026-05`") && message.contains("demo/"), "{message}");
    }
    drop(served);

    let served = serve(root, &[]);
    let error = served.run(&["get", "demo", "a"]).error();
    let message = error["message"].as_str().unwrap();
    assert!(message.contains("key `2026-11`") && message.contains("demo/head.json"), "{message}");
    drop(served);

    let served = serve(root, &["--store-key-file", &rotated]);
    assert_eq!(served.ask(&["get", "demo", "secret-key"])["value"], VALUE);
    assert_eq!(served.ask(&["op", "demo", "op-kept"])["outcome"], "accepted");
}
