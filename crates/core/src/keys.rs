//! Every object key, in one table.
//!
//! | key below the history's prefix | content |
//! | --- | --- |
//! | `head.json` | the head |
//! | `changes/<staged>-<nonce>` | one change entry |
//! | `segments/<staged>-<hash>` | consecutive change entries |
//! | `snapshots/<staged>-<hash>` | a snapshot index |
//! | `chunks/<staged>-<hash>` | sorted entries of a snapshot, or a page of its index |
//! | `data/<staged>-<hash>` | an application's data object |
//! | `receipts/<staged>-<hash>` | a page of receipts |
//! | `archive/<staged>-<hash>` | what retention still keeps |
//! | `requests/<hash>` | a request record |
//!
//! `<staged>` is a [`Revision`] in 20 decimal digits, so that listing order is
//! staging order.

#[cfg(test)]
mod keys_test;

use alloc::format;
use alloc::string::String;
use core::fmt;

use crate::hash::ContentHash;
use crate::id::{HistoryId, HistoryName, Nonce, OperationId};
use crate::version::Revision;

/// File name of the head.
pub const HEAD: &str = "head.json";

/// Words that the layout uses, which no part of a history's name may be.
pub const RESERVED_PARTS: &[&str] = &[
    HEAD,
    "changes",
    "segments",
    "snapshots",
    "chunks",
    "data",
    "receipts",
    "archive",
    "requests",
];

/// The kinds of immutable object whose names carry a staged revision.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ObjectKind {
    /// One change entry.
    Change,
    /// Consecutive change entries.
    Segment,
    /// A snapshot index.
    Snapshot,
    /// Sorted entries of a snapshot.
    Chunk,
    /// An application's data object.
    Data,
    /// A page of receipts.
    Receipts,
    /// What retired heads referenced.
    Archive,
}

impl ObjectKind {
    /// All of them, in the order of the table above.
    pub const ALL: [Self; 7] = [
        Self::Change,
        Self::Segment,
        Self::Snapshot,
        Self::Chunk,
        Self::Data,
        Self::Receipts,
        Self::Archive,
    ];

    /// The folder below the history's prefix.
    pub const fn folder(self) -> &'static str {
        match self {
            Self::Change => "changes",
            Self::Segment => "segments",
            Self::Snapshot => "snapshots",
            Self::Chunk => "chunks",
            Self::Data => "data",
            Self::Receipts => "receipts",
            Self::Archive => "archive",
        }
    }
}

/// The key of one immutable object, relative to its history's prefix.
///
/// Never reused for other bytes.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectKey {
    kind: ObjectKind,
    staged: Revision,
    text: String,
}

/// Why text is not an [`ObjectKey`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not an object key: {text:?}")]
pub struct ObjectKeyError {
    /// The rejected text.
    pub text: String,
}

impl ObjectKey {
    /// A change entry's key. Named by a nonce and not by its hash: two writers
    /// that stage equal bytes must not share a candidate that one of them may
    /// let go.
    pub fn change(staged: Revision, nonce: Nonce) -> Self {
        Self::from_parts(ObjectKind::Change, staged, format_args!("{nonce}"))
    }

    /// The key of any other kind, named by the hash of the object's bytes.
    ///
    /// # Panics
    ///
    /// For [`ObjectKind::Change`]: see [`ObjectKey::change`].
    pub fn content(kind: ObjectKind, staged: Revision, hash: ContentHash) -> Self {
        assert_ne!(kind, ObjectKind::Change, "change entries are named by a nonce");
        Self::from_parts(kind, staged, format_args!("{hash}"))
    }

    fn from_parts(kind: ObjectKind, staged: Revision, suffix: fmt::Arguments<'_>) -> Self {
        let text = format!("{}/{:020}-{suffix}", kind.folder(), staged.get());
        Self { kind, staged, text }
    }

    /// Reads a key back from a head or a listing.
    ///
    /// # Errors
    ///
    /// [`ObjectKeyError`] unless `text` is exactly what this crate writes.
    pub fn parse(text: &str) -> Result<Self, ObjectKeyError> {
        Self::read(text).ok_or_else(|| ObjectKeyError { text: text.into() })
    }

    fn read(text: &str) -> Option<Self> {
        let (folder, name) = text.split_once('/')?;
        let kind = ObjectKind::ALL.into_iter().find(|it| it.folder() == folder)?;
        let (digits, suffix) = name.split_once('-')?;
        if digits.len() != 20 || !digits.bytes().all(|it| it.is_ascii_digit()) {
            return None;
        }
        let staged = Revision::new(digits.parse().ok()?);
        let is_named = if kind == ObjectKind::Change {
            Nonce::parse(suffix).is_ok()
        } else {
            ContentHash::from_hex(suffix).is_ok()
        };
        is_named.then(|| Self { kind, staged, text: text.into() })
    }

    /// What the object holds.
    pub fn kind(&self) -> ObjectKind {
        self.kind
    }

    /// The hash of the object's bytes, where it is named by that: not for
    /// change entries.
    pub fn content_hash(&self) -> Option<ContentHash> {
        let (_, suffix) = self.text.rsplit_once('-')?;
        ContentHash::from_hex(suffix).ok()
    }

    /// A revision that the uploading process had read before it began.
    pub fn staged(&self) -> Revision {
        self.staged
    }

    /// The key below the history's prefix, as heads name it.
    pub fn as_str(&self) -> &str {
        &self.text
    }
}

impl fmt::Debug for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl fmt::Display for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl HistoryName {
    /// Where the head is, below the root of the store.
    pub fn head_key(&self) -> String {
        format!("{self}/{HEAD}")
    }

    /// Where an immutable object is, below the root of the store.
    pub fn object_key(&self, key: &ObjectKey) -> String {
        format!("{self}/{key}")
    }

    /// Where all objects of `kind` are, below the root of the store.
    pub fn folder(&self, kind: ObjectKind) -> String {
        format!("{self}/{}/", kind.folder())
    }

    /// Where the request record of an operation is, below the root of the
    /// store.
    ///
    /// The history's id is hashed with the operation's: a record that outlived
    /// a deleted history of the same name is not found by the next one, whose
    /// versions it knows nothing of.
    pub fn request_key(&self, history: HistoryId, operation: &OperationId) -> String {
        let mut hasher = blake3::Hasher::new();
        hasher.update(history.as_bytes());
        hasher.update(operation.as_str().as_bytes());
        format!("{self}/requests/{}", hasher.finalize().to_hex())
    }
}
