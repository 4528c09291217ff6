//! The binary on the store that `HEADWATER_TEST_STORE_URL` names: an import,
//! the server killed in the middle of it and started again, and an export that
//! equals the input. `ci/stores` runs it on real servers.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot set up has failed")]

use std::fs;
use std::process::Stdio;

mod support;

use support::{Ran, Served, read, wait_until};

const LINES: u64 = 20_000;

/// When the server is killed.
const LINES_BEFORE: u64 = 2_500;

fn line(number: u64) -> String {
    let value = "v".repeat(usize::try_from(number % 50).unwrap());
    format!("{{\"key\":\"key-{number:08}\",\"value\":\"{value}{number}\"}}\n")
}

/// How far an import has recorded that it has come.
fn confirmed(input: &str) -> u64 {
    let text = fs::read_to_string(format!("{input}.headwater-import.json")).unwrap_or_default();
    let state: Option<serde_json::Value> = serde_json::from_str(&text).ok();
    state.map_or(0, |it| it["confirmedThroughLine"].as_u64().unwrap())
}

#[test]
fn an_import_through_a_killed_server_applies_each_line_once() {
    let Ok(url) = std::env::var("HEADWATER_TEST_STORE_URL") else {
        println!("left out: HEADWATER_TEST_STORE_URL names no store");
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let input = folder.path().join("in.ndjson").into_os_string().into_string().unwrap();
    let content: String = (1..=LINES).map(line).collect();
    fs::write(&input, &content).unwrap();
    let start =
        |listen: &str| Served::start_with(|it| it.args(["--listen", listen, "--store", &url]));
    let served = start("127.0.0.1:0");
    let history = format!("import-{}", std::process::id());
    let created = served.ask(&["create", &history]);
    let import = served
        .command(&["import", &history, &input, "--window", "256"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();

    wait_until("the import gets on", || LINES_BEFORE <= confirmed(&input));
    let address = served.address.clone();
    served.kill();
    assert!(confirmed(&input) < LINES, "it was killed too late to tell anything");
    let served = start(&address);

    let ran = Ran::of(import.wait_with_output().unwrap());
    assert_eq!(ran.code, 0, "{ran:?}");
    let again = served.ask(&["import", &history, &input]);
    assert_eq!(again["appliedLines"], 0, "{again}");
    let head = served.ask(&["head", &history]);
    assert_eq!(head["head"]["operationCount"], LINES);
    let output = folder.path().join("out.ndjson");
    served.ask(&["export", &history, "--output", output.to_str().unwrap()]);
    assert!(read(&output) == content, "the export is not the input");
    let id = created["historyId"].as_str().unwrap();
    served.ask(&["delete-history", &history, "--confirm", id]);
}
