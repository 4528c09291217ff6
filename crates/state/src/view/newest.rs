//! The newest change of a range, for conflict checks.

use headwater_core::format::snapshot::ChunkRef;
use headwater_core::operation::{Key, KeyRange};
use headwater_core::version::StateVersion;

use super::View;
use crate::error::StateError;
use crate::span::Span;

impl View {
    /// The newest change of any key in `range` after version `above`: its
    /// version, and one of the keys that have it. A deletion counts as far as
    /// it is on record ([`View::deletions_known_from`]); a deleted range counts
    /// as a change of every key in it, whether there was an entry or not.
    ///
    /// Reads no chunk when the tail has a change in the range, or when `above`
    /// is at or after the snapshot; else up to three.
    ///
    /// # Errors
    ///
    /// [`StateError`] when a chunk that matters cannot be read.
    pub async fn newest_change(
        &self,
        range: &KeyRange,
        above: StateVersion,
    ) -> Result<Option<(Key, StateVersion)>, StateError> {
        if self.version() <= above {
            return Ok(None);
        }
        // The tail is newer than every chunk, so its word is the last one; and
        // without it, nothing hides what the chunks say.
        if let Some((key, version)) = self.overlay().newest(range) {
            return Ok((above < version).then_some((key, version)));
        }
        if self.deletions_known_from() <= above {
            return Ok(None);
        }
        self.newest_in_chunks(range, above).await
    }

    async fn newest_in_chunks(
        &self,
        range: &KeyRange,
        above: StateVersion,
    ) -> Result<Option<(Key, StateVersion)>, StateError> {
        let chunks = self.base().chunks_in(Span::of(range));
        let is_whole =
            |it: &&ChunkRef| range.contains(it.first.as_ref()) && range.contains(it.last.as_ref());
        // A chunk wholly inside is as new as its index entry says; of those
        // only the newest can matter. At most two more stick out.
        let whole = chunks.iter().filter(is_whole).max_by_key(|it| it.newest);
        let mut candidates: Vec<&ChunkRef> =
            chunks.iter().filter(|it| !is_whole(it)).chain(whole).collect();
        candidates.sort_by_key(|it| std::cmp::Reverse(it.newest));

        let (mut newest, mut floor) = (None, above);
        for chunk in candidates {
            if chunk.newest <= floor {
                break;
            }
            let read = self.base().fetch(chunk).await?;
            for entry in read.range(Span::of(range)) {
                if floor < entry.version {
                    floor = entry.version;
                    newest = Some((entry.key.clone(), entry.version));
                }
            }
        }
        Ok(newest)
    }
}
