//! The time of day, passed around so that a simulator can set it.
//!
//! It is written down for people, and lets retention by age take its time.
//! Nothing is correct because of it: no two clocks agree.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use tokio::time::Instant;

/// A source of the time of day.
///
/// Clones show the same time.
#[derive(Clone, Debug)]
pub struct Clock(Kind);

#[derive(Clone, Debug)]
enum Kind {
    System,
    /// Moves with tokio's clock, which tests stop and simulators drive.
    Virtual {
        began: Instant,
        began_at_ms: u64,
        skew_ms: Arc<AtomicI64>,
    },
}

impl Clock {
    /// The system's clock.
    pub fn system() -> Self {
        Self(Kind::System)
    }

    /// Begins at `began_at_ms` now, and moves with tokio's clock.
    pub fn virtual_from(began_at_ms: u64) -> Self {
        let skew_ms = Arc::new(AtomicI64::new(0));
        Self(Kind::Virtual { began: Instant::now(), began_at_ms, skew_ms })
    }

    /// Puts a virtual clock off by so many milliseconds; the system's stays as
    /// it is.
    pub fn set_skew_ms(&self, skew_ms: i64) {
        match &self.0 {
            Kind::System => (),
            Kind::Virtual { skew_ms: held, .. } => held.store(skew_ms, Ordering::Relaxed),
        }
    }

    /// Milliseconds since 1970; 0 for a clock that is before that.
    pub fn now_ms(&self) -> u64 {
        match &self.0 {
            Kind::System => system_ms(),
            Kind::Virtual { began, began_at_ms, skew_ms } => {
                let passed = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
                let skew_ms = skew_ms.load(Ordering::Relaxed);
                began_at_ms.saturating_add(passed).saturating_add_signed(skew_ms)
            }
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "the one place where the time of day is read")]
fn system_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |it| u64::try_from(it.as_millis()).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_virtual_clock_moves_with_tokio_and_can_be_put_off() {
        let clock = Clock::virtual_from(1_000);
        tokio::time::advance(Duration::from_millis(500)).await;
        assert_eq!(clock.now_ms(), 1_500);
        clock.clone().set_skew_ms(-700);
        assert_eq!(clock.now_ms(), 800);
        clock.set_skew_ms(-10_000);
        assert_eq!(clock.now_ms(), 0);
    }

    #[test]
    fn the_systems_clock_is_past_2024() {
        assert!(1_704_067_200_000 < Clock::system().now_ms());
    }
}
