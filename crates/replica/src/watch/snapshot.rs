//! The state at one version, a page at a time.

use headwater_core::operation::Key;
use headwater_core::version::StateVersion;
use headwater_state::{Page, Scan, StateError};
use tokio::time::{Instant, timeout_at};

use super::changes::MESSAGE_BYTES_MAX;
use super::filter::KeyFilter;
use super::older::ended;
use crate::failure::ReadFailure;
use crate::follower::Follower;
use crate::local::Pinned;

/// Entries of one page. Small ones fill a message well before.
const PAGE_ENTRIES_MAX: usize = 10_000;

/// How often the snapshot below may be swept under one page before it gives up.
const SNAPSHOTS_MAX: usize = 3;

/// What is still to be sent of a state.
pub(super) struct Rest<'a> {
    filter: &'a KeyFilter,
    pinned: Pinned,
    /// The range that is being read.
    at: usize,
    after: Option<Key>,
}

impl<'a> Rest<'a> {
    /// All of it.
    pub(super) fn new(filter: &'a KeyFilter, pinned: Pinned) -> Self {
        Self { filter, pinned, at: 0, after: None }
    }

    pub(super) fn version(&self) -> StateVersion {
        self.pinned.version()
    }

    /// The next page; `None` after the last one. A page may be empty.
    ///
    /// Cancel safe: the page is read again by the next call.
    ///
    /// # Errors
    ///
    /// [`ReadFailure`]; `VersionRetired` when the version was let go of: what
    /// was sent of it leads nowhere.
    pub(super) async fn page(
        &mut self,
        follower: &Follower,
        deadline: Instant,
    ) -> Result<Option<Page>, ReadFailure> {
        let Some(range) = self.filter.ranges().get(self.at) else { return Ok(None) };
        let scan = Scan {
            range: range.clone(),
            after: self.after.clone(),
            reverse: false,
            keys_only: false,
            entries_max: PAGE_ENTRIES_MAX,
            bytes_max: MESSAGE_BYTES_MAX,
        };
        for _ in 0..SNAPSHOTS_MAX {
            let missing = match timeout_at(deadline, self.pinned.view().scan(&scan)).await {
                Ok(Ok(page)) => {
                    self.after.clone_from(&page.next);
                    self.at += usize::from(page.next.is_none());
                    return Ok(Some(page));
                }
                Ok(Err(StateError::Missing { key })) => key,
                Ok(Err(error)) => return Err(ReadFailure::of_state(error)),
                Err(_) => return Err(ReadFailure::Expired { detail: "fetching data" }),
            };
            let again = follower.pin_again(&self.pinned, missing, deadline).await;
            self.pinned = again.map_err(|it| ended(follower, it))?;
        }
        Err(ReadFailure::Expired { detail: "data was swept while it was fetched" })
    }
}
