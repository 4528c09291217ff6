//! Evidence of acceptance, kept for a bounded range of versions.
//!
//! ```text
//!  coverage_from                     state_version
//!       |                                  |
//!  -----[==================================]----->  versions
//!  lost   every acceptance has its receipt
//! ```

#[cfg(test)]
mod receipt_test;

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

use crate::hash::RequestHash;
use crate::id::OperationId;
use crate::version::StateVersion;

/// What a mutation computed when it was accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct MutationResult {
    /// Index of the mutation in the request.
    pub mutation: u32,
    /// The sum after an addition.
    pub sum: i64,
}

/// Proof that one operation was accepted, where, and with what result.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Receipt {
    /// The accepted operation.
    pub operation_id: OperationId,
    /// What it asked for.
    pub request_hash: RequestHash,
    /// The version that it became part of.
    pub accepted_at: StateVersion,
    /// Its place among the operations of that version.
    pub position: u32,
    /// What its mutations computed.
    pub results: Vec<MutationResult>,
}

impl Receipt {
    /// What the receipt costs to keep, in bytes: the unit of
    /// [`Window::bytes_max`]. Close to its size in a receipt page.
    pub fn size_bytes(&self) -> u64 {
        let fixed = 32 + 8 + 4 + 2;
        fixed + self.operation_id.as_str().len() as u64 + 12 * self.results.len() as u64
    }
}

/// How far back receipts are kept. Every writer of a history may have its own:
/// coverage only ever rises, by whoever wants it highest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Window {
    /// State versions whose receipts are kept, the newest included. At least 1:
    /// the receipt of a publication that got no answer has to be found.
    pub versions_max: u64,
    /// Receipts kept, in [`Receipt::size_bytes`]. The newest version's stay
    /// whatever they take.
    pub bytes_max: u64,
}

/// The receipts of every operation accepted from `coverage_from` on, indexed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReceiptIndex {
    coverage_from: StateVersion,
    by_id: BTreeMap<OperationId, Receipt>,
    /// Per version, oldest first: what it takes, and the ids.
    versions: VecDeque<VersionReceipts>,
    size_bytes: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct VersionReceipts {
    version: StateVersion,
    ids: Vec<OperationId>,
    size_bytes: u64,
}

impl ReceiptIndex {
    /// The index of a head whose receipts have not been added yet.
    pub fn new(coverage_from: StateVersion) -> Self {
        Self { coverage_from, by_id: BTreeMap::new(), versions: VecDeque::new(), size_bytes: 0 }
    }

    /// First version of which every acceptance is on record.
    pub fn coverage_from(&self) -> StateVersion {
        self.coverage_from
    }

    /// How many receipts there are.
    pub fn len(&self) -> usize {
        self.by_id.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.by_id.is_empty()
    }

    /// The receipt of an operation, whatever its request hash.
    pub fn find(&self, id: &OperationId) -> Option<&Receipt> {
        self.by_id.get(id)
    }

    /// The receipts of versions from `from` up to `to`, oldest first: what a
    /// page is made of.
    pub fn between(&self, from: StateVersion, to: StateVersion) -> impl Iterator<Item = &Receipt> {
        let start = self.versions.partition_point(|it| it.version < from);
        let versions = self.versions.range(start..).take_while(move |it| it.version <= to);
        versions.flat_map(|it| &it.ids).filter_map(|id| self.by_id.get(id))
    }

    /// Adds the receipts of one version, newer than all before.
    ///
    /// Below coverage they are dropped: a head may name a page that begins
    /// before its boundary.
    ///
    /// # Panics
    ///
    /// When the version is not newer than those added before.
    pub fn push(&mut self, version: StateVersion, receipts: impl IntoIterator<Item = Receipt>) {
        let newest = self.versions.back().map(|it| it.version);
        assert!(newest.is_none_or(|it| it < version), "receipts are added in order of versions");
        if version < self.coverage_from {
            return;
        }
        let mut added = VersionReceipts { version, ids: Vec::new(), size_bytes: 0 };
        for receipt in receipts {
            added.size_bytes += receipt.size_bytes();
            added.ids.push(receipt.operation_id.clone());
            self.by_id.insert(receipt.operation_id.clone(), receipt);
        }
        self.size_bytes += added.size_bytes;
        self.versions.push_back(added);
    }

    /// Where coverage begins once `added` (bytes of receipts for each new
    /// version, oldest first) follow what is here, under `window`.
    ///
    /// Pure planning: the head that moves the boundary is published first, and
    /// [`ReceiptIndex::raise_coverage`] follows its success.
    pub fn plan_coverage(
        &self,
        window: Window,
        newest: StateVersion,
        added: &[u64],
    ) -> StateVersion {
        let newest = StateVersion::new(newest.get() + added.len() as u64);
        let by_versions =
            StateVersion::new((newest.get() + 1).saturating_sub(window.versions_max.max(1)));
        let mut total = self.size_bytes + added.iter().sum::<u64>();
        let mut by_bytes = self.coverage_from;
        let first_added = StateVersion::new(newest.get() + 1 - added.len() as u64);
        let kept = self.versions.iter().map(|it| (it.version, it.size_bytes));
        let new = (first_added.get()..).map(StateVersion::new).zip(added.iter().copied());
        for (version, size_bytes) in kept.chain(new) {
            if total <= window.bytes_max || version == newest {
                break;
            }
            total -= size_bytes;
            by_bytes = version.next();
        }
        self.coverage_from.max(by_versions).max(by_bytes)
    }

    /// Forgets what a published head no longer covers.
    ///
    /// Dropping receipts and moving the boundary past them is one step: an
    /// index that forgot a receipt it claims to cover would let an accepted
    /// operation be applied again.
    pub fn raise_coverage(&mut self, coverage_from: StateVersion) {
        self.coverage_from = self.coverage_from.max(coverage_from);
        let mut kept_from = self.coverage_from;
        if planted!(ReceiptDroppedEarly) {
            kept_from = kept_from.next();
        }
        while let Some(oldest) = self.versions.front() {
            if kept_from <= oldest.version {
                break;
            }
            self.size_bytes -= oldest.size_bytes;
            for id in &oldest.ids {
                // The id may have been accepted again after its first receipt
                // was dropped elsewhere; the newer receipt stays.
                if self.by_id.get(id).is_some_and(|it| it.accepted_at == oldest.version) {
                    self.by_id.remove(id);
                }
            }
            self.versions.pop_front();
        }
    }
}
