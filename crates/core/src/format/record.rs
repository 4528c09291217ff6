//! A request record: JSON, written once per service-kept operation.

use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};

use super::head::{put_hash, take_hash};
use super::{DecodeError, FORMAT, malformed, request};
use crate::hash::RequestHash;
use crate::id::{HistoryId, OperationId};
use crate::operation::RequestRecord;
use crate::version::StateVersion;

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct StoredRecord {
    format: u8,
    history_id: String,
    operation_id: String,
    request_hash: String,
    issued_from_version: u64,
    request: String,
}

#[derive(Deserialize)]
struct StoredFormat {
    format: u8,
}

/// Writes a record.
#[expect(clippy::missing_panics_doc, clippy::expect_used, reason = "strings always encode")]
pub fn encode(record: &RequestRecord) -> Vec<u8> {
    let stored = StoredRecord {
        format: FORMAT,
        history_id: alloc::format!("{}", record.history_id),
        operation_id: record.operation_id.as_str().into(),
        request_hash: put_hash(&record.request_hash.to_hex()),
        issued_from_version: record.issued_from.get(),
        request: STANDARD.encode(request::encode(&record.request)),
    };
    serde_json::to_vec(&stored).expect("strings and integers always encode")
}

/// Reads a record, and verifies that it holds the request that it names.
///
/// # Errors
///
/// [`DecodeError`].
pub fn decode(bytes: &[u8]) -> Result<RequestRecord, DecodeError> {
    let StoredFormat { format } =
        serde_json::from_slice(bytes).map_err(|_| malformed("request record"))?;
    if FORMAT < format {
        return Err(DecodeError::TooNew { found: format });
    }
    let stored: StoredRecord =
        serde_json::from_slice(bytes).map_err(|_| malformed("request record"))?;
    let hash = take_hash(&stored.request_hash).ok_or(malformed("requestHash"))?;
    let request_hash = RequestHash::from_hex(hash).map_err(|_| malformed("requestHash"))?;
    let request = STANDARD.decode(&stored.request).map_err(|_| malformed("request"))?;
    let request = Arc::new(request::decode(request.into())?);
    if request.hash() != request_hash {
        return Err(malformed("requestHash"));
    }
    let record = RequestRecord {
        history_id: HistoryId::parse(&stored.history_id).map_err(|_| malformed("historyId"))?,
        operation_id: OperationId::parse(&stored.operation_id)
            .map_err(|_| malformed("operationId"))?,
        request_hash,
        issued_from: StateVersion::new(stored.issued_from_version),
        request,
    };
    // As for heads: what no encoder has written was altered.
    if encode(&record) != bytes {
        return Err(malformed("request record"));
    }
    Ok(record)
}
