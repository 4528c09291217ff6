//! How the replica stands, for those who look: what followers have at hand, put
//! together without asking one.

use std::sync::Arc;

use headwater_daemon::overview::{
    CacheOverview, DiskOverview, HeadOverview, ReplicaHistory, ReplicaOverview, ReplicaSource,
    ReplicaTotals, Window,
};
use headwater_state::DiskReadings;

use super::Histories;
use crate::Replica;
use crate::figures::ms;
use crate::follower::{Shared, lock};

impl Histories {
    pub(crate) fn overview(&self, window: &Window) -> ReplicaOverview {
        // Taken under the lock, which every read passes through; looked at
        // after it.
        let (histories_open, meant) = {
            let by_name = lock(&self.by_name);
            let meant = window.of(&by_name).map(|(_, it)| Arc::clone(it.follower.shared()));
            (by_name.len() as u64, meant.collect::<Vec<_>>())
        };
        let config = &self.options.config;
        let totals = self.options.figures.totals();
        let cache = self.cache.readings();
        let disk_max = config.cache_disk_bytes;
        ReplicaOverview {
            histories_open,
            histories_max: config.histories_max as u64,
            histories: meant.iter().map(|it| it.overview()).collect(),
            reads: totals.reads,
            reads_failed: totals.reads_failed,
            watchers_open: self.watch_places.n_taken() as u64,
            watchers_max: config.watchers_max as u64,
            tails_bytes: self.overlay_bytes(),
            tails_bytes_max: config.overlay_bytes,
            chunk_cache: CacheOverview {
                size_bytes: cache.size_bytes,
                size_bytes_max: config.chunk_cache_bytes,
                hits: cache.hits,
                misses: cache.misses,
            },
            disk_cache: self.disk_readings().map(|it| disk(&it, disk_max)),
            writers: self.options.figures.links(),
        }
    }
}

impl Shared {
    fn overview(&self) -> ReplicaHistory {
        let state = self.state();
        let head = state.proved.as_ref().map(|it| {
            let local = &it.local;
            HeadOverview::of(&local.head, local.head_json.len())
        });
        let followed = head.as_ref().map_or(0, |it| it.revision);
        ReplicaHistory {
            name: self.history().to_string(),
            behind_revisions: self.told_revision().saturating_sub(followed),
            head,
            proof_age_ms: state.proved.map(|it| ms(it.began)),
            trouble: state.trouble.map(str::to_owned),
            watchers: self.feed().n_watchers() as u64,
            tail_memory_bytes: self.memory().size_bytes(),
        }
    }
}

impl Replica {
    /// How it stands, with those of its open histories that are meant.
    ///
    /// Returns at once: no driver and no store is asked.
    pub fn overview(&self, window: &Window) -> ReplicaOverview {
        self.histories().overview(window)
    }

    /// A way to look at it for as long as it runs, and after it.
    pub fn source(&self) -> Arc<dyn ReplicaSource> {
        Arc::new(Source(Arc::clone(self.histories())))
    }
}

#[derive(Debug)]
struct Source(Arc<Histories>);

impl ReplicaSource for Source {
    fn overview(&self, window: &Window) -> ReplicaOverview {
        self.0.overview(window)
    }

    fn totals(&self) -> ReplicaTotals {
        self.0.options.figures.totals()
    }
}

fn disk(readings: &DiskReadings, size_bytes_max: u64) -> DiskOverview {
    DiskOverview {
        objects: readings.objects,
        size_bytes: readings.size_bytes,
        size_bytes_max,
        hits: readings.hits,
        misses: readings.misses,
        evicted: readings.evicted,
        damaged: readings.damaged,
        failures: readings.read_failures.saturating_add(readings.write_failures),
        is_off: readings.is_off,
    }
}
