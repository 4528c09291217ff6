//! The tail: every change after the newest snapshot, and what the head itself
//! leans on.

use std::sync::Arc;

use futures::stream::BoxStream;
use futures::{StreamExt as _, stream};
use headwater_core::change::Change;
use headwater_core::format;
use headwater_core::hash::ContentHash;
use headwater_core::head::{ChangeBody, ChangeRef, RunRef};
use headwater_core::keys::ObjectKind;
use headwater_core::sweep::Sweep;
use headwater_core::version::StateVersion;
use headwater_state::{LoadedChange, StateError, View};
use headwater_store::{HeadRead, Store as _};

use super::chain::Broken;
use super::{RUNS_AHEAD, Walk};
use crate::finding::{Finding, Kind, Role};
use crate::trouble::{Trouble, fetch};

impl Walk<'_> {
    /// The newest snapshot's index, which the chain of the tail begins from.
    pub(super) async fn open_newest(&mut self) -> Option<View> {
        let snapshot = self.head.snapshot.clone();
        let (version, key) = (snapshot.version, self.key_of(&snapshot.object.key));
        // A loader of its own: its cache is by content, and two objects of equal
        // content are two objects.
        let loader = super::loader(&self.store, &self.head.history, self.options);
        match loader.open_at(&self.head, version).await {
            Ok(view) => {
                let said = self.chain.point(version, view.chain_hash(), &key);
                self.note_broken(said);
                Some(view)
            }
            Err(error) => {
                self.blame_index(Role::Snapshot, &snapshot, &error);
                None
            }
        }
    }

    pub(super) async fn walk_tail(&mut self) {
        let segments = self.head.segments.clone();
        let mut runs = self.read_runs(segments);
        while let Some((run, key, changes)) = runs.next().await {
            match changes {
                Ok(changes) => {
                    self.sound.add(&key, run.object.size_bytes);
                    for it in changes {
                        self.take_tail(&key, it.version, it.hash, &it.change);
                    }
                }
                Err(error) => {
                    self.blame_load(Role::Tail, &key, Some((run.from, run.to)), &error);
                }
            }
        }
        drop(runs);
        let head_key = self.head.history.head_key();
        let store = Arc::clone(&self.store);
        let keyed = |it: &ChangeRef| match &it.body {
            ChangeBody::Inline(_) => (it.clone(), head_key.clone()),
            ChangeBody::Staged(object) => (it.clone(), self.key_of(&object.key)),
        };
        let changes: Vec<_> = self.head.changes.iter().map(keyed).collect();
        let reads = stream::iter(changes).map(|(change, key)| {
            let store = Arc::clone(&store);
            async move {
                let bytes = match &change.body {
                    ChangeBody::Inline(bytes) => Ok(bytes.clone()),
                    ChangeBody::Staged(object) => fetch(&*store, &key, object).await,
                };
                (change, key, bytes)
            }
        });
        let mut reads = Box::pin(reads.buffered(self.fetches()));
        while let Some((at, key, bytes)) = reads.next().await {
            let decode = |it| format::change::decode(it).map_err(Trouble::of_decode);
            match bytes.and_then(decode) {
                Ok(change) => {
                    if let ChangeBody::Staged(object) = &at.body {
                        self.sound.add(&key, object.size_bytes);
                    }
                    self.take_tail(&key, at.version, at.hash, &change);
                }
                Err(trouble) => {
                    let role = match at.body {
                        ChangeBody::Inline(_) => Role::Head,
                        ChangeBody::Staged(_) => Role::Tail,
                    };
                    self.blame(role, &key, Some((at.version, at.version)), trouble);
                }
            }
        }
    }

    fn take_tail(&mut self, key: &str, version: StateVersion, hash: ContentHash, change: &Change) {
        let linked = self.chain.step(version, hash);
        self.note_broken(linked);
        self.count_of_tail(key, version, change);
    }

    pub(super) fn note_broken(&mut self, result: Result<(), Broken>) {
        let Err(Broken { key, at, expected, found }) = result else { return };
        let role = if key == self.head.history.head_key() { Role::Head } else { Role::Snapshot };
        let what = format!("its chain hash at version {at} is {expected}, changes lead to {found}");
        self.found.add(Finding::new(Kind::ChainBroken, role, key, what).about(at, at));
    }

    /// Runs of changes in order, a few read ahead.
    pub(super) fn read_runs(&self, runs: Vec<RunRef>) -> BoxStream<'static, ReadRun> {
        let loader = self.loader.clone();
        let keyed = |it: RunRef| {
            let key = self.key_of(&it.object.key);
            (it, key)
        };
        let runs: Vec<_> = runs.into_iter().map(keyed).collect();
        let reads = stream::iter(runs).map(move |(run, key)| {
            let loader = loader.clone();
            async move {
                let changes = loader.read_run(&run, run.from).await;
                (run, key, changes)
            }
        });
        reads.buffered(RUNS_AHEAD.min(self.fetches())).boxed()
    }

    /// A forked history reads objects of its source, as long as a pin there
    /// keeps them.
    pub(super) async fn check_base(&mut self) {
        let Some(base) = self.head.base.clone() else { return };
        let key = base.source.history.head_key();
        let keeps = match self.store.read_head(&key, None).await {
            Ok(HeadRead::Found { bytes, .. }) => match format::head::decode(&bytes) {
                Ok(source) => {
                    let pin = source.pin(&base.pin).and_then(|it| it.child.as_ref());
                    Ok(source.history_id == base.source.history_id
                        && pin.is_some_and(|it| it.history_id == self.head.history_id))
                }
                Err(error) => Err(Trouble::Closed(error.to_string())),
            },
            Ok(HeadRead::Missing | HeadRead::Unchanged) => Ok(false),
            Err(error) => Err(Trouble::of_read(&error)),
        };
        match keeps {
            Ok(true) => (),
            Ok(false) => {
                let what = format!("it has no pin {} for {}", base.pin, self.head.history);
                self.found.add(Finding::new(Kind::SourceLetGo, Role::Head, key, what));
            }
            Err(trouble) => self.blame(Role::Head, &key, None, trouble),
        }
    }

    /// Whether objects of a kind are judged by what snapshots lead to.
    pub(super) fn is_judged(&self, kind: ObjectKind) -> bool {
        self.unread.is_none() || !Sweep::needs_snapshots(kind)
    }
}

/// A run, its key, and its changes.
pub(super) type ReadRun = (RunRef, String, Result<Vec<LoadedChange>, StateError>);
