//! Tags that failed as the condition of a replacement.

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

use headwater_core::id::Tag;

/// Tags that are remembered. One history has one at a time.
const TAGS_MAX: usize = 1_000;

/// Tags of which no conditional read is made, since a replacement has shown them
/// to be old.
///
/// A store may compare reads by another tag than writes: GCS has the `ETag`
/// there and the generation here, and an object that was rewritten with equal
/// bytes (another storage class, another key of encryption) keeps the first and
/// loses the second. A writer that was told "unchanged" would go on with a
/// generation that is gone, and fail for ever. So after a mismatch the head is
/// read whole. Where tags are what they should be it would have come anyway.
#[derive(Debug, Default)]
pub(super) struct Mismatched(Mutex<BTreeSet<(String, String)>>);

impl Mismatched {
    pub(super) fn note(&self, key: &str, tag: &Tag) {
        let mut tags = self.tags();
        if TAGS_MAX <= tags.len() {
            // Costs those that are forgotten one more mismatch.
            tags.clear();
        }
        tags.insert(entry(key, tag));
    }

    /// Whether the tag failed since it was last asked about.
    pub(super) fn take(&self, key: &str, tag: &Tag) -> bool {
        let mut tags = self.tags();
        !tags.is_empty() && tags.remove(&entry(key, tag))
    }

    fn tags(&self) -> MutexGuard<'_, BTreeSet<(String, String)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn entry(key: &str, tag: &Tag) -> (String, String) {
    let parts = [tag.e_tag(), tag.version()].map(Option::unwrap_or_default);
    (key.to_owned(), parts.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_that_failed_is_named_once_and_the_memory_is_bounded() {
        let mismatched = Mismatched::default();
        let tag = Tag::new("\"1\"");
        assert!(!mismatched.take("a", &tag));
        mismatched.note("a", &tag);
        assert!(!mismatched.take("b", &tag) && mismatched.take("a", &tag));
        assert!(!mismatched.take("a", &tag));
        for n in 0..=TAGS_MAX {
            mismatched.note(&n.to_string(), &tag);
        }
        assert!(mismatched.tags().len() <= TAGS_MAX);
    }
}
