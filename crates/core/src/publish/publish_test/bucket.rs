//! The bucket: heads under compare-and-swap, immutable objects, request
//! records. Whatever it takes in it checks as a reader would.

use std::collections::BTreeMap;
use std::string::String;
use std::sync::Arc;
use std::vec;
use std::vec::Vec;

use bytes::Bytes;

use super::model::State;
use crate::archive::Archive;
use crate::change::Change;
use crate::follow::Chain;
use crate::format;
use crate::format::snapshot::SnapshotIndex;
use crate::head::{ChangeBody, Head, ObjectRef, ObservedHead, Publisher};
use crate::id::{HistoryId, HistoryName, Nonce, OperationId, Tag};
use crate::keys::{ObjectKey, ObjectKind};
use crate::operation::RequestRecord;
use crate::receipt::{Receipt, ReceiptIndex};
use crate::version::{Revision, StateVersion};

fn index(version: StateVersion) -> usize {
    usize::try_from(version.get()).unwrap()
}

#[derive(Debug)]
pub(super) struct Bucket {
    /// Every head of the present history, oldest first; the last is current.
    heads: Vec<ObservedHead>,
    is_missing: bool,
    pub(super) objects: BTreeMap<ObjectKey, Bytes>,
    pub(super) records: BTreeMap<OperationId, RequestRecord>,
    /// The change that led to version `index + 1`.
    pub(super) log: Vec<Change>,
    /// The state at version `index`.
    states: Vec<State>,
    /// Every upload of an object that was asked for.
    pub(super) uploads: Vec<ObjectKey>,
    tags: u64,
}

impl Bucket {
    pub(super) fn new(history: u8, is_exclusive: bool) -> Self {
        let mut bucket = Self {
            heads: Vec::new(),
            is_missing: false,
            objects: BTreeMap::new(),
            records: BTreeMap::new(),
            log: Vec::new(),
            states: vec![State::default()],
            uploads: Vec::new(),
            tags: u64::from(history) * 1000,
        };
        let id = HistoryId::from_bytes([history; 16]);
        let index = format::snapshot::encode(&SnapshotIndex::empty(id));
        let object = ObjectRef::to_content(ObjectKind::Snapshot, Revision::new(0), &index);
        bucket.objects.insert(object.key.clone(), index.into());
        let nonce = Nonce::from_bytes([history; 16]);
        let publisher = Publisher { id: "creator".into(), nonce, address: None };
        let name = HistoryName::parse("rig").unwrap();
        let head = Head::first(name, id, Revision::FIRST, is_exclusive, publisher, object);
        head.check().unwrap();
        bucket.take_in(head);
        bucket
    }

    fn take_in(&mut self, head: Head) -> Tag {
        self.tags += 1;
        let tag = Tag::new(std::format!("t{}", self.tags));
        self.heads.push(ObservedHead { head: Arc::new(head), tag: tag.clone() });
        tag
    }

    /// The current head.
    pub(super) fn head(&self) -> &Arc<Head> {
        &self.heads.last().unwrap().head
    }

    pub(super) fn version(&self) -> StateVersion {
        self.head().state_version
    }

    pub(super) fn tag(&self) -> &Tag {
        &self.heads.last().unwrap().tag
    }

    /// What a read gives; `None` when there is no head.
    pub(super) fn read(&self) -> Option<&ObservedHead> {
        self.heads.last().filter(|_| !self.is_missing)
    }

    pub(super) fn is_revision(&self, observed: &ObservedHead) -> bool {
        let at = usize::try_from(observed.head.revision.get()).unwrap() - 1;
        self.heads[at] == *observed
    }

    /// Whether some head of the history was like that.
    pub(super) fn has_had(&self, is_it: impl Fn(&Head) -> bool) -> bool {
        self.heads.iter().any(|it| is_it(&it.head))
    }

    pub(super) fn lose_head(&mut self) {
        self.is_missing = true;
    }

    pub(super) fn state(&self, version: StateVersion) -> &State {
        &self.states[index(version)]
    }

    pub(super) fn put(&mut self, object: &ObjectRef, bytes: &Bytes) {
        assert!(object.is_to(bytes), "an object is what its reference says");
        self.uploads.push(object.key.clone());
        let before = self.objects.insert(object.key.clone(), bytes.clone());
        assert!(before.is_none_or(|it| it == bytes), "a key is never reused for other bytes");
    }

    /// Replaces the head if its tag is still `if_match`.
    pub(super) fn replace(&mut self, if_match: &Tag, bytes: &Bytes) -> Option<Tag> {
        let head = format::head::decode(bytes).expect("a publisher publishes what readers accept");
        if self.is_missing || self.tag() != if_match {
            return None;
        }
        let previous = Arc::clone(self.head());
        head.check_follows(&previous).expect("a head follows the one before");
        assert!(!previous.is_retired(), "nothing follows a retired head");
        for object in head.references() {
            let bytes = self.objects.get(&object.key);
            assert!(bytes.is_some_and(|it| object.is_to(it)), "{} is not there", object.key);
        }
        self.check_archive(&head);
        self.replay(&previous, &head);
        self.check_coverage(&head);
        Some(self.take_in(head))
    }

    /// What the head names at one remove is there, and so is every version that
    /// it says can be read.
    fn check_archive(&self, head: &Head) {
        let archive = self.archive(head);
        for object in archive.references() {
            let bytes = self.objects.get(&object.key);
            assert!(bytes.is_some_and(|it| object.is_to(it)), "{} is not there", object.key);
        }
        let retained = head.retained_from().get()..head.snapshot.version.get();
        let pinned = head.pins.iter().map(|it| it.version.get());
        for version in retained.chain(pinned.filter(|it| *it < head.snapshot.version.get())) {
            assert!(archive.way_to(StateVersion::new(version)).is_some(), "{version} is gone");
        }
        let live: std::collections::BTreeSet<_> =
            head.references().chain(archive.references()).map(|it| &it.key).collect();
        assert!(!archive.released.iter().any(|it| live.contains(it)), "released and in use");
    }

    pub(super) fn archive(&self, head: &Head) -> Archive {
        let Some(archive) = &head.archive else { return Archive::empty(head.history_id) };
        format::archive::decode(self.objects[&archive.object.key].clone()).unwrap()
    }

    fn replay(&mut self, previous: &Head, head: &Head) {
        let mut chain = Chain::at(previous.state_version, previous.chain_hash);
        let mut operations = previous.operation_count;
        for change in head.changes.iter().filter(|it| previous.state_version < it.version) {
            let bytes = match &change.body {
                ChangeBody::Inline(bytes) => bytes.clone(),
                ChangeBody::Staged(object) => self.objects[&object.key].clone(),
            };
            let decoded = format::change::decode(bytes).unwrap();
            assert_eq!(chain.extend(change.hash), change.version);
            let mut state = self.states.last().unwrap().clone();
            decoded.operations.iter().for_each(|it| state.apply(change.version, it));
            operations += decoded.operations.len() as u64;
            self.states.push(state);
            self.log.push(decoded);
        }
        chain.finish(head).expect("the chain extends the one before");
        assert_eq!(operations, head.operation_count);
    }

    /// Every version from coverage to the snapshot has its receipts in a page.
    fn check_coverage(&self, head: &Head) {
        for page in &head.receipt_pages {
            let stored = format::receipts::decode(self.objects[&page.object.key].clone()).unwrap();
            assert_eq!(stored, self.receipts(page.from, page.to));
        }
        for run in &head.segments {
            let segment = format::segment::decode(self.objects[&run.object.key].clone()).unwrap();
            let changes: Vec<_> = segment
                .entries
                .into_iter()
                .map(|(_, bytes)| format::change::decode(bytes).unwrap())
                .collect();
            let (from, to) = (index(run.from), index(run.to));
            assert_eq!(changes, self.log[from - 1..to]);
        }
    }

    pub(super) fn receipts(&self, from: StateVersion, to: StateVersion) -> Vec<Receipt> {
        (from.get()..=to.get()).flat_map(|it| self.receipts_of(StateVersion::new(it))).collect()
    }

    pub(super) fn receipts_of(&self, version: StateVersion) -> Vec<Receipt> {
        self.log[index(version) - 1].receipts(version).collect()
    }

    pub(super) fn evidence(&self, head: &Head) -> ReceiptIndex {
        let mut index = ReceiptIndex::new(head.receipt_coverage_from);
        for version in head.receipt_coverage_from.get()..=head.state_version.get() {
            let version = StateVersion::new(version);
            index.push(version, self.receipts_of(version));
        }
        index
    }

    /// Every acceptance on record, with its place.
    pub(super) fn accepted(&self, id: &OperationId) -> Vec<Receipt> {
        let changes = self.log.iter().zip(1..).map(|it| (it.0, StateVersion::new(it.1)));
        let changes = changes.filter(|it| it.0.operations.iter().any(|it| it.id == *id));
        let receipts = changes.flat_map(|(change, version)| change.receipts(version));
        receipts.filter(|it| it.operation_id == *id).collect()
    }

    /// What was accepted so far, by id, in order.
    pub(super) fn ids(&self) -> Vec<String> {
        let all = self.log.iter().flat_map(|it| &it.operations);
        all.map(|it| it.id.as_str().into()).collect()
    }
}
