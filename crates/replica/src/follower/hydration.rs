//! Filling the disk with the snapshot of one history, while nothing waits for it.

use std::sync::Arc;

use futures::future::{BoxFuture, FutureExt as _};
use headwater_core::head::SnapshotRef;
use headwater_state::{HydrationRate, Loader, View};

use crate::metrics::ReplicaMetrics;

/// At most one pass at a time, polled by the follower's task: it ends with it.
pub(super) struct Hydration {
    rate: Option<HydrationRate>,
    /// The snapshot of the last pass that began.
    snapshot: Option<SnapshotRef>,
    pass: Option<BoxFuture<'static, ()>>,
    metrics: Arc<ReplicaMetrics>,
}

impl Hydration {
    pub(super) fn new(rate: Option<HydrationRate>, metrics: Arc<ReplicaMetrics>) -> Self {
        Self { rate, snapshot: None, pass: None, metrics }
    }

    /// Begins a pass over the snapshot below `view`, unless it is the one of the
    /// last pass. A pass over an older one is given up: what they share is on the
    /// disk.
    pub(super) fn follow(&mut self, loader: &Loader, view: &View) {
        let Some(rate) = &self.rate else { return };
        if self.snapshot.as_ref() == Some(view.snapshot()) {
            return;
        }
        self.snapshot = Some(view.snapshot().clone());
        let (loader, view, rate) = (loader.clone(), view.clone(), rate.clone());
        let metrics = Arc::clone(&self.metrics);
        self.pass = Some(async move { pass(&loader, &view, &rate, &metrics).await }.boxed());
    }

    /// Goes on with the pass. Never ends while there is none. Cancel safe.
    pub(super) async fn go_on(&mut self) {
        match &mut self.pass {
            Some(pass) => pass.await,
            None => std::future::pending().await,
        }
        self.pass = None;
    }
}

async fn pass(loader: &Loader, view: &View, rate: &HydrationRate, metrics: &ReplicaMetrics) {
    let history = loader.history();
    match loader.hydrate(view, rate).await {
        Ok(done) => {
            metrics.hydrated(&done);
            tracing::debug!(
                %history,
                objects = done.objects,
                size_bytes = done.size_bytes,
                is_whole = done.is_whole,
                "the disk has been filled"
            );
        }
        // Who reads the object gets the error, and it is told there.
        Err(error) => tracing::debug!(%history, %error, "the disk is not filled any further"),
    }
}
