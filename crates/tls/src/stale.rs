//! Since when files cannot be used, and what was read of them before is.

use std::sync::{Mutex, PoisonError};

use tokio::time::Instant;

/// Told how each look at the files went.
#[derive(Debug, Default)]
pub struct StaleSince(Mutex<Option<Instant>>);

impl StaleSince {
    /// A look at the files went well, or not.
    pub fn note(&self, is_well: bool) {
        let mut since = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *since = if is_well { None } else { since.or_else(|| Some(Instant::now())) };
    }

    /// When they could not be used first, if they still cannot.
    pub fn get(&self) -> Option<Instant> {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
