//! Who may sign requests, and where temporary keys come from.
//!
//! In here: one key pair that lasts, temporary ones that expire, and the two
//! services of a cloud that hand those out: that of a machine
//! (`AWS_METADATA_ENDPOINT`) and that of a container
//! (`AWS_CONTAINER_CREDENTIALS_FULL_URI`). Not in here: roles and policies
//! ([`Conduct::denied`](crate::Conduct::denied)).

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use http::Method;
use s3s::auth::{S3Auth, SecretKey};
use s3s::dto::{Timestamp, TimestampFormat};
use s3s::{S3Result, s3_error};
use tokio::time::Instant;

use crate::{ACCESS_KEY_ID, SECRET_ACCESS_KEY};

/// Path of the service that hands out keys to a container.
pub(crate) const CONTAINER_PATH: &str = "/latest/container/credentials";

const TOKEN_PATH: &str = "/latest/api/token";
const ROLES_PATH: &str = "/latest/meta-data/iam/security-credentials/";
const ROLE: &str = "headwater-test-role";

/// Temporary keys that are remembered: the oldest goes first.
const ISSUED_MAX: usize = 10_000;

/// A key pair that expires.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TemporaryKey {
    /// Access key id.
    pub access_key_id: String,
    /// Secret access key.
    pub secret_access_key: String,
    /// Goes with each request.
    pub session_token: String,
}

#[derive(Clone, Debug)]
struct Issued {
    secret: String,
    expires_at: Instant,
}

#[derive(Debug)]
struct State {
    issued: BTreeMap<String, Issued>,
    n_issued: u64,
    n_fetched: u64,
    lifetime: Duration,
}

/// The keys of an endpoint. Clones share them.
#[derive(Clone, Debug)]
pub(crate) struct Keys(Arc<Mutex<State>>);

impl Default for Keys {
    fn default() -> Self {
        let lifetime = Duration::from_secs(3600);
        let state = State { issued: BTreeMap::new(), n_issued: 0, n_fetched: 0, lifetime };
        Self(Arc::new(Mutex::new(state)))
    }
}

impl Keys {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets how long keys last that are fetched from now on.
    pub(crate) fn set_lifetime(&self, lifetime: Duration) {
        self.state().lifetime = lifetime;
    }

    /// How often keys were fetched from one of the services.
    pub(crate) fn n_fetched(&self) -> u64 {
        self.state().n_fetched
    }

    /// Makes a key that lasts for `lifetime`.
    pub(crate) fn issue(&self, lifetime: Duration) -> TemporaryKey {
        let mut state = self.state();
        state.n_issued += 1;
        let n = state.n_issued;
        // Sorted by number: the first is the oldest.
        let access_key_id = format!("temporary-{n:010}");
        let secret = format!("secret-{n}");
        let expires_at = Instant::now() + lifetime;
        state.issued.insert(access_key_id.clone(), Issued { secret: secret.clone(), expires_at });
        while ISSUED_MAX < state.issued.len() {
            state.issued.pop_first();
        }
        let session_token = format!("session-{n}");
        TemporaryKey { access_key_id, secret_access_key: secret, session_token }
    }

    /// Ends all temporary keys.
    pub(crate) fn expire(&self) {
        let now = Instant::now();
        for issued in self.state().issued.values_mut() {
            issued.expires_at = issued.expires_at.min(now);
        }
    }

    /// The answer to a request for keys; `None` where it is another request.
    pub(crate) fn serve(&self, method: &Method, path: &str) -> Option<Bytes> {
        if (method, path) == (&Method::PUT, TOKEN_PATH) {
            return Some(Bytes::from_static(b"metadata-token"));
        }
        if method != Method::GET {
            return None;
        }
        if path == ROLES_PATH {
            return Some(Bytes::from_static(ROLE.as_bytes()));
        }
        let is_fetch = path == CONTAINER_PATH || path.strip_prefix(ROLES_PATH) == Some(ROLE);
        is_fetch.then(|| self.fetch())
    }

    fn fetch(&self) -> Bytes {
        let lifetime = {
            let mut state = self.state();
            state.n_fetched += 1;
            state.lifetime
        };
        let key = self.issue(lifetime);
        let expiration = expiration(lifetime);
        let TemporaryKey { access_key_id, secret_access_key, session_token } = key;
        format!(
            r#"{{"Code":"Success","Type":"AWS-HMAC","AccessKeyId":"{access_key_id}","SecretAccessKey":"{secret_access_key}","Token":"{session_token}","Expiration":"{expiration}"}}"#
        )
        .into()
    }
}

#[expect(clippy::disallowed_methods, reason = "clients compare it with their own wall clock")]
fn expiration(lifetime: Duration) -> String {
    formatted(SystemTime::now() + lifetime, TimestampFormat::DateTime)
}

pub(crate) fn formatted(time: SystemTime, format: TimestampFormat) -> String {
    timestamp(&Timestamp::from(time), format)
}

pub(crate) fn timestamp(time: &Timestamp, format: TimestampFormat) -> String {
    let mut text = Vec::new();
    let written = time.format(format, &mut text);
    debug_assert!(written.is_ok(), "times of this century have a form");
    String::from_utf8_lossy(&text).into_owned()
}

#[async_trait::async_trait]
impl S3Auth for Keys {
    async fn get_secret_key(&self, access_key: &str) -> S3Result<SecretKey> {
        if access_key == ACCESS_KEY_ID {
            return Ok(SecretKey::from(SECRET_ACCESS_KEY));
        }
        match self.state().issued.get(access_key) {
            None => Err(s3_error!(InvalidAccessKeyId)),
            Some(it) if it.expires_at <= Instant::now() => Err(s3_error!(ExpiredToken)),
            Some(it) => Ok(SecretKey::from(it.secret.as_str())),
        }
    }
}
