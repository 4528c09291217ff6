//! What has really happened: every head that the bucket took, every version in
//! it replayed against the [`Model`], and every answer compared with that.
//!
//! The checks run as things happen, so that a trace ends where the fault is.
//!
//! ```text
//! bucket --- head replaced, object deleted ---> heads --> timeline, model
//! clients --- sent, answered -----------------> answers, reads --> violations
//! ```

mod answers;
mod heads;
mod keeping;
mod reach;
mod reads;
mod watches;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use headwater_core::change::Change;
use headwater_core::hash::RequestHash;
use headwater_core::head::Head;
use headwater_core::id::{OperationId, PinName};
use headwater_core::operation::{Operation, Request};
use headwater_core::receipt::MutationResult;

pub(crate) use self::answers::Attempt;
pub(crate) use self::heads::{Objects, When};
pub(crate) use self::reads::{Asked, Found, Page, Row};
pub(crate) use self::watches::Watched;
use crate::model::{Model, Place};

/// Violations that are kept; one is enough to fail.
const VIOLATIONS_MAX: usize = 20;

/// Everything known of one run.
#[derive(Debug, Default)]
pub(crate) struct Truth {
    /// By the key of the head.
    histories: BTreeMap<String, History>,
    /// By the key of a fork's head, that of its source.
    forks: BTreeMap<String, String>,
    violations: Vec<String>,
    /// The greatest head that any writer may make with operations in it.
    head_hard_bytes: usize,
    pub(crate) tally: Tally,
}

/// What happened, in numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Heads that were created or replaced.
    pub heads: u64,
    /// Versions that were accepted.
    pub versions: u64,
    /// Operations in them.
    pub accepted: u64,
    /// Snapshots that a head began to name.
    pub snapshots: u64,
    /// Segments that a head began to name.
    pub segments: u64,
    /// Heads that raised the sweep boundary.
    pub sweeps: u64,
    /// Objects deleted.
    pub deleted: u64,
    /// Versions that watches told.
    pub watched: u64,
    /// Pins that heads began to name, and histories that were forked.
    pub pins: u64,
    /// See `pins`.
    pub forks: u64,
    /// Versions that were told to have the state of an older one.
    pub restores: u64,
    /// Heads that raised the writer epoch.
    pub epochs: u64,
}

impl Tally {
    pub(crate) fn add(&mut self, other: &Self) {
        self.heads += other.heads;
        self.versions += other.versions;
        self.accepted += other.accepted;
        self.snapshots += other.snapshots;
        self.segments += other.segments;
        self.sweeps += other.sweeps;
        self.deleted += other.deleted;
        self.watched += other.watched;
        self.pins += other.pins;
        self.forks += other.forks;
        self.restores += other.restores;
        self.epochs += other.epochs;
    }
}

/// One history.
#[derive(Debug, Default)]
struct History {
    /// `None` before it was created.
    head: Option<Arc<Head>>,
    model: Model,
    /// When each version came, by its number.
    versions: Vec<Published>,
    /// What led to each version, by its number.
    changes: Vec<Arc<Change>>,
    /// The event at which each revision came, from the first one on.
    revisions: Vec<u64>,
    // Looked up many times for each operation; where they are gone through, what
    // is found is put in order.
    operations: HashMap<OperationId, Known>,
    /// Keys of all objects that the head names itself.
    reached: HashSet<String>,
    /// Keys of all objects that the archive of the head names.
    named_by_archive: HashSet<String>,
    /// What each snapshot of the head or its archive leads to, by its key.
    snapshots: BTreeMap<String, Arc<HashSet<String>>>,
    newest_snapshot: Option<String>,
    /// Pins that somebody asked to take away.
    unpinned: BTreeSet<PinName>,
    /// The version that it began with, where it was forked.
    n_inherited: u64,
}

/// When a version came.
#[derive(Clone, Copy, Debug)]
struct Published {
    event: u64,
    /// Since the run began.
    at: Duration,
    operations: u32,
}

/// An operation that some client has sent.
#[derive(Debug)]
struct Known {
    request: Arc<Request>,
    request_hash: RequestHash,
    /// The version whose state it is to bring back, where it is a restore.
    restores: Option<u64>,
    /// The issue version, where the client keeps it.
    issued_from: Option<u64>,
    writer_epoch: u64,
    first_sent: u64,
    accepted: Option<Accepted>,
    /// The event at which a client was told that nobody knows.
    unknown: Option<u64>,
    /// Whether some attempt may have been applied for all that its client knows.
    is_open: bool,
    /// Whether an attempt is under way.
    is_asked: bool,
}

#[derive(Clone, Debug)]
struct Accepted {
    place: Place,
    results: Vec<MutationResult>,
}

impl Truth {
    /// Nothing has happened. No head with new operations may pass
    /// `head_hard_bytes`; 0 is no limit.
    pub(crate) fn new(head_hard_bytes: usize) -> Self {
        Self { head_hard_bytes, ..Self::default() }
    }

    /// A history that is going to be created under this key.
    pub(crate) fn expect(&mut self, head_key: &str) {
        self.histories.insert(head_key.to_owned(), History::default());
    }

    /// Takes down a fault.
    pub(crate) fn violation(&mut self, what: String) {
        if self.violations.len() < VIOLATIONS_MAX {
            self.violations.push(what);
        }
    }

    pub(crate) fn violations(&self) -> &[String] {
        &self.violations
    }

    /// An operation is about to be sent for the first time.
    pub(crate) fn issued(&mut self, head_key: &str, operation: &Operation, event: u64) {
        let history = self.histories.entry(head_key.to_owned()).or_default();
        let issued_from = match operation.issue {
            headwater_core::operation::Issue::ClientKept(version) => Some(version.get()),
            headwater_core::operation::Issue::ServiceKept { .. } => None,
        };
        history.operations.entry(operation.id.clone()).or_insert_with(|| Known {
            request: Arc::clone(&operation.request),
            request_hash: operation.request_hash,
            restores: None,
            issued_from,
            writer_epoch: operation.writer_epoch,
            first_sent: event,
            accepted: None,
            unknown: None,
            is_open: false,
            is_asked: false,
        });
    }

    /// The newest head of a history.
    pub(crate) fn head(&self, head_key: &str) -> Option<Arc<Head>> {
        self.histories.get(head_key)?.head.clone()
    }

    /// What can only be said at the end: whoever was told for good that an
    /// operation was not applied was told the truth.
    pub(crate) fn finish(&mut self) {
        let mut found = Vec::new();
        for (head_key, history) in &self.histories {
            for (id, known) in &history.operations {
                let was_denied = !known.is_open && known.accepted.is_some();
                if was_denied {
                    found.push(format!(
                        "{head_key}: {id} was never answered, or denied, and is in the history"
                    ));
                }
            }
            let accepted = history.operations.values().filter(|it| it.accepted.is_some()).count();
            let counted = history.head.as_ref().map_or(0, |it| it.operation_count);
            // How many there were before a fork is known to its source.
            if history.n_inherited == 0 && counted != accepted as u64 {
                found.push(format!(
                    "{head_key}: the head counts {counted} operations of {accepted}"
                ));
            }
        }
        found.sort_unstable();
        for it in found {
            self.violation(it);
        }
    }
}

impl History {
    fn newest(&self) -> u64 {
        (self.versions.len() as u64).saturating_sub(1)
    }

    /// The newest version at an event.
    fn newest_at(&self, event: u64) -> u64 {
        let n = self.versions.partition_point(|it| it.event <= event);
        (n as u64).saturating_sub(1)
    }

    /// The newest version at a time since the run began.
    fn newest_at_time(&self, at: Duration) -> u64 {
        let n = self.versions.partition_point(|it| it.at <= at);
        (n as u64).saturating_sub(1)
    }

    /// The newest revision at an event; 0 before the first.
    fn revision_at(&self, event: u64) -> u64 {
        let first = self.head.as_ref().map_or(0, |it| it.revision.get());
        let first = (first + 1).saturating_sub(self.revisions.len() as u64);
        let n = self.revisions.partition_point(|it| *it <= event) as u64;
        if n == 0 { 0 } else { first + n - 1 }
    }
}
