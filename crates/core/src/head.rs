//! The head: the one mutable object of a history, and what may follow it.
//!
//! ```text
//!        snapshot        segments          changes
//!  [0 .. version] [from .. to][from .. to] v v v ... state_version
//!                                          ^ inline, or an object of its own
//!  receipts:      pages up to snapshot.version | tail: the entries themselves
//! ```
//!
//! Receipts of the tail are not listed: a change entry holds the ids, hashes
//! and results of its operations, so the tail is its own evidence and no byte
//! is stored twice. Pages hold the receipts of versions that the snapshot has
//! overtaken and the coverage boundary has not.

mod check;
#[cfg(test)]
mod head_test;
mod kept;
mod next;

use alloc::string::String;
use alloc::vec::Vec;

use bytes::Bytes;

pub use self::check::HeadError;
pub use self::kept::{ArchiveRef, Base, HistoryRef, Pin, Retention};
pub use self::next::{Append, Compaction, Fold, Rebuilt, Successor};
use crate::hash::{ChainHash, ContentHash};
use crate::id::{HistoryId, HistoryName, Nonce, Tag, WriterAddress};
use crate::keys::{ObjectKey, ObjectKind};
use crate::version::{Revision, StateVersion};

/// Points at an immutable object. A reader verifies hash and length before it
/// uses a byte.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ObjectRef {
    /// Its key. Never reused for other bytes.
    pub key: ObjectKey,
    /// blake3 of its bytes.
    pub hash: ContentHash,
    /// Its length in bytes.
    pub size_bytes: u64,
}

impl ObjectRef {
    /// A reference to `bytes`, named by their hash.
    pub fn to_content(kind: ObjectKind, staged: Revision, bytes: &[u8]) -> Self {
        let hash = ContentHash::of(bytes);
        let key = ObjectKey::content(kind, staged, hash);
        Self { key, hash, size_bytes: bytes.len() as u64 }
    }

    /// Whether `bytes` are the ones that the reference is to.
    pub fn is_to(&self, bytes: &[u8]) -> bool {
        self.size_bytes == bytes.len() as u64 && self.hash == ContentHash::of(bytes)
    }
}

/// Where replay starts.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SnapshotRef {
    /// The version that the snapshot stands for.
    pub version: StateVersion,
    /// Its index.
    pub object: ObjectRef,
}

/// An object about a run of versions: a segment or a receipt page.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RunRef {
    /// First version.
    pub from: StateVersion,
    /// Last version.
    pub to: StateVersion,
    /// The object.
    pub object: ObjectRef,
}

/// Where the bytes of a change entry are.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum ChangeBody {
    /// In the head itself.
    Inline(Bytes),
    /// In an object.
    Staged(ObjectRef),
}

/// One change of the tail.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ChangeRef {
    /// The version that it leads to.
    pub version: StateVersion,
    /// blake3 of the entry's bytes.
    pub hash: ContentHash,
    /// Where they are.
    pub body: ChangeBody,
}

/// Who made a head. The nonce is fresh for every attempt, so no two heads of
/// any history have equal bytes, and no tag ever becomes valid again.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Publisher {
    /// The process, for people: `[A-Za-z0-9._-]`, up to 64 bytes.
    pub id: String,
    /// Drawn for this attempt.
    pub nonce: Nonce,
    /// Where it takes operations from other writers, if it does.
    pub address: Option<WriterAddress>,
}

/// Where a history is between its creation and its end. It only moves forward;
/// a new history of the same name takes over a cleared head, at the next
/// revision. So no revision of one key is ever used twice, and an object that
/// was staged for one history cannot be mistaken for another's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Lifecycle {
    /// It accepts and serves.
    Live,
    /// It is being deleted: nothing is accepted or served, and its objects go.
    Retiring,
    /// Its objects are gone; the name is free.
    Cleared,
}

/// Names everything that is accepted.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Head {
    /// The history's name, so that a head copied elsewhere is noticed.
    pub history: HistoryName,
    /// Fixed for ever.
    pub history_id: HistoryId,
    /// Counts replacements of this object.
    pub revision: Revision,
    /// Counts accepted transitions.
    pub state_version: StateVersion,
    /// Counts accepted operations.
    pub operation_count: u64,
    /// Whether operations must carry the current writer epoch. Fixed.
    pub is_exclusive: bool,
    /// Raised to fence a former owner; 0 until then.
    pub writer_epoch: u64,
    /// Whether the history lives.
    pub lifecycle: Lifecycle,
    /// Who made this head.
    pub publisher: Publisher,
    /// Hash over every change up to `state_version`.
    pub chain_hash: ChainHash,
    /// Where replay starts.
    pub snapshot: SnapshotRef,
    /// The older part of the tail.
    pub segments: Vec<RunRef>,
    /// The newer part of the tail.
    pub changes: Vec<ChangeRef>,
    /// First version of which every acceptance has its receipt.
    pub receipt_coverage_from: StateVersion,
    /// Receipts of versions up to the snapshot's.
    pub receipt_pages: Vec<RunRef>,
    /// Unreferenced objects staged below it can never be referenced again.
    pub sweep_from: Revision,
    /// Unreferenced objects staged below it are deleted.
    pub swept_to: Revision,
    /// How far back versions are kept.
    pub retention: Retention,
    /// What is kept of the versions before the snapshot's.
    pub archive: Option<ArchiveRef>,
    /// Versions that are kept by name, in the order of the names.
    pub pins: Vec<Pin>,
    /// Where the history was forked from, while it needs objects of there.
    pub base: Option<Base>,
}

/// A head together with the tag under which the store returned it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ObservedHead {
    /// The head, decoded and checked.
    pub head: alloc::sync::Arc<Head>,
    /// The tag to compare against when replacing it.
    pub tag: Tag,
}

/// What naming one object, or one change, takes of a head as stored, in bytes at
/// most; bytes that it carries come on top.
pub const REFERENCE_BYTES_MAX: usize = 256;

/// Bounds of a head. They protect readers, so every writer enforces them; a
/// head over them is still read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct HeadLimits {
    /// Past this size, in bytes as stored, older changes move to segments.
    pub soft_bytes: usize,
    /// Past this size no operation is accepted until maintenance has made room.
    pub hard_bytes: usize,
}

impl Head {
    /// The first head of a history: at [`Revision::FIRST`], or at the revision
    /// after that of the cleared head that it replaces.
    pub fn first(
        history: HistoryName,
        history_id: HistoryId,
        revision: Revision,
        is_exclusive: bool,
        publisher: Publisher,
        empty_snapshot: ObjectRef,
    ) -> Self {
        Self {
            history,
            history_id,
            revision,
            state_version: StateVersion::ZERO,
            operation_count: 0,
            is_exclusive,
            writer_epoch: 0,
            lifecycle: Lifecycle::Live,
            publisher,
            chain_hash: ChainHash::first(history_id),
            snapshot: SnapshotRef { version: StateVersion::ZERO, object: empty_snapshot },
            segments: Vec::new(),
            changes: Vec::new(),
            receipt_coverage_from: StateVersion::ZERO.next(),
            receipt_pages: Vec::new(),
            sweep_from: Revision::new(0),
            swept_to: Revision::new(0),
            retention: Retention::default(),
            archive: None,
            pins: Vec::new(),
            base: None,
        }
    }

    /// Whether the history is being deleted or is gone.
    pub fn is_retired(&self) -> bool {
        self.lifecycle != Lifecycle::Live
    }

    /// The first version of the tail, or the one after the last if it is empty.
    pub fn tail_from(&self) -> StateVersion {
        self.snapshot.version.next()
    }

    /// Every object that the head names itself.
    pub fn references(&self) -> impl Iterator<Item = &ObjectRef> {
        let runs = self.segments.iter().chain(&self.receipt_pages).map(|it| &it.object);
        let staged = self.changes.iter().filter_map(|it| match &it.body {
            ChangeBody::Staged(object) => Some(object),
            ChangeBody::Inline(_) => None,
        });
        let archive = self.archive.iter().map(|it| &it.object);
        core::iter::once(&self.snapshot.object).chain(runs).chain(staged).chain(archive)
    }
}
