//! A real data set through real processes: imported through a running writer
//! on an S3 server, the writer killed with SIGKILL in the middle, the same
//! import again, and an export from a replica that equals the source.
//!
//! The data is Debian's package index where the machine has one (`apt-cache`),
//! and made up of as many entries elsewhere. Against the workspace's own S3
//! endpoint always, and against a real server where
//! `HEADWATER_TEST_S3_ENDPOINT` names one.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot set up has failed")]

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use headwater_s3_double::S3Double;
use serde_json::Value;

/// Entries below which a data set is not taken for real.
const ENTRIES_MIN: usize = 50_000;
const HISTORY: &str = "debian/packages";

#[tokio::test(flavor = "multi_thread")]
async fn an_import_cut_by_sigkill_applies_each_line_once_on_the_own_endpoint() {
    let s3 = S3Double::start().await.unwrap();
    let url = format!("s3://{}/import", s3.bucket());
    let bucket = Bucket {
        url,
        endpoint: s3.endpoint(),
        key: headwater_s3_double::ACCESS_KEY_ID.to_owned(),
        secret: headwater_s3_double::SECRET_ACCESS_KEY.to_owned(),
    };
    tokio::task::spawn_blocking(move || run(&bucket)).await.unwrap();
    drop(s3);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_import_cut_by_sigkill_applies_each_line_once_on_a_real_server() {
    let Ok(endpoint) = std::env::var("HEADWATER_TEST_S3_ENDPOINT") else {
        say("left out: HEADWATER_TEST_S3_ENDPOINT names no server");
        return;
    };
    let name = std::env::var("HEADWATER_TEST_S3_BUCKET");
    let name = name.unwrap_or_else(|_| "headwater-test".to_owned());
    make_bucket(&endpoint, &name);
    let bucket = Bucket {
        // A prefix of its own, so that a server that is kept can be used again.
        url: format!("s3://{name}/real-input-{}", std::process::id()),
        endpoint,
        key: "test".to_owned(),
        secret: "test".to_owned(),
    };
    tokio::task::spawn_blocking(move || run(&bucket)).await.unwrap();
}

/// Where the history is kept.
struct Bucket {
    url: String,
    endpoint: String,
    key: String,
    secret: String,
}

fn run(bucket: &Bucket) {
    build_daemons();
    let folder = tempfile::tempdir().unwrap();
    let source = data_set();
    assert!(ENTRIES_MIN <= source.len(), "{} entries are no real data set", source.len());
    let input = folder.path().join("packages.ndjson");
    fs::write(&input, ndjson(&source)).unwrap();

    let mut writer = Daemon::start("headwater-writer", bucket, 0);
    let replica = Daemon::start("headwater-replica", bucket, 0);
    let cli = Cli { writer: writer.address.clone(), replica: replica.address.clone() };
    cli.done(&["create", HISTORY]);

    // The import is under way; a good part of it is accepted, and it goes on.
    let import = cli.command(&["import", HISTORY, input.to_str().unwrap()]).spawn().unwrap();
    let import = KillOnDrop(import);
    let at_least = u64::try_from(source.len() / 4).unwrap();
    let before = cli.wait_until_accepted(at_least);
    assert!(before < source.len() as u64, "the import was over before the writer was killed");
    writer.kill();
    drop(import);

    // Everything again, with a new writer process on the same address.
    let port = writer.address.rsplit(':').next().unwrap().parse().unwrap();
    let writer = Daemon::start("headwater-writer", bucket, port);
    assert_eq!(writer.address, cli.writer);
    let told = cli.done(&["--json", "import", HISTORY, input.to_str().unwrap()]);
    println!("second import: {}", String::from_utf8_lossy(&told.stdout).trim());

    // Each line once, says the head.
    let head = cli.json(&["--json", "head", HISTORY]);
    assert_eq!(operation_count(&head), source.len() as u64, "{head}");

    // And the state is the source.
    let output = folder.path().join("exported.ndjson");
    cli.done(&["export", HISTORY, "--output", output.to_str().unwrap()]);
    let exported = fs::read_to_string(&output).unwrap();
    let exported: BTreeMap<String, String> = exported.lines().map(entry).collect();
    assert!(exported == source, "the export is not the source");

    // Once more changes nothing.
    cli.done(&["import", HISTORY, input.to_str().unwrap()]);
    let again = cli.json(&["--json", "head", HISTORY]);
    assert_eq!(operation_count(&again), source.len() as u64, "a third import applied lines again");
}

/// Says what was tried, also where the test passes: what `eprintln` prints is
/// kept by the test runner.
fn say(what: &str) {
    std::io::stderr().write_all(format!("real_input: {what}\n").as_bytes()).unwrap();
}

fn operation_count(head: &Value) -> u64 {
    let head = head.get("head").unwrap_or(head);
    head["operationCount"].as_u64().unwrap_or_else(|| panic!("no operationCount in {head}"))
}

/// Package name to paragraph; the last one of a name counts.
fn data_set() -> BTreeMap<String, String> {
    let dump = Command::new("apt-cache").arg("dumpavail").output();
    let text = dump.map(|it| String::from_utf8_lossy(&it.stdout).into_owned()).unwrap_or_default();
    let paragraphs: BTreeMap<String, String> = text
        .split("\n\n")
        .filter_map(|paragraph| {
            let name = paragraph.lines().find_map(|it| it.strip_prefix("Package: "))?;
            Some((name.to_owned(), paragraph.trim().to_owned()))
        })
        .collect();
    if ENTRIES_MIN <= paragraphs.len() {
        say(&format!("Debian's package index: {} packages", paragraphs.len()));
        return paragraphs;
    }
    say(&format!(
        "the data are MADE UP, {ENTRIES_MIN} entries: `apt-cache dumpavail` has no index"
    ));
    (0..ENTRIES_MIN)
        .map(|n| {
            let name = format!("package-{n:06}");
            let paragraph =
                format!("Package: {name}\nVersion: 1.{n}\n{}", "text \u{e9} ".repeat(n % 90));
            (name, paragraph)
        })
        .collect()
}

fn ndjson(entries: &BTreeMap<String, String>) -> String {
    entries.iter().fold(String::new(), |mut text, (key, value)| {
        writeln!(text, "{}", serde_json::json!({ "key": key, "value": value })).unwrap();
        text
    })
}

fn entry(line: &str) -> (String, String) {
    let entry: Value = serde_json::from_str(line).unwrap();
    (entry["key"].as_str().unwrap().to_owned(), entry["value"].as_str().unwrap().to_owned())
}

/// The daemons are other packages' binaries, which cargo builds for their own
/// tests only.
fn build_daemons() {
    let built = Command::new(env!("CARGO"))
        .args(["build", "--locked", "--quiet", "-p", "headwater-writer", "-p", "headwater-replica"])
        .args(if cfg!(debug_assertions) { &[][..] } else { &["--release"][..] })
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .status()
        .unwrap();
    assert!(built.success(), "the daemons do not build");
}

fn binary(name: &str) -> PathBuf {
    Path::new(env!("CARGO_BIN_EXE_headwater")).with_file_name(name)
}

/// A daemon in a process of its own.
struct Daemon {
    child: Child,
    address: String,
}

impl Daemon {
    fn start(name: &str, bucket: &Bucket, port: u16) -> Self {
        let mut child = Command::new(binary(name))
            .args(["--listen", &format!("127.0.0.1:{port}"), "--store", &bucket.url])
            .env("AWS_ENDPOINT", &bucket.endpoint)
            .env("AWS_ALLOW_HTTP", "true")
            .env("AWS_REGION", "us-east-1")
            .env("AWS_ACCESS_KEY_ID", &bucket.key)
            .env("AWS_SECRET_ACCESS_KEY", &bucket.secret)
            .env("HEADWATER_LOG", "warn")
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut first = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut first).unwrap();
        let address = first
            .split_whitespace()
            .find(|it| it.starts_with("127.0.0.1:"))
            .unwrap_or_else(|| panic!("{name} said {first:?} and not where it listens"))
            .to_owned();
        Self { child, address }
    }

    /// SIGKILL: no drain, no goodbye.
    fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _gone = self.child.kill();
        let _ended = self.child.wait();
    }
}

struct KillOnDrop(Child);

impl Drop for KillOnDrop {
    fn drop(&mut self) {
        let _gone = self.0.kill();
        let _ended = self.0.wait();
    }
}

struct Cli {
    writer: String,
    replica: String,
}

impl Cli {
    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_headwater"));
        command.args(["--writer", &self.writer, "--replica", &self.replica]).args(args);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    fn done(&self, args: &[&str]) -> Output {
        let output = self.command(args).output().unwrap();
        assert!(
            output.status.success(),
            "{args:?} ended with {}: {}{}",
            output.status,
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        );
        output
    }

    fn json(&self, args: &[&str]) -> Value {
        serde_json::from_slice(&self.done(args).stdout).unwrap()
    }

    /// Waits until the history has accepted that many operations; returns how
    /// many it has.
    fn wait_until_accepted(&self, count: u64) -> u64 {
        for _ in 0..6_000 {
            let accepted = operation_count(&self.json(&["--json", "head", HISTORY]));
            if count <= accepted {
                return accepted;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        panic!("the import did not get to {count} lines")
    }
}

/// A bucket on a server that has none yet; one that is there is as good.
fn make_bucket(endpoint: &str, name: &str) {
    use std::io::{Read as _, Write as _};
    let address = endpoint.trim_start_matches("http://").trim_end_matches('/');
    let mut socket = std::net::TcpStream::connect(address).unwrap();
    write!(
        socket,
        "PUT /{name} HTTP/1.1\r\nHost: {address}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
    )
    .unwrap();
    let mut answer = String::new();
    socket.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 2") || answer.starts_with("HTTP/1.1 409"), "{answer}");
}
