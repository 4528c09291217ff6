//! A part of the key space, as maps and sorted slices take it.

use std::ops::{Bound, Range};

use headwater_core::operation::KeyRange;

/// Keys between two bounds. Unlike a [`KeyRange`] it can begin just after a key
/// of the greatest length.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Span<'a> {
    start: Bound<&'a [u8]>,
    end: Bound<&'a [u8]>,
}

impl<'a> Span<'a> {
    pub(crate) fn of(range: &'a KeyRange) -> Self {
        let end = range.end().map_or(Bound::Unbounded, |it| Bound::Excluded(it.as_ref()));
        Self { start: Bound::Included(range.start().as_ref()), end }
    }

    /// What lies after `key`, which is where a forward scan goes on.
    pub(crate) fn after(self, key: &'a [u8]) -> Self {
        if self.is_after(key) { self } else { Self { start: Bound::Excluded(key), ..self } }
    }

    /// What lies before `key`, which is where a backward scan goes on.
    pub(crate) fn before(self, key: &'a [u8]) -> Self {
        if self.is_before(key) { self } else { Self { end: Bound::Excluded(key), ..self } }
    }

    /// Whether the whole span lies after `key`.
    pub(crate) fn is_after(&self, key: &[u8]) -> bool {
        match self.start {
            Bound::Included(start) => key < start,
            Bound::Excluded(start) => key <= start,
            Bound::Unbounded => false,
        }
    }

    /// Whether the whole span lies before `key`.
    pub(crate) fn is_before(&self, key: &[u8]) -> bool {
        match self.end {
            Bound::Included(end) => end < key,
            Bound::Excluded(end) => end <= key,
            Bound::Unbounded => false,
        }
    }

    /// Whether no key can be in it. Maps refuse bounds that cross.
    pub(crate) fn is_empty(&self) -> bool {
        match self.start {
            Bound::Included(start) | Bound::Excluded(start) => self.is_before(start),
            Bound::Unbounded => false,
        }
    }

    pub(crate) fn bounds(self) -> (Bound<&'a [u8]>, Bound<&'a [u8]>) {
        (self.start, self.end)
    }

    /// Where the part of `sorted` is that is in the span.
    pub(crate) fn places_of<T>(
        &self,
        sorted: &[T],
        first: impl Fn(&T) -> &[u8],
        last: impl Fn(&T) -> &[u8],
    ) -> Range<usize> {
        let from = sorted.partition_point(|it| self.is_after(last(it)));
        let to = sorted.partition_point(|it| !self.is_before(first(it)));
        // Between two neighbours the two numbers are equal; in an empty span
        // they may cross.
        from..to.max(from)
    }

    /// The part of `sorted` that is in the span.
    pub(crate) fn part_of<'t, T>(
        &self,
        sorted: &'t [T],
        first: impl Fn(&T) -> &[u8],
        last: impl Fn(&T) -> &[u8],
    ) -> &'t [T] {
        sorted.get(self.places_of(sorted, first, last)).unwrap_or_default()
    }
}
