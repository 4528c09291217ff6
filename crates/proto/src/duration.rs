//! Durations off the wire.
//!
//! `prost-types` has a conversion of its own, which negates what is negative: at
//! the smallest number of seconds that overflows, so that a request could end in
//! a panic.

use std::time::Duration;

/// What a message says, where that is a valid duration, and not a negative one:
/// nanoseconds are below 1,000,000,000.
#[must_use]
pub fn from_wire(wire: prost_types::Duration) -> Option<Duration> {
    let seconds = u64::try_from(wire.seconds).ok()?;
    let nanos = u32::try_from(wire.nanos).ok().filter(|it| *it < 1_000_000_000)?;
    Some(Duration::new(seconds, nanos))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(seconds: i64, nanos: i32) -> Option<Duration> {
        from_wire(prost_types::Duration { seconds, nanos })
    }

    #[test]
    fn what_is_not_negative_and_valid_is_a_duration() {
        assert_eq!(of(0, 0), Some(Duration::ZERO));
        assert_eq!(of(1, 999_999_999), Some(Duration::new(1, 999_999_999)));
        assert_eq!(of(i64::MAX, 0), Some(Duration::from_secs(i64::MAX.unsigned_abs())));
    }

    #[test]
    fn nothing_else_is_and_nothing_overflows() {
        for seconds in [i64::MIN, i64::MIN + 1, -1] {
            for nanos in [i32::MIN, -1, 0, 1, i32::MAX] {
                assert_eq!(of(seconds, nanos), None, "{seconds} {nanos}");
            }
        }
        for nanos in [i32::MIN, -1, 1_000_000_000, i32::MAX] {
            assert_eq!(of(1, nanos), None, "{nanos}");
        }
    }
}
