//! Candidates that are uploaded beside the replacement that accepts them.
//!
//! ```text
//!            head N            head N+1
//!  replace   entry in full --> the object's name
//!  upload    the same bytes -----^ once it is durable
//! ```
//!
//! A batch that is too large to stay in the head, and for which nothing is in
//! flight that it could be staged behind, would take two round trips: one for
//! its upload and one for the head. Carried in the head meanwhile it takes one.
//! Both are of the same bytes under the same hash, so whoever follows reads the
//! one or the other.
//!
//! # Architecture invariants
//!
//! - What a head carries does not rest on the upload. One that fails, or whose
//!   process dies, leaves an inline change, which is folded like any other.
//! - A head names the object only once it is known to be durable, and only
//!   while the sweep boundary is not above it (PROTOCOL 7).
//! - Nothing travels where others publish too, and now and then nothing does in
//!   any case. Whoever has won a race knows the head that it made, and would be
//!   a round trip ahead of the others for ever, without ever seeing one of them.
//! - What travels is bounded: two entries of the largest size on top of the
//!   soft limit, and half of the hard one.

use alloc::collections::VecDeque;

use super::Publisher;
use super::batch::{Batch, BatchId, DecidedChange};
use super::event::Pace;
use crate::hash::ContentHash;
use crate::head::{ChangeBody, Head, ObjectRef, REFERENCE_BYTES_MAX};

/// Entries of the largest size that a head carries on top of its soft limit:
/// one that was accepted, whose upload may come to an end after the replacement
/// that it was begun with, and the next one.
const TRAVELLING_MAX: usize = 2;

/// So many publications in a row show that nobody else publishes: of two that
/// contend each wins the next one about as likely as the other. None in a rig:
/// this is about fairness, and what travels has to be safe among rivals too.
const ALONE: u32 = if cfg!(feature = "planted") { 0 } else { 16 };
/// One publication of so many is staged first, which leaves the head alone for
/// a round trip: whoever wants to publish too gets its turn then.
const OPEN_EVERY: u32 = 64;

/// What travels, or was on its way when its upload ended: a few at a time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Beside {
    travelling: VecDeque<Travelling>,
    /// Publications still to come until nobody else is thought to publish.
    until_alone: u32,
    /// Publications still to come until one is staged first.
    until_open: u32,
}

impl Default for Beside {
    fn default() -> Self {
        Self { travelling: VecDeque::new(), until_alone: ALONE, until_open: OPEN_EVERY }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Travelling {
    pub(super) batch: BatchId,
    pub(super) object: ObjectRef,
    /// What it takes in a head.
    pub(super) inline_bytes: usize,
    pub(super) is_durable: bool,
}

impl Beside {
    pub(super) fn iter(&self) -> impl Iterator<Item = &Travelling> {
        self.travelling.iter()
    }

    /// Whether the next publication may be one that is not staged first.
    pub(super) fn is_free(&self) -> bool {
        self.until_alone == 0 && self.until_open != 0
    }

    #[cfg(feature = "planted")]
    pub(super) fn counts(&self) -> (u32, u32) {
        (self.until_alone, self.until_open)
    }

    #[cfg(test)]
    pub(super) fn assume_alone(&mut self) {
        self.until_alone = 0;
    }

    pub(super) fn clear(&mut self) {
        self.travelling.clear();
    }

    /// The object that holds the entry with this hash, if it is durable and may
    /// be named by the head after one with this boundary.
    pub(super) fn durable(&self, hash: ContentHash, replaced: &Head) -> Option<&ObjectRef> {
        let is_durable = |it: &Travelling| it.is_durable || planted!(UploadAssumed);
        let found = self.travelling.iter().find(|it| it.object.hash == hash && is_durable(it));
        let may_be_named = |it: &&ObjectRef| {
            replaced.sweep_from <= it.key.staged() || planted!(SweptTravellerNamed)
        };
        found.map(|it| &it.object).filter(may_be_named)
    }
}

/// What bytes take in a head: base64 has four for three.
pub(super) fn inline_bytes(len: usize) -> usize {
    len.div_ceil(3) * 4
}

impl Publisher {
    /// The size of the observed head without what only travels in it: what its
    /// limits, and upkeep, are about.
    pub fn settled_bytes(&self) -> usize {
        let Some(observed) = &self.observed else { return 0 };
        self.without_travellers(&observed.head, self.head_bytes)
    }

    /// The same of the head that is being sent, if one is.
    pub fn sent_settled_bytes(&self) -> usize {
        let Some(attempt) = &self.in_flight else { return self.settled_bytes() };
        self.without_travellers(&attempt.successor, attempt.size_bytes)
    }

    fn without_travellers(&self, head: &Head, head_bytes: usize) -> usize {
        let carried = self.beside.iter().filter(|it| carries(head, it.object.hash));
        head_bytes.saturating_sub(carried.map(|it| it.inline_bytes).sum())
    }

    /// What stays in the head with an entry of `len` bytes for the batch at
    /// `index`, and with the batches before it: they may go out together.
    pub(super) fn coming_bytes(&self, index: usize, len: usize) -> usize {
        let coming = self.pipeline.iter().take(index).filter_map(Batch::decided_change);
        let sizes = coming.map(|it| match &it.body {
            ChangeBody::Inline(bytes) => REFERENCE_BYTES_MAX + inline_bytes(bytes.len()),
            ChangeBody::Staged(_) => REFERENCE_BYTES_MAX,
        });
        self.settled_bytes() + sizes.sum::<usize>() + REFERENCE_BYTES_MAX + inline_bytes(len)
    }

    /// Whether a head has room for an entry of this size that travels in it.
    pub(super) fn has_room_beside(&self, len: usize) -> bool {
        let Some(observed) = &self.observed else { return false };
        let is_named_next = |it: &ObjectRef| carries(&observed.head, it.hash);
        let named = self.beside.iter().filter(|it| {
            self.beside.durable(it.object.hash, &observed.head).is_some_and(is_named_next)
        });
        let next_bytes = self.head_bytes.saturating_sub(named.map(|it| it.inline_bytes).sum());
        let limits = self.settings.head;
        let most = inline_bytes(self.settings.beside_bytes_max) * TRAVELLING_MAX;
        let limit = (limits.soft_bytes + most).min(limits.hard_bytes / 2);
        len <= self.settings.beside_bytes_max && next_bytes + inline_bytes(len) <= limit
    }

    /// Whether the entry of the batch at `index`, which would have to be uploaded
    /// first, can travel in the head instead: the next replacement is about to be
    /// sent, and nothing is in flight that it could be staged behind.
    pub(super) fn can_travel(&self, index: usize, change: &DecidedChange) -> bool {
        index == 0
            && change.is_new_object
            && self.in_flight.is_none()
            && self.reading.is_none()
            && self.pace == Pace::Publish
            && self.beside.is_free()
            && self.has_room_beside(change.bytes.len())
    }

    /// A head was found: whether somebody else publishes.
    pub(super) fn meet(&mut self, found: &Head) {
        if self.observed.is_some() && found.publisher.id != self.settings.publisher_id {
            self.beside.until_alone = ALONE;
        }
    }

    /// Its entry is in the head that is sent, and its upload is begun.
    pub(super) fn travel(&mut self, batch: BatchId, object: ObjectRef, len: usize) {
        let inline_bytes = inline_bytes(len);
        self.beside.travelling.push_back(Travelling {
            batch,
            object,
            inline_bytes,
            is_durable: false,
        });
    }

    /// The upload of a batch that travels has ended; `false` where there is none.
    pub(super) fn on_travelled(&mut self, batch: BatchId, is_durable: bool) -> bool {
        let Some(at) = self.beside.travelling.iter().position(|it| it.batch == batch) else {
            return false;
        };
        if is_durable {
            self.beside.travelling[at].is_durable = true;
            let object = self.beside.travelling[at].object.clone();
            self.note_staged(object);
        } else {
            // It stays in the head until it is folded.
            self.beside.travelling.remove(at);
        }
        self.trim_beside();
        true
    }

    /// Where the next head has the bytes of a change.
    pub(super) fn body_of(&self, change: &DecidedChange, replaced: &Head) -> ChangeBody {
        let durable = self.beside.durable(change.hash, replaced);
        match &change.body {
            ChangeBody::Inline(_) => {
                durable.cloned().map_or_else(|| change.body.clone(), ChangeBody::Staged)
            }
            ChangeBody::Staged(_) => change.body.clone(),
        }
    }

    /// A publication of ours is the head; whether anything in it was staged first.
    pub(super) fn advance_beside(&mut self, was_staged: bool) {
        let Beside { until_alone, until_open, .. } = &mut self.beside;
        *until_alone = until_alone.saturating_sub(1);
        // What needs no upload leaves nobody a turn.
        *until_open = match *until_open {
            0 if was_staged => OPEN_EVERY,
            n => n.saturating_sub(1),
        };
        self.trim_beside();
    }

    /// Lets go of what no head has to name any more. An upload under way stays
    /// until it is reported.
    pub(super) fn trim_beside(&mut self) {
        let Self { beside, observed, pipeline, .. } = self;
        let head = observed.as_ref().map(|it| &it.head);
        let is_coming = |batch: BatchId| pipeline.iter().any(|it: &Batch| it.id == batch);
        beside.travelling.retain(|it| {
            let is_carried = head.is_some_and(|head| carries(head, it.object.hash));
            // The sweep boundary never falls: below it no head will ever name it,
            // and the entry is one that stays.
            let is_below = head.is_some_and(|head| it.object.key.staged() < head.sweep_from);
            let is_swept = is_below && !planted!(SweptTravellerNamed);
            !it.is_durable || !is_swept && (is_carried || is_coming(it.batch))
        });
    }
}

/// Whether `head` has the entry with this hash in full.
fn carries(head: &Head, hash: ContentHash) -> bool {
    let mut newest_first = head.changes.iter().rev();
    newest_first.any(|it| it.hash == hash && matches!(it.body, ChangeBody::Inline(_)))
}
