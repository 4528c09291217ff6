//! Receipts: every operation that is covered has one, and it is what the change
//! says.
//!
//! The tail is its own evidence. Pages stand for versions up to the newest
//! snapshot's; where the archive still has those changes, they are compared.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use futures::{StreamExt as _, stream};
use headwater_core::change::Change;
use headwater_core::format;
use headwater_core::hash::ContentHash;
use headwater_core::head::{Head, RunRef};
use headwater_core::id::OperationId;
use headwater_core::receipt::Receipt;
use headwater_core::version::StateVersion;

use super::{Walk, mark};
use crate::finding::{Finding, Kind, Role};
use crate::report::Part;
use crate::trouble::{Trouble, fetch};

/// What was seen of operations so far.
#[derive(Debug)]
pub(super) struct Covered {
    coverage_from: StateVersion,
    /// What pages say of a version that was not compared yet.
    by_version: BTreeMap<StateVersion, OfVersion>,
    /// Operations that are covered.
    ids: HashSet<u128>,
    /// Versions whose operations were counted, and those.
    versions: u64,
    operations: u64,
    compared: u64,
}

#[derive(Debug)]
struct OfVersion {
    hash: ContentHash,
    count: u64,
    page: usize,
}

impl Covered {
    pub(super) fn new(head: &Head) -> Self {
        Self {
            coverage_from: head.receipt_coverage_from,
            by_version: BTreeMap::new(),
            ids: HashSet::new(),
            versions: 0,
            operations: 0,
            compared: 0,
        }
    }

    /// Takes an operation in; whether it is the first of its id.
    fn is_first(&mut self, version: StateVersion, id: &OperationId) -> bool {
        version < self.coverage_from || self.ids.insert(mark(id.as_str()))
    }

    fn count(&mut self, operations: u64) {
        self.versions += 1;
        self.operations += operations;
    }

    /// How many receipts of pages were compared with their changes.
    pub(super) fn compared(&self) -> u64 {
        self.compared
    }
}

fn hash_of(receipts: &[Receipt]) -> ContentHash {
    ContentHash::of(&format::receipts::encode(receipts))
}

impl Walk<'_> {
    /// Operations of a change of the tail.
    pub(super) fn count_of_tail(&mut self, key: &str, version: StateVersion, change: &Change) {
        self.covered.count(change.operations.len() as u64);
        for operation in &change.operations {
            if !self.covered.is_first(version, &operation.id) {
                self.repeated(Role::Tail, key, version, &operation.id);
            }
        }
    }

    fn repeated(&mut self, role: Role, key: &str, version: StateVersion, id: &OperationId) {
        let what = format!("operation {} was accepted before", id.as_str());
        let finding = Finding::new(Kind::OperationRepeated, role, key.to_owned(), what);
        self.found.add(finding.about(version, version));
    }

    /// Reads every page.
    pub(super) async fn walk_receipts(&mut self) {
        let keyed = |it: &RunRef| (it.clone(), self.key_of(&it.object.key));
        let pages: Vec<_> = self.head.receipt_pages.iter().map(keyed).collect();
        let store = Arc::clone(&self.store);
        let reads = stream::iter(pages.into_iter().enumerate()).map(|(at, (page, key))| {
            let store = Arc::clone(&store);
            async move {
                let bytes = fetch(&*store, &key, &page.object).await;
                (at, page, key, bytes)
            }
        });
        let mut reads = Box::pin(reads.buffered(self.fetches()));
        while let Some((at, page, key, bytes)) = reads.next().await {
            let decode = |it| format::receipts::decode(it).map_err(Trouble::of_decode);
            let read = bytes.and_then(decode).and_then(|receipts| {
                self.check_page(&page, &receipts)?;
                Ok(receipts)
            });
            match read {
                Ok(receipts) => {
                    self.sound.add(&key, page.object.size_bytes);
                    self.keep_page(at, &key, &receipts);
                }
                Err(trouble) => {
                    self.blame(Role::Receipts, &key, Some((page.from, page.to)), trouble);
                }
            }
        }
    }

    /// Every covered version that the page stands for has its receipts, in
    /// places that follow one another. Below coverage nobody relies on them.
    fn check_page(&self, page: &RunRef, receipts: &[Receipt]) -> Result<(), Trouble> {
        let mut next = page.from.max(self.head.receipt_coverage_from);
        for of_version in receipts.chunk_by(|a, b| a.accepted_at == b.accepted_at) {
            let version = of_version.first().map_or(next, |it| it.accepted_at);
            if version < page.from || page.to < version {
                return Err(Trouble::Damaged(format!("it holds receipts of version {version}")));
            }
            if version < self.head.receipt_coverage_from {
                continue;
            }
            let has_places = of_version.iter().zip(0..).all(|(it, place)| it.position == place);
            if version != next || !has_places {
                return Err(Trouble::Damaged(format!("it lacks receipts of version {next}")));
            }
            next = version.next();
        }
        if next <= page.to {
            return Err(Trouble::Damaged(format!("it lacks receipts of version {next}")));
        }
        Ok(())
    }

    fn keep_page(&mut self, page: usize, key: &str, receipts: &[Receipt]) {
        for of_version in receipts.chunk_by(|a, b| a.accepted_at == b.accepted_at) {
            let Some(version) = of_version.first().map(|it| it.accepted_at) else { continue };
            for receipt in of_version {
                if !self.covered.is_first(version, &receipt.operation_id) {
                    self.repeated(Role::Receipts, key, version, &receipt.operation_id);
                }
            }
            let (hash, count) = (hash_of(of_version), of_version.len() as u64);
            self.covered.by_version.insert(version, OfVersion { hash, count, page });
        }
    }

    /// Compares a change of the archive with what a page says of it.
    pub(super) fn compare_receipts(&mut self, version: StateVersion, change: &Change) {
        self.covered.count(change.operations.len() as u64);
        let Some(of_version) = self.covered.by_version.remove(&version) else { return };
        let receipts: Vec<Receipt> = change.receipts(version).collect();
        if hash_of(&receipts) == of_version.hash {
            self.covered.compared += receipts.len() as u64;
            return;
        }
        let Some(page) = self.head.receipt_pages.get(of_version.page) else { return };
        let key = self.key_of(&page.object.key);
        let what = format!("receipts of version {version} differ from its change");
        let finding = Finding::new(Kind::ReceiptsWrong, Role::Receipts, key, what);
        self.found.add(finding.about(version, version));
    }

    /// Compares the head's count with the operations that were seen: all of them
    /// where every change is at hand, else as many as there are at least.
    pub(super) fn check_counts(&mut self) {
        let has_all =
            [Part::Tail, Part::Receipts, Part::Archive].iter().all(|it| self.is_done(*it));
        if !has_all {
            return;
        }
        let rest = std::mem::take(&mut self.covered.by_version);
        for of_version in rest.values() {
            self.covered.count(of_version.count);
        }
        let (counted, stated) = (self.covered.operations, self.head.operation_count);
        let unseen = self.head.state_version.get().saturating_sub(self.covered.versions);
        let is_wrong =
            if unseen == 0 { counted != stated } else { stated < counted.saturating_add(unseen) };
        if is_wrong {
            let at_least = if unseen == 0 { "" } else { "at least " };
            let there_are = counted.saturating_add(unseen);
            let what = format!("it counts {stated} operations, there are {at_least}{there_are}");
            let key = self.head.history.head_key();
            self.found.add(Finding::new(Kind::OperationCount, Role::Head, key, what));
        }
    }
}
