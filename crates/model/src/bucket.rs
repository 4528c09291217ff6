//! The bucket: one head under compare-and-swap, immutable objects, request
//! records. What it takes in it checks as an honest reader would, with as
//! little of core's own checks as possible: those may be what is broken.

use std::collections::BTreeMap;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use bytes::Bytes;
use headwater_core::archive::{Archive, Keep};
use headwater_core::change::Change;
use headwater_core::follow::Chain;
use headwater_core::format;
use headwater_core::format::snapshot::{ChunkRef, Parts, SnapshotIndex};
use headwater_core::head::{
    ChangeBody, ChangeRef, Head, ObjectRef, ObservedHead, Pin, Publisher, SnapshotRef,
};
use headwater_core::id::{HistoryId, HistoryName, Nonce, OperationId, Tag};
use headwater_core::keys::{ObjectKey, ObjectKind};
use headwater_core::operation::RequestRecord;
use headwater_core::receipt::{Receipt, ReceiptIndex};
use headwater_core::version::{Revision, StateVersion};

use crate::domain::State;
use crate::promise::{Broken, Promise, ensure};
use crate::setup::HOUR_MS;

/// The bucket, and what really happened in the history, which nobody reads.
#[derive(Clone, Debug)]
pub struct Bucket {
    observed: ObservedHead,
    objects: BTreeMap<ObjectKey, Bytes>,
    records: BTreeMap<OperationId, RequestRecord>,
    /// The change that led to version `index + 1`.
    log: Vec<Arc<Change>>,
    /// The state at version `index`.
    states: Vec<Arc<State>>,
    /// What every clock shows.
    now_ms: u64,
    /// What a history that was forked from this one names of it.
    forked: Vec<ObjectRef>,
    has_lost_a_pin: bool,
}

fn index(version: StateVersion) -> usize {
    usize::try_from(version.get()).unwrap_or(usize::MAX)
}

fn tag_of(revision: Revision) -> Tag {
    Tag::new(revision.to_string())
}

impl Bucket {
    /// A new history.
    pub fn new(is_exclusive: bool) -> Self {
        let id = HistoryId::from_bytes([1; 16]);
        let bytes: Bytes = format::snapshot::encode(&SnapshotIndex::empty(id)).into();
        let object = ObjectRef::to_content(ObjectKind::Snapshot, Revision::new(0), &bytes);
        let publisher =
            Publisher { id: "creator".into(), nonce: Nonce::from_bytes([1; 16]), address: None };
        let Ok(name) = HistoryName::parse("model") else { unreachable!("a plain word") };
        let objects = [(object.key.clone(), bytes)].into();
        let head = Head::first(name, id, Revision::FIRST, is_exclusive, publisher, object);
        let observed = ObservedHead { tag: tag_of(head.revision), head: Arc::new(head) };
        let states = vec![Arc::default()];
        Self {
            observed,
            objects,
            records: BTreeMap::new(),
            log: Vec::new(),
            states,
            now_ms: 0,
            forked: Vec::new(),
            has_lost_a_pin: false,
        }
    }

    /// By what is kept or let go now.
    pub fn keep(&self) -> Keep {
        Keep { now_ms: self.now_ms, clock_error_ms: 0 }
    }

    /// Pins that expire are over from here on.
    pub fn pass_time(&mut self) {
        self.now_ms += 2 * HOUR_MS;
    }

    /// Whether a pin that expired is gone.
    pub fn has_lost_a_pin(&self) -> bool {
        self.has_lost_a_pin
    }

    /// Whether there is a pin of a fork, of which the fork has read nothing yet.
    pub fn can_fork(&self) -> bool {
        self.forked.is_empty() && self.head().forks().next().is_some()
    }

    /// Whether a fork has read what it needs.
    pub fn has_fork(&self) -> bool {
        !self.forked.is_empty()
    }

    /// A fork reads the head, and finds the snapshot that its version is made
    /// from. From here on it names chunks of that one.
    pub fn fork(&mut self) {
        let head = Arc::clone(&self.observed.head);
        let Some(version) = head.forks().next().map(|it| it.version) else { return };
        let archive = self.archive(&head);
        let older = archive.snapshots.iter().map(|it| &it.snapshot);
        let at_or_below = older.chain([&head.snapshot]).filter(|it| it.version <= version);
        let Some(base) = at_or_below.max_by_key(|it| it.version) else { return };
        self.forked = self.chunks(base).into_iter().map(|it| it.object).collect();
        self.forked.push(base.object.clone());
    }

    /// What a read gives.
    pub fn read(&self) -> &ObservedHead {
        &self.observed
    }

    /// The current head.
    pub fn head(&self) -> &Head {
        &self.observed.head
    }

    /// Its version.
    pub fn version(&self) -> StateVersion {
        self.head().state_version
    }

    /// The state at a version.
    pub fn state(&self, version: StateVersion) -> &Arc<State> {
        &self.states[index(version)]
    }

    /// The changes after version `since`, with the versions that they led to.
    pub fn changes_after(
        &self,
        since: StateVersion,
    ) -> impl Iterator<Item = (StateVersion, &Change)> {
        let versions = (since.get() + 1..).map(StateVersion::new);
        versions.zip(self.log.iter().skip(index(since)).map(|it| &**it))
    }

    /// Whether the object is there.
    pub fn has(&self, key: &ObjectKey) -> bool {
        self.objects.contains_key(key)
    }

    /// An object, if it is there and is what the reference says.
    pub fn get(&self, object: &ObjectRef) -> Option<&Bytes> {
        self.objects.get(&object.key).filter(|it| object.is_to(it))
    }

    /// The keys of all objects.
    pub fn keys(&self) -> impl Iterator<Item = &ObjectKey> {
        self.objects.keys()
    }

    /// Creates an object if it is absent.
    pub fn put(&mut self, object: &ObjectRef, bytes: &Bytes) {
        self.objects.entry(object.key.clone()).or_insert_with(|| bytes.clone());
    }

    /// Deletes an object.
    pub fn delete(&mut self, key: &ObjectKey) {
        self.objects.remove(key);
    }

    /// Creates a record if it is absent; returns the one that is there.
    pub fn record(&mut self, record: &RequestRecord) -> &RequestRecord {
        self.records.entry(record.operation_id.clone()).or_insert_with(|| record.clone())
    }

    /// The record of an operation.
    pub fn record_of(&self, id: &OperationId) -> Option<&RequestRecord> {
        self.records.get(id)
    }

    /// The archive that `head` names.
    pub fn archive(&self, head: &Head) -> Archive {
        let object = head.archive.as_ref().and_then(|it| self.get(&it.object));
        let archive = object.and_then(|it| format::archive::decode(it.clone()).ok());
        archive.unwrap_or_else(|| Archive::empty(head.history_id))
    }

    /// The chunks of a snapshot; none where it is not there.
    pub fn chunks(&self, snapshot: &SnapshotRef) -> Vec<ChunkRef> {
        let index = self.get(&snapshot.object).cloned();
        match index.map(|it| format::snapshot::decode(it).map(|it| it.parts)) {
            Some(Ok(Parts::Chunks(chunks))) => chunks,
            Some(Ok(Parts::Pages(_)) | Err(_)) | None => Vec::new(),
        }
    }

    /// Every object that `head` reaches, by way of its archive too.
    pub fn reachable(&self, head: &Head) -> Vec<ObjectRef> {
        let archive = self.archive(head);
        let named = head.references().chain(archive.references()).cloned();
        let snapshots = archive.snapshots.iter().map(|it| &it.snapshot);
        let chunks = snapshots.chain([&head.snapshot]).flat_map(|it| self.chunks(it));
        named.chain(chunks.map(|it| it.object)).collect()
    }

    /// Whether every version that the head says can be read has a way to it.
    fn check_kept(&self) -> Result<(), Broken> {
        let head = self.head();
        let archive = self.archive(head);
        let retained = head.retained_from().get()..head.snapshot.version.get();
        let pinned = head.pins.iter().map(|it| it.version);
        let mut versions = retained.map(StateVersion::new).chain(pinned);
        let lost = versions.find(|it| *it < head.snapshot.version && archive.way_to(*it).is_none());
        ensure(lost.is_none(), Promise::NothingMissing, || {
            format!("{lost:?} is to be kept, and there is no way to it")
        })
    }

    /// Whether everything that the current head reaches is there.
    ///
    /// # Errors
    ///
    /// [`Promise::NothingMissing`].
    pub fn check_reachable(&self) -> Result<(), Broken> {
        self.check_kept()?;
        // Of the snapshot itself a fork needs nothing once it has its own.
        let chunks = self.forked.iter().filter(|it| it.key.kind() == ObjectKind::Chunk);
        let named = self.reachable(self.head()).into_iter().chain(chunks.cloned());
        let missing = named.into_iter().find(|it| self.get(it).is_none());
        ensure(missing.is_none(), Promise::NothingMissing, || {
            format!("{:?} is not there", missing.map(|it| it.key))
        })
    }

    /// Replaces the head if its tag is still `if_match`; returns the new tag.
    ///
    /// # Errors
    ///
    /// The promise that the new head breaks.
    pub fn replace(&mut self, if_match: &Tag, head: &Arc<Head>) -> Result<Option<Tag>, Broken> {
        if self.observed.tag != *if_match {
            return Ok(None);
        }
        let previous = Arc::clone(&self.observed.head);
        check_floors(&previous, head)?;
        self.check_pins(&previous, head)?;
        for change in head.changes.iter().filter(|it| previous.state_version < it.version) {
            self.take_in(change)?;
        }
        let mut chain = Chain::at(previous.state_version, previous.chain_hash);
        for change in head.changes.iter().filter(|it| previous.state_version < it.version) {
            chain.extend(change.hash);
        }
        ensure(chain.finish(head).is_ok(), Promise::Kept, || "the chain is broken".into())?;
        ensure(index(head.state_version) == self.log.len(), Promise::Kept, || {
            format!("{} is not the number of changes", head.state_version)
        })?;
        let tag = tag_of(head.revision);
        self.observed = ObservedHead { head: Arc::clone(head), tag: tag.clone() };
        self.check_reachable()?;
        self.check_tail()?;
        Ok(Some(tag))
    }

    /// A pin goes when it has expired, and not before. None is taken away in a
    /// world.
    fn check_pins(&mut self, previous: &Head, head: &Head) -> Result<(), Broken> {
        let gone: Vec<_> = previous.pins.iter().filter(|it| !head.pins.contains(it)).collect();
        let is_over = |it: &&Pin| it.expires_at_ms.is_some_and(|it| it < self.now_ms);
        ensure(gone.iter().all(is_over), Promise::Kept, || format!("{gone:?} are gone"))?;
        self.has_lost_a_pin |= !gone.is_empty();
        Ok(())
    }

    fn take_in(&mut self, change: &ChangeRef) -> Result<(), Broken> {
        let bytes = match &change.body {
            ChangeBody::Inline(bytes) => Some(bytes),
            ChangeBody::Staged(object) => self.get(object),
        };
        let decoded = bytes.and_then(|it| format::change::decode(it.clone()).ok());
        let Some(decoded) = decoded else {
            let what = format!("{:?} is not there", change.body);
            return Err(Broken { promise: Promise::NothingMissing, what });
        };
        ensure(index(change.version) == self.log.len() + 1, Promise::Kept, || {
            format!("{} takes the place of another change", change.version)
        })?;
        let mut state = State::clone(&self.states[self.log.len()]);
        for operation in &decoded.operations {
            let is_there = self.find(&operation.id).is_some();
            ensure(!is_there, Promise::AtMostOnce, || format!("{} is there twice", operation.id))?;
            state.apply(change.version, operation);
        }
        self.states.push(Arc::new(state));
        self.log.push(Arc::new(decoded));
        Ok(())
    }

    /// Where the tail and its receipts are kept in other objects, these say
    /// what happened.
    fn check_tail(&self) -> Result<(), Broken> {
        let head = self.head();
        for run in &head.segments {
            let segment =
                self.get(&run.object).and_then(|it| format::segment::decode(it.clone()).ok());
            let changes = segment.iter().flat_map(|it| &it.entries);
            let changes: Option<Vec<_>> =
                changes.map(|it| format::change::decode(it.1.clone()).ok()).collect();
            let expected = &self.log[index(run.from) - 1..index(run.to)];
            let is_it = changes.is_some_and(|it| it.iter().eq(expected.iter().map(|it| &**it)));
            ensure(is_it, Promise::Kept, || format!("segment {} is another run", run.object.key))?;
        }
        for run in &head.receipt_pages {
            let page =
                self.get(&run.object).and_then(|it| format::receipts::decode(it.clone()).ok());
            let is_it = page == Some(self.receipts(run.from, run.to));
            ensure(is_it, Promise::ReceiptsTrue, || format!("page {} is wrong", run.object.key))?;
        }
        let covered = head.receipt_pages.first().map_or(head.tail_from(), |it| it.from);
        ensure(covered <= head.receipt_coverage_from, Promise::ReceiptsTrue, || {
            format!("no receipts from {}", head.receipt_coverage_from)
        })
    }

    /// The receipts of versions `from` to `to`.
    pub fn receipts(&self, from: StateVersion, to: StateVersion) -> Vec<Receipt> {
        let versions = (from.get()..=to.get()).map(StateVersion::new);
        versions.flat_map(|it| self.receipts_of(it)).collect()
    }

    /// The receipts of one version.
    pub fn receipts_of(&self, version: StateVersion) -> Vec<Receipt> {
        self.log[index(version) - 1].receipts(version).collect()
    }

    /// All that `head` covers.
    pub fn evidence(&self, head: &Head) -> ReceiptIndex {
        let mut all = ReceiptIndex::new(head.receipt_coverage_from);
        for version in head.receipt_coverage_from.get()..=head.state_version.get() {
            let version = StateVersion::new(version);
            all.push(version, self.receipts_of(version));
        }
        all
    }

    /// The acceptance of an operation, if it was accepted.
    pub fn find(&self, id: &OperationId) -> Option<Receipt> {
        let versions = (1..).map(StateVersion::new).zip(&self.log);
        let mut receipts = versions.flat_map(|(version, change)| change.receipts(version));
        receipts.find(|it| it.operation_id == *id)
    }

    /// The acceptances, in order.
    pub fn accepted(&self) -> impl Iterator<Item = Receipt> {
        let versions = (1..).map(StateVersion::new).zip(&self.log);
        versions.flat_map(|(version, change)| change.receipts(version))
    }
}

/// What must not fall or change, said once more and apart from core's check.
fn check_floors(previous: &Head, head: &Head) -> Result<(), Broken> {
    let is_next = previous.revision.get() + 1 == head.revision.get();
    ensure(is_next && previous.history_id == head.history_id, Promise::NothingFalls, || {
        format!("{} replaces {}", head.revision, previous.revision)
    })?;
    let floors = [
        ("version", previous.state_version.get(), head.state_version.get()),
        ("operations", previous.operation_count, head.operation_count),
        ("epoch", previous.writer_epoch, head.writer_epoch),
        ("coverage", previous.receipt_coverage_from.get(), head.receipt_coverage_from.get()),
        ("sweep", previous.sweep_from.get(), head.sweep_from.get()),
        ("swept", previous.swept_to.get(), head.swept_to.get()),
        ("retained", previous.retained_from().get(), head.retained_from().get()),
        ("snapshot", previous.snapshot.version.get(), head.snapshot.version.get()),
    ];
    let fallen = floors.iter().find(|(_, then, now)| now < then);
    ensure(fallen.is_none(), Promise::NothingFalls, || format!("{fallen:?}"))
}

impl Hash for Bucket {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        // The log and the states follow from the chain.
        self.observed.head.hash(hasher);
        self.objects.len().hash(hasher);
        for (key, bytes) in &self.objects {
            key.as_str().hash(hasher);
            // Other keys hold the hash of the bytes.
            if key.kind() == ObjectKind::Change {
                bytes.hash(hasher);
            }
        }
        (self.now_ms, self.has_lost_a_pin, &self.forked).hash(hasher);
        for (id, record) in &self.records {
            (id, record.request_hash, record.issued_from).hash(hasher);
        }
    }
}
