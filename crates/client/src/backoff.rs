//! Pauses between attempts.

use std::time::Duration;

use crate::random::Random;

/// How long to wait before trying again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    /// Bound of the first pause; each further one doubles it. A pause is drawn
    /// from zero to its bound, so that callers who failed together do not come
    /// back together.
    pub first: Duration,
    /// Bound of the longest pause.
    pub max: Duration,
}

impl Default for Backoff {
    /// Up to 50 ms, then 100, 200, and so on to 2 seconds: the first fail-over
    /// is hardly noticed, and a store that is down is asked about once a second.
    fn default() -> Self {
        Self { first: Duration::from_millis(50), max: Duration::from_secs(2) }
    }
}

impl Backoff {
    /// The bound of the pause after `failures` failed attempts, 1 for the first.
    pub(crate) fn bound(&self, failures: u32) -> Duration {
        let doublings = failures.saturating_sub(1).min(16);
        self.first.saturating_mul(1 << doublings).min(self.max)
    }

    /// The pause after `failures` failed attempts. Never shorter than what the
    /// server asked for.
    pub(crate) fn pause(
        &self,
        failures: u32,
        asked: Option<Duration>,
        random: &Random,
    ) -> Duration {
        asked.unwrap_or_default().saturating_add(random.jitter(self.bound(failures)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_double_up_to_the_longest() {
        let backoff = Backoff::default();

        let bounds_ms: Vec<_> = (1..=8).map(|it| backoff.bound(it).as_millis()).collect();

        assert_eq!(bounds_ms, [50, 100, 200, 400, 800, 1_600, 2_000, 2_000]);
        assert_eq!(backoff.bound(u32::MAX), backoff.max);
    }

    #[test]
    fn what_the_server_asked_for_is_waited_out() {
        let random = Random::from_seed(1);
        let asked = Duration::from_secs(3);

        for failures in 1..100 {
            let pause = Backoff::default().pause(failures, Some(asked), &random);
            assert!(pause >= asked && pause <= asked + Duration::from_secs(2));
        }
    }
}
