//! The tail as a map: what its changes wrote, over ranges that they deleted.
//!
//! ```text
//!  entries   a@7   .    c@9(gone)   d@9
//!  masks         [b ------- @8 ------- f)
//!  chunks    a@2   b@1  c@3         d@4   e@4   g@4
//!  seen      a@7                    d@9         g@4
//! ```
//!
//! # Invariants
//!
//! - An entry inside a mask is newer than it: deleting a range removes the
//!   entries in it, for the mask says as much about them.
//! - Everything here is newer than the snapshot.

mod masks;

use std::ops::Bound;

use bytes::Bytes;
use headwater_core::change::{Change, Resolved};
use headwater_core::operation::{Key, KeyRange};
use headwater_core::version::StateVersion;
use headwater_store::planted;
use imbl::OrdMap;

use self::masks::Masks;
use crate::span::Span;

/// The newest thing that the tail did to one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Written {
    pub(crate) version: StateVersion,
    /// `None`: deleted.
    pub(crate) value: Option<Bytes>,
}

/// Persistent: a clone is cheap, and shares what is not changed afterwards.
/// Its size is bounded by the tail, which writers keep short.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Overlay {
    entries: OrdMap<Key, Written>,
    masks: Masks,
    /// Of the entries, as [`entry_bytes`] counts.
    size_bytes: u64,
}

/// What an entry takes in memory beside its key and value: its place in the map,
/// and two handles on shared bytes.
const ENTRY_BYTES: usize = 128;
/// What a deleted range takes, with bounds of some 40 bytes.
const MASK_BYTES: u64 = 256;

fn entry_bytes(key: &Key, written: &Written) -> u64 {
    let value_len = written.value.as_ref().map_or(0, Bytes::len);
    (ENTRY_BYTES + key.as_ref().len() + value_len) as u64
}

/// What the overlay knows about a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fact<'a> {
    /// Written at this version, to this value.
    Put(StateVersion, &'a Bytes),
    /// Deleted at this version, by itself or with a range.
    Gone(StateVersion),
    /// Nothing: the snapshot decides.
    Unknown,
}

impl Overlay {
    pub(crate) fn fact(&self, key: &[u8]) -> Fact<'_> {
        match self.entries.get(key) {
            Some(Written { version, value: Some(value) }) => Fact::Put(*version, value),
            Some(Written { version, value: None }) => Fact::Gone(*version),
            None if planted!(RangeDeletionUnseen) => Fact::Unknown,
            None => self.masks.at(key).map_or(Fact::Unknown, Fact::Gone),
        }
    }

    /// Whether a range deletion hides the snapshot's entry at `key`.
    pub(crate) fn is_masked(&self, key: &[u8]) -> bool {
        self.masks.at(key).is_some()
    }

    /// Whether one range deletion hides every key from `first` to `last`.
    pub(crate) fn is_all_masked(&self, first: &[u8], last: &[u8]) -> bool {
        self.masks.is_over(first, last)
    }

    /// Whether nothing from `first` to `last`, both included, differs from the
    /// snapshot.
    pub(crate) fn is_untouched(&self, first: &[u8], last: &[u8]) -> bool {
        let within = (Bound::Included(first), Bound::Included(last));
        self.entries.range::<_, [u8]>(within).next().is_none() && !self.masks.is_any(first, last)
    }

    /// Everything that was written, in order of keys.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&Key, &Written)> + Send {
        self.entries.iter()
    }

    /// The last key that has a value here.
    pub(crate) fn last_put(&self) -> Option<&Key> {
        self.entries.iter().rev().find(|(_, it)| it.value.is_some()).map(|(key, _)| key)
    }

    /// What was written in `span`, in order of keys, from both ends.
    pub(crate) fn range(
        &self,
        span: Span<'_>,
    ) -> impl DoubleEndedIterator<Item = (&Key, &Written)> + Send {
        self.entries.range::<_, [u8]>(span.bounds())
    }

    /// The newest change in `range`: the first key that has it.
    pub(crate) fn newest(&self, range: &KeyRange) -> Option<(Key, StateVersion)> {
        let mut newest = self.masks.newest(range);
        for (key, written) in self.range(Span::of(range)) {
            if newest.as_ref().is_none_or(|(_, version)| *version < written.version) {
                newest = Some((key.clone(), written.version));
            }
        }
        newest
    }

    /// Replays `change`, which leads to `version`, newer than all before.
    pub(crate) fn apply(&mut self, version: StateVersion, change: &Change) {
        for mutation in change.mutations() {
            self.apply_one(version, mutation);
        }
    }

    /// Replays one mutation of a change that leads to `version`.
    pub(crate) fn apply_one(&mut self, version: StateVersion, mutation: &Resolved) {
        match mutation {
            Resolved::Put(key, value) => {
                self.write(key, Written { version, value: Some(value.clone()) });
            }
            Resolved::Delete(key) => {
                self.write(key, Written { version, value: None });
            }
            Resolved::DeleteRange(range) => self.delete_range(version, range),
        }
    }

    fn write(&mut self, key: &Key, written: Written) {
        self.size_bytes += entry_bytes(key, &written);
        if let Some(before) = self.entries.insert(key.clone(), written) {
            self.size_bytes -= entry_bytes(key, &before);
        }
    }

    fn delete_range(&mut self, version: StateVersion, range: &KeyRange) {
        let inside: Vec<Key> = self.range(Span::of(range)).map(|(key, _)| key.clone()).collect();
        for key in &inside {
            if let Some(before) = self.entries.remove(key) {
                self.size_bytes -= entry_bytes(key, &before);
            }
        }
        self.masks.add(version, range);
    }

    /// What is left of the overlay over a snapshot of `version`: the same as
    /// replaying only the changes after it.
    ///
    /// An entry or mask from before is in the snapshot, or was replaced there
    /// by what is kept here; one from after is here still, or was replaced by
    /// something newer.
    pub(crate) fn after(&self, version: StateVersion) -> Self {
        let kept = self.entries.iter().filter(|(_, it)| version < it.version);
        let entries: OrdMap<_, _> = kept.map(|(key, it)| (key.clone(), it.clone())).collect();
        let size_bytes = entries.iter().map(|(key, it)| entry_bytes(key, it)).sum();
        Self { entries, masks: self.masks.after(version), size_bytes }
    }

    /// What it takes in memory, in bytes, about. Values share the memory of the
    /// changes that they came in, so the tail's own size is a bound as well.
    pub(crate) fn size_bytes(&self) -> u64 {
        self.size_bytes + self.masks.len() as u64 * MASK_BYTES
    }

    /// How many keys were written, deletions included.
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }
}
