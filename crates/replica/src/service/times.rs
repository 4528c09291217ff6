//! Versions of moments.

use headwater_proto::v1;
use prost_types::Timestamp;
use tonic::{Request, Response, Status};

use super::ReadRpc;
use super::answer::stamp;
use super::request::Violations;

impl ReadRpc {
    pub(super) async fn find_version(
        &self,
        request: Request<v1::VersionAtRequest>,
    ) -> Result<Response<v1::VersionAtResponse>, Status> {
        let mut violations = Violations::default();
        let wire = request.get_ref();
        let checked = violations.common(&wire.history, &wire.history_id, wire.consistency.as_ref());
        let time_ms = wire.time.as_ref().and_then(to_ms);
        if time_ms.is_none() {
            violations.add("time", "it is a moment from 1970 on");
        }
        let (checked, time_ms) = violations.finish(checked.zip(time_ms))?;
        let call = self.call(&request, checked);
        let found = call.reader.version_at(time_ms, call.consistency, call.deadline).await;
        let (found, pinned) = found.map_err(|it| call.status(&it))?;
        Ok(Response::new(v1::VersionAtResponse {
            stamp: Some(stamp(&pinned)),
            version: found.version.get(),
            decided_at: found.decided_at_ms.map(of_ms),
        }))
    }
}

/// Whole milliseconds, as changes have them; `None` before 1970 and for what is
/// no time.
fn to_ms(time: &Timestamp) -> Option<u64> {
    let nanos = u64::try_from(time.nanos).ok().filter(|it| *it < 1_000_000_000)?;
    let seconds = u64::try_from(time.seconds).ok()?;
    Some(seconds.saturating_mul(1_000).saturating_add(nanos / 1_000_000))
}

fn of_ms(ms: u64) -> Timestamp {
    Timestamp {
        seconds: i64::try_from(ms / 1_000).unwrap_or(i64::MAX),
        nanos: i32::try_from(ms % 1_000 * 1_000_000).unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_whole_milliseconds_from_1970_on() {
        for ms in [0, 1, 999, 1_000, 1_764_500_000_123] {
            assert_eq!(to_ms(&of_ms(ms)), Some(ms));
        }
        let time = |seconds, nanos| Timestamp { seconds, nanos };
        assert_eq!(to_ms(&time(1, 1_999_999)), Some(1_001));
        assert_eq!(to_ms(&time(-1, 0)), None);
        assert_eq!(to_ms(&time(0, -1)), None);
        assert_eq!(to_ms(&time(0, 1_000_000_000)), None);
        assert_eq!(to_ms(&time(i64::MAX, 0)), Some(u64::MAX));
    }
}
