//! `headwater verify` on a directory: what it prints, and how it exits.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot set up has failed")]

mod support;

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use self::support::{Ran, Served, headwater, run};

/// A directory with a history of 40 versions, compacted and kept.
fn history() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let options = ["--writer-compact-tail-versions", "8", "--writer-compact-keep-versions", "0"];
    let served = Served::start_on(dir.path(), "127.0.0.1:0", &options);
    served.ask(&["create", "a/h"]);
    let lines: Vec<String> =
        (0..40).map(|n| format!("{{\"key\":\"k{n}\",\"value\":\"v\"}}\n")).collect();
    for part in lines.chunks(4) {
        let ran = served.run_with(
            &["import", "a/h", "-", "--fresh", "--window", "1"],
            part.concat().as_bytes(),
        );
        assert_eq!(ran.code, 0, "{}", ran.stderr);
    }
    assert_eq!(served.stop(), 0);
    dir
}

fn verify(root: &Path, arguments: &[&str]) -> Ran {
    let root = root.to_str().unwrap();
    let all = [&["verify", "--json", "--root", root], arguments].concat();
    run(headwater(&all), b"")
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let mut files: Vec<_> = fs::read_dir(folder).unwrap().map(|it| it.unwrap().path()).collect();
    files.sort();
    files
}

fn make_writable(path: &Path) {
    use std::os::unix::fs::PermissionsExt as _;
    fs::set_permissions(path, fs::Permissions::from_mode(0o644)).unwrap();
}

#[test]
fn findings_come_one_a_line_the_summary_last_and_the_exit_code_says_how_bad_it_is() {
    let dir = history();
    let ran = verify(dir.path(), &["a/h"]);
    assert_eq!(ran.code, 0, "{ran:?}");
    let last = ran.answers.last().unwrap();
    assert_eq!((&last["summary"], &last["stateVersion"]), (&"clean".into(), &40.into()));
    assert_eq!(last["parts"]["snapshot"], "done");

    let all = verify(dir.path(), &["--all"]);
    assert_eq!(all.code, 0, "{}", all.stderr);
    assert_eq!(all.answers.last().unwrap()["histories"], 1);

    let limited = verify(dir.path(), &["a/h", "--objects-max", "1"]);
    assert_eq!(limited.code, 10, "{limited:?}");
    assert_eq!(limited.answers.last().unwrap()["summary"], "incomplete");

    fs::write(dir.path().join("a/h/notes"), "x").unwrap();
    assert_eq!(verify(dir.path(), &["a/h"]).code, 0);
    let strict = verify(dir.path(), &["a/h", "--strict"]);
    assert_eq!(strict.code, 9, "{strict:?}");
    assert_eq!(strict.answers[0]["finding"], "foreign");

    let page = files(&dir.path().join("a/h/receipts")).pop().unwrap();
    make_writable(&page);
    fs::write(&page, "bent").unwrap();
    let damaged = verify(dir.path(), &["a/h"]);
    assert_eq!(damaged.code, 8, "{damaged:?}");
    let finding = &damaged.answers[0];
    assert_eq!((&finding["finding"], &finding["severity"]), (&"damaged".into(), &"damage".into()));
    let name = page.file_name().unwrap().to_str().unwrap();
    assert!(finding["key"].as_str().unwrap().ends_with(name), "{finding}");
    assert!(!finding["advice"].as_str().unwrap().is_empty());
    // It cannot be repaired, and says so.
    let ran = verify(dir.path(), &["a/h", "--repair", "--yes"]);
    assert_eq!(ran.code, 8);
    assert_eq!(ran.answers.last().unwrap()["repair"], "impossible");
}

#[test]
fn a_damaged_snapshot_is_mended_with_yes_and_not_without() {
    let dir = history();
    let head = dir.path().join("a/h/head.json");
    let before: Value = serde_json::from_slice(&fs::read(&head).unwrap()).unwrap();
    let index = dir.path().join("a/h").join(before["snapshot"]["key"].as_str().unwrap());
    fs::remove_file(&index).unwrap();

    let ran = verify(dir.path(), &["a/h", "--repair"]);
    assert_eq!(ran.code, 8, "{ran:?}");
    assert_eq!(ran.answers.last().unwrap()["repair"], "planned");
    let untouched: Value = serde_json::from_slice(&fs::read(&head).unwrap()).unwrap();
    assert_eq!(untouched, before);
    assert_eq!(verify(dir.path(), &["a/h", "--yes"]).code, 2, "--yes alone means nothing");

    let ran = verify(dir.path(), &["a/h", "--repair", "--yes"]);
    assert_eq!(ran.code, 0, "{ran:?}");
    assert!(ran.answers.iter().any(|it| it["repair"] == "done"));
    let after: Value = serde_json::from_slice(&fs::read(&head).unwrap()).unwrap();
    assert_eq!(after["stateVersion"], before["stateVersion"]);
    assert_eq!(after["revision"].as_u64(), before["revision"].as_u64().map(|it| it + 1));

    // And it is served again.
    let served = Served::start(dir.path());
    assert_eq!(served.ask(&["get", "a/h", "k17"])["value"], "v");
    served.ask(&["put", "a/h", "k17", "w"]);
    assert_eq!(served.stop(), 0);
    assert_eq!(verify(dir.path(), &["a/h"]).code, 0);
}

#[test]
fn what_is_not_there_is_said_and_nothing_is_made() {
    let dir = tempfile::tempdir().unwrap();
    assert_eq!(verify(dir.path(), &["none"]).code, 6);
    let missing = dir.path().join("missing");
    assert_eq!(verify(&missing, &["h"]).code, 2);
    assert!(!missing.exists());
    assert_eq!(verify(dir.path(), &[]).code, 2, "a history or --all");
}
