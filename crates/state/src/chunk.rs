//! Chunks as objects: compressed on the way out, checked on the way in.

use bytes::Bytes;
use headwater_core::format::DecodeError;
use headwater_core::format::chunk::{
    ChunkEntry, Codec, Envelope, decode_block, decode_envelope, encode_block, encode_envelope,
};
use headwater_core::format::snapshot::ChunkRef;

use crate::span::Span;

/// zstd's own default. Higher levels gain few percent and cost several times
/// the time. The level is part of "equal state, equal bytes".
const ZSTD_LEVEL: i32 = 3;

/// A chunk in memory. Keys and values share one buffer, so a value that a
/// caller keeps keeps the block.
#[derive(Debug)]
pub(crate) struct Chunk {
    entries: Vec<ChunkEntry>,
    block_len: usize,
}

/// Why bytes are not the chunk that an index describes.
#[derive(Debug)]
pub(crate) enum ChunkError {
    Decode(DecodeError),
    Contradicts(&'static str),
}

impl From<DecodeError> for ChunkError {
    fn from(error: DecodeError) -> Self {
        Self::Decode(error)
    }
}

impl Chunk {
    /// The entries, in order of keys.
    pub(crate) fn entries(&self) -> &[ChunkEntry] {
        &self.entries
    }

    pub(crate) fn find(&self, key: &[u8]) -> Option<&ChunkEntry> {
        let at = self.entries.binary_search_by(|it| it.key.as_ref().cmp(key)).ok()?;
        self.entries.get(at)
    }

    /// The entries in `span`.
    pub(crate) fn range(&self, span: Span<'_>) -> &[ChunkEntry] {
        span.part_of(&self.entries, |it| it.key.as_ref(), |it| it.key.as_ref())
    }

    /// What it takes in memory, in bytes.
    pub(crate) fn size_bytes(&self) -> usize {
        self.block_len + self.entries.capacity() * size_of::<ChunkEntry>() + size_of::<Self>()
    }

    /// Takes the bytes of a chunk object apart and compares them with what the
    /// index says about it.
    pub(crate) fn decode(bytes: &Bytes, expected: &ChunkRef) -> Result<Self, ChunkError> {
        let envelope = decode_envelope(bytes)?;
        let block_len = envelope.block_len;
        if block_len != expected.block_len as usize {
            return Err(ChunkError::Contradicts("length of the block"));
        }
        let entries = decode_block(decompress(envelope)?)?;
        if entries.len() != expected.count as usize {
            return Err(ChunkError::Contradicts("count of entries"));
        }
        let is_first = entries.first().is_some_and(|it| it.key == expected.first);
        let is_last = entries.last().is_some_and(|it| it.key == expected.last);
        if !is_first || !is_last {
            return Err(ChunkError::Contradicts("first and last key"));
        }
        if entries.iter().map(|it| it.version).max() != Some(expected.newest) {
            return Err(ChunkError::Contradicts("newest version"));
        }
        Ok(Self { entries, block_len })
    }
}

/// The block, of exactly the stated length. The length is below the format's
/// limit, and never more is allocated, whatever the frame itself claims.
fn decompress(envelope: Envelope) -> Result<Bytes, ChunkError> {
    match envelope.codec {
        Codec::Plain => Ok(envelope.payload),
        Codec::Zstd => {
            let block = zstd::bulk::decompress(&envelope.payload, envelope.block_len)
                .map_err(|_| ChunkError::Contradicts("compressed block"))?;
            if block.len() != envelope.block_len {
                return Err(ChunkError::Contradicts("length of the block"));
            }
            Ok(block.into())
        }
    }
}

/// Writes entries as the bytes of a chunk object; also the block's length.
pub(crate) fn encode(entries: &[ChunkEntry]) -> (Bytes, usize) {
    let block = encode_block(entries);
    let compressed = zstd::bulk::compress(&block, ZSTD_LEVEL).ok();
    let bytes = match compressed.filter(|it| it.len() < block.len()) {
        Some(payload) => encode_envelope(Codec::Zstd, block.len(), &payload),
        // What does not get smaller is not worth a decompression.
        None => encode_envelope(Codec::Plain, block.len(), &block),
    };
    (bytes.into(), block.len())
}

#[cfg(test)]
mod tests {
    use headwater_core::head::ObjectRef;
    use headwater_core::keys::ObjectKind;
    use headwater_core::operation::Key;
    use headwater_core::version::{Revision, StateVersion};

    use super::*;

    fn entry(key: &'static str, version: u64) -> ChunkEntry {
        ChunkEntry {
            key: Key::new(key).unwrap(),
            version: StateVersion::new(version),
            value: vec![b'v'; 500].into(),
        }
    }

    fn chunk() -> (Bytes, ChunkRef) {
        let entries = [entry("a", 3), entry("b", 5), entry("c", 4)];
        let (bytes, block_len) = encode(&entries);
        let object = ObjectRef::to_content(ObjectKind::Chunk, Revision::FIRST, &bytes);
        let [first, _, last] = entries.map(|it| it.key);
        let newest = StateVersion::new(5);
        let block_len = u32::try_from(block_len).unwrap();
        (bytes, ChunkRef { object, owner: None, first, last, count: 3, block_len, newest })
    }

    #[test]
    fn a_chunk_is_compressed_where_that_helps() {
        let (bytes, chunk) = chunk();
        assert!(bytes.len() < 200);
        assert_eq!(Chunk::decode(&bytes, &chunk).unwrap().entries().len(), 3);

        let noise = blake3::hash(b"noise").as_bytes().to_vec();
        let (bytes, block_len) = encode(&[ChunkEntry { value: noise.into(), ..entry("a", 1) }]);
        assert_eq!(bytes.len(), 9 + block_len);
    }

    #[test]
    fn a_chunk_that_differs_from_its_index_entry_is_refused() {
        let (bytes, chunk) = chunk();
        let key = |it: &'static str| Key::new(it).unwrap();
        let others = [
            ("count of entries", ChunkRef { count: 2, ..chunk.clone() }),
            ("first and last key", ChunkRef { first: key("0"), ..chunk.clone() }),
            ("first and last key", ChunkRef { last: key("d"), ..chunk.clone() }),
            ("newest version", ChunkRef { newest: StateVersion::new(4), ..chunk.clone() }),
            ("newest version", ChunkRef { newest: StateVersion::new(6), ..chunk.clone() }),
            ("length of the block", ChunkRef { block_len: 9, ..chunk.clone() }),
        ];
        for (fact, other) in others {
            let error = Chunk::decode(&bytes, &other).unwrap_err();
            assert!(matches!(error, ChunkError::Contradicts(it) if it == fact), "{error:?}");
        }
    }

    #[test]
    fn a_block_is_as_long_as_it_says_or_refused() {
        let (bytes, chunk) = chunk();
        let envelope = decode_envelope(&bytes).unwrap();
        for block_len in [envelope.block_len - 1, envelope.block_len + 1] {
            let bytes = encode_envelope(Codec::Zstd, block_len, &envelope.payload).into();
            let block_len = u32::try_from(block_len).unwrap();
            let error = Chunk::decode(&bytes, &ChunkRef { block_len, ..chunk.clone() });
            assert!(matches!(error, Err(ChunkError::Contradicts(_))), "{error:?}");
        }
        let bytes = encode_envelope(Codec::Zstd, 100, b"not a frame").into();
        let error = Chunk::decode(&bytes, &ChunkRef { block_len: 100, ..chunk });
        assert!(matches!(error, Err(ChunkError::Contradicts("compressed block"))));
    }
}
