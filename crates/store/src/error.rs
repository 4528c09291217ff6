use std::error::Error;
use std::time::Duration;

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
    /// Credentials or bucket policy refuse the call.
    #[error("object store refused access to {key}")]
    Denied {
        /// The key, below the root of the store.
        key: String,
        /// What the store said.
        #[source]
        cause: Cause,
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
