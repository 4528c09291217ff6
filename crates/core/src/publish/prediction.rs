//! What a batch is decided against.

use alloc::vec::Vec;

use super::Publisher;
use super::batch::{Batch, DecidedChange};
use crate::decide::Basis;
use crate::head::Head;
use crate::id::{HistoryId, OperationId};
use crate::receipt::Receipt;
use crate::version::StateVersion;

/// The head as it will be after the batches before one.
pub(super) struct Prediction<'a> {
    pub(super) publisher: &'a Publisher,
    pub(super) before: usize,
}

impl Prediction<'_> {
    fn head(&self) -> &Head {
        let Some(observed) = &self.publisher.observed else {
            panic!("a batch is decided against a head")
        };
        &observed.head
    }

    fn changes(&self) -> impl Iterator<Item = &DecidedChange> {
        self.publisher.pipeline.iter().take(self.before).filter_map(Batch::decided_change)
    }
}

impl Basis for Prediction<'_> {
    fn history_id(&self) -> HistoryId {
        self.head().history_id
    }

    fn state_version(&self) -> StateVersion {
        self.changes().last().map_or(self.head().state_version, |it| it.version)
    }

    fn coverage_from(&self) -> StateVersion {
        let added: Vec<u64> = self.changes().map(|it| it.receipt_bytes).collect();
        let evidence = &self.publisher.evidence;
        if added.is_empty() {
            return evidence.coverage_from();
        }
        let newest = self.head().state_version;
        evidence.plan_coverage(self.publisher.settings.window, newest, &added)
    }

    fn required_epoch(&self) -> Option<u64> {
        self.head().is_exclusive.then_some(self.head().writer_epoch)
    }

    fn receipt(&self, id: &OperationId) -> Option<&Receipt> {
        let evidence = self.publisher.evidence.find(id);
        evidence.or_else(|| self.changes().find_map(|it| it.receipts.get(id)))
    }
}
