//! Randomness that is passed around, so that a seed replays a run.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

/// A source of randomness for nonces and jitter.
///
/// Clones share one stream: what one of them draws, no other draws again.
#[derive(Clone)]
pub struct Entropy(Arc<Mutex<StdRng>>);

impl Entropy {
    /// Seeded by the operating system. Once a process: nonces of two processes
    /// must not repeat.
    ///
    /// # Panics
    ///
    /// When the operating system has no randomness to give.
    pub fn from_os() -> Self {
        Self(Arc::new(Mutex::new(StdRng::from_os_rng())))
    }

    /// The same stream for the same seed. For tests and simulation.
    pub fn from_seed(seed: u64) -> Self {
        Self(Arc::new(Mutex::new(StdRng::seed_from_u64(seed))))
    }

    /// 16 bytes, as nonces and ids take them.
    pub fn bytes16(&self) -> [u8; 16] {
        self.draw(Rng::random)
    }

    /// Any 64-bit number.
    pub fn u64(&self) -> u64 {
        self.draw(Rng::random)
    }

    /// A number in `0..bound`; 0 for a bound of 0.
    pub fn below(&self, bound: u64) -> u64 {
        self.draw(|rng| if bound == 0 { 0 } else { rng.random_range(0..bound) })
    }

    /// A duration in `[0, bound)`, to the nanosecond; zero for a zero bound.
    pub fn jitter(&self, bound: Duration) -> Duration {
        // 2^64 nanoseconds are 584 years.
        Duration::from_nanos(self.below(u64::try_from(bound.as_nanos()).unwrap_or(u64::MAX)))
    }

    fn draw<T>(&self, take: impl FnOnce(&mut StdRng) -> T) -> T {
        // A panic in another holder leaves the generator usable.
        take(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl fmt::Debug for Entropy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Entropy")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_replays_and_clones_do_not_repeat() {
        let draws = |entropy: &Entropy| [entropy.bytes16(), entropy.clone().bytes16()];
        let first = draws(&Entropy::from_seed(7));
        assert_eq!(first, draws(&Entropy::from_seed(7)));
        assert_ne!(first[0], first[1]);
        assert_ne!(first, draws(&Entropy::from_seed(8)));
    }

    #[test]
    fn jitter_stays_below_its_bound() {
        let entropy = Entropy::from_seed(1);
        assert_eq!(entropy.jitter(Duration::ZERO), Duration::ZERO);
        let bound = Duration::from_nanos(3);
        assert!((0..100).all(|_| entropy.jitter(bound) < bound));
    }
}
