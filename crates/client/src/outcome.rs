//! What became of an operation.

use bytes::Bytes;
use headwater_proto::v1;
use headwater_proto::v1::conflict::Kind;
use headwater_proto::v1::mutation_result::Value;

use crate::failure::Failure;

/// How the history answered an operation. An answer, not an error: all three
/// are outcomes that a caller has to look at.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "an operation may have been rejected, or its outcome may be unknown"]
pub enum Outcome {
    /// It is in the history, durable, and visible to strong reads.
    Accepted(Accepted),
    /// Its preconditions did not hold.
    Rejected(Rejected),
    /// Nobody can say any more whether it was applied.
    Unknown(Unknown),
}

/// An operation that is in the history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Accepted {
    /// The state version that it became part of.
    pub state_version: u64,
    /// Its place among the operations of that version, from 0.
    pub position: u32,
    /// For each `add`, in order: the index of the mutation, and the sum. A retry
    /// gets the same.
    pub sums: Vec<(usize, i64)>,
    /// Whether this is the answer of an earlier submission of the same id.
    pub from_receipt: bool,
}

/// An operation whose preconditions did not hold, at some moment between the
/// request and the answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejected {
    /// The state version that was looked at.
    pub at_version: u64,
    /// What stood in the way; at least one.
    pub conflicts: Vec<Conflict>,
    /// An earlier attempt of the same call got no answer, and a writer may still
    /// be working on it: the operation may yet be accepted, if its preconditions
    /// come to hold. Look the operation up before the same thing is asked for
    /// under another id.
    pub may_yet_apply: bool,
}

/// One thing that stood in the way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conflict {
    /// What it is.
    pub kind: ConflictKind,
    /// The key, or the first key of the range that stands in the way.
    pub key: Bytes,
    /// The version that last wrote the key; 0 where there is none.
    pub version_seen: u64,
    /// Index of the precondition, where that is what failed.
    pub precondition: Option<usize>,
    /// Index of the mutation, where that is what failed.
    pub mutation: Option<usize>,
}

/// What can stand in the way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ConflictKind {
    /// There is no such key.
    KeyMissing,
    /// There is such a key.
    KeyPresent,
    /// The key or range was written or deleted at the version seen.
    Changed,
    /// The value is another one.
    ValueDiffers,
    /// Deletions up to the version seen are no longer on record: read again.
    SinceTooOld,
    /// `add`: the value is not 8 bytes long.
    NotAnInteger,
    /// `add`: the sum does not fit 64 bits.
    Overflow,
    /// A kind that this build does not know.
    Unrecognized,
}

impl ConflictKind {
    /// Whether the precondition can never hold again, for any later state. What
    /// has changed since a version has changed for good.
    pub(crate) fn is_for_good(self) -> bool {
        match self {
            Self::Changed | Self::SinceTooOld => true,
            Self::KeyMissing
            | Self::KeyPresent
            | Self::ValueDiffers
            | Self::NotAnInteger
            | Self::Overflow
            | Self::Unrecognized => false,
        }
    }
}

/// An operation whose receipt would be gone by now, if it had one. It may have
/// been applied; it is not applied now, and sending it again cannot help. Look
/// at the data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unknown {
    /// First version that the operation can have got.
    pub earliest_version: u64,
    /// First version with complete receipts.
    pub receipt_coverage_from: u64,
}

impl Outcome {
    /// The outcome of an answer, and the version that it lets the caller read.
    pub(crate) fn from_wire(
        outcome: Option<v1::submit_response::Outcome>,
        may_yet_apply: bool,
    ) -> Result<Self, Failure> {
        use v1::submit_response::Outcome as Wire;
        match outcome {
            Some(Wire::Accepted(it)) => Ok(Self::Accepted(it.into())),
            Some(Wire::Rejected(it)) => Ok(Self::Rejected(Rejected::from_wire(it, may_yet_apply))),
            Some(Wire::Unknown(it)) => Ok(Self::Unknown(it.into())),
            None => Err(Failure::malformed("an answer has no outcome")),
        }
    }

    /// The version that the answer is about.
    pub(crate) fn version(&self) -> Option<u64> {
        match self {
            Self::Accepted(it) => Some(it.state_version),
            Self::Rejected(it) => Some(it.at_version),
            Self::Unknown(_) => None,
        }
    }
}

impl From<v1::Accepted> for Accepted {
    fn from(wire: v1::Accepted) -> Self {
        let sum =
            |it: &v1::MutationResult| it.value.map(|Value::Sum(sum)| (it.mutation as usize, sum));
        Self {
            state_version: wire.state_version,
            position: wire.position,
            sums: wire.results.iter().filter_map(sum).collect(),
            from_receipt: wire.from_receipt,
        }
    }
}

impl Rejected {
    fn from_wire(wire: v1::Rejected, may_yet_apply: bool) -> Self {
        let conflicts = wire.conflicts.into_iter().map(Conflict::from).collect();
        Self { at_version: wire.at_version, conflicts, may_yet_apply }
    }
}

impl From<v1::Conflict> for Conflict {
    fn from(wire: v1::Conflict) -> Self {
        let kind = match wire.kind() {
            Kind::KeyMissing => ConflictKind::KeyMissing,
            Kind::KeyPresent => ConflictKind::KeyPresent,
            Kind::Changed => ConflictKind::Changed,
            Kind::ValueDiffers => ConflictKind::ValueDiffers,
            Kind::SinceTooOld => ConflictKind::SinceTooOld,
            Kind::NotAnInteger => ConflictKind::NotAnInteger,
            Kind::Overflow => ConflictKind::Overflow,
            Kind::Unspecified => ConflictKind::Unrecognized,
        };
        Self {
            kind,
            key: wire.key,
            version_seen: wire.version_seen,
            precondition: wire.precondition.map(|it| it as usize),
            mutation: wire.mutation.map(|it| it as usize),
        }
    }
}

impl From<v1::Unknown> for Unknown {
    fn from(wire: v1::Unknown) -> Self {
        Self {
            earliest_version: wire.earliest_version,
            receipt_coverage_from: wire.receipt_coverage_from,
        }
    }
}
