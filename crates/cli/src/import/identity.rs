//! What names an import, a line of it, and how far it has come.

use headwater_client::OperationId;

use crate::failed::Failed;

/// Names one import: a hash of the whole input, or drawn at random for one that
/// can be read only once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ImportId([u8; 32]);

/// Digits of an operation id: 128 bits, so that two lines never meet.
const ID_DIGITS: usize = 32;

impl ImportId {
    pub(super) const fn new(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    pub(super) fn parse(hex: &str) -> Option<Self> {
        blake3::Hash::from_hex(hex).ok().map(|it| Self(it.into()))
    }

    pub(super) fn to_hex(self) -> String {
        blake3::Hash::from_bytes(self.0).to_string()
    }

    /// The id of the operation that line `number`, counted from 1, stands for.
    ///
    /// The number is in it, so that two equal lines are two operations; the
    /// bytes are, so that an id never stands for two requests even where an
    /// input that can be read only once is another one the second time.
    pub(super) fn operation_id(self, number: u64, line: &[u8]) -> Result<OperationId, Failed> {
        let mut hasher = blake3::Hasher::new_derive_key("headwater import line v1");
        hasher.update(&self.0).update(&number.to_le_bytes()).update(line);
        let hex = hasher.finalize().to_hex();
        OperationId::new(&hex[..ID_DIGITS])
            .map_err(|error| Failed::new(crate::Exit::Unexpected, error.to_string()))
    }
}

/// A hash over all lines up to one: says that two inputs begin alike.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Chain([u8; 32]);

impl Chain {
    pub(super) fn parse(hex: &str) -> Option<Self> {
        blake3::Hash::from_hex(hex).ok().map(|it| Self(it.into()))
    }

    pub(super) fn to_hex(self) -> String {
        blake3::Hash::from_bytes(self.0).to_string()
    }

    /// The chain with one more line.
    #[must_use]
    pub(super) fn with(self, line: &[u8]) -> Self {
        let mut hasher = blake3::Hasher::new();
        hasher.update(&self.0).update(blake3::hash(line).as_bytes());
        Self(hasher.finalize().into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: &[u8] = b"{\"key\":\"a\",\"value\":\"1\"}";

    fn id(import: u8, number: u64, line: &[u8]) -> String {
        ImportId::new([import; 32]).operation_id(number, line).unwrap().to_string()
    }

    #[test]
    fn an_id_is_the_same_in_every_run_and_version_of_this_program() {
        // Changing this applies lines twice that an older build has sent.
        assert_eq!(id(7, 1, LINE), "a3606f3e27cd7f8d2ac6ce66b4d2e41c");
    }

    #[test]
    fn import_number_and_bytes_are_all_in_the_id() {
        let ids = [id(7, 1, LINE), id(8, 1, LINE), id(7, 2, LINE), id(7, 1, b"")];

        for (i, a) in ids.iter().enumerate() {
            assert_eq!(a.len(), ID_DIGITS);
            assert!(ids[..i].iter().all(|b| a != b));
        }
    }

    #[test]
    fn a_chain_tells_where_lines_end() {
        let chain = |lines: &[&[u8]]| lines.iter().fold(Chain::default(), |it, line| it.with(line));

        assert_ne!(chain(&[b"ab", b"c"]), chain(&[b"a", b"bc"]));
        assert_ne!(chain(&[b"a", b"b"]), chain(&[b"b", b"a"]));
        assert_ne!(chain(&[b""]), chain(&[]));
        let hex = chain(&[b"a"]).to_hex();
        assert_eq!(Chain::parse(&hex), Some(chain(&[b"a"])));
    }
}
