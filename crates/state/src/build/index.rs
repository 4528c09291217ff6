//! Cutting a run of chunks into index pages.
//!
//! ```text
//! few chunks:   index [c c c c c]
//! many:         index [p p p]
//!                      |  └ [c c c …]
//!                      └ [c c c …]
//! ```
//!
//! A page ends where the chunks themselves say so, as chunks end where their
//! entries say so: after a changed chunk the old ends of pages are soon found
//! again.

use std::collections::BTreeSet;

use headwater_core::format::snapshot::{ChunkRef, PageRef, Parts};
use headwater_core::format::snapshot_page;
use headwater_core::operation::Key;

use super::replaced::Replaced;
use super::target::{Target, Uploads, part_ref};
use crate::error::BuildError;
use crate::page::PagePlace;
use crate::view::Base;

/// How long pages get, in chunks. Part of "equal state, equal bytes", as
/// [`ChunkBytes`](super::ChunkBytes) is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PageChunks {
    /// No cut before.
    pub(crate) min: usize,
    /// About the average.
    pub(crate) target: usize,
    /// Always a cut at.
    pub(crate) max: usize,
    /// An index of more chunks has pages.
    pub(crate) one_level_max: usize,
}

impl PageChunks {
    /// A chunk takes about 110 bytes in an index with keys of 20 bytes. So an
    /// index without pages is read with 56 KiB, which is the state of 512 MiB;
    /// a page is 28 KiB on average, which one changed entry costs; and the top
    /// of the index of 1 TiB is 450 KiB.
    pub(crate) const STANDARD: Self = Self { min: 64, target: 256, max: 1_024, one_level_max: 512 };

    /// Whether a page of `count` chunks ends with the one whose last key this
    /// is.
    fn is_cut(self, count: usize, last: &Key) -> bool {
        self.max <= count || (self.min <= count && is_drawn(last, self.target - self.min))
    }
}

/// Draws by the key's hash, with a chance of one in `spread`. By other bytes of
/// it than chunks are cut by: at the end of a chunk those are small numbers.
fn is_drawn(key: &Key, spread: usize) -> bool {
    let hash = blake3::hash(key.as_ref());
    let [_, _, _, _, a, b, c, d, ..] = *hash.as_bytes();
    let draw = u64::from(u32::from_le_bytes([a, b, c, d]));
    draw * (spread as u64) < 1 << 32
}

/// Takes chunks and whole pages in order, gives the parts of an index.
#[derive(Debug)]
pub(super) struct IndexWriter {
    sizes: PageChunks,
    /// Chunks since the last cut.
    page: Vec<ChunkRef>,
    parts: Vec<Part>,
    n_chunks: usize,
}

#[derive(Debug)]
enum Part {
    /// A page that is written once there are enough chunks for it.
    Held(Vec<ChunkRef>),
    /// Written, or taken over with an owner seen from the new snapshot.
    Page(PageRef),
}

impl IndexWriter {
    pub(super) fn new(sizes: PageChunks) -> Self {
        Self { sizes, page: Vec::new(), parts: Vec::new(), n_chunks: 0 }
    }

    pub(super) fn is_at_cut(&self) -> bool {
        self.page.is_empty()
    }

    pub(super) async fn push(
        &mut self,
        chunk: ChunkRef,
        target: &Target,
        replaced: &mut Replaced,
        uploads: &mut Uploads,
    ) -> Result<(), BuildError> {
        self.n_chunks += 1;
        self.page.push(chunk);
        let last = self.page.last().map(|it| &it.last);
        if last.is_some_and(|it| self.sizes.is_cut(self.page.len(), it)) {
            self.parts.push(Part::Held(std::mem::take(&mut self.page)));
        }
        self.write_held(target, replaced, uploads).await
    }

    /// Takes a page over; only at a cut.
    pub(super) fn push_page(&mut self, page: PageRef) {
        debug_assert!(self.is_at_cut(), "pages follow each other");
        self.n_chunks += page.chunks as usize;
        self.parts.push(Part::Page(page));
    }

    /// Writes pages that are held, once it is certain that there will be pages.
    /// Until then few chunks are held.
    async fn write_held(
        &mut self,
        target: &Target,
        replaced: &mut Replaced,
        uploads: &mut Uploads,
    ) -> Result<(), BuildError> {
        if self.n_chunks <= self.sizes.one_level_max {
            return Ok(());
        }
        for part in &mut self.parts {
            if let Part::Held(chunks) = part {
                let chunks = std::mem::take(chunks);
                *part = Part::Page(write_page(&chunks, target, replaced, uploads).await?);
            }
        }
        Ok(())
    }

    /// The parts of the whole index. `base` is what pages were taken over from.
    pub(super) async fn finish(
        mut self,
        base: &Base,
        target: &Target,
        replaced: &mut Replaced,
        uploads: &mut Uploads,
    ) -> Result<Parts, BuildError> {
        if !self.page.is_empty() {
            self.parts.push(Part::Held(std::mem::take(&mut self.page)));
        }
        self.write_held(target, replaced, uploads).await?;
        let mut chunks = Vec::new();
        let mut pages = Vec::new();
        let is_in_pages = self.sizes.one_level_max < self.n_chunks;
        for part in self.parts {
            match part {
                Part::Page(page) if is_in_pages => pages.push(page),
                Part::Held(held) => chunks.extend(held),
                // There were pages and there are to be none: few are left.
                Part::Page(page) => {
                    replaced.add_page(target, &page);
                    let open = base.page_once(PagePlace::There(&page)).await?;
                    chunks.extend(open.chunks().map(|it| it.to_ref()));
                }
            }
        }
        Ok(if is_in_pages { Parts::Pages(pages) } else { Parts::Chunks(chunks) })
    }
}

async fn write_page(
    chunks: &[ChunkRef],
    target: &Target,
    replaced: &mut Replaced,
    uploads: &mut Uploads,
) -> Result<PageRef, BuildError> {
    let (Some(first), Some(last)) = (chunks.first(), chunks.last()) else {
        unreachable!("a page ends with a chunk")
    };
    let bytes = snapshot_page::encode(chunks);
    let names: BTreeSet<_> = chunks.iter().filter_map(|it| it.owner.clone()).collect();
    let mut page = PageRef {
        object: part_ref(target, &bytes),
        owner: None,
        first: first.first.clone(),
        last: last.last.clone(),
        chunks: u32::try_from(chunks.len()).unwrap_or(u32::MAX),
        newest: chunks.iter().map(|it| it.newest).max().unwrap_or_default(),
        names,
    };
    if !replaced.take_back_page(&mut page) {
        uploads.begin(target, &page.object, bytes.into()).await?;
    }
    Ok(page)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_keep_their_bounds_and_their_average() {
        let sizes = PageChunks::STANDARD;
        let (mut counts, mut count) = (Vec::new(), 0);
        for number in 0..100_000 {
            let key = Key::new(format!("key-{number:08}")).unwrap();
            count += 1;
            if sizes.is_cut(count, &key) {
                counts.push(std::mem::take(&mut count));
            }
        }
        let average = counts.iter().sum::<usize>() / counts.len();

        assert!(counts.iter().all(|it| (sizes.min..=sizes.max).contains(it)), "{counts:?}");
        assert!((200..310).contains(&average), "{average}");
    }
}
