//! `headwater.v1.WatchService` through a socket.

use std::time::Duration;

use headwater_core::change::Resolved;
use headwater_proto::reason;
use headwater_proto::v1::key_filter::Keys;
use headwater_proto::v1::watch_request::SnapshotMode;
use headwater_proto::v1::watch_response::Event;
use headwater_proto::v1::watched_mutation::Kind;
use headwater_proto::v1::{
    GetRequest, KeyFilter, KeyRange, WatchRequest, WatchResponse, WatchedChange,
};
use headwater_replica::ReplicaConfig;
use tokio::time::timeout;
use tonic::{Code, Request, Status, Streaming};
use tonic_types::StatusExt as _;

use crate::bucket::{PATIENCE, key, put, quiet};
use crate::rpc::{Served, fields, metadata, reason};
use crate::watch::range;

fn watch(after_version: impl Into<Option<u64>>) -> WatchRequest {
    WatchRequest { history: "h".into(), after_version: after_version.into(), ..Default::default() }
}

fn prefix(prefix: &'static str) -> KeyFilter {
    KeyFilter { keys: Some(Keys::Prefix(prefix.into())) }
}

async fn news(stream: &mut Streaming<WatchResponse>) -> Result<WatchResponse, Status> {
    loop {
        let told = timeout(PATIENCE, stream.message()).await.expect("something is told")?;
        let told = told.expect("an end is a status");
        if !matches!(told.event, Some(Event::Progress(_))) {
            return Ok(told);
        }
    }
}

async fn change(stream: &mut Streaming<WatchResponse>) -> WatchedChange {
    match news(stream).await.unwrap().event {
        Some(Event::Change(change)) => change,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn versions_come_with_operations_entries_and_what_was_there_before() {
    let mut served = Served::new(quiet()).await;
    served.rig.writer.put("a/k", "1").await;
    let request = WatchRequest {
        filters: vec![
            prefix("a/"),
            KeyFilter { keys: Some(Keys::Range(KeyRange { start: "m".into(), end: "".into() })) },
        ],
        previous_values: true,
        ..watch(1)
    };
    let mut stream = served.watches.watch(request).await.unwrap().into_inner();
    let mutations = vec![
        put("a/k", "2"),
        put("b", "2"),
        Resolved::Delete(key("n")),
        Resolved::DeleteRange(range("a", "b")),
    ];
    served.rig.writer.change(mutations).await;
    served.rig.tell();

    let told = news(&mut stream).await.unwrap();

    assert_eq!(told.history_id, served.rig.writer.head.history_id.to_string());
    assert_eq!(told.resume_after_version, 2);
    let Some(Event::Change(change)) = told.event else { panic!() };
    assert_eq!((change.version, change.continued), (2, false));
    let [first, second, third] = change.mutations.as_slice() else { panic!("{change:?}") };
    assert!(change.mutations.iter().all(|it| it.operation_id == "op-2"));
    let Some(Kind::Put(entry)) = &first.kind else { panic!() };
    assert_eq!(
        (entry.key.as_ref(), entry.value.as_ref(), entry.version),
        (&b"a/k"[..], &b"2"[..], 2)
    );
    assert_eq!((first.previous[0].value.as_ref(), first.previous[0].version), (&b"1"[..], 1));
    assert_eq!((&second.kind, second.previous.len()), (&Some(Kind::Delete("n".into())), 0));
    let expected = KeyRange { start: "a/".into(), end: "a0".into() };
    assert_eq!(third.kind, Some(Kind::DeleteRange(expected)));
    assert_eq!((third.previous[0].value.as_ref(), third.previous[0].version), (&b"2"[..], 2));
}

#[tokio::test]
async fn everything_that_is_wrong_with_a_watch_is_named() {
    let mut served = Served::new(quiet()).await;
    let request = WatchRequest {
        history: "h".into(),
        history_id: "x".into(),
        after_version: Some(1),
        filters: vec![
            KeyFilter { keys: Some(Keys::Range(KeyRange { start: "b".into(), end: "a".into() })) },
            KeyFilter { keys: None },
            KeyFilter { keys: Some(Keys::Prefix(vec![1; 1_026].into())) },
        ],
        previous_values: false,
        progress_interval: Some(prost_types::Duration { seconds: 0, nanos: 99_000_000 }),
        snapshot: SnapshotMode::First.into(),
    };
    let error = served.watches.watch(request).await.unwrap_err();
    let expected = [
        "history_id",
        "filters[0]",
        "filters[1]",
        "filters[2]",
        "progress_interval",
        "after_version",
    ];
    assert_eq!(fields(&error), expected);

    for (request, field) in [
        (WatchRequest { snapshot: 9, ..watch(0) }, "snapshot"),
        (WatchRequest { filters: vec![prefix("a"); 65], ..watch(0) }, "filters"),
        (
            WatchRequest {
                progress_interval: Some(prost_types::Duration { seconds: 3_601, nanos: 0 }),
                ..watch(0)
            },
            "progress_interval",
        ),
    ] {
        assert_eq!(fields(&served.watches.watch(request).await.unwrap_err()), [field]);
    }
    let request = WatchRequest { filters: vec![prefix("a"); 64], ..watch(0) };
    served.watches.watch(request).await.unwrap();
}

#[tokio::test]
async fn a_server_that_drains_ends_its_watches_at_once_with_where_to_go_on() {
    let mut served = Served::new(quiet()).await;
    served.rig.writer.put("k", "1").await;
    let mut stream = served.watches.watch(watch(0)).await.unwrap().into_inner();
    assert_eq!(change(&mut stream).await.version, 1);

    served.stop.cancel();

    let status = news(&mut stream).await.unwrap_err();
    assert_eq!(
        (status.code(), reason(&status).as_str()),
        (Code::Unavailable, reason::SHUTTING_DOWN)
    );
    assert_eq!(metadata(&status, reason::RESUME_AFTER_VERSION), "1");
    assert!(status.get_details_retry_info().is_some());
}

#[tokio::test]
async fn a_watch_ends_with_its_callers_deadline_and_says_so_itself() {
    let mut served = Served::new(quiet()).await;
    let mut request = Request::new(watch(0));
    request.set_timeout(Duration::from_secs(2));
    let mut stream = served.watches.watch(request).await.unwrap().into_inner();

    let status = news(&mut stream).await.unwrap_err();

    assert_eq!(
        (status.code(), reason(&status).as_str()),
        (Code::DeadlineExceeded, reason::EXPIRED)
    );
    assert_eq!(metadata(&status, reason::RESUME_AFTER_VERSION), "0");
}

#[tokio::test]
async fn a_caller_that_goes_away_leaves_nothing_behind() {
    let mut served = Served::new(quiet()).await;
    let mut streams = Vec::new();
    for _ in 0..10 {
        streams.push(served.watches.watch(watch(0)).await.unwrap().into_inner());
    }
    let name = served.rig.writer.head.history.clone();
    let watchers = |served: &Served| served.rig.replica.watch_figures(&name).unwrap().watchers;
    assert_eq!(watchers(&served), 10);

    streams.truncate(4);

    let gone = async {
        while watchers(&served) != 4 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(PATIENCE, gone).await.expect("a cancelled watch ends");
}

#[tokio::test]
async fn refusals_are_said_as_the_contract_has_them() {
    let mut served = Served::new(ReplicaConfig { watchers_max: 1, ..quiet() }).await;
    served.rig.writer.put_versions(4, 1).await;
    served.rig.writer.compact_and_sweep().await;

    let status = served.watches.watch(watch(3)).await.unwrap_err();
    assert_eq!(
        (status.code(), reason(&status).as_str()),
        (Code::OutOfRange, reason::VERSION_RETIRED)
    );
    assert_eq!(metadata(&status, reason::OLDEST_VERSION), "4");

    let _stream = served.watches.watch(watch(4)).await.unwrap();
    let status = served.watches.watch(watch(4)).await.unwrap_err();
    assert_eq!(
        (status.code(), reason(&status).as_str()),
        (Code::ResourceExhausted, reason::QUEUE_FULL)
    );
    assert!(status.get_details_retry_info().is_some());
}

/// HTTP/2 windows and the messages that wait are all that is sent to a caller
/// that does not read; other calls on its connection go on.
#[tokio::test]
async fn a_slow_caller_is_held_back_by_flow_control_and_told_so_behind_what_it_was_sent() {
    let mut served = Served::new(ReplicaConfig { watch_stall_ms: 300, ..quiet() }).await;
    let mut stream = served.watches.watch(watch(0)).await.unwrap().into_inner();
    for _ in 0..20 {
        served.rig.writer.put_versions(20, 50_000).await;
        served.rig.writer.fold_and_sweep().await;
        served.rig.tell();
    }
    let name = served.rig.writer.head.history.clone();
    let ended = async {
        while served.rig.replica.watch_figures(&name).unwrap().watchers != 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(PATIENCE, ended).await.expect("the slow watch is ended");
    let get = GetRequest { history: "h".into(), key: "k00".into(), ..Default::default() };
    timeout(PATIENCE, served.client.get(get)).await.unwrap().unwrap();

    let mut seen = 0;
    let status = loop {
        match news(&mut stream).await {
            Ok(told) => {
                seen += 1;
                assert_eq!(told.resume_after_version, seen);
            }
            Err(status) => break status,
        }
    };
    assert!((1..400).contains(&seen), "{seen}");
    assert_eq!((status.code(), reason(&status).as_str()), (Code::Aborted, reason::WATCHER_SLOW));
    assert_eq!(metadata(&status, reason::RESUME_AFTER_VERSION), seen.to_string());

    let mut again = served.watches.watch(watch(seen)).await.unwrap().into_inner();
    for version in seen + 1..=400 {
        assert_eq!(change(&mut again).await.version, version);
    }
}
