//! Heads that writers have published, as they tell of them.
//!
//! # Invariants
//!
//! - Such a head makes a version visible, and proves nothing: a strong read
//!   still waits for the store's word on it.
//! - It is followed like any other, by its chain, from the local head. One that
//!   does not follow is only a reason to ask the store.

use std::collections::VecDeque;

use bytes::Bytes;
use headwater_core::id::Tag;
use headwater_core::version::Revision;

use super::{Shared, lock};
use crate::local::Local;

/// Heads that wait to be followed, and their bytes in all. Of more the oldest
/// go, whose entries are then fetched.
const HEADS_MAX: usize = 16;
const BYTES_MAX: usize = 2 << 20;

/// A head that a writer has published: the store told it so.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PushedHead {
    /// As stored.
    pub head: Bytes,
    /// Its tag.
    pub tag: Tag,
    /// Change entries that it is the first to name. May be incomplete.
    pub entries: Vec<Bytes>,
}

/// Those that wait, oldest first.
#[derive(Debug, Default)]
pub(super) struct Pushed {
    heads: VecDeque<(Revision, PushedHead)>,
    size_bytes: usize,
}

/// The newest of them, with the entries of all.
#[derive(Debug)]
pub(super) struct Newest {
    pub(super) revision: Revision,
    pub(super) head: Bytes,
    pub(super) tag: Tag,
    pub(super) entries: Vec<Bytes>,
}

impl Pushed {
    /// Whether it could be kept at all.
    pub(super) fn takes(head: &PushedHead) -> bool {
        size_of(head) <= BYTES_MAX
    }

    pub(super) fn add(&mut self, revision: Revision, head: PushedHead) {
        self.size_bytes += size_of(&head);
        self.heads.push_back((revision, head));
        while HEADS_MAX < self.heads.len() || BYTES_MAX < self.size_bytes {
            let Some((_, oldest)) = self.heads.pop_front() else { return };
            self.size_bytes -= size_of(&oldest);
        }
    }

    fn take(&mut self, after: Revision) -> Option<Newest> {
        self.size_bytes = 0;
        let mut heads: Vec<_> = self.heads.drain(..).filter(|it| after < it.0).collect();
        heads.sort_by_key(|it| it.0);
        let (revision, newest) = heads.pop()?;
        let mut entries: Vec<Bytes> = heads.into_iter().flat_map(|it| it.1.entries).collect();
        entries.extend(newest.entries);
        Some(Newest { revision, head: newest.head, tag: newest.tag, entries })
    }
}

impl Shared {
    /// What is newer than `local`.
    pub(super) fn take_pushed(&self, local: &Local) -> Option<Newest> {
        lock(&self.pushed).take(local.head.revision)
    }
}

fn size_of(head: &PushedHead) -> usize {
    head.head.len() + head.entries.iter().map(Bytes::len).sum::<usize>()
}
