//! Reads as of a moment.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot set up has failed")]

mod support;

use serde_json::{Value, json};
use support::Served;

const LATER: &str = "2999-01-01T00:00:00Z";

#[test]
fn what_a_key_was_at_a_moment_is_read_again() {
    let root = tempfile::tempdir().unwrap();
    let served = Served::start(root.path());
    served.ask(&["create", "h"]);
    served.ask(&["put", "h", "k", "first"]);
    let found = served.ask(&["version-at", "h", LATER]);
    let first_at = found["decidedAt"].as_str().unwrap().to_owned();
    assert_eq!((&found["version"], &found["stamp"]["stateVersion"]), (&json!(1), &json!(1)));
    // Until the clock has moved on by a millisecond.
    let mut version = 1;
    while served.ask(&["version-at", "h", &first_at])["version"] == version {
        served.ask(&["put", "h", "k", "later"]);
        version += 1;
    }
    served.ask(&["put", "h", "k", "last"]);

    let before = served.ask(&["get", "h", "k", "--at-time", &first_at]);
    assert_eq!(before["stamp"]["stateVersion"], version - 1);
    assert_eq!(before["value"] == "first", version == 2);
    assert_eq!(served.ask(&["get", "h", "k", "--at-time", LATER])["value"], "last");
    let scanned = served.run(&["scan", "h", "--at-time", LATER]).answers;
    assert_eq!(scanned[0]["value"], "last");

    // Version 0 is there, and empty.
    let start = served.ask(&["version-at", "h", "1971-01-01T00:00:00Z"]);
    assert_eq!((&start["version"], &start["decidedAt"]), (&json!(0), &Value::Null));
    let none = served.run(&["get", "h", "k", "--at-time", "1971-01-01T00:00:00Z"]);
    assert_eq!(none.code, 6);
    assert_eq!(served.run(&["get", "h", "k", "--at-time", "today"]).code, 2);
    assert_eq!(served.run(&["get", "h", "k", "--at-time", LATER, "--any"]).code, 2);
}
