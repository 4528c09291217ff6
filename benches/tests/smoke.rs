//! The bench binary runs, and its lines say what they are said to say.

#![allow(clippy::unwrap_used, reason = "a test that cannot set up has failed")]

use std::process::Command;

use serde_json::Value;

fn lines(args: &[&str]) -> Vec<Value> {
    let output = Command::new(env!("CARGO_BIN_EXE_headwater-bench"))
        .args(["--json", "--seconds", "1", "--write-ms", "4", "--read-ms", "2"])
        .args(args)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines().map(|it| serde_json::from_str(it).unwrap()).collect()
}

#[test]
fn each_scenario_prints_a_line_for_each_number_of_callers() {
    let lines = lines(&["all", "--callers", "1,16"]);

    let named: Vec<_> = lines
        .iter()
        .map(|it| (it["scenario"].as_str().unwrap(), it["callers"].as_u64().unwrap()))
        .collect();
    assert_eq!(named, [("commit", 1), ("strong-read", 1), ("commit", 16), ("strong-read", 16)]);
    for line in &lines {
        assert!(0 < line["calls"].as_u64().unwrap(), "{line}");
        assert_eq!(line["failures"], 0, "{line}");
        for figure in ["perSecond", "p50Ms", "p99Ms", "p50Ratio"] {
            assert!(0.0 < line[figure].as_f64().unwrap(), "{figure} in {line}");
        }
    }
    // A commit costs at least one replacement for a batch, a read at most one
    // check; neither does the other's.
    assert!(0.0 < lines[0]["putsPerCall"].as_f64().unwrap());
    assert_eq!(lines[1]["putsPerCall"], 0.0);
    assert!(lines[3]["getsPerCall"].as_f64().unwrap() < 1.0, "checks are shared: {}", lines[3]);
    assert!(
        lines[2]["putsPerCall"].as_f64().unwrap() < 1.0,
        "operations are batched: {}",
        lines[2]
    );
}

#[test]
fn the_same_through_grpc() {
    let lines = lines(&["all", "--callers", "4", "--grpc"]);

    assert_eq!(lines.len(), 2);
    assert!(lines.iter().all(|it| it["failures"] == 0 && it["isGrpc"] == true), "{lines:?}");
}
