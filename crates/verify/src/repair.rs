//! Mending damaged snapshots from what is sound.
//!
//! ```text
//! report ─▶ Plan ─▶ build ─▶ does the tail lead from it to the head? ─▶ publish
//!            │        ▲
//!            │    older snapshot + changes
//!            └─ of older snapshots: the one before takes over, nothing is built
//! ```
//!
//! Only snapshots, because only they are stored twice: as they are, and as an
//! older one with the changes since. Everything else is there once, or must be
//! brought back from a copy.
//!
//! # Invariants
//!
//! - What is built from was seen to be sound, whole, and in this very check.
//! - A snapshot takes the place of one only if the head's chain goes on from it.
//! - One head is published, conditioned on snapshot and archive being those that
//!   were checked. Nothing is deleted: what goes is released to the sweep.

mod publish;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use headwater_core::archive::{Archive, ArchiveUpdate, Lost};
use headwater_core::follow::{Chain, FollowError};
use headwater_core::head::{ArchiveRef, Head, ObjectRef, Rebuilt, SnapshotRef, Successor};
use headwater_core::id::HistoryName;
use headwater_core::keys::ObjectKey;
use headwater_core::version::{Revision, StateVersion};
use headwater_state::{
    BuildError, BuildOptions, ChunkCache, LoadOptions, Loader, StateError, View, build_snapshot,
};
use headwater_store::{Entropy, PutError, ReadError, Store};

use crate::report::Report;

/// Bytes of the tail read at once while its chain is followed.
const TAIL_READ_BYTES: usize = 8 << 20;

/// What a check has to say about one snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Soundness {
    /// Every part was seen to be as it should be.
    Sound,
    /// Some part is missing or damaged.
    Damaged,
    /// Some part could not be read, or the check ended before.
    Unknown,
}

/// What a repair begins from: what a check has seen.
#[derive(Clone, Debug)]
pub(crate) struct Basis {
    pub(crate) head: Arc<Head>,
    pub(crate) archive: Arc<Archive>,
    pub(crate) snapshots: BTreeMap<StateVersion, Soundness>,
    pub(crate) sound_runs: BTreeSet<StateVersion>,
    pub(crate) newest_reached: Vec<ObjectKey>,
}

/// What a repair would do.
#[derive(Clone, Debug)]
pub struct Plan {
    basis: Basis,
    step: Step,
}

#[derive(Clone, Debug)]
enum Step {
    /// Builds the newest snapshot again from the one of this version.
    Rebuild { base: SnapshotRef, left_out: Vec<StateVersion> },
    /// Reads on from older snapshots.
    LeaveOut { archive: Archive, left_out: Vec<StateVersion> },
}

/// Why nothing can be repaired.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// No snapshot is damaged.
    #[error("no snapshot is damaged: there is nothing that a repair could do")]
    NoSnapshot,
    /// The head or the archive could not be read.
    #[error("the head or the archive is damaged: bring it back first")]
    NoBasis,
    /// A repair leaves archived snapshots out, and a fork may name parts of them.
    #[error(
        "it was forked into {}: a repair could let go of what {} still read{}; delete the fork, or \
         let it compact until it needs its source no more, and check again; or bring the object \
         back from a copy",
        children.join(", "),
        if children.len() == 1 { "it" } else { "they" },
        if children.len() == 1 { "s" } else { "" }
    )]
    Forked {
        /// Names of the histories that still need it.
        children: Vec<String>,
    },
    /// There is nothing to build from.
    #[error(
        "no sound snapshot before version {version} with all the changes since is kept: bring the \
         object back from a copy"
    )]
    NothingOlder {
        /// The damaged snapshot's.
        version: StateVersion,
    },
    /// It was not looked at.
    #[error(
        "the snapshot of version {version} was not checked to its end: check it without limits"
    )]
    NotChecked {
        /// Its version.
        version: StateVersion,
    },
}

/// Why a repair was not carried out. The head is as it was, except after
/// [`RepairError::InDoubt`].
#[derive(Debug, thiserror::Error)]
pub enum RepairError {
    /// Somebody else changed the snapshot or the archive. Check again.
    #[error("the head has another snapshot or archive by now: check again")]
    Moved,
    /// What was built is not what the head leads on from.
    #[error("what can be built does not lead to the head; nothing was published: {0}")]
    Chain(#[from] FollowError),
    /// The head, or what it is built from, cannot be read.
    #[error("cannot read what is needed")]
    State(#[from] StateError),
    /// The store cannot be read.
    #[error("cannot read the head")]
    Store(#[from] ReadError),
    /// It could not be written.
    #[error("cannot write the snapshot")]
    Build(#[from] BuildError),
    /// The archive could not be written.
    #[error("cannot write the archive")]
    Put(#[from] PutError),
    /// The store never said whether the head was replaced. Check again.
    #[error("the store did not answer whether the head was replaced: check again")]
    InDoubt,
}

/// What a repair did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Repaired {
    /// Revision of the head that it published.
    pub revision: Revision,
    /// The snapshot that was built, where one was.
    pub snapshot: Option<SnapshotRef>,
    /// Older snapshots that are left out from here on.
    pub left_out: Vec<StateVersion>,
    /// Bytes uploaded for the snapshot.
    pub bytes_written: u64,
}

impl Plan {
    /// What can be done about what a check has found.
    ///
    /// # Errors
    ///
    /// [`PlanError`] says why nothing can.
    pub fn of(report: &Report) -> Result<Self, PlanError> {
        let basis = report.basis.clone().ok_or(PlanError::NoBasis)?;
        if basis.head.archive.is_some() && basis.archive.is_empty() {
            return Err(PlanError::NoBasis);
        }
        let newest = basis.head.snapshot.version;
        let children = basis.head.pins.iter().filter_map(|it| it.child.as_ref());
        let children: Vec<String> = children.map(|it| it.history.to_string()).collect();
        if !children.is_empty() && basis.has_damage() {
            return Err(PlanError::Forked { children });
        }
        let step = if basis.soundness(newest) == Soundness::Damaged {
            basis.plan_rebuild(newest)?
        } else {
            basis.plan_leave_out()?
        };
        Ok(Self { basis, step })
    }

    /// What it does, for people.
    pub fn describe(&self) -> String {
        let listed = |it: &[StateVersion]| {
            let versions: Vec<String> = it.iter().map(ToString::to_string).collect();
            versions.join(", ")
        };
        match &self.step {
            Step::Rebuild { base, left_out } => {
                let (newest, base) = (self.basis.head.snapshot.version, base.version);
                let rest = if left_out.is_empty() {
                    String::new()
                } else {
                    format!("; damaged older snapshots are left out: {}", listed(left_out))
                };
                format!(
                    "build the snapshot of version {newest} again from the one of version {base} \
                     and the changes since, and publish it{rest}"
                )
            }
            Step::LeaveOut { left_out, .. } => format!(
                "leave out the damaged snapshots of versions {}: their versions are read from the \
                 snapshots before them and the changes since",
                listed(left_out)
            ),
        }
    }
}

impl Basis {
    fn soundness(&self, version: StateVersion) -> Soundness {
        self.snapshots.get(&version).copied().unwrap_or(Soundness::Unknown)
    }

    fn has_damage(&self) -> bool {
        self.snapshots.values().any(|it| *it == Soundness::Damaged)
    }

    fn plan_rebuild(&self, newest: StateVersion) -> Result<Step, PlanError> {
        let mut left_out = Vec::new();
        for it in self.archive.snapshots.iter().rev().map(|it| &it.snapshot) {
            match self.soundness(it.version) {
                Soundness::Damaged => left_out.insert(0, it.version),
                Soundness::Unknown => return Err(PlanError::NotChecked { version: it.version }),
                Soundness::Sound => {
                    let runs = self.archive.runs_after(it.version, &self.head);
                    let is_sound = runs
                        .is_some_and(|it| it.iter().all(|it| self.sound_runs.contains(&it.from)));
                    if is_sound {
                        return Ok(Step::Rebuild { base: it.clone(), left_out });
                    }
                    break;
                }
            }
        }
        Err(PlanError::NothingOlder { version: newest })
    }

    fn plan_leave_out(&self) -> Result<Step, PlanError> {
        let versions = self.archive.snapshots.iter().map(|it| it.snapshot.version);
        let damaged: Vec<_> =
            versions.filter(|it| self.soundness(*it) == Soundness::Damaged).collect();
        let Some(first) = damaged.first().copied() else { return Err(PlanError::NoSnapshot) };
        let mut left_out = BTreeSet::new();
        let mut archive = None;
        for version in damaged {
            let mut more = left_out.clone();
            more.insert(version);
            let Some(rest) = self.archive.without_snapshots(&more) else { continue };
            let is_sound = rest.way_to(version).is_some_and(|way| {
                self.soundness(way.snapshot.version) == Soundness::Sound
                    && way.runs.iter().all(|it| self.sound_runs.contains(&it.from))
            });
            if is_sound {
                (left_out, archive) = (more, Some(rest));
            }
        }
        let archive = archive.ok_or(PlanError::NothingOlder { version: first })?;
        Ok(Step::LeaveOut { archive, left_out: left_out.into_iter().collect() })
    }
}

/// Carries a plan out: builds, and publishes one head.
///
/// Not cancel safe: a dropped call may have published. What it uploaded and did
/// not publish is garbage that the sweep finds.
///
/// # Errors
///
/// [`RepairError`].
pub async fn repair(
    store: Arc<dyn Store>,
    plan: &Plan,
    entropy: &Entropy,
) -> Result<Repaired, RepairError> {
    let history = &plan.basis.head.history;
    let current = publish::current(&*store, history).await?;
    let head = current.head;
    let planned = &plan.basis.head;
    let is_same = head.history_id == planned.history_id
        && head.snapshot == planned.snapshot
        && head.archive == planned.archive;
    if !is_same {
        return Err(RepairError::Moved);
    }
    let loader = loader(&store, history);
    match &plan.step {
        Step::Rebuild { base, left_out } => {
            Box::pin(rebuild(&*store, &loader, &head, plan, base, left_out, entropy)).await
        }
        Step::LeaveOut { archive, left_out } => {
            let becomes = loader.write_archive(head.revision, archive).await?;
            let update = update(&head, becomes);
            let put = |it: &mut Successor<'_>| it.release(&update);
            let is_done = |it: &Head| it.archive == update.becomes;
            let revision = publish::publish(&*store, history, entropy, put, is_done).await?;
            let left_out = left_out.clone();
            Ok(Repaired { revision, snapshot: None, left_out, bytes_written: 0 })
        }
    }
}

async fn rebuild(
    store: &dyn Store,
    loader: &Loader,
    head: &Head,
    plan: &Plan,
    base: &SnapshotRef,
    left_out: &[StateVersion],
    entropy: &Entropy,
) -> Result<Repaired, RepairError> {
    let newest = head.snapshot.version;
    let mut readable = (*plan.basis.archive).clone();
    readable.snapshots.retain(|it| it.snapshot.version <= base.version);
    let view = loader.open_archived(head, &readable, newest).await?;
    let Some(view) = view.filter(|it| it.snapshot() == base) else {
        return Err(RepairError::Moved);
    };
    leads_to_head(loader, head, &view).await?;
    let built = build_snapshot(loader, &view, head.revision, BuildOptions::default()).await?;
    let lost = Lost {
        snapshot: head.snapshot.clone(),
        reached: plan.basis.newest_reached.clone(),
        replaced: built.replaced,
    };
    let rest = plan.basis.archive.rebuilt_from(base.version, head, lost);
    let becomes = loader.write_archive(head.revision, &rest.ok_or(RepairError::Moved)?).await?;
    let rebuilt = Rebuilt {
        snapshot: built.snapshot,
        damaged: head.snapshot.clone(),
        archive: update(head, becomes),
    };
    let put = |it: &mut Successor<'_>| it.replace_snapshot(&rebuilt);
    let is_done = |it: &Head| it.snapshot == rebuilt.snapshot;
    let revision = publish::publish(store, &head.history, entropy, put, is_done).await?;
    Ok(Repaired {
        revision,
        snapshot: Some(rebuilt.snapshot.clone()),
        left_out: left_out.to_vec(),
        bytes_written: built.bytes_written,
    })
}

/// The proof that a state is the one that the head means: its chain goes on to
/// the head's, through the tail as it is stored. A snapshot that cannot be read
/// says nothing about itself any more.
async fn leads_to_head(loader: &Loader, head: &Head, view: &View) -> Result<(), RepairError> {
    let mut chain = Chain::at(view.version(), view.chain_hash());
    while chain.version() < head.state_version {
        let next = chain.version().next();
        let changes = loader.read_changes(head, next, TAIL_READ_BYTES).await?;
        if changes.is_empty() {
            break;
        }
        for change in changes {
            chain.extend(change.hash);
        }
    }
    Ok(chain.finish(head)?)
}

/// The archive changes, and what it keeps does not.
fn update(head: &Head, becomes: Option<ObjectRef>) -> ArchiveUpdate {
    let retained_from = head.retained_from();
    let pins = head.pins.iter().map(|it| it.version);
    ArchiveUpdate {
        based_on: head.archive.clone(),
        becomes: becomes.map(|object| ArchiveRef { retained_from, object }),
        named: Vec::new(),
        accounted: Vec::new(),
        pinned: pins.filter(|it| *it < retained_from).collect(),
        // A history with forks is not repaired: the plan refuses it, and a head
        // that was forked since does not take this.
        forks: BTreeSet::new(),
        expired: Vec::new(),
        needs_base: head.base.is_some(),
    }
}

fn loader(store: &Arc<dyn Store>, history: &HistoryName) -> Loader {
    // A build reads each part once.
    let cache = ChunkCache::new(32 << 20);
    Loader::new(Arc::clone(store), history.clone(), cache, LoadOptions { fetches_max: 4 })
}
