//! Maintenance beside the path of a commit: when a fold or a snapshot is
//! wanted, preparing it, and letting go of what it replaced.
//!
//! What is prepared is held back where
//! it would come too early, then handed to the publisher, which publishes it or
//! finds that it no longer fits.

use std::sync::Arc;
use std::time::Duration;

use headwater_core::archive::Keep;
use headwater_core::head::{ChangeBody, Compaction, Fold, Head, REFERENCE_BYTES_MAX, RunRef};
use headwater_core::publish::{Event, Maintenance};
use headwater_core::receipt::Receipt;
use headwater_core::version::StateVersion;
use headwater_state::{
    BuildError, BuildOptions, BuiltSnapshot, Loader, View, build_snapshot, write_receipt_pages,
    write_segment,
};
use tokio::sync::{OwnedSemaphorePermit, oneshot};
use tokio::time::Instant;

use super::{Done, Driver};

/// A segment ends before it would pass this size: a replica fetches it whole.
const SEGMENT_BYTES_MAX: u64 = 8 << 20;
/// Changes larger than this on average are not worth copying into a segment:
/// the snapshot that they bring about soon takes their place.
const FOLD_CHANGE_BYTES_MAX: u64 = 64 << 10;
/// The last pages of receipts are written again together with what is new,
/// while they are smaller than this together: half of the size at which a page
/// ends. So there are at most about two pages for each 1 MiB of receipts,
/// however small the snapshots are that brought them about.
const PAGES_REWRITTEN_BYTES_MAX: u64 = 512 << 10;
/// How long a snapshot waits for newer versions before it is published anyway.
const HOLD_BACK: Duration = Duration::from_secs(60);
/// Pause after maintenance that failed or no longer fitted.
const PAUSE: Duration = Duration::from_secs(5);

/// How often it is looked whether retention lets go of something.
const RELEASE_EVERY: Duration = Duration::from_secs(60);
/// How far the clocks of two processes may be apart: each an hour off. What
/// goes by age goes that much later.
const CLOCK_ERROR_MS: u64 = 2 * 60 * 60 * 1_000;

/// What is prepared, or is being prepared: one fold, one snapshot and one
/// archive at a time.
#[derive(Debug, Default)]
pub(super) struct Upkeep {
    fold: Slot,
    snapshot: Slot,
    release: Slot,
    /// The snapshot that is built, until it is published or given up.
    built: Option<Arc<Built>>,
    /// Whoever wants a snapshot of the present version, to be told whether
    /// there is one.
    wanted: Vec<Wanted>,
    /// The version of the snapshot that is on its way: no fold may run across
    /// it, for a segment is dropped whole.
    snapshot_at: Option<StateVersion>,
    is_rebasing: bool,
}

/// Whoever waits for a snapshot, and its place among those who wait.
pub(super) type Wanted = (oneshot::Sender<bool>, OwnedSemaphorePermit);

#[derive(Debug, Default)]
enum Slot {
    #[default]
    Idle,
    Preparing,
    /// It would come too early yet.
    Held {
        until: Instant,
    },
    /// The publisher has it.
    Handed,
    Paused {
        until: Instant,
    },
}

/// A snapshot with its receipts, durable. What becomes of the head's tail is
/// decided once it is time to publish it.
#[derive(Debug)]
pub(super) struct Built {
    built: BuiltSnapshot,
    receipt_pages: Vec<RunRef>,
}

/// What came of preparing.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "one at a time, moved once")]
pub(super) enum Prepared {
    /// A snapshot is built.
    Built(Result<Built, BuildError>),
    /// Something can be published; or there was nothing to do.
    Ready(Kind, Result<Option<Maintenance>, BuildError>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Fold,
    Snapshot,
    Release,
}

impl Kind {
    const ALL: [Self; 3] = [Self::Fold, Self::Snapshot, Self::Release];
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
        let slots = [&self.fold, &self.snapshot, &self.release];
        // A snapshot that is due waits for a fold on its way. The end of that
        // wakes the task; the time, which has passed, would not let it rest.
        let is_folding = matches!(self.fold, Slot::Preparing);
        let is_blocked = |it: &&Slot| matches!(it, Slot::Held { .. }) && is_folding;
        slots.into_iter().filter(|it| !is_blocked(it)).filter_map(Slot::wake_at).min()
    }

    /// Whether what is being prepared leaves the head with less in it: a fold, or
    /// the archive of a snapshot, which takes the place of the tail.
    pub(super) fn is_making_room(&self) -> bool {
        let is_archiving = self.built.is_some() && matches!(self.snapshot, Slot::Preparing);
        is_archiving || matches!(self.fold, Slot::Preparing)
    }

    fn slot(&mut self, kind: Kind) -> &mut Slot {
        match kind {
            Kind::Fold => &mut self.fold,
            Kind::Snapshot => &mut self.snapshot,
            Kind::Release => &mut self.release,
        }
    }

    fn tell_wanted(&mut self, is_there: bool) {
        for (reply, _permit) in self.wanted.drain(..) {
            let _nobody = reply.send(is_there);
        }
    }
}

impl Driver {
    /// Looks whether there is something to do about the head as it is now.
    pub(super) fn begin_upkeep(&mut self) {
        // A pause that is over must not wake the task again and again.
        for kind in Kind::ALL {
            let slot = self.upkeep.slot(kind);
            if slot.is_free() {
                *slot = Slot::Idle;
            }
        }
        let Some(observed) = self.publisher.observed() else { return };
        let head = Arc::clone(&observed.head);
        if head.snapshot.version == head.state_version {
            self.upkeep.tell_wanted(true);
        }
        if let (Slot::Held { until }, Some(built)) = (&self.upkeep.snapshot, &self.upkeep.built) {
            let behind = head.state_version.since(built.built.snapshot.version);
            let is_due = *until <= Instant::now()
                || !self.upkeep.wanted.is_empty()
                || self.parts.config.compact_keep_versions <= behind
                || self.parts.config.head_soft_bytes < self.publisher.settled_bytes();
            // A fold that is published meanwhile would change the tail that is
            // accounted for.
            let is_folding = matches!(self.upkeep.fold, Slot::Preparing);
            if is_due && !is_folding {
                self.begin_archiving(&head, Arc::clone(built));
            }
        }
        if self.upkeep.snapshot.is_free() && self.wants_snapshot(&head) {
            self.begin_snapshot(&head);
        }
        let is_archiving =
            self.upkeep.built.is_some() && !matches!(self.upkeep.snapshot, Slot::Held { .. });
        if self.upkeep.fold.is_free() && !is_archiving && self.wants_fold(&head) {
            self.begin_fold(&head);
        }
        let may_release = head.archive.is_some() || head.base.is_some() || !head.pins.is_empty();
        if self.upkeep.release.is_free() && may_release && !is_archiving {
            self.begin_release(&head);
        }
    }

    /// Wants a snapshot of the present version, whatever the tail is like.
    pub(super) fn want_snapshot(&mut self, wanted: Wanted) {
        self.upkeep.wanted.push(wanted);
        self.begin_upkeep();
    }

    fn wants_snapshot(&self, head: &Head) -> bool {
        let config = &self.parts.config;
        let versions = head.state_version.since(head.snapshot.version);
        let segments = head.segments.iter().map(|it| it.object.size_bytes);
        let tail_bytes = segments.sum::<u64>() + change_bytes(head);
        // Segments take room in the head that folding cannot give back.
        let is_crowded = config.head_soft_bytes / 4 < head.segments.len() * REFERENCE_BYTES_MAX;
        !self.upkeep.wanted.is_empty() && 0 < versions
            || config.compact_tail_bytes < tail_bytes
            || config.compact_tail_versions < versions
            || is_crowded
    }

    fn wants_fold(&self, head: &Head) -> bool {
        let config = &self.parts.config;
        let count = head.changes.len();
        let is_small = change_bytes(head) <= FOLD_CHANGE_BYTES_MAX * count as u64;
        let is_large_head = config.head_soft_bytes / 2 < self.publisher.settled_bytes();
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
        self.begin_aside(async move {
            let prepared = async {
                // Inline entries are at hand; the others are fetched once more,
                // and no more of the tail than that is in memory.
                let mut changes = loader.read_changes(&head, from, run_bytes).await?;
                changes.retain(|it| it.version <= to);
                let segment = write_segment(&loader, head.revision, &changes).await?;
                Ok(Some(Maintenance::Fold(Fold { segment, last_change })))
            };
            Done::Prepared(Prepared::Ready(Kind::Fold, prepared.await))
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
        self.begin_aside(async move {
            let built = snapshot(&loader, &view, &head, &receipts).await;
            Done::Prepared(Prepared::Built(built))
        });
    }

    /// Begins work in a task of its own: hashing, copying and compressing a tail
    /// take the time of many commits. Its handle is awaited here, and ends it
    /// when the driver ends.
    fn begin_aside(&self, work: impl Future<Output = Done> + Send + 'static) {
        let task = AbortOnDrop(tokio::spawn(work));
        self.begin(
            async move { task.join().await.unwrap_or_else(|it| std::panic::resume_unwind(it)) },
        );
    }

    /// Decides what becomes of the tail that a built snapshot takes the place
    /// of: kept in the archive, or let go.
    fn begin_archiving(&mut self, head: &Arc<Head>, built: Arc<Built>) {
        if head.snapshot != built.built.based_on
            || head.state_version < built.built.snapshot.version
        {
            return self.end_upkeep(Kind::Snapshot, Slot::Idle);
        }
        let (loader, head) = (self.parts.loader.clone(), Arc::clone(head));
        let keep = self.keep();
        self.upkeep.snapshot = Slot::Preparing;
        self.begin_aside(async move {
            let archive = loader.archive_tail(&head, &built.built, &keep).await;
            let prepared = archive.map(|archive| {
                Some(Maintenance::Compact(Compaction {
                    snapshot: built.built.snapshot.clone(),
                    based_on: built.built.based_on.clone(),
                    receipt_pages: built.receipt_pages.clone(),
                    archive,
                }))
            });
            Done::Prepared(Prepared::Ready(Kind::Snapshot, prepared))
        });
    }

    /// Looks whether there is something that retention no longer keeps.
    fn begin_release(&mut self, head: &Arc<Head>) {
        let (loader, head) = (self.parts.loader.clone(), Arc::clone(head));
        let keep = self.keep();
        self.upkeep.release = Slot::Preparing;
        self.begin(async move {
            let prepared = async {
                let before = loader.archive(&head).await?;
                let kept = before.keep(&head, None, &keep);
                if !kept.is_news(&head, &before) {
                    return Ok(None);
                }
                let object = loader.write_archive(head.revision, &kept.archive).await?;
                let update = kept.into_update(&head, &before, None, object);
                Ok(Some(Maintenance::Release(update)))
            };
            Done::Prepared(Prepared::Ready(Kind::Release, prepared.await))
        });
    }

    fn keep(&self) -> Keep {
        Keep { now_ms: self.parts.clock.now_ms(), clock_error_ms: CLOCK_ERROR_MS }
    }

    pub(super) fn on_prepared(&mut self, prepared: Prepared) {
        match prepared {
            Prepared::Built(Ok(built)) => {
                self.upkeep.built = Some(Arc::new(built));
                self.upkeep.snapshot = Slot::Held { until: Instant::now() + HOLD_BACK };
                self.begin_upkeep();
            }
            Prepared::Ready(kind, Ok(Some(maintenance))) => {
                self.hand_over(kind, maintenance);
                self.begin_upkeep();
            }
            Prepared::Ready(kind, Ok(None)) => {
                self.end_upkeep(kind, Slot::Paused { until: Instant::now() + RELEASE_EVERY });
            }
            Prepared::Built(Err(error)) => self.on_failed(Kind::Snapshot, &error),
            Prepared::Ready(kind, Err(error)) => self.on_failed(kind, &error),
        }
    }

    fn on_failed(&mut self, kind: Kind, error: &BuildError) {
        tracing::warn!(%error, ?kind, "maintenance failed; it is tried again");
        self.end_upkeep(kind, Slot::Paused { until: Instant::now() + PAUSE });
        self.end_wait_for_room();
    }

    fn hand_over(&mut self, kind: Kind, maintenance: Maintenance) {
        *self.upkeep.slot(kind) = Slot::Handed;
        let effects = self.publisher.on(Event::Prepared(maintenance));
        self.carry_out(effects);
        if !self.upkeep.is_making_room() {
            self.end_wait_for_room();
        }
    }

    pub(super) fn on_maintained(&mut self, maintenance: &Maintenance, is_applied: bool) {
        let kind = match maintenance {
            Maintenance::Fold(_) => Kind::Fold,
            Maintenance::Compact(_) => Kind::Snapshot,
            Maintenance::Release(_) => Kind::Release,
            // Whoever sweeps waits for these.
            Maintenance::RaiseSweep { .. } | Maintenance::Swept { .. } => return,
        };
        tracing::debug!(?kind, is_applied, "maintenance ended");
        let again = Instant::now() + PAUSE;
        let slot = match kind {
            // The archive or the tail changed under it. The snapshot is as good
            // as it was, where the head still has the one before.
            Kind::Snapshot if !is_applied && self.still_fits() => {
                self.upkeep.snapshot = Slot::Held { until: again };
                return;
            }
            Kind::Release if is_applied => Slot::Paused { until: again + RELEASE_EVERY },
            Kind::Fold | Kind::Snapshot if is_applied => Slot::Idle,
            Kind::Fold | Kind::Snapshot | Kind::Release => Slot::Paused { until: again },
        };
        self.end_upkeep(kind, slot);
    }

    /// Whether another archive is all that the built snapshot lacks. A segment
    /// of another writer that runs across its version stays in every head until
    /// there is a newer snapshot, and what was staged below the sweep boundary
    /// is never named again: kept, such a snapshot would be in the way of the
    /// one that does fit, and a head at its limit would stay there.
    fn still_fits(&self) -> bool {
        let (Some(observed), Some(it)) = (self.publisher.observed(), &self.upkeep.built) else {
            return false;
        };
        let (head, snapshot) = (&observed.head, &it.built.snapshot);
        let is_across = |run: &RunRef| run.from <= snapshot.version && snapshot.version < run.to;
        it.built.based_on == head.snapshot
            && head.sweep_from <= snapshot.object.key.staged()
            && !head.segments.iter().any(is_across)
    }

    fn end_upkeep(&mut self, kind: Kind, slot: Slot) {
        *self.upkeep.slot(kind) = slot;
        if kind == Kind::Snapshot {
            self.upkeep.snapshot_at = None;
            self.upkeep.built = None;
        }
    }

    /// The publisher let go of its head, and of what was handed to it.
    pub(super) fn forget_upkeep(&mut self) {
        self.upkeep.tell_wanted(false);
        for kind in Kind::ALL {
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
        for view in confirmed.chain(self.predicted.iter_mut().map(|it| &mut it.view)) {
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
) -> Result<Built, BuildError> {
    let built = build_snapshot(loader, view, head.revision, BuildOptions::default()).await?;
    let receipt_pages = write_receipt_pages(loader, head.revision, receipts).await?;
    tracing::info!(
        version = built.snapshot.version.get(),
        chunks_written = built.chunks_written,
        chunks_reused = built.chunks_reused,
        bytes_written = built.bytes_written,
        "a snapshot was built"
    );
    Ok(Built { built, receipt_pages })
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
