//! `--check-config` loads what a start would load, and says which file is at
//! fault and why.

use headwater_daemon::auth::Role;

use crate::fixture::{Files, authority, row, token};
use crate::support::headwater;

const KEYS: &str = "names 00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff\n\
                    key k1 00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff\n";
const ISSUER: &str = "[[issuer]]\nname = \"corp\"\nissuer = \"i\"\naudiences = [\"a\"]\n\
                      jwks_file = \"jwks.json\"\n";
const JWKS: &str = r#"{"keys":[{"kty":"OKP","crv":"Ed25519","kid":"k1","use":"sig",
                      "x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}]}"#;

/// A file, the fault that is said of it, and what makes it so.
type Damage<'a> = (&'static str, &'static str, &'a dyn Fn(&Files));

/// Every file that a process may be given.
fn all() -> Files {
    let (files, ca) = (Files::new(), authority());
    files.issue("server", &ca, "localhost");
    files.write("clients.pem", &ca.pem());
    files.write("receiver.pem", &ca.pem());
    files.write("rights.toml", &(row(&token(), "t", Role::Read, "") + ISSUER));
    files.write("jwks.json", JWKS);
    files.write("keys", KEYS);
    files
}

/// Exit code, and what is said.
fn check(files: &Files, more: &[&str]) -> (i32, String) {
    let file = |name: &str| files.path(name).to_str().unwrap().to_owned();
    // Nobody is there, and nobody is asked.
    let mut command = headwater(&["serve", "--check-config", "--listen", "0.0.0.0:1"]);
    command.args(["--store", "s3://bucket?endpoint=http://127.0.0.1:1"]);
    command.args(["--listen-tls-cert-file", &file("server.crt")]);
    command.args(["--listen-tls-key-file", &file("server.key")]);
    command.args(["--listen-tls-client-ca-file", &file("clients.pem")]);
    command.args(["--auth-file", &file("rights.toml"), "--store-key-file", &file("keys")]);
    command.args(["--otlp-endpoint", "https://127.0.0.1:1"]);
    command.args(["--otlp-tls-ca", &file("receiver.pem")]);
    let ran = command.args(more).output().unwrap();
    let said = String::from_utf8(ran.stderr).unwrap();
    (ran.status.code().unwrap(), said)
}

#[test]
fn every_file_is_loaded_and_the_one_at_fault_is_named() {
    let (code, said) = check(&all(), &[]);
    assert_eq!(code, 0, "{said}");

    let other_key = |files: &Files| {
        let certificate = std::fs::read_to_string(files.path("server.crt")).unwrap();
        files.issue("server", &authority(), "localhost");
        files.write("server.crt", &certificate);
    };
    let damage: [Damage<'_>; 10] = [
        ("server.crt", "No such file", &|it| std::fs::remove_file(it.path("server.crt")).unwrap()),
        ("server.key", "private key", &|it| it.write("server.key", "nothing")),
        ("server.key", "cannot be used together", &other_key),
        ("clients.pem", "certificate", &|it| it.write("clients.pem", "")),
        ("rights.toml", "line 1", &|it| it.write("rights.toml", "token = 1")),
        ("rights.toml", "token t: ", &|it| {
            let wrong = row(&token(), "t", Role::Read, "").replace("blake3:", "md5:");
            it.write("rights.toml", &wrong);
        }),
        ("jwks.json", "no set of keys", &|it| it.write("jwks.json", "{")),
        ("jwks.json", "No such file", &|it| std::fs::remove_file(it.path("jwks.json")).unwrap()),
        ("keys", "line 1", &|it| it.write("keys", "hunter2")),
        ("receiver.pem", "certificate", &|it| it.write("receiver.pem", "-")),
    ];
    for (file, fault, damage) in damage {
        let files = all();
        damage(&files);
        let (code, said) = check(&files, &[]);
        assert_eq!(code, 2, "{file} {fault}: {said}");
        let path = files.path(file);
        assert!(said.contains(path.to_str().unwrap()) && said.contains(fault), "{fault}: {said}");
        assert!(!said.contains("hunter2"), "{said}");
    }
}

#[test]
fn ports_that_would_not_be_served_are_refused() {
    let (code, said) = check(&all(), &["--admin-listen", "0.0.0.0:2"]);
    assert_eq!(code, 2);
    assert!(said.contains("0.0.0.0:2") && said.contains("--insecure-admin"), "{said}");
    assert_eq!(check(&all(), &["--admin-listen", "0.0.0.0:2", "--admin-tls"]).0, 0);

    let plain = ["serve", "--check-config", "--listen", "0.0.0.0:1", "--store", "memory:"];
    let ran = headwater(&plain).output().unwrap();
    let said = String::from_utf8(ran.stderr).unwrap();
    assert!(ran.status.code() == Some(2) && said.contains("--insecure-listen"), "{said}");
}
