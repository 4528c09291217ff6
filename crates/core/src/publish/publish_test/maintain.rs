//! Maintenance as other parts of the system prepare it: segments, snapshots
//! with receipt pages, and a sweep.

use std::collections::BTreeSet;
use std::vec::Vec;

use bytes::Bytes;

use super::bucket::Bucket;
use crate::archive::{ArchiveUpdate, ArchivedRun, ArchivedSnapshot, Keep, Moved};
use crate::format;
use crate::format::segment::Segment;
use crate::format::snapshot::SnapshotIndex;
use crate::hash::ContentHash;
use crate::head::{
    ChangeBody, Compaction, Fold, Head, ObjectRef, Publisher, RunRef, SnapshotRef, Successor,
};
use crate::id::Nonce;
use crate::keys::{ObjectKey, ObjectKind};
use crate::publish::Maintenance;
use crate::sweep::Sweep;
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
    let snapshot = SnapshotRef { version, object };
    let archive = archive(bucket, head, &snapshot);
    Maintenance::Compact(Compaction {
        snapshot,
        based_on: head.snapshot.clone(),
        receipt_pages: [RunRef { from, to: version, object: page }].into(),
        archive,
    })
}

/// What becomes of the tail up to `snapshot`, which is to take its place.
fn archive(bucket: &mut Bucket, head: &Head, snapshot: &SnapshotRef) -> ArchiveUpdate {
    let from = head.tail_from();
    let entries = (from.get()..=snapshot.version.get()).map(|it| {
        let bytes = format::change::encode(&bucket.log[usize::try_from(it).unwrap() - 1]);
        (ContentHash::of(&bytes), Bytes::from(bytes))
    });
    let segment = Segment { from_version: from, entries: entries.collect() };
    let bytes = format::segment::encode(&segment);
    let object = put(bucket, ObjectKind::Segment, head.revision, bytes);
    let run = RunRef { from, to: snapshot.version, object };
    let older = ArchivedSnapshot {
        snapshot: head.snapshot.clone(),
        needs_base: false,
        replaced: Vec::new(),
    };
    let dropped = head.segments.iter().filter(|it| it.to <= snapshot.version);
    let moved = Moved {
        snapshot: older,
        becomes: snapshot.clone(),
        needs_base: false,
        runs: [ArchivedRun { run, decided_from_ms: 0, decided_to_ms: 0 }].into(),
        segments: dropped.map(|it| it.object.key.clone()).collect(),
    };
    update(bucket, head, Some(&moved))
}

fn update(bucket: &mut Bucket, head: &Head, moved: Option<&Moved>) -> ArchiveUpdate {
    let before = bucket.archive(head);
    let kept = before.keep(head, moved, &Keep { now_ms: 0, clock_error_ms: 0 });
    let object = (!kept.archive.is_empty()).then(|| {
        let bytes = format::archive::encode(&kept.archive);
        put(bucket, ObjectKind::Archive, head.revision, bytes)
    });
    kept.into_update(head, &before, moved, object)
}

/// An archive that keeps what retention and pins want now.
pub(super) fn release(bucket: &mut Bucket, head: &Head) -> Maintenance {
    Maintenance::Release(update(bucket, head, None))
}

/// Raises the sweep boundary to the current revision, as another process.
pub(super) fn raise_sweep_boundary(bucket: &mut Bucket, nonce: u8) {
    let previous = bucket.head().clone();
    let publisher =
        Publisher { id: "sweeper".into(), nonce: Nonce::from_bytes([nonce; 16]), address: None };
    let mut head = Successor::of(&previous, publisher).finish();
    head.sweep_from = previous.revision;
    let tag = bucket.tag().clone();
    bucket.replace(&tag, &format::head::encode(&head).into()).unwrap();
}

/// A sweep that was planned, and is carried out whenever that is.
#[derive(Debug)]
pub(super) struct Planned {
    sweep: Sweep,
    /// What was listed then.
    listed: Vec<ObjectKey>,
}

/// Reads the head and lists, as a sweep does once the boundary is raised.
pub(super) fn plan_sweep(bucket: &Bucket, is_full: bool) -> Planned {
    let head = bucket.head();
    let sweep = Sweep::of(head, &bucket.archive(head), is_full);
    let is_listed = |it: &&ObjectKey| sweep.lists_from(it.kind()) <= it.staged();
    let listed = bucket.objects.keys().filter(is_listed).cloned().collect();
    Planned { sweep, listed }
}

/// Deletes what the planned sweep may; what is left to publish then, on the
/// head that there is by now.
pub(super) fn carry_out(bucket: &mut Bucket, planned: &Planned) -> Maintenance {
    let sweep = &planned.sweep;
    let deleted: BTreeSet<_> = sweep.released().iter().cloned().collect();
    let unreached = planned.listed.iter().filter(|it| sweep.judge(it).is_deletable());
    for key in unreached.chain(&deleted) {
        bucket.objects.remove(key);
    }
    let head = bucket.head().clone();
    let rest = bucket.archive(&head).without_released(&deleted);
    let update = rest.map(|rest| {
        let object = (!rest.is_empty()).then(|| {
            put(bucket, ObjectKind::Archive, head.revision, format::archive::encode(&rest))
        });
        rest.as_update(&head, object)
    });
    Maintenance::Swept { swept_to: sweep.below(), update }
}

/// Deletes what the head does not reach and never can again.
pub(super) fn sweep(bucket: &mut Bucket) {
    let planned = plan_sweep(bucket, false);
    carry_out(bucket, &planned);
}

/// Nothing that no head can name is left, once everything is swept.
pub(super) fn check_clean(bucket: &mut Bucket, nonce: u8) {
    raise_sweep_boundary(bucket, nonce);
    // Everything is looked at: a writer that had not seen an earlier boundary may
    // have prepared something below it after the sweep of then.
    let planned = plan_sweep(bucket, true);
    carry_out(bucket, &planned);
    let head = bucket.head().clone();
    let archive = bucket.archive(&head);
    let reached: BTreeSet<_> =
        head.references().chain(archive.references()).map(|it| it.key.clone()).collect();
    // An archive that was staged with the sweep is for the next one.
    let left: Vec<_> = bucket.objects.keys().filter(|it| it.staged() < head.sweep_from).collect();
    let stray: Vec<_> = left.iter().filter(|it| !reached.contains(**it)).collect();
    assert!(stray.is_empty(), "never deleted: {stray:?}");
}
