//! Whatever can be written reads back as it was.

use std::sync::Arc;

use bytes::Bytes;
use headwater_core::change::{AcceptedOperation, Change, Resolved};
use headwater_core::format::chunk::{self, ChunkEntry};
use headwater_core::format::segment::Segment;
use headwater_core::format::snapshot::{ChunkRef, PageRef, Parts, SnapshotIndex};
use headwater_core::format::{change, receipts, record, request, segment, snapshot, snapshot_page};
use headwater_core::hash::{ChainHash, ContentHash, RequestHash};
use headwater_core::head::{
    Append, ChangeBody, Fold, Head, ObjectRef, Publisher, RunRef, Successor,
};
use headwater_core::id::{HistoryId, HistoryName, Nonce, OperationId};
use headwater_core::keys::{ObjectKey, ObjectKind};
use headwater_core::operation::{Key, KeyRange, Mutation, Precondition, Request, RequestRecord};
use headwater_core::receipt::{MutationResult, Receipt};
use headwater_core::version::{Revision, StateVersion};
use proptest::collection::{btree_map, vec};
use proptest::prelude::*;

use super::{decode_chunk, encode_chunk};

fn bytes(len_max: usize) -> impl Strategy<Value = Bytes> {
    vec(any::<u8>(), 0..=len_max).prop_map(Bytes::from)
}

fn key() -> impl Strategy<Value = Key> {
    vec(any::<u8>(), 1..20).prop_map(|it| Key::new(it).unwrap())
}

fn range() -> impl Strategy<Value = KeyRange> {
    let end = proptest::option::of(bytes(4));
    (bytes(4), end).prop_filter_map("inverted", |(start, end)| KeyRange::new(start, end).ok())
}

fn version() -> impl Strategy<Value = StateVersion> {
    any::<u64>().prop_map(StateVersion::new)
}

fn id() -> impl Strategy<Value = OperationId> {
    "[A-Za-z0-9._:-]{1,64}".prop_map(|it| OperationId::parse(&it).unwrap())
}

fn request_hash() -> impl Strategy<Value = RequestHash> {
    any::<[u8; 32]>().prop_map(RequestHash::from_bytes)
}

fn results() -> impl Strategy<Value = Vec<MutationResult>> {
    vec((any::<u32>(), any::<i64>()), 0..4).prop_map(|it| {
        it.into_iter().map(|(mutation, sum)| MutationResult { mutation, sum }).collect()
    })
}

fn resolved() -> impl Strategy<Value = Resolved> {
    prop_oneof![
        (key(), bytes(40)).prop_map(|(key, value)| Resolved::Put(key, value)),
        key().prop_map(Resolved::Delete),
        range().prop_map(Resolved::DeleteRange),
    ]
}

fn a_change() -> impl Strategy<Value = Change> {
    let operation = (id(), request_hash(), results(), vec(resolved(), 0..5)).prop_map(
        |(id, request_hash, results, mutations)| AcceptedOperation {
            id,
            request_hash,
            results,
            mutations,
        },
    );
    (any::<u64>(), vec(operation, 1..5))
        .prop_map(|(decided_at_ms, operations)| Change { decided_at_ms, operations })
}

fn precondition() -> impl Strategy<Value = Precondition> {
    prop_oneof![
        key().prop_map(Precondition::KeyExists),
        key().prop_map(Precondition::KeyAbsent),
        (key(), version()).prop_map(|(key, it)| Precondition::KeyAtVersion(key, it)),
        (key(), version()).prop_map(|(key, it)| Precondition::KeyUnchangedSince(key, it)),
        (range(), version()).prop_map(|(range, it)| Precondition::RangeUnchangedSince(range, it)),
        (key(), bytes(40)).prop_map(|(key, it)| Precondition::ValueEquals(key, it)),
        (key(), bytes(9))
            .prop_map(|(key, it)| Precondition::ValueHashEquals(key, ContentHash::of(&it))),
    ]
}

fn mutation() -> impl Strategy<Value = Mutation> {
    prop_oneof![
        (key(), bytes(40)).prop_map(|(key, value)| Mutation::Put(key, value)),
        key().prop_map(Mutation::Delete),
        range().prop_map(Mutation::DeleteRange),
        (key(), any::<i64>()).prop_map(|(key, delta)| Mutation::Add(key, delta)),
    ]
}

fn a_request() -> impl Strategy<Value = Request> {
    (vec(precondition(), 0..5), vec(mutation(), 1..5))
        .prop_map(|(preconditions, mutations)| Request::new(preconditions, mutations).unwrap())
}

fn receipt_page() -> impl Strategy<Value = Vec<Receipt>> {
    let places = btree_map((any::<u64>(), any::<u32>()), (id(), results()), 0..5);
    (places, request_hash()).prop_map(|(places, request_hash)| {
        places
            .into_iter()
            .map(|((accepted_at, position), (operation_id, results))| Receipt {
                operation_id,
                request_hash,
                accepted_at: StateVersion::new(accepted_at),
                position,
                results,
            })
            .collect()
    })
}

fn owner() -> impl Strategy<Value = Option<Arc<HistoryName>>> {
    let name = "[a-c]{1,2}".prop_map(|it| Arc::new(HistoryName::parse(&it).unwrap()));
    proptest::option::of(name)
}

fn chunk_object() -> impl Strategy<Value = ObjectRef> {
    (any::<u64>(), any::<[u8; 32]>(), any::<u64>()).prop_map(|(staged, hash, size_bytes)| {
        let hash = ContentHash::from_bytes(hash);
        let key = ObjectKey::content(ObjectKind::Chunk, Revision::new(staged), hash);
        ObjectRef { key, hash, size_bytes }
    })
}

fn chunk_refs() -> impl Strategy<Value = Vec<ChunkRef>> {
    let chunk = (chunk_object(), owner(), 1..u32::MAX, any::<u32>(), 0..1000_u64);
    btree_map(key(), chunk, 0..6).prop_map(|chunks| {
        let chunks = chunks.into_iter();
        chunks
            .map(|(key, (object, owner, count, block_len, newest))| ChunkRef {
                object,
                owner,
                first: key.clone(),
                last: key,
                count,
                block_len,
                newest: StateVersion::new(newest),
            })
            .collect()
    })
}

fn page_refs() -> impl Strategy<Value = Vec<PageRef>> {
    let names = vec(owner(), 0..4);
    let page = (chunk_object(), owner(), 1..u32::MAX, 0..1000_u64, names);
    btree_map(key(), page, 1..6).prop_map(|pages| {
        let pages = pages.into_iter();
        pages
            .map(|(key, (object, owner, chunks, newest, names))| PageRef {
                object,
                owner,
                first: key.clone(),
                last: key,
                chunks,
                newest: StateVersion::new(newest),
                names: names.into_iter().flatten().collect(),
            })
            .collect()
    })
}

fn index() -> impl Strategy<Value = SnapshotIndex> {
    let parts =
        prop_oneof![chunk_refs().prop_map(Parts::Chunks), page_refs().prop_map(Parts::Pages)];
    (any::<[u8; 16]>(), 1000..u64::MAX, any::<[u8; 32]>(), parts).prop_map(
        |(history, version, chain, parts)| SnapshotIndex {
            history_id: HistoryId::from_bytes(history),
            version: StateVersion::new(version),
            chain_hash: ChainHash::from_bytes(chain),
            parts,
        },
    )
}

/// A head as publishers make them: changes appended, some folded, coverage
/// raised.
fn a_head() -> impl Strategy<Value = Head> {
    let changes = vec((a_change(), any::<bool>(), any::<[u8; 16]>()), 0..6);
    let name = "[a-c]{1,3}(/[a-c._-]{1,2}x){0,2}";
    (name, any::<[u8; 16]>(), any::<bool>(), changes, 0..6_usize, 0..6_u64).prop_map(
        |(name, id, is_exclusive, changes, folded, coverage)| {
            let object =
                |kind, text: &str| ObjectRef::to_content(kind, Revision::new(1), text.as_bytes());
            let publisher = |it| Publisher {
                id: "a.b-C_1".into(),
                nonce: Nonce::from_bytes([it; 16]),
                address: None,
            };
            let first = Head::first(
                HistoryName::parse(&name).unwrap(),
                HistoryId::from_bytes(id),
                Revision::FIRST,
                is_exclusive,
                publisher(0),
                object(ObjectKind::Snapshot, "empty"),
            );
            let mut successor = Successor::of(&first, publisher(1));
            for (change, is_inline, nonce) in &changes {
                let bytes = Bytes::from(change::encode(change));
                let hash = ContentHash::of(&bytes);
                let size_bytes = bytes.len() as u64;
                let body = if *is_inline {
                    ChangeBody::Inline(bytes)
                } else {
                    let key = ObjectKey::change(Revision::FIRST, Nonce::from_bytes(*nonce));
                    ChangeBody::Staged(ObjectRef { key, hash, size_bytes })
                };
                successor.append(Append { hash, body, operations: change.operations.len() as u64 });
            }
            if is_exclusive {
                successor.raise_writer_epoch();
            }
            if (1..=changes.len()).contains(&folded) {
                let last_change = successor.head().changes[folded - 1].hash;
                let (from, to) = (StateVersion::new(1), StateVersion::new(folded as u64));
                let segment = RunRef { from, to, object: object(ObjectKind::Segment, "run") };
                assert!(successor.fold(&Fold { segment, last_change }));
            }
            successor.raise_coverage(StateVersion::new(coverage.min(changes.len() as u64 + 1)));
            successor.finish()
        },
    )
}

proptest! {
    #[test]
    fn change(change in a_change()) {
        prop_assert_eq!(change::decode(change::encode(&change).into()), Ok(change));
    }

    #[test]
    fn request_and_its_length(request in a_request()) {
        let bytes = request::encode(&request);
        prop_assert_eq!(bytes.len(), request::encoded_len(&request));
        prop_assert_eq!(request::decode(bytes.into()), Ok(request));
    }

    #[test]
    fn record(request in a_request(), history in any::<[u8; 16]>(), id in id(), version in version()) {
        let record = RequestRecord {
            history_id: HistoryId::from_bytes(history),
            operation_id: id,
            request_hash: request.hash(),
            issued_from: version,
            request: request.into(),
        };
        prop_assert_eq!(record::decode(&record::encode(&record)), Ok(record));
    }

    #[test]
    fn receipts(page in receipt_page()) {
        prop_assert_eq!(receipts::decode(receipts::encode(&page).into()), Ok(page));
    }

    #[test]
    fn segment(changes in vec(a_change(), 1..4), from in 0..u64::MAX - 10) {
        let entry = |it: &Change| {
            let bytes = Bytes::from(change::encode(it));
            (ContentHash::of(&bytes), bytes)
        };
        let entries = changes.iter().map(entry).collect();
        let segment = Segment { from_version: StateVersion::new(from), entries };
        prop_assert_eq!(segment::decode(segment::encode(&segment).into()), Ok(segment));
    }

    #[test]
    fn snapshot(index in index()) {
        prop_assert_eq!(snapshot::decode(snapshot::encode(&index).into()), Ok(index));
    }

    #[test]
    fn snapshot_page(chunks in chunk_refs().prop_filter("empty", |it| !it.is_empty())) {
        let page = snapshot_page::encode(&chunks);
        prop_assert_eq!(snapshot_page::decode(page.into()), Ok(chunks));
    }

    #[test]
    fn chunk(entries in btree_map(key(), (version(), bytes(40)), 0..8)) {
        let entries: Vec<_> = entries
            .into_iter()
            .map(|(key, (version, value))| ChunkEntry { key, version, value })
            .collect();
        let len: usize = entries.iter().map(chunk::entry_len).sum();
        prop_assert_eq!(chunk::encode_block(&entries).len(), 4 + len);
        prop_assert_eq!(decode_chunk(&encode_chunk(&entries).into()), Ok(entries));
    }

    #[test]
    fn head(head in a_head()) {
        let bytes = headwater_core::format::head::encode(&head);
        prop_assert_eq!(headwater_core::format::head::decode(&bytes).unwrap(), head);
    }

    #[test]
    fn bytes_from_anywhere_are_no_panic(kind in 0..super::KINDS.len(), body in bytes(200)) {
        let kind = &super::KINDS[kind];
        // The right first bytes, so that decoding gets somewhere.
        let mut bytes = (kind.encode_sample)();
        bytes.truncate(4);
        bytes.extend_from_slice(&body);
        let bytes = Bytes::from(bytes);
        if let Ok(again) = (kind.again)(bytes.clone()) {
            prop_assert_eq!(again, bytes);
        }
    }

    #[test]
    fn requests_that_differ_have_different_bytes(a in a_request(), b in a_request()) {
        prop_assert_eq!(request::encode(&a) == request::encode(&b), a == b);
    }
}
