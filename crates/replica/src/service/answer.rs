//! Answers as the wire has them.

use headwater_core::id::HistoryName;
use headwater_daemon::status::{self as say, Determinacy};
use headwater_proto::v1;
use headwater_state::Entry;
use tonic::Status;

use crate::failure::{RETRY_AFTER, ReadFailure};
use crate::local::Pinned;

/// What the answer was read from.
pub(super) fn stamp(pinned: &Pinned) -> v1::ReadStamp {
    v1::ReadStamp {
        history_id: pinned.history_id().to_string(),
        state_version: pinned.version().get(),
        revision: pinned.revision().get(),
        // Nothing is older than the process, so the age always fits.
        proof_age: pinned.proof_age().try_into().ok(),
    }
}

pub(super) fn entry(entry: Entry) -> v1::Entry {
    let Entry { key, value, version } = entry;
    v1::Entry { key: key.into_bytes(), value, version: version.get() }
}

pub(super) fn status(failure: &ReadFailure, history: &HistoryName) -> Status {
    match failure {
        ReadFailure::HistoryMissing { detail } => say::history_missing(history.as_str(), detail),
        ReadFailure::FreshnessUnverified { detail, retry_after } => {
            say::freshness_unverified(detail, *retry_after)
        }
        ReadFailure::StoreUnavailable { detail, retry_after } => {
            say::store_unavailable(detail, *retry_after)
        }
        ReadFailure::Expired { detail } => say::expired(detail),
        ReadFailure::VersionRetired { wanted, oldest, newest } => {
            say::version_retired(wanted.get(), oldest.get(), newest.get())
        }
        ReadFailure::VersionAhead { wanted, oldest, newest } => {
            say::version_ahead(wanted.get(), oldest.get(), newest.get())
        }
        ReadFailure::StoredDataBad { key, detail } => {
            say::stored_data_bad(key, detail, Determinacy::NotApplied)
        }
        ReadFailure::FormatTooNew { key, format } => say::format_too_new(key, *format),
        ReadFailure::Denied { detail } => say::permission_denied(detail),
        ReadFailure::TooManyHistories { limit } => {
            let limit = format!("{limit} histories open and in use");
            say::queue_full("histories", &limit, RETRY_AFTER)
        }
        ReadFailure::ShuttingDown => say::shutting_down(),
    }
}
