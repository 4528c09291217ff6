//! One value of each kind, with every variant in it. The golden files hold
//! these: change nothing, add a sample instead.

use std::sync::Arc;

use bytes::Bytes;
use headwater_core::archive::{Archive, ArchivedRun, ArchivedSnapshot};
use headwater_core::change::{AcceptedOperation, Change, Resolved};
use headwater_core::format;
use headwater_core::format::chunk::ChunkEntry;
use headwater_core::format::segment::Segment;
use headwater_core::format::snapshot::{ChunkRef, PageRef, Parts, SnapshotIndex};
use headwater_core::hash::{ChainHash, ContentHash, RequestHash};
use headwater_core::head::{
    ArchiveRef, Base, ChangeBody, ChangeRef, Head, HistoryRef, Lifecycle, ObjectRef, Pin,
    Publisher, Retention, RunRef, SnapshotRef,
};
use headwater_core::id::{HistoryId, HistoryName, Nonce, OperationId, PinName, WriterAddress};
use headwater_core::keys::{ObjectKey, ObjectKind};
use headwater_core::operation::{
    Key, KeyRange, Mutation, Precondition, Request, RequestRecord, integer,
};
use headwater_core::receipt::{MutationResult, Receipt};
use headwater_core::version::{Revision, StateVersion};

const HISTORY: HistoryId =
    HistoryId::from_bytes([0x5f, 0x0c, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14]);

pub(crate) fn key(text: &str) -> Key {
    Key::new(text.as_bytes().to_vec()).unwrap()
}

fn range(start: &'static str, end: Option<&'static str>) -> KeyRange {
    let end = end.map(|it| Bytes::from_static(it.as_bytes()));
    KeyRange::new(Bytes::from_static(start.as_bytes()), end).unwrap()
}

fn version(number: u64) -> StateVersion {
    StateVersion::new(number)
}

fn id(text: &str) -> OperationId {
    OperationId::parse(text).unwrap()
}

fn object(kind: ObjectKind, staged: u64, content: &str) -> ObjectRef {
    ObjectRef::to_content(kind, Revision::new(staged), content.as_bytes())
}

fn run(kind: ObjectKind, from: u64, to: u64) -> RunRef {
    let object = object(kind, to, &format!("{from}-{to}"));
    RunRef { from: version(from), to: version(to), object }
}

fn history_ref(name: &str, id: u8) -> HistoryRef {
    let history = HistoryName::parse(name).unwrap();
    HistoryRef { history, history_id: HistoryId::from_bytes([id; 16]) }
}

fn request_hash(byte: u8) -> RequestHash {
    RequestHash::from_bytes([byte; 32])
}

pub(crate) fn head() -> Head {
    let inline = Bytes::from(format::change::encode(&change()));
    let staged = ObjectRef {
        key: ObjectKey::change(Revision::new(55), Nonce::from_bytes([0xc1; 16])),
        hash: ContentHash::of(b"staged"),
        size_bytes: 6,
    };
    Head {
        history: HistoryName::parse("datasets/events").unwrap(),
        history_id: HISTORY,
        revision: Revision::new(57),
        state_version: version(42),
        operation_count: 1000,
        is_exclusive: true,
        writer_epoch: 3,
        lifecycle: Lifecycle::Live,
        publisher: Publisher {
            id: "writer-7f".into(),
            nonce: Nonce::from_bytes([0xd2; 16]),
            address: None,
        },
        chain_hash: ChainHash::first(HISTORY).extend(version(42), staged.hash),
        snapshot: SnapshotRef {
            version: version(20),
            object: object(ObjectKind::Snapshot, 21, "snapshot"),
        },
        segments: vec![run(ObjectKind::Segment, 21, 30), run(ObjectKind::Segment, 31, 40)],
        changes: vec![
            ChangeRef { version: version(41), hash: staged.hash, body: ChangeBody::Staged(staged) },
            ChangeRef {
                version: version(42),
                hash: ContentHash::of(&inline),
                body: ChangeBody::Inline(inline),
            },
        ],
        receipt_coverage_from: version(12),
        receipt_pages: vec![run(ObjectKind::Receipts, 11, 15), run(ObjectKind::Receipts, 16, 20)],
        sweep_from: Revision::new(9),
        swept_to: Revision::new(7),
        retention: Retention { versions: 1_000, age_ms: 3_600_000 },
        archive: Some(ArchiveRef {
            retained_from: version(11),
            object: object(ObjectKind::Archive, 21, "archive"),
        }),
        pins: vec![
            Pin {
                name: PinName::parse("audit").unwrap(),
                version: version(3),
                revision: Revision::new(8),
                expires_at_ms: Some(1_800_000_000_000),
                child: None,
            },
            Pin {
                name: PinName::parse("fork:1").unwrap(),
                version: version(42),
                revision: Revision::new(57),
                expires_at_ms: None,
                child: Some(history_ref("datasets/trial", 7)),
            },
        ],
        base: Some(Base {
            source: history_ref("datasets/source", 8),
            pin: PinName::parse("fork:events").unwrap(),
        }),
    }
}

pub(crate) fn head_with_address() -> Head {
    let address = WriterAddress::parse("https://writer-7f.headwater:7410").unwrap();
    let publisher = Publisher { address: Some(address), ..head().publisher };
    Head { publisher, ..head() }
}

pub(crate) fn change() -> Change {
    let operations = vec![
        AcceptedOperation {
            id: id("op-a"),
            request_hash: request_hash(1),
            results: vec![
                MutationResult { mutation: 1, sum: -42 },
                MutationResult { mutation: 2, sum: i64::MAX },
            ],
            mutations: vec![
                Resolved::Put(key("text"), "värde".into()),
                Resolved::Put(key("n"), integer::encode(-42)),
                Resolved::Put(key("m"), integer::encode(i64::MAX)),
            ],
        },
        AcceptedOperation {
            id: id("op:b_2.c"),
            request_hash: request_hash(2),
            results: Vec::new(),
            mutations: vec![
                Resolved::Put(key("empty"), Bytes::new()),
                Resolved::Delete(Key::new(&b"\0\xff"[..]).unwrap()),
                Resolved::DeleteRange(range("a", Some("b"))),
                Resolved::DeleteRange(range("z", None)),
                Resolved::DeleteRange(KeyRange::everything()),
            ],
        },
    ];
    Change { decided_at_ms: 1_700_000_000_123, operations }
}

pub(crate) fn segment() -> Segment {
    let other = Change { decided_at_ms: 0, operations: change().operations.split_off(1) };
    let entries = [change(), other].map(|it| {
        let bytes = Bytes::from(format::change::encode(&it));
        (ContentHash::of(&bytes), bytes)
    });
    Segment { from_version: version(41), entries: entries.to_vec() }
}

pub(crate) fn archive() -> Archive {
    let archived = |from, to| ArchivedRun {
        run: run(ObjectKind::Segment, from, to),
        decided_from_ms: 1_700_000_000_000 + from,
        decided_to_ms: 1_700_000_000_000 + to,
    };
    let snapshot = |at, replaced| ArchivedSnapshot {
        snapshot: SnapshotRef {
            version: version(at),
            object: object(ObjectKind::Snapshot, at + 1, &format!("snapshot {at}")),
        },
        needs_base: at == 0,
        replaced,
    };
    let key = |kind, staged, content| object(kind, staged, content).key;
    Archive {
        history_id: HISTORY,
        runs: vec![archived(1, 3), archived(11, 15), archived(16, 20)],
        snapshots: vec![
            snapshot(0, Vec::new()),
            snapshot(
                10,
                vec![
                    key(ObjectKind::Chunk, 5, "replaced"),
                    key(ObjectKind::Snapshot, 5, "index page"),
                ],
            ),
        ],
        released: vec![
            key(ObjectKind::Segment, 4, "let go"),
            key(ObjectKind::Chunk, 2, "let go"),
            key(ObjectKind::Data, 2, "let go"),
            key(ObjectKind::Receipts, 2, "let go"),
            key(ObjectKind::Archive, 2, "let go"),
        ],
    }
}

fn chunk(staged: u64, first: &str, last: &str, newest: u64) -> ChunkRef {
    ChunkRef {
        object: object(ObjectKind::Chunk, staged, first),
        owner: None,
        first: key(first),
        last: key(last),
        count: 300,
        block_len: 70_000,
        newest: version(newest),
    }
}

fn other(name: &str) -> Arc<HistoryName> {
    Arc::new(HistoryName::parse(name).unwrap())
}

pub(crate) fn chunks() -> Vec<ChunkRef> {
    vec![
        chunk(3, "a", "kilo", 40),
        ChunkRef { owner: Some(other("datasets/parent")), ..chunk(57, "lima", "lima", 1) },
        ChunkRef { owner: Some(other("datasets/base")), ..chunk(4, "mike", "zulu", 0) },
    ]
}

pub(crate) fn snapshot() -> SnapshotIndex {
    SnapshotIndex {
        history_id: HISTORY,
        version: version(40),
        chain_hash: ChainHash::from_bytes([0xab; 32]),
        parts: Parts::Chunks(chunks()),
    }
}

pub(crate) fn snapshot_in_pages() -> SnapshotIndex {
    let page = |staged, first: &str, last: &str, newest| PageRef {
        object: object(ObjectKind::Chunk, staged, first),
        owner: None,
        first: key(first),
        last: key(last),
        chunks: 256,
        newest: version(newest),
        names: [].into(),
    };
    let names = [other("datasets/base"), other("datasets/parent")].into();
    let pages = vec![
        page(3, "a", "kilo", 40),
        PageRef { names, ..page(57, "lima", "lima", 1) },
        PageRef { owner: Some(other("datasets/other")), ..page(4, "mike", "zulu", 0) },
    ];
    SnapshotIndex { parts: Parts::Pages(pages), ..snapshot() }
}

pub(crate) fn entries() -> Vec<ChunkEntry> {
    let entry = |at: &'static [u8], number, value: &'static [u8]| ChunkEntry {
        key: Key::new(at).unwrap(),
        version: version(number),
        value: Bytes::from_static(value),
    };
    vec![
        entry(b"\0", 1, b""),
        entry(b"a", 40, b"one"),
        entry(b"a\0", 7, b"\0\xff"),
        entry(b"b", 2, b"two"),
    ]
}

pub(crate) fn receipts() -> Vec<Receipt> {
    let receipt = |text, accepted_at, position, results| Receipt {
        operation_id: id(text),
        request_hash: request_hash(9),
        accepted_at: version(accepted_at),
        position,
        results,
    };
    vec![
        receipt("op-a", 41, 0, vec![MutationResult { mutation: 0, sum: 7 }]),
        receipt("op-b", 41, 1, Vec::new()),
        receipt("op-c", 43, 0, Vec::new()),
    ]
}

pub(crate) fn request() -> Request {
    let preconditions = vec![
        Precondition::KeyExists(key("a")),
        Precondition::KeyAbsent(key("b")),
        Precondition::KeyAtVersion(key("c"), version(3)),
        Precondition::KeyUnchangedSince(key("d"), version(4)),
        Precondition::RangeUnchangedSince(range("e", Some("f")), version(5)),
        Precondition::RangeUnchangedSince(range("e", None), version(6)),
        Precondition::ValueEquals(key("g"), "value".into()),
        Precondition::ValueHashEquals(key("h"), ContentHash::of(b"value")),
    ];
    let mutations = vec![
        Mutation::Put(key("i"), "value".into()),
        Mutation::Put(key("j"), Bytes::new()),
        Mutation::Delete(key("k")),
        Mutation::DeleteRange(range("", Some("l"))),
        Mutation::DeleteRange(KeyRange::everything()),
        Mutation::Add(key("m"), -1),
    ];
    Request::new(preconditions, mutations).unwrap()
}

pub(crate) fn record() -> RequestRecord {
    RequestRecord {
        history_id: HISTORY,
        operation_id: id("op-a"),
        request_hash: request().hash(),
        issued_from: version(41),
        request: Arc::new(request()),
    }
}
