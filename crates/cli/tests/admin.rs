//! The admin port of a real process: probes, and what is logged.
#![cfg(unix)]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot set up has failed")]

mod support;

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Child, Stdio};
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::Duration;

use serde_json::Value;

use crate::support::{PATIENCE, headwater, signal};

struct Process {
    child: Child,
    admin: String,
    /// Lines of the log.
    log: Receiver<String>,
    _dir: tempfile::TempDir,
}

impl Process {
    /// `headwater serve` with a file of settings.
    fn start(settings: &str) -> (Self, std::path::PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("headwater.toml");
        std::fs::write(&file, settings).unwrap();
        let mut command = headwater(&["serve", "--json", "--listen", "127.0.0.1:0"]);
        command.args(["--admin-listen", "127.0.0.1:0", "--log-format", "json", "--config"]);
        command.arg(&file).current_dir(dir.path()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let (lines, log) = sync_channel(10_000);
        let stderr = BufReader::new(child.stderr.take().unwrap());
        std::thread::spawn(move || {
            stderr.lines().map_while(Result::ok).try_for_each(|it| lines.send(it))
        });
        let mut said = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut said).unwrap();
        let said: Value = serde_json::from_str(&said).unwrap();
        let admin = said["admin"].as_str().unwrap().to_owned();
        (Self { child, admin, log, _dir: dir }, file)
    }

    /// Status and body of one request.
    fn ask(&self, method: &str, path: &str, headers: &str, body: &str) -> (u16, String) {
        let mut socket = TcpStream::connect(&self.admin).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        let length = body.len();
        write!(
            socket,
            "{method} {path} HTTP/1.1\r\nhost: h\r\nconnection: close\r\ncontent-length: {length}\r\n\
             {headers}\r\n{body}"
        )
        .unwrap();
        let mut answer = String::new();
        socket.read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
    }

    fn get(&self, path: &str) -> (u16, String) {
        self.ask("GET", path, "", "")
    }

    /// Asks until the status is this one, and returns the body.
    fn becomes(&self, path: &str, status: u16) -> String {
        for _ in 0..400 {
            let (found, body) = self.get(path);
            if found == status {
                return body;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        panic!("{path} never says {status}");
    }

    /// Waits for a line of the log that has all of these.
    fn logged(&self, parts: &[&str]) -> String {
        loop {
            let line = self.log.recv_timeout(PATIENCE).expect("the log says it");
            if parts.iter().all(|it| line.contains(it)) {
                return line;
            }
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

#[test]
fn probes_answer_until_the_end_and_readiness_goes_first() {
    // Long enough to be looked at, and cut short by a second signal.
    let (mut process, _) = Process::start("drain-delay-seconds = 3600\n");

    assert_eq!(process.get("/livez"), (200, "ok\n".to_owned()));
    // The store is asked once, right at the start.
    let text = process.becomes("/readyz?verbose", 200);
    assert!(text.contains("[+]store ok\n") && text.contains("[+]store-trusted ok\n"), "{text}");
    assert_eq!(process.get("/nowhere").0, 404);

    signal("TERM", &process.child);
    process.logged(&["draining"]);

    let text = process.becomes("/readyz", 503);
    assert!(text.contains("[-]draining the process is ending"), "{text}");
    assert_eq!(process.get("/livez").0, 200, "it is alive until its end");
    signal("TERM", &process.child);
    assert_eq!(process.child.wait().unwrap().code(), Some(130));
}

#[test]
fn what_is_logged_is_changed_by_request_and_by_signal() {
    let (process, file) = Process::start("log = \"warn\"\n");
    assert_eq!(process.get("/loglevel"), (200, "warn\n".to_owned()));

    let changed = process.ask("POST", "/loglevel", "", "info,headwater_daemon=debug\n");
    assert_eq!(changed, (200, "info,headwater_daemon=debug\n".to_owned()));
    process.logged(&["what is logged was changed", "headwater_daemon=debug"]);

    for unfit in ["loud", "[span{field=\"x\"}]=info", ""] {
        assert_eq!(process.ask("POST", "/loglevel", "", unfit).0, 400, "{unfit}");
    }
    assert_eq!(process.ask("POST", "/loglevel", "", &"a=info,".repeat(1_000)).0, 413);
    let elsewhere = "sec-fetch-site: cross-site\r\n";
    assert_eq!(process.ask("POST", "/loglevel", elsewhere, "off").0, 403);
    assert_eq!(process.get("/loglevel").1, "info,headwater_daemon=debug\n");

    std::fs::write(&file, "log = \"debug\"\n").unwrap();
    signal("HUP", &process.child);
    process.logged(&["what is logged was changed", "\"now\":\"debug\""]);
    std::fs::write(&file, "log = 5\n").unwrap();
    signal("HUP", &process.child);
    process.logged(&["could not be read again", "expected text"]);
    assert_eq!(process.get("/loglevel").1, "debug\n");
}
