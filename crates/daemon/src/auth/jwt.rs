//! JWTs of one issuer, verified with the keys that it publishes (RFC 7515,
//! 7517, 7519).
//!
//! # Invariants
//!
//! - Only asymmetric algorithms: with a symmetric one, whoever can verify can
//!   sign. The algorithm is one of the issuer's list and the one of the key,
//!   never what the token alone says.
//! - Times are compared with the process's [`Clock`](headwater_store::Clock)
//!   here, and not by the library, which takes the system's.

use jsonwebtoken::jwk::{AlgorithmParameters, Jwk, JwkSet, PublicKeyUse};
use jsonwebtoken::{Algorithm, DecodingKey, Header, Validation, decode, decode_header};
use serde_json::{Map, Value};

use super::Principal;
use super::access::Unknown;
use super::claims::ClaimRules;

/// Keys of one issuer.
const KEYS_MAX: usize = 64;
/// Longest token, in bytes. It arrives in a header.
const TOKEN_LEN_BYTES_MAX: usize = 8 << 10;
/// Longest part of a name that a token brings.
const SUBJECT_LEN_BYTES_MAX: usize = 64;
/// Least RSA modulus in base64url digits: 2,048 bits.
const RSA_DIGITS_MIN: usize = 342;

/// What may sign.
const ALGORITHMS: [(&str, Algorithm); 9] = [
    ("RS256", Algorithm::RS256),
    ("RS384", Algorithm::RS384),
    ("RS512", Algorithm::RS512),
    ("PS256", Algorithm::PS256),
    ("PS384", Algorithm::PS384),
    ("PS512", Algorithm::PS512),
    ("ES256", Algorithm::ES256),
    ("ES384", Algorithm::ES384),
    ("EdDSA", Algorithm::EdDSA),
];

/// Why the keys of an issuer cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum IssuerError {
    /// The file is no JWKS.
    #[error("this is no set of keys (JWKS)")]
    Set(#[source] serde_json::Error),
    /// There is nothing in it to verify with.
    #[error("there is no key to verify signatures with: RSA of 2048 bits, EC, or Ed25519")]
    NoKey,
    /// There are too many.
    #[error("there are more than {KEYS_MAX} keys")]
    TooMany,
    /// An algorithm is not taken.
    #[error("an algorithm is none of RS256 to RS512, PS256 to PS512, ES256, ES384, EdDSA")]
    Algorithm,
}

/// Whose tokens are taken, and what their claims mean.
#[derive(Debug)]
pub(crate) struct Issuer {
    name: String,
    keys: Vec<Key>,
    algorithms: Vec<Algorithm>,
    /// What `iss` has to be.
    pub(crate) iss: String,
    pub(crate) audiences: Vec<String>,
    pub(crate) leeway_ms: u64,
    pub(crate) claims: ClaimRules,
    pub(crate) requests_per_second: Option<u32>,
}

#[derive(Debug)]
struct Key {
    id: Option<String>,
    /// The one that it is for, where the set says so.
    algorithm: Option<String>,
    verifies: DecodingKey,
}

impl Issuer {
    /// How far clocks may differ.
    pub(crate) const LEEWAY_SECONDS_DEFAULT: u64 = 30;
    /// At most so far: more would make expiry a word.
    pub(crate) const LEEWAY_SECONDS_MAX: u64 = 600;

    /// With the keys of a JWKS, and nothing that it takes yet.
    pub(crate) fn new(name: &str, jwks: &[u8]) -> Result<Self, IssuerError> {
        let set: JwkSet = serde_json::from_slice(jwks).map_err(IssuerError::Set)?;
        if KEYS_MAX < set.keys.len() {
            return Err(IssuerError::TooMany);
        }
        let keys: Vec<Key> = set.keys.iter().filter_map(key).collect();
        if keys.is_empty() {
            return Err(IssuerError::NoKey);
        }
        Ok(Self {
            name: name.to_owned(),
            keys,
            algorithms: ALGORITHMS.map(|it| it.1).to_vec(),
            iss: String::new(),
            audiences: Vec::new(),
            leeway_ms: Self::LEEWAY_SECONDS_DEFAULT * 1_000,
            claims: ClaimRules::default(),
            requests_per_second: None,
        })
    }

    /// Takes these algorithms only.
    pub(crate) fn with_algorithms(self, words: &[String]) -> Result<Self, IssuerError> {
        let find = |word: &String| ALGORITHMS.iter().find(|it| it.0 == word).map(|it| it.1);
        let algorithms: Option<Vec<_>> = words.iter().map(find).collect();
        let algorithms = algorithms.filter(|it| !it.is_empty()).ok_or(IssuerError::Algorithm)?;
        Ok(Self { algorithms, ..self })
    }

    /// Whose token it is, at this time.
    pub(crate) fn verify(&self, token: &str, now_ms: u64) -> Result<Principal, Unknown> {
        if TOKEN_LEN_BYTES_MAX < token.len() {
            return Err(Unknown::Token);
        }
        let header = decode_header(token).map_err(|_| Unknown::Token)?;
        if !self.algorithms.contains(&header.alg) {
            return Err(Unknown::Jwt);
        }
        let mut validation = Validation::new(header.alg);
        validation.set_issuer(&[&self.iss]);
        validation.set_audience(&self.audiences);
        validation.set_required_spec_claims(&["iss", "aud", "exp"]);
        (validation.validate_exp, validation.validate_nbf) = (false, false);
        let claims = self
            .candidates(&header)
            .find_map(|key| decode::<Map<String, Value>>(token, &key.verifies, &validation).ok())
            .ok_or(Unknown::Jwt)?
            .claims;
        self.check_times(&claims, now_ms)?;
        let subject = claims.get("sub").and_then(Value::as_str).unwrap_or("-");
        let subject = subject.escape_debug().to_string();
        let subject: String = subject.chars().take(SUBJECT_LEN_BYTES_MAX).collect();
        let expires = time_ms(&claims, "exp").map(|it| it.saturating_add(self.leeway_ms));
        Ok(Principal {
            name: format!("jwt {} {subject}", self.name).into(),
            grants: self.claims.grants(&claims).into(),
            requests_per_second: self.requests_per_second,
            expires_at_ms: expires,
        })
    }

    /// The keys that may have signed: those of the id that the token names. A
    /// token that names none is tried with a single key, not with all there are.
    fn candidates<'a>(&'a self, header: &'a Header) -> impl Iterator<Item = &'a Key> {
        let word = ALGORITHMS.iter().find(|it| it.1 == header.alg).map(|it| it.0);
        self.keys.iter().filter(move |key| {
            let is_named = match (&header.kid, &key.id) {
                (Some(wanted), Some(id)) => wanted == id,
                (Some(_), None) => false,
                (None, _) => self.keys.len() == 1,
            };
            let is_fit = key.algorithm.as_deref().is_none_or(|it| Some(it) == word);
            is_named && is_fit
        })
    }

    fn check_times(&self, claims: &Map<String, Value>, now_ms: u64) -> Result<(), Unknown> {
        let expires = time_ms(claims, "exp").ok_or(Unknown::Jwt)?;
        if expires.saturating_add(self.leeway_ms) <= now_ms {
            return Err(Unknown::Expired);
        }
        let is_early = |not_before: u64| now_ms.saturating_add(self.leeway_ms) < not_before;
        match claims.get("nbf") {
            None => Ok(()),
            Some(_) => match time_ms(claims, "nbf") {
                None => Err(Unknown::Jwt),
                Some(it) if is_early(it) => Err(Unknown::Early),
                Some(_) => Ok(()),
            },
        }
    }
}

/// A `NumericDate`; parts of a second are cut.
fn time_ms(claims: &Map<String, Value>, name: &str) -> Option<u64> {
    let value = claims.get(name)?;
    let whole = || value.to_string().split('.').next().and_then(|it| it.parse().ok());
    value.as_u64().or_else(whole)?.checked_mul(1_000)
}

/// A key that verifies; `None` for what is for something else.
fn key(jwk: &Jwk) -> Option<Key> {
    let is_for_signatures =
        matches!(jwk.common.public_key_use, None | Some(PublicKeyUse::Signature));
    // What is taken is listed. A symmetric key is not: whoever can verify with
    // it could sign.
    let is_fit = if let AlgorithmParameters::RSA(it) = &jwk.algorithm {
        RSA_DIGITS_MIN <= it.n.len()
    } else {
        matches!(
            &jwk.algorithm,
            AlgorithmParameters::EllipticCurve(_) | AlgorithmParameters::OctetKeyPair(_)
        )
    };
    if !is_for_signatures || !is_fit {
        return None;
    }
    Some(Key {
        id: jwk.common.key_id.clone(),
        algorithm: jwk.common.key_algorithm.map(|it| it.to_string()),
        verifies: DecodingKey::from_jwk(jwk).ok()?,
    })
}

#[cfg(test)]
#[path = "jwt_test.rs"]
mod tests;
