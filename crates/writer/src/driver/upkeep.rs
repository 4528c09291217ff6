//! Maintenance beside the path of a commit: when a fold or a snapshot is
//! wanted, preparing it, and letting go of what it replaced.
//!
//! What is prepared is held back where
//! it would come too early, then handed to the publisher, which publishes it or
//! finds that it no longer fits.

use std::sync::Arc;
use std::time::Duration;

use headwater_core::head::{ChangeBody, Compaction, Fold, Head};
use headwater_core::publish::{Event, Maintenance};
use headwater_core::receipt::Receipt;
use headwater_core::version::StateVersion;
use headwater_state::{
    BuildError, BuildOptions, Loader, View, build_snapshot, write_receipt_pages, write_segment,
};
use tokio::time::Instant;

use super::{Done, Driver};

/// A segment ends before it would pass this size: a replica fetches it whole.
const SEGMENT_BYTES_MAX: u64 = 8 << 20;
/// Changes larger than this on average are not worth copying into a segment:
/// the snapshot that they bring about soon takes their place.
const FOLD_CHANGE_BYTES_MAX: u64 = 64 << 10;
/// What one reference takes of a head, in bytes, at most.
const REFERENCE_BYTES: usize = 256;
/// The last pages of receipts are written again together with what is new,
/// while they are smaller than this together: half of the size at which a page
/// ends. So there are at most about two pages for each 1 MiB of receipts,
/// however small the snapshots are that brought them about.
const PAGES_REWRITTEN_BYTES_MAX: u64 = 512 << 10;
/// How long a snapshot waits for newer versions before it is published anyway.
const HOLD_BACK: Duration = Duration::from_secs(60);
/// Pause after maintenance that failed or no longer fitted.
const PAUSE: Duration = Duration::from_secs(5);

/// What is prepared, or is being prepared: one fold and one snapshot at a time.
#[derive(Debug, Default)]
pub(super) struct Upkeep {
    fold: Slot,
    snapshot: Slot,
    /// The version of the snapshot that is on its way: no fold may run across
    /// it, for a segment is dropped whole.
    snapshot_at: Option<StateVersion>,
    is_rebasing: bool,
}

#[derive(Debug, Default)]
enum Slot {
    #[default]
    Idle,
    Preparing,
    /// It would come too early yet.
    Held {
        compaction: Box<Compaction>,
        until: Instant,
    },
    /// The publisher has it.
    Handed,
    Paused {
        until: Instant,
    },
}

/// What came of preparing.
pub(super) type Prepared = (Kind, Result<Maintenance, BuildError>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Fold,
    Snapshot,
}

impl Slot {
    fn wake_at(&self) -> Option<Instant> {
        match self {
            Self::Held { until, .. } | Self::Paused { until } => Some(*until),
            Self::Idle | Self::Preparing | Self::Handed => None,
        }
    }

    /// Whether something may be begun.
    fn is_free(&self) -> bool {
        match self {
            Self::Idle => true,
            Self::Paused { until } => *until <= Instant::now(),
            Self::Held { .. } | Self::Preparing | Self::Handed => false,
        }
    }
}

impl Upkeep {
    pub(super) fn wake_at(&self) -> Option<Instant> {
        self.fold.wake_at().into_iter().chain(self.snapshot.wake_at()).min()
    }

    fn slot(&mut self, kind: Kind) -> &mut Slot {
        match kind {
            Kind::Fold => &mut self.fold,
            Kind::Snapshot => &mut self.snapshot,
        }
    }
}

impl Driver {
    /// Looks whether there is something to do about the head as it is now.
    pub(super) fn begin_upkeep(&mut self) {
        // A pause that is over must not wake the task again and again.
        for kind in [Kind::Fold, Kind::Snapshot] {
            let slot = self.upkeep.slot(kind);
            if slot.is_free() {
                *slot = Slot::Idle;
            }
        }
        let Some(observed) = self.publisher.observed() else { return };
        let head = Arc::clone(&observed.head);
        if let Slot::Held { compaction, until } = &self.upkeep.snapshot {
            let behind = head.state_version.since(compaction.snapshot.version);
            let is_due = *until <= Instant::now()
                || self.parts.config.compact_keep_versions <= behind
                || self.parts.config.head_soft_bytes < self.publisher.head_bytes();
            if is_due {
                let compaction = Compaction::clone(compaction);
                self.hand_over(Kind::Snapshot, Maintenance::Compact(compaction));
            }
        }
        if self.upkeep.snapshot.is_free() && self.wants_snapshot(&head) {
            self.begin_snapshot(&head);
        }
        if self.upkeep.fold.is_free() && self.wants_fold(&head) {
            self.begin_fold(&head);
        }
    }

    fn wants_snapshot(&self, head: &Head) -> bool {
        let config = &self.parts.config;
        let versions = head.state_version.since(head.snapshot.version);
        let segments = head.segments.iter().map(|it| it.object.size_bytes);
        let tail_bytes = segments.sum::<u64>() + change_bytes(head);
        // Segments take room in the head that folding cannot give back.
        let is_crowded = config.head_soft_bytes / 4 < head.segments.len() * REFERENCE_BYTES;
        config.compact_tail_bytes < tail_bytes
            || config.compact_tail_versions < versions
            || is_crowded
    }

    fn wants_fold(&self, head: &Head) -> bool {
        let config = &self.parts.config;
        let count = head.changes.len();
        let is_small = change_bytes(head) <= FOLD_CHANGE_BYTES_MAX * count as u64;
        let is_large_head = config.head_soft_bytes / 2 < self.publisher.head_bytes();
        2 <= count && ((config.fold_changes <= count && is_small) || is_large_head)
    }

    fn begin_fold(&mut self, head: &Arc<Head>) {
        let Some(from) = head.changes.first().map(|it| it.version) else { return };
        let at = self.upkeep.snapshot_at.filter(|at| from <= *at);
        let mut size_bytes = 0;
        let run = head.changes.iter().take_while(|it| {
            let next_bytes = size_bytes + body_bytes(&it.body);
            let is_across = at.is_some_and(|at| at < it.version);
            let is_in = it.version == from || (!is_across && next_bytes <= SEGMENT_BYTES_MAX);
            if is_in {
                size_bytes = next_bytes;
            }
            is_in
        });
        let Some(last) = run.last() else { return };
        let (to, last_change) = (last.version, last.hash);
        let run_bytes = usize::try_from(size_bytes).unwrap_or(usize::MAX);
        let (loader, head) = (self.parts.loader.clone(), Arc::clone(head));
        self.upkeep.fold = Slot::Preparing;
        self.begin(async move {
            let prepared = async {
                // Inline entries are at hand; the others are fetched once more,
                // and no more of the tail than that is in memory.
                let mut changes = loader.read_changes(&head, from, run_bytes).await?;
                changes.retain(|it| it.version <= to);
                let segment = write_segment(&loader, head.revision, &changes).await?;
                Ok(Maintenance::Fold(Fold { segment, last_change }))
            };
            Done::Prepared((Kind::Fold, prepared.await))
        });
    }

    fn begin_snapshot(&mut self, head: &Arc<Head>) {
        let Some(confirmed) = &self.confirmed else { return };
        let (view, version) = (confirmed.view.clone(), head.state_version);
        // The snapshot below the view is what its chunks are reused from.
        if view.version() != version || *view.snapshot() != head.snapshot {
            return;
        }
        let pages_from = first_rewritten(head);
        let receipts: Vec<Receipt> =
            self.publisher.evidence().between(pages_from, version).cloned().collect();
        let (loader, head) = (self.parts.loader.clone(), Arc::clone(head));
        self.upkeep.snapshot = Slot::Preparing;
        self.upkeep.snapshot_at = Some(version);
        // A task of its own: compressing takes the time of many commits. Its
        // handle is awaited here, and ends it when the driver ends.
        let task = tokio::spawn(async move { snapshot(&loader, &view, &head, &receipts).await });
        let task = AbortOnDrop(task);
        self.begin(async move {
            let prepared = task.join().await.unwrap_or_else(|it| std::panic::resume_unwind(it));
            Done::Prepared((Kind::Snapshot, prepared))
        });
    }

    pub(super) fn on_prepared(&mut self, (kind, prepared): Prepared) {
        match prepared {
            Ok(maintenance @ Maintenance::Fold(_)) => self.hand_over(kind, maintenance),
            Ok(Maintenance::Compact(compaction)) => {
                let until = Instant::now() + HOLD_BACK;
                self.upkeep.snapshot = Slot::Held { compaction: Box::new(compaction), until };
                self.begin_upkeep();
            }
            Err(error) => {
                tracing::warn!(%error, ?kind, "maintenance failed; it is tried again");
                self.end_upkeep(kind, Slot::Paused { until: Instant::now() + PAUSE });
            }
        }
    }

    fn hand_over(&mut self, kind: Kind, maintenance: Maintenance) {
        *self.upkeep.slot(kind) = Slot::Handed;
        let effects = self.publisher.on(Event::Prepared(maintenance));
        self.carry_out(effects);
    }

    pub(super) fn on_maintained(&mut self, maintenance: &Maintenance, is_applied: bool) {
        let kind = match maintenance {
            Maintenance::Fold(_) => Kind::Fold,
            Maintenance::Compact(_) => Kind::Snapshot,
        };
        tracing::debug!(?kind, is_applied, "maintenance ended");
        let paused = Slot::Paused { until: Instant::now() + PAUSE };
        self.end_upkeep(kind, if is_applied { Slot::Idle } else { paused });
    }

    fn end_upkeep(&mut self, kind: Kind, slot: Slot) {
        *self.upkeep.slot(kind) = slot;
        if kind == Kind::Snapshot {
            self.upkeep.snapshot_at = None;
        }
    }

    /// The publisher let go of its head, and of what was handed to it.
    pub(super) fn forget_upkeep(&mut self) {
        for kind in [Kind::Fold, Kind::Snapshot] {
            if matches!(self.upkeep.slot(kind), Slot::Handed | Slot::Held { .. }) {
                self.end_upkeep(kind, Slot::Idle);
            }
        }
    }

    /// Puts the head's snapshot below the state, once a compaction is
    /// published: the overlay shrinks to the tail.
    pub(super) fn begin_rebase(&mut self) {
        let Some(observed) = self.publisher.observed() else { return };
        let Some(confirmed) = &self.confirmed else { return };
        if self.upkeep.is_rebasing || *confirmed.view.snapshot() == observed.head.snapshot {
            return;
        }
        self.upkeep.is_rebasing = true;
        let (loader, view) = (self.parts.loader.clone(), confirmed.view.clone());
        let head = Arc::clone(&observed.head);
        self.begin(async move {
            Done::Rebased(match loader.rebase(&view, &head).await {
                Ok(view) => Some(Box::new(view)),
                Err(error) => {
                    tracing::warn!(%error, "the state stays on its old snapshot for now");
                    None
                }
            })
        });
    }

    /// States made meanwhile move too: they are the same changes on another
    /// base.
    pub(super) fn on_rebased(&mut self, rebased: Option<Box<View>>) {
        self.upkeep.is_rebasing = false;
        let Some(rebased) = rebased else { return };
        let confirmed = self.confirmed.iter_mut().map(|it| &mut it.view);
        for view in confirmed.chain(self.predicted.iter_mut().map(|(_, view)| view)) {
            if let Some(moved) = view.rebase_onto(&rebased) {
                *view = moved;
            }
        }
    }
}

async fn snapshot(
    loader: &Loader,
    view: &View,
    head: &Head,
    receipts: &[Receipt],
) -> Result<Maintenance, BuildError> {
    let built = build_snapshot(loader, view, head.revision, BuildOptions::default()).await?;
    let receipt_pages = write_receipt_pages(loader, head.revision, receipts).await?;
    tracing::info!(
        version = built.snapshot.version.get(),
        chunks_written = built.chunks_written,
        chunks_reused = built.chunks_reused,
        bytes_written = built.bytes_written,
        "a snapshot was built"
    );
    let (snapshot, based_on) = (built.snapshot, built.based_on);
    Ok(Maintenance::Compact(Compaction { snapshot, based_on, receipt_pages }))
}

/// The first version of which receipts are written: the first after the head's
/// snapshot, or where the last small pages begin.
fn first_rewritten(head: &Head) -> StateVersion {
    let mut size_bytes = 0;
    let small = head.receipt_pages.iter().rev().take_while(|it| {
        size_bytes += it.object.size_bytes;
        size_bytes <= PAGES_REWRITTEN_BYTES_MAX
    });
    small.last().map_or(head.tail_from(), |it| it.from)
}

fn change_bytes(head: &Head) -> u64 {
    head.changes.iter().map(|it| body_bytes(&it.body)).sum()
}

fn body_bytes(body: &ChangeBody) -> u64 {
    match body {
        ChangeBody::Inline(bytes) => bytes.len() as u64,
        ChangeBody::Staged(object) => object.size_bytes,
    }
}

/// A task that ends with whoever waits for it.
struct AbortOnDrop<T>(tokio::task::JoinHandle<T>);

impl<T> AbortOnDrop<T> {
    async fn join(mut self) -> Result<T, Box<dyn std::any::Any + Send>> {
        match (&mut self.0).await {
            Ok(value) => Ok(value),
            Err(error) => match error.try_into_panic() {
                Ok(panic) => Err(panic),
                Err(error) => Err(Box::new(error.to_string())),
            },
        }
    }
}

impl<T> Drop for AbortOnDrop<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}
