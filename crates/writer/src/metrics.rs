//! What a writer measures.
//!
//! Its instruments are made from a [`Meter`] that it is handed, so that many
//! writers in one process do not mix, and one that nobody asks has none.

use headwater_core::publish::{Answer, Maintenance, PublishReply, SubmitError};
use headwater_daemon::label;
use headwater_daemon::metrics::{Counts, Times, count, numbers, seconds};
use opentelemetry::metrics::{Counter, Histogram, Meter};

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
    pub(crate) staged_bytes: Counter<u64>,
    pub(crate) orphaned_bytes: Counter<u64>,
    pub(crate) applied: Counts<Upkeep>,
    pub(crate) dropped: Counts<Upkeep>,
    pub(crate) full: Counts<Full>,
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
                "Bytes of candidates that were uploaded and that no head will name; a sweep \
                 deletes them.",
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
