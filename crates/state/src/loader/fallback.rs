//! A head whose snapshot cannot be read, opened from an older one and changes.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use headwater_core::head::Head;

use super::Loader;
use crate::error::{Defect, StateError};
use crate::view::View;

impl Loader {
    /// The state at the snapshot of `head`: the snapshot, or what the archive
    /// keeps of the way to its version. The caller checks the chain, which tells
    /// the two from anything else.
    pub(super) async fn view_of_snapshot(&self, head: &Head) -> Result<View, StateError> {
        match self.fetch_base(head).await {
            Ok(base) => Ok(View::of_snapshot(Arc::new(base))),
            Err(lost) if is_lost(&lost) => match self.view_of_older(head).await {
                Some(view) => {
                    self.fallbacks.fetch_add(1, Ordering::Relaxed);
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
    /// snapshot that it has, which is as right.
    pub(super) async fn rebase_or_stay(
        &self,
        view: &View,
        head: &Head,
    ) -> Result<View, StateError> {
        match self.rebase(view, head).await {
            Err(lost) if is_lost(&lost) => {
                self.fallbacks.fetch_add(1, Ordering::Relaxed);
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
