//! Maintenance as other parts of the system prepare it: segments, snapshots
//! with receipt pages, and a sweep.

use std::vec::Vec;

use bytes::Bytes;

use super::bucket::Bucket;
use crate::format;
use crate::format::segment::Segment;
use crate::format::snapshot::SnapshotIndex;
use crate::head::{
    ChangeBody, Compaction, Fold, Head, ObjectRef, Publisher, RunRef, SnapshotRef, Successor,
};
use crate::id::Nonce;
use crate::keys::ObjectKind;
use crate::publish::Maintenance;
use crate::version::{Revision, StateVersion};

fn put(bucket: &mut Bucket, kind: ObjectKind, staged: Revision, bytes: Vec<u8>) -> ObjectRef {
    let object = ObjectRef::to_content(kind, staged, &bytes);
    bucket.put(&object, &bytes.into());
    object
}

/// A segment of the oldest `count` changes of `head`.
pub(super) fn fold(bucket: &mut Bucket, head: &Head, count: usize) -> Maintenance {
    let changes = &head.changes[..count];
    let bytes_of = |body: &ChangeBody| -> Bytes {
        match body {
            ChangeBody::Inline(bytes) => bytes.clone(),
            ChangeBody::Staged(object) => bucket.objects[&object.key].clone(),
        }
    };
    let entries = changes.iter().map(|it| (it.hash, bytes_of(&it.body))).collect();
    let (from, to) = (changes[0].version, changes[count - 1].version);
    let bytes = format::segment::encode(&Segment { from_version: from, entries });
    let object = put(bucket, ObjectKind::Segment, head.revision, bytes);
    let last_change = changes[count - 1].hash;
    Maintenance::Fold(Fold { segment: RunRef { from, to, object }, last_change })
}

/// A snapshot of `head` at `version`, with the receipts that it overtakes.
pub(super) fn compact(bucket: &mut Bucket, head: &Head, version: StateVersion) -> Maintenance {
    compact_with_pages(bucket, head, version, head.tail_from())
}

/// The same with one page that begins at `from`, in place of those that the
/// head has from there on.
pub(super) fn compact_with_pages(
    bucket: &mut Bucket,
    head: &Head,
    version: StateVersion,
    from: StateVersion,
) -> Maintenance {
    let index = SnapshotIndex { version, ..SnapshotIndex::empty(head.history_id) };
    let bytes = format::snapshot::encode(&index);
    let object = put(bucket, ObjectKind::Snapshot, head.revision, bytes);
    let page = format::receipts::encode(&bucket.receipts(from, version));
    let page = put(bucket, ObjectKind::Receipts, head.revision, page);
    Maintenance::Compact(Compaction {
        snapshot: SnapshotRef { version, object },
        based_on: head.snapshot.clone(),
        receipt_pages: [RunRef { from, to: version, object: page }].into(),
    })
}

/// Raises the sweep boundary to the current revision, as another process.
pub(super) fn raise_sweep_boundary(bucket: &mut Bucket, nonce: u8) {
    let previous = bucket.head().clone();
    let publisher = Publisher { id: "sweeper".into(), nonce: Nonce::from_bytes([nonce; 16]) };
    let mut head = Successor::of(&previous, publisher).finish();
    head.sweep_from = previous.revision;
    let tag = bucket.tag().clone();
    bucket.replace(&tag, &format::head::encode(&head).into()).unwrap();
}

/// Deletes what the head does not reach and never can again.
pub(super) fn sweep(bucket: &mut Bucket) {
    let head = bucket.head().clone();
    let live: Vec<_> = head.references().map(|it| it.key.clone()).collect();
    bucket.objects.retain(|key, _| head.sweep_from <= key.staged() || live.contains(key));
}
