//! The operator's commands against a running `headwater serve`, and their exit
//! codes.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot set up has failed")]

mod support;

use std::fs;
use std::net::TcpListener;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};
use support::{Served, headwater, run, without_variables};

fn served() -> (tempfile::TempDir, Served) {
    let root = tempfile::tempdir().unwrap();
    let served = Served::start(root.path());
    served.ask(&["create", "h"]);
    (root, served)
}

#[test]
fn what_is_put_is_read_by_every_command() {
    let (_root, served) = served();

    let put = served.ask(&["put", "h", "greeting", "hello"]);
    assert_eq!((&put["outcome"], &put["stateVersion"]), (&json!("accepted"), &json!(1)));
    served.ask(&["put", "h", "/wA=", "gA==", "--base64"]);

    let got = served.ask(&["get", "h", "greeting"]);
    assert_eq!((&got["value"], &got["version"]), (&json!("hello"), &json!(1)));
    assert_eq!(got["stamp"]["stateVersion"], 2);
    let got = served.ask(&["get", "h", "/wA=", "--base64"]);
    assert_eq!((&got["keyBase64"], &got["valueBase64"]), (&json!("/wA="), &json!("gA==")));
    let got = served.ask(&["get", "h", "Z3JlZXRpbmc=", "--base64"]);
    assert_eq!(got["keyBase64"], "Z3JlZXRpbmc=");
    assert_eq!((&got["valueBase64"], &got["value"]), (&json!("aGVsbG8="), &Value::Null));

    let keys: Vec<_> = served.run(&["scan", "h", "--reverse", "--keys-only"]).answers;
    assert_eq!(keys[0], json!({ "keyBase64": "/wA=", "version": 2 }));
    assert_eq!(keys[1], json!({ "key": "greeting", "version": 1 }));
    assert_eq!(served.run(&["scan", "h", "--limit", "1"]).answers.len(), 1);
    assert_eq!(served.run(&["scan", "h", "--prefix", "gree"]).answers.len(), 1);
    assert_eq!(served.run(&["scan", "h", "--start", "h"]).answers.len(), 1);

    let log = served.run(&["log", "h"]).answers;
    assert_eq!(log.len(), 2);
    assert_eq!(log[0]["version"], 1);
    assert_eq!(log[0]["operations"][0]["operationId"], put["operationId"]);
    let mutation = json!({ "put": { "key": "greeting", "value": "hello" } });
    assert_eq!(log[0]["operations"][0]["mutations"], json!([mutation]));
    assert_eq!(served.run(&["log", "h", "--last", "1"]).only()["version"], 2);
    assert_eq!(served.run(&["log", "h", "--from", "1", "--limit", "1"]).only()["version"], 1);

    let head = served.ask(&["head", "h"]);
    assert_eq!(head["head"]["stateVersion"], 2);
    assert_eq!(head["head"]["operationCount"], 2);
    let op = served.ask(&["op", "h", put["operationId"].as_str().unwrap()]);
    assert_eq!((&op["outcome"], &op["stateVersion"]), (&json!("accepted"), &json!(1)));
    assert_eq!(served.ask(&["list"])["history"], "h");

    assert_eq!(served.run(&["delete", "h", "greeting"]).code, 0);
    assert_eq!(served.run(&["get", "h", "greeting"]).code, 6);
    let before = served.ask(&["get", "h", "greeting", "--exact", "2"]);
    assert_eq!(before["value"], "hello");
    assert_eq!(served.stop(), 0);
}

#[test]
fn a_transaction_is_all_or_nothing() {
    let (_root, served) = served();
    served.ask(&["put", "h", "a", "1"]);
    let txn = |value: Value| served.run_with(&["txn", "h"], value.to_string().as_bytes());

    let accepted = txn(json!({
        "operationId": "t-1",
        "preconditions": [{ "valueEquals": { "key": "a", "value": "1" } }],
        "mutations": [
            { "put": { "key": "a", "value": "2" } },
            { "add": { "key": "n", "delta": 5 } },
            { "add": { "key": "n", "delta": -7 } },
        ],
    }));
    assert_eq!(accepted.code, 0, "{}", accepted.stderr);
    let answer = accepted.only();
    assert_eq!(answer["operationId"], "t-1");
    let sums = json!([{ "mutation": 1, "sum": 5 }, { "mutation": 2, "sum": -2 }]);
    assert_eq!(answer["results"], sums);
    assert_eq!(served.ask(&["get", "h", "n", "--int"])["int"], -2);

    let rejected = txn(json!({
        "preconditions": [
            { "keyExists": { "key": "a" } },
            { "keyAtVersion": { "key": "a", "version": 1 } },
        ],
        "mutations": [{ "delete": { "key": "a" } }],
    }));
    assert_eq!(rejected.code, 3);
    let answer = rejected.only();
    assert_eq!(answer["outcome"], "rejected");
    let conflict = json!({ "kind": "changed", "key": "a", "versionSeen": 2, "precondition": 1 });
    assert_eq!(answer["conflicts"], json!([conflict]));
    assert_eq!(served.ask(&["get", "h", "a"])["value"], "2");

    assert_eq!(txn(json!({ "mutations": [{ "set": {} }] })).code, 2);
    let named = json!({ "operationId": "t-2", "mutations": [{ "delete": { "key": "a" } }] });
    let two = served.run_with(&["txn", "h", "--operation-id", "t-3"], named.to_string().as_bytes());
    assert_eq!(two.code, 2);
    let one = served.run_with(&["txn", "h", "--operation-id", "t-2"], named.to_string().as_bytes());
    assert_eq!(one.code, 0, "{}", one.stderr);
    assert_eq!(one.only()["operationId"], "t-2");
    assert_eq!(served.ask(&["add", "h", "n", "-1"])["results"][0]["sum"], -3);
}

#[test]
fn preconditions_of_one_key_are_options() {
    let (_root, served) = served();
    served.ask(&["put", "h", "k", "1"]);
    served.ask(&["put", "h", "past", "1"]);
    let code = |options: &[&str]| served.run(&[&["put", "h", "k", "1"], options].concat()).code;

    assert_eq!(code(&["--if-absent"]), 3);
    assert_eq!(code(&["--if-version", "2"]), 3);
    assert_eq!(code(&["--if-value", "2"]), 3);
    assert_eq!(code(&["--if-exists", "--if-version", "1", "--if-value", "1"]), 0);
    assert_eq!(code(&["--if-unchanged-since", "1"]), 3);
    assert_eq!(code(&["--if-unchanged-since", "3"]), 0);
    // A version to come is of another history.
    assert_eq!(code(&["--if-version", "9"]), 2);
    assert_eq!(served.run(&["delete", "h", "other", "--if-exists"]).code, 3);
}

#[test]
fn an_operation_id_makes_a_command_safe_to_repeat() {
    let (_root, served) = served();
    let add = ["add", "h", "n", "1", "--operation-id", "once"];

    let first = served.ask(&add);
    let second = served.ask(&add);

    assert_eq!((&first["fromReceipt"], &second["fromReceipt"]), (&json!(false), &json!(true)));
    assert_eq!(first["results"], second["results"]);
    assert_eq!(first["issuedFromVersion"], 0);
    // Whoever chose the id is told of which history the answer is.
    let id = &served.ask(&["head", "h"])["head"]["historyId"];
    assert_eq!((&first["historyId"], &second["historyId"]), (id, id));
    assert_eq!(served.ask(&["get", "h", "n", "--int"])["int"], 1);
    let reused = served.run(&["add", "h", "n", "2", "--operation-id", "once"]);
    assert_eq!(reused.code, 2);
    assert_eq!(reused.error()["reason"], "OPERATION_ID_REUSED");
    assert_eq!(reused.error()["determinacy"], "not_applied");

    // What is printed is what makes it a retry.
    let put = served.ask(&["put", "h", "k", "v"]);
    let text = |name: &str| put[name].as_str().unwrap().to_owned();
    let issued = put["issuedFromVersion"].to_string();
    let again = served.ask(&[
        "put",
        "h",
        "k",
        "v",
        "--operation-id",
        &text("operationId"),
        "--issued-from",
        &issued,
        "--history-id",
        &text("historyId"),
    ]);
    assert_eq!((&again["fromReceipt"], &again["stateVersion"]), (&json!(true), &json!(2)));

    let kept = ["add", "h", "n", "1", "--operation-id", "kept", "--service-kept"];
    assert_eq!(served.ask(&kept)["fromReceipt"], false);
    assert_eq!(served.ask(&kept)["fromReceipt"], true);
    let missing = served.run(&["op", "h", "never", "--service-kept"]);
    assert_eq!(missing.code, 6);
    assert_eq!(missing.only()["outcome"], "notAccepted");
}

#[test]
fn an_outcome_that_nobody_can_tell_has_its_own_exit_code() {
    let root = tempfile::tempdir().unwrap();
    let options = ["--writer-receipt-versions-max", "1"];
    let served = Served::start_on(root.path(), "127.0.0.1:0", &options);
    served.ask(&["create", "h"]);
    let add = ["add", "h", "n", "1", "--operation-id", "old"];
    served.ask(&add);
    for value in ["1", "2", "3"] {
        served.ask(&["put", "h", "k", value]);
    }

    let unknown = served.run(&add);

    assert_eq!(unknown.code, 4);
    assert_eq!(unknown.only()["outcome"], "unknown");
    assert_eq!(served.run(&["op", "h", "old"]).code, 4);
    assert_eq!(served.ask(&["get", "h", "n", "--int"])["int"], 1);
}

#[test]
fn what_breaks_a_rule_is_refused_by_name() {
    let (root, served) = served();
    let large = root.path().join("large");
    fs::write(&large, vec![b'x'; (1 << 20) + 1]).unwrap();
    let large = large.to_str().unwrap();
    let huge = root.path().join("huge");
    fs::write(&huge, vec![b'x'; 9 << 20]).unwrap();
    let (huge, folder) = (huge.to_str().unwrap(), root.path().to_str().unwrap());

    for (arguments, said) in [
        (&["create", "a/../b"][..], "`..`"),
        (&["create", ""], "name"),
        (&["put", "h", "", "v"], "key"),
        (&["put", "h", &"k".repeat(1_025), "v"], "1024"),
        (&["put", "h", "k", "--value-file", large], "1048576"),
        (&["put", "h", "k", "--value-file", huge], "mutations[0].put.value: a value is 9437184"),
        (&["put", "h", "k", "--value-file", folder], "directory"),
        (&["put", "h", "k", "--value-file", "/does/not/exist"], "/does/not/exist"),
        (&["put", "h", "not base64", "v", "--base64"], "base64"),
        (&["get", "h", ""], "key"),
        (&["scan", "h", "--start", "b", "--end", "a"], "range"),
        (&["put", "h", "k", "v", "--operation-id", "x", "--issued-from", "99"], "99"),
        (&["raise-epoch", "h"], "exclusive"),
        (&["delete-history", "h", "--confirm", "00000000000000000000000000000000"], "confirm"),
    ] {
        let ran = served.run(arguments);
        assert_eq!(ran.code, 2, "{arguments:?}: {}", ran.stderr);
        let message = ran.error()["message"].as_str().unwrap().to_owned();
        assert!(message.contains(said), "{arguments:?}: {message}");
        assert!(!message.contains("invalid request"), "{arguments:?}: {message}");
    }
    // What can never work is not to be repeated.
    let mut put = headwater(&["put", "h", "k", "--value-file", large, "--operation-id", "x"]);
    put.args(["--writer", &served.address]);
    let text = run(put, b"").stderr;
    assert!(text.contains("applied: no") && !text.contains("--operation-id"), "{text}");
    assert_eq!(served.ask(&["head", "h"])["head"]["stateVersion"], 0);
}

#[test]
fn what_is_not_there_is_not_found() {
    let (_root, served) = served();
    served.ask(&["put", "h", "k", "v"]);

    for arguments in [
        &["get", "other", "k"][..],
        &["get", "h", "absent"],
        &["put", "other", "k", "v"],
        &["put", "h", "k", "v", "--history-id", "00000000000000000000000000000000"],
        &["get", "h", "k", "--exact", "9"],
        &["head", "other"],
        &["log", "other"],
        &["op", "h", "never"],
        &["op", "other", "never"],
        &["export", "other"],
        &["delete-history", "other", "--confirm", "00000000000000000000000000000000"],
    ] {
        assert_eq!(served.run(arguments).code, 6, "{arguments:?}");
    }
}

#[test]
fn an_exclusive_history_has_one_owner() {
    let (_root, served) = served();
    assert_eq!(served.run(&["create", "h"]).code, 3);
    served.ask(&["create", "mine", "--exclusive"]);
    let epoch = served.ask(&["raise-epoch", "mine"])["writerEpoch"].to_string();
    assert_eq!(served.run(&["put", "mine", "k", "v", "--epoch", &epoch]).code, 0);

    let fenced = served.run(&["put", "mine", "k", "v", "--epoch", "0"]);

    assert_eq!(fenced.code, 3);
    assert_eq!(fenced.error()["reason"], "FENCED");
    assert_eq!(served.run(&["raise-epoch", "mine", "--expected", "7"]).code, 3);
}

#[test]
fn a_history_is_deleted_once_it_is_confirmed() {
    let (_root, served) = served();
    served.ask(&["put", "h", "k", "v"]);
    let id = served.ask(&["head", "h"])["head"]["historyId"].as_str().unwrap().to_owned();

    let deleted = served.run(&["delete-history", "h", "--confirm", &id]);

    assert_eq!(deleted.code, 0, "{}", deleted.stderr);
    assert_eq!(served.run(&["get", "h", "k"]).code, 6);
    assert_eq!(served.run(&["list"]).answers, Vec::<Value>::new());
}

#[test]
fn no_server_means_not_applied_and_a_silent_one_means_maybe() {
    let put = ["put", "h", "k", "v", "--json", "--operation-id", "a", "--deadline-seconds", "1"];
    // Nobody listens here once it is dropped.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    drop(listener);
    let refused = run(headwater(&[&put[..], &["--writer", &address]].concat()), b"");
    assert_eq!(refused.code, 7, "{}", refused.stderr);
    assert_eq!(refused.error()["determinacy"], "not_applied");

    // Takes the request, and never answers.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let silent = run(headwater(&[&put[..], &["--writer", &address]].concat()), b"");
    assert_eq!(silent.code, 5, "{}", silent.stderr);
    let error = silent.error();
    assert_eq!(error["determinacy"], "maybe_applied");
    assert_eq!((&error["operationId"], &error["issuedFromVersion"]), (&json!("a"), &json!(0)));

    // The same for people: what happened, whether it was applied, what to do.
    let arguments: Vec<_> = put.iter().copied().filter(|it| *it != "--json").collect();
    let text = run(headwater(&[&arguments[..], &["--writer", &address]].concat()), b"").stderr;
    assert!(text.contains("applied: maybe"), "{text}");
    assert!(text.contains("--operation-id a --issued-from 0"), "{text}");
}

#[test]
fn a_creation_in_doubt_says_what_repeats_it() {
    // Takes the request, and never answers.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let create = &["create", "h", "--json", "--deadline-seconds", "1", "--writer", &address][..];

    let silent = run(headwater(create), b"");

    assert_eq!(silent.code, 5, "{}", silent.stderr);
    let error = silent.error();
    let id = error["historyId"].as_str().unwrap();
    assert!(error["advice"].as_str().unwrap().contains(&format!("--history-id {id}")), "{error}");
    assert!(!error["message"].as_str().unwrap().contains("not done"), "{error}");
    let given = "0123456789abcdef0123456789abcdef";
    let silent = run(headwater(&[create, &["--history-id", given]].concat()), b"");
    assert_eq!(silent.error()["historyId"], given);
}

#[test]
fn a_file_is_not_a_place_for_histories() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    fs::write(&file, "").unwrap();
    for root in [file.clone(), file.join("below")] {
        let serve = ["serve", "--json", "--listen", "127.0.0.1:0", "--root"];
        let mut command = headwater(&serve);
        command.arg(&root);

        let ran = run(command, b"");

        assert_eq!(ran.code, 2, "{}", ran.stderr);
        let message = ran.error()["message"].as_str().unwrap().to_owned();
        assert!(message.ends_with("is not a directory"), "{message}");
    }
}

#[test]
fn damaged_data_is_named_and_never_served() {
    let (root, served) = served();
    served.ask(&["put", "h", "k", "v"]);
    assert_eq!(served.stop(), 0);
    let head = root.path().join("h/head.json");
    let bytes = fs::read(&head).unwrap();
    fs::write(&head, &bytes[..bytes.len() / 2]).unwrap();

    let served = Served::start(root.path());

    for arguments in [&["get", "h", "k"][..], &["head", "h"], &["export", "h"]] {
        let ran = served.run(arguments);
        assert_eq!(ran.code, 8, "{arguments:?}: {}", ran.stderr);
        assert_eq!(ran.error()["objectKey"], "h/head.json");
        assert_eq!(ran.stdout, b"");
    }
    let put = served.run(&["put", "h", "k", "w", "--operation-id", "x"]);
    assert_eq!(put.code, 8, "{}", put.stderr);
}

#[test]
fn the_line_to_try_can_be_tried() {
    let root = tempfile::tempdir().unwrap();
    let (_served, said) = Served::start_in_text(root.path());
    let line = said.lines().find_map(|it| it.strip_prefix("try: ")).expect("a line to try");
    let folder = Path::new(env!("CARGO_BIN_EXE_headwater")).parent().unwrap();
    let before = std::env::var_os("PATH").unwrap();
    let folders = std::iter::once(folder.to_owned()).chain(std::env::split_paths(&before));
    let mut shell = Command::new("sh");
    without_variables(&mut shell);
    shell.args(["-c", line]).env("PATH", std::env::join_paths(folders).unwrap());

    let tried = run(shell, b"");

    assert_eq!(tried.code, 0, "{line}: {}", tried.stderr);
    let printed = String::from_utf8(tried.stdout).unwrap();
    assert_eq!(printed.lines().last(), Some("hello"), "{printed}");
}

#[test]
fn a_flag_goes_before_its_variable() {
    let root = tempfile::tempdir().unwrap();
    let in_memory = Served::start_with(|it| {
        it.args(["--listen", "127.0.0.1:0"]).env("HEADWATER_STORE", "memory:")
    });
    assert_eq!(in_memory.store, "memory:");

    let on_disk = Served::start_with(|it| {
        it.args(["--listen", "127.0.0.1:0", "--root"])
            .arg(root.path())
            .env("HEADWATER_STORE", "memory:")
            .env("HEADWATER_LISTEN", "127.0.0.1:1")
            .env("HEADWATER_REPLICA_POLL_MS", "5")
    });

    assert!(on_disk.store.starts_with("file:///"), "{}", on_disk.store);
    assert_eq!(on_disk.run(&["create", "h"]).code, 0);
    assert!(root.path().join("h/head.json").exists());
}

#[test]
fn text_is_for_people() {
    let (root, served) = served();
    let text = |arguments: &[&str]| {
        let mut command = headwater(arguments);
        command.args(["--writer", &served.address]);
        String::from_utf8(run(command, b"").stdout).unwrap()
    };

    let put = text(&["put", "h", "k", "two\nlines", "--operation-id", "first"]);
    assert!(put.starts_with("accepted at version 1\n"), "{put}");
    let id = served.ask(&["head", "h"])["head"]["historyId"].as_str().unwrap().to_owned();
    let repeat = format!("--operation-id first --issued-from 0 --history-id {id}\n");
    assert!(put.ends_with(&repeat), "{put}");
    assert_eq!(text(&["get", "h", "k"]), "two\nlines\n");
    assert_eq!(text(&["get", "h", "k", "--raw"]), "two\nlines");
    assert_eq!(text(&["get", "h", "aw==", "--base64"]), "dHdvCmxpbmVz\n");
    assert_eq!(text(&["scan", "h"]), "k\ttwo\\nlines\n");
    assert!(text(&["add", "h", "n", "41"]).starts_with("41\n"));
    assert_eq!(text(&["get", "h", "n", "--int"]), "41\n");
    assert!(text(&["log", "h"]).contains("put k = two\\nlines"));
    let head = text(&["head", "h"]);
    assert!(head.contains("operations     2 accepted"), "{head}");
    assert!(head.contains("receipts       complete from version 1 on"), "{head}");

    // Bytes that are no text are never shown as if they were.
    text(&["put", "h", "Yg==", "aP8K", "--base64"]);
    let mut get = headwater(&["get", "h", "b"]);
    get.args(["--writer", &served.address]);
    let got = run(get, b"");
    assert_eq!(got.stdout, b"h\\xff\\n\n");
    assert_eq!(got.stderr.lines().count(), 1);
    assert!(got.stderr.contains("--raw") && got.stderr.contains("--base64"), "{}", got.stderr);
    assert_eq!(text(&["get", "h", "Yg==", "--base64"]), "aP8K\n");
    drop(root);
}

#[test]
fn rows_of_tokens_in_files_make_a_file_of_rights() {
    let files = tempfile::tempdir().unwrap();
    let token = |name: &str, json: bool| {
        let out = files.path().join(name);
        let arguments = ["token", "new", "--role", "read", "--histories", "app-", "--name", name];
        let mut command = headwater(&arguments);
        command.arg("--out").arg(&out);
        if json {
            command.arg("--json");
        }
        let output = command.output().unwrap();
        assert!(output.status.success(), "{output:?}");
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        (out, text(output.stdout), text(output.stderr))
    };

    let (out, first, said) = token("first", false);
    let (_, second, _) = token("second", false);
    let secret = fs::read_to_string(&out).unwrap();
    assert!(said.contains(out.to_str().unwrap()), "{said}");
    assert!(!said.contains(&secret) && !first.contains(&secret));

    // As `>> rights.toml` does it: nothing but rows.
    let rights = first + &second;
    let is_toml = |line: &str| line == "[[token]]" || line.is_empty() || line.contains(" = ");
    assert!(rights.lines().all(is_toml), "{rights}");
    assert_eq!(rights.matches("\n[[token]]").count(), 1, "{rights}");
    let (_, answer, said) = token("third", true);
    assert!(serde_json::from_str::<Value>(&answer).unwrap()["row"].is_string());
    assert_eq!(said, "");
}
