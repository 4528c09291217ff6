//! Older versions: the archive, what leads to a version in it, and writing it.

use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};

use futures::TryStreamExt as _;
use headwater_core::archive::{Archive, ArchiveUpdate, ArchivedRun, ArchivedSnapshot, Keep, Moved};
use headwater_core::follow::Step;
use headwater_core::format;
use headwater_core::head::{Head, ObjectRef, Pin, Retention, RunRef};
use headwater_core::keys::ObjectKind;
use headwater_core::version::{Revision, StateVersion};
use headwater_store::PutError;

use super::{LoadedChange, Loader};
use crate::build::{BuiltSnapshot, put, write_segment};
use crate::error::{BuildError, StateError};
use crate::view::View;

/// A run of the archive ends before it would pass this size.
const RUN_BYTES_MAX: usize = 8 << 20;
/// The last run is written again together with what follows it, while it is
/// smaller than this: half a run. So there are at most about two runs for each
/// 8 MiB of changes, however small the compactions are that brought them about.
const RUN_REWRITTEN_BYTES_MAX: u64 = 4 << 20;

/// The archive that was read last. It is small beside the state, and asked for
/// again and again while it is the head's.
#[derive(Debug, Default)]
pub(super) struct ArchiveCache(Mutex<Option<(ObjectRef, Arc<Archive>)>>);

impl ArchiveCache {
    fn get(&self, object: &ObjectRef) -> Option<Arc<Archive>> {
        let held = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        held.as_ref().filter(|(it, _)| it == object).map(|(_, archive)| Arc::clone(archive))
    }

    fn put(&self, object: &ObjectRef, archive: Archive) -> Arc<Archive> {
        let archive = Arc::new(archive);
        let mut held = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *held = Some((object.clone(), Arc::clone(&archive)));
        archive
    }
}

/// The part of the retained versions that a small run may span: what is let go
/// is let go in steps of it.
const RUNS_RETAINED: u64 = 16;

impl Loader {
    /// The archive of a head; an empty one where the head names none.
    ///
    /// # Errors
    ///
    /// [`StateError`]. On [`StateError::Missing`], read the head again.
    pub async fn archive(&self, head: &Head) -> Result<Arc<Archive>, StateError> {
        let Some(archive) = &head.archive else {
            return Ok(Arc::new(Archive::empty(head.history_id)));
        };
        let object = &archive.object;
        if let Some(archive) = self.archive_cache.get(object) {
            return Ok(archive);
        }
        let archive = self.source.fetch_as(object, format::archive::decode).await?;
        if archive.history_id != head.history_id {
            return Err(self.source.contradicts(object, "history id"));
        }
        Ok(self.archive_cache.put(object, archive))
    }

    /// Writes an archive, staged at `staged`; nothing for an empty one.
    ///
    /// # Errors
    ///
    /// [`PutError`].
    pub async fn write_archive(
        &self,
        staged: Revision,
        archive: &Archive,
    ) -> Result<Option<ObjectRef>, PutError> {
        if archive.is_empty() {
            return Ok(None);
        }
        let bytes = format::archive::encode(archive);
        let source = &self.source;
        let object = put(&*source.store, &source.history, ObjectKind::Archive, staged, bytes);
        object.await.map(Some)
    }

    /// The state at `version`, which is before the snapshot of `head`. `None`
    /// where `archive`, which is the head's, does not keep it.
    ///
    /// Cancel safe. Memory: what the changes from the snapshot on have written.
    ///
    /// # Errors
    ///
    /// [`StateError`]. On [`StateError::Missing`], read the head again.
    pub async fn open_archived(
        &self,
        head: &Head,
        archive: &Archive,
        version: StateVersion,
    ) -> Result<Option<View>, StateError> {
        let Some(way) = archive.way_to(version) else { return Ok(None) };
        let after = way.snapshot.version;
        let steps = way.runs.into_iter().map(|run| segment_step(after, run));
        let mut changes = pin!(self.fetch_steps_one_by_one(steps.collect()));
        let base = self.fetch_snapshot(head.history_id, &way.snapshot).await?;
        let mut view = View::of_snapshot(Arc::new(base));
        while let Some(changes) = changes.try_next().await? {
            let wanted = changes.iter().take_while(|it| it.version <= version);
            view = view.apply_all(wanted.map(|it| (&*it.change, it.hash)));
        }
        debug_assert_eq!(view.version(), version, "runs are contiguous");
        Ok(Some(view))
    }

    /// The changes of one run from version `from` on, oldest first.
    ///
    /// # Errors
    ///
    /// [`StateError`].
    pub async fn read_run(
        &self,
        run: &RunRef,
        from: StateVersion,
    ) -> Result<Vec<LoadedChange>, StateError> {
        let from = from.max(run.from);
        self.fetch_step(Step::Segment { from, run: run.clone() }).await
    }

    /// Writes the tail of `head` up to version `to` as runs for its archive;
    /// where the last run of `archive` is small, that one again with them. One
    /// run at a time is in memory.
    ///
    /// # Errors
    ///
    /// [`BuildError`].
    pub async fn write_archive_runs(
        &self,
        staged: Revision,
        head: &Head,
        archive: &Archive,
        to: StateVersion,
    ) -> Result<Vec<ArchivedRun>, BuildError> {
        let mut pending: Vec<LoadedChange> = Vec::new();
        if let Some(last) = archive.runs.last().filter(|it| is_to_grow(it, head)) {
            pending = self.read_run(&last.run, last.run.from).await?;
        }
        let mut runs = Vec::new();
        let mut next = head.tail_from();
        while next <= to {
            let gathered: usize = pending.iter().map(|it| it.bytes.len()).sum();
            let room = RUN_BYTES_MAX.saturating_sub(gathered);
            let mut read = self.read_changes(head, next, room).await?;
            read.retain(|it| it.version <= to);
            let Some(last) = read.last() else { break };
            next = last.version.next();
            // A change that does not fit any more comes alone, whatever the room.
            let read_bytes: usize = read.iter().map(|it| it.bytes.len()).sum();
            if !pending.is_empty() && room < read_bytes {
                runs.push(self.write_run(staged, &std::mem::take(&mut pending)).await?);
            }
            pending.append(&mut read);
            if RUN_BYTES_MAX <= pending.iter().map(|it| it.bytes.len()).sum() {
                runs.push(self.write_run(staged, &std::mem::take(&mut pending)).await?);
            }
        }
        if !pending.is_empty() {
            runs.push(self.write_run(staged, &pending).await?);
        }
        Ok(runs)
    }

    /// Decides what becomes of the tail of `head` that a built snapshot takes
    /// the place of: kept in the archive, or let go. What is kept is durable
    /// afterwards.
    ///
    /// # Errors
    ///
    /// [`BuildError`].
    pub async fn archive_tail(
        &self,
        head: &Head,
        built: &BuiltSnapshot,
        keep: &Keep,
    ) -> Result<ArchiveUpdate, BuildError> {
        let version = built.snapshot.version;
        let before = self.archive(head).await?;
        let retention = head.retention;
        let is_kept = 0 < retention.versions || 0 < retention.age_ms;
        let is_in = |it: &Pin| head.snapshot.version < it.version && it.version < version;
        let runs = if is_kept || head.pins.iter().any(is_in) {
            self.write_archive_runs(head.revision, head, &before, version).await?
        } else {
            Vec::new()
        };
        let dropped = head.segments.iter().filter(|it| it.to <= version);
        let moved = Moved {
            snapshot: ArchivedSnapshot {
                snapshot: built.based_on.clone(),
                needs_base: built.based_on_others,
                replaced: built.replaced.clone(),
            },
            becomes: built.snapshot.clone(),
            needs_base: !built.owners.is_empty(),
            runs,
            segments: dropped.map(|it| it.object.key.clone()).collect(),
        };
        let kept = before.keep(head, Some(&moved), keep);
        let object = self.write_archive(head.revision, &kept.archive).await?;
        Ok(kept.into_update(head, &before, Some(&moved), object))
    }

    async fn write_run(
        &self,
        staged: Revision,
        changes: &[LoadedChange],
    ) -> Result<ArchivedRun, PutError> {
        let run = write_segment(self, staged, changes).await?;
        let times = changes.iter().map(|it| it.change.decided_at_ms);
        let (earliest, latest) =
            times.fold((u64::MAX, 0), |(low, high), it| (low.min(it), high.max(it)));
        Ok(ArchivedRun { run, decided_from_ms: earliest, decided_to_ms: latest })
    }
}

/// Whether a run is written again with what follows it: it is small, and short
/// beside what is kept, so that retention can let it go as a whole in time.
fn is_to_grow(last: &ArchivedRun, head: &Head) -> bool {
    let Retention { versions, age_ms } = head.retention;
    let is_small = last.run.object.size_bytes < RUN_REWRITTEN_BYTES_MAX;
    let follows = last.run.to == head.snapshot.version;
    let spans_versions = last.run.to.since(last.run.from);
    let spans_ms = last.decided_to_ms.saturating_sub(last.decided_from_ms);
    // What any of the two keeps is kept, so it may be long by the other.
    let is_short = (versions == 0 && age_ms == 0)
        || spans_versions < versions / RUNS_RETAINED
        || spans_ms < age_ms / RUNS_RETAINED;
    is_small && follows && is_short
}

fn segment_step(after: StateVersion, run: RunRef) -> Step {
    Step::Segment { from: run.from.max(after.next()), run }
}
