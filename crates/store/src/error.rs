use std::error::Error;
use std::time::Duration;

use crate::key::KeyError;
use crate::seal::SealError;

/// A cause from below, kept for the operator's log.
pub type Cause = Box<dyn Error + Send + Sync>;

/// Why a read, a listing or a deletion failed.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The bucket cannot be reached, is throttling, or timed out. Worth
    /// repeating, later.
    #[error("object store is unavailable")]
    Unavailable {
        /// How long the store asked to be left alone, if it said.
        retry_after: Option<Duration>,
        /// What happened.
        #[source]
        cause: Cause,
    },
    /// A named object is not there.
    #[error("object is missing: {key}")]
    Missing {
        /// Its key, below the root of the store.
        key: String,
    },
    /// Credentials, the bucket's policy, or the rules for keys
    /// ([`KeyError`](crate::KeyError)) refuse the call. Repeating it does not
    /// help.
    #[error("object store refused access to {key}")]
    Denied {
        /// The key, below the root of the store.
        key: String,
        /// What the store said.
        #[source]
        cause: Cause,
    },
    /// The object is sealed and does not open, or is not sealed and should be.
    /// Keys, or an operator's look at the object, may help; repeating the call
    /// does not.
    #[error("stored object {key} does not open")]
    Sealed {
        /// Its key, below the root of the store, with hashes in plain.
        key: String,
        /// Why not.
        #[source]
        cause: SealError,
    },
}

/// Why an immutable object could not be written.
#[derive(Debug, thiserror::Error)]
pub enum PutError {
    /// See [`ReadError`]; the object may be there all the same.
    #[error(transparent)]
    Store(#[from] ReadError),
    /// The key holds other bytes. Keys of immutable objects are unique, so this
    /// is a bug or a second system in the same bucket. Request records are the
    /// one kind where it is expected: see PROTOCOL 5.
    #[error("key already holds other bytes: {key}")]
    Occupied {
        /// The key, below the root of the store.
        key: String,
    },
}

/// Why a conditional write got no trustworthy answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NoAnswerKind {
    /// 409: a concurrent call was in the way. Try again; nothing is known.
    Conflict,
    /// 429 or 503: the store asks for less.
    Throttled,
    /// 401 or 403: credentials or policy. The head is read to be sure, but
    /// trying again will not help.
    Denied,
    /// Anything else: time-out, other 5xx, a broken connection.
    Other,
}

/// A conditional write without a trustworthy answer.
#[derive(Debug, thiserror::Error)]
#[error("the store gave no trustworthy answer to a conditional write ({kind:?})")]
pub struct NoAnswer {
    /// What kind of failure it was, for pacing and for the log. It never
    /// decides what may be claimed.
    pub kind: NoAnswerKind,
    /// How long the store asked to be left alone, if it said.
    pub retry_after: Option<Duration>,
    /// What happened.
    #[source]
    pub cause: Cause,
}

impl ReadError {
    pub(crate) fn bad_key(key: &str, error: KeyError) -> Self {
        Self::Denied { key: key.into(), cause: Box::new(error) }
    }

    pub(crate) fn sealed(key: &str, cause: SealError) -> Self {
        Self::Sealed { key: key.into(), cause }
    }

    /// The same error, about the key that the caller knows.
    pub(crate) fn of_key(self, key: &str) -> Self {
        let key = key.to_owned();
        match self {
            Self::Unavailable { retry_after, cause } => Self::Unavailable { retry_after, cause },
            Self::Missing { .. } => Self::Missing { key },
            Self::Denied { cause, .. } => Self::Denied { key, cause },
            Self::Sealed { cause, .. } => Self::Sealed { key, cause },
        }
    }

    /// How long the store asked to be left alone, if it said.
    pub const fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Unavailable { retry_after, .. } => *retry_after,
            Self::Missing { .. } | Self::Denied { .. } | Self::Sealed { .. } => None,
        }
    }

    /// Whether the same call may succeed later.
    pub const fn is_transient(&self) -> bool {
        match self {
            Self::Unavailable { .. } => true,
            Self::Missing { .. } | Self::Denied { .. } | Self::Sealed { .. } => false,
        }
    }
}

impl NoAnswer {
    pub(crate) fn sealed(error: SealError) -> Self {
        Self { kind: NoAnswerKind::Denied, retry_after: None, cause: Box::new(error) }
    }

    pub(crate) fn bad_key(error: KeyError) -> Self {
        Self { kind: NoAnswerKind::Denied, retry_after: None, cause: Box::new(error) }
    }
}
