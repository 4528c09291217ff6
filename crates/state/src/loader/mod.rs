//! From a head to a view, and from a view to the next.

mod archive;
mod fallback;
mod reached;
mod receipts;
mod tail;

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use futures::{StreamExt as _, TryStreamExt as _, stream};
use headwater_core::follow::{self, Chain, FollowError, Plan, Position};
use headwater_core::format;
use headwater_core::hash::ContentHash;
use headwater_core::head::{Head, SnapshotRef};
use headwater_core::id::{HistoryId, HistoryName};
use headwater_core::version::StateVersion;
use headwater_store::Store;

use self::archive::ArchiveCache;
use self::fallback::Fallbacks;
pub use self::reached::ReachedObject;
pub use self::tail::LoadedChange;
use crate::cache::ChunkCache;
use crate::disk::DiskCache;
use crate::error::StateError;
use crate::source::Source;
use crate::view::{Base, View};

/// How a [`Loader`] fetches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoadOptions {
    /// Most objects fetched at once by one call; at least 1 is taken. 16
    /// fetches of 30 ms each are 500 objects a second.
    pub fetches_max: usize,
}

impl Default for LoadOptions {
    fn default() -> Self {
        Self { fetches_max: 16 }
    }
}

/// Fetches the state of one history. Clones are cheap.
///
/// Every method is cancel safe: a dropped load has no effect.
#[derive(Clone, Debug)]
pub struct Loader {
    source: Arc<Source>,
    cache: ChunkCache,
    archive_cache: Arc<ArchiveCache>,
    options: LoadOptions,
    changes_decoded: Arc<AtomicU64>,
    fallbacks: Arc<Fallbacks>,
    /// Change entries that need not be fetched.
    given: Arc<BTreeMap<ContentHash, Bytes>>,
}

/// A head, opened.
#[derive(Clone, Debug)]
pub struct Opened {
    /// The state that the head stands for.
    pub view: View,
    /// The whole tail, oldest first.
    pub changes: Vec<LoadedChange>,
}

/// A head, followed from the one before.
#[derive(Clone, Debug)]
pub struct Advanced {
    /// The state that the head stands for.
    pub view: View,
    /// What is new, oldest first. After a reopening it begins with the head's
    /// tail: changes between the old view and that are gone.
    pub changes: Vec<LoadedChange>,
    /// Whether the tail no longer reached back to the old view.
    pub reopened: bool,
}

impl Loader {
    /// Loads `history` from `store`, chunks through `cache`.
    pub fn new(
        store: Arc<dyn Store>,
        history: HistoryName,
        cache: ChunkCache,
        options: LoadOptions,
    ) -> Self {
        let options = LoadOptions { fetches_max: options.fetches_max.max(1) };
        let source = Arc::new(Source { store, history, disk: None });
        let (archive_cache, changes_decoded) = (Arc::default(), Arc::default());
        let (fallbacks, given) = (Arc::default(), Arc::default());
        Self { source, cache, archive_cache, options, changes_decoded, fallbacks, given }
    }

    /// As this one, with change entries that are at hand already. They are used
    /// where a head names their hash, and for nothing else.
    #[must_use]
    pub fn with_changes(self, entries: impl IntoIterator<Item = Bytes>) -> Self {
        let given = entries.into_iter().map(|it| (ContentHash::of(&it), it)).collect();
        Self { given: Arc::new(given), ..self }
    }

    /// As this one, with objects of every history kept on a disk as well.
    #[must_use]
    pub fn with_disk(self, disk: DiskCache) -> Self {
        let (store, history) = (Arc::clone(&self.source.store), self.source.history.clone());
        Self { source: Arc::new(Source { store, history, disk: Some(disk) }), ..self }
    }

    /// As this one, with [`Loader::snapshot_fallbacks`] counted together with
    /// those of other loaders.
    #[must_use]
    pub fn with_fallbacks_in(self, count: Arc<AtomicU64>) -> Self {
        Self { fallbacks: Arc::new(Fallbacks::counted_in(count)), ..self }
    }

    /// The history.
    pub fn history(&self) -> &HistoryName {
        &self.source.history
    }

    /// The store that the history is in.
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.source.store
    }

    /// How often this loader and its clones found the snapshot of a head damaged or
    /// missing, and opened or followed the head over an older one.
    pub fn snapshot_fallbacks(&self) -> u64 {
        self.fallbacks.count()
    }

    /// Change entries decoded so far by this loader and its clones, those that
    /// were decoded again included.
    pub fn changes_decoded(&self) -> u64 {
        self.changes_decoded.load(Ordering::Relaxed)
    }

    /// Opens a head from its snapshot: fetches the index and the tail, not the
    /// chunks. Where the snapshot's index is damaged or missing and the archive
    /// still leads to its version, from an older one:
    /// [`Loader::snapshot_fallbacks`] counts that.
    ///
    /// # Errors
    ///
    /// [`StateError`]. On [`StateError::Missing`], read the head again: it may
    /// have been compacted and swept meanwhile.
    pub async fn open(&self, head: &Head) -> Result<Opened, StateError> {
        let steps = follow::steps_after(head.snapshot.version, head);
        let (view, changes) =
            futures::try_join!(self.view_of_snapshot(head), self.fetch_steps(steps))?;
        let chain = Chain::at(view.version(), view.chain_hash());
        let view = extend(&view, chain, &changes, head)?;
        Ok(Opened { view, changes })
    }

    /// Opens a snapshot by itself: the state at its version, without any tail.
    ///
    /// # Errors
    ///
    /// [`StateError`]; [`StateError::Bad`] also when it is of another history or
    /// version.
    pub async fn open_snapshot(
        &self,
        snapshot: &SnapshotRef,
        history_id: HistoryId,
    ) -> Result<View, StateError> {
        let base = self.fetch_snapshot(history_id, snapshot).await?;
        Ok(View::of_snapshot(Arc::new(base)))
    }

    /// Opens an older version of a head: its snapshot, and the part of its tail
    /// that leads to `version`. What comes after is not fetched.
    ///
    /// `head` is one that was opened or followed: entries are verified one by
    /// one against what names them, and the chain only where it leads to the
    /// head itself.
    ///
    /// # Errors
    ///
    /// As for [`Loader::open`].
    ///
    /// # Panics
    ///
    /// When `version` is before the head's snapshot or after the head.
    pub async fn open_at(&self, head: &Head, version: StateVersion) -> Result<View, StateError> {
        let at_hand = head.snapshot.version..=head.state_version;
        assert!(at_hand.contains(&version), "not a version of this head");
        let steps = tail::steps_to(version, head);
        let changes = self.fetch_steps_one_by_one(steps);
        let base = Arc::new(self.fetch_base(head).await?);
        let mut view = View::of_snapshot(base);
        let mut changes = pin!(changes);
        while let Some(changes) = changes.try_next().await? {
            // A segment may hold entries past the version.
            let wanted = changes.iter().take_while(|it| it.version <= version);
            view = view.apply_all(wanted.map(|it| (&*it.change, it.hash)));
        }
        if version == head.state_version {
            Chain::at(version, view.chain_hash()).finish(head)?;
        }
        debug_assert_eq!(view.version(), version, "a head's tail is contiguous");
        Ok(view)
    }

    /// As [`Loader::open`], by a process that had followed the history to `seen`
    /// and holds nothing of it any more. Another history that has taken the name
    /// is opened as well: there is no view that it could be mixed with.
    ///
    /// # Errors
    ///
    /// As for [`Loader::open`]; [`StateError::Follow`] for a head that went back
    /// or aside, as far as its tail reaches.
    pub async fn open_after(
        &self,
        head: &Head,
        seen: Option<&Position>,
    ) -> Result<Opened, StateError> {
        let seen = seen.filter(|it| it.history_id == head.history_id);
        if let Some(seen) = seen {
            follow::plan(seen, head)?;
        }
        let opened = self.open(head).await?;
        // A head that went back and was written to since is later than what was
        // seen. Its chain tells, as far as its tail reaches back.
        let passed = seen.and_then(|it| Some((it, opened.view.chain_hash_at(it.version)?)));
        if let Some((seen, actual)) = passed.filter(|(seen, actual)| seen.chain_hash != *actual) {
            return Err(FollowError::ChainBroken { expected: seen.chain_hash, actual }.into());
        }
        Ok(opened)
    }

    /// Follows `head` from `view`, which is the state at `position`. Moves to
    /// the head's snapshot where that is another one, so that an overlay never
    /// outgrows the tail, and no view depends on what may be swept. Where that
    /// snapshot's index is damaged or missing it stays on its own, and goes on.
    ///
    /// # Errors
    ///
    /// [`StateError`]; `view` stays what it is. [`StateError::Follow`] says
    /// that the head must not be used.
    ///
    /// # Panics
    ///
    /// When `position` is not that of `view`.
    pub async fn advance(
        &self,
        view: &View,
        position: &Position,
        head: &Head,
    ) -> Result<Advanced, StateError> {
        let at = (position.history_id, position.version, position.chain_hash);
        assert_eq!(at, (view.history_id(), view.version(), view.chain_hash()), "another view's");
        match follow::plan(position, head)? {
            Plan::Reopen => {
                let Opened { view, changes } = self.open(head).await?;
                Ok(Advanced { view, changes, reopened: true })
            }
            Plan::Extend(steps) => {
                let (view, changes) =
                    futures::try_join!(self.rebase_or_stay(view, head), self.fetch_steps(steps))?;
                let chain = Chain::at(view.version(), view.chain_hash());
                let view = extend(&view, chain, &changes, head)?;
                Ok(Advanced { view, changes, reopened: false })
            }
        }
    }

    /// Puts the snapshot of `head` below `view`, whose version is at or after
    /// it. Fetches the index, unless the view has it already.
    ///
    /// # Errors
    ///
    /// [`StateError`]; [`StateError::Bad`] also when the snapshot does not lie
    /// on the chain that the view followed.
    pub async fn rebase(&self, view: &View, head: &Head) -> Result<View, StateError> {
        if *view.snapshot() == head.snapshot {
            return Ok(view.clone());
        }
        let base = Arc::new(self.fetch_base(head).await?);
        let object = &head.snapshot.object;
        view.rebase(base).ok_or_else(|| self.source.contradicts(object, "chain of the view"))
    }

    /// The tail from version `from`, or from where it begins: whole entries,
    /// up to `bytes_max` of them, but at least one. The caller goes on after
    /// the last one.
    ///
    /// # Errors
    ///
    /// [`StateError`].
    pub async fn read_changes(
        &self,
        head: &Head,
        from: StateVersion,
        bytes_max: usize,
    ) -> Result<Vec<LoadedChange>, StateError> {
        let known = StateVersion::new(from.get().saturating_sub(1)).max(head.snapshot.version);
        let (mut read, mut size_bytes) = (Vec::new(), 0);
        let mut steps = follow::steps_after(known, head);
        // Those that will be wanted side by side, and then one after another:
        // how many more are wanted shows as they come.
        let rest = steps.split_off(tail::steps_within(bytes_max, &steps));
        let rest = stream::iter(rest).then(|step| self.fetch_step(step));
        let mut changes = pin!(self.fetch_steps_one_by_one(steps).chain(rest));
        while let Some(changes) = changes.try_next().await? {
            for change in changes {
                size_bytes += change.bytes.len();
                if bytes_max < size_bytes && !read.is_empty() {
                    return Ok(read);
                }
                read.push(change);
            }
        }
        Ok(read)
    }

    pub(crate) fn source(&self) -> &Arc<Source> {
        &self.source
    }

    async fn fetch_base(&self, head: &Head) -> Result<Base, StateError> {
        self.fetch_snapshot(head.history_id, &head.snapshot).await
    }

    async fn fetch_snapshot(
        &self,
        history_id: HistoryId,
        snapshot: &SnapshotRef,
    ) -> Result<Base, StateError> {
        let SnapshotRef { version, object } = snapshot;
        let index = self.source.fetch_as(object, format::snapshot::decode).await?;
        if index.history_id != history_id {
            return Err(self.source.contradicts(object, "history id"));
        }
        if index.version != *version {
            return Err(self.source.contradicts(object, "version"));
        }
        let source = Arc::clone(&self.source);
        let fetches_max = self.options.fetches_max;
        Ok(Base::new(snapshot.clone(), index, source, self.cache.clone(), fetches_max))
    }
}

/// Applies `changes`, if they lead to where `head` is. Nothing is applied, and
/// so nothing can be served, before the whole chain has been checked.
fn extend(
    view: &View,
    mut chain: Chain,
    changes: &[LoadedChange],
    head: &Head,
) -> Result<View, StateError> {
    for change in changes {
        chain.extend(change.hash);
    }
    chain.finish(head)?;
    if changes.is_empty() {
        return Ok(view.clone());
    }
    Ok(view.apply_all(changes.iter().map(|it| (&*it.change, it.hash))))
}
