//! `headwater watch` against a running `headwater serve`.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot set up has failed")]

mod support;

use std::io::{BufRead as _, BufReader, Lines};
use std::process::{Child, ChildStdout, Stdio};

use serde_json::{Value, json};
use support::{Served, wait_until};

fn served() -> (tempfile::TempDir, Served) {
    let root = tempfile::tempdir().unwrap();
    let served = Served::start(root.path());
    served.ask(&["create", "h"]);
    (root, served)
}

/// A watch under way. Dropping it kills it.
struct Watching {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Watching {
    fn start(served: &Served, arguments: &[&str]) -> Self {
        let mut command = served.command(&[&["watch", "h"], arguments].concat());
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Self { child, lines }
    }

    fn next(&mut self) -> Value {
        serde_json::from_str(&self.lines.next().unwrap().unwrap()).unwrap()
    }
}

impl Drop for Watching {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

#[test]
fn every_version_is_a_line_with_what_was_there_before() {
    let (_root, served) = served();
    served.ask(&["put", "h", "a/1", "one", "--operation-id", "op-1"]);
    served.ask(&["put", "h", "b", "two"]);
    served.ask(&["put", "h", "a/1", "three", "--operation-id", "op-3"]);
    served.ask(&["delete", "h", "a/1", "--operation-id", "op-4"]);

    let lines = served
        .run(&["watch", "h", "--from", "1", "--prefix", "a/", "--prev", "--limit", "3"])
        .answers;

    let entry =
        |value: &str, version: u64| json!({ "key": "a/1", "value": value, "version": version });
    let put = |value: &str| json!({ "key": "a/1", "value": value });
    assert_eq!(
        lines,
        [
            json!({ "version": 1, "mutations": [
                { "operationId": "op-1", "put": put("one"), "previous": [] }
            ] }),
            json!({ "version": 3, "mutations": [
                { "operationId": "op-3", "put": put("three"), "previous": [entry("one", 1)] }
            ] }),
            json!({ "version": 4, "mutations": [
                { "operationId": "op-4", "delete": { "key": "a/1" }, "previous": [entry("three", 3)] }
            ] }),
        ]
    );
    let lines = served.run(&["watch", "h", "--from", "2", "--limit", "1"]).answers;
    assert_eq!(lines[0]["version"], 2);
    assert_eq!(lines[0]["mutations"][0].get("previous"), None);
}

#[test]
fn a_watch_begins_with_the_state_and_outlives_the_server() {
    let (root, served) = served();
    served.ask(&["put", "h", "a", "1"]);
    served.ask(&["put", "h", "b", "2"]);
    let mut watching = Watching::start(&served, &["--snapshot", "--progress-ms", "200"]);

    assert_eq!(watching.next(), json!({ "snapshotBegin": { "version": 2 } }));
    let entry = json!({ "entry": { "key": "a", "value": "1", "version": 1 } });
    assert_eq!(watching.next(), entry);
    watching.next();
    assert_eq!(watching.next(), json!({ "snapshotEnd": { "version": 2 } }));
    served.ask(&["put", "h", "a", "3"]);
    let versions = |watching: &mut Watching, count| {
        let mut versions = Vec::new();
        while versions.len() < count {
            let line = watching.next();
            match line["version"].as_u64() {
                Some(version) => versions.push(version),
                None => assert!(line["progress"]["proofAgeMs"].is_u64(), "{line}"),
            }
        }
        versions
    };
    assert_eq!(versions(&mut watching, 1), [3]);

    let address = served.address.clone();
    served.stop();
    let served = Served::start_on(root.path(), &address, &[]);
    served.ask(&["put", "h", "a", "4"]);
    served.ask(&["put", "h", "a", "5"]);

    assert_eq!(versions(&mut watching, 2), [4, 5]);
}

#[test]
fn a_server_that_stops_does_not_wait_for_its_watches() {
    let root = tempfile::tempdir().unwrap();
    // Longer than anybody waits for a test.
    let served = Served::start_on(root.path(), "127.0.0.1:0", &["--drain-seconds-max", "3600"]);
    served.ask(&["create", "h"]);
    let mut watching = Watching::start(&served, &["--from", "1", "--progress-ms", "100"]);
    watching.next();

    assert_eq!(served.stop(), 0);
}

#[test]
fn what_cannot_be_watched_is_said_with_its_exit_code() {
    let (_root, served) = served();
    let missing = served.run(&["watch", "none"]);
    assert_eq!((missing.code, &missing.error()["reason"]), (6, &json!("HISTORY_MISSING")));
    let inverted = served.run(&["watch", "h", "--start", "b", "--end", "a"]);
    assert_eq!(inverted.code, 2);
    assert_eq!(inverted.error()["fields"][0]["field"], "filters[0]");
    assert_eq!(served.run(&["watch", "h", "--progress-ms", "99"]).code, 2);
    served.ask(&["put", "h", "a", "1"]);
    wait_until("a version is told", || {
        served.run(&["watch", "h", "--from", "1", "--limit", "1"]).code == 0
    });
}
