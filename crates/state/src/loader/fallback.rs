//! A head whose snapshot cannot be read, opened from an older one and changes.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use headwater_core::head::{Head, SnapshotRef};
use tokio::time::Instant;

use super::Loader;
use crate::error::{Defect, StateError};
use crate::view::View;

/// A snapshot that was lost is not asked for again so soon: a repair puts another
/// object in its place, and only damage on the way passes by itself.
const LOST_FOR: Duration = Duration::from_secs(60);

/// The snapshot that was found to be lost, and how often one was.
#[derive(Debug, Default)]
pub(super) struct Fallbacks {
    count: Arc<AtomicU64>,
    lost: Mutex<Option<(SnapshotRef, Instant)>>,
}

impl Fallbacks {
    pub(super) fn counted_in(count: Arc<AtomicU64>) -> Self {
        Self { count, lost: Mutex::default() }
    }

    pub(super) fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }

    fn note(&self, snapshot: &SnapshotRef) {
        self.count.fetch_add(1, Ordering::Relaxed);
        let lost = Some((snapshot.clone(), Instant::now()));
        *self.lost.lock().unwrap_or_else(PoisonError::into_inner) = lost;
    }

    /// Whether it was lost a moment ago.
    fn is_lost(&self, snapshot: &SnapshotRef) -> bool {
        let lost = self.lost.lock().unwrap_or_else(PoisonError::into_inner);
        lost.as_ref().is_some_and(|(it, at)| it == snapshot && at.elapsed() < LOST_FOR)
    }
}

impl Loader {
    /// The state at the snapshot of `head`: the snapshot, or what the archive
    /// keeps of the way to its version. The caller checks the chain, which tells
    /// the two from anything else.
    pub(super) async fn view_of_snapshot(&self, head: &Head) -> Result<View, StateError> {
        match self.fetch_base(head).await {
            Ok(base) => Ok(View::of_snapshot(Arc::new(base))),
            Err(lost) if is_lost(&lost) => match self.view_of_older(head).await {
                Some(view) => {
                    self.fallbacks.note(&head.snapshot);
                    let older = view.snapshot().version;
                    tracing::warn!(
                        history = %self.history(), error = %lost, %older,
                        "opened from an older snapshot; the head's has to be repaired"
                    );
                    Ok(view)
                }
                // Which object is lost matters, and not what else was tried.
                None => Err(lost),
            },
            Err(error) => Err(error),
        }
    }

    /// As [`Loader::rebase`]; where the head's snapshot is lost, the view over the
    /// snapshot that it has, which is as right. One that was lost is looked for
    /// once a minute, and not with each head.
    pub(super) async fn rebase_or_stay(
        &self,
        view: &View,
        head: &Head,
    ) -> Result<View, StateError> {
        if self.fallbacks.is_lost(&head.snapshot) {
            return Ok(view.clone());
        }
        match self.rebase(view, head).await {
            Err(lost) if is_lost(&lost) => {
                self.fallbacks.note(&head.snapshot);
                tracing::warn!(
                    history = %self.history(), error = %lost,
                    "the snapshot of the head is lost; the older one stays in use"
                );
                Ok(view.clone())
            }
            answer => answer,
        }
    }

    async fn view_of_older(&self, head: &Head) -> Option<View> {
        let archived = async {
            let archive = self.archive(head).await?;
            self.open_archived(head, &archive, head.snapshot.version).await
        };
        match archived.await {
            Ok(view) => view,
            Err(error) => {
                tracing::debug!(%error, "no older snapshot can be read either");
                None
            }
        }
    }
}

/// Whether the object itself is gone. One that is whole and contradicts the head
/// is not: then the head is wrong.
fn is_lost(error: &StateError) -> bool {
    match error {
        StateError::Missing { .. } => true,
        StateError::Bad { what, .. } => match what {
            Defect::Length { .. } | Defect::Hash | Defect::Malformed { .. } => true,
            Defect::Contradicts { .. } => false,
        },
        StateError::Store(_) | StateError::TooNew { .. } | StateError::Follow(_) => false,
    }
}
