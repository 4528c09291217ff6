//! Where a scan goes on.
//!
//! ```text
//! format | history id (16) | scan (16) | version (8) | key | check (8)
//! ```
//!
//! A token is not a secret and grants nothing: it is bound to one scan of one
//! history so that a mistake is refused, and carries a check so that damage is.

use bytes::{BufMut as _, Bytes};
use headwater_core::hash::ContentHash;
use headwater_core::id::{HistoryId, HistoryName};
use headwater_core::operation::{Key, KeyRange};
use headwater_core::version::StateVersion;

const FORMAT: u8 = 1;
const SCAN_BYTES: usize = 16;
const CHECK_BYTES: usize = 8;
const FIXED_BYTES: usize = 1 + 16 + SCAN_BYTES + 8;

/// The position of a scan between two pages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Token {
    pub(super) history_id: HistoryId,
    pub(super) scan: ScanId,
    pub(super) version: StateVersion,
    pub(super) after: Key,
}

/// Tells one scan from another: everything that its pages have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ScanId([u8; SCAN_BYTES]);

impl ScanId {
    pub(super) fn of(
        history: &HistoryName,
        range: &KeyRange,
        reverse: bool,
        keys_only: bool,
    ) -> Self {
        let mut bytes = Vec::new();
        let end = range.end().map_or(&[][..], |it| it);
        // Lengths first, so that no two scans have the same bytes.
        for part in [history.as_str().as_bytes(), range.start(), end] {
            bytes.put_u64(part.len() as u64);
            bytes.extend_from_slice(part);
        }
        bytes.extend_from_slice(&[reverse.into(), keys_only.into()]);
        Self(first_of_hash(&bytes))
    }
}

impl Token {
    pub(super) fn encode(&self) -> Bytes {
        let key = self.after.as_bytes();
        let mut bytes = Vec::with_capacity(FIXED_BYTES + key.len() + CHECK_BYTES);
        bytes.put_u8(FORMAT);
        bytes.extend_from_slice(self.history_id.as_bytes());
        bytes.extend_from_slice(&self.scan.0);
        bytes.put_u64(self.version.get());
        bytes.extend_from_slice(key);
        let check: [u8; CHECK_BYTES] = first_of_hash(&bytes);
        bytes.extend_from_slice(&check);
        bytes.into()
    }

    /// Reads a token back; `None` for anything that [`Token::encode`] did not
    /// write.
    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let (fields, check) = bytes.split_last_chunk::<CHECK_BYTES>()?;
        if *check != first_of_hash(fields) {
            return None;
        }
        let (format, rest) = fields.split_first()?;
        let (history_id, rest) = rest.split_first_chunk()?;
        let (scan, rest) = rest.split_first_chunk()?;
        let (version, key) = rest.split_first_chunk()?;
        if *format != FORMAT {
            return None;
        }
        Some(Self {
            history_id: HistoryId::from_bytes(*history_id),
            scan: ScanId(*scan),
            version: StateVersion::new(u64::from_be_bytes(*version)),
            after: Key::new(Bytes::copy_from_slice(key)).ok()?,
        })
    }
}

fn first_of_hash<const N: usize>(bytes: &[u8]) -> [u8; N] {
    let hash = ContentHash::of(bytes);
    // Never more than the 32 bytes that a hash has.
    hash.as_bytes().first_chunk().copied().unwrap_or([0; N])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token() -> Token {
        let history = HistoryName::parse("a/b").unwrap();
        Token {
            history_id: HistoryId::from_bytes([7; 16]),
            scan: ScanId::of(&history, &KeyRange::everything(), false, true),
            version: StateVersion::new(300),
            after: Key::new("key").unwrap(),
        }
    }

    #[test]
    fn a_token_comes_back_as_it_was() {
        assert_eq!(Token::decode(&token().encode()), Some(token()));
    }

    #[test]
    fn a_token_with_any_bit_changed_or_cut_is_none() {
        let bytes = token().encode();
        for at in 0..bytes.len() {
            let mut bad = bytes.to_vec();
            bad[at] ^= 1;
            assert_eq!(Token::decode(&bad), None, "byte {at}");
            assert_eq!(Token::decode(&bytes[..at]), None, "cut at {at}");
        }
    }

    proptest::proptest! {
        /// Whoever makes a check that fits may say anything; a token is then
        /// what it says, or none.
        #[test]
        fn arbitrary_bytes_are_a_token_only_if_they_are_written_like_one(
            fields in proptest::collection::vec(proptest::num::u8::ANY, 0..1200),
            is_checked: bool,
            is_format: bool,
        ) {
            let mut bytes = fields;
            if let (true, Some(first)) = (is_format, bytes.first_mut()) {
                *first = FORMAT;
            }
            if is_checked {
                let check: [u8; CHECK_BYTES] = first_of_hash(&bytes);
                bytes.extend_from_slice(&check);
            }
            if let Some(token) = Token::decode(&bytes) {
                assert_eq!(token.encode(), bytes);
            }
        }
    }

    #[test]
    fn every_part_of_a_scan_is_in_its_id() {
        let name = |it| HistoryName::parse(it).unwrap();
        let range = |start: &'static str, end: &'static str| {
            KeyRange::new(start.into(), Some(end.into())).unwrap()
        };
        let ids = [
            ScanId::of(&name("a"), &range("b", "c"), false, false),
            ScanId::of(&name("ab"), &range("b", "c"), false, false),
            ScanId::of(&name("a"), &range("", "bc"), false, false),
            ScanId::of(&name("a"), &KeyRange::everything(), false, false),
            ScanId::of(&name("a"), &range("b", "c"), true, false),
            ScanId::of(&name("a"), &range("b", "c"), false, true),
        ];
        for (i, id) in ids.iter().enumerate() {
            assert!(!ids[i + 1..].contains(id), "{i}");
        }
    }
}
