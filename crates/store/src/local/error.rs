//! What a file system refuses, in the terms of a store.

use std::io;
use std::path::{Path, PathBuf};

use tokio::task::JoinError;

use crate::key::KeyError;
use crate::{NoAnswer, NoAnswerKind, ReadError};

/// A local directory that cannot be used, or a call of the system that failed
/// in it.
#[derive(Debug, thiserror::Error)]
pub enum LocalError {
    /// The root of a store is absolute.
    #[error("not an absolute path: {}", path.display())]
    Relative {
        /// The path.
        path: PathBuf,
    },
    /// The folder that the store was in was removed, or its volume is not mounted
    /// any more.
    #[error("{} is not the folder that it was: is its volume mounted?", path.display())]
    RootGone {
        /// The root of the store.
        path: PathBuf,
    },
    /// A call of the system failed. [`io::ErrorKind`] tells a full disk from
    /// missing permissions.
    #[error("cannot {doing} {}", path.display())]
    Io {
        /// What was being done, as in "cannot _sync_ /a/b".
        doing: &'static str,
        /// To which file or folder.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
}

/// Why a call on files failed, before it is known whether it was a read or a
/// write.
#[derive(Debug)]
pub(super) enum CallError {
    Io {
        doing: &'static str,
        path: PathBuf,
        source: io::Error,
    },
    /// The folder that the store is in was removed, or is another one now.
    RootGone {
        root: PathBuf,
    },
    /// The file system cannot hold both of two keys.
    ObjectAndFolder,
    /// The object went away between two steps of the call.
    Raced,
    /// The call panicked, or the runtime is shutting down.
    Stopped(JoinError),
}

/// The object went away, or came, while the call looked at it.
#[derive(Debug, thiserror::Error)]
#[error("the object was deleted during the call")]
struct Raced;

impl CallError {
    /// Wraps an error of the system in what was being done.
    pub(super) fn io(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |source| {
            let kind = source.kind();
            if matches!(kind, io::ErrorKind::NotADirectory | io::ErrorKind::IsADirectory) {
                return Self::ObjectAndFolder;
            }
            Self::Io { doing, path: path.into(), source }
        }
    }

    fn is_denied(&self) -> bool {
        match self {
            Self::Io { source, .. } => matches!(
                source.kind(),
                io::ErrorKind::PermissionDenied
                    | io::ErrorKind::ReadOnlyFilesystem
                    | io::ErrorKind::InvalidFilename
            ),
            Self::ObjectAndFolder => true,
            Self::RootGone { .. } | Self::Raced | Self::Stopped(_) => false,
        }
    }

    fn into_cause(self) -> crate::Cause {
        match self {
            Self::Io { doing, path, source } => Box::new(LocalError::Io { doing, path, source }),
            Self::RootGone { root: path } => Box::new(LocalError::RootGone { path }),
            Self::ObjectAndFolder => Box::new(KeyError::ObjectAndFolder),
            Self::Raced => Box::new(Raced),
            Self::Stopped(error) => Box::new(error),
        }
    }

    pub(super) fn into_read_error(self, key: &str) -> ReadError {
        if self.is_denied() {
            ReadError::Denied { key: key.into(), cause: self.into_cause() }
        } else {
            ReadError::Unavailable { retry_after: None, cause: self.into_cause() }
        }
    }

    pub(super) fn into_no_answer(self) -> NoAnswer {
        let kind = if self.is_denied() { NoAnswerKind::Denied } else { NoAnswerKind::Other };
        NoAnswer { kind, retry_after: None, cause: self.into_cause() }
    }
}
