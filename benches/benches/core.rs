//! The hot pure parts: encoding, checking, deciding, applying.

#![allow(missing_docs, reason = "criterion's macros make functions")]
#![allow(clippy::unwrap_used, reason = "a bench that cannot set up has failed")]

use std::hint::black_box;
use std::sync::Arc;

use bytes::Bytes;
use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use headwater_core::change::Change;
use headwater_core::decide::{Ask, Basis, Facts, KeyFact, decide, needs};
use headwater_core::format;
use headwater_core::hash::ContentHash;
use headwater_core::head::ObjectRef;
use headwater_core::head::{Append, ChangeBody, Head, Publisher, Successor};
use headwater_core::id::{HistoryId, HistoryName, Nonce, OperationId};
use headwater_core::keys::{ObjectKey, ObjectKind};
use headwater_core::operation::{Issue, Key, Mutation, Operation, Precondition, Request};
use headwater_core::receipt::Receipt;
use headwater_core::version::{Revision, StateVersion};
use headwater_state::{ChunkCache, LoadOptions, Loader, write_empty_snapshot};

const OPERATIONS: usize = 1_000;
const VALUE_BYTES: usize = 1_024;

struct Empty;

impl Basis for Empty {
    fn history_id(&self) -> HistoryId {
        HistoryId::from_bytes([1; 16])
    }
    fn state_version(&self) -> StateVersion {
        StateVersion::new(10)
    }
    fn coverage_from(&self) -> StateVersion {
        StateVersion::new(1)
    }
    fn required_epoch(&self) -> Option<u64> {
        None
    }
    fn receipt(&self, _: &OperationId) -> Option<&Receipt> {
        None
    }
}

fn operation(n: usize) -> Operation {
    let key = Key::new(format!("key/{n:08}")).unwrap();
    let preconditions = vec![Precondition::KeyAbsent(key.clone())];
    let mutations = vec![Mutation::Put(key, Bytes::from(vec![b'v'; VALUE_BYTES]))];
    let request = Arc::new(Request::new(preconditions, mutations).unwrap());
    Operation {
        id: OperationId::parse(&format!("operation-{n:08}")).unwrap(),
        request_hash: request.hash(),
        request,
        issue: Issue::ClientKept(StateVersion::ZERO),
        writer_epoch: 0,
        history_id: None,
        ends_version: false,
    }
}

fn asks() -> Vec<Ask> {
    (0..OPERATIONS).map(|n| Ask::Submit(operation(n))).collect()
}

fn facts(asks: &[Ask]) -> Facts {
    let needs = needs(asks.iter().filter_map(Ask::operation));
    let keys = needs.keys.into_iter().map(|key| (key, KeyFact::default())).collect();
    Facts { keys, ..Facts::default() }
}

fn change() -> Change {
    let asks = asks();
    decide(&Empty, &facts(&asks), &asks, 0).change.unwrap()
}

/// A head as it is in service: a tail of references and of inline changes.
fn head() -> Head {
    let publisher =
        |n: u8| Publisher { id: "writer".into(), nonce: Nonce::from_bytes([n; 16]), address: None };
    let history = HistoryName::parse("bench").unwrap();
    let id = HistoryId::from_bytes([1; 16]);
    let snapshot = ObjectRef::to_content(ObjectKind::Snapshot, Revision::new(0), b"snapshot");
    let first = Head::first(history, id, Revision::FIRST, false, publisher(0), snapshot);
    let mut successor = Successor::of(&first, publisher(1));
    for n in 0..64_u8 {
        let bytes = Bytes::from(vec![n; 600]);
        let hash = ContentHash::of(&bytes);
        let body = if n % 2 == 0 {
            ChangeBody::Inline(bytes)
        } else {
            let key = ObjectKey::change(Revision::FIRST, Nonce::from_bytes([n; 16]));
            ChangeBody::Staged(ObjectRef { key, hash, size_bytes: 600 })
        };
        successor.append(Append { hash, body, operations: 1 });
    }
    successor.finish()
}

fn heads(criterion: &mut Criterion) {
    let head = head();
    let bytes = format::head::encode(&head);
    let mut group = criterion.benchmark_group("head of 64 changes");
    group.throughput(Throughput::Bytes(bytes.len() as u64));
    group.bench_function("encode", |it| it.iter(|| format::head::encode(black_box(&head))));
    group.bench_function("decode and check", |it| {
        it.iter(|| format::head::decode(black_box(&bytes)).unwrap());
    });
    group.bench_function("check", |it| it.iter(|| black_box(&head).check().unwrap()));
    group.finish();
}

fn changes(criterion: &mut Criterion) {
    let change = change();
    let bytes = Bytes::from(format::change::encode(&change));
    let mut group = criterion.benchmark_group("change of 1,000 puts of 1 KiB");
    group.throughput(Throughput::Elements(OPERATIONS as u64));
    group.bench_function("encode", |it| it.iter(|| format::change::encode(black_box(&change))));
    group.bench_function("decode", |it| {
        it.iter(|| format::change::decode(black_box(bytes.clone())).unwrap());
    });
    group.bench_function("hash", |it| it.iter(|| ContentHash::of(black_box(&bytes))));
    group.finish();
}

fn deciding(criterion: &mut Criterion) {
    let asks = asks();
    let facts = facts(&asks);
    let mut group = criterion.benchmark_group("1,000 puts with a precondition");
    group.throughput(Throughput::Elements(OPERATIONS as u64));
    group.bench_function("decide", |it| {
        it.iter(|| decide(&Empty, black_box(&facts), black_box(&asks), 0));
    });
    group.finish();
}

fn applying(criterion: &mut Criterion) {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let view = runtime.block_on(async {
        let store = headwater_store::open("memory:").unwrap();
        let history = HistoryName::parse("bench").unwrap();
        let id = HistoryId::from_bytes([1; 16]);
        let empty = write_empty_snapshot(&*store, &history, id, Revision::new(0)).await.unwrap();
        let publisher =
            Publisher { id: "writer".into(), nonce: Nonce::from_bytes([0; 16]), address: None };
        let head = Head::first(history.clone(), id, Revision::FIRST, false, publisher, empty);
        let cache = ChunkCache::new(1 << 20);
        Loader::new(store, history, cache, LoadOptions::default()).open(&head).await.unwrap().view
    });
    let change = change();
    let hash = ContentHash::of(&format::change::encode(&change));
    let full = view.apply(&change, hash);
    let key = Key::new(format!("key/{:08}", OPERATIONS / 2)).unwrap();
    let mut group = criterion.benchmark_group("view");
    group.bench_function("apply 1,000 puts to an empty state", |it| {
        it.iter(|| black_box(&view).apply(black_box(&change), hash));
    });
    group.bench_function("apply 1,000 puts over as many", |it| {
        it.iter(|| black_box(&full).apply(black_box(&change), hash));
    });
    group.bench_function("get from the overlay", |it| {
        it.iter(|| black_box(&full).get_now(black_box(&key)));
    });
    group.finish();
}

criterion_group!(benches, heads, changes, deciding, applying);
criterion_main!(benches);
