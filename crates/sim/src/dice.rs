//! Chance, by seed and by label: what one party draws changes nothing for
//! another, so that a fault which is added to a plan does not reshuffle the
//! rest of it.

use std::time::Duration;

use headwater_store::Entropy;

/// One stream of draws.
#[derive(Clone, Debug)]
pub(crate) struct Dice(Entropy);

impl Dice {
    /// The stream of `label` under `seed`.
    pub(crate) fn new(seed: u64, label: &str) -> Self {
        Self(entropy(seed, label))
    }

    /// A number in `0..bound`; 0 for a bound of 0.
    pub(crate) fn below(&self, bound: u64) -> u64 {
        self.0.below(bound)
    }

    /// A number from `least` to `most`, both included.
    pub(crate) fn between(&self, least: u64, most: u64) -> u64 {
        least + self.0.below(most.saturating_sub(least) + 1)
    }

    /// True `n` times in a hundred.
    pub(crate) fn percent(&self, n: u64) -> bool {
        self.0.below(100) < n
    }

    /// True `n` times in a thousand.
    pub(crate) fn per_mille(&self, n: u64) -> bool {
        0 < n && self.0.below(1_000) < n
    }

    /// One of `choices`, of which there is at least one.
    pub(crate) fn pick<T: Copy>(&self, choices: &[T]) -> T {
        choices[self.index(choices.len())]
    }

    /// An index into `len` things.
    pub(crate) fn index(&self, len: usize) -> usize {
        usize::try_from(self.0.below(len as u64)).unwrap_or(0)
    }

    /// A time from `least` to `most`, in milliseconds.
    pub(crate) fn ms(&self, least: u64, most: u64) -> Duration {
        Duration::from_millis(self.between(least, most))
    }

    /// What a request takes that usually takes about `usual`: one in ten up to
    /// four times as long, one in a hundred up to forty times.
    pub(crate) fn long_tailed(&self, usual: Duration) -> Duration {
        let usual_us = u64::try_from(usual.as_micros()).unwrap_or(u64::MAX);
        let percent = match self.0.below(100) {
            0 => self.between(400, 4_000),
            1..=9 => self.between(130, 400),
            _ => self.between(60, 130),
        };
        Duration::from_micros(usual_us.saturating_mul(percent) / 100)
    }
}

/// A generator for the code under test: its own stream.
pub(crate) fn entropy(seed: u64, label: &str) -> Entropy {
    let mut hasher = blake3::Hasher::new();
    hasher.update(&seed.to_be_bytes()).update(label.as_bytes());
    let mut folded = [0; 8];
    folded.copy_from_slice(&hasher.finalize().as_bytes()[..8]);
    Entropy::from_seed(u64::from_be_bytes(folded))
}
