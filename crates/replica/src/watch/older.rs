//! Changes that the feed does not hold, read from the store for everybody who
//! is as far behind.

use std::sync::Arc;

use headwater_core::head::{ChangeBody, Head};
use headwater_core::version::StateVersion;
use headwater_state::StateError;
use tokio::time::{Instant, timeout_at};

use super::feed::Run;
use crate::failure::ReadFailure;
use crate::follower::{Follower, PinError};
use crate::local::Pinned;

/// Changes that the head names one by one and that are read together: as many,
/// or so many bytes.
const CHANGES_AT_ONCE: usize = 64;
const BYTES_AT_ONCE: u64 = 1 << 20;

/// How often changes may be folded or swept under a read before it gives up.
const HEADS_MAX: usize = 3;

/// The run with the change that leads to `version`, which is no newer than what
/// the follower has come to.
///
/// Runs begin and end where the head says, not where whoever asks happens to
/// be: so those that are behind by different amounts share them.
pub(super) async fn run_with(
    follower: &Follower,
    version: StateVersion,
    deadline: Instant,
) -> Result<Arc<Run>, ReadFailure> {
    let feed = follower.shared().feed();
    let _turn = feed.turn_to_read().await;
    if let Some(run) = feed.find_run(version) {
        return Ok(run);
    }
    let mut pinned = follower.pin_any(deadline).await.map_err(|it| ended(follower, it))?;
    for _ in 0..HEADS_MAX {
        let head = pinned.head();
        let Some((from, to)) = bounds(head, version) else {
            let wanted = StateVersion::new(version.get().saturating_sub(1));
            return Err(retired(head, wanted));
        };
        let mut part = (**head).clone();
        part.segments.retain(|it| from <= it.from && it.to <= to);
        part.changes.retain(|it| from <= it.version && it.version <= to);
        let read = follower.shared().loader().read_changes(&part, from, usize::MAX);
        let missing = match timeout_at(deadline, read).await {
            Ok(Ok(changes)) => {
                let run = Arc::new(Run::new(changes));
                feed.keep_run(&run);
                return Ok(run);
            }
            Ok(Err(StateError::Missing { key })) => key,
            Ok(Err(error)) => return Err(ReadFailure::of_state(error)),
            Err(_) => return Err(ReadFailure::Expired { detail: "fetching changes" }),
        };
        let again = follower.pin_after_missing(&pinned, missing, deadline).await;
        pinned = again.map_err(|it| ended(follower, it))?;
    }
    Err(ReadFailure::Expired { detail: "changes were swept while they were fetched" })
}

/// Whether the changes after `after` are gone, before anybody waits for them.
pub(super) fn check_retired(
    follower: &Follower,
    pinned: &Pinned,
    after: StateVersion,
) -> Result<(), ReadFailure> {
    let feed = follower.shared().feed();
    let version = after.next();
    let is_there = pinned.version() < version
        || feed.find_live(version).is_some()
        || feed.find_run(version).is_some()
        || bounds(pinned.head(), version).is_some();
    if is_there { Ok(()) } else { Err(retired(pinned.head(), after)) }
}

/// `oldest` is what a watch may begin after, and a read may ask for.
fn retired(head: &Head, wanted: StateVersion) -> ReadFailure {
    let (oldest, newest) = (head.snapshot.version, head.state_version);
    ReadFailure::VersionRetired { wanted, oldest, newest }
}

/// The follower has nothing to give.
pub(super) fn ended(follower: &Follower, error: PinError) -> ReadFailure {
    match error {
        PinError::Failure(failure) => failure,
        PinError::Ended | PinError::Replaced { .. } => gone(follower),
    }
}

pub(super) fn gone(follower: &Follower) -> ReadFailure {
    let detail = format!("{} was deleted while it was watched", follower.shared().history());
    ReadFailure::HistoryMissing { detail }
}

/// First and last version of what is read together with `version`: a segment,
/// or a part of the changes that the head names one by one, cut the same way
/// for everybody who has this head. `None` before the tail.
fn bounds(head: &Head, version: StateVersion) -> Option<(StateVersion, StateVersion)> {
    if let Some(run) = head.segments.iter().find(|it| it.from <= version && version <= it.to) {
        return Some((run.from, run.to));
    }
    let mut rest = head.changes.as_slice();
    while let Some(first) = rest.first() {
        let (mut count, mut size_bytes) = (0, 0);
        for change in rest.iter().take(CHANGES_AT_ONCE) {
            size_bytes += match &change.body {
                ChangeBody::Inline(bytes) => bytes.len() as u64,
                ChangeBody::Staged(object) => object.size_bytes,
            };
            if BYTES_AT_ONCE < size_bytes && 0 < count {
                break;
            }
            count += 1;
        }
        let (part, after) = rest.split_at(count);
        let last = part.last().map_or(first.version, |it| it.version);
        if first.version <= version && version <= last {
            return Some((first.version, last));
        }
        rest = after;
    }
    None
}
