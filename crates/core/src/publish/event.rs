//! What goes into a publisher, and what comes out.

use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

use bytes::Bytes;

use super::answer::{Answer, SubmitError};
use super::batch::{BatchId, StagedChange};
use crate::archive::ArchiveUpdate;
use crate::change::Change;
use crate::decide::{Ask, Facts, Needs};
use crate::hash::{ContentHash, RequestHash};
use crate::head::{Compaction, Fold, HistoryRef, ObservedHead, Retention, Successor};
use crate::id::{HistoryId, PinName, Tag};
use crate::operation::RequestRecord;
use crate::receipt::{Receipt, ReceiptIndex};
use crate::version::{Revision, StateVersion};

/// One question under way, named by the driver. Never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub u64);

/// A change of the head that is not an operation.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Control {
    /// Take over an exclusive history.
    RaiseWriterEpoch {
        /// Only if this is the current epoch.
        expected: Option<u64>,
    },
    /// End the history: what a deletion begins with.
    Retire {
        /// The history that is meant.
        history_id: HistoryId,
    },
    /// Put a name on a version, so that it stays readable.
    Pin(NewPin),
    /// Take a name away.
    Unpin {
        /// The name.
        name: PinName,
        /// The forked history that needs it no longer, where the pin is one's.
        child: Option<HistoryId>,
    },
    /// Set how far back versions are kept.
    SetRetention(Retention),
}

/// A pin that is asked for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct NewPin {
    /// Its name.
    pub name: PinName,
    /// The version; `None` for the newest.
    pub version: Option<StateVersion>,
    /// When it may go by itself, in milliseconds since 1970; `None`: never.
    pub expires_at_ms: Option<u64>,
    /// The forked history that is to need it.
    pub child: Option<HistoryRef>,
}

/// What maintenance has prepared, durable and ready to be named.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Maintenance {
    /// Changes that are now in a segment. Rides on the next publication.
    Fold(Fold),
    /// A newer snapshot. Published by itself when nothing else is under way.
    Compact(Compaction),
    /// An archive that keeps less.
    Release(ArchiveUpdate),
    /// A higher sweep boundary: the first step of a sweep.
    RaiseSweep {
        /// It.
        sweep_from: Revision,
    },
    /// The last step of a sweep.
    Swept {
        /// Everything unreached below it is deleted.
        swept_to: Revision,
        /// The archive without what was deleted by name.
        update: Option<ArchiveUpdate>,
    },
}

impl Maintenance {
    /// Puts it into a head in the making. `false` when it does not fit.
    #[must_use]
    pub fn put_into(&self, successor: &mut Successor<'_>) -> bool {
        match self {
            Self::Fold(fold) => successor.fold(fold),
            Self::Compact(compaction) => successor.compact(compaction),
            Self::Release(update) => successor.release(update),
            Self::RaiseSweep { sweep_from } => successor.raise_sweep(*sweep_from),
            Self::Swept { swept_to, update } => successor.swept(*swept_to, update.as_ref()),
        }
    }
}

/// Why the driver could not do what an effect asked for.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Trouble {
    /// The store cannot be reached, throttles, or timed out. Worth repeating.
    #[error("the store is unavailable")]
    Unavailable,
    /// Something that the state at hand names is gone: the head it was read
    /// from was compacted, and swept. Worth repeating, from the head that there
    /// is now.
    #[error("object {key} is gone, the head has moved on")]
    Overtaken {
        /// The object's key.
        key: String,
    },
    /// The store refuses the process's credentials.
    #[error("the store refused access")]
    Denied,
    /// A stored object is missing, damaged or contradicts the protocol.
    #[error("stored object {key} is bad: {what}")]
    BadData {
        /// The object's key.
        key: String,
        /// What is wrong with it.
        what: String,
    },
    /// A stored object was written by a newer build.
    #[error("stored object {key} has format {format}, a newer build is needed")]
    TooNew {
        /// The object's key.
        key: String,
        /// Its format number.
        format: u64,
    },
}

impl Trouble {
    /// The error to answer with at once; `None` where trying again may help.
    pub(super) fn final_error(&self) -> Option<SubmitError> {
        match self {
            Self::Unavailable | Self::Overtaken { .. } => None,
            Self::Denied | Self::BadData { .. } | Self::TooNew { .. } => Some(self.clone().into()),
        }
    }
}

/// What a question is told that nothing was published for.
impl From<Trouble> for SubmitError {
    fn from(trouble: Trouble) -> Self {
        match trouble {
            Trouble::Unavailable | Trouble::Overtaken { .. } => Self::StoreUnavailable,
            Trouble::Denied => Self::StoreDenied,
            Trouble::BadData { key, what } => Self::StoredDataBad { key, what },
            Trouble::TooNew { key, format } => Self::FormatTooNew { key, format },
        }
    }
}

/// How near the moment is at which the head may be replaced: a store may allow
/// one object only so many replacements a second.
///
/// The wait is before a batch is closed, never after: what arrives meanwhile
/// makes the batch larger, and no replacement waits with a condition that goes
/// stale. Delays only; nothing is decided otherwise because of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Pace {
    /// Later. Operations gather, and only full batches are decided and staged.
    Gather,
    /// In about the time of an upload: what needs one is decided and staged.
    Stage,
    /// Now.
    Publish,
}

/// What happened outside.
#[derive(Clone, Debug)]
#[expect(clippy::large_enum_variant, reason = "few at a time, each moved once")]
pub enum Event {
    /// A caller submits an operation, or asks about one.
    Asked {
        /// Under this ticket.
        ticket: Ticket,
        /// What.
        ask: Ask,
        /// When, by the process's clock: milliseconds since 1970. Recorded in
        /// the change, and decides nothing.
        asked_at_ms: u64,
    },
    /// A caller wants the head changed in another way.
    Controlled {
        /// Under this ticket.
        ticket: Ticket,
        /// How.
        control: Control,
    },
    /// A caller's time is up, or it is no longer there.
    Expired {
        /// Its ticket. Ignored when it was answered already.
        ticket: Ticket,
    },
    /// Answers [`Effect::ReadHead`].
    HeadRead(ReadOutcome),
    /// Answers [`Effect::FindFacts`].
    FactsFound {
        /// The batch.
        batch: BatchId,
        /// Everything that was asked for.
        facts: Facts,
    },
    /// Answers [`Effect::FindFacts`].
    FactsFailed {
        /// The batch.
        batch: BatchId,
        /// Why.
        trouble: Trouble,
    },
    /// Answers [`Effect::Stage`]: the change and every record are durable,
    /// except that `records` were there before.
    Staged {
        /// The batch.
        batch: BatchId,
        /// Records of operations that turned out to have one already.
        records: Vec<FoundRecord>,
    },
    /// Answers [`Effect::Stage`]: some of it may be durable.
    StageFailed {
        /// The batch.
        batch: BatchId,
        /// Why.
        trouble: Trouble,
    },
    /// Answers [`Effect::Publish`].
    Published(PublishReply),
    /// The moment of the next replacement has come nearer, or was put off.
    /// [`Pace::Publish`] holds until something else is said.
    Paced(Pace),
    /// Maintenance is ready to be published.
    Prepared(Maintenance),
}

/// What a read of the head gave.
#[derive(Clone, Debug)]
pub enum ReadOutcome {
    /// The tag is still the one that was known (304).
    Unchanged,
    /// Another head, whose changes the driver has fetched and verified.
    Found {
        /// It.
        observed: ObservedHead,
        /// Its receipts.
        evidence: EvidenceUpdate,
    },
    /// There is no head.
    Missing,
    /// It could not be read, or what it names could not.
    Failed(Trouble),
}

/// The receipts that came with a head.
#[derive(Clone, Debug)]
pub enum EvidenceUpdate {
    /// Those of the versions after the head observed before, in order.
    Extend(Vec<(StateVersion, Vec<Receipt>)>),
    /// All that the head covers.
    Replace(ReceiptIndex),
}

/// A request record that was there before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundRecord {
    /// The operation that it is about.
    pub ticket: Ticket,
    /// What it says; or what is wrong with it, which is this operation's
    /// trouble and nobody else's.
    pub says: Result<RecordSays, Trouble>,
}

/// What a request record fixes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordSays {
    /// Hash of the request that it holds.
    pub request_hash: RequestHash,
    /// The issue version.
    pub issued_from: StateVersion,
}

/// The three answers that a conditional replacement can get.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PublishReply {
    /// The store applied it.
    Replaced {
        /// The tag of the new head.
        tag: Tag,
    },
    /// The condition does not hold. What was sent may be why: a proxy or a load
    /// balancer that repeats a request gets this for the second copy.
    Mismatch,
    /// No trustworthy answer. It may have been applied, may be applied later,
    /// or may be lost.
    NoAnswer,
}

/// What the driver has to do.
#[derive(Clone, Debug)]
#[expect(clippy::large_enum_variant, reason = "few at a time, each moved once")]
pub enum Effect {
    /// Read the head, conditionally where a tag is known, and fetch what its
    /// changes add. Answer [`Event::HeadRead`]. One at a time, and never while a
    /// publication is in flight.
    ReadHead {
        /// The tag of the head that is at hand.
        known: Option<Tag>,
        /// Failures and lost races in a row: wait accordingly first.
        failures: u32,
    },
    /// Look facts up in the state after every batch decided so far. Answer
    /// [`Event::FactsFound`] or [`Event::FactsFailed`].
    FindFacts {
        /// The batch that they are for.
        batch: BatchId,
        /// What is asked for.
        needs: Needs,
        /// As for [`Effect::ReadHead`].
        failures: u32,
    },
    /// A batch was decided: the state predicted after it has this change on
    /// top. Nothing may be served from it.
    Decided {
        /// The batch.
        batch: BatchId,
        /// The version that it will be.
        version: StateVersion,
        /// Its change.
        change: Arc<Change>,
        /// Hash of the change's bytes.
        hash: ContentHash,
        /// The change's bytes.
        bytes: Bytes,
    },
    /// Upload a candidate and request records, at the same time. Answer
    /// [`Event::Staged`] or [`Event::StageFailed`].
    Stage {
        /// The batch.
        batch: BatchId,
        /// The candidate, unless it travels in the head or is there already.
        change: Option<StagedChange>,
        /// Records to create, each for a ticket.
        records: Vec<(Ticket, RequestRecord)>,
        /// As for [`Effect::ReadHead`].
        failures: u32,
    },
    /// Replace the head. Answer [`Event::Published`]. One at a time.
    Publish {
        /// The condition.
        if_match: Tag,
        /// The new head, encoded.
        bytes: Bytes,
    },
    /// Our own publication is the head: it may be served.
    Advanced {
        /// The head.
        observed: ObservedHead,
        /// The batches that it made true, in order.
        batches: Vec<BatchId>,
    },
    /// This batch and all after it are undecided again: drop the states
    /// predicted for them.
    RolledBack {
        /// The first of them.
        from: BatchId,
    },
    /// Maintenance was published, or no longer fits and was dropped.
    Maintained {
        /// It.
        maintenance: Maintenance,
        /// Which of the two.
        is_applied: bool,
    },
    /// Tell a caller.
    Answer {
        /// Which one. There is one answer for each ticket.
        ticket: Ticket,
        /// What.
        answer: Answer,
    },
}
