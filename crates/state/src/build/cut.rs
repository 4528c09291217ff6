//! Where chunks end.
//!
//! A cut depends on the entries since the last cut and on nothing else, so two
//! builders cut equal runs equally, and after a changed entry the old cuts are
//! soon found again.

use headwater_core::format::chunk::{BLOCK_BYTES_MAX, ChunkEntry, entry_len};
use headwater_core::operation::{Key, Request};

/// How long chunks get, in bytes of entries.
///
/// Part of "equal state, equal bytes": builds with other numbers would cut each
/// other's chunks anew wherever they touch them, and nothing worse. Only tests
/// use others than [`ChunkBytes::STANDARD`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct ChunkBytes {
    /// No cut before.
    pub(crate) min: usize,
    /// About the average.
    pub(crate) target: usize,
    /// Always a cut at or after.
    pub(crate) max: usize,
}

impl ChunkBytes {
    /// 256 KiB, 1 MiB, 4 MiB. A fetch of 1 MiB is worth its latency of some
    /// 30 ms, and a changed entry costs one such upload.
    pub(crate) const STANDARD: Self = Self { min: 256 << 10, target: 1 << 20, max: 4 << 20 };
}

// The last entry may go over the greatest size by itself, and the block begins
// with a count.
const _: () = assert!(
    ChunkBytes::STANDARD.max + Key::LEN_BYTES_MAX + Request::VALUE_BYTES_MAX + 64
        <= BLOCK_BYTES_MAX,
    "every chunk that is cut can be read"
);

/// Bytes of entries since the last cut.
#[derive(Debug)]
pub(super) struct Cutter {
    sizes: ChunkBytes,
    size_bytes: usize,
}

impl Cutter {
    /// At a cut.
    pub(super) fn new(sizes: ChunkBytes) -> Self {
        Self { sizes, size_bytes: 0 }
    }

    /// Takes in the next entry. `true` when the chunk ends with it; the next
    /// entry begins from a fresh state.
    #[must_use]
    pub(super) fn ends_with(&mut self, entry: &ChunkEntry) -> bool {
        let ChunkBytes { min, target, max } = self.sizes;
        let len_bytes = entry_len(entry);
        self.size_bytes += len_bytes;
        let is_end = max <= self.size_bytes
            || (min <= self.size_bytes && is_drawn(&entry.key, len_bytes, target - min));
        if is_end {
            self.size_bytes = 0;
        }
        is_end
    }
}

/// Draws by the key's hash, with a chance of `len_bytes` in `spread_bytes`: so
/// that the bytes between two cuts do not depend on how long entries are.
fn is_drawn(key: &Key, len_bytes: usize, spread_bytes: usize) -> bool {
    let hash = blake3::hash(key.as_ref());
    let [a, b, c, d, ..] = *hash.as_bytes();
    let draw = u64::from(u32::from_le_bytes([a, b, c, d]));
    // draw / 2^32 < len / spread, without the divisions.
    draw * (spread_bytes as u64) < (len_bytes as u64) << 32
}

#[cfg(test)]
mod tests {
    use headwater_core::version::StateVersion;

    use super::*;

    fn entry(number: usize, value_len: usize) -> ChunkEntry {
        ChunkEntry {
            key: Key::new(format!("key-{number:08}")).unwrap(),
            version: StateVersion::new(1),
            value: vec![0; value_len].into(),
        }
    }

    /// Sizes of the chunks in which `count` entries end up, without the last.
    fn sizes(count: usize, value_len: usize) -> Vec<usize> {
        let mut cutter = Cutter::new(ChunkBytes::STANDARD);
        let (mut sizes, mut size) = (Vec::new(), 0);
        for entry in (0..count).map(|it| entry(it, value_len)) {
            size += entry_len(&entry);
            if cutter.ends_with(&entry) {
                sizes.push(std::mem::take(&mut size));
            }
        }
        sizes
    }

    #[test]
    fn chunks_keep_their_bounds_however_long_the_entries_are() {
        for value_len in [10, 100, 1_000, 50_000] {
            let entry_len = entry_len(&entry(0, value_len));
            let sizes = sizes((64 << 20) / entry_len, value_len);
            let average = sizes.iter().sum::<usize>() / sizes.len();

            assert!(
                sizes.iter().all(|it| ChunkBytes::STANDARD.min <= *it),
                "{value_len}: {sizes:?}"
            );
            assert!(
                sizes.iter().all(|it| *it < ChunkBytes::STANDARD.max + entry_len),
                "{value_len}: {sizes:?}"
            );
            assert!((700 << 10..1500 << 10).contains(&average), "{value_len}: {average}");
        }
    }

    #[test]
    fn a_long_value_ends_its_chunk() {
        assert_eq!(sizes(3, 1 << 20).len(), 3);
    }
}
