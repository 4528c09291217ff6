//! Telling those who follow what was published.
//!
//! What is told is never the only way to it: whoever hears nothing finds the
//! head in the store.

use std::sync::Arc;

use bytes::Bytes;
use headwater_core::head::ObservedHead;
use headwater_core::id::Tag;
use headwater_store::HeadWrite;

use super::Driver;
use crate::figures::Shown;
use crate::histories::{HeadNotice, PUSHED_BYTES_MAX, PUSHED_HEAD_BYTES_MAX, PublishedHead};

/// Heads that were sent.
#[derive(Debug, Default)]
pub(super) struct Sent {
    /// The one in flight.
    bytes: Bytes,
    /// The last one that the store took, and what it called it.
    taken: Option<(Tag, Bytes)>,
}

impl Sent {
    pub(super) fn begin(&mut self, bytes: Bytes) {
        self.bytes = bytes;
    }

    pub(super) fn answered(&mut self, reply: &HeadWrite) {
        let bytes = std::mem::take(&mut self.bytes);
        self.taken = match reply {
            HeadWrite::Replaced { tag } => Some((tag.clone(), bytes)),
            HeadWrite::Mismatch | HeadWrite::Gone | HeadWrite::NoAnswer(_) => None,
        };
    }

    /// Its bytes, if it is the head with this tag.
    fn bytes_of(&self, tag: &Tag) -> Option<Bytes> {
        self.taken.as_ref().filter(|(it, _)| it == tag).map(|(_, bytes)| bytes.clone())
    }
}

impl Driver {
    /// Tells of a head that is ours. `entries` are changes that it brings.
    pub(super) fn tell_published(&self, observed: &ObservedHead, entries: Vec<Bytes>) {
        let size_bytes: usize = entries.iter().map(Bytes::len).sum();
        let changes = if size_bytes <= PUSHED_BYTES_MAX { entries } else { Vec::new() };
        let published = self
            .sent
            .bytes_of(&observed.tag)
            // Notices wait for receivers: what they hold has a limit, which the
            // one of heads is not.
            .filter(|bytes| bytes.len() <= PUSHED_HEAD_BYTES_MAX)
            .map(|bytes| Arc::new(PublishedHead { bytes, tag: observed.tag.clone(), changes }));
        self.show();
        self.tell(observed, published);
    }

    /// Leaves the head for those who look at the history.
    fn show(&self) {
        let shown = self.publisher.observed().map(|observed| Shown {
            observed: observed.clone(),
            head_bytes: self.publisher.head_bytes(),
            receipts: self.publisher.evidence().len(),
        });
        self.parts.shown.send_replace(shown);
    }

    /// Tells of a head that was read.
    pub(super) fn tell_seen(&self) {
        self.show();
        if let Some(observed) = self.publisher.observed() {
            self.tell(observed, None);
        }
    }

    fn tell(&self, observed: &ObservedHead, published: Option<Arc<PublishedHead>>) {
        // Nobody may be there, which is fine.
        let _nobody = self.parts.notices.send(HeadNotice {
            history: self.parts.history.clone(),
            history_id: observed.head.history_id,
            revision: observed.head.revision,
            state_version: observed.head.state_version,
            published,
        });
    }
}
