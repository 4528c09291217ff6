//! Snapshots: their parts, and whether anything of them is to be deleted.

use std::collections::BTreeSet;
use std::sync::Arc;

use futures::{StreamExt as _, stream};
use headwater_core::head::SnapshotRef;
use headwater_core::id::HistoryName;
use headwater_core::keys::ObjectKey;
use headwater_core::version::StateVersion;
use headwater_state::{ReachedObject, StateError, View};

use super::Walk;
use super::content::Outcome;
use crate::finding::{Finding, Kind, Role};
use crate::metered::Metered;
use crate::repair::Soundness;
use crate::report::{Part, PartState, Reason};
use crate::trouble::{Blamed, Trouble, fetch};

/// How the parts of a snapshot are looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Look {
    /// Each is read, unless it was seen to be sound before.
    Read,
    /// They were read just now.
    Count,
}

impl Walk<'_> {
    /// Reads the newest snapshot to its end, beside the older one with the
    /// changes since. Where that fails, its parts are read one by one, to find
    /// all that cannot be used.
    pub(super) async fn read_newest(&mut self, newest: &View, has_archive: bool) {
        let older = self.older_view(has_archive).await;
        let outcome = self.compare(newest, older.as_ref()).await;
        drop(older);
        let look = match outcome {
            Outcome::Read => Look::Count,
            Outcome::Unreadable => Look::Read,
        };
        let snapshot = self.head.snapshot.clone();
        let before = self.archive.snapshots.last().map(|it| it.replaced.as_slice());
        let let_go = self.let_go(before.unwrap_or_default());
        self.walk_parts(Role::Snapshot, &snapshot, look, &let_go).await;
    }

    /// The state of the newest snapshot, from the older one and the changes.
    async fn older_view(&mut self, has_archive: bool) -> Option<View> {
        if !self.options.rebuilds {
            return None;
        }
        self.parts.insert(Part::Rebuild, PartState::Done);
        let version = self.head.snapshot.version;
        let reason = if has_archive {
            match self.loader.open_archived(&self.head, &self.archive, version).await {
                Ok(Some(view)) => return Some(view),
                Ok(None) => Reason::NothingOlder,
                // It is found, and said, when the archive is walked.
                Err(error) => {
                    let blamed = Blamed::of_state(&error).key;
                    let key = blamed.unwrap_or_else(|| self.head.history.head_key());
                    self.gap_or(Reason::Trouble { key })
                }
            }
        } else {
            self.trouble_of_archive()
        };
        self.leave_out(Part::Rebuild, reason);
        None
    }

    pub(super) async fn walk_older_snapshots(&mut self) {
        let archive = Arc::clone(&self.archive);
        for at in (0..archive.snapshots.len()).rev() {
            let before = at.checked_sub(1).and_then(|it| archive.snapshots.get(it));
            let let_go = self.let_go(before.map(|it| it.replaced.as_slice()).unwrap_or_default());
            let Some(it) = archive.snapshots.get(at) else { continue };
            self.walk_parts(Role::OlderSnapshot, &it.snapshot, Look::Read, &let_go).await;
        }
    }

    /// What no snapshot may lead to that comes after one which let go of
    /// `replaced`.
    fn let_go(&self, replaced: &[ObjectKey]) -> BTreeSet<ObjectKey> {
        replaced.iter().chain(&self.archive.released).cloned().collect()
    }

    async fn walk_parts(
        &mut self,
        role: Role,
        snapshot: &SnapshotRef,
        look: Look,
        let_go: &BTreeSet<ObjectKey>,
    ) {
        let version = snapshot.version;
        let index_key = self.key_of(&snapshot.object.key);
        self.snapshots.insert(version, Soundness::Sound);
        self.mark_if_let_go(role, None, &snapshot.object.key, let_go);
        let mut parts = self.loader.reached(snapshot);
        let mut is_index_read = false;
        loop {
            let mut batch = Vec::new();
            let mut error = None;
            while batch.len() < 4 * self.fetches() {
                match parts.next().await {
                    Some(Ok(it)) => batch.push(it),
                    Some(Err(it)) => {
                        error = Some(it);
                        break;
                    }
                    None => break,
                }
            }
            is_index_read |= error.is_none() || !batch.is_empty();
            // After a page that cannot be read others may follow.
            let is_end = batch.is_empty() && error.is_none();
            self.look_at_parts(role, snapshot, look, batch, let_go).await;
            if let Some(error) = error {
                self.blame_index(role, snapshot, &error);
            }
            if is_end {
                break;
            }
        }
        if is_index_read {
            self.sound.add(&index_key, snapshot.object.size_bytes);
        }
    }

    /// The index of a snapshot, or a page of it, cannot be used.
    pub(super) fn blame_index(&mut self, role: Role, snapshot: &SnapshotRef, error: &StateError) {
        let version = snapshot.version;
        let key = self.key_of(&snapshot.object.key);
        let blamed = Blamed::of_state(error);
        self.spoil(version, Some(&blamed.trouble));
        let key = blamed.key.unwrap_or(key);
        self.blame(role, &key, Some((version, version)), blamed.trouble);
        self.found.note_snapshot(&key, version);
        self.unread.get_or_insert(key);
    }

    /// A snapshot is not whole, or nobody knows. What is known to be damaged
    /// stays so.
    fn spoil(&mut self, version: StateVersion, trouble: Option<&Trouble>) {
        let is_known = match trouble {
            None | Some(Trouble::Missing | Trouble::Damaged(_)) => self.store.ended().is_none(),
            Some(Trouble::Closed(_) | Trouble::NoAnswer(_) | Trouble::Chain(_)) => false,
        };
        let soundness = if is_known { Soundness::Damaged } else { Soundness::Unknown };
        if self.snapshots.get(&version) != Some(&Soundness::Damaged) {
            self.snapshots.insert(version, soundness);
        }
    }

    async fn look_at_parts(
        &mut self,
        role: Role,
        snapshot: &SnapshotRef,
        look: Look,
        parts: Vec<ReachedObject>,
        let_go: &BTreeSet<ObjectKey>,
    ) {
        let version = snapshot.version;
        let is_newest = *snapshot == self.head.snapshot;
        let mut unread = Vec::new();
        for ReachedObject { owner, object } in parts {
            let key = self.key_below(owner.as_ref(), &object.key);
            self.mark_if_let_go(role, owner.as_ref(), &object.key, let_go);
            if is_newest && owner.is_none() {
                self.newest_reached.push(object.key.clone());
            }
            if self.found.is_bad(&key) {
                self.found.note_snapshot(&key, version);
                self.leave_gap(Reason::Trouble { key });
                self.spoil(version, None);
            } else if look == Look::Count {
                self.sound.add(&key, object.size_bytes);
            } else if !self.sound.has(&key) {
                unread.push((key, object));
            }
        }
        let store = Arc::clone(&self.store);
        let reads = stream::iter(unread).map(|(key, object)| {
            let store: Arc<Metered> = Arc::clone(&store);
            async move {
                let read = fetch(&*store, &key, &object).await;
                (key, object.size_bytes, read.map(drop))
            }
        });
        let mut reads = Box::pin(reads.buffer_unordered(self.fetches()));
        while let Some((key, size_bytes, read)) = reads.next().await {
            match read {
                Ok(()) => self.sound.add(&key, size_bytes),
                Err(trouble) => {
                    self.spoil(version, Some(&trouble));
                    self.blame(role, &key, Some((version, version)), trouble);
                    self.found.note_snapshot(&key, version);
                }
            }
        }
    }

    fn key_below(&self, owner: Option<&HistoryName>, key: &ObjectKey) -> String {
        owner.unwrap_or(&self.head.history).object_key(key)
    }

    /// The cure for space must not delete what is in use.
    pub(super) fn mark_if_let_go(
        &mut self,
        role: Role,
        owner: Option<&HistoryName>,
        key: &ObjectKey,
        let_go: &BTreeSet<ObjectKey>,
    ) {
        if owner.is_some() || !let_go.contains(key) {
            return;
        }
        let what = "the archive lets go of it, and a later snapshot or the archive leads to it";
        let key = self.key_of(key);
        self.found.add(Finding::new(Kind::MarkedForDeletion, role, key, what));
    }
}
