//! Why a read is not answered.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use headwater_core::version::StateVersion;
use headwater_daemon::seldom::store_call_failed;
use headwater_state::StateError;
use headwater_store::ReadError;

/// Why a read is not answered. Nothing was changed by it.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ReadFailure {
    /// There is no such history, or not under the id that was asked for.
    #[error("no such history: {detail}")]
    HistoryMissing {
        /// What was found instead.
        detail: String,
    },
    /// The deadline passed before a check succeeded. A weaker read may still be
    /// served.
    #[error("freshness could not be proved: {detail}")]
    FreshnessUnverified {
        /// What stood in the way.
        detail: String,
        /// When to try again.
        retry_after: Duration,
    },
    /// The store does not give what the read needs.
    #[error("object store is unavailable: {detail}")]
    StoreUnavailable {
        /// What happened.
        detail: String,
        /// When to try again.
        retry_after: Duration,
    },
    /// The deadline passed while data was being fetched.
    #[error("the deadline passed: {detail}")]
    Expired {
        /// What was under way.
        detail: &'static str,
    },
    /// The version is no longer at hand.
    #[error("version {wanted} is not at hand; the oldest is {oldest}, the newest {newest}")]
    VersionRetired {
        /// The version asked for.
        wanted: StateVersion,
        /// The oldest that is at hand.
        oldest: StateVersion,
        /// The newest.
        newest: StateVersion,
    },
    /// The version does not exist yet, by a head that was current after the
    /// request arrived.
    #[error("version {wanted} does not exist yet; the newest is {newest}")]
    VersionAhead {
        /// The version asked for.
        wanted: StateVersion,
        /// The oldest that is at hand.
        oldest: StateVersion,
        /// The newest.
        newest: StateVersion,
    },
    /// A stored object is missing, truncated or altered, or contradicts what
    /// was read before. An operator has to look.
    #[error("stored object {key} is bad: {detail}")]
    StoredDataBad {
        /// Its key, below the root of the store.
        key: String,
        /// What is wrong with it.
        detail: String,
    },
    /// A newer build wrote a stored object.
    #[error("stored object {key} has format {format}, which is newer than this build reads")]
    FormatTooNew {
        /// Its key, below the root of the store.
        key: String,
        /// The format that it has.
        format: u64,
    },
    /// The store refuses this process.
    #[error("access refused: {detail}")]
    Denied {
        /// What is refused; what the store said is in the log.
        detail: String,
    },
    /// As many histories are open as may be, and all are in use.
    #[error("{limit} histories are open, and all are in use")]
    TooManyHistories {
        /// How many may be open.
        limit: usize,
    },
    /// The replica has been told to stop.
    #[error("the replica is shutting down")]
    ShuttingDown,
}

/// When a caller should come back if the store said nothing.
pub(crate) const RETRY_AFTER: Duration = Duration::from_secs(1);

/// What callers are told of a store that refuses access.
const DENIED: &str = "the object store refuses this replica's credentials";
/// What callers are told of a store that does not answer.
pub(crate) const NO_ANSWER: &str = "the object store does not answer";

impl ReadFailure {
    pub(crate) fn bad(key: impl Into<String>, detail: impl fmt::Display) -> Self {
        Self::StoredDataBad { key: key.into(), detail: detail.to_string() }
    }

    /// A read that did not get its data. The causes name the bucket's address
    /// and prefix: they are for the operator's log, and callers are told fixed
    /// words.
    pub(crate) fn of_store(error: &Arc<ReadError>) -> Self {
        store_call_failed(error);
        match &**error {
            ReadError::Denied { .. } => Self::Denied { detail: DENIED.to_owned() },
            ReadError::Unavailable { retry_after, .. } => Self::StoreUnavailable {
                detail: NO_ANSWER.to_owned(),
                retry_after: retry_after.unwrap_or(RETRY_AFTER),
            },
            ReadError::Missing { key } => Self::bad(key, "it is missing"),
            ReadError::Sealed { key, cause } => Self::bad(key, cause),
        }
    }
}

impl ReadFailure {
    /// A read of state that failed for good: a missing object is one that a
    /// current head needs.
    pub(crate) fn of_state(error: StateError) -> Self {
        match error {
            StateError::Store(error) => Self::of_store(&error),
            StateError::Missing { key } => Self::bad(key, "it is missing"),
            StateError::Bad { key, what } => Self::bad(key, what),
            StateError::TooNew { key, found } => Self::FormatTooNew { key, format: found.into() },
            StateError::Follow(error) => {
                // Views are read, not followed; whoever follows names the head.
                Self::bad(headwater_core::keys::HEAD, error)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use headwater_daemon::telemetry::with_causes;

    use super::*;

    #[test]
    fn a_failure_of_the_store_tells_nothing_of_the_bucket() {
        let said = "403 https://bucket.example.com/secret-prefix/shop/head.json";
        let errors = [
            ReadError::Denied { key: "shop/head.json".into(), cause: said.into() },
            ReadError::Unavailable { retry_after: None, cause: said.into() },
        ];
        for error in errors.map(Arc::new) {
            assert!(with_causes(&*error).contains(said), "the log has it");
            let told = ReadFailure::of_store(&error).to_string();
            assert!(!told.contains("example.com") && !told.contains("secret-prefix"), "{told}");
        }
    }
}
