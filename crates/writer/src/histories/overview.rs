//! How the writer stands, for those who look: what the drivers have left, put
//! together without asking one.

use headwater_core::id::HistoryName;
use headwater_daemon::overview::{
    CacheOverview, Window, WriterHistory, WriterOverview, WriterSource, WriterTotals,
};

use super::{Handle, Histories};
use crate::Writer;
use crate::figures::Shown;

impl Histories {
    pub(crate) fn overview(&self, window: &Window) -> WriterOverview {
        // Handles are cloned under the lock, which every question passes
        // through; heads are looked at after it.
        let (histories_open, handles) = {
            let open = self.lock();
            let Some(histories) = &open.histories else { return WriterOverview::default() };
            let meant = window.of(histories).map(|(name, it)| (name.clone(), it.clone()));
            (histories.len() as u64, meant.collect::<Vec<_>>())
        };
        let max = self.config.queue_operations_max;
        let histories = handles.iter().map(|(name, it)| it.overview(name, max)).collect();
        let counted = self.figures.counted();
        let (subscribers_open, subscribers) = self.subscribers.list();
        let cache = self.cache.readings();
        WriterOverview {
            publisher_id: self.publisher_id.clone(),
            histories_open,
            histories_max: self.config.histories_max as u64,
            histories,
            head_bytes_soft: self.config.head_soft_bytes as u64,
            head_bytes_hard: self.config.head_hard_bytes as u64,
            commits: counted.publications,
            operations_accepted: counted.accepted,
            operations_repeated: counted.repeated,
            operations_rejected: counted.rejected,
            operations_unknown: counted.unknown,
            operations_in_doubt: counted.in_doubt,
            operations_failed: counted.failed,
            conflicts: self.figures.conflicts(),
            doubts: self.figures.doubts(),
            subscribers,
            subscribers_open,
            chunk_cache: CacheOverview {
                size_bytes: cache.size_bytes,
                size_bytes_max: self.config.chunk_cache_bytes,
                hits: cache.hits,
                misses: cache.misses,
            },
        }
    }
}

impl Handle {
    fn overview(&self, name: &HistoryName, queue_operations_max: usize) -> WriterHistory {
        let shown = self.shown.borrow().clone();
        let free = self.operations.available_permits();
        WriterHistory {
            name: name.to_string(),
            head: shown.as_ref().map(Shown::overview),
            receipts: shown.map_or(0, |it| it.receipts as u64),
            queue_operations: queue_operations_max.saturating_sub(free) as u64,
            queue_operations_max: queue_operations_max as u64,
        }
    }
}

impl Writer {
    /// How it stands, with those of its open histories that are meant.
    ///
    /// Returns at once: no driver and no store is asked.
    pub fn overview(&self, window: &Window) -> WriterOverview {
        self.histories.overview(window)
    }
}

impl WriterSource for Writer {
    fn overview(&self, window: &Window) -> WriterOverview {
        self.histories.overview(window)
    }

    fn totals(&self) -> WriterTotals {
        self.histories.figures.totals()
    }
}
