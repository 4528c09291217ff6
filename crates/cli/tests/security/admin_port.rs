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

#[test]
fn files_that_cannot_be_used_any_more_are_measured() {
    let world = World::new();
    let served = world.serve(&[]);
    let admin = served.admin.clone().unwrap();
    let stale = |files: &str| -> f64 {
        let (status, text) = ask(&admin, "GET /metrics", Some(&world.scraper), "");
        assert_eq!(status, 200, "old rights stay in use");
        let name = format!("headwater_credentials_stale_seconds{{files=\"{files}\"");
        let line = text.lines().find(|it| it.starts_with(&name)).expect(&name);
        line.rsplit(' ').next().unwrap().parse().unwrap()
    };
    assert!(stale("rights") == 0.0 && stale("certificates") == 0.0);
    let rights = std::fs::read_to_string(world.files.path("rights.toml")).unwrap();
    let certificate = std::fs::read_to_string(world.files.path("server.crt")).unwrap();

    world.files.write("rights.toml", "token = 1");
    wait_until("rights are stale", || 0.1 < stale("rights"));
    assert!(stale("certificates") == 0.0);
    world.files.write("server.crt", "nothing");
    wait_until("certificates are stale", || 0.1 < stale("certificates"));

    world.files.write("rights.toml", &rights);
    world.files.write("server.crt", &certificate);
    wait_until("all is well", || stale("rights") == 0.0 && stale("certificates") == 0.0);
    assert!(stale("admin_certificates") == 0.0);
    assert_eq!(served.stop(), 0);
}
