//! What a caller asked for, fixed before the first attempt.
//!
//! An [`Operation`] is a [`Request`] under an id. The request is hashed over
//! its canonical bytes ([`crate::format::request`]), so that a retry is told
//! from a reused id however it was written down.

#[cfg(test)]
mod operation_test;

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;

use bytes::Bytes;

use crate::format;
use crate::hash::{ContentHash, RequestHash};
use crate::id::{HistoryId, OperationId};
use crate::version::StateVersion;

/// A key of the state: 1 to [`Key::LEN_BYTES_MAX`] bytes, ordered bytewise.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key(Bytes);

/// Why bytes are not a [`Key`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// No bytes at all.
    #[error("a key is empty")]
    Empty,
    /// More bytes than [`Key::LEN_BYTES_MAX`].
    #[error("a key is {len_bytes} bytes, the limit is {max}", max = Key::LEN_BYTES_MAX)]
    TooLong {
        /// Length of the rejected key, in bytes.
        len_bytes: usize,
    },
}

impl Key {
    /// Longest key, in bytes. Chunk indexes repeat two keys for each chunk.
    pub const LEN_BYTES_MAX: usize = 1024;

    /// Checks `bytes` and takes them as a key.
    ///
    /// # Errors
    ///
    /// [`KeyError`] when there are none or too many.
    pub fn new(bytes: impl Into<Bytes>) -> Result<Self, KeyError> {
        let bytes = bytes.into();
        match bytes.len() {
            0 => Err(KeyError::Empty),
            len_bytes if Self::LEN_BYTES_MAX < len_bytes => Err(KeyError::TooLong { len_bytes }),
            _ => Ok(Self(bytes)),
        }
    }

    /// The bytes.
    pub fn as_bytes(&self) -> &Bytes {
        &self.0
    }

    /// The bytes.
    pub fn into_bytes(self) -> Bytes {
        self.0
    }
}

impl AsRef<[u8]> for Key {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl core::borrow::Borrow<[u8]> for Key {
    fn borrow(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\"", self.0.escape_ascii())
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0.escape_ascii())
    }
}

/// A range of keys. Both ends are byte strings, not keys: an empty start is
/// before every key.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeyRange {
    start: Bytes,
    end: Option<Bytes>,
}

/// Why two bounds are not a [`KeyRange`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyRangeError {
    /// The end is not above the start: nothing could be in the range.
    #[error("a range ends at or before its start")]
    Inverted,
    /// A bound is longer than [`KeyRange::BOUND_LEN_BYTES_MAX`].
    #[error("a range bound is {len_bytes} bytes, the limit is {max}", max = KeyRange::BOUND_LEN_BYTES_MAX)]
    TooLong {
        /// Length of the rejected bound, in bytes.
        len_bytes: usize,
    },
}

impl KeyRange {
    /// Longest bound, in bytes: one more than a key, so that the least string
    /// after the longest key is one.
    pub const BOUND_LEN_BYTES_MAX: usize = Key::LEN_BYTES_MAX + 1;

    /// From `start` (inclusive) to `end` (exclusive; `None` is no bound).
    ///
    /// # Errors
    ///
    /// [`KeyRangeError`].
    pub fn new(start: Bytes, end: Option<Bytes>) -> Result<Self, KeyRangeError> {
        for bound in core::iter::once(&start).chain(&end) {
            if Self::BOUND_LEN_BYTES_MAX < bound.len() {
                return Err(KeyRangeError::TooLong { len_bytes: bound.len() });
            }
        }
        match &end {
            Some(end) if *end <= start => Err(KeyRangeError::Inverted),
            _ => Ok(Self { start, end }),
        }
    }

    /// Every key.
    pub const fn everything() -> Self {
        Self { start: Bytes::new(), end: None }
    }

    /// Inclusive lower bound.
    pub fn start(&self) -> &Bytes {
        &self.start
    }

    /// Exclusive upper bound.
    pub fn end(&self) -> Option<&Bytes> {
        self.end.as_ref()
    }

    /// Whether `key` lies in the range.
    pub fn contains(&self, key: &[u8]) -> bool {
        *self.start <= *key && self.end.as_ref().is_none_or(|end| *key < **end)
    }
}

impl fmt::Debug for KeyRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[\"{}\", ", self.start.escape_ascii())?;
        match &self.end {
            Some(end) => write!(f, "\"{}\")", end.escape_ascii()),
            None => f.write_str("..)"),
        }
    }
}

/// What must hold for an operation to be accepted.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Precondition {
    /// The key has a value.
    KeyExists(Key),
    /// The key has no value.
    KeyAbsent(Key),
    /// The key has a value, last written at this very version.
    KeyAtVersion(Key, StateVersion),
    /// The key was neither written nor deleted after this version.
    KeyUnchangedSince(Key, StateVersion),
    /// No key of the range was written or deleted after this version.
    RangeUnchangedSince(KeyRange, StateVersion),
    /// The key has this value.
    ValueEquals(Key, Bytes),
    /// The key has a value with this blake3 hash.
    ValueHashEquals(Key, ContentHash),
}

/// What an accepted operation does to the state.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Mutation {
    /// Gives the key this value.
    Put(Key, Bytes),
    /// Removes the key, if it is there.
    Delete(Key),
    /// Removes every key of the range.
    DeleteRange(KeyRange),
    /// Adds to the integer at the key; see [`integer`].
    Add(Key, i64),
}

/// How integers are stored: 8 bytes, two's complement, big-endian.
pub mod integer {
    use bytes::Bytes;

    /// The stored form of `number`.
    pub fn encode(number: i64) -> Bytes {
        Bytes::copy_from_slice(&number.to_be_bytes())
    }

    /// The number stored as `value`; `None` unless it is 8 bytes long.
    pub fn decode(value: &[u8]) -> Option<i64> {
        value.try_into().ok().map(i64::from_be_bytes)
    }
}

/// Why a request is refused before anything is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RequestError {
    /// Nothing to do.
    #[error("an operation has no mutation")]
    NoMutation,
    /// More than [`Request::PRECONDITIONS_MAX`] or [`Request::MUTATIONS_MAX`].
    #[error("an operation has {count} {what}, the limit is {max}")]
    TooMany {
        /// `preconditions` or `mutations`.
        what: &'static str,
        /// How many there are.
        count: usize,
        /// How many there may be.
        max: usize,
    },
    /// A value longer than [`Request::VALUE_BYTES_MAX`].
    #[error("a value is {len_bytes} bytes, the limit is {max}", max = Request::VALUE_BYTES_MAX)]
    ValueTooLong {
        /// Length of the rejected value, in bytes.
        len_bytes: usize,
    },
    /// Keys and values together pass [`Request::BYTES_MAX`].
    #[error("an operation is {len_bytes} bytes, the limit is {max}", max = Request::BYTES_MAX)]
    TooLarge {
        /// Its size, in bytes of canonical encoding.
        len_bytes: usize,
    },
}

/// The preconditions and mutations of one operation, within the limits.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Request {
    preconditions: Vec<Precondition>,
    mutations: Vec<Mutation>,
}

impl Request {
    /// Most preconditions in one operation.
    pub const PRECONDITIONS_MAX: usize = 1024;
    /// Most mutations in one operation.
    pub const MUTATIONS_MAX: usize = 1024;
    /// Longest value, in bytes. Larger things belong in objects of their own,
    /// with a reference to them in the value.
    pub const VALUE_BYTES_MAX: usize = 1 << 20;
    /// Largest operation, in bytes of its canonical encoding.
    pub const BYTES_MAX: usize = 4 << 20;

    /// Checks the limits.
    ///
    /// # Errors
    ///
    /// [`RequestError`] names the first limit that is passed.
    pub fn new(
        preconditions: Vec<Precondition>,
        mutations: Vec<Mutation>,
    ) -> Result<Self, RequestError> {
        if mutations.is_empty() {
            return Err(RequestError::NoMutation);
        }
        let counts = [
            ("preconditions", preconditions.len(), Self::PRECONDITIONS_MAX),
            ("mutations", mutations.len(), Self::MUTATIONS_MAX),
        ];
        if let Some((what, count, max)) = counts.into_iter().find(|(_, count, max)| max < count) {
            return Err(RequestError::TooMany { what, count, max });
        }
        let expected = preconditions.iter().filter_map(|it| match it {
            Precondition::ValueEquals(_, value) => Some(value.len()),
            Precondition::KeyExists(_)
            | Precondition::KeyAbsent(_)
            | Precondition::KeyAtVersion(..)
            | Precondition::KeyUnchangedSince(..)
            | Precondition::RangeUnchangedSince(..)
            | Precondition::ValueHashEquals(..) => None,
        });
        let put = mutations.iter().filter_map(|it| match it {
            Mutation::Put(_, value) => Some(value.len()),
            Mutation::Delete(_) | Mutation::DeleteRange(_) | Mutation::Add(..) => None,
        });
        if let Some(len_bytes) = expected.chain(put).find(|len| Self::VALUE_BYTES_MAX < *len) {
            return Err(RequestError::ValueTooLong { len_bytes });
        }
        let request = Self { preconditions, mutations };
        let len_bytes = format::request::encoded_len(&request);
        if Self::BYTES_MAX < len_bytes {
            return Err(RequestError::TooLarge { len_bytes });
        }
        Ok(request)
    }

    /// Most keys that restoring a version may change.
    pub const RESTORED_KEYS_MAX: usize = 262_144;
    /// Bytes of keys and values that restoring a version may change.
    pub const RESTORED_BYTES_MAX: usize = 64 << 20;

    /// The request that puts an older state in place of the one at version
    /// `at`, which must still be the newest. `None` where nothing differs. Its
    /// caller keeps to the limits above; those of [`Request::new`] are for what
    /// comes over the wire.
    pub fn restoring(at: StateVersion, mutations: Vec<Mutation>) -> Option<Self> {
        let unchanged = Precondition::RangeUnchangedSince(KeyRange::everything(), at);
        (!mutations.is_empty()).then(|| Self { preconditions: [unchanged].into(), mutations })
    }

    /// What must hold.
    pub fn preconditions(&self) -> &[Precondition] {
        &self.preconditions
    }

    /// What is to be done, in order.
    pub fn mutations(&self) -> &[Mutation] {
        &self.mutations
    }

    /// The newest version that a precondition names.
    pub fn newest_version_named(&self) -> Option<StateVersion> {
        let named = self.preconditions.iter().filter_map(|it| match it {
            Precondition::KeyAtVersion(_, version)
            | Precondition::KeyUnchangedSince(_, version)
            | Precondition::RangeUnchangedSince(_, version) => Some(*version),
            Precondition::KeyExists(_)
            | Precondition::KeyAbsent(_)
            | Precondition::ValueEquals(..)
            | Precondition::ValueHashEquals(..) => None,
        });
        named.max()
    }

    /// Hashes the canonical bytes.
    pub fn hash(&self) -> RequestHash {
        let hash = blake3::hash(&format::request::encode(self));
        RequestHash::from_bytes(*hash.as_bytes())
    }
}

impl RequestHash {
    /// Stands for the wish to restore `version`. The request itself depends on
    /// what there is when it is made, so a retry would have another hash.
    pub fn of_restore(version: StateVersion) -> Self {
        let mut hasher = blake3::Hasher::new();
        hasher.update(b"headwater restore 1");
        hasher.update(&version.get().to_be_bytes());
        Self::from_bytes(*hasher.finalize().as_bytes())
    }
}

/// Where the issue version of an operation comes from (PROTOCOL 5).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Issue {
    /// The caller sent it, and sends the same with every attempt.
    ClientKept(StateVersion),
    /// The writer keeps it in a request record. Before the record is durable
    /// the version is the writer's proposal, and nothing may rest on it.
    ServiceKept {
        /// State version of a head that the writer had read.
        issued_from: StateVersion,
        /// Whether the record that holds this version is durable.
        is_durable: bool,
    },
}

impl Issue {
    /// The version that it names.
    pub const fn issued_from(self) -> StateVersion {
        match self {
            Self::ClientKept(issued_from) | Self::ServiceKept { issued_from, .. } => issued_from,
        }
    }

    /// The first version at which the operation can have been accepted.
    pub const fn earliest(self) -> StateVersion {
        self.issued_from().next()
    }
}

/// One operation as submitted.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Operation {
    /// The caller's id, the same across every retry.
    pub id: OperationId,
    /// What it asks for.
    pub request: Arc<Request>,
    /// Hash of `request`.
    pub request_hash: RequestHash,
    /// When it was first issued.
    pub issue: Issue,
    /// The epoch it was issued under; matters in exclusive histories only.
    pub writer_epoch: u64,
    /// The history that the caller means; `None` is whichever has the name.
    pub history_id: Option<HistoryId>,
    /// Whether nothing after it may share its version: the state of a version
    /// that restores an older one is that of the older one, and nothing else.
    pub ends_version: bool,
}

impl Operation {
    /// An operation in a history that has no epochs, whichever has the name.
    pub fn new(id: OperationId, request: Request, issue: Issue) -> Self {
        let request_hash = request.hash();
        let request = Arc::new(request);
        Self {
            id,
            request,
            request_hash,
            issue,
            writer_epoch: 0,
            history_id: None,
            ends_version: false,
        }
    }
}

/// The durable intent of a service-kept operation, created once per id.
///
/// Every attempt, after a process restart too, uses the same record. A retry
/// that took a newer `issued_from` would shrink the range in which it has to
/// look for its own receipt, and could apply the operation twice.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RequestRecord {
    /// The history it was meant for.
    pub history_id: HistoryId,
    /// The caller's id.
    pub operation_id: OperationId,
    /// Hash of the request.
    pub request_hash: RequestHash,
    /// State version of a head that the writer had read when it made this.
    pub issued_from: StateVersion,
    /// The request itself.
    pub request: Arc<Request>,
}
