//! The bench binary runs, and its lines say what they are said to say.

#![allow(clippy::unwrap_used, reason = "a test that cannot set up has failed")]
#![allow(
    clippy::panic,
    clippy::float_cmp,
    reason = "counts that are exact, and lines that must be there"
)]

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

/// One small run of a scenario.
fn small(scenario: &str, more: &[&str]) -> Vec<Value> {
    let sizes = ["--callers", "4", "--state-mib", "2", "--changes", "40"];
    let lines = lines(&[&[scenario], &sizes[..], more].concat());
    assert!(lines.iter().all(|it| it["failures"] == 0), "{lines:?}");
    lines
}

fn figure(line: &Value, name: &str) -> f64 {
    line[name].as_f64().unwrap_or_else(|| panic!("no {name} in {line}"))
}

#[test]
fn writers_that_contend_are_compared_with_one() {
    let lines = small("commit-contended", &["--writers", "2"]);

    assert_eq!(figure(&lines[0], "writers"), 1.0);
    assert!(0.0 < figure(&lines[1], "togetherToAlone"));
    assert!(figure(&lines[1], "slowestToMean") <= 1.0);
    assert!(1.0 <= figure(&lines[1], "attemptsPerReplacement"));
    assert_eq!(figure(&lines[1], "forwarding"), 0.0);
    assert!(0.0 < figure(&lines[2], "togetherToAlone"));
    assert_eq!(figure(&lines[2], "forwarding"), 1.0);
}

#[test]
fn reads_at_hand_ask_the_store_for_nothing() {
    let lines = small("read-mix", &[]);

    assert!(figure(&lines[0], "getsPerCall") < 0.5, "{lines:?}");
}

#[test]
fn a_replica_that_is_told_sees_a_commit_sooner() {
    let lines = small("follow-lag", &[]);

    let [told, not_told] = &lines[..] else { panic!("{lines:?}") };
    assert!(figure(told, "p50Ms") < figure(not_told, "p50Ms"), "{lines:?}");
}

#[test]
fn a_new_replica_finds_all_that_was_written() {
    let lines = small("cold-start", &[]);

    let entries = (2 << 20) / (1_024 + 20);
    assert!(f64::from(entries) < figure(&lines[0], "entries"), "{lines:?}");
    assert!(figure(&lines[0], "firstAnswerMs") <= figure(&lines[0], "wholeMs"));
    assert!(1.5 < figure(&lines[0], "wholeMiB"), "values do not compress: {lines:?}");
}

#[test]
fn a_second_scan_fetches_nothing() {
    let lines = small("scan", &[]);

    let [cold, warm] = &lines[..] else { panic!("{lines:?}") };
    assert_eq!(cold["entries"], warm["entries"]);
    // The one that fetches nothing checks the head once for each strong read.
    assert!(figure(warm, "bytesDownPerCall") < figure(cold, "bytesDownPerCall").max(1.0));
}

#[test]
fn the_first_commits_are_compared_with_the_last() {
    let lines = small("long-history", &[]);

    assert_eq!(lines[0]["calls"], 40);
    assert!(0.0 < figure(&lines[0], "lastToFirst") && 0.0 < figure(&lines[0], "headBytes"));
}

#[test]
fn followers_add_no_request_to_the_writer() {
    let lines = small("replicas", &["--replicas", "3"]);

    let shape: Vec<_> =
        lines.iter().map(|it| (figure(it, "replicas"), figure(it, "pushed"))).collect();
    assert_eq!(shape, [(0.0, 0.0), (3.0, 0.0), (3.0, 1.0)]);
    // The writer reads to open the history, and an entry that was uploaded once
    // when it is folded. Replicas that asked it for more would show: three of
    // them follow.
    for line in &lines {
        let gets = figure(line, "getsPerCall") * figure(line, "calls");
        let puts = figure(line, "putsPerCall") * figure(line, "calls");
        assert!(gets < 20.0 + puts, "{line}");
    }
}

#[test]
fn an_idle_history_is_only_checked() {
    let lines = small("idle", &["--replicas", "2"]);

    assert_eq!(figure(&lines[0], "putsPerSecond"), 0.0);
    assert_eq!(figure(&lines[0], "getsPerSecond"), figure(&lines[0], "headReadsPerSecond"));
}

#[test]
fn an_open_loop_makes_as_many_calls_as_it_is_told() {
    let lines = small("commit", &["--per-second", "50"]);

    assert!((45..=55).contains(&lines[0]["calls"].as_u64().unwrap()), "{lines:?}");
}

/// The guarantee at the size of a test; `docs/performance.md` has it at full
/// size.
#[test]
fn a_compaction_writes_what_changed() {
    let output = Command::new(env!("CARGO_BIN_EXE_headwater-bench"))
        .args(["compaction", "--state-bytes", "67108864", "--value-bytes", "16384"])
        .args(["--changed", "4"])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    let lines: Vec<Value> = text.lines().map(|it| serde_json::from_str(it).unwrap()).collect();

    let steps: Vec<_> = lines.iter().map(|it| it["step"].as_str().unwrap()).collect();
    assert_eq!(steps, ["fill", "open", "adjacent", "spread", "verify"]);
    let figure = |line: usize, name: &str| lines[line][name].as_u64().unwrap();
    assert!(64 << 20 <= figure(0, "bytesWritten"));
    assert_eq!(figure(1, "objectsRead"), 3, "head, index, one chunk");
    for line in [2, 3] {
        // Each changed entry is in one chunk, and its end may move.
        assert!((1..=8).contains(&figure(line, "chunksWritten")), "{}", lines[line]);
        assert!(0 < figure(line, "peakResidentBytes"));
    }
    assert!(figure(2, "chunksWritten") <= 3, "{}", lines[2]);
    assert!(figure(2, "bytesWritten") < 8 << 20, "{}", lines[2]);
}

/// Likewise: a history that grows, and the refusal of one that does not hold.
#[test]
fn a_growing_history_stays_within_its_bounds_or_the_program_fails() {
    let run = |more: &[&str]| {
        Command::new(env!("CARGO_BIN_EXE_headwater-bench"))
            .args(["growing-head", "--operations", "4000", "--write-ms", "0", "--read-ms", "0"])
            // The test is not about time: machines that are busy are no failure.
            .args(["--ratio-max", "1000"])
            .args(more)
            .output()
            .unwrap()
    };
    let output = run(&[]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let line: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((line["operations"].as_u64(), line["failures"].as_u64()), (Some(4_000), Some(0)));
    assert_eq!(line["verdict"], "clean");
    assert!(1_000 < line["versions"].as_u64().unwrap(), "{line}");
    // The soft limit for what stays, and what travels on top of it.
    assert!(line["keptBytesMost"].as_u64().unwrap() <= 64 << 10, "{line}");
    assert!(line["headBytesMost"].as_u64().unwrap() <= 406 << 10, "{line}");

    let output = run(&["--swept-objects-max", "1"]);
    assert!(!output.status.success());
    let line: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(line["violations"].as_array().unwrap().len(), 1, "{line}");
}
