//! From a URL to a store.

use std::path::PathBuf;
use std::sync::Arc;

use url::Url;

use crate::{LocalDir, LocalError, Memory, Store};

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
}

const SCHEMES: &str = "file, memory";

/// Opens the store that `url` names. Nothing is read or written yet, so a
/// store that cannot be reached opens as well.
///
/// - `file:///absolute/path`: [`LocalDir`];
/// - `memory:`: a new [`Memory`], gone with the last handle.
///
/// # Errors
///
/// [`OpenError`] names the part of the URL that is wrong.
pub fn open(url: &str) -> Result<Arc<dyn Store>, OpenError> {
    let parsed = Url::parse(url).map_err(|source| OpenError::NotUrl { url: url.into(), source })?;
    match parsed.scheme() {
        "file" => Ok(Arc::new(LocalDir::open(local_path(&parsed)?)?)),
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
