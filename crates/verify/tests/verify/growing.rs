//! A history that grows: its head, its objects and what a check finds stay as
//! they were. `headwater-bench growing-head` has it at full size.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use headwater_core::decide::Ask;
use headwater_core::format;
use headwater_core::id::{OperationId, Tag};
use headwater_core::operation::{Issue, Mutation, Operation, Request, integer};
use headwater_core::publish::Answer;
use headwater_core::version::{Revision, StateVersion};
use headwater_store::{Clock, Entropy, Store};
use headwater_store::{Folder, HeadRead, HeadWrite, Latency, Listed, Memory, PutError, ReadError};
use headwater_verify::{Options, Progress, Verdict, Verifier};
use headwater_writer::{Question, SweepOptions, Writer, WriterConfig};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::fixture::{key, name};

const OPERATIONS: u64 = 100_000;
const CALLERS: u64 = 64;
/// Virtual time: many times what the operations take.
const GROWING_MAX: Duration = Duration::from_secs(3_600);
/// What is staged between two sweeps, 30 seconds of 25 versions, and what stays.
const OBJECTS_MAX: usize = 1_000;
/// What stays: the tail, receipt pages, archive, and the chunks of a small state.
const SWEPT_OBJECTS_MAX: usize = 100;

/// Looks at every head that is published.
#[derive(Debug)]
struct Looked {
    inner: Arc<dyn Store>,
    soft_bytes: usize,
    heads: AtomicU64,
}

impl Looked {
    fn look(&self, bytes: &[u8]) {
        // Decoding checks every invariant of a head.
        format::head::decode(bytes).unwrap();
        assert!(bytes.len() <= self.soft_bytes, "a head of {} bytes", bytes.len());
        self.heads.fetch_add(1, Ordering::Relaxed);
    }
}

#[async_trait]
impl Store for Looked {
    async fn read_head(&self, key: &str, known: Option<&Tag>) -> Result<HeadRead, ReadError> {
        self.inner.read_head(key, known).await
    }

    async fn create_head(&self, key: &str, bytes: Bytes) -> HeadWrite {
        self.look(&bytes);
        self.inner.create_head(key, bytes).await
    }

    async fn replace_head(&self, key: &str, if_match: &Tag, bytes: Bytes) -> HeadWrite {
        self.look(&bytes);
        self.inner.replace_head(key, if_match, bytes).await
    }

    async fn put(&self, key: &str, bytes: Bytes) -> Result<(), PutError> {
        self.inner.put(key, bytes).await
    }

    async fn get(&self, key: &str) -> Result<Bytes, ReadError> {
        self.inner.get(key).await
    }

    async fn get_sized(&self, key: &str, size_bytes: u64) -> Result<Bytes, ReadError> {
        self.inner.get_sized(key, size_bytes).await
    }

    async fn list(
        &self,
        prefix: &str,
        start_after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<Listed>, ReadError> {
        self.inner.list(prefix, start_after, limit).await
    }

    async fn list_folder(&self, prefix: &str) -> Result<Folder, ReadError> {
        self.inner.list_folder(prefix).await
    }

    async fn delete(&self, key: &str) -> Result<(), ReadError> {
        self.inner.delete(key).await
    }
}

/// Adds one to a sum, and writes one of a thousand keys. The version.
async fn submit(writer: &Writer, n: u64, seen: StateVersion) -> StateVersion {
    let add = Mutation::Add(key("n"), 1);
    let put = Mutation::Put(key(&format!("k/{:03}", n % 1_000)), Bytes::from(vec![b'v'; 40]));
    let request = Request::new(Vec::new(), vec![add, put]).unwrap();
    let operation = Operation {
        id: OperationId::parse(&format!("o-{n}")).unwrap(),
        request_hash: request.hash(),
        request: Arc::new(request),
        issue: Issue::ClientKept(seen),
        writer_epoch: 0,
        history_id: None,
        ends_version: false,
    };
    let told = writer.ask(&name("h"), Question::Ask(Ask::Submit(operation))).await.unwrap();
    match told.answer {
        Answer::Accepted { receipt, .. } => receipt.accepted_at,
        other => panic!("{other:?}"),
    }
}

async fn objects(store: &dyn Store) -> usize {
    store.list("h/", None, 1_000_000).await.unwrap().len()
}

#[tokio::test(start_paused = true)]
async fn growing_head() {
    let config = WriterConfig {
        retain_versions: 500,
        retain_age_ms: 0,
        receipt_versions_max: 2_000,
        sweep_every_ms: 20_000,
        sweep_grace_ms: 5_000,
        ..WriterConfig::default()
    };
    let memory: Arc<dyn Store> = Arc::new(Memory::new());
    let (read, write) = (Duration::from_millis(10), Duration::from_millis(20));
    let looked = Arc::new(Looked {
        inner: Arc::new(Latency::new(Arc::clone(&memory), read, write)),
        soft_bytes: config.head_soft_bytes,
        heads: AtomicU64::new(0),
    });
    let store: Arc<dyn Store> = Arc::<Looked>::clone(&looked);
    let clock = Clock::virtual_from(1_700_000_000_000);
    let writer = headwater_writer::start(store, config, Entropy::from_seed(1), clock).unwrap();
    let id = headwater_core::id::HistoryId::from_bytes([7; 16]);
    writer.create(&name("h"), id, false).await.unwrap();

    let next = Arc::new(AtomicU64::new(0));
    let mut callers = JoinSet::new();
    for _ in 0..CALLERS {
        let (writer, next) = (writer.clone(), Arc::clone(&next));
        callers.spawn(async move {
            let mut seen = StateVersion::ZERO;
            loop {
                match next.fetch_add(1, Ordering::Relaxed) {
                    n if n < OPERATIONS => seen = submit(&writer, n, seen).await,
                    _ => return,
                }
            }
        });
    }
    let mut most = 0;
    let growing = async {
        // One that failed ends the test: without callers nothing would.
        while !callers.is_empty() {
            most = most.max(objects(&*memory).await);
            tokio::time::sleep(Duration::from_secs(1)).await;
            while let Some(ended) = callers.try_join_next() {
                ended.unwrap();
            }
        }
    };
    tokio::time::timeout(GROWING_MAX, growing).await.expect("a caller waits for ever");
    assert!(most <= OBJECTS_MAX, "{most} objects");
    for _ in 0..2 {
        let below = Some(Revision::new(u64::MAX));
        let all = SweepOptions { is_dry_run: false, is_full: true, deletes_max: u64::MAX, below };
        writer.sweep(&name("h"), all, |_| ()).await.unwrap();
    }
    let left = objects(&*memory).await;
    assert!(left <= SWEPT_OBJECTS_MAX, "{left} objects");
    writer.shutdown().await;

    let (progress, stop) = (Progress::default(), CancellationToken::new());
    let verifier = Verifier::new(Arc::clone(&memory), Options::default(), progress, stop);
    let report = verifier.verify(&name("h")).await.unwrap();
    assert_eq!(report.verdict(), Verdict::Clean, "{:#?}", report.findings);
    let (_, revision, version) = report.head.unwrap();
    let heads = looked.heads.load(Ordering::Relaxed);
    assert_eq!(revision.get(), heads, "every head was looked at");
    assert!(1_000 < version.get(), "{version}");
    let loader = headwater_state::Loader::new(
        Arc::clone(&memory),
        name("h"),
        headwater_state::ChunkCache::new(1 << 20),
        headwater_state::LoadOptions::default(),
    );
    let HeadRead::Found { bytes, .. } = memory.read_head("h/head.json", None).await.unwrap() else {
        panic!("no head")
    };
    let head = format::head::decode(&bytes).unwrap();
    assert_eq!(head.operation_count, OPERATIONS);
    let view = loader.open(&head).await.unwrap().view;
    let sum = view.get(&key("n")).await.unwrap().unwrap().value;
    assert_eq!(integer::decode(&sum), Some(i64::try_from(OPERATIONS).unwrap()));
}
