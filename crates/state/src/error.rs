use std::sync::Arc;

use headwater_core::follow::FollowError;
use headwater_core::format::DecodeError;
use headwater_store::{PutError, ReadError};

/// Why state could not be read. Cheap to clone: readers that wait for one fetch
/// all get its error.
#[derive(Clone, Debug, thiserror::Error)]
pub enum StateError {
    /// The store is unavailable or refuses. Nothing is known about the data.
    #[error(transparent)]
    Store(Arc<ReadError>),
    /// An object that a head names is not there. Read the head again before
    /// believing it: the head in hand may have been overtaken, and what only it
    /// named may have been swept. If a current head names it, data is lost.
    #[error("object is missing: {key}")]
    Missing {
        /// Its key, below the root of the store.
        key: String,
    },
    /// An object is not what its reference says. Data is lost; an operator has
    /// to look.
    #[error("object {key} is damaged: {what}")]
    Bad {
        /// Its key, below the root of the store.
        key: String,
        /// What does not fit.
        what: Defect,
    },
    /// An object was written by a newer build. Upgrading cures it.
    #[error("object {key} has format {found}, which is newer than this build reads")]
    TooNew {
        /// Its key, below the root of the store.
        key: String,
        /// The stored format number.
        found: u8,
    },
    /// The head must not be followed.
    #[error(transparent)]
    Follow(#[from] FollowError),
}

/// How an object differs from what its reference says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Defect {
    /// Another length.
    #[error("it is {found_bytes} bytes long and not {expected_bytes}")]
    Length {
        /// Length in the reference, in bytes.
        expected_bytes: u64,
        /// Length found, in bytes.
        found_bytes: u64,
    },
    /// Another blake3 hash.
    #[error("it has another hash than its reference")]
    Hash,
    /// The bytes are the right ones, and are not of the object's shape.
    #[error("malformed: {part}")]
    Malformed {
        /// The part that does not fit.
        part: &'static str,
    },
    /// The object is whole, and contradicts what names it.
    #[error("it does not agree with what names it: {fact}")]
    Contradicts {
        /// The fact that differs.
        fact: &'static str,
    },
}

/// Why a snapshot, segment or receipt page could not be written. Nothing was
/// published; what was uploaded is garbage that the sweep finds.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    /// The state could not be read.
    #[error(transparent)]
    State(#[from] StateError),
    /// An object could not be written.
    #[error(transparent)]
    Put(#[from] PutError),
    /// The history was forked so often in a row that an index cannot name all
    /// the histories that it would lead to. Compact until one is let go.
    #[error("the snapshot would lead to more than {limit} other histories")]
    TooManyOwners {
        /// How many an index may name.
        limit: usize,
    },
}

impl StateError {
    pub(crate) fn of_read(error: ReadError) -> Self {
        match error {
            ReadError::Missing { key } => Self::Missing { key },
            ReadError::Unavailable { .. } | ReadError::Denied { .. } | ReadError::Sealed { .. } => {
                Self::Store(Arc::new(error))
            }
        }
    }

    pub(crate) fn of_decode(key: String, error: DecodeError) -> Self {
        match error {
            DecodeError::Malformed { what } => {
                Self::Bad { key, what: Defect::Malformed { part: what } }
            }
            DecodeError::TooNew { found } => Self::TooNew { key, found },
        }
    }

    pub(crate) fn contradicts(key: String, fact: &'static str) -> Self {
        Self::Bad { key, what: Defect::Contradicts { fact } }
    }
}
