//! `export`, interrupted and gone on with.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot set up has failed")]

mod support;

use std::fs;
use std::path::PathBuf;
use std::process::Stdio;

use serde_json::{Value, json};
use support::{Ran, Served, read, signal, wait_until};

struct Scene {
    folder: tempfile::TempDir,
    served: Served,
}

impl Scene {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let served = Served::start(&folder.path().join("data"));
        served.ask(&["create", "h"]);
        let lines: Vec<_> =
            (1..=9).map(|it| format!("{{\"key\":\"k{it}\",\"value\":\"{it}\"}}\n")).collect();
        let input = folder.path().join("in.ndjson");
        fs::write(&input, lines.concat()).unwrap();
        served.ask(&["import", "h", input.to_str().unwrap()]);
        Self { folder, served }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn export(&self, options: &[&str]) -> Ran {
        let output = self.path("out").into_os_string().into_string().unwrap();
        self.served.run(&[&["export", "h", "--output", &output], options].concat())
    }

    /// Leaves what an export that was killed after four entries leaves. The
    /// first value is altered, so that going on shows.
    fn interrupt(&self, change: impl FnOnce(&mut Value)) -> String {
        let whole = read(&self.path("in.ndjson"));
        let lines: Vec<_> = whole.lines().collect();
        let counted = lines[..4].join("\n").replace("\"1\"", "\"X\"") + "\n";
        let partial = format!("{counted}{}\n{{\"key\":\"cut o", lines[4]);
        fs::write(self.path("out.headwater-export"), partial).unwrap();
        let head = self.served.ask(&["head", "h"])["head"].clone();
        let mut checkpoint = json!({
            "format": 1,
            "history": "h",
            "historyId": head["historyId"],
            "stateVersion": head["stateVersion"],
            "startBase64": "",
            "endBase64": "",
            "entries": 4,
            "bytes": counted.len(),
            "lastKeyBase64": "azQ=",
        });
        change(&mut checkpoint);
        fs::write(self.path("out.headwater-export.json"), checkpoint.to_string()).unwrap();
        whole
    }

    fn leftovers(&self) -> usize {
        let names = fs::read_dir(self.folder.path()).unwrap();
        let is_leftover = |name: &str| name.starts_with("out.");
        names.filter(|it| is_leftover(it.as_ref().unwrap().file_name().to_str().unwrap())).count()
    }
}

#[test]
fn an_interrupted_export_goes_on_at_its_version() {
    let scene = Scene::new();
    let whole = scene.interrupt(|_| {});
    // A later version, which is none of its business.
    scene.served.ask(&["put", "h", "k5", "later"]);

    let ran = scene.export(&["--resume"]);

    assert_eq!(ran.code, 0, "{}", ran.stderr);
    let summary = ran.only();
    assert_eq!((&summary["resumed"], &summary["entries"]), (&json!(true), &json!(9)));
    assert_eq!(read(&scene.path("out")), whole.replacen("\"1\"", "\"X\"", 1));
    assert_eq!(scene.leftovers(), 0);
}

#[test]
fn an_export_whose_version_is_gone_begins_again() {
    let scene = Scene::new();
    for change in [
        (|it: &mut Value| it["stateVersion"] = json!(999)) as fn(&mut Value),
        |it| it["historyId"] = json!("0123456789abcdef0123456789abcdef"),
        |it| it["history"] = json!("other"),
        |it| it["startBase64"] = json!("azI="),
        |it| it["format"] = json!(2),
    ] {
        let whole = scene.interrupt(change);

        let ran = scene.export(&["--resume"]);

        assert_eq!(ran.code, 0, "{}", ran.stderr);
        let summary = ran.only();
        assert_eq!((&summary["resumed"], &summary["entries"]), (&json!(false), &json!(9)));
        assert_eq!(read(&scene.path("out")), whole);
        assert_eq!(scene.leftovers(), 0);
    }
}

#[test]
fn without_resume_an_export_begins_again() {
    let scene = Scene::new();
    let whole = scene.interrupt(|_| {});

    assert_eq!(scene.export(&[]).only()["resumed"], false);

    assert_eq!(read(&scene.path("out")), whole);
}

#[test]
fn a_part_of_the_keys_and_an_older_version_can_be_exported() {
    let scene = Scene::new();
    let version = scene.served.ask(&["head", "h"])["head"]["stateVersion"].to_string();
    scene.served.ask(&["put", "h", "k5", "later"]);

    let exported = scene.export(&["--start", "k4", "--end", "k6", "--exact", &version]).only();

    assert_eq!(exported["stateVersion"].to_string(), version);
    let expected = "{\"key\":\"k4\",\"value\":\"4\"}\n{\"key\":\"k5\",\"value\":\"5\"}\n";
    assert_eq!(read(&scene.path("out")), expected);
    assert_eq!(exported["bytes"], expected.len());
}

#[test]
fn a_signal_leaves_the_old_file_and_what_to_go_on_with() {
    let scene = Scene::new();
    // Pages of 2 MiB at most: enough of them that one is waited for.
    let value = "v".repeat(1 << 20);
    let lines: Vec<_> =
        (0..64).map(|it| format!("{{\"key\":\"large{it:02}\",\"value\":\"{value}\"}}\n")).collect();
    let input = scene.path("large.ndjson");
    fs::write(&input, lines.concat()).unwrap();
    scene.served.ask(&["import", "h", input.to_str().unwrap()]);
    let output = scene.path("out");
    fs::write(&output, "old").unwrap();
    let export = scene
        .served
        .command(&["export", "h", "--output", output.to_str().unwrap()])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    wait_until("the export gets on", || scene.path("out.headwater-export.json").exists());

    signal("INT", &export);

    let ran = Ran::of(export.wait_with_output().unwrap());
    assert_eq!(ran.code, 130, "{}", ran.stderr);
    assert_eq!(read(&output), "old");
    let resumed = scene.export(&["--resume"]).only();
    assert_eq!((&resumed["resumed"], &resumed["entries"]), (&json!(true), &json!(9 + 64)));
    let whole = scene.served.run(&["export", "h"]).stdout;
    assert!(fs::read(&output).unwrap() == whole);
}

#[cfg(unix)]
#[test]
fn a_link_stays_a_link_and_its_file_is_replaced() {
    let scene = Scene::new();
    fs::create_dir(scene.path("elsewhere")).unwrap();
    fs::write(scene.path("elsewhere/file"), "old").unwrap();
    std::os::unix::fs::symlink("elsewhere/file", scene.path("out")).unwrap();

    assert_eq!(scene.export(&[]).code, 0);

    assert!(fs::symlink_metadata(scene.path("out")).unwrap().is_symlink());
    assert_eq!(read(&scene.path("elsewhere/file")), read(&scene.path("in.ndjson")));
    assert_eq!(fs::read_dir(scene.path("elsewhere")).unwrap().count(), 1);
}

#[cfg(unix)]
#[test]
fn what_is_not_a_regular_file_is_not_replaced() {
    use std::os::unix::fs::FileTypeExt as _;
    let scene = Scene::new();
    let fifo = scene.path("out");
    assert!(std::process::Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    let before = fs::read_dir(scene.folder.path()).unwrap().count();

    for options in [&[][..], &["--resume"]] {
        let ran = scene.export(options);

        assert_eq!(ran.code, 2, "{}", ran.stderr);
        assert!(ran.error()["advice"].as_str().unwrap().contains("use standard output"));
    }
    assert!(fs::symlink_metadata(&fifo).unwrap().file_type().is_fifo());
    assert_eq!(fs::read_dir(scene.folder.path()).unwrap().count(), before);
}
