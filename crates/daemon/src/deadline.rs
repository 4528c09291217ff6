//! When a request has to be answered.
//!
//! The server ends a handler at the moment that `grpc-timeout` names, with a
//! `DEADLINE_EXCEEDED` that knows nothing about what was applied. A service
//! therefore works towards an earlier moment, and has the rest of the time to
//! say `EXPIRED` or `PUBLICATION_IN_DOUBT` itself.

use std::time::Duration;

use tokio::time::Instant;
use tonic::metadata::MetadataMap;

/// Share of the caller's time that is kept for the answer: one part in this
/// many.
const ANSWER_PART: u32 = 20;
/// Least and most time kept for the answer.
const ANSWER_TIME_MIN: Duration = Duration::from_millis(5);
const ANSWER_TIME_MAX: Duration = Duration::from_millis(250);

/// The moment by which the service has to have its answer, for a request that
/// arrived now. `without` is the time allowed where the caller named none; it
/// is an upper limit as well.
pub fn of(metadata: &MetadataMap, without: Duration) -> Instant {
    Instant::now() + named_in(metadata).map_or(without, |it| working_time(it).min(without))
}

/// The moment by which a stream has to have ended that may go on for ever:
/// `None` where the caller named no time.
pub fn of_stream(metadata: &MetadataMap) -> Option<Instant> {
    // A time that the clock cannot count to is none.
    named_in(metadata).and_then(|it| Instant::now().checked_add(working_time(it)))
}

/// The time that the caller of a request allows; `None` where it names none.
pub(crate) fn named(headers: &http::HeaderMap) -> Option<Duration> {
    headers.get("grpc-timeout").and_then(|it| parse(it.to_str().ok()?))
}

fn named_in(metadata: &MetadataMap) -> Option<Duration> {
    metadata.get("grpc-timeout").and_then(|it| parse(it.to_str().ok()?))
}

/// `timeout` less the time that is kept for the answer.
fn working_time(timeout: Duration) -> Duration {
    let kept = (timeout / ANSWER_PART).clamp(ANSWER_TIME_MIN, ANSWER_TIME_MAX);
    timeout.saturating_sub(kept)
}

/// Reads a `grpc-timeout`: at most 8 digits and a unit, as in the gRPC protocol
/// over HTTP/2.
fn parse(text: &str) -> Option<Duration> {
    let (digits, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    if digits.is_empty() || digits.len() > 8 || !digits.bytes().all(|it| it.is_ascii_digit()) {
        return None;
    }
    let amount: u64 = digits.parse().ok()?;
    Some(match unit {
        "H" => Duration::from_secs(amount * 3_600),
        "M" => Duration::from_secs(amount * 60),
        "S" => Duration::from_secs(amount),
        "m" => Duration::from_millis(amount),
        "u" => Duration::from_micros(amount),
        "n" => Duration::from_nanos(amount),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with_timeout(text: &'static str) -> MetadataMap {
        let mut metadata = MetadataMap::new();
        metadata.insert("grpc-timeout", tonic::metadata::MetadataValue::from_static(text));
        metadata
    }

    #[tokio::test(start_paused = true)]
    async fn time_is_kept_for_the_answer() {
        let now = Instant::now();
        let limit = Duration::from_secs(60);

        assert_eq!(of(&with_timeout("1S"), limit) - now, Duration::from_millis(950));
        assert_eq!(of(&with_timeout("20m"), limit) - now, Duration::from_millis(15));
        assert_eq!(of(&with_timeout("3u"), limit), now);
        assert_eq!(of(&with_timeout("20S"), limit) - now, Duration::from_millis(19_750));
    }

    #[tokio::test(start_paused = true)]
    async fn a_stream_ends_only_where_its_caller_says_so() {
        let now = Instant::now();

        assert_eq!(of_stream(&with_timeout("1S")), Some(now + Duration::from_millis(950)));
        assert!(of_stream(&with_timeout("99999999H")).is_some_and(|it| now < it));
        assert_eq!(of_stream(&MetadataMap::new()), None);
    }

    #[tokio::test(start_paused = true)]
    async fn without_a_usable_timeout_the_services_own_limit_holds() {
        let now = Instant::now();
        let limit = Duration::from_secs(60);

        assert_eq!(of(&MetadataMap::new(), limit) - now, limit);
        for text in ["", "S", "1", "123456789S", "1d", "-1S", "1H"] {
            assert_eq!(of(&with_timeout(text), limit) - now, limit, "{text:?}");
        }
    }
}
