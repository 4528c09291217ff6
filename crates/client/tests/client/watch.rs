//! Watches: going on elsewhere, putting versions together, and what is refused.

use std::time::Duration;

use headwater_client::{
    KeyRange, ReadError, Session, SnapshotMode, Watch, WatchError, WatchEvent, WatchOptions,
    WatchedKind,
};
use headwater_proto::reason;
use headwater_proto::v1::key_filter::Keys;
use headwater_proto::v1::watch_request::SnapshotMode as WireMode;
use headwater_proto::v1::watch_response::Event;
use headwater_proto::v1::watched_mutation::Kind;
use headwater_proto::v1::{
    Entry, SnapshotBegin, SnapshotEnd, SnapshotEntries, WatchProgress, WatchRequest, WatchResponse,
    WatchedChange, WatchedMutation,
};
use tokio::time::Instant;
use tonic::{Code, Status};

use crate::fake::{Deployment, HISTORY, HISTORY_ID, Watched, WatchedEnd, address, refusal};

fn message(resume_after_version: u64, event: Event) -> WatchResponse {
    WatchResponse { history_id: HISTORY_ID.to_owned(), resume_after_version, event: Some(event) }
}

fn entry(key: &str, version: u64) -> Entry {
    Entry { key: key.to_owned().into(), value: "v".into(), version }
}

fn part(version: u64, key: &str, continued: bool) -> WatchResponse {
    let mutation = WatchedMutation {
        operation_id: format!("op-{version}"),
        kind: Some(Kind::Put(entry(key, version))),
        previous: Vec::new(),
    };
    let change = WatchedChange { version, mutations: vec![mutation], continued };
    message(version - u64::from(continued), Event::Change(change))
}

fn whole(version: u64) -> WatchResponse {
    part(version, "k", false)
}

fn progress(version: u64) -> WatchResponse {
    progress_of(version, Some(prost_types::Duration::default()))
}

fn progress_of(version: u64, proof_age: Option<prost_types::Duration>) -> WatchResponse {
    message(version, Event::Progress(WatchProgress { newest_version: version, proof_age }))
}

fn begin(resume_after: u64, version: u64) -> WatchResponse {
    message(resume_after, Event::SnapshotBegin(SnapshotBegin { version }))
}

fn entries(resume_after: u64, key: &str) -> WatchResponse {
    let entries = vec![entry(key, 1)];
    message(resume_after, Event::SnapshotEntries(SnapshotEntries { entries }))
}

fn end(version: u64) -> WatchResponse {
    message(version, Event::SnapshotEnd(SnapshotEnd { version }))
}

fn lost() -> WatchedEnd {
    WatchedEnd::Status(Status::unknown("the connection broke"))
}

fn script(
    deployment: &Deployment,
    watches: impl IntoIterator<Item = (Vec<WatchResponse>, WatchedEnd)>,
) {
    let watches = watches.into_iter().map(|(messages, end)| Watched { messages, end });
    deployment.shared().watch_script.extend(watches);
}

fn session(deployment: &Deployment) -> Session {
    deployment.client().session(HISTORY)
}

fn after(version: u64) -> WatchOptions {
    WatchOptions { after: Some(version), ..WatchOptions::default() }
}

async fn version(watch: &mut Watch) -> (u64, Vec<String>) {
    let event = watch.next().await.unwrap();
    let WatchEvent::Version { version, mutations } = event else { panic!("{event:?}") };
    let keys = mutations.into_iter().map(|it| match it.kind {
        WatchedKind::Put(entry) => String::from_utf8(entry.key.to_vec()).unwrap(),
        WatchedKind::Delete(_) | WatchedKind::DeleteRange(_) => panic!(),
    });
    (version, keys.collect())
}

fn requests(deployment: &Deployment) -> Vec<WatchRequest> {
    deployment.shared().watches.iter().map(|it| it.1.clone()).collect()
}

fn positions(deployment: &Deployment) -> Vec<Option<u64>> {
    requests(deployment).iter().map(|it| it.after_version).collect()
}

#[tokio::test(start_paused = true)]
async fn a_watch_goes_on_after_the_last_whole_version_elsewhere() {
    let deployment = Deployment::of(2);
    script(
        &deployment,
        [
            (vec![progress(0), whole(1), part(2, "lost", true)], lost()),
            (vec![part(2, "a", true), part(2, "b", true), part(2, "c", false)], WatchedEnd::Ended),
            (vec![progress(5), whole(7)], WatchedEnd::Silent),
        ],
    );
    let mut watch = session(&deployment).watch(after(0));

    assert!(matches!(watch.next().await.unwrap(), WatchEvent::Progress { .. }));
    assert_eq!(version(&mut watch).await, (1, vec!["k".to_owned()]));
    assert_eq!(version(&mut watch).await, (2, ["a", "b", "c"].map(str::to_owned).to_vec()));
    assert!(matches!(watch.next().await.unwrap(), WatchEvent::Progress { newest_version: 5, .. }));
    assert_eq!(version(&mut watch).await.0, 7);

    assert_eq!(positions(&deployment), [Some(0), Some(1), Some(2)]);
    let token = watch.position().unwrap();
    assert_eq!((token.history_id.as_str(), token.state_version), (HISTORY_ID, 7));
    let requests = requests(&deployment);
    assert_eq!(
        (requests[0].history_id.as_str(), requests[1].history_id.as_str()),
        ("", HISTORY_ID)
    );
    let servers: Vec<_> = deployment.shared().watches.iter().map(|it| it.0).collect();
    assert_ne!(servers[0], servers[1]);
}

#[tokio::test(start_paused = true)]
async fn a_watch_from_now_goes_on_from_what_the_first_message_said() {
    let deployment = Deployment::of(1);
    script(
        &deployment,
        [(vec![], lost()), (vec![progress(4)], lost()), (vec![whole(5)], WatchedEnd::Silent)],
    );
    let mut watch = session(&deployment).watch(WatchOptions::default());
    assert_eq!(watch.position(), None);

    watch.next().await.unwrap();
    assert_eq!(version(&mut watch).await.0, 5);

    assert_eq!(positions(&deployment), [None, None, Some(4)]);
}

#[tokio::test(start_paused = true)]
async fn a_draining_replica_is_left_at_once_and_a_slow_reader_comes_back() {
    let deployment = Deployment::of(2);
    let drains = refusal(reason::SHUTTING_DOWN, Code::Unavailable, Some(Duration::ZERO));
    let slow = refusal(reason::WATCHER_SLOW, Code::Aborted, Some(Duration::ZERO));
    script(
        &deployment,
        [
            (vec![whole(1)], WatchedEnd::Status(drains)),
            (vec![whole(2)], WatchedEnd::Status(slow)),
            (vec![whole(3)], WatchedEnd::Silent),
        ],
    );
    let mut watch = session(&deployment).watch(after(0));
    let began = Instant::now();
    for expected in 1..=3 {
        assert_eq!(version(&mut watch).await.0, expected);
    }
    assert!(began.elapsed() < Duration::from_millis(10), "{:?}", began.elapsed());
    let servers: Vec<_> = deployment.shared().watches.iter().map(|it| it.0).collect();
    assert_ne!(servers[0], servers[1]);
    assert_eq!(servers[1], servers[2], "the one that drains is put aside");
}

#[tokio::test(start_paused = true)]
async fn a_silent_connection_is_given_up_and_one_that_is_cut_is_made_again() {
    let deployment = Deployment::of(1);
    script(
        &deployment,
        [
            (vec![whole(1)], WatchedEnd::Silent),
            (vec![whole(2)], WatchedEnd::Silent),
            (vec![whole(3)], WatchedEnd::Silent),
        ],
    );
    let options = WatchOptions { progress_interval: Duration::from_secs(3), ..after(0) };
    let mut watch = session(&deployment).watch(options);
    assert_eq!(version(&mut watch).await.0, 1);
    let began = Instant::now();
    assert_eq!(version(&mut watch).await.0, 2);
    let waited = began.elapsed();
    assert!(Duration::from_secs(11) <= waited && waited < Duration::from_secs(12), "{waited:?}");

    deployment.network.cut(address(1));
    let began = Instant::now();
    assert_eq!(version(&mut watch).await.0, 3);
    assert!(began.elapsed() < Duration::from_secs(1), "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn without_a_replica_it_gives_up_at_the_deadline_and_asked_again_goes_on() {
    let deployment = Deployment::of(1);
    deployment.network.take_down(address(1));
    let session = session(&deployment).with_deadline(Duration::from_secs(20));
    let mut watch = session.watch(after(3));
    let began = Instant::now();

    let error = watch.next().await.unwrap_err();

    assert!(matches!(error, WatchError::Read(ReadError::Expired(_))), "{error:?}");
    assert!(began.elapsed() <= Duration::from_secs(20));
    deployment.start(1);
    script(&deployment, [(vec![whole(4)], WatchedEnd::Silent)]);
    assert_eq!(version(&mut watch).await.0, 4);
    assert_eq!(positions(&deployment), [Some(3)]);
}

/// A replica that takes watches and ends them is not asked for ever, nor fast.
#[tokio::test(start_paused = true)]
async fn connections_that_tell_nothing_are_made_with_pauses_until_the_deadline() {
    let deployment = Deployment::of(1);
    script(&deployment, (0..1_000).map(|_| (vec![], WatchedEnd::Ended)));
    let mut watch = session(&deployment).watch(after(0));
    let began = Instant::now();

    let error = watch.next().await.unwrap_err();

    assert!(matches!(error, WatchError::Read(ReadError::Expired(_))), "{error:?}");
    assert!(began.elapsed() < Duration::from_secs(40), "{:?}", began.elapsed());
    let n_watches = deployment.shared().watches.len();
    assert!((10..100).contains(&n_watches), "{n_watches}");
}

#[tokio::test(start_paused = true)]
async fn what_cannot_get_better_is_told_and_the_position_stays() {
    let deployment = Deployment::of(2);
    let retired = refusal(reason::VERSION_RETIRED, Code::OutOfRange, None);
    let missing = refusal(reason::HISTORY_MISSING, Code::NotFound, None);
    script(
        &deployment,
        [
            (vec![whole(1)], WatchedEnd::Status(retired)),
            (vec![], WatchedEnd::Status(missing)),
            (vec![whole(2)], WatchedEnd::Silent),
        ],
    );
    let mut watch = session(&deployment).watch(after(0));
    assert_eq!(version(&mut watch).await.0, 1);

    let error = watch.next().await.unwrap_err();
    assert!(matches!(error, WatchError::Read(ReadError::VersionRetired(_))), "{error:?}");
    let error = watch.next().await.unwrap_err();
    assert!(matches!(error, WatchError::Read(ReadError::HistoryMissing(_))), "{error:?}");
    assert_eq!(version(&mut watch).await.0, 2);

    assert_eq!(positions(&deployment), [Some(0), Some(1), Some(1)]);
}

#[tokio::test(start_paused = true)]
async fn messages_that_go_back_or_are_out_of_place_are_errors() {
    let other = WatchResponse { history_id: "f".repeat(32), ..whole(2) };
    let wrong_resume = WatchResponse { resume_after_version: 3, ..whole(2) };
    let cases = [
        vec![whole(1), whole(1)],
        vec![whole(2), whole(1)],
        vec![whole(1), progress(0)],
        vec![whole(1), part(2, "k", true), whole(3)],
        vec![whole(1), part(2, "k", true), progress(2)],
        vec![whole(1), wrong_resume],
        vec![whole(1), entries(1, "k")],
        vec![whole(1), end(2)],
        vec![whole(1), begin(1, 5), end(6)],
        vec![whole(1), begin(1, 5), whole(2)],
        vec![whole(1), begin(1, 0)],
        vec![whole(1), other],
    ];
    for messages in cases {
        let deployment = Deployment::of(1);
        let shown = format!("{messages:?}");
        script(&deployment, [(messages, WatchedEnd::Silent)]);
        let mut watch = session(&deployment).watch(after(0));
        watch.next().await.unwrap();
        let mut told = watch.next().await;
        if let Ok(WatchEvent::SnapshotBegin { .. }) = told {
            told = watch.next().await;
        }
        let error = told.expect_err(&shown);
        assert!(
            matches!(error, WatchError::Read(ReadError::Refused(_) | ReadError::HistoryMissing(_))),
            "{error:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_version_over_the_limit_is_named() {
    let deployment = Deployment::of(1);
    script(&deployment, [(vec![part(1, "k", true), part(1, "k", false)], WatchedEnd::Silent)]);
    let options = WatchOptions { version_bytes_max: 3, ..after(0) };

    let error = session(&deployment).watch(options).next().await.unwrap_err();

    assert!(matches!(error, WatchError::VersionTooLarge { version: 1, bytes_max: 3 }), "{error:?}");
}

#[tokio::test(start_paused = true)]
async fn a_state_that_was_cut_off_begins_again_and_is_not_asked_for_twice() {
    let deployment = Deployment::of(2);
    script(
        &deployment,
        [
            (vec![begin(0, 5), entries(0, "a")], lost()),
            (vec![begin(0, 6), entries(0, "a"), entries(0, "b"), end(6)], lost()),
            (vec![whole(7)], WatchedEnd::Silent),
        ],
    );
    let ranges = vec![KeyRange::prefix("a"), KeyRange::new("b", "c")];
    let options = WatchOptions { snapshot: SnapshotMode::First, ranges, ..WatchOptions::default() };
    let mut watch = session(&deployment).watch(options);
    let mut told = Vec::new();
    for _ in 0..7 {
        told.push(match watch.next().await.unwrap() {
            WatchEvent::Version { version, .. } => format!("version {version}"),
            WatchEvent::Progress { .. } => panic!(),
            WatchEvent::SnapshotBegin { version } => {
                assert_eq!(watch.position(), None);
                format!("begin {version}")
            }
            WatchEvent::SnapshotEntries(it) => format!("{} entries", it.len()),
            WatchEvent::SnapshotEnd { version } => format!("end {version}"),
        });
    }

    assert_eq!(
        told,
        ["begin 5", "1 entries", "begin 6", "1 entries", "1 entries", "end 6", "version 7"]
    );
    let requests = requests(&deployment);
    let modes: Vec<_> = requests.iter().map(WatchRequest::snapshot).collect();
    assert_eq!(modes, [WireMode::First, WireMode::First, WireMode::IfRetired]);
    assert_eq!(positions(&deployment), [None, None, Some(6)]);
    let Some(Keys::Range(range)) = &requests[2].filters[0].keys else { panic!() };
    assert_eq!((range.start.as_ref(), range.end.as_ref()), (&b"a"[..], &b"b"[..]));
}

#[tokio::test(start_paused = true)]
async fn progress_of_an_unknown_age_is_no_progress() {
    for age in crate::read::NO_AGES {
        let deployment = Deployment::of(1);
        script(&deployment, [(vec![progress_of(3, age)], WatchedEnd::Silent)]);
        let mut watch = session(&deployment).watch(after(0));

        let error = watch.next().await.unwrap_err();

        assert!(error.to_string().contains("how old its proof is"), "{age:?}: {error}");
    }
}
