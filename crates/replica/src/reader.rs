//! Reading one history in this process.

use std::sync::Arc;

use headwater_core::id::{HistoryId, HistoryName};
use headwater_core::operation::Key;
use headwater_core::version::StateVersion;
use headwater_state::{Entry, LoadedChange, Page, Scan, StateError, View};
use headwater_store::planted;
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::CancellationToken;

use crate::changes::ChangeRange;
use crate::consistency::Consistency;
use crate::failure::ReadFailure;
use crate::follower::{Follower, Missing, PinError};
use crate::histories::{Held, Histories};
use crate::local::Pinned;
use crate::times::{VersionAt, version_at};
use crate::watch::{self, Watch, WatchFailure, WatchOptions};

/// How often a snapshot may be swept under a read before it gives up.
const SNAPSHOTS_MAX: usize = 3;

/// Reads one history. Clones are cheap; making one opens nothing.
///
/// Every read takes the moment by which it has to be answered. Every method is
/// cancel safe.
#[derive(Clone, Debug)]
pub struct Reader {
    histories: Arc<Histories>,
    name: HistoryName,
    id: Option<HistoryId>,
}

/// A view, and whether a later version would do as well.
struct Source {
    held: Held,
    consistency: Consistency,
}

impl Reader {
    pub(crate) fn new(histories: Arc<Histories>, name: HistoryName) -> Self {
        Self { histories, name, id: None }
    }

    /// Reads only while the history has this id. Versions mean nothing in
    /// another one.
    #[must_use]
    pub fn of_id(self, id: Option<HistoryId>) -> Self {
        Self { id, ..self }
    }

    /// The history's name.
    pub fn history(&self) -> &HistoryName {
        &self.name
    }

    /// A view as fresh as asked for.
    ///
    /// # Errors
    ///
    /// [`ReadFailure`].
    pub async fn pin(
        &self,
        consistency: Consistency,
        deadline: Instant,
    ) -> Result<Pinned, ReadFailure> {
        Ok(self.hold(consistency, deadline).await?.pinned)
    }

    /// The entry at `key`, and what it was read from.
    ///
    /// # Errors
    ///
    /// [`ReadFailure`].
    pub async fn get(
        &self,
        key: &Key,
        consistency: Consistency,
        deadline: Instant,
    ) -> Result<(Option<Entry>, Pinned), ReadFailure> {
        let source = self.source(consistency, deadline).await?;
        if let Some(entry) = source.held.pinned.view().get_now(key) {
            return Ok((entry, source.held.pinned));
        }
        self.serve(source, deadline, |view: View| async move { view.get(key).await }).await
    }

    /// The entries at `keys`, in their order, from one view. `None` instead of
    /// them when keys and values together pass `bytes_max`.
    ///
    /// # Errors
    ///
    /// [`ReadFailure`].
    pub async fn get_many(
        &self,
        keys: &[Key],
        bytes_max: usize,
        consistency: Consistency,
        deadline: Instant,
    ) -> Result<(Option<Vec<Option<Entry>>>, Pinned), ReadFailure> {
        let source = self.source(consistency, deadline).await?;
        let read = |view: View| async move { get_many(&view, keys, bytes_max).await };
        self.serve(source, deadline, read).await
    }

    /// One page of a range. The view is kept for the next page, if there is
    /// one: ask for it with [`Consistency::Exact`] and the version of the view.
    ///
    /// # Errors
    ///
    /// [`ReadFailure`].
    pub async fn scan(
        &self,
        scan: &Scan,
        consistency: Consistency,
        deadline: Instant,
    ) -> Result<(Page, Pinned), ReadFailure> {
        let source = self.source(consistency, deadline).await?;
        let shared = Arc::clone(source.held.follower.shared());
        let newest = source.held.follower.shared().newest_view();
        let newest = newest.filter(|_| planted!(ScanViewSwapped));
        let read = |view: View| {
            let view = newest.clone().unwrap_or(view);
            async move { view.scan(scan).await }
        };
        let (page, pinned) = self.serve(source, deadline, read).await?;
        if page.next.is_some() {
            shared.keep_for_scan(&pinned);
        }
        Ok((page, pinned))
    }

    /// Change entries from version `from`, oldest first, up to a number and a
    /// size of them, but at least one; none when the view ends before `from`.
    /// `None` when neither the tail nor the archive reaches back to `from`.
    ///
    /// # Errors
    ///
    /// [`ReadFailure`].
    pub async fn changes(
        &self,
        range: ChangeRange,
        consistency: Consistency,
        deadline: Instant,
    ) -> Result<(Option<Vec<LoadedChange>>, Pinned), ReadFailure> {
        let mut held = self.hold(consistency, deadline).await?;
        for _ in 0..SNAPSHOTS_MAX {
            let loader = held.follower.shared().loader();
            let read = range.read(loader, &held.pinned);
            match timeout_at(deadline, read).await {
                Ok(Ok(changes)) => return Ok((changes, held.pinned)),
                Ok(Err(StateError::Missing { key })) => {
                    let version = held.pinned.version();
                    let view = held.pinned.view().clone();
                    let again = held.follower.pin_after_missing(
                        &held.pinned,
                        key,
                        Missing::Named,
                        deadline,
                    );
                    let fresh = again.await.map_err(|it| gone(&held.follower, it))?;
                    let is_exact = matches!(consistency, Consistency::Exact(_));
                    held.pinned = if is_exact { fresh.with_view(view) } else { fresh };
                    debug_assert!(version <= held.pinned.version(), "views do not go back");
                }
                Ok(Err(error)) => return Err(ReadFailure::of_state(error)),
                Err(_) => return Err(ReadFailure::Expired { detail: "fetching changes" }),
            }
        }
        Err(ReadFailure::Expired { detail: "changes were swept while they were fetched" })
    }

    /// The newest version that was decided at `time_ms`, in milliseconds since
    /// 1970, or before, by the clock of the writer that decided it.
    ///
    /// # Errors
    ///
    /// [`ReadFailure`]; `VersionRetired` when every change that is kept was
    /// decided later.
    pub async fn version_at(
        &self,
        time_ms: u64,
        consistency: Consistency,
        deadline: Instant,
    ) -> Result<(VersionAt, Pinned), ReadFailure> {
        let Held { follower, mut pinned } = self.hold(consistency, deadline).await?;
        let shared = follower.shared();
        for _ in 0..SNAPSHOTS_MAX {
            let tail = shared.tail_times(&pinned);
            let found = version_at(tail, shared.loader(), &pinned, time_ms);
            let missing = match timeout_at(deadline, found).await {
                Ok(Ok(Some(found))) => return Ok((found, pinned)),
                Ok(Ok(None)) => {
                    let (oldest, newest) = (pinned.head().retained_from(), pinned.version());
                    let wanted = StateVersion::new(oldest.get().saturating_sub(1));
                    return Err(ReadFailure::VersionRetired { wanted, oldest, newest });
                }
                Ok(Err(StateError::Missing { key })) => key,
                Ok(Err(error)) => return Err(ReadFailure::of_state(error)),
                Err(_) => return Err(ReadFailure::Expired { detail: "looking through changes" }),
            };
            let view = pinned.view().clone();
            let again = follower.pin_after_missing(&pinned, missing, Missing::Named, deadline);
            let fresh = again.await.map_err(|it| gone(&follower, it))?;
            let is_exact = matches!(consistency, Consistency::Exact(_));
            pinned = if is_exact { fresh.with_view(view) } else { fresh };
        }
        Err(ReadFailure::Expired { detail: "changes were swept while they were fetched" })
    }

    /// Watches the history: see [`Watch`]. `begin_by` is when the first view has
    /// to be there; the watch then goes on until it is dropped or ended.
    ///
    /// # Errors
    ///
    /// [`WatchFailure`].
    pub async fn watch(
        &self,
        options: WatchOptions,
        begin_by: Instant,
    ) -> Result<Watch, WatchFailure> {
        self.watch_until(options, begin_by, CancellationToken::new(), None).await
    }

    /// As [`Reader::watch`], until the server drains or the caller's deadline.
    pub(crate) async fn watch_until(
        &self,
        options: WatchOptions,
        begin_by: Instant,
        drain: CancellationToken,
        deadline: Option<Instant>,
    ) -> Result<Watch, WatchFailure> {
        let (history, id) = (&self.name, self.id);
        let request = watch::Request { history, id, options, begin_by, drain, deadline };
        watch::begin(&self.histories, request).await
    }

    async fn hold(&self, consistency: Consistency, deadline: Instant) -> Result<Held, ReadFailure> {
        self.histories.pin(&self.name, self.id, consistency, deadline).await
    }

    async fn source(
        &self,
        consistency: Consistency,
        deadline: Instant,
    ) -> Result<Source, ReadFailure> {
        Ok(Source { held: self.hold(consistency, deadline).await?, consistency })
    }

    /// Reads from a view. Where its snapshot was swept meanwhile, reads again
    /// from what is current.
    async fn serve<T, F>(
        &self,
        source: Source,
        deadline: Instant,
        read: impl Fn(View) -> F,
    ) -> Result<(T, Pinned), ReadFailure>
    where
        F: Future<Output = Result<T, StateError>>,
    {
        let Source { held: Held { follower, mut pinned }, consistency } = source;
        for _ in 0..SNAPSHOTS_MAX {
            let missing = match timeout_at(deadline, read(pinned.view().clone())).await {
                Ok(Ok(value)) => return Ok((value, pinned)),
                Ok(Err(StateError::Missing { key })) => key,
                Ok(Err(error)) => return Err(ReadFailure::of_state(error)),
                Err(_) => return Err(ReadFailure::Expired { detail: "fetching data" }),
            };
            tracing::debug!(history = %self.name, key = missing, "reading again: it was swept");
            let again = match consistency {
                Consistency::Exact(_) => follower.pin_again(&pinned, missing, deadline).await,
                Consistency::Strong
                | Consistency::AtLeast(_)
                | Consistency::MaxStaleness(_)
                | Consistency::Any => {
                    let part = Missing::BelowView;
                    follower.pin_after_missing(&pinned, missing, part, deadline).await
                }
            };
            pinned = again.map_err(|it| gone(&follower, it))?;
        }
        Err(ReadFailure::Expired { detail: "data was swept while it was fetched" })
    }
}

/// The follower ended while it was read from.
fn gone(follower: &Follower, error: PinError) -> ReadFailure {
    match error {
        PinError::Failure(failure) => failure,
        PinError::Ended | PinError::Replaced { .. } => follower.shared().end("read"),
    }
}

/// Keys read side by side: as many values of the greatest size are in memory
/// before their sum is known.
const KEYS_AT_ONCE: usize = 32;

async fn get_many(
    view: &View,
    keys: &[Key],
    bytes_max: usize,
) -> Result<Option<Vec<Option<Entry>>>, StateError> {
    let (mut found, mut size_bytes) = (Vec::with_capacity(keys.len()), 0);
    for keys in keys.chunks(KEYS_AT_ONCE) {
        let entries = view.get_many(keys).await?;
        let sizes = entries.iter().flatten().map(|it| it.key.as_bytes().len() + it.value.len());
        size_bytes += sizes.sum::<usize>();
        if bytes_max < size_bytes {
            return Ok(None);
        }
        found.extend(entries);
    }
    Ok(Some(found))
}
