//! The file of rights: who there is, and what they may do.
//!
//! ```toml
//! [[token]]                     # as `headwater token new` prints it
//! name = "ingest"
//! id = "0123456789abcdef"
//! hash = "blake3:…"
//! expires = 2027-01-31T00:00:00Z
//! grants = [{ role = "write", histories = ["app-"] }]
//!
//! [[certificate]]               # by DNS name or URI of a client certificate
//! name = "replicas"
//! subjects = ["replica.headwater.svc", "spiffe://prod/replica"]
//! grants = [{ role = "read", histories = [""] }]
//!
//! [[issuer]]                    # JWTs
//! name = "corp"
//! issuer = "https://id.example"
//! audiences = ["headwater"]
//! jwks_file = "jwks.json"
//! ```

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::Deserialize;
use toml::value::Datetime;

use super::claims::ClaimRules;
use super::jwt::{Issuer, IssuerError};
use super::moment;
use super::token::{TokenHash, id_of, is_id};
use super::{Grant, Principal};

/// Rows of one kind.
const ROWS_MAX: usize = 4_096;
/// Prefixes of one row.
const PREFIXES_MAX: usize = 256;
/// Longest name, in bytes: it is in every line of the audit log.
const NAME_LEN_BYTES_MAX: usize = 64;
/// Most bytes of the file, and of a JWKS file.
pub(crate) const FILE_LEN_BYTES_MAX: u64 = 4 << 20;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct FileShape {
    #[serde(default)]
    token: Vec<TokenShape>,
    #[serde(default)]
    certificate: Vec<CertificateShape>,
    #[serde(default)]
    issuer: Vec<IssuerShape>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct TokenShape {
    name: String,
    id: String,
    hash: String,
    expires: Option<Datetime>,
    requests_per_second: Option<u32>,
    grants: Vec<Grant>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct CertificateShape {
    name: String,
    subjects: Vec<String>,
    requests_per_second: Option<u32>,
    grants: Vec<Grant>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct IssuerShape {
    name: String,
    issuer: String,
    audiences: Vec<String>,
    jwks_file: PathBuf,
    algorithms: Option<Vec<String>>,
    leeway_seconds: Option<u64>,
    requests_per_second: Option<u32>,
    #[serde(flatten)]
    claims: ClaimRules,
}

/// Why a file of rights cannot be used. Nothing of its content is in the text:
/// somebody may have put a token where its hash belongs.
#[derive(Debug, thiserror::Error)]
pub enum AccessError {
    /// It cannot be read.
    #[error("cannot read {}", path.display())]
    Read {
        /// Which file.
        path: PathBuf,
        /// What happened.
        #[source]
        source: io::Error,
    },
    /// It is too long.
    #[error("{} is longer than {FILE_LEN_BYTES_MAX} bytes", path.display())]
    TooLong {
        /// Which file.
        path: PathBuf,
    },
    /// It is no TOML, or not of this shape.
    #[error("line {line}: {message}")]
    Shape {
        /// Where.
        line: usize,
        /// What is wrong.
        message: String,
    },
    /// A row breaks a rule.
    #[error("{row}: {rule}")]
    Row {
        /// Which row: `token ingest`.
        row: String,
        /// The rule.
        rule: String,
    },
    /// The keys of an issuer cannot be used.
    #[error("issuer {name}: {}", path.display())]
    Keys {
        /// Which issuer.
        name: String,
        /// The file of its keys.
        path: PathBuf,
        /// What is wrong.
        #[source]
        source: IssuerError,
    },
}

/// Why nobody is known by what was shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unknown {
    /// Nothing was shown.
    #[error("send a token in `authorization: Bearer …`, or show a certificate that has rights")]
    Nothing,
    /// The header is no bearer token.
    #[error("`authorization` is not `Bearer` and a token")]
    NotBearer,
    /// Nobody has this token.
    #[error("the token is not known")]
    Token,
    /// Its time is over.
    #[error("the token has expired")]
    Expired,
    /// Its time has not come.
    #[error("the token is not valid yet")]
    Early,
    /// No key of an issuer has signed it, or not for us.
    #[error("no issuer has signed this token for this service")]
    Jwt,
}

/// What a caller has shown.
#[derive(Clone, Debug, Default)]
pub struct Shown {
    /// `authorization`, whole.
    pub authorization: Option<http::HeaderValue>,
    /// Names of the client's certificate.
    pub certificate: Option<Arc<[String]>>,
}

/// Everybody who is known.
#[derive(Debug)]
pub struct Access {
    tokens: BTreeMap<String, TokenRow>,
    /// By subject.
    certificates: BTreeMap<String, Principal>,
    issuers: Vec<Issuer>,
}

#[derive(Debug)]
struct TokenRow {
    hash: TokenHash,
    principal: Principal,
}

/// A file of rights as it was read, with the files that it names.
pub(crate) struct Sources {
    access: Vec<u8>,
    keys: BTreeMap<PathBuf, Vec<u8>>,
}

impl Sources {
    /// Reads all of them. What cannot be parsed is found out later.
    pub(crate) async fn read(path: &Path) -> Result<Self, AccessError> {
        let access = read(path).await?;
        let mut keys = BTreeMap::new();
        if let Ok(shape) = parse(&access) {
            for issuer in shape.issuer {
                let file = beside(path, &issuer.jwks_file);
                keys.insert(file.clone(), read(&file).await?);
            }
        }
        Ok(Self { access, keys })
    }

    /// Tells it from another.
    pub(crate) fn fingerprint(&self) -> blake3::Hash {
        let mut hasher = blake3::Hasher::new();
        for bytes in std::iter::once(&self.access).chain(self.keys.values()) {
            hasher.update(blake3::hash(bytes).as_bytes());
        }
        hasher.finalize()
    }
}

async fn read(path: &Path) -> Result<Vec<u8>, AccessError> {
    use tokio::io::AsyncReadExt as _;
    let failed = |source| AccessError::Read { path: path.to_owned(), source };
    let file = tokio::fs::File::open(path).await.map_err(failed)?;
    let mut bytes = Vec::new();
    file.take(FILE_LEN_BYTES_MAX + 1).read_to_end(&mut bytes).await.map_err(failed)?;
    if FILE_LEN_BYTES_MAX < bytes.len() as u64 {
        return Err(AccessError::TooLong { path: path.to_owned() });
    }
    Ok(bytes)
}

/// A relative file is beside the one that names it.
fn beside(path: &Path, named: &Path) -> PathBuf {
    path.parent().map_or_else(|| named.to_owned(), |it| it.join(named))
}

fn parse(bytes: &[u8]) -> Result<FileShape, AccessError> {
    let text = std::str::from_utf8(bytes)
        .map_err(|_| AccessError::Shape { line: 1, message: "this is no text".to_owned() })?;
    toml::from_str(text).map_err(|error| {
        let before = error.span().and_then(|it| text.get(..it.start)).unwrap_or_default();
        let line = before.bytes().filter(|it| *it == b'\n').count() + 1;
        // Not the error's own text: that shows the line. Nor a message that
        // quotes a value, which may be a secret in the wrong place.
        let message = error.message().split(['"', '`']).next().unwrap_or_default().trim();
        AccessError::Shape { line, message: format!("not as expected: {message}") }
    })
}

impl Access {
    /// Makes sense of what was read from `path`.
    pub(crate) fn of(path: &Path, sources: &Sources) -> Result<Self, AccessError> {
        let shape = parse(&sources.access)?;
        for (rows, count) in [
            ("tokens", shape.token.len()),
            ("certificates", shape.certificate.len()),
            ("issuers", shape.issuer.len()),
        ] {
            check(rows, count <= ROWS_MAX, || format!("there are more than {ROWS_MAX}"))?;
        }
        let mut access =
            Self { tokens: BTreeMap::new(), certificates: BTreeMap::new(), issuers: Vec::new() };
        for token in shape.token {
            access.add_token(token)?;
        }
        for certificate in shape.certificate {
            access.add_certificate(certificate)?;
        }
        for issuer in shape.issuer {
            let file = beside(path, &issuer.jwks_file);
            let keys = sources.keys.get(&file).map(Vec::as_slice).unwrap_or_default();
            access.issuers.push(make_issuer(issuer, &file, keys)?);
        }
        Ok(access)
    }

    fn add_token(&mut self, token: TokenShape) -> Result<(), AccessError> {
        let row = named("token", &token.name)?;
        check(&row, is_id(&token.id), || "id is 16 hex digits, as `token new` prints".to_owned())?;
        let hash = TokenHash::parse(&token.hash).ok_or_else(|| AccessError::Row {
            row: row.clone(),
            rule: "hash is `blake3:` and 64 hex digits, as `token new` prints".to_owned(),
        })?;
        let expires_at_ms = match token.expires {
            None => None,
            Some(at) => Some(moment::to_ms(at).ok_or_else(|| AccessError::Row {
                row: row.clone(),
                rule: "expires is a moment with its zone: 2027-01-31T00:00:00Z".to_owned(),
            })?),
        };
        let principal = principal(row.clone(), token.grants, token.requests_per_second)?;
        let principal = Principal { expires_at_ms, ..principal };
        let before = self.tokens.insert(token.id, TokenRow { hash, principal });
        check(&row, before.is_none(), || "another token has this id".to_owned())
    }

    fn add_certificate(&mut self, certificate: CertificateShape) -> Result<(), AccessError> {
        let row = named("certificate", &certificate.name)?;
        let count = certificate.subjects.len();
        check(&row, (1..=PREFIXES_MAX).contains(&count), || "subjects are needed".to_owned())?;
        let principal =
            principal(row.clone(), certificate.grants, certificate.requests_per_second)?;
        for subject in certificate.subjects {
            let before = self.certificates.insert(subject, principal.clone());
            check(&row, before.is_none(), || "a subject of it has rights already".to_owned())?;
        }
        Ok(())
    }

    /// Who has shown this, at this time.
    ///
    /// A token that is shown counts alone: one that is not known is not made up
    /// for by a certificate.
    ///
    /// # Errors
    ///
    /// [`Unknown`].
    pub fn authenticate(&self, shown: &Shown, now_ms: u64) -> Result<Principal, Unknown> {
        let Some(authorization) = &shown.authorization else {
            let names = shown.certificate.as_deref().unwrap_or_default();
            let known = names.iter().find_map(|it| self.certificates.get(it));
            return known.cloned().ok_or(Unknown::Nothing);
        };
        let token = authorization
            .to_str()
            .ok()
            .and_then(|it| it.split_once(' '))
            .filter(|it| it.0.eq_ignore_ascii_case("bearer"))
            .map(|it| it.1.trim())
            .ok_or(Unknown::NotBearer)?;
        if let Some(id) = id_of(token) {
            let row = self.tokens.get(id).filter(|it| it.hash.is_of(token));
            let row = row.ok_or(Unknown::Token)?;
            return match row.principal.expires_at_ms {
                Some(at) if at <= now_ms => Err(Unknown::Expired),
                Some(_) | None => Ok(row.principal.clone()),
            };
        }
        let mut last = Unknown::Token;
        for issuer in &self.issuers {
            match issuer.verify(token, now_ms) {
                Ok(principal) => return Ok(principal),
                // What an issuer has signed and is over is told as that.
                Err(error) if last == Unknown::Token || error != Unknown::Jwt => last = error,
                Err(_) => {}
            }
        }
        Err(last)
    }
}

fn make_issuer(shape: IssuerShape, file: &Path, keys: &[u8]) -> Result<Issuer, AccessError> {
    let row = named("issuer", &shape.name)?;
    let keys_failed =
        |source| AccessError::Keys { name: shape.name.clone(), path: file.to_owned(), source };
    check(&row, !shape.issuer.is_empty(), || "issuer is empty".to_owned())?;
    check(&row, !shape.audiences.is_empty(), || "audiences are needed".to_owned())?;
    let mut issuer = Issuer::new(&shape.name, keys).map_err(keys_failed)?;
    if let Some(words) = &shape.algorithms {
        issuer = issuer.with_algorithms(words).map_err(keys_failed)?;
    }
    issuer.iss = shape.issuer;
    issuer.audiences = shape.audiences;
    issuer.claims = shape.claims;
    issuer.requests_per_second = shape.requests_per_second;
    issuer.leeway_ms = shape.leeway_seconds.unwrap_or(Issuer::LEEWAY_SECONDS_DEFAULT) * 1_000;
    check(&row, issuer.leeway_ms <= Issuer::LEEWAY_SECONDS_MAX * 1_000, || {
        format!("leeway_seconds is at most {}", Issuer::LEEWAY_SECONDS_MAX)
    })?;
    Ok(issuer)
}

fn named(kind: &str, name: &str) -> Result<String, AccessError> {
    let is_name = !name.is_empty()
        && name.len() <= NAME_LEN_BYTES_MAX
        && name.chars().all(|it| it.is_ascii_alphanumeric() || "._@/-".contains(it));
    let rule = || format!("a name is 1 to {NAME_LEN_BYTES_MAX} of A-Z, a-z, 0-9, ._@/-");
    check(kind, is_name, rule)?;
    Ok(format!("{kind} {name}"))
}

fn principal(
    row: String,
    grants: Vec<Grant>,
    requests_per_second: Option<u32>,
) -> Result<Principal, AccessError> {
    let prefixes: usize = grants.iter().map(|it| it.histories.len()).sum();
    check(&row, prefixes <= PREFIXES_MAX, || format!("more than {PREFIXES_MAX} prefixes"))?;
    check(&row, requests_per_second != Some(0), || "requests_per_second is 1 or more".to_owned())?;
    Ok(Principal {
        name: row.into(),
        grants: grants.into(),
        requests_per_second,
        expires_at_ms: None,
    })
}

fn check(row: &str, holds: bool, rule: impl FnOnce() -> String) -> Result<(), AccessError> {
    if holds { Ok(()) } else { Err(AccessError::Row { row: row.to_owned(), rule: rule() }) }
}

#[cfg(test)]
#[path = "access_test.rs"]
mod tests;
