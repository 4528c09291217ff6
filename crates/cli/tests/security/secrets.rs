//! What must be in no log, at any level.

use std::process::Stdio;

use headwater_daemon::auth::Role;

use crate::fixture::{Files, authority, row, token};
use crate::support::{Served, headwater};

#[test]
fn no_secret_is_in_any_log_at_trace_level() {
    let (files, ca) = (Files::new(), authority());
    files.issue("server", &ca, "localhost");
    files.write("ca.pem", &ca.pem());
    let (known, unknown) = (token(), token());
    files.write("rights.toml", &row(&known, "ops", Role::Admin, ""));
    files.write("known", &known.text);
    files.write("unknown", &unknown.text);
    let log = std::fs::File::create(files.path("log")).unwrap();
    let file = |name: &str| files.path(name).to_str().unwrap().to_owned();
    let served = Served::start_with(|command| {
        let command = command.args(["--listen", "127.0.0.1:0", "--store", "memory:"]);
        let command = command.args(["--listen-tls-cert-file", &file("server.crt")]);
        let command = command.args(["--listen-tls-key-file", &file("server.key")]);
        let command = command.args(["--auth-file", &file("rights.toml")]);
        command.args(["--credentials-interval-ms", "50"]).env("HEADWATER_LOG", "trace").stderr(log)
    });
    let address = served.address.replace("127.0.0.1", "https://localhost");
    let run = |token: &str, arguments: &[&str]| {
        let mut command = headwater(arguments);
        command.args(["--writer", &address, "--tls-ca", &file("ca.pem")]);
        command.args(["--token-file", &file(token), "--json"]).env("HEADWATER_LOG", "trace");
        let ran = command.stdout(Stdio::piped()).stderr(Stdio::piped()).output().unwrap();
        (ran.status.success(), String::from_utf8(ran.stderr).unwrap())
    };
    let value = "a-value-that-nobody-else-may-read";

    assert!(run("known", &["create", "h"]).0);
    assert!(run("known", &["put", "h", "k", value]).0);
    assert!(run("known", &["get", "h", "k"]).0);
    assert!(run("known", &["pin", "h", "p"]).0);
    let (is_ok, said) = run("unknown", &["put", "h", "k", value]);
    assert!(!is_ok && said.contains("UNAUTHENTICATED"), "{said}");
    let (is_ok, mentioned) = run("unknown", &["delete-history", "h", "--yes"]);
    assert!(!is_ok, "{mentioned}");
    // A file with a token where its hash belongs is refused, and not shown.
    files
        .write("rights.toml", &row(&known, "ops", Role::Admin, "").replace("blake3:", &known.text));
    std::thread::sleep(std::time::Duration::from_millis(500));
    assert!(run("known", &["get", "h", "k"]).0, "the old rights stay");
    assert_eq!(served.stop(), 0);

    let logged = std::fs::read_to_string(files.path("log")).unwrap();
    assert!(logged.contains("DEBUG"), "everything is logged: {logged:.2000}");
    assert!(logged.contains("headwater::audit") && logged.contains("token ops"), "{logged:.2000}");
    assert!(logged.contains("changed rights cannot be used"));
    let key = std::fs::read_to_string(files.path("server.key")).unwrap();
    let secret_part = |text: &str| text.rsplit('_').next().unwrap().to_owned();
    let secrets = [
        ("a known token", secret_part(&known.text)),
        ("an unknown token", secret_part(&unknown.text)),
        ("a key", key.lines().nth(1).unwrap().to_owned()),
        ("a value", value.to_owned()),
    ];
    for (what, secret) in secrets {
        for text in [&logged, &said, &mentioned] {
            assert!(!text.contains(&secret), "{what} was logged");
        }
    }
}
