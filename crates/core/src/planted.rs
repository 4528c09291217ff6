//! Faults that a rig can switch on, to show that it would find them.
//!
//! In the package that ships nothing of this exists: see the macro `planted!`
//! in the crate's root, and docs/decisions/planted-faults.md. Here the choice
//! is one for the whole process, so a rig plants one fault at a time.

use core::sync::atomic::{AtomicU8, Ordering};

macro_rules! faults {
    ($($(#[doc = $doc:literal])+ $name:ident,)+) => {
        /// One rule of the protocol, broken at one place.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u8)]
        pub enum Fault {
            $($(#[doc = $doc])+ $name,)+
        }

        impl Fault {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$name),+];
        }
    };
}

faults! {
    /// An accepted operation is checked against the state before its receipt
    /// is looked for.
    StateBeforeReceipts,
    /// A receipt under the same id is taken whatever was asked for.
    HashUncompared,
    /// An operation may name a version that the history has not reached.
    AheadAccepted,
    /// An operation is decided although its receipt may be gone.
    CoverageUnchecked,
    /// An operation of a former owner is accepted.
    EpochUnchecked,
    /// Operations of a batch are decided as if they did not see one another.
    NeighboursIgnored,
    /// The receipts of the oldest covered version are dropped.
    ReceiptDroppedEarly,
    /// A publication without an answer leaves nobody in doubt.
    DoubtForgotten,
    /// A mismatch is taken as proof that nothing was applied, although the
    /// network may have sent the request twice.
    MismatchTakenAsLoss,
    /// A head that has not changed yet is taken as proof that the unanswered
    /// publication never will change it.
    UnchangedTakenAsLost,
    /// What the publisher itself got accepted is not kept as evidence.
    OwnReceiptsForgotten,
    /// What was decided against a head that lost is not decided again.
    KeptAfterLoss,
    /// The receipts of other writers' changes are not taken in.
    ReceiptsNotFollowed,
    /// A negative answer is told without a proof that its head is current.
    NegativeUnproven,
    /// A head names candidates whose upload has not ended.
    PublishedUnstaged,
    /// A repetition is told the result of a batch that is not published.
    RepeatToldPredicted,
    /// A rejection is told as soon as it is decided, predicted or not.
    RejectionPredicted,
    /// The issue version of an operation moves with each attempt.
    IssueVersionMoved,
    /// A candidate from below the sweep boundary is named.
    SweptNameUsed,
    /// A candidate that is uploaded beside its replacement is named before its
    /// upload has ended.
    UploadAssumed,
    /// A candidate that was uploaded beside its replacement is named although
    /// the sweep boundary has passed it.
    SweptTravellerNamed,
    /// The issue version in a record that was there before is not used.
    RecordIgnored,
    /// No record is made for an operation whose issue version the service keeps.
    RecordUnwritten,
    /// An operation in doubt whose receipt may be gone goes on without doubt.
    DoubtEndedByWindow,
    /// Nothing is published to settle a doubt.
    NeverSettled,
    /// Callers are told before the store has answered.
    ToldBeforeReplaced,
    /// A compaction takes the place of a snapshot that it was not built from,
    /// and its archive that of one that it was not made from.
    BaseUncompared,
    /// A compaction drops the tail that was accepted meanwhile.
    TailDropped,
    /// An archive is published that does not keep what a pin names.
    PinsForgotten,
    /// A pin that expires is let go of before its time.
    ExpiryUnchecked,
    /// What a fork may name chunks of is let go of.
    ForksForgotten,
    /// A batch that was staged below a boundary which was just raised goes on.
    SweptBatchKept,
    /// A sweep deletes what was staged at the boundary or later.
    YoungDeleted,
    /// A sweep does not see what the archive names.
    ArchiveUnreached,
    /// A head is followed although it is older than the one at hand.
    OlderHeadTaken,
}

/// No fault is this one.
const NONE: u8 = u8::MAX;

static PLANTED: AtomicU8 = AtomicU8::new(NONE);

/// Plants one fault in this process, or none.
pub fn plant(fault: Option<Fault>) {
    PLANTED.store(fault.map_or(NONE, |it| it as u8), Ordering::SeqCst);
}

/// Whether `fault` is the one that is planted.
pub fn is(fault: Fault) -> bool {
    PLANTED.load(Ordering::Relaxed) == fault as u8
}
