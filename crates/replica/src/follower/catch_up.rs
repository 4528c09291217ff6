//! From the bytes of a head to a view of what it stands for, or to the reason
//! why it is not followed.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use headwater_core::follow::{FollowError, Position};
use headwater_core::format::head::{self, HeadDecodeError};
use headwater_core::head::Head;
use headwater_core::id::{HistoryId, Tag};
use headwater_daemon::telemetry::with_causes;
use headwater_state::{Advanced, LoadedChange, Loader, Opened, StateError, View};
use headwater_store::HeadRead;

use crate::failure::ReadFailure;
use crate::local::Local;

/// How many heads in a row may have been overtaken while their objects were
/// fetched. Compaction makes a head useless seldom, and never often in a row.
const HEADS_MAX: usize = 4;

/// Why a check proved nothing.
#[derive(Clone, Debug)]
pub(crate) enum CheckFailure {
    /// The name has no history any more.
    Gone {
        /// What was found.
        detail: &'static str,
    },
    /// The name belongs to another history now.
    Replaced {
        /// Its id.
        found: HistoryId,
    },
    /// The head does not go on from the local one.
    Contradicts(ReadFailure),
    /// What is stored cannot be served, or not by this process. Trying again at
    /// once would not help.
    Refused(ReadFailure),
    /// The store did not answer.
    Unavailable {
        /// What happened.
        detail: String,
        /// How long the store asked to be left alone, if it said.
        retry_after: Option<Duration>,
    },
}

/// A head that the store returned.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) bytes: Bytes,
    pub(super) tag: Tag,
    /// How far a follower that is gone had come before this was read.
    pub(super) seen: Option<Position>,
}

/// What became of a head that was found.
#[derive(Debug)]
pub(super) enum Verdict {
    /// It is older than the local one, which another check has found meanwhile.
    Overtaken,
    /// It was followed.
    CaughtUp(CaughtUp),
}

/// A head that was followed.
#[derive(Debug)]
pub(super) struct CaughtUp {
    pub(super) local: Local,
    /// The views on the way, with the size of the change that led to each;
    /// none when there were too many of them, or a gap.
    pub(super) on_the_way: Vec<(View, u64)>,
    /// What is new, oldest first.
    pub(super) changes: Vec<LoadedChange>,
}

/// Follows `found` from `local`; opens it where that is `None`.
///
/// `may_be_overtaken`: the check began before the local head was seen, so it
/// may have read an older one.
pub(super) async fn catch_up(
    loader: Loader,
    local: Option<Arc<Local>>,
    found: Found,
    may_be_overtaken: bool,
    views_max: usize,
) -> Result<Verdict, CheckFailure> {
    let key = loader.history().head_key();
    let Found { mut bytes, mut tag, seen } = found;
    for _ in 0..HEADS_MAX {
        let head = decode(&loader, &bytes)?;
        let missing = match advance(&loader, local.as_deref(), seen.as_ref(), &head).await {
            Ok(advanced) => {
                let on_the_way = on_the_way(local.as_deref(), &advanced, views_max);
                let Advanced { view, changes, .. } = advanced;
                let local = Local { view, head: Arc::new(head), head_json: bytes, tag };
                return Ok(Verdict::CaughtUp(CaughtUp { local, on_the_way, changes }));
            }
            // A later check saw the local head, and this one read before that:
            // two answers that passed each other. Going back is an accusation,
            // and needs a read that began after the local head was seen.
            Err(StateError::Follow(FollowError::WentBack { seen, found, .. }))
                if may_be_overtaken && found < seen =>
            {
                return Ok(Verdict::Overtaken);
            }
            Err(StateError::Missing { key }) => key,
            Err(error) => return Err(failure_of(&key, error)),
        };
        // Compaction and sweep may have passed between the head and its
        // objects. Only a head that is current proves that data is lost.
        match loader.store().read_head(&key, Some(&tag)).await {
            Ok(HeadRead::Unchanged) => {
                let detail = "it is missing, and the current head needs it";
                return Err(CheckFailure::Refused(ReadFailure::bad(missing, detail)));
            }
            Ok(HeadRead::Found { bytes: newer, tag: newer_tag }) => {
                tracing::debug!(key = missing, "the head was overtaken while it was followed");
                (bytes, tag) = (newer, newer_tag);
            }
            Ok(HeadRead::Missing) => return Err(GONE),
            Err(error) => return Err(failure_of_store(&Arc::new(error))),
        }
    }
    let detail = "heads were replaced faster than their objects could be fetched".into();
    Err(CheckFailure::Unavailable { detail, retry_after: None })
}

/// There is no head.
pub(super) const GONE: CheckFailure = CheckFailure::Gone { detail: "it has no head" };

fn decode(loader: &Loader, bytes: &[u8]) -> Result<Head, CheckFailure> {
    let key = loader.history().head_key();
    let head = head::decode(bytes).map_err(|error| {
        CheckFailure::Refused(match error {
            HeadDecodeError::TooNew { found } => ReadFailure::FormatTooNew { key, format: found },
            HeadDecodeError::Malformed(_)
            | HeadDecodeError::Hash { .. }
            | HeadDecodeError::Id { .. }
            | HeadDecodeError::Address(_)
            | HeadDecodeError::Pin { .. }
            | HeadDecodeError::Name(_)
            | HeadDecodeError::Key(_)
            | HeadDecodeError::Inline { .. }
            | HeadDecodeError::Invariant(_) => ReadFailure::bad(key, with_causes(&error)),
        })
    })?;
    if head.history != *loader.history() {
        let detail = format!("it is the head of {}", head.history);
        let failure = ReadFailure::bad(loader.history().head_key(), detail);
        return Err(CheckFailure::Refused(failure));
    }
    if head.is_retired() {
        return Err(CheckFailure::Gone { detail: "it is being deleted" });
    }
    Ok(head)
}

async fn advance(
    loader: &Loader,
    local: Option<&Local>,
    seen: Option<&Position>,
    head: &Head,
) -> Result<Advanced, StateError> {
    if let Some(local) = local {
        return loader.advance(&local.view, &local.position(), head).await;
    }
    let Opened { view, changes } = loader.open_after(head, seen).await?;
    Ok(Advanced { view, changes, reopened: true })
}

/// The views between the local one and the new one, oldest first.
fn on_the_way(local: Option<&Local>, advanced: &Advanced, views_max: usize) -> Vec<(View, u64)> {
    let Some(local) = local.filter(|_| !advanced.reopened) else { return Vec::new() };
    let Some((_, between)) = advanced.changes.split_last() else { return Vec::new() };
    // Of more than can be kept none is made: applying a long tail twice would
    // hold up those who wait for its end.
    if views_max <= between.len() {
        return Vec::new();
    }
    let mut view = local.view.clone();
    let step = |it: &LoadedChange| {
        view = view.apply(&it.change, it.hash);
        (view.clone(), it.bytes.len() as u64)
    };
    between.iter().map(step).collect()
}

pub(super) fn failure_of_store(error: &Arc<headwater_store::ReadError>) -> CheckFailure {
    if error.is_transient() {
        let detail = with_causes(&**error);
        CheckFailure::Unavailable { detail, retry_after: error.retry_after() }
    } else {
        CheckFailure::Refused(ReadFailure::of_store(error))
    }
}

fn failure_of(head_key: &str, error: StateError) -> CheckFailure {
    match error {
        StateError::Store(error) => failure_of_store(&error),
        StateError::Follow(FollowError::Replaced { found }) => CheckFailure::Replaced { found },
        StateError::Follow(
            error @ (FollowError::WentBack { .. } | FollowError::ChainBroken { .. }),
        ) => CheckFailure::Contradicts(ReadFailure::bad(head_key, error)),
        StateError::Missing { .. } | StateError::Bad { .. } | StateError::TooNew { .. } => {
            CheckFailure::Refused(ReadFailure::of_state(error))
        }
    }
}
