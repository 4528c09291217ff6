//! The archive once damaged snapshots are left out.
//!
//! What an older snapshot and the changes since lead to need not be read from a
//! snapshot in between. So a damaged one goes, and the versions that were read
//! from it are read from the one before, at the price of a longer replay.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use super::{Archive, ArchivedSnapshot};
use crate::head::{Head, SnapshotRef};
use crate::keys::ObjectKey;
use crate::version::StateVersion;

/// The head's snapshot, damaged, and what takes its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lost {
    /// It.
    pub snapshot: SnapshotRef,
    /// The objects that it leads to, as far as its index can be read. Those
    /// that are not known are found by a full sweep.
    pub reached: Vec<ObjectKey>,
    /// What the snapshot leads to that it was built again from, and the new one
    /// does not.
    pub replaced: Vec<ObjectKey>,
}

impl Archive {
    /// The snapshots that take over where those of the versions `damaged` are
    /// left out; `None` where one of them has none before it from which the
    /// changes lead on without a gap.
    pub fn without_snapshots(&self, damaged: &BTreeSet<StateVersion>) -> Option<Self> {
        let mut rest = self.clone();
        for it in core::mem::take(&mut rest.snapshots) {
            let version = it.snapshot.version;
            if !damaged.contains(&version) {
                rest.snapshots.push(it);
                continue;
            }
            rest.way_to(version)?;
            rest.let_snapshot_go(it);
        }
        rest.tidy();
        Some(rest)
    }

    /// The archive once the snapshot of `head`, which names it, was built again
    /// from the one of version `base`. Those in between are damaged, or it would
    /// have been built from them; they are left out. `None` where the changes do
    /// not lead from `base` to the head's snapshot without a gap.
    pub fn rebuilt_from(&self, base: StateVersion, head: &Head, lost: Lost) -> Option<Self> {
        self.runs_after(base, head)?;
        let mut rest = self.clone();
        let at = rest.snapshots.iter().position(|it| it.snapshot.version == base)?;
        let left_out = rest.snapshots.split_off(at + 1);
        let staged = rest.snapshots[at].snapshot.object.key.staged();
        // What was staged until `base` was built is in it too, where anything
        // leads to it: none that was left out comes back.
        let is_own = |it: &ObjectKey| staged < it.staged();
        for ArchivedSnapshot { snapshot, replaced, .. } in left_out {
            rest.released.push(snapshot.object.key);
            rest.released.extend(replaced.into_iter().filter(is_own));
        }
        rest.released.push(lost.snapshot.object.key);
        rest.released.extend(lost.reached.into_iter().filter(is_own));
        rest.snapshots[at].replaced = lost.replaced;
        rest.tidy();
        Some(rest)
    }

    fn tidy(&mut self) {
        self.released.sort_unstable();
        self.released.dedup();
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use super::*;
    use crate::archive::ArchivedRun;
    use crate::head::{Head, ObjectRef, Publisher, RunRef};
    use crate::id::{HistoryId, HistoryName, Nonce};
    use crate::keys::ObjectKind;
    use crate::version::Revision;

    fn object(kind: ObjectKind, staged: u64, content: &str) -> ObjectRef {
        ObjectRef::to_content(kind, Revision::new(staged), content.as_bytes())
    }

    fn snapshot(version: u64) -> SnapshotRef {
        let object = object(ObjectKind::Snapshot, version, &std::format!("at {version}"));
        SnapshotRef { version: StateVersion::new(version), object }
    }

    /// A chunk that the snapshot of a version was the first to have.
    fn chunk(version: u64, name: &str) -> ObjectKey {
        object(ObjectKind::Chunk, version, name).key
    }

    fn archived(version: u64, replaced: &[(u64, &str)]) -> ArchivedSnapshot {
        let replaced = replaced.iter().map(|it| chunk(it.0, it.1)).collect();
        ArchivedSnapshot { snapshot: snapshot(version), needs_base: false, replaced }
    }

    fn run(from: u64, to: u64) -> ArchivedRun {
        let object = object(ObjectKind::Segment, to, &std::format!("{from} to {to}"));
        let run = RunRef { from: StateVersion::new(from), to: StateVersion::new(to), object };
        ArchivedRun { run, decided_from_ms: 0, decided_to_ms: 0 }
    }

    /// Snapshots at 10, 20, 30, and the head's at 40; changes from 11 on.
    fn kept() -> (Head, Archive) {
        let id = HistoryId::from_bytes([1; 16]);
        let archive = Archive {
            runs: vec![run(11, 25), run(26, 40)],
            snapshots: vec![
                archived(10, &[(10, "a")]),
                archived(20, &[(10, "b"), (20, "c")]),
                archived(30, &[(10, "d"), (20, "e"), (30, "f")]),
            ],
            ..Archive::empty(id)
        };
        let name = HistoryName::parse("h").unwrap();
        let publisher =
            Publisher { id: "p".into(), nonce: Nonce::from_bytes([1; 16]), address: None };
        let first = Head::first(name, id, Revision::FIRST, false, publisher, snapshot(0).object);
        (Head { snapshot: snapshot(40), state_version: StateVersion::new(40), ..first }, archive)
    }

    fn versions(archive: &Archive) -> Vec<u64> {
        archive.snapshots.iter().map(|it| it.snapshot.version.get()).collect()
    }

    #[test]
    fn what_was_read_from_a_damaged_snapshot_is_read_from_the_one_before() {
        let (_, archive) = kept();
        let damaged = [StateVersion::new(20), StateVersion::new(30)].into();

        let rest = archive.without_snapshots(&damaged).unwrap();

        assert_eq!(versions(&rest), [10]);
        assert_eq!(rest.runs, archive.runs);
        // What the first had too stays until the first goes.
        let replaced = [(10, "a"), (10, "b"), (10, "d")].map(|it| chunk(it.0, it.1));
        assert_eq!(rest.snapshots[0].replaced, replaced);
        let mut released = vec![snapshot(20).object.key, snapshot(30).object.key];
        released.extend([(20, "c"), (20, "e"), (30, "f")].map(|it| chunk(it.0, it.1)));
        released.sort_unstable();
        assert_eq!(rest.released, released);
        let way = rest.way_to(StateVersion::new(33)).unwrap();
        assert_eq!((way.snapshot, way.runs.len()), (snapshot(10), 2));
    }

    #[test]
    fn a_damaged_snapshot_stays_where_nothing_leads_past_it() {
        let (head, archive) = kept();
        assert_eq!(archive.without_snapshots(&[StateVersion::new(10)].into()), None);

        let gap = Archive { runs: vec![run(11, 15), run(31, 40)], ..archive };
        assert_eq!(gap.without_snapshots(&[StateVersion::new(20)].into()), None);
        let lost = || Lost { snapshot: snapshot(40), reached: Vec::new(), replaced: Vec::new() };
        assert_eq!(gap.rebuilt_from(StateVersion::new(10), &head, lost()), None);
        assert!(gap.rebuilt_from(StateVersion::new(30), &head, lost()).is_some());
        assert_eq!(gap.rebuilt_from(StateVersion::new(15), &head, lost()), None);
    }

    #[test]
    fn a_rebuilt_snapshot_follows_the_one_that_it_was_built_from() {
        let (head, archive) = kept();
        let reached = [(10, "a"), (20, "g"), (40, "h")].map(|it| chunk(it.0, it.1));
        let lost = Lost {
            snapshot: snapshot(40),
            reached: reached.into(),
            replaced: vec![chunk(10, "z")],
        };

        let rest = archive.rebuilt_from(StateVersion::new(10), &head, lost).unwrap();

        assert_eq!(versions(&rest), [10]);
        assert_eq!(rest.snapshots[0].replaced, [chunk(10, "z")]);
        let mut released: Vec<_> = [20, 30, 40].map(|it| snapshot(it).object.key).into();
        let own = [(20, "c"), (20, "e"), (30, "f"), (20, "g"), (40, "h")];
        released.extend(own.map(|it| chunk(it.0, it.1)));
        released.sort_unstable();
        assert_eq!(rest.released, released);
    }
}
