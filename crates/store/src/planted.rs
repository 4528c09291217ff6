//! Faults of the drivers that a rig can switch on, to show that it would find
//! them: in the writer, the replica, their local state and the decorators of a
//! store.
//!
//! In what ships nothing of this exists: see the macro `planted!` in the crate's
//! root, and docs/decisions/planted-faults.md. The choice is one for the whole
//! process, so a rig plants one fault at a time. It is in this crate because all
//! drivers are above it. Faults of the decisions are `headwater_core`'s own.

use core::sync::atomic::{AtomicU8, Ordering};

macro_rules! faults {
    ($($(#[doc = $doc:literal])+ $name:ident,)+) => {
        /// One rule of a driver, broken at one place.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u8)]
        pub enum Fault {
            $($(#[doc = $doc])+ $name,)+
        }

        impl Fault {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$name),+];

            /// Its name, as written in the code.
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$name => stringify!($name),)+
                }
            }
        }
    };
}

faults! {
    /// A decorator repeats the replacement of a head that got no answer.
    HeadRepeated,
    /// An object that is there already counts as written, whatever is in it.
    OccupiedTakenAsWritten,
    /// The candidate is deleted when its publication got no answer.
    CandidateDeleted,
    /// A batch counts as staged before its upload has ended.
    UploadUnawaited,
    /// The head is not read: the one at hand is taken for the current one.
    HeadUnread,
    /// What a batch is decided by leaves out the batches before it.
    PredictedUnseen,
    /// The state that was predicted for a batch stays when the batch goes back.
    PredictedKept,
    /// The record of an operation that was there before is not read.
    RecordUnread,
    /// A sweep does not raise the boundary before it deletes: uploads that are
    /// under way are not spared.
    SweptUnraised,
    /// A sweep goes by the head that it read before it raised the boundary.
    SweptByOlderHead,
    /// Whoever takes a history over does not read the pages of receipts.
    ReceiptPagesUnread,
    /// A deletion of a range in the tail is not seen by reads.
    RangeDeletionUnseen,
    /// A file of the disk cache is used whatever is in it.
    DiskUnverified,
    /// A strong read joins a check that began before it arrived.
    CheckShared,
    /// A strong read is served from what is at hand when the check failed.
    CheckFailureServed,
    /// The end of a check serves those who wait for one that began later.
    LaterCheckServed,
    /// A notice that names the head at hand is taken as proof that it is current.
    NoticeTrusted,
    /// The age of a view counts from the end of its check.
    AgeFromEnd,
    /// A page of a scan comes from another version than the one it names.
    ScanViewSwapped,
    /// An exact read is served the version next to the one that it names.
    NeighbourServed,
    /// A read that names a version is served an older one.
    AtLeastUnwaited,
    /// A watch that goes on leaves the first version out.
    WatchSkips,
    /// A watch that goes on tells the last version once more.
    WatchRepeats,
    /// Changes that watchers share go on behind a gap as if there were none.
    FeedGapKept,
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
