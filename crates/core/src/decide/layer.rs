//! Writes on top of a state that is not at hand.

use alloc::collections::BTreeMap;
use core::ops::Bound;

use bytes::Bytes;

use crate::change::Resolved;
use crate::operation::{Key, KeyRange};

/// Keys written or deleted, over ranges deleted. A key in `keys` is newer than
/// any range that contains it.
#[derive(Clone, Debug, Default)]
pub(super) struct Layer {
    keys: BTreeMap<Key, Option<Bytes>>,
    /// Disjoint, by start; an end of `None` is no bound. Merged as they come,
    /// so that a look-up costs the same however many there were.
    ranges: BTreeMap<Bytes, Option<Bytes>>,
}

/// What a layer says about one key.
#[derive(Clone, Copy, Debug)]
pub(super) enum Written<'a> {
    /// It does not touch the key.
    Nothing,
    /// The key is gone.
    Deleted,
    /// The key has this value.
    Value(&'a Bytes),
}

impl Layer {
    pub(super) fn get(&self, key: &Key) -> Written<'_> {
        if let Some(value) = self.keys.get(key) {
            return value.as_ref().map_or(Written::Deleted, Written::Value);
        }
        let upto = (Bound::Unbounded, Bound::Included(key.as_bytes().as_ref()));
        match self.ranges.range::<[u8], _>(upto).next_back() {
            Some((_, end)) if end.as_ref().is_none_or(|it| key.as_bytes() < it) => Written::Deleted,
            Some(_) | None => Written::Nothing,
        }
    }

    pub(super) fn apply(&mut self, mutation: &Resolved) {
        match mutation {
            Resolved::Put(key, value) => {
                self.keys.insert(key.clone(), Some(value.clone()));
            }
            Resolved::Delete(key) => {
                self.keys.insert(key.clone(), None);
            }
            Resolved::DeleteRange(range) => {
                self.delete_range(range.start().clone(), range.end().cloned());
            }
        }
    }

    fn delete_range(&mut self, mut start: Bytes, mut end: Option<Bytes>) {
        for (_, value) in self.keys.range_mut::<[u8], _>(bounds(&start, end.as_ref())) {
            *value = None;
        }
        // Swallow every range that overlaps or touches, from the right.
        loop {
            let upto = end.as_ref().map_or(Bound::Unbounded, |it| Bound::Included(it.as_ref()));
            let Some((found, found_end)) =
                self.ranges.range::<[u8], _>((Bound::Unbounded, upto)).next_back()
            else {
                break;
            };
            if found_end.as_ref().is_some_and(|it| *it < start) {
                break;
            }
            let (found, found_end) = (found.clone(), found_end.clone());
            self.ranges.remove(&found);
            start = start.min(found);
            end = match (end, found_end) {
                (Some(a), Some(b)) => Some(a.max(b)),
                (None, _) | (_, None) => None,
            };
        }
        self.ranges.insert(start, end);
    }

    /// Something in `range` that this layer writes or deletes.
    pub(super) fn touches(&self, range: &KeyRange) -> Option<Bytes> {
        let bounds = bounds(range.start(), range.end());
        if let Some((key, _)) = self.keys.range::<[u8], _>(bounds).next() {
            return Some(key.as_bytes().clone());
        }
        let before = range.end().map_or(Bound::Unbounded, |it| Bound::Excluded(it.as_ref()));
        let (start, end) = self.ranges.range::<[u8], _>((Bound::Unbounded, before)).next_back()?;
        let is_over = end.as_ref().is_none_or(|it| range.start() < it);
        is_over.then(|| start.max(range.start()).clone())
    }
}

fn bounds<'a>(start: &'a Bytes, end: Option<&'a Bytes>) -> (Bound<&'a [u8]>, Bound<&'a [u8]>) {
    let end = end.map_or(Bound::Unbounded, |it| Bound::Excluded(it.as_ref()));
    (Bound::Included(start.as_ref()), end)
}
