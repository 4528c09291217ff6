//! Deleted ranges: disjoint intervals, each with the newest deletion of its
//! part.

use std::ops::Bound;

use bytes::Bytes;
use headwater_core::operation::{Key, KeyRange};
use headwater_core::version::StateVersion;
use imbl::OrdMap;

#[derive(Clone, Debug, PartialEq, Eq)]
struct Mask {
    /// Exclusive; `None` is no bound.
    end: Option<Bytes>,
    version: StateVersion,
}

/// By start. Adding one splits what it overlaps, so there are at most two more
/// intervals than before, and a look-up costs the same however many deletions
/// there were.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Masks(OrdMap<Bytes, Mask>);

impl Mask {
    fn reaches(&self, key: &[u8]) -> bool {
        self.end.as_ref().is_none_or(|end| *key < **end)
    }
}

impl Masks {
    /// The interval that begins last at or before `key`, if it reaches it.
    fn find(&self, key: &[u8]) -> Option<&Mask> {
        self.0.get_prev(key).map(|(_, mask)| mask).filter(|it| it.reaches(key))
    }

    /// When `key` was deleted with a range.
    pub(super) fn at(&self, key: &[u8]) -> Option<StateVersion> {
        self.find(key).map(|it| it.version)
    }

    /// Whether every key from `first` to `last` is hidden. Intervals that touch
    /// are followed from one to the next.
    pub(super) fn is_over(&self, first: &[u8], last: &[u8]) -> bool {
        let mut mask = self.find(first);
        while let Some(it) = mask {
            match &it.end {
                Some(end) if **end <= *last => mask = self.0.get(end),
                Some(_) | None => return true,
            }
        }
        false
    }

    /// Whether any key from `first` to `last`, both included, may be hidden.
    pub(super) fn is_any(&self, first: &[u8], last: &[u8]) -> bool {
        let within = (Bound::Excluded(first), Bound::Included(last));
        self.find(first).is_some() || self.0.range::<_, [u8]>(within).next().is_some()
    }

    /// The newest deletion in `range`, with the first key that it names.
    pub(super) fn newest(&self, range: &KeyRange) -> Option<(Key, StateVersion)> {
        let before = range.end().map_or(Bound::Unbounded, |it| Bound::Excluded(it.as_ref()));
        let from = self.find(range.start()).map(|it| (range.start(), it));
        let within = self.0.range::<_, [u8]>((Bound::Excluded(range.start().as_ref()), before));
        let mut newest = None;
        for (start, mask) in from.into_iter().chain(within) {
            if newest.as_ref().is_some_and(|(_, version)| mask.version <= *version) {
                continue;
            }
            // The empty string sorts before every key and is none.
            let start = if start.is_empty() { Bytes::from_static(b"\0") } else { start.clone() };
            let is_key = mask.reaches(&start) && range.contains(&start);
            if let Some(key) = Key::new(start).ok().filter(|_| is_key) {
                newest = Some((key, mask.version));
            }
        }
        newest
    }

    /// Records that `range` was deleted at `version`, not older than any here.
    pub(super) fn add(&mut self, version: StateVersion, range: &KeyRange) {
        let (mut start, mut end) = (range.start().clone(), range.end().cloned());
        let overlapped = self.overlapped(range);
        for (old_start, old) in overlapped {
            self.0.remove(&old_start);
            // What sticks out on the left stays as it was, and so on the right.
            // Of the same version it becomes part of the new interval, so that
            // a batch of deletions side by side makes one.
            let is_same = old.version == version;
            if old_start < start {
                if is_same {
                    start = old_start;
                } else {
                    let rest = Mask { end: Some(start.clone()), version: old.version };
                    self.0.insert(old_start, rest);
                }
            }
            let sticks_out = end.as_ref().filter(|end| old.reaches(end)).cloned();
            if let Some(from) = sticks_out {
                if is_same {
                    end = old.end;
                } else {
                    self.0.insert(from, old);
                }
            }
        }
        self.0.insert(start, Mask { end, version });
    }

    /// Intervals that share a key with `range` or touch it, in order.
    fn overlapped(&self, range: &KeyRange) -> Vec<(Bytes, Mask)> {
        let before = self.0.get_prev(range.start());
        let before = before.filter(|(_, it)| it.end.as_ref().is_none_or(|it| range.start() <= it));
        let upto = range.end().map_or(Bound::Unbounded, |it| Bound::Included(it.as_ref()));
        let within = self.0.range::<_, [u8]>((Bound::Excluded(range.start().as_ref()), upto));
        before.into_iter().chain(within).map(|(start, it)| (start.clone(), it.clone())).collect()
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// The intervals deleted after `version`.
    pub(super) fn after(&self, version: StateVersion) -> Self {
        let kept = self.0.iter().filter(|(_, it)| version < it.version);
        Self(kept.map(|(start, it)| (start.clone(), it.clone())).collect())
    }
}
