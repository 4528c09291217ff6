//! A change entry: one accepted transition, and the rule for replaying it.
//!
//! Everything in it is resolved. Replaying needs no clock, no random number
//! and no outside call, and gives the same state everywhere.

use alloc::vec::Vec;

use bytes::Bytes;

use crate::hash::{ChainHash, ContentHash, RequestHash};
use crate::id::{HistoryId, OperationId};
use crate::operation::{Key, KeyRange};
use crate::receipt::{MutationResult, Receipt};
use crate::version::StateVersion;

/// A mutation after every computation.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Resolved {
    /// The key gets this value.
    Put(Key, Bytes),
    /// The key goes.
    Delete(Key),
    /// Every key of the range goes.
    DeleteRange(KeyRange),
}

/// One operation of a change entry.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct AcceptedOperation {
    /// The caller's id.
    pub id: OperationId,
    /// Hash of the request that was accepted.
    pub request_hash: RequestHash,
    /// What the caller is told, and told again on a retry.
    pub results: Vec<MutationResult>,
    /// What happens to the state, in order.
    pub mutations: Vec<Resolved>,
}

/// The operations of one accepted transition, in order.
///
/// It does not carry its version: the head assigns that, so that a candidate
/// which lost a race can be published later as it is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Change {
    /// When it was decided, by the clock of the process that did: milliseconds
    /// since 1970. For people, and for retention by age; nothing else may rest
    /// on it, since no two clocks agree.
    pub decided_at_ms: u64,
    /// At least one in a stored entry.
    pub operations: Vec<AcceptedOperation>,
}

impl Change {
    /// The receipts that this change carries once it is accepted at `version`.
    pub fn receipts(&self, version: StateVersion) -> impl Iterator<Item = Receipt> {
        self.operations.iter().zip(0..).map(move |(operation, position)| Receipt {
            operation_id: operation.id.clone(),
            request_hash: operation.request_hash,
            accepted_at: version,
            position,
            results: operation.results.clone(),
        })
    }

    /// All mutations, in the order in which they are replayed.
    pub fn mutations(&self) -> impl Iterator<Item = &Resolved> {
        self.operations.iter().flat_map(|it| &it.mutations)
    }
}

impl ChainHash {
    /// The chain of a new history: it depends on nothing but the history's id,
    /// so that histories with equal changes still have different chains.
    pub fn first(history_id: HistoryId) -> Self {
        let mut hasher = blake3::Hasher::new();
        hasher.update(b"headwater chain 1");
        hasher.update(history_id.as_bytes());
        Self::from_bytes(*hasher.finalize().as_bytes())
    }

    /// The chain after the change with this hash became `version`.
    #[must_use]
    pub fn extend(self, version: StateVersion, change: ContentHash) -> Self {
        let mut hasher = blake3::Hasher::new();
        hasher.update(self.as_bytes());
        hasher.update(&version.get().to_be_bytes());
        hasher.update(change.as_bytes());
        Self::from_bytes(*hasher.finalize().as_bytes())
    }
}
