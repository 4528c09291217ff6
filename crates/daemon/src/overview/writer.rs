//! How a writer stands.

use std::fmt::Debug;

use serde::{Deserialize, Serialize};

use super::{CacheOverview, HeadOverview, Window};
use crate::tally::DurationCounts;

/// A writer that can be looked at.
pub trait WriterSource: Debug + Send + Sync {
    /// How it stands, with those of its open histories that are meant.
    ///
    /// Returns at once: no driver and no store is asked.
    fn overview(&self, window: &Window) -> WriterOverview;

    /// What it has counted. Cheap enough for once a second.
    fn totals(&self) -> WriterTotals;
}

/// What a writer has counted since it began.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WriterTotals {
    /// Heads that it published with operations in them.
    pub commits: u64,
    /// Operations that it got accepted.
    pub operations: u64,
    /// From the arrival of an operation to its acceptance.
    pub latencies: DurationCounts,
}

/// A writer at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WriterOverview {
    /// Names the process in heads.
    pub publisher_id: String,
    /// Histories that are open.
    pub histories_open: u64,
    /// Histories that may be open.
    pub histories_max: u64,
    /// A page of them.
    pub histories: Vec<WriterHistory>,
    /// Size of a head past which older changes move to segments, in bytes.
    pub head_bytes_soft: u64,
    /// Size of a head past which operations are refused, in bytes.
    pub head_bytes_hard: u64,
    /// Heads published with operations in them.
    pub commits: u64,
    /// Operations that were accepted.
    pub operations_accepted: u64,
    /// Operations that had been accepted before, and were told so.
    pub operations_repeated: u64,
    /// Operations in whose way something stood.
    pub operations_rejected: u64,
    /// Operations of which nobody can say any more what became of them.
    pub operations_unknown: u64,
    /// Operations that may have been applied.
    pub operations_in_doubt: u64,
    /// Operations without an outcome that were not applied.
    pub operations_failed: u64,
    /// The last operations in whose way something stood, the newest first.
    pub conflicts: Vec<Incident>,
    /// The last operations without an outcome, the newest first.
    pub doubts: Vec<Incident>,
    /// Who is told of new heads; 100 at most.
    pub subscribers: Vec<NoticeSubscriber>,
    /// How many are told.
    pub subscribers_open: u64,
    /// Chunks in memory.
    pub chunk_cache: CacheOverview,
}

/// A history that is open in a writer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WriterHistory {
    /// Its name.
    pub name: String,
    /// The last head that was published or read here; null where none was.
    pub head: Option<HeadOverview>,
    /// Receipts at hand.
    pub receipts: u64,
    /// Operations that wait for their outcome.
    pub queue_operations: u64,
    /// Operations that may wait.
    pub queue_operations_max: u64,
}

/// What became of an operation that was not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum IncidentKind {
    /// A precondition did not hold.
    Rejected,
    /// Another owner has taken over.
    Fenced,
    /// The receipts that could tell are gone.
    Unknown,
    /// It may have been applied; the same id finds out.
    InDoubt,
    /// It was not applied.
    NotApplied,
}

/// An operation that was not accepted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Incident {
    /// How long ago, in milliseconds.
    pub age_ms: u64,
    /// The history.
    pub history: String,
    /// The operation.
    pub operation_id: String,
    /// What became of it.
    pub kind: IncidentKind,
    /// Why. No key and no value.
    pub detail: String,
}

/// Somebody who is told of new heads: a replica, as a rule.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NoticeSubscriber {
    /// From where it is connected; null where that is not known.
    pub peer: Option<String>,
    /// For how long, in milliseconds.
    pub connected_ms: u64,
    /// How long ago it asked for something or took a notice, in milliseconds.
    pub seen_ms: u64,
    /// Histories that it follows.
    pub histories: u64,
    /// The first few of them, in order.
    pub histories_first: Vec<String>,
    /// Notices that it was sent.
    pub notices: u64,
}
