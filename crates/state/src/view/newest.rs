//! The newest change of a range, for conflict checks.

use headwater_core::operation::{Key, KeyRange};
use headwater_core::version::StateVersion;

use super::View;
use crate::error::StateError;
use crate::page::{ChunkAt, PagePlace};
use crate::span::Span;

impl View {
    /// The newest change of any key in `range` after version `above`: its
    /// version, and one of the keys that have it. A deletion counts as far as
    /// it is on record ([`View::deletions_known_from`]); a deleted range counts
    /// as a change of every key in it, whether there was an entry or not.
    ///
    /// Reads nothing when the tail has a change in the range, or when `above` is
    /// at or after the snapshot; else up to three index pages and three chunks.
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
        let candidates = self.newest_candidates(range, above).await?;
        let (mut newest, mut floor) = (None, above);
        for chunk in candidates {
            if chunk.newest <= floor {
                break;
            }
            let read = self.base().fetch(&chunk).await?;
            for entry in read.range(Span::of(range)) {
                if floor < entry.version {
                    floor = entry.version;
                    newest = Some((entry.key.clone(), entry.version));
                }
            }
        }
        Ok(newest)
    }

    /// The chunks that may hold the newest change, the newest first.
    ///
    /// A part wholly inside the range is as new as the index says; of those only
    /// the newest can matter. At most two more stick out. That holds for pages,
    /// and then for the chunks of those pages.
    async fn newest_candidates(
        &self,
        range: &KeyRange,
        above: StateVersion,
    ) -> Result<Vec<ChunkAt>, StateError> {
        let is_whole = |first: &Key, last: &Key| {
            range.contains(first.as_ref()) && range.contains(last.as_ref())
        };
        let span = Span::of(range);
        let places = self.base().places_in(span);
        let (whole, partial): (Vec<PagePlace<'_>>, Vec<_>) = places
            .into_iter()
            .filter(|it| above < it.newest())
            .partition(|it| it.bounds().is_some_and(|(first, last)| is_whole(first, last)));
        let newest_page = whole.into_iter().max_by_key(|it| it.newest());

        let mut chunks = Vec::new();
        for place in partial.into_iter().chain(newest_page) {
            let page = self.base().page(place).await?;
            chunks.extend(page.places_in(span).filter_map(|at| page.chunk(at)));
        }
        let (whole, mut candidates): (Vec<ChunkAt>, Vec<_>) =
            chunks.into_iter().partition(|it| is_whole(&it.first, &it.last));
        candidates.extend(whole.into_iter().max_by_key(|it| it.newest));
        candidates.sort_by_key(|it| std::cmp::Reverse(it.newest));
        Ok(candidates)
    }
}
