//! Versions that no view is kept of, made again from the tail, and views whose
//! snapshot was swept.

use headwater_core::keys::{ObjectKey, ObjectKind};
use headwater_core::version::StateVersion;
use headwater_state::StateError;
use tokio::time::{Instant, timeout_at};

use super::{Follower, PinError, lock};
use crate::failure::ReadFailure;
use crate::local::Pinned;

/// How often a snapshot may be swept under a read before it is told so.
const SNAPSHOTS_MAX: usize = 3;

impl Follower {
    /// The view of a version before that of `pinned`, which is not kept: made
    /// from the snapshot and the tail of the head that `pinned` was made from.
    pub(super) async fn pin_older(
        &self,
        mut pinned: Pinned,
        version: StateVersion,
        deadline: Instant,
    ) -> Result<Pinned, PinError> {
        let expired =
            |_| PinError::Failure(ReadFailure::Expired { detail: "making an older version" });
        let permit = timeout_at(deadline, self.shared.older.acquire()).await.map_err(expired)?;
        let _permit = permit.map_err(|_| PinError::Ended)?;
        for _ in 0..SNAPSHOTS_MAX {
            // Somebody who waited in front may have made it.
            if let Some(view) = self.shared.kept(version) {
                return Ok(pinned.with_view(view));
            }
            if version < pinned.head().snapshot.version {
                return Err(PinError::Failure(self.retired(version, &pinned)));
            }
            let made = self.shared.loader.open_at(pinned.head(), version);
            match timeout_at(deadline, made).await.map_err(expired)? {
                Ok(view) => {
                    lock(&self.shared.scans).keep(view.clone());
                    return Ok(pinned.with_view(view));
                }
                Err(StateError::Missing { key }) => {
                    pinned = self.pin_after_missing(&pinned, key, deadline).await?;
                }
                Err(error) => return Err(PinError::Failure(ReadFailure::of_state(error))),
            }
        }
        Err(PinError::Failure(self.retired(version, &pinned)))
    }

    /// The same version as `pinned` once an object below it was found missing:
    /// over the snapshot of a head that is current.
    pub(crate) async fn pin_again(
        &self,
        pinned: &Pinned,
        missing: String,
        deadline: Instant,
    ) -> Result<Pinned, PinError> {
        let version = pinned.version();
        let fresh = self.pin_after_missing(pinned, missing, deadline).await?;
        let (oldest, newest) = (fresh.head().snapshot.version, fresh.head().state_version);
        if version < oldest {
            // A view that is kept is of no use where its snapshot was swept.
            let failure = ReadFailure::VersionRetired { wanted: version, oldest, newest };
            return Err(PinError::Failure(failure));
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
        deadline: Instant,
    ) -> Result<Pinned, PinError> {
        let fresh = self.pin_fresh(deadline).await?;
        let history = self.shared.history();
        // Chunks and pages are named by the snapshot, everything else by the
        // head.
        let is_needed = if is_part(&missing) {
            fresh.view().snapshot() == pinned.view().snapshot()
        } else {
            fresh.head().references().any(|it| history.object_key(&it.key) == missing)
        };
        if is_needed {
            let detail = "it is missing, and the current head needs it";
            return Err(PinError::Failure(ReadFailure::bad(missing, detail)));
        }
        Ok(fresh)
    }

    fn retired(&self, wanted: StateVersion, pinned: &Pinned) -> ReadFailure {
        let newest = pinned.head().state_version;
        let oldest = self.shared.oldest().unwrap_or(newest);
        ReadFailure::VersionRetired { wanted, oldest, newest }
    }
}

/// Whether this is the key of a part of a snapshot, below whatever history: a
/// fork reads those of its parent.
fn is_part(key: &str) -> bool {
    let object = key.rmatch_indices('/').nth(1).and_then(|(at, _)| key.get(at + 1..));
    let object = object.and_then(|it| ObjectKey::parse(it).ok());
    object.is_some_and(|it| it.kind() == ObjectKind::Chunk)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_of_a_snapshot_is_known_below_any_history() {
        let hash = "0".repeat(64);
        for (folder, expected) in [("chunks", true), ("snapshots", false), ("segments", false)] {
            let object = format!("{folder}/00000000000000000007-{hash}");
            assert_eq!(is_part(&format!("a/b/{object}")), expected, "{object}");
            assert_eq!(is_part(&format!("a/{object}")), expected, "{object}");
        }
        assert!(!is_part("a/head.json"));
    }
}
