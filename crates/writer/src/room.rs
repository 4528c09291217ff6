//! One history's place among those that are open in the process: what its driver
//! leaves there, and how the limits of all of them are kept.
//!
//! Closing a history here takes it out of the map and nothing else: its queue
//! closes with that, and its driver ends once everybody was told. Only one that
//! nobody waits for is closed, so a question never meets two drivers.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use headwater_core::id::HistoryName;
use headwater_state::{Memory, MemoryPart};

use crate::histories::Histories;

/// What is known of an open history outside of its driver.
#[derive(Debug)]
pub(crate) struct Place {
    has_head: AtomicBool,
    memory: MemoryPart,
}

/// A driver's way to its place.
#[derive(Clone)]
pub(crate) struct Room {
    pub(crate) histories: Weak<Histories>,
    pub(crate) history: HistoryName,
    pub(crate) place: Arc<Place>,
}

impl Place {
    pub(crate) fn new(memory: &Memory) -> Self {
        Self { has_head: AtomicBool::new(false), memory: memory.part() }
    }

    /// Whether there was a history of the name. Until then it is being opened:
    /// names that may not exist must not push out histories that do.
    pub(crate) fn has_head(&self) -> bool {
        self.has_head.load(Ordering::Relaxed)
    }

    /// What its tail takes, in bytes.
    pub(crate) fn overlay_bytes(&self) -> u64 {
        self.memory.size_bytes()
    }

    /// It is closed: what its tail takes is on its way out.
    pub(crate) fn let_go(&self) {
        self.memory.set(0);
    }
}

impl Room {
    /// The history is followed, and its tail takes this much.
    pub(crate) fn note(&self, overlay_bytes: u64) {
        self.place.memory.set(overlay_bytes);
        let is_new = !self.place.has_head.swap(true, Ordering::Relaxed);
        let Some(histories) = self.histories.upgrade() else { return };
        if is_new {
            histories.keep_number(&self.history);
        }
        histories.keep_memory(&self.history);
    }
}

impl std::fmt::Debug for Room {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Room").field("place", &self.place).finish_non_exhaustive()
    }
}
