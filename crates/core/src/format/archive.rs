//! The archive: what retention keeps, and what is let go.
//!
//! ```text
//! HWa1 | history id
//!      | count | count x (from, to, reference, decided from, decided to)
//!      | count | count x (version, reference, needs base, count, count x key)
//!      | count | count x key
//! reference: staged revision | hash | size
//! key:       kind | staged revision | hash
//! ```

use alloc::vec::Vec;

use bytes::Bytes;

use super::wire::{self, Reader};
use super::{DecodeError, malformed};
use crate::archive::{Archive, ArchivedRun, ArchivedSnapshot};
use crate::hash::ContentHash;
use crate::head::{ObjectRef, RunRef, SnapshotRef};
use crate::id::HistoryId;
use crate::keys::{ObjectKey, ObjectKind};
use crate::version::Revision;

const KIND: u8 = b'a';

/// Writes an archive.
pub fn encode(archive: &Archive) -> Vec<u8> {
    let mut out = Vec::new();
    wire::put_magic(&mut out, KIND);
    out.extend_from_slice(archive.history_id.as_bytes());
    wire::put_len(&mut out, archive.runs.len());
    for ArchivedRun { run, decided_from_ms, decided_to_ms } in &archive.runs {
        wire::put_u64(&mut out, run.from.get());
        wire::put_u64(&mut out, run.to.get());
        put_object(&mut out, &run.object);
        wire::put_u64(&mut out, *decided_from_ms);
        wire::put_u64(&mut out, *decided_to_ms);
    }
    wire::put_len(&mut out, archive.snapshots.len());
    for ArchivedSnapshot { snapshot, needs_base, replaced } in &archive.snapshots {
        wire::put_u64(&mut out, snapshot.version.get());
        put_object(&mut out, &snapshot.object);
        wire::put_u8(&mut out, u8::from(*needs_base));
        put_keys(&mut out, replaced);
    }
    put_keys(&mut out, &archive.released);
    out
}

fn put_object(out: &mut Vec<u8>, object: &ObjectRef) {
    wire::put_u64(out, object.key.staged().get());
    out.extend_from_slice(object.hash.as_bytes());
    wire::put_u64(out, object.size_bytes);
}

fn put_keys(out: &mut Vec<u8>, keys: &[ObjectKey]) {
    wire::put_len(out, keys.len());
    for key in keys {
        // Change entries are found by listing, and nothing else lacks a hash.
        let Some(hash) = key.content_hash() else { panic!("{key} is not named by its content") };
        wire::put_u8(out, letter(key.kind()));
        wire::put_u64(out, key.staged().get());
        out.extend_from_slice(hash.as_bytes());
    }
}

fn letter(kind: ObjectKind) -> u8 {
    match kind {
        ObjectKind::Change => b'c',
        ObjectKind::Segment => b's',
        ObjectKind::Snapshot => b'i',
        ObjectKind::Chunk => b'k',
        ObjectKind::Data => b'd',
        ObjectKind::Receipts => b'r',
        ObjectKind::Archive => b'a',
    }
}

/// Reads an archive.
///
/// # Errors
///
/// [`DecodeError`], also where runs or snapshots are out of order.
pub fn decode(bytes: Bytes) -> Result<Archive, DecodeError> {
    let mut reader = Reader::new(bytes);
    reader.magic(KIND)?;
    let mut history_id = [0; 16];
    history_id.copy_from_slice(&reader.take(16, "history id")?);
    let count = reader.count(80, "count of runs")?;
    let mut runs: Vec<ArchivedRun> = Vec::with_capacity(count);
    for _ in 0..count {
        let it = run(&mut reader)?;
        let is_in_order = runs.last().is_none_or(|last| last.run.to < it.run.from);
        if !is_in_order || it.run.to < it.run.from || it.run.from.get() == 0 {
            return Err(malformed("order of runs"));
        }
        runs.push(it);
    }
    let count = reader.count(61, "count of snapshots")?;
    let mut snapshots: Vec<ArchivedSnapshot> = Vec::with_capacity(count);
    for _ in 0..count {
        let it = snapshot(&mut reader)?;
        if snapshots.last().is_some_and(|last| it.snapshot.version <= last.snapshot.version) {
            return Err(malformed("order of snapshots"));
        }
        snapshots.push(it);
    }
    let released = keys(&mut reader)?;
    reader.finish()?;
    Ok(Archive { history_id: HistoryId::from_bytes(history_id), runs, snapshots, released })
}

fn run(reader: &mut Reader) -> Result<ArchivedRun, DecodeError> {
    let (from, to) = (reader.version("first version")?, reader.version("last version")?);
    let object = object(reader, ObjectKind::Segment)?;
    Ok(ArchivedRun {
        run: RunRef { from, to, object },
        decided_from_ms: reader.u64("earliest decision")?,
        decided_to_ms: reader.u64("latest decision")?,
    })
}

fn snapshot(reader: &mut Reader) -> Result<ArchivedSnapshot, DecodeError> {
    let version = reader.version("version")?;
    let object = object(reader, ObjectKind::Snapshot)?;
    let needs_base = match reader.u8("whether it needs the base")? {
        0 => false,
        1 => true,
        _ => return Err(malformed("whether it needs the base")),
    };
    let replaced = keys(reader)?;
    Ok(ArchivedSnapshot { snapshot: SnapshotRef { version, object }, needs_base, replaced })
}

fn object(reader: &mut Reader, kind: ObjectKind) -> Result<ObjectRef, DecodeError> {
    let staged = Revision::new(reader.u64("staged revision")?);
    let hash = ContentHash::from_bytes(reader.hash("hash")?);
    let size_bytes = reader.u64("size")?;
    Ok(ObjectRef { key: ObjectKey::content(kind, staged, hash), hash, size_bytes })
}

fn keys(reader: &mut Reader) -> Result<Vec<ObjectKey>, DecodeError> {
    let count = reader.count(41, "count of keys")?;
    (0..count)
        .map(|_| {
            let kind = reader.u8("kind of object")?;
            let kind = ObjectKind::ALL
                .into_iter()
                .find(|it| letter(*it) == kind && *it != ObjectKind::Change)
                .ok_or(malformed("kind of object"))?;
            let staged = Revision::new(reader.u64("staged revision")?);
            let hash = ContentHash::from_bytes(reader.hash("hash")?);
            Ok(ObjectKey::content(kind, staged, hash))
        })
        .collect()
}
