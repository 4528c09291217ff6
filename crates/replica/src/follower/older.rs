//! Versions that no view is kept of, made again from the tail or from the
//! archive, and views whose objects were let go of.

use headwater_core::head::ObjectRef;
use headwater_core::version::StateVersion;
use headwater_state::{StateError, View};
use tokio::sync::SemaphorePermit;
use tokio::time::{Instant, timeout_at};

use super::{Follower, PinError, lock};
use crate::failure::ReadFailure;
use crate::local::Pinned;

/// How often objects may be let go of under a read before it is told so.
const HEADS_MAX: usize = 3;

/// What an object was wanted for that is not there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Missing {
    /// The snapshot below the view leads to it: a chunk, or a page of the index.
    BelowView,
    /// The head or its archive names it.
    Named,
}

impl Follower {
    /// The view of a version before that of `pinned`, which is not kept: made
    /// from the nearest snapshot at or below it that the head of `pinned` or its
    /// archive has, and the changes from there on.
    pub(super) async fn pin_older(
        &self,
        pinned: Pinned,
        version: StateVersion,
        deadline: Instant,
    ) -> Result<Pinned, PinError> {
        let _permit = self.turn_to_make(deadline).await?;
        // Somebody who waited in front may have made it.
        if let Some(view) = self.shared.kept(version) {
            return Ok(pinned.with_view(view));
        }
        self.make_older(pinned, version, deadline).await
    }

    /// The same version as `pinned` once an object below it was found missing:
    /// over a snapshot that a current head keeps.
    pub(crate) async fn pin_again(
        &self,
        pinned: &Pinned,
        missing: String,
        deadline: Instant,
    ) -> Result<Pinned, PinError> {
        let version = pinned.version();
        let fresh = self.pin_after_missing(pinned, missing, Missing::BelowView, deadline).await?;
        if version < fresh.head().snapshot.version {
            let _permit = self.turn_to_make(deadline).await?;
            return self.make_older(fresh, version, deadline).await;
        }
        let rebased = self.shared.loader.rebase(pinned.view(), fresh.head());
        match timeout_at(deadline, rebased).await {
            Ok(Ok(view)) => Ok(fresh.with_view(view)),
            Ok(Err(error)) => Err(PinError::Failure(ReadFailure::of_state(error))),
            Err(_) => {
                let detail = "following a compaction";
                Err(PinError::Failure(ReadFailure::Expired { detail }))
            }
        }
    }

    /// A current view, where the object may have been let go of meanwhile. If
    /// it is still needed by what is current, data is lost.
    pub(crate) async fn pin_after_missing(
        &self,
        pinned: &Pinned,
        missing: String,
        part: Missing,
        deadline: Instant,
    ) -> Result<Pinned, PinError> {
        let fresh = self.pin_fresh(deadline).await?;
        let needed = self.is_needed(pinned, &fresh, &missing, part);
        if timeout_at(deadline, needed).await.map_err(expired)? {
            let detail = "it is missing, and the current head needs it";
            return Err(PinError::Failure(ReadFailure::bad(missing, detail)));
        }
        Ok(fresh)
    }

    /// Whether the head of `fresh` keeps what was missing below or beside
    /// `pinned`.
    async fn is_needed(
        &self,
        pinned: &Pinned,
        fresh: &Pinned,
        missing: &str,
        part: Missing,
    ) -> bool {
        let head = fresh.head();
        let snapshot = pinned.view().snapshot();
        let is_it = |it: &ObjectRef| self.shared.history().object_key(&it.key) == missing;
        let is_in_head = match part {
            Missing::BelowView => head.snapshot == *snapshot,
            Missing::Named => head.references().any(is_it),
        };
        if is_in_head || head.archive.is_none() {
            return is_in_head;
        }
        // Without the archive nothing can be said; whoever tries again needs it,
        // and says so.
        let Ok(archive) = self.shared.loader.archive(head).await else { return false };
        match part {
            Missing::BelowView => archive.snapshots.iter().any(|it| it.snapshot == *snapshot),
            Missing::Named => archive.references().any(is_it),
        }
    }

    /// Makes a version again, and keeps it for a while.
    async fn make_older(
        &self,
        mut pinned: Pinned,
        version: StateVersion,
        deadline: Instant,
    ) -> Result<Pinned, PinError> {
        for _ in 0..HEADS_MAX {
            match timeout_at(deadline, self.make(&pinned, version)).await.map_err(expired)? {
                Ok(Some(view)) => {
                    self.shared.recent().replace(&view);
                    lock(&self.shared.scans).keep(view.clone());
                    return Ok(pinned.with_view(view));
                }
                Ok(None) => return Err(PinError::Failure(retired(version, &pinned))),
                Err(StateError::Missing { key }) => {
                    let part = Missing::Named;
                    pinned = self.pin_after_missing(&pinned, key, part, deadline).await?;
                }
                Err(error) => return Err(PinError::Failure(ReadFailure::of_state(error))),
            }
        }
        Err(PinError::Failure(retired(version, &pinned)))
    }

    /// `None` where the head does not keep the version.
    async fn make(
        &self,
        pinned: &Pinned,
        version: StateVersion,
    ) -> Result<Option<View>, StateError> {
        let (loader, head) = (&self.shared.loader, pinned.head());
        if head.snapshot.version <= version {
            return loader.open_at(head, version).await.map(Some);
        }
        if !head.is_retained(version) {
            return Ok(None);
        }
        let archive = loader.archive(head).await?;
        loader.open_archived(head, &archive, version).await
    }

    async fn turn_to_make(&self, deadline: Instant) -> Result<SemaphorePermit<'_>, PinError> {
        let permit = timeout_at(deadline, self.shared.older.acquire()).await.map_err(expired)?;
        permit.map_err(|_| PinError::Ended)
    }
}

/// The version is not kept; the head says which the oldest is. Views that are
/// kept of older ones are of no use where what is below them is gone.
fn retired(wanted: StateVersion, pinned: &Pinned) -> ReadFailure {
    let (oldest, newest) = (pinned.head().retained_from(), pinned.head().state_version);
    ReadFailure::VersionRetired { wanted, oldest, newest }
}

fn expired<T>(_: T) -> PinError {
    PinError::Failure(ReadFailure::Expired { detail: "making an older version" })
}
