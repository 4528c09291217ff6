//! What was there before a mutation.
//!
//! # Invariant
//!
//! - A watcher keeps no state of its own while it keeps up: it shares the views
//!   that the history keeps for exact reads. One that is behind carries a view
//!   along, and takes a new one before that has come far.

use std::mem;

use headwater_core::change::Resolved;
use headwater_core::operation::{Key, KeyRange};
use headwater_core::version::StateVersion;
use headwater_state::{Entry, LoadedChange, Page, Scan, StateError, View};
use tokio::time::{Instant, timeout_at};

use super::older::ended;
use crate::consistency::Consistency;
use crate::failure::ReadFailure;
use crate::follower::Follower;
use crate::local::Pinned;

/// How many versions a view is carried along before another is made. Making one
/// replays the tail; carrying one keeps the snapshot that it began with.
const CARRIED_MAX: u32 = 1_024;

/// How often a snapshot may be swept under a read before it gives up.
const SNAPSHOTS_MAX: usize = 3;

/// Entries that a range deletion removed, in one message.
const PAGE_ENTRIES_MAX: usize = 10_000;

/// The view that one watcher carries along.
#[derive(Debug, Default)]
pub(super) struct Carried(Option<(Pinned, u32)>);

/// The state between two mutations of one version.
#[derive(Debug)]
pub(super) struct Before {
    /// The state before the version.
    pinned: Pinned,
    /// That with what was applied of it so far.
    view: View,
    applied: Vec<Resolved>,
}

impl Carried {
    /// The state before `version`.
    pub(super) async fn before(
        &mut self,
        follower: &Follower,
        version: StateVersion,
        deadline: Instant,
    ) -> Result<Before, ReadFailure> {
        let wanted = StateVersion::new(version.get().saturating_sub(1));
        let carried = self.0.as_ref().filter(|(it, n)| it.version() == wanted && *n < CARRIED_MAX);
        let pinned = match (follower.shared().at_hand(wanted), carried) {
            (Some(pinned), _) => pinned,
            (None, Some((pinned, _))) => pinned.clone(),
            (None, None) => {
                let pinned = follower.pin(Consistency::Exact(wanted), deadline).await;
                pinned.map_err(|it| ended(follower, it))?
            }
        };
        if self.0.as_ref().is_none_or(|(it, _)| it.version() != wanted) {
            self.0 = Some((pinned.clone(), 0));
        }
        let view = pinned.view().clone();
        Ok(Before { pinned, view, applied: Vec::new() })
    }

    /// The watcher goes on behind `change`.
    pub(super) fn passed(&mut self, follower: &Follower, change: &LoadedChange) {
        let Some((pinned, n)) = mem::take(&mut self.0) else { return };
        let is_next = pinned.version().next() == change.version;
        // A view that is kept anyway is to be had again.
        if is_next && n < CARRIED_MAX && follower.shared().at_hand(change.version).is_none() {
            let view = pinned.view().apply(&change.change, change.hash);
            self.0 = Some((pinned.with_view(view), n + 1));
        }
    }
}

impl Before {
    /// The entry at `key`.
    pub(super) async fn entry(
        &mut self,
        follower: &Follower,
        key: &Key,
        deadline: Instant,
    ) -> Result<Option<Entry>, ReadFailure> {
        if let Some(entry) = self.view.get_now(key) {
            return Ok(entry);
        }
        self.read(follower, deadline, |view: View| async move { view.get(key).await }).await
    }

    /// Some of the entries in `range`, and where to go on.
    pub(super) async fn page(
        &mut self,
        follower: &Follower,
        range: &KeyRange,
        bytes_max: usize,
        deadline: Instant,
    ) -> Result<Page, ReadFailure> {
        let scan = Scan {
            range: range.clone(),
            after: None,
            reverse: false,
            keys_only: false,
            entries_max: PAGE_ENTRIES_MAX,
            bytes_max,
        };
        let scan = &scan;
        self.read(follower, deadline, |view: View| async move { view.scan(scan).await }).await
    }

    /// Goes on behind `mutation`.
    pub(super) fn apply(&mut self, mutation: Resolved) {
        self.view = self.view.with_mutation(&mutation);
        self.applied.push(mutation);
    }

    /// Reads from the view. Where its snapshot was swept meanwhile, reads again
    /// from the same version over what is current.
    async fn read<T, F>(
        &mut self,
        follower: &Follower,
        deadline: Instant,
        read: impl Fn(View) -> F,
    ) -> Result<T, ReadFailure>
    where
        F: Future<Output = Result<T, StateError>>,
    {
        for _ in 0..SNAPSHOTS_MAX {
            let missing = match timeout_at(deadline, read(self.view.clone())).await {
                Ok(Ok(value)) => return Ok(value),
                Ok(Err(StateError::Missing { key })) => key,
                Ok(Err(error)) => return Err(ReadFailure::of_state(error)),
                Err(_) => return Err(ReadFailure::Expired { detail: "fetching data" }),
            };
            let again = follower.pin_again(&self.pinned, missing, deadline).await;
            self.pinned = again.map_err(|it| ended(follower, it))?;
            let view = self.pinned.view().clone();
            self.view = self.applied.iter().fold(view, |view, it| view.with_mutation(it));
        }
        Err(ReadFailure::Expired { detail: "data was swept while it was fetched" })
    }
}
