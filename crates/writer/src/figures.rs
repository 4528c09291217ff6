//! What this process has done, counted for those who look at it.
//!
//! Drivers count as they answer; whoever looks reads the counters. No driver
//! ever waits for that ([`headwater_daemon::tally`]).

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use headwater_core::decide::ConflictKind;
use headwater_core::head::ObservedHead;
use headwater_core::id::{HistoryName, OperationId};
use headwater_core::publish::{Answer, Determinacy, SubmitError};
use headwater_daemon::overview::{HeadOverview, Incident, IncidentKind, WriterTotals};
use headwater_daemon::tally::{Durations, Recent};
use tokio::time::Instant;

/// Operations that were not accepted, of each sort, that are remembered.
const INCIDENTS_MAX: usize = 32;
/// Longest reason that is remembered, in characters: two lines of a page.
const DETAIL_CHARS_MAX: usize = 256;

/// What all drivers count together.
#[derive(Debug)]
pub(crate) struct Figures {
    publications: AtomicU64,
    accepted: AtomicU64,
    repeated: AtomicU64,
    rejected: AtomicU64,
    unknown: AtomicU64,
    in_doubt: AtomicU64,
    failed: AtomicU64,
    latencies: Durations,
    /// Two lists, so that callers who collide all the time do not push out what
    /// an operator has to see.
    conflicts: Recent<Happened>,
    doubts: Recent<Happened>,
}

/// The counters at one moment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Counted {
    pub(crate) publications: u64,
    pub(crate) accepted: u64,
    pub(crate) repeated: u64,
    pub(crate) rejected: u64,
    pub(crate) unknown: u64,
    pub(crate) in_doubt: u64,
    pub(crate) failed: u64,
}

/// Who asked, and when.
#[derive(Clone, Debug)]
pub(crate) struct AskedBy {
    /// `None` where it is not about an operation.
    pub(crate) operation: Option<OperationId>,
    pub(crate) at: Instant,
}

#[derive(Clone, Debug)]
struct Happened {
    at: Instant,
    history: HistoryName,
    operation: OperationId,
    kind: IncidentKind,
    detail: String,
}

/// What a driver leaves for those who look at its history.
#[derive(Clone, Debug)]
pub(crate) struct Shown {
    pub(crate) observed: ObservedHead,
    pub(crate) head_bytes: usize,
    pub(crate) receipts: usize,
}

impl Shown {
    pub(crate) fn overview(&self) -> HeadOverview {
        HeadOverview::of(&self.observed.head, self.head_bytes)
    }
}

impl Default for Figures {
    fn default() -> Self {
        Self {
            publications: AtomicU64::default(),
            accepted: AtomicU64::default(),
            repeated: AtomicU64::default(),
            rejected: AtomicU64::default(),
            unknown: AtomicU64::default(),
            in_doubt: AtomicU64::default(),
            failed: AtomicU64::default(),
            latencies: Durations::default(),
            conflicts: Recent::new(INCIDENTS_MAX),
            doubts: Recent::new(INCIDENTS_MAX),
        }
    }
}

impl Figures {
    /// A head that brings operations was published.
    pub(crate) fn published(&self) {
        self.publications.fetch_add(1, Ordering::Relaxed);
    }

    /// A caller was told.
    pub(crate) fn answered(&self, history: &HistoryName, asked: &AskedBy, answer: &Answer) {
        let Some(operation) = &asked.operation else { return };
        let happened = |kind, detail| Happened {
            at: Instant::now(),
            history: history.clone(),
            operation: operation.clone(),
            kind,
            detail,
        };
        let counter = match answer {
            Answer::Accepted { is_from_receipt: true, .. } => &self.repeated,
            Answer::Accepted { .. } => {
                self.latencies.record(asked.at.elapsed());
                &self.accepted
            }
            Answer::Rejected { at, conflicts } => {
                let detail = rejection(conflicts.iter().map(|it| it.kind));
                let detail = format!("{detail}, at {at}");
                self.conflicts.push(happened(IncidentKind::Rejected, detail));
                &self.rejected
            }
            Answer::Unknown { earliest, coverage_from } => {
                let detail =
                    format!("{earliest} at the earliest; receipts from {coverage_from} on");
                self.doubts.push(happened(IncidentKind::Unknown, detail));
                &self.unknown
            }
            Answer::Failed(error) => self.without_outcome(error, happened),
            // Not about an operation, or a look-up that was answered.
            Answer::NotAccepted { .. }
            | Answer::WriterEpochRaised { .. }
            | Answer::Retired
            | Answer::Pinned(_)
            | Answer::Unpinned
            | Answer::RetentionSet(_) => return,
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    fn without_outcome(
        &self,
        error: &SubmitError,
        happened: impl Fn(IncidentKind, String) -> Happened,
    ) -> &AtomicU64 {
        let detail = || cut(error.to_string());
        if error.determinacy() == Determinacy::MaybeApplied {
            self.doubts.push(happened(IncidentKind::InDoubt, detail()));
            return &self.in_doubt;
        }
        match error {
            SubmitError::Fenced { .. } => {
                self.conflicts.push(happened(IncidentKind::Fenced, detail()));
            }
            // The store's doing, or this process's.
            SubmitError::HeadTooLarge
            | SubmitError::Expired
            | SubmitError::Contended
            | SubmitError::StoreUnavailable
            | SubmitError::StoreDenied
            | SubmitError::StoredDataBad { .. }
            | SubmitError::FormatTooNew { .. }
            | SubmitError::InDoubt => {
                self.doubts.push(happened(IncidentKind::NotApplied, detail()));
            }
            // The caller's: counted, and no news for an operator.
            SubmitError::IdReused
            | SubmitError::IssuedAhead { .. }
            | SubmitError::HistoryMissing
            | SubmitError::OtherHistory { .. }
            | SubmitError::NotExclusive
            | SubmitError::PinExists { .. }
            | SubmitError::PinMissing
            | SubmitError::PinsFull
            | SubmitError::VersionRetired { .. }
            | SubmitError::VersionAhead { .. }
            | SubmitError::NeededByFork { .. } => {}
        }
        &self.failed
    }

    pub(crate) fn counted(&self) -> Counted {
        let read = |it: &AtomicU64| it.load(Ordering::Relaxed);
        Counted {
            publications: read(&self.publications),
            accepted: read(&self.accepted),
            repeated: read(&self.repeated),
            rejected: read(&self.rejected),
            unknown: read(&self.unknown),
            in_doubt: read(&self.in_doubt),
            failed: read(&self.failed),
        }
    }

    pub(crate) fn totals(&self) -> WriterTotals {
        let Counted { publications, accepted: operations, .. } = self.counted();
        WriterTotals { commits: publications, operations, latencies: self.latencies.read() }
    }

    pub(crate) fn conflicts(&self) -> Vec<Incident> {
        self.conflicts.list().iter().map(Happened::shown).collect()
    }

    pub(crate) fn doubts(&self) -> Vec<Incident> {
        self.doubts.list().iter().map(Happened::shown).collect()
    }
}

impl Happened {
    fn shown(&self) -> Incident {
        Incident {
            age_ms: ms(self.at),
            history: self.history.to_string(),
            operation_id: self.operation.as_str().to_owned(),
            kind: self.kind,
            detail: self.detail.clone(),
        }
    }
}

/// How long ago, in milliseconds.
pub(crate) fn ms(since: Instant) -> u64 {
    u64::try_from(since.elapsed().as_millis()).unwrap_or(u64::MAX)
}

fn cut(text: String) -> String {
    match text.char_indices().nth(DETAIL_CHARS_MAX) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text,
    }
}

/// What stood in the way, without saying where: keys are the callers'.
fn rejection(kinds: impl Iterator<Item = ConflictKind>) -> String {
    let mut counts = BTreeMap::new();
    for kind in kinds {
        *counts.entry(words(kind)).or_insert(0_u32) += 1;
    }
    let parts: Vec<_> = counts.into_iter().map(|(words, n)| format!("{n} × {words}")).collect();
    parts.join(", ")
}

fn words(kind: ConflictKind) -> &'static str {
    match kind {
        ConflictKind::KeyMissing => "key missing",
        ConflictKind::KeyPresent => "key present",
        ConflictKind::Changed => "changed since",
        ConflictKind::ValueDiffers => "value differs",
        ConflictKind::SinceTooOld => "too old to tell",
        ConflictKind::NotAnInteger => "not an integer",
        ConflictKind::Overflow => "overflow",
    }
}

#[cfg(test)]
#[path = "figures_test.rs"]
mod tests;
