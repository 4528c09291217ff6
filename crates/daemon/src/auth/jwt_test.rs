use jsonwebtoken::{EncodingKey, encode};
use serde_json::json;

use super::*;
use crate::auth::Role;

const NOW_MS: u64 = 1_800_000_000_000;
const NOW_SECONDS: u64 = NOW_MS / 1_000;

/// A key pair of an issuer.
struct Signer {
    id: &'static str,
    pair: rcgen::KeyPair,
}

impl Signer {
    fn new(id: &'static str) -> Self {
        Self { id, pair: rcgen::KeyPair::generate().unwrap() }
    }

    fn key(&self) -> EncodingKey {
        EncodingKey::from_ec_der(self.pair.serialized_der())
    }

    fn jwk(&self) -> Value {
        let jwk = Jwk::from_encoding_key(&self.key(), Algorithm::ES256).unwrap();
        let mut jwk = serde_json::to_value(jwk).unwrap();
        jwk["kid"] = self.id.into();
        jwk["use"] = "sig".into();
        jwk
    }

    fn sign(&self, claims: &Value) -> String {
        let mut header = Header::new(Algorithm::ES256);
        header.kid = Some(self.id.to_owned());
        encode(&header, claims, &self.key()).unwrap()
    }
}

fn issuer(keys: &[Value]) -> Issuer {
    let jwks = json!({ "keys": keys }).to_string();
    let mut issuer = Issuer::new("corp", jwks.as_bytes()).unwrap();
    issuer.iss = "https://id.example".to_owned();
    issuer.audiences = vec!["headwater".to_owned(), "other".to_owned()];
    issuer
}

fn claims() -> Value {
    json!({
        "iss": "https://id.example",
        "aud": "headwater",
        "sub": "ada",
        "exp": NOW_SECONDS + 60,
        "nbf": NOW_SECONDS - 60,
        "headwater_role": "write",
        "headwater_histories": ["app-"],
    })
}

fn with(name: &str, value: Value) -> Value {
    let mut claims = claims();
    claims[name] = value;
    claims
}

fn without(name: &str) -> Value {
    let mut claims = claims();
    claims.as_object_mut().unwrap().remove(name);
    claims
}

#[test]
fn a_signed_token_says_who_and_what() {
    let signer = Signer::new("k1");
    let issuer = issuer(&[signer.jwk()]);

    let known = issuer.verify(&signer.sign(&claims()), NOW_MS).unwrap();

    assert_eq!(&*known.name, "jwt corp ada");
    assert_eq!(known.grants[0].role, Role::Write);
    assert_eq!(known.grants[0].histories, ["app-"]);
    assert_eq!(known.expires_at_ms, Some(NOW_MS + 60_000 + issuer.leeway_ms));
    let many = with("aud", json!(["x", "other"]));
    assert!(issuer.verify(&signer.sign(&many), NOW_MS).is_ok());
}

#[test]
fn every_claim_that_is_checked_refuses() {
    let signer = Signer::new("k1");
    let issuer = issuer(&[signer.jwk()]);
    let leeway = issuer.leeway_ms / 1_000;
    for (claims, why) in [
        (with("iss", json!("https://evil.example")), Unknown::Jwt),
        (without("iss"), Unknown::Jwt),
        (with("aud", json!("another")), Unknown::Jwt),
        (with("aud", json!([])), Unknown::Jwt),
        (without("aud"), Unknown::Jwt),
        (without("exp"), Unknown::Jwt),
        (with("exp", json!("soon")), Unknown::Jwt),
        (with("exp", json!(-1)), Unknown::Jwt),
        (with("exp", json!(NOW_SECONDS - leeway)), Unknown::Expired),
        (with("nbf", json!(NOW_SECONDS + leeway + 1)), Unknown::Early),
        (with("nbf", json!("later")), Unknown::Jwt),
    ] {
        assert_eq!(issuer.verify(&signer.sign(&claims), NOW_MS).unwrap_err(), why, "{claims}");
    }
    for claims in [
        with("exp", json!(NOW_SECONDS - leeway + 1)),
        with("nbf", json!(NOW_SECONDS + leeway)),
        without("nbf"),
        with("exp", json!(1.8e9 + 30.5)),
    ] {
        assert!(issuer.verify(&signer.sign(&claims), NOW_MS).is_ok(), "{claims}");
    }
}

#[test]
fn only_the_issuers_keys_sign() {
    let (signer, other) = (Signer::new("k1"), Signer::new("k1"));
    let issuer = issuer(&[signer.jwk()]);

    // The same id, another key; and a token that was altered.
    assert_eq!(issuer.verify(&other.sign(&claims()), NOW_MS), Err(Unknown::Jwt));
    let token = signer.sign(&claims());
    let parts: Vec<&str> = token.split('.').collect();
    let admin = signer.sign(&with("headwater_role", json!("admin")));
    let payload = admin.split('.').nth(1).unwrap();
    let mixed = format!("{}.{payload}.{}", parts[0], parts[2]);
    assert_eq!(issuer.verify(&mixed, NOW_MS), Err(Unknown::Jwt));
    assert!(issuer.verify(&format!("{}.{}.", parts[0], parts[1]), NOW_MS).is_err());
}

#[test]
fn keys_rotate_by_their_ids() {
    let (old, new) = (Signer::new("k1"), Signer::new("k2"));
    let before = issuer(&[old.jwk()]);
    let both = issuer(&[old.jwk(), new.jwk()]);
    let after = issuer(&[new.jwk()]);
    let (of_old, of_new) = (old.sign(&claims()), new.sign(&claims()));

    assert!(before.verify(&of_old, NOW_MS).is_ok() && before.verify(&of_new, NOW_MS).is_err());
    assert!(both.verify(&of_old, NOW_MS).is_ok() && both.verify(&of_new, NOW_MS).is_ok());
    assert!(after.verify(&of_old, NOW_MS).is_err() && after.verify(&of_new, NOW_MS).is_ok());

    // Without an id only a single key is tried.
    let unnamed = encode(&Header::new(Algorithm::ES256), &claims(), &new.key()).unwrap();
    assert!(after.verify(&unnamed, NOW_MS).is_ok());
    assert_eq!(both.verify(&unnamed, NOW_MS), Err(Unknown::Jwt));
}

#[test]
fn a_symmetric_signature_made_of_the_public_key_is_refused() {
    let signer = Signer::new("k1");
    let issuer = issuer(&[signer.jwk()]);
    let public = EncodingKey::from_secret(signer.pair.public_key_raw()).unwrap();
    let mut header = Header::new(Algorithm::HS256);
    header.kid = Some("k1".to_owned());

    let forged = encode(&header, &claims(), &public).unwrap();
    assert_eq!(issuer.verify(&forged, NOW_MS), Err(Unknown::Jwt));

    // Nor is there an algorithm `none`.
    let token = signer.sign(&claims());
    let none = format!("eyJhbGciOiJub25lIn0.{}.", token.split('.').nth(1).unwrap());
    assert!(issuer.verify(&none, NOW_MS).is_err());
}

#[test]
fn keys_that_cannot_verify_are_no_keys() {
    let new = |keys: Value| Issuer::new("corp", json!({ "keys": keys }).to_string().as_bytes());
    let symmetric = json!({ "kty": "oct", "k": "c2VjcmV0", "kid": "k1" });
    let mut to_encrypt = Signer::new("k1").jwk();
    to_encrypt["use"] = "enc".into();
    let short = json!({ "kty": "RSA", "n": "AQAB".repeat(40), "e": "AQAB" });

    for keys in [json!([]), json!([symmetric]), json!([to_encrypt]), json!([short])] {
        assert!(matches!(new(keys.clone()), Err(IssuerError::NoKey)), "{keys}");
    }
    let many: Vec<Value> = (0..=KEYS_MAX).map(|_| symmetric.clone()).collect();
    assert!(matches!(new(json!(many)), Err(IssuerError::TooMany)));
    assert!(matches!(Issuer::new("corp", b"[]"), Err(IssuerError::Set(_))));
}

#[test]
fn an_issuer_may_name_its_algorithms() {
    let signer = Signer::new("k1");
    let token = signer.sign(&claims());
    let limited = |words: &[&str]| {
        let words: Vec<String> = words.iter().map(ToString::to_string).collect();
        issuer(&[signer.jwk()]).with_algorithms(&words)
    };
    assert!(limited(&["ES256"]).unwrap().verify(&token, NOW_MS).is_ok());
    assert_eq!(limited(&["RS256", "EdDSA"]).unwrap().verify(&token, NOW_MS), Err(Unknown::Jwt));
    for words in [&["HS256"][..], &["none"], &[]] {
        assert!(matches!(limited(words), Err(IssuerError::Algorithm)), "{words:?}");
    }
}

#[test]
fn a_name_from_outside_cannot_write_lines_of_its_own() {
    let signer = Signer::new("k1");
    let token = signer.sign(&with("sub", json!(format!("a\nforged{}", "x".repeat(500)))));
    let known = issuer(&[signer.jwk()]).verify(&token, NOW_MS).unwrap();
    assert!(!known.name.contains('\n') && known.name.len() < 100, "{}", known.name);
}
