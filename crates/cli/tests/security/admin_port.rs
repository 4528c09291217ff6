//! The admin port of the real program: who may look, who may change something,
//! and that probes go on whatever is asked of the rest.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Command, Stdio};

use headwater_daemon::auth::Role;
use headwater_daemon::auth::token::NewToken;

use crate::fixture::{Files, authority, row, token};
use crate::support::{Served, headwater, wait_until};

/// Status and body of one request over plain HTTP.
fn ask(address: &str, request: &str, token: Option<&NewToken>, body: &str) -> (u16, String) {
    let mut socket = TcpStream::connect(address).unwrap();
    let shown = token.map(|it| format!("authorization: Bearer {}\r\n", it.text));
    let (shown, len) = (shown.unwrap_or_default(), body.len());
    write!(
        socket,
        "{request} HTTP/1.1\r\nhost: h\r\nconnection: close\r\ncontent-length: {len}\r\n{shown}\r\n\
         {body}"
    )
    .unwrap();
    let mut answer = String::new();
    socket.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
}

struct World {
    files: Files,
    admin: NewToken,
    scraper: NewToken,
}

impl World {
    fn new() -> Self {
        let (files, ca) = (Files::new(), authority());
        files.issue("server", &ca, "localhost");
        files.issue("ops", &ca, "ops.example");
        files.write("ca.pem", &ca.pem());
        let (admin, scraper) = (token(), token());
        let nothing = row(&scraper, "scraper", Role::Read, "").replace("{ role = \"read\"", "#");
        let nothing = nothing.replace("grants = [#", "grants = []#");
        let certificate = "[[certificate]]\nname = \"ops\"\nsubjects = [\"ops.example\"]\n\
                           grants = [{ role = \"admin\", histories = [\"\"] }]\n";
        files.write("rights.toml", &(row(&admin, "ops", Role::Admin, "") + &nothing + certificate));
        files.write("admin-token", &admin.text);
        files.write("scraper-token", &scraper.text);
        Self { files, admin, scraper }
    }

    fn path(&self, name: &str) -> String {
        self.files.path(name).to_str().unwrap().to_owned()
    }

    fn serve(&self, more: &[&str]) -> Served {
        Served::start_with(|command| {
            let command = command.args(["--listen", "127.0.0.1:0", "--store", "memory:"]);
            let command = command.args(["--admin-listen", "127.0.0.1:0"]);
            let command = command.args(["--auth-file", &self.path("rights.toml")]);
            let command = command.args(["--listen-tls-cert-file", &self.path("server.crt")]);
            let command = command.args(["--listen-tls-key-file", &self.path("server.key")]);
            command.args(["--credentials-interval-ms", "20"]).args(more).stderr(Stdio::null())
        })
    }

    fn status(&self, admin: &str, more: &[&str]) -> Command {
        let mut command = headwater(&["status", admin, "--json", "--tls-ca", &self.path("ca.pem")]);
        command.args(more);
        command
    }
}

#[test]
fn with_rights_everything_but_probes_has_to_be_proved() {
    let world = World::new();
    let served = world.serve(&[]);
    let admin = served.admin.clone().unwrap();
    let unknown = token();
    let get =
        |path: &str, token: Option<&NewToken>| ask(&admin, &format!("GET {path}"), token, "").0;

    assert_eq!(get("/livez", None), 200);
    wait_until("it is ready", || get("/readyz", None) == 200);
    for path in ["/metrics", "/status.json", "/", "/loglevel"] {
        assert_eq!(get(path, None), 401, "{path}");
        assert_eq!(get(path, Some(&unknown)), 401, "{path}");
        assert_eq!(get(path, Some(&world.admin)), 200, "{path}");
    }
    assert_eq!(get("/metrics", Some(&world.scraper)), 200);
    assert_eq!(get("/status.json", Some(&world.scraper)), 403);
    let change = |token| ask(&admin, "POST /loglevel", token, "warn,headwater_daemon=debug").0;
    assert_eq!((change(None), change(Some(&world.scraper))), (401, 403));
    assert_eq!(ask(&admin, "GET /loglevel", Some(&world.admin), "").1, "warn\n");
    assert_eq!(change(Some(&world.admin)), 200);
    assert_eq!(served.stop(), 0);
}

#[test]
fn an_open_admin_port_shows_and_does_not_change() {
    let world = World::new();
    let served = world.serve(&["--insecure-admin"]);
    let admin = served.admin.clone().unwrap();
    for path in ["/livez", "/metrics", "/status.json", "/", "/loglevel"] {
        assert_eq!(ask(&admin, &format!("GET {path}"), None, "").0, 200, "{path}");
    }
    assert_eq!(ask(&admin, "POST /loglevel", None, "off").0, 401);
    assert_eq!(ask(&admin, "POST /loglevel", Some(&world.admin), "off").0, 200);
    assert_eq!(served.stop(), 0);
}

#[test]
fn status_shows_a_token_or_a_certificate_over_tls() {
    let world = World::new();
    let ca = world.path("ca.pem");
    let served = world.serve(&[
        "--admin-tls",
        "--listen-tls-client-ca-file",
        &ca,
        "--listen-tls-client-certificates",
        "optional",
    ]);
    let admin = served.admin.clone().unwrap().replace("127.0.0.1", "https://localhost");
    let run = |more: &[&str]| {
        let ran = world.status(&admin, more).output().unwrap();
        (ran.status.code().unwrap(), String::from_utf8(ran.stderr).unwrap())
    };
    let (token, scraper) = (world.path("admin-token"), world.path("scraper-token"));
    wait_until("it is ready", || run(&["--token-file", &token]).0 == 0);
    let (certificate, key) = (world.path("ops.crt"), world.path("ops.key"));
    let (code, said) = run(&["--tls-cert", &certificate, "--tls-key", &key]);
    assert_eq!(code, 0, "{said}");

    let (code, said) = run(&[]);
    assert!(code != 0 && said.contains("401"), "{said}");
    let (code, said) = run(&["--token-file", &scraper]);
    assert!(code != 0 && said.contains("403"), "{said}");
    assert_eq!(served.stop(), 0);
}

/// Connections to writers, which nobody makes here: their files are looked at all
/// the same.
fn line(world: &World) -> [String; 6] {
    [
        "--writers-tls-cert".to_owned(),
        world.path("ops.crt"),
        "--writers-tls-key".to_owned(),
        world.path("ops.key"),
        "--writers-token-file".to_owned(),
        world.path("admin-token"),
    ]
}

/// What is measured of `files`, if it is.
fn measured(world: &World, admin: &str, name: &str, files: &str) -> Option<f64> {
    let (status, text) = ask(admin, "GET /metrics", Some(&world.scraper), "");
    assert_eq!(status, 200, "old rights stay in use");
    let name = format!("headwater_credentials_{name}_seconds{{files=\"{files}\"");
    let line = text.lines().find(|it| it.starts_with(&name))?;
    Some(line.rsplit(' ').next().unwrap().parse().unwrap())
}

#[test]
fn files_that_cannot_be_used_any_more_are_measured() {
    let world = World::new();
    let line = line(&world);
    let served = world.serve(&line.each_ref().map(String::as_str));
    let admin = served.admin.clone().unwrap();
    let stale = |files: &str| measured(&world, &admin, "stale", files).expect(files);
    let all = ["rights", "certificates", "writers_certificates", "writers_token"];
    let of = ["rights.toml", "server.crt", "ops.crt", "admin-token"];
    let good = of.map(|it| std::fs::read_to_string(world.files.path(it)).unwrap());
    for files in all {
        assert!(stale(files) == 0.0, "{files}");
    }

    for (n, files) in all.iter().enumerate() {
        world.files.write(of[n], "two words");
        wait_until(files, || 0.1 < stale(files));
        for others in &all[n + 1..] {
            assert!(stale(others) == 0.0, "{others}");
        }
    }
    for (file, text) in of.iter().zip(&good) {
        world.files.write(file, text);
    }
    wait_until("all is well", || all.iter().all(|it| stale(it) == 0.0));
    assert!(stale("admin_certificates") == 0.0);
    assert_eq!(served.stop(), 0);
}

#[test]
fn when_certificates_end_is_measured_of_those_that_are_in_use() {
    let world = World::new();
    let ca = authority();
    // By `date -u -d 2031-01-01 +%s` and the like.
    let (y2031, y2032, y2033) = (1_924_992_000.0, 1_956_528_000.0, 1_988_150_400.0);
    world.files.issue_until("server", &ca, "localhost", 2031);
    world.files.issue_until("ops", &ca, "ops.example", 2032);
    let line = line(&world);
    let served = world.serve(&line.each_ref().map(String::as_str));
    let admin = served.admin.clone().unwrap();
    let ends = |files: &str| measured(&world, &admin, "expiry_time", files);
    assert_eq!(ends("certificates"), Some(y2031));
    wait_until("it was read", || ends("writers_certificates") == Some(y2032));
    assert_eq!(ends("admin_certificates"), None, "the admin port is plain");

    world.files.write("server.crt", "nothing");
    wait_until("it is stale", || {
        measured(&world, &admin, "stale", "certificates").is_some_and(|it| 0.0 < it)
    });
    assert_eq!(ends("certificates"), Some(y2031), "the old one is in use");
    world.files.issue_until("server", &ca, "localhost", 2033);
    world.files.issue_until("ops", &ca, "ops.example", 2033);
    wait_until("the new ones are in use", || {
        ends("certificates") == Some(y2033) && ends("writers_certificates") == Some(y2033)
    });
    assert_eq!(served.stop(), 0);
}
