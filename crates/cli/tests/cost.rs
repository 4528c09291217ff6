//! `cost`, with the real binary.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot set up has failed")]

mod support;

use std::time::Duration;

use serde_json::Value;
use support::{Served, headwater, run, wait_until};

fn estimate(arguments: &[&str]) -> Value {
    let all = [&["cost", "--json", "--price-of", "s3-standard"], arguments].concat();
    run(headwater(&all), b"").only()
}

fn total(answer: &Value) -> f64 {
    answer["dollarsPerMonth"]["total"].as_f64().unwrap()
}

#[test]
fn a_described_load_costs_more_with_more_of_everything() {
    let usual = total(&estimate(&[]));
    for more in [
        &["--operations", "100"],
        &["--replicas", "20"],
        &["--strong-reads", "500"],
        &["--state-gib", "100"],
    ] {
        assert!(usual < total(&estimate(more)), "{more:?}");
    }
    assert!(usual < total(&estimate(&["--service-kept"])));
    assert!(total(&estimate(&["--no-push", "--poll-ms", "10000"])) < usual);
    assert!(total(&estimate(&["--write-ms", "1000"])) < usual, "batches are larger");
}

#[test]
fn what_cannot_be_is_refused_by_name() {
    for (arguments, named) in [
        (&["--operations=-1"][..], "--operations"),
        (&["--price-of", "nowhere"], "nowhere"),
        (&["--prices", "/does/not/exist"], "/does/not/exist"),
        (&["--writer-fold-changes", "0"], "fold_changes"),
    ] {
        let all = [&["cost"], arguments].concat();
        let ran = run(headwater(&all), b"");
        assert_eq!(ran.code, 2, "{arguments:?}");
        assert!(ran.stderr.contains(named), "{}", ran.stderr);
    }
}

#[test]
fn prices_can_be_printed_changed_and_used() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("prices.json");
    let shown = run(headwater(&["cost", "--show-prices"]), b"");
    let text = String::from_utf8(shown.stdout).unwrap();
    std::fs::write(&path, text.replacen("0.005", "0.010", 1)).unwrap();

    let dearer = estimate(&["--prices", path.to_str().unwrap(), "--replicas", "0"]);
    let usual = estimate(&["--replicas", "0"]);

    let puts = |it: &Value| it["dollarsPerMonth"]["puts"].as_f64().unwrap();
    assert!((puts(&dearer) - 2.0 * puts(&usual)).abs() < 0.02);
}

#[test]
fn a_running_process_is_asked_for_what_it_has_counted() {
    let folder = tempfile::tempdir().unwrap();
    let served = Served::start(folder.path());
    served.ask(&["create", "h"]);
    for n in 0..5 {
        served.ask(&["put", "h", &format!("k{n}"), "v"]);
    }
    std::thread::sleep(Duration::from_secs(1));
    let mut answer = Value::Null;
    wait_until("it has counted for a second", || {
        let ran = served.run(&["cost", "--from-process", "--price-of", "s3-standard"]);
        let is_done = ran.code == 0;
        if is_done {
            answer = ran.only();
        }
        is_done
    });

    // Head and snapshot of a new history, and five replacements at least, in
    // less than two minutes.
    assert!(7.0 * 21_888.0 < answer["usage"]["puts"].as_f64().unwrap(), "{answer}");
    assert!(0.0 < answer["usage"]["bytesUp"].as_f64().unwrap());
    assert!(answer["parts"]["process"].is_object());
}
