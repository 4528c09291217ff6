//! What the URLs of all buckets have in common.

use std::path::PathBuf;

use crate::key::{self, KeyError};

/// Why a URL does not name a bucket, or its options do not fit together.
#[derive(Debug, thiserror::Error)]
pub enum BucketOptionsError {
    /// Not `<scheme>://bucket/prefix?...`.
    #[error("a store in a bucket is `{scheme}://bucket/prefix?option=value`: {url}")]
    NotBucketUrl {
        /// The scheme.
        scheme: &'static str,
        /// What was given.
        url: String,
    },
    /// A name after `?` that means nothing.
    #[error("unknown option `{name}`: there are {known}")]
    UnknownOption {
        /// The name.
        name: String,
        /// Those that mean something.
        known: &'static str,
    },
    /// A value that is none of those that an option takes.
    #[error("option `{name}` is one of {known}, not `{value}`")]
    NotOneOf {
        /// Which option.
        name: String,
        /// What was given.
        value: String,
        /// What there is.
        known: &'static str,
    },
    /// The prefix cannot be the beginning of a key.
    #[error("not a prefix of keys: {prefix}")]
    Prefix {
        /// The prefix.
        prefix: String,
        /// What is wrong with it.
        #[source]
        source: KeyError,
    },
    /// Options that exclude, or need, each other.
    #[error("{what}")]
    Combination {
        /// Which, and why.
        what: &'static str,
    },
    /// A file that an option names cannot be read.
    #[error("cannot read {}", path.display())]
    File {
        /// Its path.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
    /// A file of keys does not hold what it should.
    #[error("{}: {what}", path.display())]
    BadFile {
        /// Its path.
        path: PathBuf,
        /// What is wrong with it.
        what: String,
    },
    /// The client refuses the settings: these, or the environment's.
    #[error("the store's client refuses its settings")]
    Client(#[source] object_store::Error),
}

/// A URL in its parts.
pub(crate) struct BucketUrl {
    pub(crate) bucket: String,
    pub(crate) prefix: String,
    pub(crate) options: Vec<(String, String)>,
}

impl BucketUrl {
    /// Reads `<scheme>://bucket/prefix?name=value`. The prefix is taken as it
    /// stands, without percent-decoding.
    pub(crate) fn parse(scheme: &'static str, url: &str) -> Result<Self, BucketOptionsError> {
        let not_bucket = || BucketOptionsError::NotBucketUrl { scheme, url: url.into() };
        let rest = url.strip_prefix(scheme).and_then(|it| it.strip_prefix("://"));
        let rest = rest.ok_or_else(not_bucket)?;
        let (place, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (bucket, prefix) = place.split_once('/').unwrap_or((place, ""));
        if bucket.is_empty() {
            return Err(not_bucket());
        }
        let prefix = prefix.strip_suffix('/').unwrap_or(prefix);
        root(prefix)?;
        let options = url::form_urlencoded::parse(query.as_bytes()).into_owned().collect();
        Ok(Self { bucket: bucket.into(), prefix: prefix.into(), options })
    }
}

/// What all keys below a prefix begin with: empty, or ends with `/`.
pub(crate) fn root(prefix: &str) -> Result<String, BucketOptionsError> {
    if prefix.is_empty() {
        return Ok(String::new());
    }
    key::check(prefix, 0)
        .map_err(|source| BucketOptionsError::Prefix { prefix: prefix.into(), source })?;
    Ok(format!("{prefix}/"))
}

pub(crate) fn parse_bool(name: &str, value: &str) -> Result<bool, BucketOptionsError> {
    parse_one_of(name, value, "true, false", |it| it.parse().ok())
}

pub(crate) fn parse_one_of<T>(
    name: &str,
    value: &str,
    known: &'static str,
    parse: impl FnOnce(&str) -> Option<T>,
) -> Result<T, BucketOptionsError> {
    parse(value).ok_or_else(|| BucketOptionsError::NotOneOf {
        name: name.into(),
        value: value.into(),
        known,
    })
}
