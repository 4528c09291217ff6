//! Settings of all three programs: their page, their names, and the programs
//! run with a file.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot set up has failed")]

mod support;

use std::path::{Path, PathBuf};

use clap::{Command, CommandFactory as _};
use headwater_cli::Cli;
use headwater_daemon::config::{Program, page, settings};
use headwater_replica::daemon::ReplicaDaemon;
use headwater_writer::daemon::WriterDaemon;
use serde_json::Value;

use crate::support::headwater;

fn programs() -> [(&'static str, Command); 3] {
    [
        ("serve", Cli::serve_definition()),
        ("writer", WriterDaemon::command()),
        ("replica", ReplicaDaemon::command()),
    ]
}

#[test]
fn the_page_is_what_the_programs_say() {
    let programs = programs();
    let programs: Vec<_> =
        programs.iter().map(|(name, command)| Program { name, command }).collect();
    let fresh = page(&programs);
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/configuration.md");

    if std::env::var_os("HEADWATER_WRITE_PAGES").is_some() {
        std::fs::write(&path, &fresh).unwrap();
    }
    let committed = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        committed == fresh,
        "docs/configuration.md is old: cargo run -p xtask -- configuration"
    );
}

#[test]
fn a_setting_has_one_name() {
    for (program, command) in programs() {
        for setting in settings(&command) {
            let variable = format!("HEADWATER_{}", setting.name().to_uppercase().replace('-', "_"));
            assert_eq!(setting.variable(), Some(&*variable), "{program}: {}", setting.name());
        }
    }
}

struct Settings {
    dir: tempfile::TempDir,
    file: PathBuf,
}

impl Settings {
    fn new(text: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("headwater.toml");
        std::fs::write(&file, text).unwrap();
        Self { dir, file }
    }

    /// Runs `headwater serve` with the file.
    fn serve(&self, flags: &[&str]) -> std::process::Output {
        let file = self.file.to_str().unwrap();
        let mut command = headwater(&[&["serve", "--config", file], flags].concat());
        command.current_dir(self.dir.path()).output().unwrap()
    }
}

#[test]
fn serve_shows_what_it_would_run_with() {
    let settings = Settings::new("[writer]\nhead-soft-bytes = 1000\n");

    let output = settings.serve(&["--show-config=json", "--writer-fold-changes", "9"]);

    assert!(output.status.success());
    let all: Value = serde_json::from_slice(&output.stdout).unwrap();
    let one = |name: &str| all.as_array().unwrap().iter().find(|it| it["name"] == name).unwrap();
    assert_eq!(one("writer-head-soft-bytes")["value"], 1_000);
    assert!(one("writer-head-soft-bytes")["place"].as_str().unwrap().ends_with(".toml:2"));
    assert_eq!(one("writer-fold-changes")["source"], "flag");
    assert_eq!(one("replica-poll-ms")["source"], "default");
    // Where commands ask is no setting of a server.
    assert!(all.as_array().unwrap().iter().all(|it| it["name"] != "deadline-seconds"));
}

#[test]
fn settings_are_checked_and_nothing_is_made() {
    let fit = Settings::new("root = 'histories'\nreplica-poll-ms = 5\n");
    let output = fit.serve(&["--check-config"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(!fit.dir.path().join("histories").exists());

    let wrong = [
        ("replica-pol-ms = 5\n", "did you mean `replica-poll-ms`?"),
        (
            "replica-poll-ms = true\n",
            "headwater.toml:1: `replica-poll-ms` is true; expected a whole number",
        ),
        ("store = 'ftp://x'\n", "ftp"),
        ("writer-publisher-id = 'a b'\n", "publisher_id"),
        ("connections-max = 0\n", "connections-max"),
    ];
    for (text, why) in wrong {
        let output = Settings::new(text).serve(&["--check-config"]);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{text}: {said}");
        assert!(said.contains(why), "{text}: {said}");
    }
}
