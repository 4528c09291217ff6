//! Watching, in this process and under a stopped clock.

mod ends;
mod order;
mod previous;
mod progress;
mod sharing;
mod slow;
mod snapshot;

use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt as _;
use headwater_core::change::Resolved;
use headwater_core::operation::KeyRange;
use headwater_core::version::StateVersion;
use headwater_replica::{
    KeyFilter, ReadFailure, SnapshotMode, Watch, WatchEnd, WatchEvent, WatchFailure, WatchMessage,
    WatchOptions,
};
use headwater_state::Entry;
use tokio::time::timeout;

use crate::bucket::{PATIENCE, Rig, deadline, version};

/// Everything, from a version or from now, without any extras.
pub(crate) fn after(number: impl Into<Option<u64>>) -> WatchOptions {
    WatchOptions {
        after: number.into().map(StateVersion::new),
        filter: KeyFilter::everything(),
        previous_values: false,
        progress: Duration::from_secs(10),
        snapshot: SnapshotMode::Never,
    }
}

pub(crate) fn range(start: &str, end: &str) -> KeyRange {
    let end = (!end.is_empty()).then(|| Bytes::copy_from_slice(end.as_bytes()));
    KeyRange::new(Bytes::copy_from_slice(start.as_bytes()), end).unwrap()
}

pub(crate) async fn begin(rig: &Rig, options: WatchOptions) -> Watch {
    rig.reader().watch(options, deadline()).await.unwrap()
}

/// The next thing that is told.
pub(crate) async fn next(watch: &mut Watch) -> Result<WatchMessage, WatchEnd> {
    let told = timeout(PATIENCE, watch.next()).await.expect("something is told");
    told.expect("an end is told before the stream ends")
}

/// The next thing that is not progress. A watch that has nothing else to tell
/// for so long will not have: the clock is stopped, and runs on to the next one.
pub(crate) async fn news(watch: &mut Watch) -> Result<WatchMessage, WatchEnd> {
    for _ in 0..100 {
        match next(watch).await {
            Ok(WatchMessage { event: WatchEvent::Progress { .. }, .. }) => {}
            told => return told,
        }
    }
    panic!("nothing but progress")
}

/// The next versions, each whole, told in one part, and the place to go on from.
pub(crate) async fn versions(watch: &mut Watch, count: usize) -> Vec<u64> {
    let mut versions = Vec::with_capacity(count);
    while versions.len() < count {
        let told = news(watch).await.unwrap();
        let WatchEvent::Change(change) = told.event else { panic!("{told:?}") };
        assert!(!change.is_continued);
        assert_eq!(told.resume_after, change.version);
        versions.push(change.version.get());
    }
    versions
}

/// One line for each mutation of the next version, with what was there before.
pub(crate) async fn lines(watch: &mut Watch) -> Vec<String> {
    let mut lines = Vec::new();
    loop {
        let told = news(watch).await.unwrap();
        let WatchEvent::Change(change) = told.event else { panic!("{told:?}") };
        for it in change.mutations {
            let what = match it.kind {
                Resolved::Put(key, value) => format!("put {key}={}", value.escape_ascii()),
                Resolved::Delete(key) => format!("delete {key}"),
                Resolved::DeleteRange(range) => format!("delete {range:?}"),
            };
            let before: Vec<String> = it.previous.iter().map(shown).collect();
            lines.push(format!("{what} [{}]", before.join(" ")));
        }
        if !change.is_continued {
            return lines;
        }
        let before = version(change.version.get() - 1);
        assert_eq!(told.resume_after, before, "a part is not the version");
    }
}

pub(crate) fn shown(entry: &Entry) -> String {
    format!("{}={}@{}", entry.key, entry.value.escape_ascii(), entry.version.get())
}

/// How it ended, and the version to go on after.
pub(crate) async fn end(watch: &mut Watch) -> (WatchFailure, u64) {
    let WatchEnd { why, resume_after } = news(watch).await.unwrap_err();
    assert!(timeout(PATIENCE, watch.next()).await.unwrap().is_none(), "nothing after the end");
    (why, resume_after.get())
}

/// What a watch that must not begin fails with.
pub(crate) async fn refused(rig: &Rig, options: WatchOptions) -> WatchFailure {
    rig.reader().watch(options, deadline()).await.unwrap_err()
}

pub(crate) fn read_failure(failure: WatchFailure) -> ReadFailure {
    match failure {
        WatchFailure::Read(failure) => failure,
        other @ (WatchFailure::Slow { .. }
        | WatchFailure::Expired
        | WatchFailure::TooMany { .. }) => panic!("{other:?}"),
    }
}

impl Rig {
    /// Tells the replica of the writer's head, as a writer would.
    pub(crate) fn tell(&self) {
        let head = &self.writer.head;
        self.replica.notice(&head.history, head.history_id, head.revision);
    }
}
