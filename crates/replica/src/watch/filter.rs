//! Which keys a watch is about.

use bytes::Bytes;
use headwater_core::operation::KeyRange;

/// A set of keys, as ranges that are disjoint and in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyFilter(Vec<KeyRange>);

impl KeyFilter {
    /// Most ranges that a filter is made of. Each change is compared with all.
    pub const RANGES_MAX: usize = 64;

    /// Every key.
    pub fn everything() -> Self {
        Self(vec![KeyRange::everything()])
    }

    /// The keys of any of these ranges; of none, every key. `None` where there
    /// are more than [`Self::RANGES_MAX`].
    pub fn of(mut ranges: Vec<KeyRange>) -> Option<Self> {
        if ranges.is_empty() {
            return Some(Self::everything());
        }
        if Self::RANGES_MAX < ranges.len() {
            return None;
        }
        ranges.sort();
        let mut merged: Vec<KeyRange> = Vec::with_capacity(ranges.len());
        for range in ranges {
            match merged.last_mut() {
                Some(last) if last.end().is_none_or(|it| range.start() <= it) => {
                    *last = union(last, &range);
                }
                Some(_) | None => merged.push(range),
            }
        }
        Some(Self(merged))
    }

    /// The ranges, disjoint and in order.
    pub fn ranges(&self) -> &[KeyRange] {
        &self.0
    }

    /// Whether the key is one of them.
    pub fn takes(&self, key: &[u8]) -> bool {
        let at = self.0.partition_point(|it| it.end().is_some_and(|end| **end <= *key));
        self.0.get(at).is_some_and(|it| it.contains(key))
    }

    /// The parts of `range` that it takes in.
    pub fn clip(&self, range: &KeyRange) -> impl Iterator<Item = KeyRange> {
        self.0.iter().filter_map(|it| intersection(it, range))
    }
}

/// Every key that begins with `prefix`.
///
/// # Errors
///
/// As for [`KeyRange::new`]: a prefix longer than a bound may be.
pub fn prefix_range(prefix: Bytes) -> Result<KeyRange, headwater_core::operation::KeyRangeError> {
    // The first key after them: the prefix with its last byte one up, where that
    // can go up.
    let last = prefix.iter().rposition(|it| *it != u8::MAX);
    let end = last.map(|last| {
        let mut end = prefix[..=last].to_vec();
        end[last] += 1;
        Bytes::from(end)
    });
    KeyRange::new(prefix, end)
}

/// Of two that overlap or touch.
fn union(a: &KeyRange, b: &KeyRange) -> KeyRange {
    let end = match (a.end(), b.end()) {
        (Some(a), Some(b)) => Some(a.max(b).clone()),
        (None, _) | (_, None) => None,
    };
    // The bounds are bounds of ranges, so only an inverted one could be refused.
    KeyRange::new(a.start().min(b.start()).clone(), end).unwrap_or_else(|_| a.clone())
}

fn intersection(a: &KeyRange, b: &KeyRange) -> Option<KeyRange> {
    let start = a.start().max(b.start()).clone();
    let end = match (a.end(), b.end()) {
        (Some(a), Some(b)) => Some(a.min(b).clone()),
        (one, other) => one.or(other).cloned(),
    };
    KeyRange::new(start, end).ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn range(start: &str, end: &str) -> KeyRange {
        let end = (!end.is_empty()).then(|| Bytes::copy_from_slice(end.as_bytes()));
        KeyRange::new(Bytes::copy_from_slice(start.as_bytes()), end).unwrap()
    }

    #[test]
    fn overlapping_and_touching_ranges_are_one() {
        let filter =
            KeyFilter::of(vec![range("m", "p"), range("a", "c"), range("c", "d"), range("b", "c")]);

        assert_eq!(filter.unwrap().ranges(), [range("a", "d"), range("m", "p")]);
        let open = KeyFilter::of(vec![range("b", "c"), range("a", ""), range("x", "y")]).unwrap();
        assert_eq!(open.ranges(), [range("a", "")]);
        assert_eq!(KeyFilter::of(Vec::new()), Some(KeyFilter::everything()));
        assert_eq!(KeyFilter::of(vec![range("a", "b"); 65]), None);
    }

    #[test]
    fn a_prefix_is_the_range_of_its_keys() {
        let of = |prefix: &[u8]| prefix_range(Bytes::copy_from_slice(prefix)).unwrap();
        assert_eq!(of(b"ab"), range("ab", "ac"));
        assert_eq!(of(b""), KeyRange::everything());
        assert_eq!(of(&[0xff, 0xff]).end(), None);
        assert_eq!(of(&[b'a', 0xff]).end(), Some(&Bytes::from_static(b"b")));
        assert!(prefix_range(vec![1; KeyRange::BOUND_LEN_BYTES_MAX + 1].into()).is_err());
    }

    fn any_range() -> impl Strategy<Value = KeyRange> {
        ("[a-d]{0,2}", "[a-d]{0,2}").prop_filter_map("an order", |(start, end)| {
            let end = (!end.is_empty()).then(|| Bytes::from(end));
            KeyRange::new(start.into(), end).ok()
        })
    }

    proptest! {
        #[test]
        fn a_filter_takes_what_one_of_its_ranges_has_and_clips_to_that(
            ranges in prop::collection::vec(any_range(), 1..6),
            whole in any_range(),
            key in "[a-d]{1,3}",
        ) {
            let filter = KeyFilter::of(ranges.clone()).unwrap();
            let is_in = ranges.iter().any(|it| it.contains(key.as_bytes()));
            prop_assert_eq!(filter.takes(key.as_bytes()), is_in);

            let n = filter.clip(&whole).filter(|it| it.contains(key.as_bytes())).count();
            prop_assert_eq!(n, usize::from(is_in && whole.contains(key.as_bytes())));
        }
    }
}
