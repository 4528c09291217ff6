//! From a moment to a version.

use headwater_core::version::StateVersion;
use headwater_proto::reason;
use headwater_proto::v1::VersionAtRequest;
use headwater_replica::{Consistency, ReadFailure, VersionAt};
use headwater_store::Call;
use prost_types::Timestamp;

use crate::bucket::{Rig, deadline, quiet, version};
use crate::rpc::{Served, fields, metadata, reason};

async fn at(rig: &Rig, time_ms: u64) -> Result<VersionAt, ReadFailure> {
    let reader = rig.reader();
    Ok(reader.version_at(time_ms, Consistency::Strong, deadline()).await?.0)
}

fn found(number: u64, ms: u64) -> VersionAt {
    VersionAt { version: version(number), decided_at_ms: Some(ms) }
}

/// Version `n` is decided at these times; compacted and swept after every tenth.
async fn history(retained: u64, times_ms: impl IntoIterator<Item = u64>) -> Rig {
    let mut rig = Rig::new(quiet()).await;
    rig.writer.retain(retained).await;
    for (number, ms) in (1_u64..).zip(times_ms) {
        rig.writer.clock_ms = ms;
        rig.writer.put("k", &number.to_string()).await;
        if number % 10 == 0 {
            rig.writer.compact().await;
            rig.writer.sweep_released().await;
        }
    }
    rig
}

#[tokio::test]
async fn the_newest_version_that_was_decided_by_then_is_found_in_tail_and_archive() {
    let rig = history(1_000, (1..=45).map(|it| it * 1_000)).await;

    for number in 1..=45 {
        let ms = number * 1_000;
        assert_eq!(at(&rig, ms).await.unwrap(), found(number, ms));
        assert_eq!(at(&rig, ms + 999).await.unwrap(), found(number, ms));
    }
    assert_eq!(at(&rig, u64::MAX).await.unwrap(), found(45, 45_000));
    let first = VersionAt { version: StateVersion::ZERO, decided_at_ms: None };
    assert_eq!(at(&rig, 999).await.unwrap(), first);
}

#[tokio::test]
async fn a_moment_costs_nothing_in_the_tail_and_one_run_in_the_archive() {
    let rig = history(1_000, (1..=45).map(|it| it * 1_000)).await;
    at(&rig, 45_000).await.unwrap();
    rig.faults.clear_log();

    at(&rig, 42_500).await.unwrap();
    assert_eq!(rig.count(Call::Get), 0);
    at(&rig, 5_000).await.unwrap();
    // The archive itself, once, and the run.
    assert_eq!(rig.count(Call::Get), 2);
    at(&rig, 6_000).await.unwrap();
    assert_eq!(rig.count(Call::Get), 3);
}

#[tokio::test]
async fn clocks_that_differ_move_what_is_found_and_break_nothing() {
    let times = [10, 50, 20, 30, 5, 40];
    let rig = history(1_000, times).await;
    for time_ms in 0..60 {
        let newest = times.iter().rposition(|it| *it <= time_ms);
        let expected = match newest {
            Some(at) => found(at as u64 + 1, times[at]),
            None => VersionAt { version: StateVersion::ZERO, decided_at_ms: None },
        };
        assert_eq!(at(&rig, time_ms).await.unwrap(), expected, "{time_ms}");
    }
    // The same where it is read from runs.
    let rig = history(1_000, times.into_iter().chain([70, 80, 90, 95])).await;
    for time_ms in 5..60 {
        let at_most = times.iter().rposition(|it| *it <= time_ms).unwrap();
        assert_eq!(at(&rig, time_ms).await.unwrap(), found(at_most as u64 + 1, times[at_most]));
    }
}

#[tokio::test]
async fn of_versions_of_one_moment_the_newest_is_found_in_tail_and_archive() {
    // Runs end after every tenth: within versions of one moment, and between two.
    for n_before in [3, 7] {
        let times = (1..=45).map(|it| {
            if it <= n_before {
                1_000
            } else if it < 31 {
                2_000
            } else {
                3_000
            }
        });
        let rig = history(1_000, times).await;
        assert_eq!(at(&rig, 1_000).await.unwrap(), found(n_before, 1_000));
        assert_eq!(at(&rig, 1_999).await.unwrap(), found(n_before, 1_000));
        assert_eq!(at(&rig, 2_000).await.unwrap(), found(30, 2_000));
        assert_eq!(at(&rig, 3_000).await.unwrap(), found(45, 3_000));
        let first = VersionAt { version: StateVersion::ZERO, decided_at_ms: None };
        assert_eq!(at(&rig, 0).await.unwrap(), first);
    }
}

#[tokio::test]
async fn before_everything_that_is_kept_the_oldest_version_is_said() {
    let rig = history(15, (1..=45).map(|it| it * 1_000)).await;
    let oldest = rig.writer.head.retained_from();
    assert!(0 < oldest.get());

    let answer = at(&rig, 1_000).await;

    let Err(ReadFailure::VersionRetired { oldest: said, newest, .. }) = answer else {
        panic!("{answer:?}")
    };
    assert_eq!((said, newest), (oldest, version(45)));
    let next = oldest.get() + 1;
    assert_eq!(at(&rig, next * 1_000).await.unwrap(), found(next, next * 1_000));
}

#[tokio::test]
async fn a_lookup_goes_no_further_than_the_version_that_it_looks_through() {
    let rig = history(1_000, (1..=45).map(|it| it * 1_000)).await;
    for (upto, expected) in [(44, 44), (25, 25), (3, 3)] {
        let consistency = Consistency::Exact(version(upto));
        let answer = rig.reader().version_at(u64::MAX, consistency, deadline()).await.unwrap();
        assert_eq!(answer.0.version, version(expected));
    }
}

#[tokio::test]
async fn the_wire_has_moments_as_timestamps() {
    let mut served = Served::new(quiet()).await;
    served.rig.writer.clock_ms = 1_764_500_000_123;
    served.rig.writer.put("k", "v").await;
    let ask = |time| VersionAtRequest { history: "h".into(), time, ..Default::default() };
    let time = |seconds, nanos| Some(Timestamp { seconds, nanos });

    let request = ask(time(1_764_500_000, 123_000_000));
    let answer = served.client.version_at(request).await.unwrap().into_inner();

    assert_eq!(answer.version, 1);
    assert_eq!(answer.decided_at, time(1_764_500_000, 123_000_000));
    assert_eq!(answer.stamp.unwrap().state_version, 1);
    let request = ask(time(1_764_500_000, 122_999_999));
    let answer = served.client.version_at(request).await.unwrap().into_inner();
    assert_eq!((answer.version, answer.decided_at), (0, None));
    for bad in [None, time(-1, 0), time(0, -1)] {
        let error = served.client.version_at(ask(bad)).await.unwrap_err();
        assert_eq!(fields(&error), ["time"]);
    }
    served.rig.writer.compact_and_sweep().await;
    let error = served.client.version_at(ask(time(5, 0))).await.unwrap_err();
    assert_eq!(reason(&error), reason::VERSION_RETIRED);
    assert_eq!(metadata(&error, reason::OLDEST_VERSION), "1");
}
