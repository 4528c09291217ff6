//! The bytes of a sealed object. See `docs/formats.md`.
//!
//! ```text
//! header   144 bytes: JSON, spaces, a line feed. In plain, and authenticated
//! content  as long as what was sealed
//! tag      16 bytes
//! ```
//!
//! The header is of one length whatever it says, so that a listing tells how
//! long the content is.

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::keyring::{KeyId, Keyring, ObjectKey, TAG_LEN_BYTES, to_hex};

/// Of the header. The longest JSON in it takes 133: an id of 32, a revision of
/// 20 digits.
const HEADER_LEN_BYTES: usize = 144;

/// By how much an object grows.
pub(super) const OVERHEAD_LEN_BYTES: usize = HEADER_LEN_BYTES + TAG_LEN_BYTES;

/// The format that this build writes, and the newest that it opens.
const FORMAT: u64 = 1;

/// What sealed objects begin with. Heads and records in plain begin otherwise.
const START: &[u8] = br#"{"headwater":"sealed","#;

/// Why an object was not opened. Nothing of it is used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SealError {
    /// The object is sealed, and this process has no keys at all.
    #[error("it is sealed with the key `{id}`, and no keys were given")]
    NoKeys {
        /// Id of the key.
        id: String,
    },
    /// The object is sealed with a key that is not in the keyring.
    #[error("it is sealed with the key `{id}`, which is not among the keys given")]
    KeyMissing {
        /// Id of the key.
        id: String,
    },
    /// There is a key of this id, and it, or the secret for names, is another.
    #[error(
        "it is sealed with another key `{id}`, or under another `names` secret, than was given"
    )]
    OtherKey {
        /// Id of the key.
        id: String,
    },
    /// The object is in plain, in a store that is opened with keys: whoever can
    /// write to the bucket could have put it there.
    #[error("it is not sealed, and this store is opened with keys")]
    NotSealed,
    /// Header, name and content do not belong together.
    #[error(
        "it does not open with the key `{id}`: it is damaged, was altered, or belongs to another name"
    )]
    Refused {
        /// Id of the key.
        id: String,
    },
    /// It begins as sealed objects do, and goes on otherwise.
    #[error("the header of a sealed object is malformed")]
    Malformed,
    /// Sealed by a newer build.
    #[error("it is sealed in format {found}, this build opens up to {FORMAT}")]
    TooNew {
        /// The stored format number.
        found: u64,
    },
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Header {
    headwater: String,
    format: u64,
    key: String,
    check: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    revision: Option<u64>,
}

#[derive(Deserialize)]
struct Format {
    format: u64,
}

/// Seals `content` for the object `key`; `revision` is that of a head.
pub(super) fn seal(
    with: &ObjectKey,
    key: &str,
    revision: Option<u64>,
    content: &[u8],
) -> Result<Bytes, SealError> {
    let refused = || SealError::Refused { id: with.id.to_string() };
    let header = Header {
        headwater: "sealed".into(),
        format: FORMAT,
        key: with.id.to_string(),
        check: to_hex(&with.check),
        revision,
    };
    let mut buffer = Vec::with_capacity(content.len() + OVERHEAD_LEN_BYTES);
    serde_json::to_writer(&mut buffer, &header).map_err(|_| SealError::Malformed)?;
    buffer.resize(HEADER_LEN_BYTES - 1, b' ');
    buffer.push(b'\n');
    let bound_to = context(&buffer, key);
    buffer.extend_from_slice(content);
    // Fails past 64 GiB alone, which no caller holds in memory.
    with.cipher.seal(&bound_to, &mut buffer, HEADER_LEN_BYTES).map_err(|_| refused())?;
    Ok(buffer.into())
}

/// Opens what is stored under `key`.
pub(super) fn open(keyring: &Keyring, key: &str, stored: &[u8]) -> Result<Bytes, SealError> {
    let header = header(stored)?.ok_or(SealError::NotSealed)?;
    let id = header.key;
    let Some(with) = keyring.opening(&id) else { return Err(SealError::KeyMissing { id }) };
    if header.check != to_hex(&with.check) {
        return Err(SealError::OtherKey { id });
    }
    let (header, sealed) = stored.split_at(HEADER_LEN_BYTES);
    let opened = with.cipher.open(&context(header, key), sealed);
    opened.map(Bytes::from).map_err(|_| SealError::Refused { id })
}

/// Lets through what is not sealed, for a process without keys.
pub(super) fn pass(stored: Bytes) -> Result<Bytes, SealError> {
    match header(&stored)? {
        None => Ok(stored),
        Some(header) => Err(SealError::NoKeys { id: header.key }),
    }
}

/// The header; `None` for what is in plain.
fn header(stored: &[u8]) -> Result<Option<Header>, SealError> {
    if !stored.starts_with(START) {
        return Ok(None);
    }
    let line = stored.get(..HEADER_LEN_BYTES).ok_or(SealError::Malformed)?;
    // Alone first, so that a newer header is reported as newer.
    let Format { format } = serde_json::from_slice(line).map_err(|_| SealError::Malformed)?;
    if FORMAT < format {
        return Err(SealError::TooNew { found: format });
    }
    let header: Header = serde_json::from_slice(line).map_err(|_| SealError::Malformed)?;
    // The id goes into messages: nothing else may come in by it.
    KeyId::parse(&header.key).ok_or(SealError::Malformed)?;
    Ok(Some(header))
}

/// What a sealed object is bound to: header and name. The header has one
/// length, so no two pairs give the same context.
fn context(header: &[u8], key: &str) -> Vec<u8> {
    [header, key.as_bytes()].concat()
}
