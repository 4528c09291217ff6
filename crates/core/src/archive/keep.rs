//! What stays in the archive, and what is let go.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use super::{Archive, ArchiveUpdate, ArchivedRun, ArchivedSnapshot};
use crate::head::{ArchiveRef, Head, ObjectRef, Pin, SnapshotRef};
use crate::keys::ObjectKey;
use crate::version::StateVersion;

/// Bytes of changes that are replayed at most to read an old version, where
/// snapshots leave the choice: those closer to one another are let go. 64 MiB
/// are fetched and replayed within seconds.
pub const REPLAY_BYTES_MAX: u64 = 64 << 20;

/// By what it is judged what stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Keep {
    /// The time of day, in milliseconds since 1970.
    pub now_ms: u64,
    /// How far the clocks of two processes may be apart, in milliseconds.
    /// Whatever goes by age goes that much later.
    pub clock_error_ms: u64,
}

/// A compaction's part: what moves from the head to the archive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Moved {
    /// The head's snapshot so far, and what the new one no longer has of it.
    pub snapshot: ArchivedSnapshot,
    /// The snapshot that takes its place.
    pub becomes: SnapshotRef,
    /// Whether that one names objects of the history that this one was forked
    /// from.
    pub needs_base: bool,
    /// The changes up to `becomes`, where they are to be kept. They take the
    /// place of the archive's runs from the first one's version on, so that
    /// small runs do not add up.
    pub runs: Vec<ArchivedRun>,
    /// Segments that the head no longer names.
    pub segments: Vec<ObjectKey>,
}

/// What is to be kept from now on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kept {
    /// The archive.
    pub archive: Archive,
    /// Every version from this one on can be read.
    pub retained_from: StateVersion,
    /// Versions before that, which pins keep.
    pub pinned: BTreeSet<StateVersion>,
    /// Pins whose time is up.
    pub expired: Vec<Pin>,
    /// Whether anything still names objects of the base.
    pub needs_base: bool,
}

impl Kept {
    /// Whether publishing it would change anything, where no compaction is
    /// published with it.
    pub fn is_news(&self, head: &Head, before: &Archive) -> bool {
        let loses_base = head.base.is_some() && !self.needs_base;
        self.archive != *before || !self.expired.is_empty() || loses_base
    }

    /// What publishes this. `becomes` is where the archive was written; `None`
    /// for an empty one.
    pub fn into_update(
        self,
        head: &Head,
        before: &Archive,
        moved: Option<&Moved>,
        becomes: Option<ObjectRef>,
    ) -> ArchiveUpdate {
        let old: BTreeSet<_> = before.references().map(|it| &it.key).collect();
        let named = self.archive.references().filter(|it| !old.contains(&it.key)).cloned();
        ArchiveUpdate {
            based_on: head.archive.clone(),
            named: named.collect(),
            accounted: moved.map(|it| it.segments.clone()).unwrap_or_default(),
            becomes: becomes.map(|object| ArchiveRef { retained_from: self.retained_from, object }),
            pinned: self.pinned,
            forks: head.forks().map(|it| it.name.clone()).collect(),
            expired: self.expired,
            needs_base: self.needs_base,
        }
    }
}

impl Archive {
    /// What stays of this archive, and of what a compaction moves into it,
    /// under the retention and the pins of `head`.
    ///
    /// What is let go is in `released` of the result. Pure: nothing is deleted
    /// before a head with the result is published, and a sweep has followed.
    pub fn keep(&self, head: &Head, moved: Option<&Moved>, keep: &Keep) -> Kept {
        let mut archive = self.clone();
        let newest = match moved {
            Some(moved) => {
                archive.take_in(moved);
                moved.becomes.version
            }
            None => head.snapshot.version,
        };
        let is_over = |it: &&Pin| {
            let end = it.expires_at_ms.map(|at| at.saturating_add(keep.clock_error_ms));
            it.child.is_none()
                && end.is_some_and(|it| it < keep.now_ms || planted!(ExpiryUnchecked))
        };
        let expired: Vec<Pin> = head.pins.iter().filter(is_over).cloned().collect();
        let retained_from = archive.retained_from(head, newest, keep);
        let pins = head.pins.iter().filter(|it| !expired.contains(it)).map(|it| it.version);
        let pinned: BTreeSet<_> = pins.filter(|it| *it < retained_from).collect();

        let forks = head.forks().filter(|_| !planted!(ForksForgotten));
        let forked = forks.flat_map(|it| archive.fork_bases(it)).collect();
        let wanted = Wanted { retained_from, newest, pinned, forked };
        archive.let_runs_go(&wanted);
        archive.let_snapshots_go(&wanted);
        archive.released.sort_unstable();
        archive.released.dedup();
        let names_base = archive.snapshots.iter().any(|it| it.needs_base);
        // Without a compaction the head's snapshot stays as it is; whoever
        // built it said whether it needs the base, and the head still has it.
        let newest_needs_base = moved.is_none_or(|it| it.needs_base);
        let needs_base = head.base.is_some() && (names_base || newest_needs_base);
        let pinned = wanted.pinned;
        Kept { archive, retained_from, pinned, expired, needs_base }
    }

    fn take_in(&mut self, moved: &Moved) {
        self.snapshots.push(moved.snapshot.clone());
        self.released.extend(moved.segments.iter().cloned());
        if let Some(first) = moved.runs.first() {
            let from = first.run.from;
            let replaced = self.runs.iter().position(|it| from <= it.run.from);
            let replaced = self.runs.split_off(replaced.unwrap_or(self.runs.len()));
            self.released.extend(replaced.into_iter().map(|it| it.run.object.key));
            self.runs.extend(moved.runs.iter().cloned());
        }
    }

    /// The first version from which on everything is kept.
    fn retained_from(&self, head: &Head, newest: StateVersion, keep: &Keep) -> StateVersion {
        let retention = head.retention;
        let by_count = head.state_version.get().saturating_sub(retention.versions);
        let age_ms = retention.age_ms.saturating_add(keep.clock_error_ms);
        let oldest_ms = keep.now_ms.saturating_sub(age_ms);
        // The state before a young change was the newest one until then.
        let is_young = |it: &&ArchivedRun| 0 < retention.age_ms && oldest_ms <= it.decided_to_ms;
        let by_age = self.runs.iter().find(is_young).map(|it| it.run.from.get() - 1);
        let wanted = by_age.map_or(by_count, |it| it.min(by_count)).min(newest.get());
        // What is gone stays gone, and what was never moved here because less
        // was to be kept then cannot be had.
        let floor = head.retained_from().max(self.contiguous_from(newest));
        StateVersion::new(wanted).max(floor)
    }

    /// The first version that can be read with everything after it.
    fn contiguous_from(&self, newest: StateVersion) -> StateVersion {
        let mut from = newest;
        for run in self.runs.iter().rev().map(|it| &it.run) {
            if run.to < from {
                break;
            }
            from = from.min(StateVersion::new(run.from.get() - 1));
        }
        // The oldest snapshot from which those runs go on.
        let versions = self.snapshots.iter().map(|it| it.snapshot.version);
        versions.filter(|it| from <= *it).min().unwrap_or(newest)
    }

    /// The newest snapshot at or below `version`.
    fn base_of(&self, version: StateVersion) -> Option<StateVersion> {
        let below = self.snapshots.iter().rfind(|it| it.snapshot.version <= version);
        below.map(|it| it.snapshot.version)
    }

    /// The snapshots that a fork may name chunks of: it was made from a head that
    /// was read after the pin, and from the newest snapshot at or below the
    /// version there. That is the newest one published before the pin, or one
    /// published since. Of those staged before the pin at most one can have been
    /// published after it, since each is built upon the one before.
    fn fork_bases(&self, pin: &Pin) -> Vec<StateVersion> {
        let below = self.snapshots.iter().map(|it| &it.snapshot);
        let below = below.filter(|it| it.version <= pin.version);
        let (newer, older): (Vec<_>, Vec<_>) =
            below.partition(|it| pin.revision <= it.object.key.staged());
        older.into_iter().rev().take(2).chain(newer).map(|it| it.version).collect()
    }

    /// The retained versions need the runs from their snapshot on, together; a
    /// pinned one those from its snapshot to itself.
    fn let_runs_go(&mut self, wanted: &Wanted) {
        let retained = wanted.retained().map(|from| (from, wanted.newest));
        let pinned = wanted.pinned.iter().map(|it| (*it, *it));
        let spans: Vec<_> = retained
            .into_iter()
            .chain(pinned)
            .map(|(from, to)| (self.base_of(from).unwrap_or(from), to))
            .collect();
        for it in core::mem::take(&mut self.runs) {
            let (from, to) = (it.run.from, it.run.to);
            let is_needed =
                spans.iter().any(|(base, last)| *base < to && from <= *last && base < last);
            if is_needed {
                self.runs.push(it);
            } else {
                self.released.push(it.run.object.key);
            }
        }
    }

    fn let_snapshots_go(&mut self, wanted: &Wanted) {
        let retained = wanted.retained().and_then(|it| self.base_of(it));
        let pinned = wanted.pinned.iter().filter_map(|it| self.base_of(*it));
        let forked = wanted.forked.iter().copied();
        let needed: BTreeSet<_> = retained.into_iter().chain(pinned).chain(forked).collect();
        let mut rest = core::mem::take(&mut self.snapshots).into_iter().peekable();
        while let Some(it) = rest.next() {
            let version = it.snapshot.version;
            let next = rest.peek().map_or(wanted.newest, |it| it.snapshot.version);
            // Some between the first retained one and the head's, so that no
            // version takes long to read.
            let last = self.snapshots.last().map(|it| it.snapshot.version);
            let is_between = retained.is_some_and(|it| it < version);
            let is_far = last.is_some_and(|it| REPLAY_BYTES_MAX < self.run_bytes(it, next));
            if needed.contains(&version) || (is_between && is_far) {
                self.snapshots.push(it);
            } else {
                self.let_snapshot_go(it);
            }
        }
    }

    /// Bytes of the changes between two versions.
    fn run_bytes(&self, after: StateVersion, to: StateVersion) -> u64 {
        let runs = self.runs.iter().map(|it| &it.run);
        let between = runs.filter(|it| after < it.to && it.from <= to);
        between.map(|it| it.object.size_bytes).sum()
    }

    /// Lets a snapshot go; its older neighbour is the last one kept so far.
    pub(super) fn let_snapshot_go(&mut self, gone: ArchivedSnapshot) {
        self.released.push(gone.snapshot.object.key);
        let Some(last) = self.snapshots.last_mut() else {
            self.released.extend(gone.replaced);
            return;
        };
        // What was built for the neighbour or before is in the neighbour too,
        // which is now the last one that has it.
        let staged = last.snapshot.object.key.staged();
        for key in gone.replaced {
            if key.staged() <= staged {
                last.replaced.push(key);
            } else {
                self.released.push(key);
            }
        }
    }
}

/// The versions that can be read.
struct Wanted {
    retained_from: StateVersion,
    /// The head's snapshot, from which on the archive is not needed.
    newest: StateVersion,
    pinned: BTreeSet<StateVersion>,
    /// Snapshots that forks name chunks of.
    forked: Vec<StateVersion>,
}

impl Wanted {
    fn retained(&self) -> Option<StateVersion> {
        Some(self.retained_from).filter(|it| *it < self.newest)
    }
}
