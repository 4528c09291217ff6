//! Pages of a snapshot's index in memory, and the chunks that they name.

use std::ops::{Deref, Range};
use std::sync::Arc;

use bytes::Bytes;
use headwater_core::format::snapshot::{ChunkRef, PageRef};
use headwater_core::format::{DecodeError, snapshot_page};
use headwater_core::id::HistoryName;
use headwater_core::operation::Key;
use headwater_core::version::StateVersion;

use crate::span::Span;

/// Chunks in order of keys. An index without pages is one, and may be empty.
///
/// Owners are as stored, seen from the history that the page lies below: two
/// histories may share the page, and each sees them from its own side.
#[derive(Debug, Default)]
pub(crate) struct Page {
    chunks: Vec<ChunkRef>,
}

/// Why bytes are not the page that an index describes.
#[derive(Debug)]
pub(crate) enum PageError {
    Decode(DecodeError),
    Contradicts(&'static str),
}

impl From<DecodeError> for PageError {
    fn from(error: DecodeError) -> Self {
        Self::Decode(error)
    }
}

impl Page {
    pub(crate) fn new(chunks: Vec<ChunkRef>) -> Self {
        Self { chunks }
    }

    /// Takes the bytes of a page object apart and compares them with what the
    /// index says about it.
    pub(crate) fn decode(bytes: Bytes, expected: &PageRef) -> Result<Self, PageError> {
        let chunks = snapshot_page::decode(bytes)?;
        if chunks.len() != expected.chunks as usize {
            return Err(PageError::Contradicts("count of chunks"));
        }
        let is_first = chunks.first().is_some_and(|it| it.first == expected.first);
        let is_last = chunks.last().is_some_and(|it| it.last == expected.last);
        if !is_first || !is_last {
            return Err(PageError::Contradicts("first and last key"));
        }
        if chunks.iter().map(|it| it.newest).max() != Some(expected.newest) {
            return Err(PageError::Contradicts("newest version"));
        }
        let owners = chunks.iter().filter_map(|it| it.owner.as_ref()).collect::<Vec<_>>();
        let is_named = owners.iter().all(|it| expected.names.contains(*it));
        let is_needed = expected.names.iter().all(|it| owners.contains(&it));
        if !is_named || !is_needed {
            return Err(PageError::Contradicts("owners"));
        }
        Ok(Self { chunks })
    }

    /// What it takes in memory, in bytes, about: keys are counted with the
    /// object's key, which is some 90 bytes of text.
    pub(crate) fn size_bytes(&self) -> usize {
        let keys = self.chunks.iter().map(|it| it.first.as_ref().len() + it.last.as_ref().len());
        size_of::<Self>() + keys.sum::<usize>() + self.chunks.len() * (size_of::<ChunkRef>() + 96)
    }
}

/// A page, at hand or still to be fetched.
#[derive(Clone, Copy, Debug)]
pub(crate) enum PagePlace<'a> {
    Here(&'a Arc<Page>),
    There(&'a PageRef),
}

impl<'a> PagePlace<'a> {
    /// The first and the last key. An index of one empty page has no place.
    pub(crate) fn bounds(self) -> Option<(&'a Key, &'a Key)> {
        match self {
            Self::Here(page) => Some((&page.chunks.first()?.first, &page.chunks.last()?.last)),
            Self::There(page) => Some((&page.first, &page.last)),
        }
    }

    pub(crate) fn newest(self) -> StateVersion {
        match self {
            Self::Here(page) => {
                page.chunks.iter().map(|it| it.newest).max().unwrap_or(StateVersion::ZERO)
            }
            Self::There(page) => page.newest,
        }
    }
}

/// A page at hand, seen from one history.
#[derive(Clone, Debug)]
pub(crate) struct OpenPage {
    pub(crate) page: Arc<Page>,
    /// The history that it lies below, where that is another one.
    pub(crate) owner: Option<Arc<HistoryName>>,
}

impl OpenPage {
    pub(crate) fn len(&self) -> usize {
        self.page.chunks.len()
    }

    /// The chunk at a place that there is.
    pub(crate) fn chunk(&self, at: usize) -> Option<ChunkAt> {
        self.page.chunks.get(at)?;
        Some(ChunkAt { page: Arc::clone(&self.page), at, page_owner: self.owner.clone() })
    }

    pub(crate) fn chunks(&self) -> impl DoubleEndedIterator<Item = ChunkAt> + Send {
        (0..self.len()).filter_map(|at| self.chunk(at))
    }

    /// The places of the chunks that may have a key in `span`.
    pub(crate) fn places_in(&self, span: Span<'_>) -> Range<usize> {
        let chunks = &self.page.chunks;
        span.places_of(chunks, |it| it.first.as_ref(), |it| it.last.as_ref())
    }

    /// The chunk that holds `key`, if the page has it.
    pub(crate) fn chunk_with(&self, key: &Key) -> Option<ChunkAt> {
        let at = self.page.chunks.partition_point(|it| it.last < *key);
        self.chunk(at).filter(|it| it.first <= *key)
    }
}

/// A chunk of a page: what the index says about it. Clones are cheap.
#[derive(Clone, Debug)]
pub(crate) struct ChunkAt {
    page: Arc<Page>,
    /// Within the page.
    at: usize,
    page_owner: Option<Arc<HistoryName>>,
}

impl Deref for ChunkAt {
    type Target = ChunkRef;

    #[expect(clippy::indexing_slicing, reason = "made only for a place that there is")]
    fn deref(&self) -> &ChunkRef {
        &self.page.chunks[self.at]
    }
}

impl ChunkAt {
    /// The history that it lies below, seen from the one that is read; `None`
    /// for that one.
    pub(crate) fn seen_owner(&self) -> Option<&Arc<HistoryName>> {
        self.owner.as_ref().or(self.page_owner.as_ref())
    }

    /// What the index says, with the owner seen from the history that is read.
    pub(crate) fn to_ref(&self) -> ChunkRef {
        ChunkRef { owner: self.seen_owner().cloned(), ..ChunkRef::clone(self) }
    }
}
