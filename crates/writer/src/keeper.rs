//! When the histories that are open here are swept.
//!
//! One task for all of them. It notes which revision each history was at and
//! when, so that a sweep's boundary is one that has been replaced for longer
//! than uploads and compactions take. That only spares others a second upload:
//! what is safe to delete is decided in [`crate::sweep`], without a clock.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Weak};
use std::time::Duration;

use headwater_core::id::HistoryName;
use headwater_core::version::Revision;
use tokio::time::{Instant, sleep};

use crate::histories::Histories;
use crate::sweep::SweepOptions;

/// Notes kept of one history: the grace time in this many parts, twice.
const NOTES_MAX: usize = 32;
/// Shortest pause between two looks.
const LOOK_MIN: Duration = Duration::from_secs(1);
/// A sweep replaces the head twice itself. A history of which nothing else is
/// new is left alone.
const REVISIONS_MIN: u64 = 8;

/// What is known of one history.
#[derive(Debug)]
struct Notes {
    /// The revision that it was at, and when that was seen first.
    revisions: VecDeque<(Instant, Revision)>,
    swept_at: Instant,
    swept: Revision,
}

impl Notes {
    fn new(now: Instant) -> Self {
        Self { revisions: VecDeque::new(), swept_at: now, swept: Revision::new(0) }
    }

    fn note(&mut self, now: Instant, revision: Revision) {
        if self.revisions.back().is_some_and(|(_, it)| *it == revision) {
            return;
        }
        if NOTES_MAX <= self.revisions.len() {
            self.revisions.pop_front();
        }
        self.revisions.push_back((now, revision));
    }

    /// The newest revision that was replaced longer than `grace` ago: the one
    /// after it was seen by then.
    fn boundary(&self, now: Instant, grace: Duration) -> Option<Revision> {
        let seen = self.revisions.iter().filter(|(at, _)| grace <= now - *at);
        seen.map(|(_, revision)| *revision).next_back()
    }
}

/// Sweeps what is due, until the process stops.
pub(crate) async fn keep(histories: Weak<Histories>) {
    let mut notes: BTreeMap<HistoryName, Notes> = BTreeMap::new();
    loop {
        let Some(this) = histories.upgrade() else { return };
        let config = &this.config;
        let (every, grace) = (
            Duration::from_millis(config.sweep_every_ms),
            Duration::from_millis(config.sweep_grace_ms),
        );
        let look = (every.min(grace) / 16).max(LOOK_MIN);
        let open = this.open_names();
        notes.retain(|name, _| open.contains(name));
        for name in open {
            let now = Instant::now();
            let notes = notes.entry(name.clone()).or_insert_with(|| Notes::new(now));
            let Some(position) = this.position(&name) else { continue };
            notes.note(now, position.revision);
            if now - notes.swept_at < every {
                continue;
            }
            let Some(below) = notes.boundary(now, grace) else { continue };
            if below.get() < notes.swept.get() + REVISIONS_MIN {
                continue;
            }
            sweep(&this, &name, below).await;
            notes.swept_at = Instant::now();
            notes.swept = this.position(&name).map_or(below, |it| it.revision);
        }
        drop(this);
        sleep(look).await;
    }
}

async fn sweep(histories: &Arc<Histories>, history: &HistoryName, below: Revision) {
    let options = SweepOptions {
        is_dry_run: false,
        is_full: false,
        deletes_max: histories.config.sweep_deletes_max,
        below: Some(below),
    };
    match histories.sweep(history, options, |_| ()).await {
        Ok(report) => tracing::info!(
            %history,
            below = report.below.get(),
            looked_at = report.looked_at,
            deleted = report.deleted,
            deleted_bytes = report.deleted_bytes,
            "swept"
        ),
        Err(error) => {
            tracing::warn!(%history, %error, "a sweep was not completed; the next one is");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_boundary_was_replaced_a_grace_time_ago() {
        let grace = Duration::from_secs(10);
        let mut notes = Notes::new(Instant::now());
        assert_eq!(notes.boundary(Instant::now(), grace), None);
        for revision in [3, 3, 7, 9] {
            notes.note(Instant::now(), Revision::new(revision));
            tokio::time::advance(Duration::from_secs(4)).await;
        }
        // Seen 16, 8 and 4 seconds ago.
        let now = Instant::now();
        assert_eq!(notes.boundary(now, grace), Some(Revision::new(3)));
        assert_eq!(notes.boundary(now, Duration::from_secs(4)), Some(Revision::new(9)));
        assert_eq!(notes.boundary(now, Duration::from_secs(17)), None);
    }
}
