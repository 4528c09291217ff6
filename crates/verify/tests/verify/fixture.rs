//! A bucket, a writer over it, and histories of a known shape.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use headwater_core::decide::Ask;
use headwater_core::format;
use headwater_core::head::{Head, Publisher, Successor};
use headwater_core::id::{HistoryId, HistoryName, Nonce, OperationId, PinName};
use headwater_core::operation::{Issue, Key, KeyRange, Mutation, Operation, Request};
use headwater_core::publish::{Answer, Control, NewPin};
use headwater_core::version::StateVersion;
use headwater_state::{ChunkCache, LoadOptions, Loader, Scan};
use headwater_store::{Clock, Entropy, HeadRead, HeadWrite, Memory, Store};
use headwater_verify::{Finding, Options, Progress, Report, Severity, Verifier, VerifyError};
use headwater_writer::{Question, Writer, WriterConfig};
use tokio_util::sync::CancellationToken;

pub(crate) const NAME: &str = "h";

pub(crate) fn name(text: &str) -> HistoryName {
    HistoryName::parse(text).unwrap()
}

pub(crate) struct World {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) writer: Writer,
    pub(crate) history: HistoryName,
    issued: u64,
    version: u64,
}

/// Folds and compacts every few versions, and at once.
pub(crate) fn busy() -> WriterConfig {
    WriterConfig {
        fold_changes: 4,
        compact_tail_versions: 12,
        compact_keep_versions: 0,
        inline_bytes_max: 600,
        retain_versions: 0,
        retain_age_ms: 0,
        ..WriterConfig::default()
    }
}

/// Likewise, and nothing is let go of.
pub(crate) fn keeping() -> WriterConfig {
    WriterConfig { retain_versions: 1_000, ..busy() }
}

impl World {
    pub(crate) async fn new(config: WriterConfig) -> Self {
        Self::over(Arc::new(Memory::new()), config).await
    }

    pub(crate) async fn over(store: Arc<dyn Store>, config: WriterConfig) -> Self {
        let clock = Clock::virtual_from(1_700_000_000_000);
        let entropy = Entropy::from_seed(7);
        let writer = headwater_writer::start(Arc::clone(&store), config, entropy, clock).unwrap();
        let history = name(NAME);
        writer.create(&history, HistoryId::from_bytes([7; 16]), false).await.unwrap();
        Self { store, writer, history, issued: 0, version: 0 }
    }

    async fn ask(&self, question: Question) -> Answer {
        self.writer.ask(&self.history, question).await.unwrap().answer
    }

    pub(crate) async fn submit(&mut self, mutations: Vec<Mutation>) {
        self.submit_kept(mutations, false).await;
    }

    pub(crate) async fn submit_kept(&mut self, mutations: Vec<Mutation>, is_service_kept: bool) {
        let request = Request::new(Vec::new(), mutations).unwrap();
        let issued_from = StateVersion::new(self.version);
        let issue = if is_service_kept {
            Issue::ServiceKept { issued_from, is_durable: false }
        } else {
            Issue::ClientKept(issued_from)
        };
        let operation = Operation {
            id: OperationId::parse(&format!("op-{}", self.issued)).unwrap(),
            request_hash: request.hash(),
            request: Arc::new(request),
            issue,
            writer_epoch: 0,
            history_id: None,
            ends_version: false,
        };
        self.issued += 1;
        match self.ask(Question::Ask(Ask::Submit(operation))).await {
            Answer::Accepted { receipt, .. } => self.version = receipt.accepted_at.get(),
            other => panic!("{other:?}"),
        }
        // What runs beside the commits gets its turn.
        tokio::time::sleep(Duration::from_millis(20)).await;
    }

    pub(crate) async fn pin(&self, pin: &str) {
        let new = NewPin {
            name: PinName::parse(pin).unwrap(),
            version: None,
            expires_at_ms: None,
            child: None,
        };
        let answer = self.ask(Question::Control(Control::Pin(new))).await;
        assert!(matches!(answer, Answer::Pinned(_)), "{answer:?}");
    }

    /// Until nothing more is prepared or let go.
    pub(crate) async fn settle(&self) {
        tokio::time::sleep(Duration::from_secs(300)).await;
    }

    pub(crate) async fn head(&self) -> Head {
        match self.store.read_head(&self.history.head_key(), None).await.unwrap() {
            HeadRead::Found { bytes, .. } => format::head::decode(&bytes).unwrap(),
            HeadRead::Missing | HeadRead::Unchanged => panic!("no head"),
        }
    }

    /// Publishes a head that a writer did not make.
    pub(crate) async fn publish(&self, change: impl FnOnce(&mut Successor<'_>)) -> Head {
        let head = self.head().await;
        let nonce = Nonce::from_bytes(*b"made by the test");
        let mut successor =
            Successor::of(&head, Publisher { id: "test".into(), nonce, address: None });
        change(&mut successor);
        let next = successor.finish();
        self.put_head(&next).await;
        next
    }

    /// Puts a head in place, whatever it is.
    pub(crate) async fn put_head(&self, head: &Head) {
        let key = self.history.head_key();
        let HeadRead::Found { tag, .. } = self.store.read_head(&key, None).await.unwrap() else {
            panic!("no head");
        };
        let bytes = Bytes::from(format::head::encode(head));
        let write = self.store.replace_head(&key, &tag, bytes).await;
        assert!(matches!(write, HeadWrite::Replaced { .. }), "{write:?}");
    }

    pub(crate) fn loader(&self) -> Loader {
        let cache = ChunkCache::new(1 << 20);
        Loader::new(Arc::clone(&self.store), self.history.clone(), cache, LoadOptions::default())
    }

    /// Every key below the history, heads left out.
    pub(crate) async fn keys(&self) -> Vec<String> {
        let listed = self.store.list(&format!("{}/", self.history), None, 100_000).await.unwrap();
        let head = self.history.head_key();
        listed.into_iter().map(|it| it.key).filter(|it| *it != head).collect()
    }

    pub(crate) async fn overwrite(&self, key: &str, bytes: Bytes) {
        self.store.delete(key).await.unwrap();
        self.store.put(key, bytes).await.unwrap();
    }

    pub(crate) async fn verify(&self) -> Report {
        self.verify_with(Options::default()).await.unwrap()
    }

    pub(crate) async fn verify_with(&self, options: Options) -> Result<Report, VerifyError> {
        let store = Arc::clone(&self.store);
        let verifier = Verifier::new(store, options, Progress::default(), CancellationToken::new());
        verifier.verify(&self.history).await
    }

    /// Every key, its value and version, as of `version`.
    pub(crate) async fn state_at(&self, version: u64) -> Vec<(String, Bytes, u64)> {
        let (head, loader) = (self.head().await, self.loader());
        let version = StateVersion::new(version);
        let view = if version < head.snapshot.version {
            let archive = loader.archive(&head).await.unwrap();
            loader.open_archived(&head, &archive, version).await.unwrap().unwrap()
        } else {
            loader.open_at(&head, version).await.unwrap()
        };
        let scan = Scan {
            range: KeyRange::everything(),
            after: None,
            reverse: false,
            keys_only: false,
            entries_max: 1_000_000,
            bytes_max: 1 << 30,
        };
        let page = view.scan(&scan).await.unwrap();
        let entries = page.entries.into_iter();
        entries.map(|it| (it.key.to_string(), it.value, it.version.get())).collect()
    }
}

pub(crate) fn key(text: &str) -> Key {
    Key::new(text.as_bytes().to_vec()).unwrap()
}

pub(crate) fn put(at: &str, value: impl Into<Bytes>) -> Mutation {
    Mutation::Put(key(at), value.into())
}

/// Bytes that do not compress.
pub(crate) fn noise(seed: u64, len: usize) -> Bytes {
    let mut out = Vec::with_capacity(len);
    let mut block = seed;
    while out.len() < len {
        out.extend_from_slice(blake3::hash(&block.to_be_bytes()).as_bytes());
        block = block.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
    }
    out.truncate(len);
    out.into()
}

/// A history with everything that a history can have: several chunks, some of
/// them shared by snapshots, an archive with runs and snapshots, pages of
/// receipts, a segment and staged and inline changes in the tail, and a pin.
pub(crate) async fn rich() -> World {
    rich_over(Arc::new(Memory::new())).await
}

pub(crate) async fn rich_over(store: Arc<dyn Store>) -> World {
    let config = WriterConfig { retain_versions: 10, ..busy() };
    let mut world = World::over(store, config).await;
    for n in 0..12_u64 {
        // 4 chunks or so.
        world.submit(vec![put(&format!("big/{n:02}"), noise(n, 200 << 10))]).await;
        if n == 5 {
            world.pin("first").await;
        }
    }
    for n in 0..31_u64 {
        let value = noise(1_000 + n, if n % 3 == 0 { 900 } else { 40 });
        world.submit(vec![put(&format!("small/{:02}", n % 7), value)]).await;
        if n == 4 {
            world.pin("second").await;
        }
    }
    world.settle().await;
    for n in 0..5_u64 {
        let value = noise(2_000 + n, if n % 2 == 0 { 900 } else { 40 });
        world.submit(vec![put(&format!("tail/{n}"), value)]).await;
    }
    world.submit(vec![put("last/0", noise(1, 700))]).await;
    world.submit(vec![put("last/1", "x")]).await;
    world
}

pub(crate) fn damage(report: &Report) -> Vec<&Finding> {
    report.findings.iter().filter(|it| it.severity() == Severity::Damage).collect()
}
