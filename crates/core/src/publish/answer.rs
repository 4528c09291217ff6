//! What a caller is told.

use alloc::string::String;
use alloc::vec::Vec;

use crate::decide::Conflict;
use crate::head::{Head, Pin, Retention};
use crate::id::{HistoryId, HistoryName};
use crate::receipt::Receipt;
use crate::version::StateVersion;

/// The outcome of a question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Accepted; here is the proof.
    Accepted {
        /// The proof.
        receipt: Receipt,
        /// Whether an earlier submission was what got it accepted.
        is_from_receipt: bool,
    },
    /// Not accepted, by a state that was current after the question arrived.
    Rejected {
        /// That state's version.
        at: StateVersion,
        /// What stood in the way.
        conflicts: Vec<Conflict>,
    },
    /// The receipts that could tell are gone. Retrying cannot help.
    Unknown {
        /// First version that the operation can have got.
        earliest: StateVersion,
        /// First version with complete receipts.
        coverage_from: StateVersion,
    },
    /// A look-up: not accepted through this version.
    NotAccepted {
        /// The version.
        through: StateVersion,
    },
    /// The epoch was raised to this.
    WriterEpochRaised {
        /// The new epoch.
        writer_epoch: u64,
    },
    /// The history has ended.
    Retired,
    /// The version has its name.
    Pinned(Pin),
    /// The name is gone.
    Unpinned,
    /// That far back versions are kept from now on.
    RetentionSet(Retention),
    /// No outcome.
    Failed(SubmitError),
}

/// Whether a question without an outcome can have changed the history.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Determinacy {
    /// This submission did not change it and no longer can. Another submission
    /// of the same operation still may.
    NotApplied,
    /// It may have, or may still.
    MaybeApplied,
}

/// Why there is no outcome.
///
/// Every variant says what the caller should do; if two called for the same
/// action they would be one. Not `non_exhaustive`: a new variant must fail to
/// compile in every mapping until someone has placed it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum SubmitError {
    /// The id was used for a different request. Fix the caller.
    #[error("the operation id was used for a different request")]
    IdReused,
    /// The operation names a version that the history has not reached. Fix the
    /// caller: the version is of another history.
    #[error(
        "the operation was issued from a version that the history has not reached ({state_version})"
    )]
    IssuedAhead {
        /// The version that it has reached.
        state_version: StateVersion,
    },
    /// There is no such history, or another one under its name.
    #[error("the history does not exist")]
    HistoryMissing,
    /// Another history has the name.
    #[error("another history has the name: {found}")]
    OtherHistory {
        /// Its id.
        found: HistoryId,
    },
    /// A newer owner has taken the history over. Stop.
    #[error("fenced: the writer epoch is {writer_epoch}")]
    Fenced {
        /// The current epoch.
        writer_epoch: u64,
    },
    /// The history is not exclusive, and has no epochs.
    #[error("the history is not exclusive")]
    NotExclusive,
    /// The name is on another version. Choose another name, or take that pin
    /// away first.
    #[error("the pin exists, on {version}")]
    PinExists {
        /// The version that it is on.
        version: StateVersion,
    },
    /// There is no pin of that name, or it is another history's.
    #[error("there is no such pin")]
    PinMissing,
    /// There are as many pins as a head takes. Take one away first.
    #[error("the history has {max} pins, and takes no more", max = Head::PINS_MAX)]
    PinsFull,
    /// The version can no longer be read. Name a later one.
    #[error("the version is gone; the oldest that is kept is {oldest}")]
    VersionRetired {
        /// The first version from which on everything is kept.
        oldest: StateVersion,
    },
    /// The version is still to come. Name an earlier one.
    #[error("the version is still to come; the newest is {newest}")]
    VersionAhead {
        /// The newest version.
        newest: StateVersion,
    },
    /// Another history was forked from this one, and still needs its objects.
    /// Delete that one first, or wait until its compactions have replaced them.
    #[error("{history} was forked from the history and still needs it")]
    NeededByFork {
        /// The name of the other.
        history: HistoryName,
    },
    /// The head has no room until maintenance has made some. Retry later with
    /// the same operation id.
    #[error("the head is at its size limit until maintenance has made room")]
    HeadTooLarge,
    /// Time ran out before anything was published. Retry with the same
    /// operation id.
    #[error("time ran out before publication")]
    Expired,
    /// Other writers kept winning until time ran out. Retry with the same
    /// operation id.
    #[error("other writers kept winning until time ran out")]
    Contended,
    /// The store could not be reached until time ran out. Retry with the same
    /// operation id.
    #[error("the store could not be reached before publication")]
    StoreUnavailable,
    /// The store refuses this service's credentials. Call an operator.
    #[error("the store refused access to this service")]
    StoreDenied,
    /// The history is damaged. Call an operator.
    #[error("stored object {key} is bad: {what}")]
    StoredDataBad {
        /// The object's key.
        key: String,
        /// What is wrong with it.
        what: String,
    },
    /// The history was written by a newer build. Upgrade.
    #[error("stored object {key} has format {format}, a newer build is needed")]
    FormatTooNew {
        /// The object's key.
        key: String,
        /// Its format number.
        format: u64,
    },
    /// A publication got no answer, or a mismatch, and no head that would tell
    /// what became of it was read before time ran out. Retry with the same
    /// operation id, which finds the receipt if there is one.
    #[error("a publication may have been applied")]
    InDoubt,
}

impl SubmitError {
    /// Whether the operation can have been applied all the same.
    pub fn determinacy(&self) -> Determinacy {
        // No wildcard arm: whoever adds a variant has to decide this.
        match self {
            Self::IdReused
            | Self::IssuedAhead { .. }
            | Self::HistoryMissing
            | Self::OtherHistory { .. }
            | Self::Fenced { .. }
            | Self::NotExclusive
            | Self::PinExists { .. }
            | Self::PinMissing
            | Self::PinsFull
            | Self::VersionRetired { .. }
            | Self::VersionAhead { .. }
            | Self::NeededByFork { .. }
            | Self::HeadTooLarge
            | Self::Expired
            | Self::Contended
            | Self::StoreUnavailable
            | Self::StoreDenied
            | Self::StoredDataBad { .. }
            | Self::FormatTooNew { .. } => Determinacy::NotApplied,
            Self::InDoubt => Determinacy::MaybeApplied,
        }
    }
}
