//! `headwater status`, and the page that it reads, of a running process.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot set up has failed")]

mod support;

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::process::Stdio;

use serde_json::Value;

use self::support::{Ran, Served, headwater, run, signal, wait_until};

fn serve(root: &std::path::Path, options: &[&str]) -> Served {
    let options = [&["--admin-listen", "127.0.0.1:0"], options].concat();
    Served::start_on(root, "127.0.0.1:0", &options)
}

fn status(admin: &str, arguments: &[&str]) -> Ran {
    run(headwater(&[&["status", admin], arguments].concat()), b"")
}

fn admin(served: &Served) -> &str {
    served.admin.as_deref().expect("serve says where its admin port is")
}

/// One GET, as any program can make it.
fn get(address: &str, path: &str) -> String {
    let mut socket = TcpStream::connect(address).unwrap();
    write!(socket, "GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    socket.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn a_process_says_how_it_stands_as_text_as_json_and_as_a_page() {
    let dir = tempfile::tempdir().unwrap();
    let served = serve(dir.path(), &[]);
    served.ask(&["create", "team/orders"]);
    served.ask(&["put", "team/orders", "secret-key", "secret-value"]);
    served.ask(&["get", "team/orders", "secret-key"]);
    let late = ["put", "team/orders", "secret-key", "x", "--if-absent", "--operation-id", "late-1"];
    assert_eq!(served.run(&late).code, 3);

    let ran = status(admin(&served), &[]);
    assert_eq!(ran.code, 0, "{ran:?}");
    let text = String::from_utf8(ran.stdout).unwrap();
    let line = |start: &str| text.lines().find(|it| it.starts_with(start)).map(str::to_owned);
    assert!(line("headwater serve").unwrap().ends_with(": ready"), "{text}");
    let history: Vec<_> =
        line("team/orders").unwrap().split_whitespace().map(str::to_owned).collect();
    assert_eq!(history[1..3], ["1", "2"], "version and revision: {text}");
    assert!(text.contains("rejected  late-1  team/orders  1 × key present, at v1"), "{text}");

    let ran = status(admin(&served), &["--json"]);
    assert_eq!(ran.code, 0, "{ran:?}");
    let json = ran.only();
    assert_eq!((&json["format"], &json["process"]["name"]), (&1.into(), &"serve".into()));
    assert_eq!(json["writer"]["operationsAccepted"], 1);
    assert_eq!(json["writer"]["histories"][0]["head"]["stateVersion"], 1);
    assert_eq!(json["replica"]["histories"][0]["name"], "team/orders");
    assert_eq!(json["writer"]["conflicts"][0]["operationId"], "late-1");

    let page = get(admin(&served), "/");
    assert!(page.starts_with("HTTP/1.1 200 OK\r\n"), "{page}");
    let head = page.split("\r\n\r\n").next().unwrap().to_lowercase();
    assert!(head.contains("content-security-policy: default-src 'none';"), "{head}");
    assert!(page.contains("team/orders") && page.contains("late-1"));
    for shown in [&page, &json.to_string(), &text] {
        assert!(!shown.contains("secret"), "no key and no value");
    }
}

#[test]
fn the_questions_of_the_page_are_those_of_the_command() {
    let dir = tempfile::tempdir().unwrap();
    let served = serve(dir.path(), &[]);
    for name in ["a/1", "a/2", "b/1"] {
        served.ask(&["create", name]);
        served.ask(&["put", name, "k", "v"]);
    }
    let names = |arguments: &[&str]| -> (Vec<String>, Value) {
        let json = status(admin(&served), &[&["--json"], arguments].concat()).only();
        let listed = json["writer"]["histories"].as_array().unwrap().iter();
        let listed = listed.map(|it| it["name"].as_str().unwrap().to_owned()).collect();
        (listed, json["window"]["next"].clone())
    };
    assert_eq!(names(&["--prefix", "a/"]), (vec!["a/1".into(), "a/2".into()], Value::Null));
    assert_eq!(names(&["--limit", "1"]), (vec!["a/1".into()], "a/1".into()));
    assert_eq!(names(&["--after", "a/2"]), (vec!["b/1".into()], Value::Null));
    assert_eq!(status(admin(&served), &["--limit", "201"]).code, 2);
}

#[test]
fn a_process_that_ends_is_a_warning() {
    let dir = tempfile::tempdir().unwrap();
    let served = serve(dir.path(), &["--drain-delay-seconds", "60"]);
    assert_eq!(status(admin(&served), &[]).code, 0);
    served.terminate();
    wait_until("the process drains", || status(admin(&served), &["--json"]).code == 9);

    let json = status(admin(&served), &["--json"]).only();
    assert_eq!(json["readiness"]["isDraining"], true);
    served.kill();
}

#[test]
fn whoever_does_not_answer_is_unavailable_and_whoever_answers_otherwise_is_named() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let nobody = silent.local_addr().unwrap().to_string();
    let ran = status(&nobody, &["--json", "--deadline-seconds", "1"]);
    assert_eq!(ran.code, 7, "{ran:?}");
    assert!(ran.stderr.contains("not within 1 s"), "{ran:?}");
    drop(silent);
    assert_eq!(status(&nobody, &["--json"]).code, 7);

    let other = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = other.local_addr().unwrap().to_string();
    let answering = std::thread::spawn(move || {
        let (mut socket, _) = other.accept().unwrap();
        let mut request = String::new();
        let mut reader = BufReader::new(socket.try_clone().unwrap());
        while request.lines().last() != Some("") {
            reader.read_line(&mut request).unwrap();
        }
        socket.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello").unwrap();
    });
    let ran = status(&address, &["--json"]);
    answering.join().unwrap();
    assert_eq!(ran.code, 1, "{ran:?}");
    assert!(ran.stderr.contains("does not say how it stands"), "{ran:?}");

    assert_eq!(status("ftp://localhost:1", &[]).code, 2);
    // Over TLS there is nobody either.
    assert_eq!(status("https://localhost:1", &[]).code, 7);
}

#[test]
fn watching_goes_on_until_it_is_interrupted() {
    let dir = tempfile::tempdir().unwrap();
    let served = serve(dir.path(), &[]);
    let mut command = headwater(&["status", admin(&served), "--watch", "--json"]);
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut uptime = || {
        let json: Value = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
        json["process"]["uptimeMs"].as_u64().unwrap()
    };
    let first = uptime();
    assert!(first < uptime(), "it looks again");

    signal("INT", &child);
    assert_eq!(child.wait().unwrap().code(), Some(130));
}
