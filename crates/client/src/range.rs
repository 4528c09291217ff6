//! Ranges of keys.

use bytes::Bytes;
use headwater_proto::v1;

/// A range of keys, by byte order. A bound has up to 1,025 bytes, one more than
/// a key; the server refuses longer ones.
///
/// ```
/// use headwater_client::KeyRange;
///
/// let users = KeyRange::prefix("user/");
/// assert!(users.contains(b"user/7") && !users.contains(b"user0"));
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeyRange {
    /// Inclusive. Empty: from the first key.
    pub start: Bytes,
    /// Exclusive. Empty: no upper bound.
    pub end: Bytes,
}

impl KeyRange {
    /// Every key.
    pub fn all() -> Self {
        Self::default()
    }

    /// From `start`, inclusive, to `end`, exclusive. The server refuses a range
    /// whose end is not above its start.
    pub fn new(start: impl Into<Bytes>, end: impl Into<Bytes>) -> Self {
        Self { start: start.into(), end: end.into() }
    }

    /// From `start`, inclusive, to the last key.
    pub fn starting_at(start: impl Into<Bytes>) -> Self {
        Self { start: start.into(), end: Bytes::new() }
    }

    /// Every key that begins with `prefix`.
    pub fn prefix(prefix: impl Into<Bytes>) -> Self {
        let start = prefix.into();
        // The first key after them: the prefix with its last byte one up, where
        // that can go up.
        let end = start.iter().rposition(|&it| it != u8::MAX).map_or_else(Bytes::new, |last| {
            let mut end = start[..=last].to_vec();
            end[last] += 1;
            end.into()
        });
        Self { start, end }
    }

    /// Whether `key` is in the range.
    pub fn contains(&self, key: &[u8]) -> bool {
        self.start <= key && (self.end.is_empty() || self.end > key)
    }
}

impl From<KeyRange> for v1::KeyRange {
    fn from(range: KeyRange) -> Self {
        Self { start: range.start, end: range.end }
    }
}

/// The bound right after `key`: of 1,025 bytes for a longest key, which is why a
/// bound may be one byte longer than a key.
pub(crate) fn successor(key: &[u8]) -> Bytes {
    let mut next = Vec::with_capacity(key.len() + 1);
    next.extend_from_slice(key);
    next.push(0);
    next.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_ends_where_its_keys_end() {
        assert_eq!(KeyRange::prefix("ab").end, "ac");
        assert_eq!(KeyRange::prefix(vec![b'a', 0xff, 0xff]).end, "b");
        assert_eq!(KeyRange::prefix(vec![0xff]).end, "");
        assert_eq!(KeyRange::prefix(""), KeyRange::all());
    }
}
