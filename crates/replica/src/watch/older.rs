//! Changes that the feed does not hold, read from the store for everybody who
//! is as far behind.

use std::sync::Arc;

use headwater_core::head::Head;
use headwater_core::version::StateVersion;
use headwater_state::StateError;
use tokio::time::{Instant, timeout_at};

use super::feed::Run;
use crate::changes::Together;
use crate::failure::ReadFailure;
use crate::follower::{Follower, Missing, PinError};
use crate::local::Pinned;

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
        let missing = match timeout_at(deadline, read(follower, &pinned, version)).await {
            Ok(Ok(Some(run))) => {
                let run = Arc::new(run);
                feed.keep_run(&run);
                return Ok(run);
            }
            Ok(Ok(None)) => {
                let after = StateVersion::new(version.get().saturating_sub(1));
                return Err(retired(pinned.head(), after));
            }
            Ok(Err(StateError::Missing { key })) => key,
            Ok(Err(error)) => return Err(ReadFailure::of_state(error)),
            Err(_) => return Err(ReadFailure::Expired { detail: "fetching changes" }),
        };
        let again = follower.pin_after_missing(&pinned, missing, Missing::Named, deadline).await;
        pinned = again.map_err(|it| ended(follower, it))?;
    }
    Err(ReadFailure::Expired { detail: "changes were swept while they were fetched" })
}

async fn read(
    follower: &Follower,
    pinned: &Pinned,
    version: StateVersion,
) -> Result<Option<Run>, StateError> {
    let loader = follower.shared().loader();
    let Some(together) = Together::with(loader, pinned.head(), version).await? else {
        return Ok(None);
    };
    Ok(Some(Run::new(together.read(loader, pinned.head()).await?)))
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
        || pinned.head().retained_from() < version
        || feed.find_live(version).is_some()
        || feed.find_run(version).is_some();
    if is_there { Ok(()) } else { Err(retired(pinned.head(), after)) }
}

/// `oldest` is what a watch may begin after, and a read may ask for.
fn retired(head: &Head, wanted: StateVersion) -> ReadFailure {
    let (oldest, newest) = (head.retained_from(), head.state_version);
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
    follower.shared().end("watched")
}
