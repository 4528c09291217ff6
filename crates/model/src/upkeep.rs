//! Maintenance as a writer's driver prepares it, from the head that the writer
//! has in hand.

use std::sync::Arc;

use bytes::Bytes;
use headwater_core::archive::{ArchiveUpdate, ArchivedRun, ArchivedSnapshot, Moved};
use headwater_core::format;
use headwater_core::format::chunk::ChunkEntry;
use headwater_core::format::segment::Segment;
use headwater_core::format::snapshot::{ChunkRef, Parts, SnapshotIndex};
use headwater_core::hash::ContentHash;
use headwater_core::head::{ChangeBody, Compaction, Fold, Head, ObjectRef, RunRef, SnapshotRef};
use headwater_core::keys::{ObjectKey, ObjectKind};
use headwater_core::publish::Maintenance;
use headwater_core::version::Revision;

use crate::bucket::Bucket;
use crate::domain::State;
use crate::world::World;
use crate::writer::Work;

/// What maintenance makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Made {
    /// A segment of all changes of the tail.
    Segment,
    /// A snapshot of the newest version.
    Snapshot,
    /// An archive that keeps less.
    Release,
}

type Objects = Vec<(ObjectRef, Bytes)>;

fn object(objects: &mut Objects, kind: ObjectKind, staged: Revision, bytes: Vec<u8>) -> ObjectRef {
    let object = ObjectRef::to_content(kind, staged, &bytes);
    objects.push((object.clone(), bytes.into()));
    object
}

impl World {
    /// Whether a writer has something to make it of: a head with a tail, all of
    /// which it can read.
    pub fn can_make(&self, writer: usize, made: Made) -> bool {
        let Some(observed) = self.writers[writer].publisher.observed() else { return false };
        let head = &observed.head;
        let is_preparing =
            self.writers[writer].works.iter().any(|it| matches!(it, Work::Prepare { .. }));
        let has_something = match made {
            Made::Segment => !head.changes.is_empty(),
            Made::Snapshot => head.snapshot.version < head.state_version,
            Made::Release => {
                let before = self.bucket.archive(head);
                before.keep(head, None, &self.bucket.keep()).is_news(head, &before)
            }
        };
        has_something
            && !is_preparing
            && self.bucket.reachable(head).iter().all(|it| self.bucket.get(it).is_some())
    }

    /// Makes it; it is uploaded later.
    pub fn make(&mut self, writer: usize, made: Made) {
        let Some(observed) = self.writers[writer].publisher.observed().cloned() else { return };
        let mut objects = Vec::new();
        let maintenance = match made {
            Made::Segment => Maintenance::Fold(fold(&self.bucket, &observed.head, &mut objects)),
            Made::Snapshot => {
                Maintenance::Compact(compact(&self.bucket, &observed.head, &mut objects))
            }
            Made::Release => {
                Maintenance::Release(release(&self.bucket, &observed.head, &mut objects))
            }
        };
        let works = &mut Arc::make_mut(&mut self.writers[writer]).works;
        works.push(Work::Prepare { maintenance, objects });
    }
}

fn fold(bucket: &Bucket, head: &Head, objects: &mut Objects) -> Fold {
    let bytes_of = |body: &ChangeBody| match body {
        ChangeBody::Inline(bytes) => bytes.clone(),
        ChangeBody::Staged(object) => bucket.get(object).cloned().unwrap_or_default(),
    };
    let entries = head.changes.iter().map(|it| (it.hash, bytes_of(&it.body))).collect();
    let (Some(first), Some(last)) = (head.changes.first(), head.changes.last()) else {
        unreachable!("a fold is of something")
    };
    let bytes = format::segment::encode(&Segment { from_version: first.version, entries });
    let object = object(objects, ObjectKind::Segment, head.revision, bytes);
    let segment = RunRef { from: first.version, to: last.version, object };
    Fold { segment, last_change: last.hash }
}

fn compact(bucket: &Bucket, head: &Head, objects: &mut Objects) -> Compaction {
    let version = head.state_version;
    let base = bucket.chunks(&head.snapshot);
    let state = bucket.state(version);
    // Where chunks are cut depends on the entries: before the key `x`, where it
    // is there.
    let is_cut = state.entries().any(|it| it.0.as_ref() == b"x");
    let cut: &[u8] = if is_cut { b"x" } else { &[0xff] };
    let ranges: [(&[u8], &[u8]); 2] = [(b"", cut), (cut, &[0xff])];
    let mut chunk_of =
        |range: &(&[u8], &[u8])| chunk(state, range.0, range.1, &base, head.revision, objects);
    let chunks: Vec<_> = ranges.iter().filter_map(&mut chunk_of).collect();
    let is_gone = |it: &&ChunkRef| chunks.iter().all(|new| new.object.key != it.object.key);
    let replaced = base.iter().filter(is_gone).map(|it| it.object.key.clone()).collect();
    let (history_id, chain_hash) = (head.history_id, head.chain_hash);
    let parts = Parts::Chunks(chunks);
    let index = format::snapshot::encode(&SnapshotIndex { history_id, version, chain_hash, parts });
    let snapshot = object(objects, ObjectKind::Snapshot, head.revision, index);
    let snapshot = SnapshotRef { version, object: snapshot };
    // All that is covered and is not in the tail any more, in one page.
    let from = head.receipt_pages.first().map_or(head.tail_from(), |it| it.from);
    let page = format::receipts::encode(&bucket.receipts(from, version));
    let page = object(objects, ObjectKind::Receipts, head.revision, page);
    let archive = archive(bucket, head, &snapshot, replaced, objects);
    Compaction {
        snapshot,
        based_on: head.snapshot.clone(),
        receipt_pages: [RunRef { from, to: version, object: page }].into(),
        archive,
    }
}

/// What becomes of the snapshot and the tail that `becomes` takes the place of.
fn archive(
    bucket: &Bucket,
    head: &Head,
    becomes: &SnapshotRef,
    replaced: Vec<ObjectKey>,
    objects: &mut Objects,
) -> ArchiveUpdate {
    let from = head.tail_from();
    let after = head.snapshot.version;
    let changes = bucket.changes_after(after).take_while(|it| it.0 <= becomes.version);
    let entries = changes.map(|(_, change)| {
        let bytes = Bytes::from(format::change::encode(change));
        (ContentHash::of(&bytes), bytes)
    });
    let segment = Segment { from_version: from, entries: entries.collect() };
    let run = format::segment::encode(&segment);
    let run = object(objects, ObjectKind::Segment, head.revision, run);
    let run = RunRef { from, to: becomes.version, object: run };
    let moved = Moved {
        snapshot: ArchivedSnapshot { snapshot: head.snapshot.clone(), needs_base: false, replaced },
        becomes: becomes.clone(),
        needs_base: false,
        runs: [ArchivedRun { run, decided_from_ms: 0, decided_to_ms: 0 }].into(),
        segments: head.segments.iter().map(|it| it.object.key.clone()).collect(),
    };
    let before = bucket.archive(head);
    let kept = before.keep(head, Some(&moved), &bucket.keep());
    let kept_at = (!kept.archive.is_empty()).then(|| {
        let bytes = format::archive::encode(&kept.archive);
        object(objects, ObjectKind::Archive, head.revision, bytes)
    });
    kept.into_update(head, &before, Some(&moved), kept_at)
}

/// An archive of what retention and pins want by now.
fn release(bucket: &Bucket, head: &Head, objects: &mut Objects) -> ArchiveUpdate {
    let before = bucket.archive(head);
    let kept = before.keep(head, None, &bucket.keep());
    let kept_at = (!kept.archive.is_empty()).then(|| {
        let bytes = format::archive::encode(&kept.archive);
        object(objects, ObjectKind::Archive, head.revision, bytes)
    });
    kept.into_update(head, &before, None, kept_at)
}

/// The chunk of the keys from `from` up to `to`: that of the snapshot before,
/// where it has the same bytes.
fn chunk(
    state: &State,
    from: &[u8],
    to: &[u8],
    base: &[ChunkRef],
    staged: Revision,
    objects: &mut Objects,
) -> Option<ChunkRef> {
    let is_in = |key: &[u8]| from <= key && key < to;
    let entries: Vec<_> = state
        .entries()
        .filter(|it| is_in(it.0.as_ref()))
        .map(|(key, value, version)| ChunkEntry { key: key.clone(), version, value: value.clone() })
        .collect();
    let (first, last) = (entries.first()?, entries.last()?);
    let bytes = format::chunk::encode_block(&entries);
    let block_len = u32::try_from(bytes.len()).ok()?;
    let is_same = |it: &&ChunkRef| it.object.is_to(&bytes);
    let chunk = match base.iter().find(is_same) {
        Some(chunk) => chunk.object.clone(),
        None => object(objects, ObjectKind::Chunk, staged, bytes),
    };
    Some(ChunkRef {
        object: chunk,
        owner: None,
        first: first.key.clone(),
        last: last.key.clone(),
        count: u32::try_from(entries.len()).ok()?,
        block_len,
        newest: entries.iter().map(|it| it.version).max()?,
    })
}
