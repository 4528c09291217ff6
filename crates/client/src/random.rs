//! The client's randomness: names and jitter, from one generator that a test
//! can seed.

use std::fmt;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{Rng, RngCore, SeedableRng};

use crate::id::{HistoryId, OperationId};

pub(crate) struct Random(Mutex<StdRng>);

impl Random {
    pub(crate) fn from_os() -> Self {
        Self(Mutex::new(StdRng::from_os_rng()))
    }

    pub(crate) fn from_seed(seed: u64) -> Self {
        Self(Mutex::new(StdRng::seed_from_u64(seed)))
    }

    pub(crate) fn operation_id(&self) -> OperationId {
        OperationId::from_random(self.bytes16())
    }

    pub(crate) fn history_id(&self) -> HistoryId {
        HistoryId::from_random(self.bytes16())
    }

    /// Somewhere from zero to `bound`.
    pub(crate) fn jitter(&self, bound: Duration) -> Duration {
        self.with(|rng| bound.mul_f64(rng.random_range(0.0..=1.0)))
    }

    fn bytes16(&self) -> [u8; 16] {
        let mut bytes = [0; 16];
        self.with(|rng| rng.fill_bytes(&mut bytes));
        bytes
    }

    fn with<T>(&self, draw: impl FnOnce(&mut StdRng) -> T) -> T {
        draw(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl fmt::Debug for Random {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A generator's state tells what it will draw.
        f.write_str("Random")
    }
}
