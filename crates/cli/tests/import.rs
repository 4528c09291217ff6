//! `import` and `export` with the binary: every line once, whatever is killed
//! in between.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot set up has failed")]

mod support;

use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use serde_json::{Value, json};
use support::{Ran, Served, headwater, read, run, signal, wait_until};

/// A served directory, with a history `h` and a place for inputs.
struct Scene {
    folder: tempfile::TempDir,
    served: Served,
}

impl Scene {
    fn new(options: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let served = Served::start_on(&folder.path().join("data"), "127.0.0.1:0", options);
        served.ask(&["create", "h"]);
        Self { folder, served }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// An input of `count` lines, in order of their keys.
    fn input(&self, count: u64) -> String {
        let lines: String = (1..=count).map(line).collect();
        self.file("in.ndjson", &lines)
    }

    fn file(&self, name: &str, content: &str) -> String {
        let path = self.path(name);
        fs::write(&path, content).unwrap();
        path.into_os_string().into_string().unwrap()
    }

    fn import(&self, arguments: &[&str]) -> Ran {
        self.served.run(&[&["import", "h"], arguments].concat())
    }

    fn operation_count(&self) -> u64 {
        let head = self.served.ask(&["head", "h"]);
        head["head"]["operationCount"].as_u64().unwrap()
    }
}

fn state(input: &str) -> Option<Value> {
    let text = fs::read_to_string(format!("{input}.headwater-import.json")).ok()?;
    Some(serde_json::from_str(&text).expect("a state file is whole at any time"))
}

/// How far an import has recorded that it has come.
fn confirmed(input: &str) -> u64 {
    state(input).map_or(0, |it| it["confirmedThroughLine"].as_u64().unwrap())
}

/// Waits until an import has recorded that it has come so far.
fn wait_for_progress(input: &str, lines: u64) {
    wait_until("the import gets on", || lines <= confirmed(input));
}

fn line(number: u64) -> String {
    let value = "v".repeat(usize::try_from(number % 50).unwrap());
    format!("{{\"key\":\"key-{number:08}\",\"value\":\"{value}{number}\"}}\n")
}

fn counts(summary: &Value) -> (u64, u64, u64) {
    let count = |name: &str| summary[name].as_u64().unwrap();
    (count("appliedLines"), count("foundLines"), count("skippedLines"))
}

#[test]
fn what_is_imported_is_exported_and_twice_is_once() {
    let scene = Scene::new(&[]);
    let odd = "{\"keyBase64\":\"/wA=\",\"valueBase64\":\"gA==\"}\n";
    let content: String = (1..=3_000).map(line).chain([odd.to_owned()]).collect();
    let input = scene.file("in.ndjson", &content);

    let first = scene.import(&[&input]).only();
    assert_eq!(counts(&first), (3_001, 0, 0));
    assert_eq!(first["complete"], true);
    let second = scene.import(&[&input]).only();
    assert_eq!(counts(&second), (0, 0, 3_001));
    assert_eq!(scene.operation_count(), 3_001);

    // Without what the first run recorded, the history itself tells.
    fs::remove_file(format!("{input}.headwater-import.json")).unwrap();
    let third = scene.import(&[&input]).only();
    assert_eq!(counts(&third), (0, 3_001, 0));
    assert_eq!(scene.operation_count(), 3_001);

    let output = scene.path("out.ndjson");
    let exported = scene.served.ask(&["export", "h", "--output", output.to_str().unwrap()]);
    assert_eq!(read(&output), content);
    assert_eq!((&exported["entries"], &exported["resumed"]), (&json!(3_001), &json!(false)));
    let stdout = scene.served.run(&["export", "h"]).stdout;
    assert_eq!(stdout, content.as_bytes());
}

#[test]
fn an_import_that_was_killed_goes_on_where_it_was() {
    let scene = Scene::new(&[]);
    let input = scene.input(20_000);
    let mut import = scene
        .served
        .command(&["import", "h", &input, "--window", "64"])
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    wait_for_progress(&input, 2_500);
    import.kill().unwrap();
    import.wait().unwrap();
    let recorded = confirmed(&input);
    assert!(recorded < 20_000, "it was killed too late to tell anything");

    let (applied, found, skipped) = counts(&scene.import(&[&input]).only());

    assert_eq!((applied + found + skipped, skipped), (20_000, recorded));
    assert!(0 < found, "lines beyond the record were sent again");
    assert_eq!(scene.operation_count(), 20_000);
}

#[test]
fn a_killed_server_is_waited_for() {
    let scene = Scene::new(&[]);
    let input = scene.input(20_000);
    let import = scene
        .served
        .command(&["import", "h", &input, "--window", "256"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    wait_for_progress(&input, 2_500);

    let Scene { folder, served } = scene;
    let address = served.address.clone();
    served.kill();
    let served = Served::start_on(&folder.path().join("data"), &address, &[]);
    let scene = Scene { folder, served };

    let ran = Ran::of(import.wait_with_output().unwrap());
    assert_eq!(ran.code, 0);
    let (applied, found, _) = counts(&ran.only());
    assert_eq!(applied + found, 20_000);
    assert_eq!(scene.operation_count(), 20_000);
}

#[test]
fn a_signal_stops_an_import_and_records_how_far_it_came() {
    let scene = Scene::new(&[]);
    let input = scene.input(20_000);
    let import = scene
        .served
        .command(&["import", "h", &input, "--window", "64"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    wait_for_progress(&input, 2_500);

    signal("INT", &import);

    let ran = Ran::of(import.wait_with_output().unwrap());
    assert_eq!(ran.code, 130);
    let summary = ran.only();
    assert_eq!(summary["complete"], false);
    let recorded = confirmed(&input);
    assert_eq!(recorded, counts(&summary).0, "all that was answered is recorded");
    assert_eq!(scene.operation_count(), recorded);
    assert_eq!(counts(&scene.import(&[&input]).only()), (20_000 - recorded, 0, recorded));
}

#[test]
fn nothing_of_a_file_with_a_bad_line_is_sent() {
    let scene = Scene::new(&[]);
    for (n, (bad, said)) in (0..).zip([
        ("{\"key\":\"k\"", "not an entry"),
        ("{\"key\":\"\",\"value\":\"\"}", "the key is empty"),
        ("{\"key\":\"k\",\"value\":\"v\",\"valueBase64\":\"dg==\"}", "both given"),
    ]) {
        let before = scene.operation_count();
        let name = format!("bad-{}.ndjson", said.replace(' ', "-"));
        let content = format!("{}\n{bad}\n{}", line(3 * n), line(3 * n + 1));
        let input = scene.file(&name, &content);

        let ran = scene.import(&[&input]);

        assert_eq!(ran.code, 2);
        let message = ran.error()["message"].as_str().unwrap().to_owned();
        assert!(message.contains("line 3") && message.contains(said), "{message}");
        assert_eq!(scene.operation_count(), before);

        // So the file can be mended, and is then imported.
        scene.file(&name, &format!("{}\n{}{}", line(3 * n), line(3 * n + 2), line(3 * n + 1)));
        let summary = scene.import(&[&input]).only();
        assert_eq!((counts(&summary), &summary["blankLines"]), ((3, 0, 0), &json!(1)));
        assert_eq!(scene.operation_count(), before + 3);
    }
}

#[test]
fn nothing_after_a_bad_line_of_standard_input_is_sent() {
    let scene = Scene::new(&[]);
    let state = scene.path("state.json").into_os_string().into_string().unwrap();
    let import = |bad: &str, options: &[&str]| {
        let content = format!("{}\n{bad}{}", line(1), line(2));
        scene.served.run_with(&[&["import", "h", "-"], options].concat(), content.as_bytes())
    };
    let advice = |ran: &Ran| ran.error()["advice"].as_str().unwrap().to_owned();

    let kept = import("nonsense\n", &["--state", &state]);
    assert_eq!(kept.code, 2);
    assert_eq!(scene.operation_count(), 1);
    // What is advised is true.
    assert!(advice(&kept).contains("the same --state"), "{}", advice(&kept));
    assert_eq!(counts(&import(&line(3), &["--state", &state]).only()), (2, 0, 2));
    assert_eq!(scene.operation_count(), 3);

    let lost = import("nonsense\n", &["--fresh"]);
    assert_eq!(lost.code, 2);
    assert_eq!(scene.operation_count(), 4);
    assert!(advice(&lost).contains("send only what begins here"), "{}", advice(&lost));
}

#[test]
fn only_a_regular_file_is_read_twice() {
    let scene = Scene::new(&[]);
    for input in [scene.folder.path().to_str().unwrap(), "/dev/null"] {
        let ran = scene.import(&[input]);

        assert_eq!(ran.code, 2);
        let message = ran.error()["message"].as_str().unwrap().to_owned();
        assert!(message.contains("not a regular file"), "{message}");
    }
}

#[test]
fn a_byte_order_mark_is_not_of_the_first_line() {
    let scene = Scene::new(&[]);
    let input = scene.file("in.ndjson", &format!("\u{feff}{}{}", line(1), line(2)));

    assert_eq!(counts(&scene.import(&[&input]).only()), (2, 0, 0));

    assert_eq!(scene.served.ask(&["get", "h", "key-00000001"])["value"], "v1");
}

#[test]
fn lines_of_one_key_are_accepted_in_their_order() {
    let scene = Scene::new(&[]);
    let content: Vec<_> =
        (1..=300).map(|it| format!("{{\"key\":\"{}\",\"value\":\"{it}\"}}\n", it % 3)).collect();
    let content = content.concat();
    let input = scene.file("in.ndjson", &content);

    scene.import(&[&input]).only();

    let values = scene.served.run(&["scan", "h"]).answers;
    let values: Vec<_> = values.iter().map(|it| it["value"].as_str().unwrap()).collect();
    assert_eq!(values, ["300", "298", "299"]);
    let mut last = [0; 3];
    for change in scene.served.run(&["log", "h"]).answers {
        for operation in change["operations"].as_array().unwrap() {
            let put = &operation["mutations"][0]["put"];
            let number = |name: &str| put[name].as_str().unwrap().parse::<usize>().unwrap();
            assert!(last[number("key")] < number("value"));
            last[number("key")] = number("value");
        }
    }
}

#[test]
fn without_a_record_and_without_receipts_nothing_is_sent() {
    let scene = Scene::new(&["--writer-receipt-versions-max", "2"]);
    for value in ["1", "2", "3", "4"] {
        scene.served.ask(&["put", "h", "k", value]);
    }
    let input = scene.input(10);

    let refused = scene.import(&[&input]);
    assert_eq!(refused.code, 2);
    assert!(refused.error()["advice"].as_str().unwrap().contains("--fresh"));
    assert_eq!(scene.operation_count(), 4);

    assert_eq!(counts(&scene.import(&[&input, "--fresh"]).only()), (10, 0, 0));
    assert_eq!(counts(&scene.import(&[&input]).only()), (0, 0, 10));
    assert_eq!(scene.operation_count(), 14);
}

#[test]
fn receipts_that_go_while_it_runs_stop_an_import_without_a_record() {
    let scene = Scene::new(&["--writer-receipt-versions-max", "100"]);
    let input = scene.input(6_000);

    let stopped = scene.import(&[&input, "--window", "16"]);

    assert_eq!(stopped.code, 4);
    let advice = stopped.error()["advice"].as_str().unwrap().to_owned();
    assert!(advice.contains("--fresh"), "{advice}");
    let applied = scene.operation_count();
    assert!(applied < 6_000);
    let summary = stopped.only();
    assert_eq!(counts(&summary).0, applied);
    let unknown = summary["unknownLines"].as_array().unwrap().len() as u64;

    // Whoever knows that there was no earlier run says so, and the rest goes on.
    let rest = scene.import(&[&input, "--fresh", "--window", "16"]);
    assert_eq!(rest.code, i32::from(0 < unknown) * 4);
    assert_eq!(scene.operation_count(), 6_000 - unknown);
}

#[test]
fn a_fresh_import_needs_the_receipts_of_one_span_only() {
    let scene = Scene::new(&["--writer-receipt-versions-max", "100"]);
    let input = scene.input(6_000);

    let imported = scene.import(&[&input, "--fresh", "--window", "16"]);

    assert_eq!(imported.code, 0, "{}", imported.stderr);
    assert_eq!(counts(&imported.only()), (6_000, 0, 0));
    let head = scene.served.ask(&["head", "h"])["head"].clone();
    let coverage_from = head["receiptCoverageFrom"].as_u64().unwrap();
    assert!(1 < coverage_from, "the window has to move for this to tell anything");
    assert_eq!(head["operationCount"], 6_000);
}

#[test]
fn lines_whose_receipts_are_gone_are_unknown_and_never_applied_twice() {
    let scene = Scene::new(&["--writer-receipt-versions-max", "100"]);
    let input = scene.input(20_000);
    let mut import = scene
        .served
        .command(&["import", "h", &input, "--fresh", "--window", "64"])
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    wait_for_progress(&input, 2_500);
    import.kill().unwrap();
    import.wait().unwrap();
    let recorded = confirmed(&input);
    assert!(recorded < 20_000, "it was killed too late to tell anything");
    // One version a line: the window moves past all that the import sent.
    let other: String = (1..=200).map(|it| line(it).replace("key-", "other-")).collect();
    let other = scene.file("other.ndjson", &other);
    scene.import(&[&other, "--fresh", "--window", "1"]).only();
    // By now, what was under way when it was killed is settled.
    let before = scene.operation_count();

    let ran = scene.import(&[&input]);

    assert_eq!(ran.code, 4);
    let summary = ran.only();
    let (applied, found, skipped) = counts(&summary);
    let unknown = summary["unknownLines"].as_array().unwrap();
    assert!(!unknown.is_empty() && unknown.len() <= 2 * 2_048, "{}", unknown.len());
    assert_eq!((found, skipped), (0, recorded));
    assert_eq!(applied + skipped + unknown.len() as u64, 20_000);
    assert_eq!(scene.operation_count(), before + applied);
    // Again says the same, and sends nothing.
    let again = scene.import(&[&input]);
    assert_eq!(again.code, 4);
    assert_eq!(again.only()["unknownLines"], summary["unknownLines"]);
    assert_eq!(scene.operation_count(), before + applied);
}

#[test]
fn standard_input_is_gone_on_with_while_it_begins_alike() {
    let scene = Scene::new(&[]);
    let state = scene.path("state.json").into_os_string().into_string().unwrap();
    let import = |content: &str, options: &[&str]| {
        let arguments = [&["import", "h", "-"], options].concat();
        scene.served.run_with(&arguments, content.as_bytes())
    };
    let content: String = (1..=100).map(line).collect();
    let refused = import(&content, &[]);
    assert_eq!(refused.code, 2);

    let first = import(&format!("{content}nonsense\n"), &["--state", &state]);
    assert_eq!(first.code, 2);
    let more: String = (1..=150).map(line).collect();
    assert_eq!(counts(&import(&more, &["--state", &state]).only()), (50, 0, 100));
    assert_eq!(counts(&import(&more, &["--state", &state]).only()), (0, 0, 150));

    let other: String = (2..=200).map(line).collect();
    assert_eq!(import(&other, &["--state", &state]).code, 2);
    assert_eq!(import(&content, &["--state", &state]).code, 2);
    assert_eq!(scene.operation_count(), 150);
    assert_eq!(counts(&import(&content, &["--fresh"]).only()), (100, 0, 0));
}

#[test]
fn a_record_of_something_else_is_not_used() {
    let scene = Scene::new(&[]);
    let input = scene.input(10);
    scene.import(&[&input]).only();

    // Another input of the same name.
    scene.input(11);
    assert_eq!(scene.import(&[&input]).code, 2);
    scene.input(10);
    // Another history, and another one of the same name.
    scene.served.ask(&["create", "other"]);
    assert_eq!(scene.served.run(&["import", "other", &input]).code, 2);
    let id = scene.served.ask(&["head", "h"])["head"]["historyId"].as_str().unwrap().to_owned();
    scene.served.ask(&["delete-history", "h", "--confirm", &id]);
    scene.served.ask(&["create", "h"]);
    assert_eq!(scene.import(&[&input]).code, 2);
    assert_eq!(scene.operation_count(), 0);

    let state = scene.path("second.json");
    let second = scene.import(&[&input, "--state", state.to_str().unwrap()]).only();
    assert_eq!(counts(&second), (10, 0, 0));
}

#[test]
fn the_writer_can_keep_what_tells_a_repeated_line() {
    let scene = Scene::new(&["--writer-receipt-versions-max", "2"]);
    for value in ["1", "2", "3", "4"] {
        scene.served.ask(&["put", "h", "k", value]);
    }
    let input = scene.input(100);
    assert_eq!(counts(&scene.import(&[&input, "--service-kept"]).only()), (100, 0, 0));
    for value in ["1", "2", "3", "4"] {
        scene.served.ask(&["put", "h", "k", value]);
    }
    fs::remove_file(format!("{input}.headwater-import.json")).unwrap();

    let again = scene.import(&[&input, "--service-kept"]);

    assert_eq!(again.code, 4);
    assert_eq!(scene.operation_count(), 108);
}

/// Imports an input, and again when the receipts are gone: the record then lists
/// every line as unknown.
fn all_unknown(scene: &Scene, input: &str) {
    assert_eq!(scene.import(&[input, "--service-kept"]).code, 0);
    for value in ["1", "2", "3", "4"] {
        scene.served.ask(&["put", "h", "other", value]);
    }
    fs::remove_file(format!("{input}.headwater-import.json")).unwrap();
    assert_eq!(scene.import(&[input, "--service-kept"]).code, 4);
}

#[test]
fn unknown_lines_are_settled_by_what_their_keys_hold() {
    let scene = Scene::new(&["--writer-receipt-versions-max", "2"]);
    let input = scene.input(5);
    let settle = || scene.import(&[&input, "--settle-unknown"]);
    assert_eq!(settle().code, 2, "nothing is recorded yet");
    all_unknown(&scene, &input);
    scene.served.ask(&["put", "h", "key-00000002", "elsewhere"]);
    scene.served.ask(&["delete", "h", "key-00000004"]);
    let before = scene.operation_count();

    let settled = settle();

    assert_eq!(settled.code, 4);
    let [second, fourth, summary] = &settled.answers[..] else { panic!("{settled:?}") };
    assert_eq!((&second["line"], &second["key"]), (&json!(2), &json!("key-00000002")));
    assert_eq!(second["held"]["value"], "elsewhere");
    assert_eq!((&fourth["line"], &fourth["held"]), (&json!(4), &Value::Null));
    assert_eq!(summary["settledLines"], json!([1, 3, 5]));
    assert_eq!(summary["unknownLines"], json!([2, 4]));
    assert_eq!(state(&input).unwrap()["unknownLines"], json!([2, 4]));
    assert_eq!(scene.import(&[&input]).code, 4);
    assert_eq!(scene.operation_count(), before, "nothing was written");

    // Once the data are as the lines say, nothing is left of it.
    scene.served.ask(&["put", "h", "key-00000002", "vv2"]);
    scene.served.ask(&["put", "h", "key-00000004", "vvvv4"]);
    let settled = settle();
    assert_eq!(settled.code, 0, "{}", settled.stderr);
    assert_eq!(settled.only()["settledLines"], json!([2, 4]));
    assert_eq!(scene.import(&[&input]).code, 0);
}

#[test]
fn a_line_is_settled_by_a_later_one_of_its_key() {
    let scene = Scene::new(&["--writer-receipt-versions-max", "2"]);
    let values = [("a", "1"), ("b", "1"), ("a", "2"), ("b", "2"), ("a", "3")];
    let line = |(key, value)| format!("{{\"key\":\"{key}\",\"value\":\"{value}\"}}\n");
    let input = scene.file("in.ndjson", &values.map(line).concat());
    all_unknown(&scene, &input);
    // A line with an outcome follows those of `b`, whatever the key holds now.
    edit(&input, |state| state["unknownLines"] = json!([1, 2, 3, 5]));
    scene.served.ask(&["put", "h", "a", "2"]);
    scene.served.ask(&["put", "h", "b", "elsewhere"]);

    let settled = scene.import(&[&input, "--settle-unknown"]);

    assert_eq!(settled.code, 4);
    let [fifth, summary] = &settled.answers[..] else { panic!("{settled:?}") };
    assert_eq!((&fifth["line"], &fifth["held"]["value"]), (&json!(5), &json!("2")));
    assert_eq!(summary["settledLines"], json!([1, 2, 3]));
}

#[test]
fn lines_that_the_next_run_sends_again_are_not_settled() {
    let scene = Scene::new(&["--writer-receipt-versions-max", "2"]);
    let input = scene.input(3);
    all_unknown(&scene, &input);
    edit(&input, |state| {
        state["confirmedThroughLine"] = json!(0);
        state["confirmedChain"] = json!("0".repeat(64));
        state["complete"] = json!(false);
    });

    let settled = scene.import(&[&input, "--settle-unknown"]);

    assert_eq!(settled.code, 4);
    assert_eq!(settled.only()["unknownLines"], json!([1, 2, 3]));
    assert_eq!(scene.import(&[&input]).code, 4);
    assert_eq!(scene.import(&[&input, "--settle-unknown"]).code, 0);
}

/// Changes what an import has recorded.
fn edit(input: &str, change: impl FnOnce(&mut Value)) {
    let mut edited = state(input).unwrap();
    change(&mut edited);
    fs::write(format!("{input}.headwater-import.json"), edited.to_string()).unwrap();
}

#[test]
fn no_server_stops_an_import_before_anything_is_sent() {
    let folder = tempfile::tempdir().unwrap();
    let input = folder.path().join("in.ndjson");
    fs::write(&input, line(1)).unwrap();
    let ran = |path: &Path, limit: [&str; 2]| {
        let import = ["import", "h", path.to_str().unwrap(), "--json", "--writer", "127.0.0.1:1"];
        run(headwater(&[&import[..], &limit].concat()), b"")
    };

    assert_eq!(ran(&input, ["--deadline-seconds", "1"]).code, 7);
    let missing = ran(&folder.path().join("absent"), ["--deadline-seconds", "1"]);
    assert_eq!(missing.code, 2);
    assert!(missing.error()["message"].as_str().unwrap().contains("absent"));
}

#[test]
fn the_first_call_of_an_import_gives_up_when_it_is_told_to() {
    let folder = tempfile::tempdir().unwrap();
    let input = folder.path().join("in.ndjson");
    fs::write(&input, line(1)).unwrap();
    // Takes calls, and never answers: only its own limit ends the import's.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let import = ["import", "h", input.to_str().unwrap(), "--json", "--writer", &address];
    let limits = ["--give-up-seconds", "1", "--deadline-seconds", "300"];
    let mut command = headwater(&[&import[..], &limits].concat());
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();

    wait_until("the import gives up", || child.try_wait().unwrap().is_some());

    assert_eq!(child.wait().unwrap().code(), Some(7));
}
