//! Entries of a range, in order, a page at a time.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use futures::future::BoxFuture;
use futures::stream::FuturesOrdered;
use futures::{FutureExt as _, StreamExt as _};
use headwater_core::operation::{Key, KeyRange};
use headwater_core::version::StateVersion;

use super::{Entry, View};
use crate::chunk::Chunk;
use crate::error::StateError;
use crate::overlay::Written;
use crate::page::{ChunkAt, OpenPage, PagePlace};
use crate::span::Span;

/// Which entries a page is to hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scan {
    /// Where to look.
    pub range: KeyRange,
    /// The key to go on after: [`Page::next`] of the page before.
    pub after: Option<Key>,
    /// From the last key to the first.
    pub reverse: bool,
    /// Leave values out.
    pub keys_only: bool,
    /// Most entries in the page; at least 1 is taken.
    pub entries_max: usize,
    /// Most bytes of keys and values in the page. The first entry is returned
    /// whatever it takes.
    pub bytes_max: usize,
}

/// A run of entries, without gaps.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Page {
    /// In the order asked for.
    pub entries: Vec<Entry>,
    /// Where the next page goes on; `None` when the range has no more. Seldom
    /// the next page is empty: telling would take another fetch.
    pub next: Option<Key>,
}

/// How many chunks are fetched ahead of the one that is being read, when the
/// page is going to need them.
const AHEAD_MAX: usize = 4;

impl View {
    /// One page of the entries in a range.
    ///
    /// In memory: the page, and up to four chunks. A chunk is fetched when the
    /// page gets to it.
    ///
    /// # Errors
    ///
    /// [`StateError`] when a chunk that the page needs cannot be read.
    pub async fn scan(&self, scan: &Scan) -> Result<Page, StateError> {
        let rest = scan.rest();
        if rest.is_empty() {
            return Ok(Page::default());
        }
        let is_ahead = |key: &Key, of: &Key| if scan.reverse { of < key } else { key < of };
        let mut written = ordered(self.overlay().range(rest), scan.reverse).peekable();
        let mut chunks = Ahead::new(self, rest, scan.reverse);
        let mut page = Filling::new(scan);

        while let Some(chunk) = chunks.peek(&page).await? {
            // What the tail has before the chunk may fill the page without it.
            let edge = if scan.reverse { &chunk.last } else { &chunk.first };
            while let Some((key, it)) = written.next_if(|(key, _)| is_ahead(key, edge)) {
                if !page.push_written(key, it) {
                    return Ok(page.cut());
                }
            }
            if page.is_full() {
                return Ok(page.cut());
            }
            let Some(chunk) = chunks.next().await else { break };
            let chunk = chunk?;
            for entry in ordered(chunk.range(rest).iter(), scan.reverse) {
                while let Some((key, it)) = written.next_if(|(key, _)| is_ahead(key, &entry.key)) {
                    if !page.push_written(key, it) {
                        return Ok(page.cut());
                    }
                }
                let is_overwritten = written.peek().is_some_and(|(key, _)| **key == entry.key);
                if is_overwritten || self.overlay().is_masked(entry.key.as_ref()) {
                    continue;
                }
                if !page.push(&entry.key, &entry.value, entry.version) {
                    return Ok(page.cut());
                }
            }
        }
        for (key, it) in written {
            if !page.push_written(key, it) {
                return Ok(page.cut());
            }
        }
        Ok(page.page)
    }
}

impl Scan {
    /// What is left of the range.
    fn rest(&self) -> Span<'_> {
        let span = Span::of(&self.range);
        match &self.after {
            None => span,
            Some(key) if self.reverse => span.before(key.as_ref()),
            Some(key) => span.after(key.as_ref()),
        }
    }
}

/// One allocation a scan, so that the merge is written once for both ways.
fn ordered<'a, I: DoubleEndedIterator + Send + 'a>(
    items: I,
    is_reverse: bool,
) -> Box<dyn Iterator<Item = I::Item> + Send + 'a> {
    if is_reverse { Box::new(items.rev()) } else { Box::new(items) }
}

/// A page in the making.
struct Filling {
    page: Page,
    size_bytes: usize,
    is_keys_only: bool,
    entries_max: usize,
    bytes_max: usize,
}

impl Filling {
    fn new(scan: &Scan) -> Self {
        Self {
            page: Page::default(),
            size_bytes: 0,
            is_keys_only: scan.keys_only,
            entries_max: scan.entries_max.max(1),
            bytes_max: scan.bytes_max,
        }
    }

    fn is_full(&self) -> bool {
        !self.page.entries.is_empty() && !self.has_room_after(0, 0)
    }

    /// Whether more would be wanted after so many entries and bytes more.
    fn has_room_after(&self, entries: usize, bytes: usize) -> bool {
        self.page.entries.len() + entries < self.entries_max
            && self.size_bytes + bytes < self.bytes_max
    }

    /// Adds an entry; `false` when it belongs to the next page.
    #[must_use]
    fn push(&mut self, key: &Key, value: &Bytes, version: StateVersion) -> bool {
        let value = if self.is_keys_only { Bytes::new() } else { value.clone() };
        let size_bytes = self.size_bytes + key.as_bytes().len() + value.len();
        let is_over = self.entries_max <= self.page.entries.len() || self.bytes_max < size_bytes;
        if is_over && !self.page.entries.is_empty() {
            return false;
        }
        self.size_bytes = size_bytes;
        self.page.entries.push(Entry { key: key.clone(), value, version });
        true
    }

    /// As [`Filling::push`]; a deletion is nothing to add.
    #[must_use]
    fn push_written(&mut self, key: &Key, written: &Written) -> bool {
        written.value.as_ref().is_none_or(|value| self.push(key, value, written.version))
    }

    /// The page, of which something is left.
    fn cut(mut self) -> Page {
        self.page.next = self.page.entries.last().map(|it| it.key.clone());
        self.page
    }
}

/// Chunks of a scan, in its order, fetched a few at a time.
struct Ahead<'a> {
    view: &'a View,
    span: Span<'a>,
    is_reverse: bool,
    places: Box<dyn Iterator<Item = PagePlace<'a>> + Send + 'a>,
    /// What is left of the page that was opened last.
    rest: Box<dyn Iterator<Item = ChunkAt> + Send + 'a>,
    started: VecDeque<ChunkAt>,
    fetches: FuturesOrdered<BoxFuture<'a, Result<Arc<Chunk>, StateError>>>,
}

impl<'a> Ahead<'a> {
    fn new(view: &'a View, span: Span<'a>, is_reverse: bool) -> Self {
        Self {
            view,
            span,
            is_reverse,
            places: ordered(view.base().places_in(span).into_iter(), is_reverse),
            rest: Box::new(std::iter::empty()),
            started: VecDeque::new(),
            fetches: FuturesOrdered::new(),
        }
    }

    /// The next chunk. Starts no fetch of one: what is queued here begins with
    /// [`Ahead::next`].
    async fn peek(&mut self, page: &Filling) -> Result<Option<ChunkAt>, StateError> {
        let (mut entries, mut bytes) = (0, 0);
        for chunk in &self.started {
            entries += chunk.count as usize;
            bytes += chunk.block_len as usize;
        }
        while self.started.is_empty()
            || (self.started.len() < AHEAD_MAX && page.has_room_after(entries, bytes))
        {
            // A chunk that is hidden whole is not worth a fetch.
            let view = self.view;
            let is_seen = |it: &ChunkAt| !view.is_hidden(&it.first, &it.last);
            let Some(chunk) = self.rest.by_ref().find(is_seen) else {
                // The next page is waited for once there is nothing else to do.
                if self.started.is_empty() && self.open_next_page().await? {
                    continue;
                }
                break;
            };
            entries += chunk.count as usize;
            bytes += chunk.block_len as usize;
            let (base, fetched) = (view.base(), chunk.clone());
            self.started.push_back(chunk);
            self.fetches.push_back(async move { base.fetch(&fetched).await }.boxed());
        }
        Ok(self.started.front().cloned())
    }

    /// Whether there was one.
    async fn open_next_page(&mut self) -> Result<bool, StateError> {
        let view = self.view;
        let is_seen = |it: &PagePlace<'_>| {
            it.bounds().is_some_and(|(first, last)| !view.is_hidden(first, last))
        };
        let Some(place) = self.places.by_ref().find(is_seen) else { return Ok(false) };
        let page: OpenPage = view.base().page(place).await?;
        let places = page.places_in(self.span);
        let chunks = places.filter_map(move |at| page.chunk(at));
        self.rest = ordered(chunks, self.is_reverse);
        Ok(true)
    }

    async fn next(&mut self) -> Option<Result<Arc<Chunk>, StateError>> {
        self.started.pop_front();
        self.fetches.next().await
    }
}

impl View {
    /// Whether deletions of ranges hide every key from `first` to `last`.
    fn is_hidden(&self, first: &Key, last: &Key) -> bool {
        self.overlay().is_all_masked(first.as_ref(), last.as_ref())
    }
}
