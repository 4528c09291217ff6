//! `doctor` and the check at start, through the binary.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot set up has failed")]

use std::io::{Read as _, Seek as _, SeekFrom};
use std::process::{Command, Stdio};

use headwater_s3_double::{
    ACCESS_KEY_ID, Conduct, LifecycleRule, Op, S3Double, SECRET_ACCESS_KEY, Versioning,
};
use serde_json::Value;

mod support;

use support::{Ran, Served, headwater, run, signal, wait_until};

fn with_keys(command: &mut Command) -> &mut Command {
    command.env("AWS_ACCESS_KEY_ID", ACCESS_KEY_ID).env("AWS_SECRET_ACCESS_KEY", SECRET_ACCESS_KEY)
}

async fn start(conduct: Conduct) -> S3Double {
    let double = S3Double::start().await.unwrap();
    double.set_conduct(conduct);
    double
}

fn named(name: &str) -> Conduct {
    Conduct::default().with(name).unwrap()
}

/// Away from the threads of the endpoint.
async fn doctor(double: &S3Double, options: &[&str]) -> Ran {
    let url = double.url("lake");
    let arguments = [&["doctor", &url, "--racers", "8", "--rounds", "3"], options].concat();
    let mut command = headwater(&arguments);
    with_keys(&mut command);
    tokio::task::spawn_blocking(move || run(command, b"")).await.unwrap()
}

fn check<'a>(report: &'a Value, id: &str) -> &'a Value {
    let checks = report["checks"].as_array().unwrap();
    checks.iter().find(|it| it["check"] == id).unwrap_or_else(|| panic!("{id}: {report:#}"))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_careful_bucket_is_fit_and_left_clean() {
    let double = start(Conduct::default()).await;

    let ran = doctor(&double, &["--json"]).await;

    assert_eq!(ran.code, 0, "{ran:?}");
    let report = ran.only();
    assert_eq!((&report["severity"], &report["objectsLeft"]), (&"fit".into(), &0.into()));
    assert_eq!(report["tag"]["source"], "content");
    assert_eq!(check(&report, "clock")["verdict"], "holds");
    assert_eq!(double.keys(), [""; 0]);

    let text = String::from_utf8(doctor(&double, &[]).await.stdout).unwrap();
    assert!(text.contains("The store can be used.\n"), "{text}");
    assert!(text.contains("replacements a second"), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bucket_that_loses_writes_is_refused_by_doctor_and_by_writers() {
    let double = start(named("race")).await;

    let ran = doctor(&double, &["--json"]).await;
    assert_eq!(ran.code, 3, "{ran:?}");
    assert_eq!(check(&ran.only(), "replace-race")["verdict"], "broken");

    let url = double.url("lake");
    let mut command = headwater(&["serve", "--listen", "127.0.0.1:0", "--store", &url, "--json"]);
    with_keys(&mut command);
    let ran = tokio::task::spawn_blocking(move || run(command, b"")).await.unwrap();
    assert_eq!(ran.code, 3, "{ran:?}");
    let message = ran.error()["message"].to_string();
    assert!(message.contains("acknowledged and lost") && message.contains("--trust-store"));

    // Whoever knows better may.
    let served = tokio::task::spawn_blocking(move || {
        Served::start_with(|it| {
            with_keys(it).args(["--listen", "127.0.0.1:0", "--store", &url, "--trust-store"])
        })
    });
    drop(served.await.unwrap());
    assert_eq!(double.keys(), [""; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_unquoted_form_is_chosen_where_the_store_wants_it() {
    let double = start(named("unquoted-tags")).await;

    let ran = doctor(&double, &["--json"]).await;

    assert_eq!(ran.code, 0, "{ran:?}");
    let report = ran.only();
    assert_eq!(report["storeChanged"], true);
    assert!(report["store"].as_str().unwrap().ends_with("&tag_form=unquoted"), "{report:#}");
    let text = String::from_utf8(doctor(&double, &[]).await.stdout).unwrap();
    assert!(text.contains("Use this URL everywhere"), "{text}");
    assert_eq!(double.keys(), [""; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn large_objects_go_by_one_request_where_the_stores_parts_do_not_hold() {
    let conduct = named("unquoted-tags").with("parts-ignore-conditions").unwrap();
    let double = start(conduct).await;

    let ran = doctor(&double, &["--json"]).await;

    assert_eq!(ran.code, 0, "{ran:?}");
    let report = ran.only();
    let url = report["store"].as_str().unwrap();
    assert!(url.ends_with("&tag_form=unquoted&multipart=false"), "{report:#}");
    let large = check(&report, "large-objects");
    assert_eq!(large["verdict"], "holds");
    assert!(large["detail"].as_str().unwrap().contains("by one request"), "{large}");
    assert_eq!(double.keys(), [""; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_writer_may_not_do_is_said_by_name_when_it_starts() {
    for (conduct, names) in [
        ("no-list", &["s3:ListBucket is missing"][..]),
        ("no-delete", &["s3:DeleteObject is missing"]),
        ("reads-ignore-conditions", &["If-None-Match is ignored on reads"]),
    ] {
        let double = start(named(conduct)).await;
        let url = double.url("lake");
        let said = tokio::task::spawn_blocking(move || {
            let mut log = tempfile::tempfile().unwrap();
            let written = log.try_clone().unwrap();
            let served = Served::start_with(|it| {
                with_keys(it).args(["--listen", "127.0.0.1:0", "--store", &url]).stderr(written)
            });
            assert_eq!(served.stop(), 0);
            let mut said = String::new();
            log.seek(SeekFrom::Start(0)).unwrap();
            log.read_to_string(&mut said).unwrap();
            said
        });
        let said = said.await.unwrap();
        assert!(names.iter().all(|it| said.contains(it)), "{conduct}: {said}");
    }
    // Who may only read is no writer.
    let double = start(named("no-put").with("no-delete").unwrap()).await;
    let url = double.url("lake");
    let mut command = headwater(&["serve", "--listen", "127.0.0.1:0", "--store", &url, "--json"]);
    with_keys(&mut command);
    let ran = tokio::task::spawn_blocking(move || run(command, b"")).await.unwrap();
    assert_eq!(ran.code, 3, "{ran:?}");
    let message = ran.error()["message"].to_string();
    assert!(message.contains("s3:PutObject is missing"), "{message}");
}

#[tokio::test(flavor = "multi_thread")]
async fn settings_that_harm_a_history_are_named() {
    let expires = |prefix: &str| LifecycleRule {
        id: "tidy".into(),
        prefix: prefix.into(),
        expire_days: Some(30),
        noncurrent_days: None,
    };
    let conduct = Conduct {
        versioning: Versioning::Enabled,
        lifecycle: vec![expires("lake/")],
        clock_ahead_s: 300,
        ..Conduct::default()
    };
    let double = start(conduct).await;
    let ran = doctor(&double, &["--json"]).await;
    assert_eq!(ran.code, 3, "{ran:?}");
    let report = ran.only();
    let lifecycle = check(&report, "lifecycle");
    assert_eq!(lifecycle["verdict"], "broken");
    assert!(lifecycle["detail"].as_str().unwrap().contains("`tidy` deletes"), "{lifecycle}");
    assert_eq!(check(&report, "versioning")["verdict"], "warns");
    assert_eq!(check(&report, "clock")["verdict"], "warns");

    // Rules about other keys, and one that deletes old versions.
    let old = LifecycleRule { noncurrent_days: Some(1), expire_days: None, ..expires("") };
    double.set_conduct(Conduct {
        versioning: Versioning::Enabled,
        lifecycle: vec![expires("other/"), old],
        ..Conduct::default()
    });
    let ran = doctor(&double, &["--json"]).await;
    assert_eq!(ran.code, 0, "{ran:?}");

    double.set_conduct(Conduct { denied: [Op::Settings].into(), ..Conduct::default() });
    let ran = doctor(&double, &["--json"]).await;
    assert_eq!(ran.code, 0, "who may not ask may use it: {ran:?}");
    assert_eq!(check(&ran.only(), "lifecycle")["verdict"], "open");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_permission_comes_with_the_smallest_policy() {
    let double = start(named("no-list")).await;
    let ran = doctor(&double, &[]).await;
    assert_eq!(ran.code, 9, "{ran:?}");
    let text = String::from_utf8(ran.stdout).unwrap();
    assert!(text.contains("s3:ListBucket is missing"), "{text}");
    assert!(text.contains("arn:aws:s3:::headwater/lake/*"), "{text}");

    double.set_conduct(named("no-put"));
    let ran = doctor(&double, &["--json"]).await;
    assert_eq!(ran.code, 3, "{ran:?}");
    assert_eq!(ran.only()["missingPermissions"][0], "s3:PutObject");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_signal_ends_it_and_what_was_written_is_deleted() {
    let double = start(Conduct::default()).await;
    let url = double.url("lake");
    let mut command = headwater(&["doctor", &url, "--rounds", "2000"]);
    with_keys(&mut command).stdout(Stdio::piped());
    let ended = {
        let mut child = command.spawn().unwrap();
        tokio::task::block_in_place(|| {
            wait_until("races have begun", || double.keys().iter().any(|it| it.contains("/race/")));
            signal("INT", &child);
            let mut said = String::new();
            child.stdout.take().unwrap().read_to_string(&mut said).unwrap();
            (child.wait().unwrap().code(), said)
        })
    };

    assert_eq!(ended, (Some(130), String::new()));
    assert_eq!(double.keys(), [""; 0]);
}
