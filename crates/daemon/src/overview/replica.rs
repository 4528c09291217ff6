//! How a replica stands.

use std::fmt::Debug;

use serde::{Deserialize, Serialize};

use super::{CacheOverview, HeadOverview, Window};
use crate::tally::DurationCounts;

/// A replica that can be looked at.
pub trait ReplicaSource: Debug + Send + Sync {
    /// How it stands, with those of its open histories that are meant.
    ///
    /// Returns at once: no driver and no store is asked.
    fn overview(&self, window: &Window) -> ReplicaOverview;

    /// What it has counted. Cheap enough for once a second.
    fn totals(&self) -> ReplicaTotals;
}

/// What a replica has counted since it began.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReplicaTotals {
    /// Reads that got a view.
    pub reads: u64,
    /// Reads that got none.
    pub reads_failed: u64,
    /// From the notice of a head to the moment from which it is served.
    pub lags: DurationCounts,
}

/// A replica at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ReplicaOverview {
    /// Histories that are open or being opened.
    pub histories_open: u64,
    /// Histories that may be open.
    pub histories_max: u64,
    /// A page of them.
    pub histories: Vec<ReplicaHistory>,
    /// Reads that got a view.
    pub reads: u64,
    /// Reads that got none.
    pub reads_failed: u64,
    /// Watches that are open.
    pub watchers_open: u64,
    /// Watches that may be open.
    pub watchers_max: u64,
    /// What tails take in memory, in bytes.
    pub tails_bytes: u64,
    /// What they may take before histories that nobody uses are dropped.
    pub tails_bytes_max: u64,
    /// Chunks in memory.
    pub chunk_cache: CacheOverview,
    /// Objects on disk; null where there is no such cache.
    pub disk_cache: Option<DiskOverview>,
    /// Writers of other processes that are to tell of new heads.
    pub writers: Vec<WriterLink>,
}

/// A history that is open in a replica.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ReplicaHistory {
    /// Its name.
    pub name: String,
    /// The head that is followed; null until the history is open.
    pub head: Option<HeadOverview>,
    /// How long ago the last check began that proved it current, in
    /// milliseconds.
    pub proof_age_ms: Option<u64>,
    /// Revisions that a writer has told of and that are not followed yet.
    pub behind_revisions: u64,
    /// What stands in the way of checks at the moment.
    pub trouble: Option<String>,
    /// Watches of it.
    pub watchers: u64,
    /// What its tail takes in memory, in bytes.
    pub tail_memory_bytes: u64,
}

/// Objects in the cache on disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DiskOverview {
    /// How many.
    pub objects: u64,
    /// What they take, in bytes.
    pub size_bytes: u64,
    /// What they may take, in bytes.
    pub size_bytes_max: u64,
    /// Objects that were there when they were needed.
    pub hits: u64,
    /// Those that were not.
    pub misses: u64,
    /// Objects that were deleted to make room.
    pub evicted: u64,
    /// Files that were not what their names say.
    pub damaged: u64,
    /// Reads and writes that the disk refused.
    pub failures: u64,
    /// Whether the directory cannot be used at all.
    pub is_off: bool,
}

/// A writer that is to tell of new heads.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WriterLink {
    /// Its address, without credentials.
    pub address: String,
    /// Whether it is connected.
    pub is_listening: bool,
    /// Notices that it has sent.
    pub notices: u64,
    /// How long ago the last one came, in milliseconds.
    pub notice_age_ms: Option<u64>,
}
