//! The bucket of a test, and what writes into it.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::TryStreamExt as _;
use headwater_core::archive::Keep;
use headwater_core::change::{AcceptedOperation, Change, Resolved};
use headwater_core::format;
use headwater_core::hash::{ContentHash, RequestHash};
use headwater_core::head::{
    Append, ChangeBody, Compaction, Fold, Head, ObjectRef, Pin, Publisher, Retention, Successor,
};
use headwater_core::id::{HistoryId, HistoryName, Nonce, OperationId, PinName, Tag};
use headwater_core::keys::ObjectKey;
use headwater_core::operation::Key;
use headwater_core::version::{Revision, StateVersion};
use headwater_replica::{Consistency, ReadFailure, Reader, Replica, ReplicaConfig, start};
use headwater_state::{
    BuildOptions, ChunkCache, LoadOptions, Loader, build_snapshot, write_empty_snapshot,
    write_receipt_pages, write_segment,
};
use headwater_store::{Call, Entropy, Fault, Faults, Gate, HeadWrite, Memory, Rule, Store};
use tokio::time::Instant;

/// Longer than anything takes that works.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

pub(crate) fn deadline() -> Instant {
    Instant::now() + PATIENCE
}

pub(crate) fn name(text: &str) -> HistoryName {
    HistoryName::parse(text).unwrap()
}

pub(crate) fn key(text: &str) -> Key {
    Key::new(Bytes::copy_from_slice(text.as_bytes())).unwrap()
}

pub(crate) fn version(number: u64) -> StateVersion {
    StateVersion::new(number)
}

/// Waits until so many calls are at the gate.
pub(crate) async fn arrived(gate: &Gate, n: u64) {
    tokio::time::timeout(PATIENCE, gate.arrived(n)).await.expect("calls come to the gate");
}

/// No polling: what a test does not ask for does not happen.
pub(crate) fn quiet() -> ReplicaConfig {
    ReplicaConfig { poll_ms: 0, ..ReplicaConfig::default() }
}

/// A bucket with one history in it, and a replica of it.
pub(crate) struct Rig {
    pub(crate) faults: Faults,
    pub(crate) writer: TestWriter,
    pub(crate) replica: Replica,
}

impl Rig {
    pub(crate) async fn new(config: ReplicaConfig) -> Self {
        let faults = Faults::new(Arc::new(Memory::new()));
        let writer = TestWriter::create(faults.behind(), "h", 1).await;
        let replica = start(faults.store(), config, Entropy::from_seed(1)).unwrap();
        Self { faults, writer, replica }
    }

    /// With the history open, and the calls of that forgotten.
    pub(crate) async fn open(config: ReplicaConfig) -> Self {
        let rig = Self::new(config).await;
        rig.reader().pin(Consistency::Any, deadline()).await.unwrap();
        rig.faults.clear_log();
        rig
    }

    pub(crate) fn reader(&self) -> Reader {
        self.replica.reader(self.writer.head.history.clone())
    }

    /// The value at `key`, and the version that it was read at.
    pub(crate) async fn read(
        &self,
        text: &str,
        consistency: Consistency,
    ) -> Result<(Option<String>, u64), ReadFailure> {
        let (entry, pinned) = self.reader().get(&key(text), consistency, deadline()).await?;
        let value = entry.map(|it| String::from_utf8(it.value.to_vec()).unwrap());
        Ok((value, pinned.version().get()))
    }

    pub(crate) fn count(&self, call: Call) -> usize {
        self.faults.log().iter().filter(|(it, _)| *it == call).count()
    }

    /// Holds the next reads of the head back before they are sent, until the
    /// gate is opened.
    pub(crate) fn hold_checks(&self, n: u64) -> Gate {
        let gate = Gate::new();
        self.faults.add(Rule::new(Fault::Hold(gate.clone())).on(Call::ReadHead).times(n));
        gate
    }

    /// As `hold_checks`, after they were sent: what they read is on its way.
    pub(crate) fn hold_answers(&self, n: u64) -> Gate {
        let gate = Gate::new();
        self.faults.add(Rule::new(Fault::HoldReply(gate.clone())).on(Call::ReadHead).times(n));
        gate
    }
}

/// Publishes heads: no batches, no receipts looked at, nobody else.
pub(crate) struct TestWriter {
    store: Arc<dyn Store>,
    pub(crate) head: Head,
    pub(crate) tag: Tag,
    /// The time that is written into changes, in milliseconds since 1970.
    pub(crate) clock_ms: u64,
    entropy: Entropy,
}

impl TestWriter {
    pub(crate) async fn create(store: Arc<dyn Store>, history: &str, seed: u64) -> Self {
        let entropy = Entropy::from_seed(seed);
        let id = HistoryId::from_bytes(entropy.bytes16());
        let history = name(history);
        let snapshot = write_empty_snapshot(&*store, &history, id, Revision::new(0)).await.unwrap();
        let publisher = publisher(&entropy);
        let head = Head::first(history, id, Revision::FIRST, false, publisher, snapshot);
        let bytes = format::head::encode(&head).into();
        let answer = store.create_head(&head.history.head_key(), bytes).await;
        let HeadWrite::Replaced { tag } = answer else { panic!("{answer:?}") };
        Self { store, head, tag, clock_ms: 0, entropy }
    }

    pub(crate) fn version(&self) -> StateVersion {
        self.head.state_version
    }

    pub(crate) fn loader(&self) -> Loader {
        let cache = ChunkCache::new(1 << 20);
        let store = Arc::clone(&self.store);
        Loader::new(store, self.head.history.clone(), cache, LoadOptions::default())
    }

    /// One version that gives `key` this value, in the head itself.
    pub(crate) async fn put(&mut self, text: &str, value: &str) -> StateVersion {
        let bytes = encode(self.version().next(), self.clock_ms, vec![put(text, value)]);
        let hash = ContentHash::of(&bytes);
        self.append(hash, ChangeBody::Inline(bytes)).await
    }

    /// One version of these mutations, in the head itself.
    pub(crate) async fn change(&mut self, mutations: Vec<Resolved>) -> StateVersion {
        let bytes = encode(self.version().next(), self.clock_ms, mutations);
        let hash = ContentHash::of(&bytes);
        self.append(hash, ChangeBody::Inline(bytes)).await
    }

    /// So many versions in one head. Each puts its number, and zeros up to a
    /// size, under one of a hundred keys.
    pub(crate) async fn put_versions(&mut self, count: u64, value_bytes: usize) {
        let mut next = self.successor();
        for number in (self.version().get() + 1..).take(usize::try_from(count).unwrap()) {
            let value = format!("{number:0value_bytes$}");
            let put = put(&format!("k{:02}", number % 100), &value);
            let bytes = encode(version(number), self.clock_ms, vec![put]);
            let hash = ContentHash::of(&bytes);
            next.append(Append { hash, body: ChangeBody::Inline(bytes), operations: 1 });
        }
        self.publish(next.finish()).await;
    }

    /// One version in an object of its own; returns its key in the store.
    pub(crate) async fn put_staged(&mut self, text: &str, value: &str) -> String {
        let bytes = encode(self.version().next(), self.clock_ms, vec![put(text, value)]);
        let nonce = Nonce::from_bytes(self.entropy.bytes16());
        let (hash, size_bytes) = (ContentHash::of(&bytes), bytes.len() as u64);
        let object_key = ObjectKey::change(self.head.revision, nonce);
        let full_key = self.head.history.object_key(&object_key);
        self.store.put(&full_key, bytes).await.unwrap();
        let object = ObjectRef { key: object_key, hash, size_bytes };
        self.append(hash, ChangeBody::Staged(object)).await;
        full_key
    }

    async fn append(&mut self, hash: ContentHash, body: ChangeBody) -> StateVersion {
        let mut next = self.successor();
        let version = next.append(Append { hash, body, operations: 1 });
        self.publish(next.finish()).await;
        version
    }

    /// Moves all changes of the tail into a segment, and deletes their objects.
    pub(crate) async fn fold_and_sweep(&mut self) {
        let before = self.head.clone();
        self.fold().await;
        self.sweep(&before).await;
    }

    /// Moves all changes of the tail into a segment.
    pub(crate) async fn fold(&mut self) {
        let loader = self.loader();
        let from = self.head.changes.first().unwrap().version;
        let changes = loader.read_changes(&self.head, from, usize::MAX).await.unwrap();
        let segment = write_segment(&loader, self.head.revision, &changes).await.unwrap();
        let last_change = self.head.changes.last().unwrap().hash;
        let mut next = self.successor();
        assert!(next.fold(&Fold { segment, last_change }));
        self.publish(next.finish()).await;
    }

    /// Puts a snapshot of everything in place of the tail, and deletes what the
    /// head named before.
    pub(crate) async fn compact_and_sweep(&mut self) {
        let before = self.head.clone();
        let chunks = self.chunk_keys().await;
        self.compact().await;
        let kept = self.chunk_keys().await;
        self.sweep(&before).await;
        for chunk in chunks.into_iter().filter(|it| !kept.contains(it)) {
            self.store.delete(&chunk).await.unwrap();
        }
    }

    pub(crate) async fn compact(&mut self) {
        let loader = self.loader();
        let opened = loader.open(&self.head).await.unwrap();
        let staged = self.head.revision;
        let built =
            build_snapshot(&loader, &opened.view, staged, BuildOptions::default()).await.unwrap();
        let receipts = opened.changes.iter().flat_map(|it| it.change.receipts(it.version));
        let receipts: Vec<_> = receipts.collect();
        let receipt_pages = write_receipt_pages(&loader, staged, &receipts).await.unwrap();
        let keep = Keep { now_ms: 0, clock_error_ms: 0 };
        let archive = loader.archive_tail(&self.head, &built, &keep).await.unwrap();
        let (snapshot, based_on) = (built.snapshot, built.based_on);
        let mut next = self.successor();
        assert!(next.compact(&Compaction { snapshot, based_on, receipt_pages, archive }));
        self.publish(next.finish()).await;
    }

    /// So many versions before the newest are to stay readable.
    pub(crate) async fn retain(&mut self, versions: u64) {
        let mut next = self.successor();
        next.set_retention(Retention { versions, age_ms: 0 });
        self.publish(next.finish()).await;
    }

    pub(crate) async fn pin(&mut self, name: &str, version: StateVersion) {
        let name = PinName::parse(name).unwrap();
        let mut next = self.successor();
        let revision = next.head().revision;
        next.pin(Pin { name, version, revision, expires_at_ms: None, child: None });
        self.publish(next.finish()).await;
    }

    /// Deletes what the archive has let go of.
    pub(crate) async fn sweep_released(&self) {
        let archive = self.loader().archive(&self.head).await.unwrap();
        for key in &archive.released {
            self.store.delete(&self.head.history.object_key(key)).await.unwrap();
        }
    }

    /// Keys of the snapshot's chunks in the store.
    pub(crate) async fn chunk_keys(&self) -> Vec<String> {
        let history = &self.head.history;
        let reached = self.loader().reached(&self.head.snapshot);
        reached.map_ok(|it| history.object_key(&it.object.key)).try_collect().await.unwrap()
    }

    /// Deletes what `before` names and the head does not.
    async fn sweep(&self, before: &Head) {
        for object in before.references() {
            if self.head.references().all(|it| it.key != object.key) {
                self.store.delete(&self.head.history.object_key(&object.key)).await.unwrap();
            }
        }
    }

    pub(crate) async fn retire(&mut self) {
        let mut next = self.successor();
        next.retire();
        self.publish(next.finish()).await;
    }

    /// Replaces the head by any bytes at all.
    pub(crate) async fn overwrite(&mut self, bytes: impl Into<Bytes>) {
        let key = self.head.history.head_key();
        let answer = self.store.replace_head(&key, &self.tag, bytes.into()).await;
        let HeadWrite::Replaced { tag } = answer else { panic!("{answer:?}") };
        self.tag = tag;
    }

    pub(crate) fn successor(&self) -> Successor<'_> {
        Successor::of(&self.head, publisher(&self.entropy))
    }

    pub(crate) async fn publish(&mut self, head: Head) {
        head.check().unwrap();
        head.check_follows(&self.head).unwrap();
        self.overwrite(format::head::encode(&head)).await;
        self.head = head;
    }
}

fn publisher(entropy: &Entropy) -> Publisher {
    Publisher { id: "test".into(), nonce: Nonce::from_bytes(entropy.bytes16()), address: None }
}

pub(crate) fn put(text: &str, value: &str) -> Resolved {
    Resolved::Put(key(text), Bytes::copy_from_slice(value.as_bytes()))
}

/// A change entry of version 1 that puts one value.
pub(crate) fn entry_of(text: &str, value: &str) -> Bytes {
    encode(version(1), 0, vec![put(text, value)])
}

fn encode(version: StateVersion, decided_at_ms: u64, mutations: Vec<Resolved>) -> Bytes {
    let operation = AcceptedOperation {
        id: OperationId::parse(&format!("op-{}", version.get())).unwrap(),
        request_hash: RequestHash::from_bytes([9; 32]),
        results: Vec::new(),
        mutations,
    };
    format::change::encode(&Change { decided_at_ms, operations: vec![operation] }).into()
}
