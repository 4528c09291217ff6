//! What a writer measures.
//!
//! Its instruments are made from a [`Meter`] that it is handed, so that many
//! writers in one process do not mix, and one that nobody asks has none.

use std::sync::Arc;

use headwater_core::head::Head;
use headwater_core::publish::{Answer, Maintenance, PublishReply, SubmitError};
use headwater_daemon::label;
use headwater_daemon::metrics::observed::{self, Gauge, Part};
use headwater_daemon::metrics::{Counts, Times, count, numbers, seconds};
use opentelemetry::metrics::{Counter, Histogram, Meter};

use crate::histories::Histories;

label! {
    /// How a question ended.
    pub(crate) enum AnswerKind: "outcome" {
        Accepted = "accepted",
        /// By an earlier submission of the same operation.
        AcceptedBefore = "accepted_before",
        Rejected = "rejected",
        /// The evidence is gone for good.
        Unknown = "unknown_outcome",
        /// A publication was not answered.
        InDoubt = "in_doubt",
        /// A look-up, or a change of the head that is no operation.
        Done = "done",
        /// Refused because of what was asked.
        Refused = "refused",
        Expired = "expired",
        Contended = "contended",
        HeadTooLarge = "head_too_large",
        StoreUnavailable = "store_unavailable",
        /// Credentials, damage, a newer format: an operator has to look.
        StoreBad = "store_bad",
    }
}

label! {
    /// How the store answered the replacement of a head.
    pub(crate) enum Publication: "outcome" {
        Replaced = "replaced",
        Mismatch = "mismatch",
        NoAnswer = "no_answer",
    }
}

label! {
    /// Where the time of a write goes.
    pub(crate) enum Stage: "stage" {
        /// Waiting for its batch, by the operation that waited longest.
        Queue = "queue",
        /// Reading the head, and catching up with it.
        ReadHead = "read_head",
        /// Looking up what the decision needs.
        Facts = "facts",
        /// Uploading the change and request records.
        Upload = "upload",
        /// Replacing the head.
        Publish = "publish",
    }
}

label! {
    /// What was published beside operations.
    pub(crate) enum Upkeep: "kind" {
        Fold = "fold",
        Compact = "compact",
        Release = "release",
        RaiseSweep = "raise_sweep",
        Swept = "swept",
    }
}

label! {
    /// Why something was not taken.
    pub(crate) enum Full: "limit" {
        Operations = "operations",
        Bytes = "bytes",
        Maintenance = "maintenance",
        Histories = "histories",
    }
}

label! {
    /// What became of an operation that was handed to another writer.
    pub(crate) enum Forwarded: "outcome" {
        /// Its caller was told what the other writer said.
        Answered = "answered",
        /// It was not taken, or came to nothing there; decided here.
        NotTaken = "not_taken",
        /// Nobody knows; decided here under the same id, or out of time.
        InDoubt = "in_doubt",
    }
}

label! {
    /// How a sweep ended.
    pub(crate) enum SweepEnd: "outcome" {
        Complete = "complete",
        /// It met its limit; the next one goes on.
        Limited = "limited",
        Failed = "failed",
    }
}

/// The instruments of one writer.
#[derive(Clone, Debug)]
pub(crate) struct WriterMetrics {
    pub(crate) answers: Times<AnswerKind>,
    pub(crate) publications: Counts<Publication>,
    pub(crate) stages: Times<Stage>,
    /// Operations accepted by one replacement.
    pub(crate) batch: Histogram<u64>,
    /// Replacements sent until one was found to be the head.
    pub(crate) attempts: Histogram<u64>,
    head_bytes: Histogram<u64>,
    tail_versions: Histogram<u64>,
    covered_versions: Histogram<u64>,
    pub(crate) staged_bytes: Counter<u64>,
    pub(crate) orphaned_bytes: Counter<u64>,
    pub(crate) applied: Counts<Upkeep>,
    pub(crate) dropped: Counts<Upkeep>,
    pub(crate) full: Counts<Full>,
    pub(crate) forwarded: Counts<Forwarded>,
    /// Operations that other writers handed over.
    pub(crate) handed: Counter<u64>,
    pub(crate) sweeps: Counts<SweepEnd>,
    pub(crate) sweep_duration: Histogram<f64>,
    pub(crate) swept_objects: Counter<u64>,
    pub(crate) swept_bytes: Counter<u64>,
}

impl WriterMetrics {
    pub(crate) fn new(meter: &Meter) -> Self {
        Self {
            answers: Times::new(
                meter,
                "headwater.operation.duration",
                "Time from the moment an operation was taken to its answer.",
            ),
            publications: Counts::new(
                meter,
                "headwater.publications",
                "{publication}",
                "Replacements of a head that were sent, by the store's answer.",
            ),
            stages: Times::new(
                meter,
                "headwater.write.stage.duration",
                "Time of one stage of a batch of operations.",
            ),
            batch: numbers(
                meter,
                "headwater.publication.operations",
                "{operation}",
                "Operations accepted by one replacement of the head.",
            ),
            attempts: numbers(
                meter,
                "headwater.commit.attempts",
                "{publication}",
                "Replacements sent for each one that accepted operations.",
            ),
            head_bytes: meter
                .u64_histogram("headwater.head.size")
                .with_unit("By")
                .with_description("Size of the heads that were published.")
                .with_boundaries(HEAD_BYTES.to_vec())
                .build(),
            tail_versions: versions(
                meter,
                "headwater.head.tail.versions",
                "Versions after the snapshot, in the heads that were published.",
            ),
            covered_versions: versions(
                meter,
                "headwater.head.receipts.versions",
                "Newest versions whose receipts are all kept, in the heads that were published.",
            ),
            staged_bytes: count(
                meter,
                "headwater.staged",
                "By",
                "Bytes of candidates that were uploaded.",
            ),
            orphaned_bytes: count(
                meter,
                "headwater.orphaned",
                "By",
                "Bytes of candidates of batches that were decided again or accepted nothing; \
                 those that no head names after all are deleted by a sweep.",
            ),
            applied: Counts::new(
                meter,
                "headwater.maintenance.published",
                "{maintenance}",
                "Maintenance that was published.",
            ),
            dropped: Counts::new(
                meter,
                "headwater.maintenance.dropped",
                "{maintenance}",
                "Maintenance that was prepared and no longer fitted.",
            ),
            full: Counts::new(
                meter,
                "headwater.queue.refusals",
                "{question}",
                "What was not taken because something was full.",
            ),
            forwarded: forwarded(meter),
            handed: handed(meter),
            sweeps: Counts::new(meter, "headwater.sweeps", "{sweep}", "Sweeps that ended."),
            sweep_duration: seconds(meter, "headwater.sweep.duration", "Time of one sweep."),
            swept_objects: count(
                meter,
                "headwater.sweep.deleted.objects",
                "{object}",
                "Objects that sweeps deleted.",
            ),
            swept_bytes: count(
                meter,
                "headwater.sweep.deleted",
                "By",
                "Bytes that sweeps deleted, as far as they were listed.",
            ),
        }
    }
}

fn forwarded(meter: &Meter) -> Counts<Forwarded> {
    Counts::new(
        meter,
        "headwater.forwarded.operations",
        "{operation}",
        "Operations of contended histories that were handed to another writer.",
    )
}

fn handed(meter: &Meter) -> Counter<u64> {
    let about = "Operations that other writers handed over.";
    count(meter, "headwater.forwarded.received", "{operation}", about)
}

/// Bounds of the sizes of heads: up to the largest hard limit that can be set.
const HEAD_BYTES: [f64; 10] = [
    1_024.0,
    4_096.0,
    16_384.0,
    32_768.0,
    65_536.0,
    131_072.0,
    262_144.0,
    524_288.0,
    1_048_576.0,
    4_194_304.0,
];

/// Bounds of numbers of versions.
const VERSIONS: [f64; 9] =
    [1.0, 10.0, 100.0, 500.0, 1_000.0, 2_000.0, 5_000.0, 10_000.0, 100_000.0];

fn versions(meter: &Meter, name: &'static str, about: &'static str) -> Histogram<u64> {
    let builder = meter.u64_histogram(name).with_unit("{version}").with_description(about);
    builder.with_boundaries(VERSIONS.to_vec()).build()
}

impl WriterMetrics {
    /// Our own head is the current one.
    pub(crate) fn published(&self, head: &Head, size_bytes: usize) {
        let version = head.state_version;
        self.head_bytes.record(size_bytes as u64, &[]);
        self.tail_versions.record(version.since(head.snapshot.version), &[]);
        let covered = (version.get() + 1).saturating_sub(head.receipt_coverage_from.get());
        self.covered_versions.record(covered, &[]);
    }
}

/// Measures what there is, whenever somebody looks.
pub(crate) fn observe(meter: &Meter, histories: &Arc<Histories>) {
    let gauges = [
        Gauge {
            name: "headwater.writer.histories.open",
            unit: "{history}",
            about: "Histories that are open in the writer.",
            read: |it: &Histories| it.open_names().len() as u64,
        },
        Gauge {
            name: "headwater.queue.operations",
            unit: "{operation}",
            about: "Operations that wait for their outcome, of all histories.",
            read: Histories::n_waiting,
        },
    ];
    observed::gauges(meter, histories, gauges);
    observed::snapshot_fallbacks(meter, Part::Writer, histories, Histories::snapshot_fallbacks);
}

impl AnswerKind {
    pub(crate) fn of(answer: &Answer) -> Self {
        match answer {
            Answer::Accepted { is_from_receipt: false, .. } => Self::Accepted,
            Answer::Accepted { is_from_receipt: true, .. } => Self::AcceptedBefore,
            Answer::Rejected { .. } => Self::Rejected,
            Answer::Unknown { .. } => Self::Unknown,
            Answer::NotAccepted { .. }
            | Answer::WriterEpochRaised { .. }
            | Answer::Retired
            | Answer::Pinned(_)
            | Answer::Unpinned
            | Answer::RetentionSet(_) => Self::Done,
            Answer::Failed(error) => Self::of_error(error),
        }
    }

    fn of_error(error: &SubmitError) -> Self {
        match error {
            SubmitError::InDoubt => Self::InDoubt,
            SubmitError::Expired => Self::Expired,
            SubmitError::Contended => Self::Contended,
            SubmitError::HeadTooLarge => Self::HeadTooLarge,
            SubmitError::StoreUnavailable => Self::StoreUnavailable,
            SubmitError::StoreDenied
            | SubmitError::StoredDataBad { .. }
            | SubmitError::FormatTooNew { .. } => Self::StoreBad,
            SubmitError::IdReused
            | SubmitError::IssuedAhead { .. }
            | SubmitError::HistoryMissing
            | SubmitError::OtherHistory { .. }
            | SubmitError::Fenced { .. }
            | SubmitError::NotExclusive
            | SubmitError::PinExists { .. }
            | SubmitError::PinMissing
            | SubmitError::PinsFull
            | SubmitError::VersionRetired { .. }
            | SubmitError::VersionAhead { .. }
            | SubmitError::NeededByFork { .. } => Self::Refused,
        }
    }
}

impl Publication {
    pub(crate) fn of(reply: &PublishReply) -> Self {
        match reply {
            PublishReply::Replaced { .. } => Self::Replaced,
            PublishReply::Mismatch => Self::Mismatch,
            PublishReply::NoAnswer => Self::NoAnswer,
        }
    }
}

impl Upkeep {
    pub(crate) fn of(maintenance: &Maintenance) -> Self {
        match maintenance {
            Maintenance::Fold(_) => Self::Fold,
            Maintenance::Compact(_) => Self::Compact,
            Maintenance::Release(_) => Self::Release,
            Maintenance::RaiseSweep { .. } => Self::RaiseSweep,
            Maintenance::Swept { .. } => Self::Swept,
        }
    }
}
