//! The binary, run as a user runs it.
#![allow(dead_code, unreachable_pub, reason = "each test file uses its part")]

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use serde_json::Value;

/// Longer than anything here takes; a test that waits for it has failed.
pub const PATIENCE: Duration = Duration::from_secs(120);

const BINARY: &str = env!("CARGO_BIN_EXE_headwater");

/// The binary, with nothing of this process's environment that changes it.
pub fn headwater(arguments: &[&str]) -> Command {
    let mut command = Command::new(BINARY);
    command.args(arguments).stdin(Stdio::null());
    without_variables(&mut command);
    command
}

/// Takes away what of this process's environment changes the binary.
pub fn without_variables(command: &mut Command) {
    for (variable, _) in std::env::vars_os() {
        if variable.as_encoded_bytes().starts_with(b"HEADWATER_") {
            command.env_remove(variable);
        }
    }
}

/// A running `headwater serve`. Dropping it kills it.
pub struct Served {
    child: Child,
    pub address: String,
    /// Its admin port, where it was asked for one.
    pub admin: Option<String>,
    /// The URL of its store, as it says it.
    pub store: String,
}

impl Served {
    /// Serves a local directory on a port that the system chooses.
    pub fn start(root: &Path) -> Self {
        Self::start_on(root, "127.0.0.1:0", &[])
    }

    pub fn start_on(root: &Path, listen: &str, options: &[&str]) -> Self {
        let root = root.to_str().unwrap();
        let arguments = [&["--root", root, "--listen", listen], options].concat();
        Self::start_with(|it| it.args(arguments))
    }

    /// Serves with the arguments and the environment that `set` adds.
    pub fn start_with(set: impl FnOnce(&mut Command) -> &mut Command) -> Self {
        let mut command = headwater(&["serve", "--json"]);
        set(command.env("HEADWATER_LOG", "warn").stdout(Stdio::piped()));
        let mut child = command.spawn().unwrap();
        let mut line = String::new();
        let stdout = child.stdout.take().unwrap();
        BufReader::new(stdout).read_line(&mut line).unwrap();
        let announced: Value = serde_json::from_str(&line).expect("serve says where it listens");
        let said = |name: &str| announced[name].as_str().unwrap().to_owned();
        let admin = announced["admin"].as_str().map(str::to_owned);
        Self { child, address: said("listening"), admin, store: said("store") }
    }

    /// Serves for people, on a port that the system chooses. Returns what it
    /// says too, which is three lines.
    pub fn start_in_text(root: &Path) -> (Self, String) {
        let mut command = headwater(&["serve", "--listen", "127.0.0.1:0", "--root"]);
        command.arg(root).env("HEADWATER_LOG", "warn").stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut said = String::new();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        for _ in 0..3 {
            stdout.read_line(&mut said).unwrap();
        }
        (Self { child, address: String::new(), admin: None, store: String::new() }, said)
    }

    /// SIGKILL.
    pub fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// SIGTERM.
    pub fn terminate(&self) {
        signal("TERM", &self.child);
    }

    /// SIGTERM, and waits for the end. Returns the exit code.
    pub fn stop(mut self) -> i32 {
        signal("TERM", &self.child);
        self.child.wait().unwrap().code().unwrap()
    }

    /// Runs a command against it.
    pub fn run(&self, arguments: &[&str]) -> Ran {
        self.run_with(arguments, b"")
    }

    /// The same, with something on standard input.
    pub fn run_with(&self, arguments: &[&str], input: &[u8]) -> Ran {
        run(self.command(arguments), input)
    }

    /// A command against it, not run yet.
    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = headwater(arguments);
        command.args(["--json", "--writer", &self.address]);
        command
    }

    /// Runs a command that has to succeed, and returns its only answer.
    pub fn ask(&self, arguments: &[&str]) -> Value {
        let ran = self.run(arguments);
        assert_eq!(ran.code, 0, "{arguments:?}: {}", ran.stderr);
        ran.only()
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// Sends a signal through the system's `kill`.
pub fn signal(name: &str, child: &Child) {
    let id = child.id().to_string();
    let status = Command::new("kill").args(["-s", name, &id]).status().unwrap();
    assert!(status.success());
}

/// A command that has ended.
#[derive(Debug)]
pub struct Ran {
    pub code: i32,
    /// Every line of standard output.
    pub answers: Vec<Value>,
    pub stdout: Vec<u8>,
    pub stderr: String,
}

impl Ran {
    pub fn of(output: Output) -> Self {
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let answers = text.lines().filter_map(|it| serde_json::from_str(it).ok()).collect();
        Self {
            code: output.status.code().unwrap_or(-1),
            answers,
            stdout: output.stdout,
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }

    /// The only answer.
    pub fn only(self) -> Value {
        assert_eq!(self.answers.len(), 1, "{self:?}");
        self.answers.into_iter().next().unwrap()
    }

    /// The error, as JSON.
    pub fn error(&self) -> Value {
        let line =
            self.stderr.lines().find(|it| it.starts_with("{\"error\"")).unwrap_or_else(|| {
                panic!("no error was reported: {self:?}");
            });
        serde_json::from_str::<Value>(line).unwrap()["error"].clone()
    }
}

/// Runs a command to its end.
pub fn run(mut command: Command, input: &[u8]) -> Ran {
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let input = input.to_vec();
    // A command that fails early does not read its input to the end.
    let feeding = std::thread::spawn(move || drop(stdin.write_all(&input)));
    let output = child.wait_with_output().unwrap();
    feeding.join().unwrap();
    Ran::of(output)
}

/// Waits until something holds.
///
/// A test that waits for another process can only look again and again.
#[expect(clippy::disallowed_methods, reason = "bounds the wait for another process")]
pub fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let began = std::time::Instant::now();
    while !holds() {
        assert!(began.elapsed() < PATIENCE, "waited in vain until {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Reads a whole file.
pub fn read(path: &Path) -> String {
    let mut text = String::new();
    std::fs::File::open(path).unwrap().read_to_string(&mut text).unwrap();
    text
}
