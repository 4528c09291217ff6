//! What the tails of open histories take in memory, all together.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The sum over all histories. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct Memory(Arc<AtomicU64>);

/// The part of one history, which goes with it.
#[derive(Debug)]
pub struct MemoryPart {
    all: Memory,
    size_bytes: AtomicU64,
}

impl Memory {
    /// What all parts take, in bytes.
    pub fn size_bytes(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// The part of one more history, which takes nothing yet.
    pub fn part(&self) -> MemoryPart {
        MemoryPart { all: self.clone(), size_bytes: AtomicU64::new(0) }
    }
}

impl MemoryPart {
    /// What it takes now, in bytes. Only one task sets it.
    pub fn set(&self, size_bytes: u64) {
        let before = self.size_bytes.swap(size_bytes, Ordering::Relaxed);
        self.all.0.fetch_add(size_bytes, Ordering::Relaxed);
        self.all.0.fetch_sub(before, Ordering::Relaxed);
    }

    /// What it takes, in bytes.
    pub fn size_bytes(&self) -> u64 {
        self.size_bytes.load(Ordering::Relaxed)
    }
}

impl Drop for MemoryPart {
    fn drop(&mut self) {
        self.set(0);
    }
}
