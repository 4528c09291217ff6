//! The newest snapshot, entry by entry, beside the older one and the changes
//! since.
//!
//! Both are read in the order of keys, a page at a time, side by side, so that
//! neither is ever whole in memory. What the older one needs beside its parts
//! is what the changes wrote: retention bounds those.

use std::collections::VecDeque;

use bytes::Bytes;
use headwater_core::operation::{Key, KeyRange};
use headwater_state::{Entry, Scan, StateError, View};

use super::Walk;
use crate::finding::{Finding, Kind, Role};
use crate::report::{Part, PartState, Reason};
use crate::trouble::Blamed;

/// Entries in memory of each side.
const PAGE_ENTRIES: usize = 4_096;
/// Likewise, in bytes of keys and values.
const PAGE_BYTES: usize = 2 << 20;

/// What came of reading the newest snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// All of its parts are what its index says.
    Read,
    /// Something could not be used.
    Unreadable,
}

/// A view, read in order.
struct Cursor<'v> {
    view: &'v View,
    entries: VecDeque<Entry>,
    after: Option<Key>,
    is_end: bool,
}

impl<'v> Cursor<'v> {
    fn new(view: &'v View) -> Self {
        Self { view, entries: VecDeque::new(), after: None, is_end: false }
    }

    async fn peek(&mut self) -> Result<Option<&Entry>, StateError> {
        while self.entries.is_empty() && !self.is_end {
            let scan = Scan {
                range: KeyRange::everything(),
                after: self.after.take(),
                reverse: false,
                keys_only: false,
                entries_max: PAGE_ENTRIES,
                bytes_max: PAGE_BYTES,
            };
            let page = Box::pin(self.view.scan(&scan)).await?;
            self.is_end = page.next.is_none();
            self.after = page.next;
            self.entries = page.entries.into();
        }
        Ok(self.entries.front())
    }

    fn pop(&mut self) {
        self.entries.pop_front();
    }
}

impl Walk<'_> {
    /// Reads the newest snapshot to its end. `older` is the same version from
    /// elsewhere.
    pub(super) async fn compare(&mut self, newest: &View, older: Option<&View>) -> Outcome {
        if let Some(older) = older
            && older.chain_hash() != newest.chain_hash()
        {
            // Said by the chain itself; the entries cannot be expected to agree.
            let key = self.key_of(&self.head.snapshot.object.key);
            self.leave_out(Part::Rebuild, Reason::Trouble { key });
            return self.read_to_end(&mut Cursor::new(newest)).await;
        }
        let mut new = Cursor::new(newest);
        let Some(older) = older else { return self.read_to_end(&mut new).await };
        let mut old = Cursor::new(older);
        loop {
            let found = match new.peek().await {
                Ok(found) => found,
                Err(error) => {
                    self.leave_rebuild(&error);
                    return Outcome::Unreadable;
                }
            };
            let expected = match old.peek().await {
                Ok(expected) => expected,
                Err(error) => {
                    self.leave_rebuild(&error);
                    return self.read_to_end(&mut new).await;
                }
            };
            if found == expected {
                if found.is_none() {
                    return Outcome::Read;
                }
                new.pop();
                old.pop();
                continue;
            }
            let what = difference(found, expected);
            let key = self.key_of(&self.head.snapshot.object.key);
            let version = self.head.snapshot.version;
            let finding = Finding::new(Kind::ContentDiffers, Role::Snapshot, key, what);
            self.found.add(finding.about(version, version));
            return self.read_to_end(&mut new).await;
        }
    }

    async fn read_to_end(&mut self, cursor: &mut Cursor<'_>) -> Outcome {
        loop {
            match cursor.peek().await {
                Ok(Some(_)) => cursor.entries.clear(),
                Ok(None) => return Outcome::Read,
                // Found again, and said, when the parts are read one by one.
                Err(_) => return Outcome::Unreadable,
            }
        }
    }

    fn leave_rebuild(&mut self, error: &StateError) {
        let key = Blamed::of_state(error).key.unwrap_or_else(|| self.head.history.head_key());
        let reason = self.gap_or(Reason::Trouble { key });
        self.parts.insert(Part::Rebuild, PartState::Partly(reason));
    }
}

/// The first entry that differs, without its value.
fn difference(found: Option<&Entry>, expected: Option<&Entry>) -> String {
    match (found, expected) {
        (Some(found), Some(expected)) if found.key == expected.key => {
            let key = shown(found.key.as_bytes());
            if found.version == expected.version {
                format!("the value of key {key} differs from what the changes wrote")
            } else {
                let (found, expected) = (found.version, expected.version);
                format!("key {key} is as of version {found}, and should be as of {expected}")
            }
        }
        (Some(found), Some(expected)) if expected.key < found.key => lacks(expected),
        (Some(found), _) => {
            let key = shown(found.key.as_bytes());
            format!("it has key {key}, which the changes do not lead to")
        }
        (None, Some(expected)) => lacks(expected),
        (None, None) => String::new(),
    }
}

fn lacks(entry: &Entry) -> String {
    format!("it lacks key {}, written at version {}", shown(entry.key.as_bytes()), entry.version)
}

fn shown(key: &Bytes) -> String {
    format!("\"{}\"", key.escape_ascii())
}
