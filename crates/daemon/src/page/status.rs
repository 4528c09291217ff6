//! Everything that the page shows, as one value; `/status.json` is this.
//!
//! docs/operations.md describes the shape. Fields are added; none is renamed,
//! removed or given another unit while [`Status::FORMAT`] stays.

use serde::{Deserialize, Serialize};

use crate::overview::{ReplicaOverview, Window, WriterOverview};

/// How a process stands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Status {
    /// [`Status::FORMAT`].
    pub format: u32,
    /// The process.
    pub process: ProcessStatus,
    /// Whether it is to be sent work.
    pub readiness: Readiness,
    /// Its writer, if it has one.
    pub writer: Option<WriterOverview>,
    /// Its replica, if it has one.
    pub replica: Option<ReplicaOverview>,
    /// What it asks of its store.
    pub store: StoreStatus,
    /// Which of the open histories are in here.
    pub window: WindowStatus,
    /// The last five minutes, oldest first.
    pub samples: Vec<Sample>,
}

/// A process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ProcessStatus {
    /// What it was started as.
    pub name: String,
    /// Version of the build.
    pub version: String,
    /// How long it has run, in milliseconds.
    pub uptime_ms: u64,
    /// Its store's URL, without credentials and settings.
    pub store: String,
}

/// Whether a process is to be sent work.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Readiness {
    /// Whether it is.
    pub is_ready: bool,
    /// Whether it is ending.
    pub is_draining: bool,
    /// What that is made of, as `/readyz?verbose` lists it.
    pub checks: Vec<CheckStatus>,
}

/// One of the checks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CheckStatus {
    /// Its name.
    pub name: String,
    /// Whether the process is not ready without it.
    pub is_needed: bool,
    /// What is wrong; null where nothing is.
    pub trouble: Option<String>,
}

/// Calls to the store since the process began, repeats included.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StoreStatus {
    /// Requests that stores charge as PUT.
    pub puts: u64,
    /// Requests that they charge as GET.
    pub gets: u64,
    /// Deletions.
    pub deletes: u64,
    /// Bytes sent.
    pub bytes_up: u64,
    /// Bytes received.
    pub bytes_down: u64,
    /// Calls that the store refused, or did not answer in a way that says what
    /// happened.
    pub failures: u64,
    /// Calls by kind and outcome; those that there were.
    pub calls: Vec<StoreCalls>,
}

/// Calls of one kind that ended in one way.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StoreCalls {
    /// The kind, as in metrics.
    pub call: String,
    /// The outcome, as in metrics.
    pub outcome: String,
    /// How many.
    pub count: u64,
}

/// Which of the open histories are listed: in the order of names, the same for
/// writer and replica.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WindowStatus {
    /// Only names that begin so.
    pub prefix: String,
    /// Only names after this one.
    pub after: String,
    /// So many at most.
    pub limit: u64,
    /// `after` of the next page; null where this is the last.
    pub next: Option<String>,
}

/// What happened in one second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Sample {
    /// When it ended, in milliseconds after the process began.
    pub at_ms: u64,
    /// Heads published with operations in them, a second.
    pub commits: u64,
    /// Operations accepted, a second.
    pub operations: u64,
    /// What half of them took at most, in microseconds; null without any.
    pub latency_p50_us: Option<u64>,
    /// What 99 of 100 took at most, in microseconds.
    pub latency_p99_us: Option<u64>,
    /// Reads that got a view, a second.
    pub reads: u64,
    /// Reads that got none, a second.
    pub reads_failed: u64,
    /// From a writer's notice to the moment from which the head is served: the
    /// middle one, in microseconds; null without any.
    pub lag_p50_us: Option<u64>,
    /// The longest, in microseconds. What is not followed yet counts at each
    /// check that fails.
    pub lag_max_us: Option<u64>,
    /// Calls to the store, a second.
    pub store_calls: u64,
    /// Those of them that failed, a second.
    pub store_failures: u64,
}

impl Status {
    /// Of the shape. It rises when a field goes or changes its meaning.
    pub const FORMAT: u32 = 1;

    /// Keeps the first histories of writer and replica together, up to the
    /// window's limit, and says whether there are more.
    pub(crate) fn cut_to(&mut self, window: &Window) {
        let of_writer = self.writer.iter().flat_map(|it| &it.histories).map(|it| &*it.name);
        let of_replica = self.replica.iter().flat_map(|it| &it.histories).map(|it| &*it.name);
        let mut names: Vec<String> = of_writer.chain(of_replica).map(str::to_owned).collect();
        names.sort_unstable();
        names.dedup();
        let is_more = window.limit < names.len();
        names.truncate(window.limit);
        let last = names.pop();
        let is_kept = |name: &str| last.as_deref().is_some_and(|last| name <= last);
        if let Some(writer) = &mut self.writer {
            writer.histories.retain(|it| is_kept(&it.name));
        }
        if let Some(replica) = &mut self.replica {
            replica.histories.retain(|it| is_kept(&it.name));
        }
        self.window = WindowStatus {
            prefix: window.prefix.clone(),
            after: window.after.clone(),
            limit: window.limit as u64,
            next: last.filter(|_| is_more),
        };
    }
}
