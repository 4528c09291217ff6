//! From a URL to a store.

use std::path::PathBuf;
use std::sync::Arc;

use url::Url;

use crate::{
    AzureContainer, AzureOptions, BucketOptionsError, GcsBucket, GcsOptions, LocalDir, LocalError,
    Memory, S3Bucket, S3Options, Store,
};

/// Why a URL does not open.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Not a URL at all.
    #[error("not the URL of a store: {url}")]
    NotUrl {
        /// What was given.
        url: String,
        /// What is wrong with it.
        #[source]
        source: url::ParseError,
    },
    /// A scheme that no adapter serves.
    #[error("stores have one of the schemes {SCHEMES}; this is `{scheme}:`")]
    UnknownScheme {
        /// The scheme given.
        scheme: String,
    },
    /// A `file:` URL that names no absolute path of this host.
    #[error("a local store is `file:///` and an absolute path, without a host or `?`: {url}")]
    NotPath {
        /// The URL given.
        url: String,
    },
    /// A `memory:` URL with something after the colon.
    #[error("a store in memory is `memory:` alone: each one is new and has no name")]
    NamedMemory,
    /// The directory cannot be used.
    #[error(transparent)]
    Local(#[from] LocalError),
    /// The URL names no bucket, or its options do not fit together.
    #[error(transparent)]
    Bucket(#[from] BucketOptionsError),
}

const SCHEMES: &str = "file, s3, gs, az, memory";

/// Opens the store that `url` names. Nothing is read or written yet, so a
/// store that cannot be reached opens as well.
///
/// - `file:///absolute/path`: [`LocalDir`];
/// - `s3://bucket/prefix?...`: [`S3Bucket`], with the options of [`S3Options`];
/// - `gs://bucket/prefix?...`: [`GcsBucket`], with the options of [`GcsOptions`];
/// - `az://container/prefix?account=...`: [`AzureContainer`], with the options of
///   [`AzureOptions`];
/// - `memory:`: a new [`Memory`], gone with the last handle.
///
/// # Errors
///
/// [`OpenError`] names the part of the URL that is wrong.
pub fn open(url: &str) -> Result<Arc<dyn Store>, OpenError> {
    let parsed = Url::parse(url).map_err(|source| OpenError::NotUrl { url: url.into(), source })?;
    match parsed.scheme() {
        "file" => Ok(Arc::new(LocalDir::open(local_path(&parsed)?)?)),
        "s3" => Ok(Arc::new(S3Bucket::open(&S3Options::parse(url)?)?)),
        "gs" => Ok(Arc::new(GcsBucket::open(&GcsOptions::parse(url)?)?)),
        "az" => Ok(Arc::new(AzureContainer::open(&AzureOptions::parse(url)?)?)),
        "memory" if matches!(&url[parsed.scheme().len()..], ":" | "://" | ":///") => {
            Ok(Arc::new(Memory::new()))
        }
        "memory" => Err(OpenError::NamedMemory),
        scheme => Err(OpenError::UnknownScheme { scheme: scheme.into() }),
    }
}

fn local_path(url: &Url) -> Result<PathBuf, OpenError> {
    let is_plain = url.query().is_none() && url.fragment().is_none();
    let path = url.to_file_path().ok().filter(|_| is_plain);
    path.ok_or_else(|| OpenError::NotPath { url: url.as_str().into() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(url: &str) -> String {
        open(url).unwrap_err().to_string()
    }

    #[test]
    fn a_scheme_chooses_the_adapter() {
        let debug = |url: &str| format!("{:?}", open(url).unwrap());
        assert!(debug("file:///tmp/a%20b").starts_with("LocalDir"));
        assert!(debug("file:///tmp/a%20b").contains("/tmp/a b"));
        assert!(debug("memory:").starts_with("Memory"));
        assert!(debug("s3://b/p?region=x").starts_with("S3Bucket"));
        assert!(debug("gs://b/p").starts_with("GcsBucket"));
        assert!(debug("az://c/p?account=a").starts_with("AzureContainer"));
    }

    #[test]
    fn what_does_not_open_is_told_what_would() {
        assert!(message("gopher://x").contains("file, s3, gs, az, memory"));
        assert!(message("/tmp/x").contains("/tmp/x"));
        assert!(message("file://host/x").contains("file://host/x"));
        assert!(message("file:///x?y=1").contains("?y=1"));
        assert!(message("memory:name").contains("memory:"));
        assert!(message("s3://b?colour=red").contains("`colour`"));
    }
}
