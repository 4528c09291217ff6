//! A history in memory for tests: what a writer does, without deciding.

use std::collections::BTreeSet;
use std::sync::Arc;

use bytes::Bytes;
use headwater_core::archive::{ArchiveUpdate, Keep};
use headwater_core::change::{AcceptedOperation, Change, Resolved};
use headwater_core::follow::Position;
use headwater_core::format;
use headwater_core::hash::{ContentHash, RequestHash};
use headwater_core::head::{
    Append, ChangeBody, Compaction, Fold, Head, ObjectRef, Publisher, Successor,
};
use headwater_core::id::{HistoryId, HistoryName, Nonce, OperationId};
use headwater_core::keys::ObjectKey;
use headwater_core::operation::{Key, KeyRange};
use headwater_core::receipt::Receipt;
use headwater_core::version::Revision;
use headwater_store::{Faults, Memory};

use crate::build::{ChunkBytes, PageChunks, Sizes, build_sized};
use crate::{
    BuildOptions, BuiltSnapshot, ChunkCache, LoadOptions, LoadedChange, Loader, View,
    write_empty_snapshot, write_receipt_pages, write_segment,
};

/// Chunks of a few entries, so that small states have many of them.
pub(crate) const SMALL: Sizes = Sizes {
    chunk: ChunkBytes { min: 60, target: 150, max: 400 },
    page: PageChunks { one_level_max: usize::MAX, ..PageChunks::STANDARD },
};

/// As [`SMALL`], with pages of a few chunks.
pub(crate) const PAGED: Sizes =
    Sizes { page: PageChunks { min: 2, target: 5, max: 12, one_level_max: 6 }, ..SMALL };

pub(crate) const ID: HistoryId = HistoryId::from_bytes([7; 16]);

pub(crate) fn key(text: impl AsRef<[u8]>) -> Key {
    Key::new(text.as_ref().to_vec()).unwrap()
}

pub(crate) fn put(at: impl AsRef<[u8]>, value: impl Into<Bytes>) -> Resolved {
    Resolved::Put(key(at), value.into())
}

pub(crate) fn delete(at: impl AsRef<[u8]>) -> Resolved {
    Resolved::Delete(key(at))
}

/// An empty `end` is no bound.
pub(crate) fn range(start: &str, end: &str) -> KeyRange {
    let end = Some(Bytes::from(end.to_owned())).filter(|it| !it.is_empty());
    KeyRange::new(start.to_owned().into(), end).unwrap()
}

pub(crate) fn delete_range(start: &str, end: &str) -> Resolved {
    Resolved::DeleteRange(range(start, end))
}

/// Where a change entry goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    Inline,
    Staged,
}

pub(crate) struct Bucket {
    pub(crate) faults: Faults,
    pub(crate) loader: Loader,
    pub(crate) head: Head,
    /// Follows every head.
    pub(crate) view: View,
    /// Of `head`.
    pub(crate) tail: Vec<LoadedChange>,
    n_nonces: u8,
}

impl Bucket {
    pub(crate) async fn new() -> Self {
        let faults = Faults::new(Arc::new(Memory::new()));
        let history = HistoryName::parse("a/history").unwrap();
        let snapshot =
            write_empty_snapshot(&*faults.store(), &history, ID, Revision::new(0)).await.unwrap();
        let head = Head::first(history.clone(), ID, Revision::FIRST, false, publisher(0), snapshot);
        head.check().unwrap();
        let loader = Self::loader_over(&faults, history);
        let view = loader.open(&head).await.unwrap().view;
        Self { faults, loader, head, view, tail: Vec::new(), n_nonces: 0 }
    }

    /// A history that was made in another way.
    pub(crate) async fn of_head(faults: Faults, head: Head) -> Self {
        head.check().unwrap();
        let loader = Self::loader_over(&faults, head.history.clone());
        let view = loader.open(&head).await.unwrap().view;
        Self { faults, loader, head, view, tail: Vec::new(), n_nonces: 0 }
    }

    fn loader_over(faults: &Faults, history: HistoryName) -> Loader {
        let cache = ChunkCache::new(64 << 20);
        Loader::new(faults.store(), history, cache, LoadOptions::default())
    }

    /// A loader that has nothing in its cache.
    pub(crate) fn cold_loader(&self) -> Loader {
        Self::loader_over(&self.faults, self.head.history.clone())
    }

    /// The view that a process has which starts now.
    pub(crate) async fn cold_view(&self) -> View {
        self.cold_loader().open(&self.head).await.unwrap().view
    }

    pub(crate) fn full_key(&self, object: &ObjectRef) -> String {
        self.head.history.object_key(&object.key)
    }

    fn publisher(&mut self) -> Publisher {
        self.n_nonces = self.n_nonces.wrapping_add(1);
        publisher(self.n_nonces)
    }

    async fn publish(&mut self, head: Head) {
        head.check().unwrap();
        head.check_follows(&self.head).unwrap();
        let position = Position::of(&self.head);
        self.view = self.loader.advance(&self.view, &position, &head).await.unwrap().view;
        self.tail.retain(|it| head.snapshot.version < it.version);
        self.head = head;
    }

    pub(crate) async fn commit(&mut self, mutations: Vec<Resolved>) {
        self.commit_at(Place::Inline, mutations).await;
    }

    pub(crate) async fn commit_at(&mut self, place: Place, mutations: Vec<Resolved>) {
        let version = self.head.state_version.next();
        let operation = AcceptedOperation {
            id: OperationId::parse(&format!("op-{}", version.get())).unwrap(),
            request_hash: RequestHash::from_bytes([1; 32]),
            results: Vec::new(),
            mutations,
        };
        let change = Change { decided_at_ms: 0, operations: vec![operation] };
        let bytes = Bytes::from(format::change::encode(&change));
        let hash = ContentHash::of(&bytes);
        let publisher = self.publisher();
        let body = match place {
            Place::Inline => ChangeBody::Inline(bytes.clone()),
            Place::Staged => {
                let key = ObjectKey::change(self.head.revision, publisher.nonce);
                let object = ObjectRef { key, hash, size_bytes: bytes.len() as u64 };
                self.faults.behind().put(&self.full_key(&object), bytes.clone()).await.unwrap();
                ChangeBody::Staged(object)
            }
        };
        let mut successor = Successor::of(&self.head, publisher);
        let version = successor.append(Append { hash, body, operations: 1 });
        self.tail.push(LoadedChange { version, hash, bytes, change: Arc::new(change) });
        self.publish(successor.finish()).await;
    }

    /// Moves every change of the head that is not in a segment into one.
    pub(crate) async fn fold(&mut self) {
        let Some(first) = self.head.changes.first() else { return };
        let from = self.tail.iter().position(|it| it.version == first.version).unwrap();
        let changes = &self.tail[from..];
        let last_change = changes.last().unwrap().hash;
        let segment = write_segment(&self.loader, self.head.revision, changes).await.unwrap();
        let publisher = self.publisher();
        let mut successor = Successor::of(&self.head, publisher);
        assert!(successor.fold(&Fold { segment, last_change }));
        self.publish(successor.finish()).await;
    }

    /// The same state built from nothing, as if there were no old chunks.
    pub(crate) async fn replayed(&self, sizes: Sizes) -> Self {
        let mut fresh = Self::new().await;
        // Versions are part of the entries, so they are replayed as they were.
        let n_versions = usize::try_from(self.view.version().get()).unwrap();
        let mut by_version = vec![Vec::new(); n_versions + 1];
        for chunk in self.view.base().all_chunks().await {
            for it in self.view.base().fetch(&chunk).await.unwrap().entries() {
                let version = usize::try_from(it.version.get()).unwrap();
                by_version[version].push(Resolved::Put(it.key.clone(), it.value.clone()));
            }
        }
        for mut mutations in by_version.into_iter().skip(1) {
            if mutations.is_empty() {
                mutations.push(delete("none"));
            }
            fresh.commit(mutations).await;
        }
        fresh.compact_to(&fresh.view.clone(), sizes).await;
        fresh
    }

    /// Compacts everything, with small chunks.
    pub(crate) async fn compact(&mut self) -> BuiltSnapshot {
        self.compact_to(&self.view.clone(), SMALL).await
    }

    /// As [`Bucket::compact`], with pages of a few chunks.
    pub(crate) async fn compact_paged(&mut self) -> BuiltSnapshot {
        self.compact_to(&self.view.clone(), PAGED).await
    }

    /// From now on, so many versions before the newest are kept.
    pub(crate) fn keeps_versions(&mut self, versions: u64) {
        self.head.retention.versions = versions;
    }

    /// As [`Bucket::compact`], and moves what it overtakes to the archive.
    pub(crate) async fn compact_and_archive(&mut self) {
        let (view, staged) = (self.view.clone(), self.head.revision);
        let built = build_sized(&self.loader, &view, staged, BuildOptions::default(), SMALL);
        let built = built.await.unwrap();
        let keep = Keep { now_ms: 0, clock_error_ms: 0 };
        let archive = self.loader.archive_tail(&self.head, &built, &keep).await.unwrap();
        let covered = receipts_of(&self.tail);
        let receipt_pages = write_receipt_pages(&self.loader, staged, &covered).await.unwrap();
        let publisher = self.publisher();
        let mut successor = Successor::of(&self.head, publisher);
        let (snapshot, based_on) = (built.snapshot, built.based_on);
        assert!(successor.compact(&Compaction { snapshot, based_on, receipt_pages, archive }));
        self.publish(successor.finish()).await;
    }

    /// Compacts up to the version of `view`.
    pub(crate) async fn compact_to(&mut self, view: &View, sizes: Sizes) -> BuiltSnapshot {
        let staged = self.head.revision;
        let options = BuildOptions::default();
        let built = build_sized(&self.loader, view, staged, options, sizes).await.unwrap();
        if built.based_on != self.head.snapshot {
            return built;
        }
        let n_covered = self.tail.partition_point(|it| it.version <= view.version());
        if n_covered == 0 {
            return built;
        }
        let covered = receipts_of(&self.tail[..n_covered]);
        let receipt_pages = write_receipt_pages(&self.loader, staged, &covered).await.unwrap();
        let publisher = self.publisher();
        let mut successor = Successor::of(&self.head, publisher);
        let (snapshot, based_on) = (built.snapshot.clone(), built.based_on.clone());
        let archive = ArchiveUpdate {
            based_on: None,
            becomes: None,
            named: Vec::new(),
            accounted: self.head.segments.iter().map(|it| it.object.key.clone()).collect(),
            pinned: BTreeSet::new(),
            forks: BTreeSet::new(),
            expired: Vec::new(),
            needs_base: false,
        };
        if successor.compact(&Compaction { snapshot, based_on, receipt_pages, archive }) {
            self.publish(successor.finish()).await;
        }
        built
    }
}

fn publisher(nonce: u8) -> Publisher {
    Publisher { id: "test".into(), nonce: Nonce::from_bytes([nonce; 16]), address: None }
}

/// The receipts that changes carry, in order.
pub(crate) fn receipts_of(changes: &[LoadedChange]) -> Vec<Receipt> {
    changes.iter().flat_map(|it| it.change.receipts(it.version)).collect()
}
