//! The head: JSON, version 1.

use alloc::format;
use alloc::string::{String, ToString as _};
use alloc::vec::Vec;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::de::Error as _;
use serde::{Deserialize, Serialize};

use super::FORMAT;
use super::text::Text;
use crate::hash::{ChainHash, ContentHash, HashError};
use crate::head::{
    ArchiveRef, Base, ChangeBody, ChangeRef, Head, HeadError, HistoryRef, Lifecycle, ObjectRef,
    Pin, Publisher, Retention, RunRef, SnapshotRef,
};
use crate::id::{
    HexIdError, HistoryId, HistoryName, HistoryNameError, Nonce, PinName, PinNameError,
    WriterAddress, WriterAddressError,
};
use crate::keys::{ObjectKey, ObjectKeyError};
use crate::version::{Revision, StateVersion};

/// Why bytes are not a head that this build can trust.
#[derive(Debug, thiserror::Error)]
pub enum HeadDecodeError {
    /// Not JSON, or not of the head's shape.
    #[error("head is malformed: {0}")]
    Malformed(serde_json::Error),
    /// Written by a newer build. Upgrading cures it.
    #[error("head has format {found}, this build reads up to {FORMAT}")]
    TooNew {
        /// The stored format number.
        found: u64,
    },
    /// A hash is not one.
    #[error("head field `{field}`: {error}")]
    Hash {
        /// The JSON field.
        field: &'static str,
        /// What is wrong with it.
        error: HashError,
    },
    /// An id is not one.
    #[error("head field `{field}`: {error}")]
    Id {
        /// The JSON field.
        field: &'static str,
        /// What is wrong with it.
        error: HexIdError,
    },
    /// A pin's name is not one.
    #[error("head field `{field}`: {error}")]
    Pin {
        /// The JSON field.
        field: &'static str,
        /// What is wrong with it.
        error: PinNameError,
    },
    /// The address of a writer is not one.
    #[error("head field `publisher`: {0}")]
    Address(#[from] WriterAddressError),
    /// The name of a history is not one.
    #[error("head, name of a history: {0}")]
    Name(#[from] HistoryNameError),
    /// An object key is not one.
    #[error("head: {0}")]
    Key(#[from] ObjectKeyError),
    /// Inline bytes are not base64, or a change has no body or two.
    #[error("head field `changes`: {version} has no readable body")]
    Inline {
        /// The change.
        version: StateVersion,
    },
    /// The fields are readable and contradict the protocol.
    #[error(transparent)]
    Invariant(#[from] HeadError),
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, bound(deserialize = "'de: 'a"))]
struct StoredHead<'a> {
    format: u64,
    history: Text<'a>,
    history_id: Text<'a>,
    revision: u64,
    state_version: u64,
    operation_count: u64,
    exclusive: bool,
    writer_epoch: u64,
    lifecycle: StoredLifecycle,
    publisher: StoredPublisher<'a>,
    chain_hash: Text<'a>,
    snapshot: StoredSnapshot<'a>,
    segments: Vec<StoredRun<'a>>,
    changes: Vec<StoredChange<'a>>,
    receipt_coverage_from: u64,
    receipt_pages: Vec<StoredRun<'a>>,
    sweep_from: u64,
    swept_to: u64,
    retention: StoredRetention,
    archive: Option<StoredArchive<'a>>,
    pins: Vec<StoredPin<'a>>,
    base: Option<StoredBase<'a>>,
    // Over all that stands before it, which includes numbers that nothing else
    // would show to be altered.
    #[serde(skip_serializing)]
    #[expect(dead_code, reason = "verified with all the bytes, not by itself")]
    checksum: Text<'a>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct StoredRetention {
    versions: u64,
    age_ms: u64,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, bound(deserialize = "'de: 'a"))]
struct StoredArchive<'a> {
    retained_from: u64,
    key: Text<'a>,
    hash: Text<'a>,
    bytes: u64,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, bound(deserialize = "'de: 'a"))]
struct StoredPin<'a> {
    name: Text<'a>,
    version: u64,
    revision: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    expires_at_ms: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    child: Option<StoredHistory<'a>>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, bound(deserialize = "'de: 'a"))]
struct StoredHistory<'a> {
    history: Text<'a>,
    history_id: Text<'a>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, bound(deserialize = "'de: 'a"))]
struct StoredBase<'a> {
    history: Text<'a>,
    history_id: Text<'a>,
    pin: Text<'a>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
enum StoredLifecycle {
    Live,
    Retiring,
    Cleared,
}

#[derive(Deserialize)]
struct StoredFormat {
    format: u64,
}

#[derive(Deserialize)]
struct StoredRevision {
    revision: u64,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, bound(deserialize = "'de: 'a"))]
struct StoredPublisher<'a> {
    id: Text<'a>,
    nonce: Text<'a>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    address: Option<Text<'a>>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, bound(deserialize = "'de: 'a"))]
struct StoredSnapshot<'a> {
    version: u64,
    key: Text<'a>,
    hash: Text<'a>,
    bytes: u64,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, bound(deserialize = "'de: 'a"))]
struct StoredRun<'a> {
    from_version: u64,
    to_version: u64,
    key: Text<'a>,
    hash: Text<'a>,
    bytes: u64,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, bound(deserialize = "'de: 'a"))]
struct StoredChange<'a> {
    version: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    key: Option<Text<'a>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    inline: Option<Text<'a>>,
    hash: Text<'a>,
    bytes: u64,
}

/// Writes a head.
#[expect(clippy::missing_panics_doc, clippy::expect_used, reason = "strings always encode")]
pub fn encode(head: &Head) -> Vec<u8> {
    let stored = StoredHead {
        format: FORMAT.into(),
        history: head.history.as_str().into(),
        history_id: head.history_id.to_string().into(),
        revision: head.revision.get(),
        state_version: head.state_version.get(),
        operation_count: head.operation_count,
        exclusive: head.is_exclusive,
        writer_epoch: head.writer_epoch,
        lifecycle: store_lifecycle(head.lifecycle),
        publisher: StoredPublisher {
            id: head.publisher.id.as_str().into(),
            nonce: head.publisher.nonce.to_string().into(),
            address: head.publisher.address.as_ref().map(|it| it.as_str().into()),
        },
        chain_hash: put_hash(&head.chain_hash.to_hex()).into(),
        snapshot: StoredSnapshot {
            version: head.snapshot.version.get(),
            key: head.snapshot.object.key.as_str().into(),
            hash: put_hash(&head.snapshot.object.hash.to_hex()).into(),
            bytes: head.snapshot.object.size_bytes,
        },
        segments: head.segments.iter().map(store_run).collect(),
        changes: head.changes.iter().map(store_change).collect(),
        receipt_coverage_from: head.receipt_coverage_from.get(),
        receipt_pages: head.receipt_pages.iter().map(store_run).collect(),
        sweep_from: head.sweep_from.get(),
        swept_to: head.swept_to.get(),
        retention: StoredRetention {
            versions: head.retention.versions,
            age_ms: head.retention.age_ms,
        },
        archive: head.archive.as_ref().map(store_archive),
        pins: head.pins.iter().map(store_pin).collect(),
        base: head.base.as_ref().map(store_base),
        checksum: "".into(),
    };
    let mut json = Vec::with_capacity(size_hint(head));
    serde_json::to_writer(&mut json, &stored).expect("strings and integers always encode");
    seal(json)
}

/// About what a head takes, so that it is not copied while it grows.
fn size_hint(head: &Head) -> usize {
    let changes = head.changes.iter().map(|it| match &it.body {
        ChangeBody::Inline(bytes) => 160 + bytes.len().div_ceil(3) * 4,
        ChangeBody::Staged(_) => 256,
    });
    let references = head.segments.len() + head.receipt_pages.len() + head.pins.len();
    2_048 + 256 * references + changes.sum::<usize>()
}

/// Puts the checksum at the end of an object that lacks it.
fn seal(mut json: Vec<u8>) -> Vec<u8> {
    let checksum = ContentHash::of(&json);
    json.pop();
    json.extend_from_slice(sealed_with(checksum).as_bytes());
    json
}

/// How a head with this checksum ends.
fn sealed_with(checksum: ContentHash) -> String {
    format!(r#","checksum":"{}"}}"#, put_hash(&checksum.to_hex()))
}

/// Whether the bytes end with the checksum of all that stands before it.
fn is_sealed(bytes: &[u8]) -> bool {
    const SEAL_BYTES: usize = r#","checksum":"blake3:"}"#.len() + 64;
    let Some((object, seal)) = bytes.split_last_chunk::<SEAL_BYTES>() else { return false };
    // It was taken with the brace that the seal begins by taking away.
    sealed_with(ContentHash::of_parts(&[object, b"}"])).as_bytes() == seal
}

/// Reads a head, and checks everything that a later step relies on.
///
/// # Errors
///
/// [`HeadDecodeError`]; only [`HeadDecodeError::TooNew`] can be cured without
/// repairing the bucket, by upgrading.
pub fn decode(bytes: &[u8]) -> Result<Head, HeadDecodeError> {
    let stored: StoredHead<'_> = match serde_json::from_slice(bytes) {
        Ok(stored) => stored,
        // A newer head is reported as newer, and not as malformed by whatever
        // field it added.
        Err(error) => {
            let StoredFormat { format } =
                serde_json::from_slice(bytes).map_err(HeadDecodeError::Malformed)?;
            return Err(match format {
                found if u64::from(FORMAT) < found => HeadDecodeError::TooNew { found },
                _ => HeadDecodeError::Malformed(error),
            });
        }
    };
    if u64::from(FORMAT) < stored.format {
        return Err(HeadDecodeError::TooNew { found: stored.format });
    }
    if stored.format != u64::from(FORMAT) {
        let rule = format!("format {FORMAT} is what this build reads");
        return Err(HeadError { field: "format", rule }.into());
    }
    // One bit turns a digit into another, and the whole can be read.
    if !is_sealed(bytes) {
        let error = serde_json::Error::custom("altered: not the bytes that its checksum is over");
        return Err(HeadDecodeError::Malformed(error));
    }
    let head = Head {
        history: HistoryName::parse(stored.history.as_str())?,
        history_id: HistoryId::parse(stored.history_id.as_str())
            .map_err(|error| HeadDecodeError::Id { field: "historyId", error })?,
        revision: Revision::new(stored.revision),
        state_version: StateVersion::new(stored.state_version),
        operation_count: stored.operation_count,
        is_exclusive: stored.exclusive,
        writer_epoch: stored.writer_epoch,
        lifecycle: load_lifecycle(&stored.lifecycle),
        publisher: Publisher {
            id: stored.publisher.id.into(),
            nonce: Nonce::parse(stored.publisher.nonce.as_str())
                .map_err(|error| HeadDecodeError::Id { field: "publisher", error })?,
            address: stored
                .publisher
                .address
                .map(|it| WriterAddress::parse(it.as_str()))
                .transpose()?,
        },
        chain_hash: load_chain(stored.chain_hash.as_str())?,
        snapshot: SnapshotRef {
            version: StateVersion::new(stored.snapshot.version),
            object: load_object(
                "snapshot",
                stored.snapshot.key.as_str(),
                stored.snapshot.hash.as_str(),
                stored.snapshot.bytes,
            )?,
        },
        segments: load_runs("segments", &stored.segments)?,
        changes: stored.changes.iter().map(load_change).collect::<Result<_, _>>()?,
        receipt_coverage_from: StateVersion::new(stored.receipt_coverage_from),
        receipt_pages: load_runs("receiptPages", &stored.receipt_pages)?,
        sweep_from: Revision::new(stored.sweep_from),
        swept_to: Revision::new(stored.swept_to),
        retention: Retention {
            versions: stored.retention.versions,
            age_ms: stored.retention.age_ms,
        },
        archive: stored.archive.as_ref().map(load_archive).transpose()?,
        pins: stored.pins.iter().map(load_pin).collect::<Result<_, _>>()?,
        base: stored.base.as_ref().map(load_base).transpose()?,
    };
    head.check()?;
    Ok(head)
}

/// The revision of a head, unchecked, of any format; `None` for what is not a
/// head. For who labels heads without using them.
pub fn peek_revision(bytes: &[u8]) -> Option<Revision> {
    let StoredRevision { revision } = serde_json::from_slice(bytes).ok()?;
    Some(Revision::new(revision))
}

/// Hashes in JSON say what they are.
const HASH_PREFIX: &str = "blake3:";

pub(super) fn put_hash(hex: &str) -> String {
    format!("{HASH_PREFIX}{hex}")
}

pub(super) fn take_hash(text: &str) -> Option<&str> {
    text.strip_prefix(HASH_PREFIX)
}

fn store_lifecycle(lifecycle: Lifecycle) -> StoredLifecycle {
    match lifecycle {
        Lifecycle::Live => StoredLifecycle::Live,
        Lifecycle::Retiring => StoredLifecycle::Retiring,
        Lifecycle::Cleared => StoredLifecycle::Cleared,
    }
}

fn load_lifecycle(stored: &StoredLifecycle) -> Lifecycle {
    match stored {
        StoredLifecycle::Live => Lifecycle::Live,
        StoredLifecycle::Retiring => Lifecycle::Retiring,
        StoredLifecycle::Cleared => Lifecycle::Cleared,
    }
}

fn store_archive(archive: &ArchiveRef) -> StoredArchive<'_> {
    StoredArchive {
        retained_from: archive.retained_from.get(),
        key: archive.object.key.as_str().into(),
        hash: put_hash(&archive.object.hash.to_hex()).into(),
        bytes: archive.object.size_bytes,
    }
}

fn load_archive(stored: &StoredArchive<'_>) -> Result<ArchiveRef, HeadDecodeError> {
    Ok(ArchiveRef {
        retained_from: StateVersion::new(stored.retained_from),
        object: load_object("archive", stored.key.as_str(), stored.hash.as_str(), stored.bytes)?,
    })
}

fn store_pin(pin: &Pin) -> StoredPin<'_> {
    StoredPin {
        name: pin.name.as_str().into(),
        version: pin.version.get(),
        revision: pin.revision.get(),
        expires_at_ms: pin.expires_at_ms,
        child: pin.child.as_ref().map(|it| StoredHistory {
            history: it.history.as_str().into(),
            history_id: it.history_id.to_string().into(),
        }),
    }
}

fn load_pin(stored: &StoredPin<'_>) -> Result<Pin, HeadDecodeError> {
    let load =
        |it: &StoredHistory<'_>| load_history("pins", it.history.as_str(), it.history_id.as_str());
    Ok(Pin {
        name: load_pin_name("pins", stored.name.as_str())?,
        version: StateVersion::new(stored.version),
        revision: Revision::new(stored.revision),
        expires_at_ms: stored.expires_at_ms,
        child: stored.child.as_ref().map(load).transpose()?,
    })
}

fn store_base(base: &Base) -> StoredBase<'_> {
    StoredBase {
        history: base.source.history.as_str().into(),
        history_id: base.source.history_id.to_string().into(),
        pin: base.pin.as_str().into(),
    }
}

fn load_base(stored: &StoredBase<'_>) -> Result<Base, HeadDecodeError> {
    Ok(Base {
        source: load_history("base", stored.history.as_str(), stored.history_id.as_str())?,
        pin: load_pin_name("base", stored.pin.as_str())?,
    })
}

fn load_pin_name(field: &'static str, text: &str) -> Result<PinName, HeadDecodeError> {
    PinName::parse(text).map_err(|error| HeadDecodeError::Pin { field, error })
}

fn load_history(field: &'static str, name: &str, id: &str) -> Result<HistoryRef, HeadDecodeError> {
    Ok(HistoryRef {
        history: HistoryName::parse(name)?,
        history_id: HistoryId::parse(id).map_err(|error| HeadDecodeError::Id { field, error })?,
    })
}

fn store_run(run: &RunRef) -> StoredRun<'_> {
    StoredRun {
        from_version: run.from.get(),
        to_version: run.to.get(),
        key: run.object.key.as_str().into(),
        hash: put_hash(&run.object.hash.to_hex()).into(),
        bytes: run.object.size_bytes,
    }
}

fn store_change(change: &ChangeRef) -> StoredChange<'_> {
    let (key, inline, bytes) = match &change.body {
        ChangeBody::Inline(bytes) => {
            (None, Some(STANDARD.encode(bytes).into()), bytes.len() as u64)
        }
        ChangeBody::Staged(object) => (Some(object.key.as_str().into()), None, object.size_bytes),
    };
    let hash = put_hash(&change.hash.to_hex()).into();
    StoredChange { version: change.version.get(), key, inline, hash, bytes }
}

fn load_hash(field: &'static str, text: &str) -> Result<ContentHash, HeadDecodeError> {
    take_hash(text)
        .ok_or(HashError)
        .and_then(ContentHash::from_hex)
        .map_err(|error| HeadDecodeError::Hash { field, error })
}

fn load_chain(text: &str) -> Result<ChainHash, HeadDecodeError> {
    load_hash("chainHash", text).map(|it| ChainHash::from_bytes(*it.as_bytes()))
}

fn load_object(
    field: &'static str,
    key: &str,
    hash: &str,
    size_bytes: u64,
) -> Result<ObjectRef, HeadDecodeError> {
    Ok(ObjectRef { key: ObjectKey::parse(key)?, hash: load_hash(field, hash)?, size_bytes })
}

fn load_runs(field: &'static str, runs: &[StoredRun<'_>]) -> Result<Vec<RunRef>, HeadDecodeError> {
    let load = |it: &StoredRun<'_>| {
        Ok(RunRef {
            from: StateVersion::new(it.from_version),
            to: StateVersion::new(it.to_version),
            object: load_object(field, it.key.as_str(), it.hash.as_str(), it.bytes)?,
        })
    };
    runs.iter().map(load).collect()
}

fn load_change(change: &StoredChange<'_>) -> Result<ChangeRef, HeadDecodeError> {
    let version = StateVersion::new(change.version);
    let hash = load_hash("changes", change.hash.as_str())?;
    let body = match (&change.key, &change.inline) {
        (Some(key), None) => {
            let key = ObjectKey::parse(key.as_str())?;
            ChangeBody::Staged(ObjectRef { key, hash, size_bytes: change.bytes })
        }
        (None, Some(inline)) => {
            let bytes = STANDARD
                .decode(inline.as_str())
                .map_err(|_| HeadDecodeError::Inline { version })?;
            if bytes.len() as u64 != change.bytes {
                return Err(HeadDecodeError::Inline { version });
            }
            ChangeBody::Inline(bytes.into())
        }
        (Some(_), Some(_)) | (None, None) => return Err(HeadDecodeError::Inline { version }),
    };
    Ok(ChangeRef { version, hash, body })
}
