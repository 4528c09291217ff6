//! JWTs, shown to the real program, and the keys of their issuer replaced while
//! it runs.

use std::process::Stdio;
use std::time::{SystemTime, UNIX_EPOCH};

use jsonwebtoken::jwk::Jwk;
use jsonwebtoken::{Algorithm, EncodingKey, Header, encode};
use rcgen::KeyPair;
use serde_json::{Value, json};

use crate::fixture::{Files, authority};
use crate::support::{Served, headwater, wait_until};

const RIGHTS: &str = r#"
[[issuer]]
name = "corp"
issuer = "https://id.example"
audiences = ["headwater"]
jwks_file = "jwks.json"
leeway_seconds = 0
"#;

/// A key pair of the issuer.
struct Signer {
    id: &'static str,
    key: EncodingKey,
}

impl Signer {
    fn new(id: &'static str) -> Self {
        let pair = KeyPair::generate().unwrap();
        Self { id, key: EncodingKey::from_ec_der(pair.serialized_der()) }
    }

    fn jwk(&self) -> Value {
        let jwk = Jwk::from_encoding_key(&self.key, Algorithm::ES256).unwrap();
        let mut jwk = serde_json::to_value(jwk).unwrap();
        (jwk["kid"], jwk["use"]) = (self.id.into(), "sig".into());
        jwk
    }

    fn sign(&self, claims: &Value) -> String {
        let mut header = Header::new(Algorithm::ES256);
        header.kid = Some(self.id.to_owned());
        encode(&header, claims, &self.key).unwrap()
    }
}

#[expect(clippy::disallowed_methods, reason = "tokens say when they end by the clock of the day")]
fn now_seconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs()
}

fn claims(role: &str, changed: &[(&str, Value)]) -> Value {
    let mut claims = json!({
        "iss": "https://id.example",
        "aud": ["other", "headwater"],
        "sub": "ada",
        "exp": now_seconds() + 3_600,
        "headwater_role": role,
        "headwater_histories": ["app-"],
    });
    for (name, value) in changed {
        claims[name] = value.clone();
    }
    claims
}

/// A server that knows the issuer's keys, over TLS.
struct World {
    files: Files,
    served: Served,
}

impl World {
    fn start(keys: &[&Signer]) -> Self {
        let (files, ca) = (Files::new(), authority());
        files.issue("server", &ca, "localhost");
        files.write("ca.pem", &ca.pem());
        files.write("rights.toml", RIGHTS);
        publish(&files, keys);
        let file = |name: &str| files.path(name).to_str().unwrap().to_owned();
        let served = Served::start_with(|command| {
            let command = command.args(["--listen", "127.0.0.1:0", "--store", "memory:"]);
            let command = command.args(["--listen-tls-cert-file", &file("server.crt")]);
            let command = command.args(["--listen-tls-key-file", &file("server.key")]);
            let command = command.args(["--auth-file", &file("rights.toml")]);
            command.args(["--credentials-interval-ms", "20"]).stderr(Stdio::null())
        });
        Self { files, served }
    }

    /// Whether the command is carried out for who shows the token; otherwise
    /// what it says.
    fn run(&self, token: &str, arguments: &[&str]) -> Result<(), String> {
        self.files.write("token", token);
        let file = |name: &str| self.files.path(name).to_str().unwrap().to_owned();
        let address = self.served.address.replace("127.0.0.1", "https://localhost");
        let mut command = headwater(arguments);
        command.args(["--writer", &address, "--tls-ca", &file("ca.pem")]);
        command.args(["--token-file", &file("token"), "--json"]);
        let ran = command.output().unwrap();
        let said = String::from_utf8(ran.stderr).unwrap();
        if ran.status.success() { Ok(()) } else { Err(said) }
    }

    fn refuses(&self, token: &str, arguments: &[&str], reason: &str) {
        let said = self.run(token, arguments).expect_err("it is refused");
        assert!(said.contains(reason), "{arguments:?}: {said}");
    }
}

fn publish(files: &Files, signers: &[&Signer]) {
    let keys: Vec<_> = signers.iter().map(|it| it.jwk()).collect();
    files.write("jwks.json", &json!({ "keys": keys }).to_string());
}

#[test]
fn a_token_of_the_issuer_gives_what_its_claims_say_and_no_other_gives_anything() {
    let (signer, other) = (Signer::new("k1"), Signer::new("k1"));
    let world = World::start(&[&signer]);
    let admin = signer.sign(&claims("admin", &[]));
    let put = ["put", "app-1", "k", "v"];
    world.run(&admin, &["create", "app-1"]).unwrap();
    world.run(&signer.sign(&claims("write", &[])), &put).unwrap();
    world.run(&signer.sign(&claims("read", &[])), &["get", "app-1", "k"]).unwrap();

    let refused = "UNAUTHENTICATED";
    for changed in [
        ("exp", json!(now_seconds() - 1)),
        ("nbf", json!(now_seconds() + 3_600)),
        ("aud", json!("another")),
        ("iss", json!("https://evil.example")),
    ] {
        world.refuses(&signer.sign(&claims("admin", &[changed])), &put, refused);
    }
    world.refuses(&other.sign(&claims("admin", &[])), &put, refused);
    world.refuses("not-a-token", &put, refused);

    let refused = "PERMISSION_DENIED";
    world.refuses(&signer.sign(&claims("read", &[])), &put, refused);
    world.refuses(&signer.sign(&claims("write", &[])), &["create", "app-2"], refused);
    world.refuses(&admin, &["create", "other"], refused);
    world.refuses(&admin, &["get", "other", "k"], refused);
    let nowhere = [("headwater_histories", json!([]))];
    world.refuses(&signer.sign(&claims("admin", &nowhere)), &put, refused);
    // One that says what an issuer need not know.
    world.refuses(&signer.sign(&claims("emperor", &[])), &put, refused);
    assert_eq!(world.served.stop(), 0);
}

#[test]
fn new_keys_of_the_issuer_are_known_without_a_restart_and_old_ones_are_forgotten() {
    let (old, new) = (Signer::new("k1"), Signer::new("k2"));
    let world = World::start(&[&old]);
    let (of_old, of_new) = (old.sign(&claims("admin", &[])), new.sign(&claims("admin", &[])));
    let list = ["list", "app-"];
    world.run(&of_old, &["create", "app-1"]).unwrap();
    world.refuses(&of_new, &list, "UNAUTHENTICATED");

    publish(&world.files, &[&old, &new]);
    wait_until("the new key is known", || world.run(&of_new, &list).is_ok());
    world.run(&of_old, &list).unwrap();

    // What cannot be used changes nothing.
    world.files.write("jwks.json", "{");
    std::thread::sleep(std::time::Duration::from_millis(200));
    world.run(&of_new, &list).unwrap();

    publish(&world.files, &[&new]);
    wait_until("the old key is forgotten", || world.run(&of_old, &list).is_err());
    world.refuses(&of_old, &list, "UNAUTHENTICATED");
    world.run(&of_new, &["put", "app-1", "k", "v"]).unwrap();
    assert_eq!(world.served.stop(), 0);
}
