//! Making the head that replaces another one.
//!
//! A [`Successor`] is put together from what is to be accepted and what
//! maintenance has prepared; [`Successor::finish`] gives the head, which the
//! caller checks and encodes. Maintenance that no longer fits is left out, and
//! said so: it was prepared against an older head.

mod rebuilt;

use alloc::vec::Vec;

pub use self::rebuilt::Rebuilt;
use super::{
    ChangeBody, ChangeRef, Head, Lifecycle, ObjectRef, Pin, Publisher, Retention, RunRef,
    SnapshotRef,
};
use crate::archive::ArchiveUpdate;
use crate::hash::ContentHash;
use crate::id::PinName;
use crate::version::{Revision, StateVersion};

/// One change to append.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Append {
    /// blake3 of the entry's bytes.
    pub hash: ContentHash,
    /// Where they are.
    pub body: ChangeBody,
    /// How many operations it holds.
    pub operations: u64,
}

/// A run of changes that is now in a segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fold {
    /// The segment, durable.
    pub segment: RunRef,
    /// Hash of its last change: tells that the head still means that run.
    pub last_change: ContentHash,
}

/// A snapshot that is to take the place of the one before and of the tail up to
/// its version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Compaction {
    /// The snapshot, durable.
    pub snapshot: SnapshotRef,
    /// The snapshot that it was built from, and whose chunks it may name: the
    /// head must still name it, or they may be gone (PROTOCOL 7).
    pub based_on: SnapshotRef,
    /// Receipts of versions up to this one's, durable and contiguous. They take
    /// the place of the pages that the head names for the same versions, so
    /// that small pages do not add up; at the latest they begin after
    /// `based_on`, or at the coverage boundary where that is later.
    pub receipt_pages: Vec<RunRef>,
    /// What becomes of the snapshot and the tail that it takes the place of.
    pub archive: ArchiveUpdate,
}

/// A head in the making.
#[derive(Clone, Debug)]
pub struct Successor<'a> {
    previous: &'a Head,
    head: Head,
}

impl<'a> Successor<'a> {
    /// Begins from the head that is to be replaced.
    pub fn of(previous: &'a Head, publisher: Publisher) -> Self {
        let mut head = previous.clone();
        head.revision = previous.revision.next();
        head.publisher = publisher;
        Self { previous, head }
    }

    /// Accepts one more change; returns the version that it gets.
    pub fn append(&mut self, append: Append) -> StateVersion {
        let head = &mut self.head;
        let version = head.state_version.next();
        head.state_version = version;
        head.operation_count += append.operations;
        head.chain_hash = head.chain_hash.extend(version, append.hash);
        head.changes.push(ChangeRef { version, hash: append.hash, body: append.body });
        version
    }

    /// Names objects in place of changes that are here in full. `object_of` says
    /// which object holds the entry with a hash, if there is one.
    pub fn name_bodies(&mut self, object_of: impl Fn(ContentHash) -> Option<ObjectRef>) {
        for change in &mut self.head.changes {
            if matches!(change.body, ChangeBody::Inline(_))
                && let Some(object) = object_of(change.hash)
            {
                change.body = ChangeBody::Staged(object);
            }
        }
    }

    /// Raises the coverage boundary. Pages wholly below it go with it.
    pub fn raise_coverage(&mut self, coverage_from: StateVersion) {
        let head = &mut self.head;
        head.receipt_coverage_from = head.receipt_coverage_from.max(coverage_from);
        let coverage_from = head.receipt_coverage_from;
        head.receipt_pages.retain(|it| coverage_from <= it.to);
    }

    /// Moves changes into a segment. `false` when they are not there any more.
    #[must_use]
    pub fn fold(&mut self, fold: &Fold) -> bool {
        let head = &mut self.head;
        let RunRef { from, to, .. } = fold.segment;
        let is_front = head.changes.first().is_some_and(|it| it.version == from);
        let len = usize::try_from(to.get() - from.get() + 1).unwrap_or(usize::MAX);
        let last = head.changes.get(len - 1);
        if !is_front || last.is_none_or(|it| it.hash != fold.last_change) {
            return false;
        }
        head.changes.drain(..len);
        head.segments.push(fold.segment.clone());
        true
    }

    /// Puts a newer snapshot in place. `false` when the head has another one
    /// than it was built from, or when its version is inside a segment.
    #[must_use]
    pub fn compact(&mut self, compaction: &Compaction) -> bool {
        let head = &self.head;
        let version = compaction.snapshot.version;
        let is_based = head.snapshot == compaction.based_on || planted!(BaseUncompared);
        let is_newer = is_based && head.snapshot.version < version && version <= head.state_version;
        let is_cut = head.segments.iter().all(|it| it.to <= version || version < it.from);
        let pages = &compaction.receipt_pages;
        let coverage_from = head.receipt_coverage_from;
        // Pages that stay: wholly before the new ones. One that the new ones
        // begin inside of is replaced, which the match below allows only where
        // its older part is not covered any more.
        let stays = |it: &RunRef| {
            coverage_from <= it.to && pages.first().is_none_or(|first| it.to < first.from)
        };
        let is_complete = match (pages.first(), pages.last()) {
            (Some(first), Some(last)) => {
                let before = head.receipt_pages.iter().rfind(|it| stays(it));
                let follows = match before {
                    Some(it) => it.to.next() == first.from,
                    None => first.from <= coverage_from.min(version),
                };
                follows && last.to == version
            }
            (None, _) | (_, None) => version < coverage_from,
        };
        // A segment that nobody has accounted for would be deleted by nobody.
        let is_accounted = |it: &RunRef| compaction.archive.accounted.contains(&it.object.key);
        let dropped = head.segments.iter().filter(|it| it.to <= version);
        if !is_newer || !is_cut || !is_complete || !dropped.clone().all(is_accounted) {
            return false;
        }
        if !self.takes(&compaction.archive, version) {
            return false;
        }
        let head = &mut self.head;
        head.snapshot = compaction.snapshot.clone();
        head.segments.retain(|it| version < it.to);
        if planted!(TailDropped) {
            head.changes.clear();
        }
        head.changes.retain(|it| version < it.version);
        head.receipt_pages.retain(stays);
        head.receipt_pages.extend(pages.iter().cloned());
        head.receipt_pages.retain(|it| coverage_from <= it.to);
        self.put_archive(&compaction.archive);
        true
    }

    /// Puts another archive in place. `false` when the head has another one
    /// than it was made from, or a pin that it does not keep.
    #[must_use]
    pub fn release(&mut self, update: &ArchiveUpdate) -> bool {
        if !self.takes(update, self.head.snapshot.version) {
            return false;
        }
        self.put_archive(update);
        true
    }

    fn takes(&self, update: &ArchiveUpdate, snapshot: StateVersion) -> bool {
        let head = &self.head;
        let retained_from = update.becomes.as_ref().map_or(snapshot, |it| it.retained_from);
        let is_kept = |pin: &Pin| {
            retained_from <= pin.version
                || update.pinned.contains(&pin.version)
                || update.expired.contains(pin)
        };
        // The publishing rule for what is named one step away from the head.
        let is_safe = |it: &ObjectRef| {
            self.previous.sweep_from <= it.key.staged()
                || self.previous.references().any(|old| old.key == it.key)
        };
        let is_based = head.archive == update.based_on || planted!(BaseUncompared);
        let keeps_pins = head.pins.iter().all(is_kept) || planted!(PinsForgotten);
        let keeps_forks = head.forks().all(|it| update.forks.contains(&it.name));
        is_based
            && keeps_forks
            && keeps_pins
            && head.retained_from() <= retained_from
            && update.named.iter().all(is_safe)
    }

    fn put_archive(&mut self, update: &ArchiveUpdate) {
        let head = &mut self.head;
        head.archive.clone_from(&update.becomes);
        head.pins.retain(|it| !update.expired.contains(it));
        if !update.needs_base {
            head.base = None;
        }
    }

    /// Raises the sweep boundary: from here on nothing staged below it can be
    /// named again. `false` where there is nothing to raise.
    #[must_use]
    pub fn raise_sweep(&mut self, sweep_from: Revision) -> bool {
        let is_past = sweep_from <= self.previous.revision;
        let raises = is_past && self.head.sweep_from < sweep_from;
        if raises {
            self.head.sweep_from = sweep_from;
        }
        raises
    }

    /// Records that everything below `swept_to` is swept, and what was deleted
    /// by name. `false` when the archive has changed since.
    #[must_use]
    pub fn swept(&mut self, swept_to: Revision, update: Option<&ArchiveUpdate>) -> bool {
        let raises = self.head.swept_to < swept_to && swept_to <= self.head.sweep_from;
        if !raises && update.is_none() || update.is_some_and(|it| !self.release(it)) {
            return false;
        }
        if raises {
            self.head.swept_to = swept_to;
        }
        true
    }

    /// Puts a name on a version, or moves nothing where it has it already.
    pub fn pin(&mut self, pin: Pin) {
        let pins = &mut self.head.pins;
        match pins.binary_search_by(|it| it.name.cmp(&pin.name)) {
            Ok(index) => pins[index] = pin,
            Err(index) => pins.insert(index, pin),
        }
    }

    /// Takes a name away.
    pub fn unpin(&mut self, name: &PinName) {
        self.head.pins.retain(|it| it.name != *name);
    }

    /// Sets how far back versions are kept.
    pub fn set_retention(&mut self, retention: Retention) {
        self.head.retention = retention;
    }

    /// Fences the former owner of an exclusive history.
    pub fn raise_writer_epoch(&mut self) {
        self.head.writer_epoch += 1;
    }

    /// Ends the history: nothing is accepted or served from here on.
    pub fn retire(&mut self) {
        self.head.lifecycle = self.head.lifecycle.max(Lifecycle::Retiring);
    }

    /// Frees the name, once every object of a retiring history is gone.
    pub fn clear(&mut self) {
        self.head.lifecycle = Lifecycle::Cleared;
    }

    /// The head so far.
    pub fn head(&self) -> &Head {
        &self.head
    }

    /// The head.
    pub fn finish(self) -> Head {
        self.head
    }
}
