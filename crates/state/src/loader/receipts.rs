//! Every receipt that a head covers.

use futures::stream::BoxStream;
use futures::{StreamExt as _, TryStreamExt as _, stream};
use headwater_core::follow::Position;
use headwater_core::format;
use headwater_core::head::{Head, RunRef};
use headwater_core::receipt::{Receipt, ReceiptIndex};
use headwater_core::version::StateVersion;
use headwater_store::planted;

use super::{LoadedChange, Loader, Opened};
use crate::error::StateError;

impl Loader {
    /// The receipts that `head` covers: those of its pages, which are fetched,
    /// and those of `tail`, all of its tail.
    ///
    /// # Errors
    ///
    /// [`StateError`]; [`StateError::Bad`] also when a page leaves out a
    /// version that it stands for. A receipt that is claimed and not there
    /// would let an accepted operation be applied again.
    ///
    /// # Panics
    ///
    /// When `tail` is not the whole tail, for the same reason.
    pub async fn receipts(
        &self,
        head: &Head,
        tail: &[LoadedChange],
    ) -> Result<ReceiptIndex, StateError> {
        Ok(with_tail(self.paged_receipts(head).await?, head, tail))
    }

    /// As [`Loader::open_after`], with the receipts that `head` covers: their
    /// pages are fetched beside the snapshot and the tail, and not after them.
    ///
    /// # Errors
    ///
    /// As for [`Loader::open_after`] and [`Loader::receipts`].
    pub async fn open_with_receipts(
        &self,
        head: &Head,
        seen: Option<&Position>,
    ) -> Result<(Opened, ReceiptIndex), StateError> {
        let (opened, paged) =
            futures::try_join!(self.open_after(head, seen), self.paged_receipts(head))?;
        let receipts = with_tail(paged, head, &opened.changes);
        Ok((opened, receipts))
    }

    async fn paged_receipts(&self, head: &Head) -> Result<ReceiptIndex, StateError> {
        let mut index = ReceiptIndex::new(head.receipt_coverage_from);
        let mut pages = self.fetch_pages(head);
        if planted!(ReceiptPagesUnread) {
            pages = stream::empty().boxed();
        }
        while let Some(receipts) = pages.try_next().await? {
            for version in receipts.chunk_by(|a, b| a.accepted_at == b.accepted_at) {
                if let Some(first) = version.first() {
                    index.push(first.accepted_at, version.iter().cloned());
                }
            }
        }
        Ok(index)
    }

    fn fetch_pages<'a>(
        &'a self,
        head: &'a Head,
    ) -> BoxStream<'a, Result<Vec<Receipt>, StateError>> {
        let fetches = stream::iter(&head.receipt_pages).map(|page| self.fetch_page(head, page));
        fetches.buffered(self.options.fetches_max).boxed()
    }

    async fn fetch_page(&self, head: &Head, page: &RunRef) -> Result<Vec<Receipt>, StateError> {
        let receipts = self.source.fetch_as(&page.object, format::receipts::decode).await?;
        let mut versions: Vec<StateVersion> = receipts.iter().map(|it| it.accepted_at).collect();
        versions.dedup();
        // An accepted change has at least one operation, so no version is
        // without a receipt. Below coverage nobody relies on them.
        let covered = page.from.max(head.receipt_coverage_from);
        let found = versions.iter().filter(|it| covered <= **it).map(|it| it.get());
        let is_within = versions.first().is_none_or(|it| page.from <= *it);
        if !is_within || !found.eq(covered.get()..=page.to.get()) {
            return Err(self.source.contradicts(&page.object, "versions"));
        }
        Ok(receipts)
    }
}

fn with_tail(mut index: ReceiptIndex, head: &Head, tail: &[LoadedChange]) -> ReceiptIndex {
    let is_tail = tail
        .iter()
        .map(|it| it.version.get())
        .eq(head.tail_from().get()..=head.state_version.get());
    assert!(is_tail, "the tail of a head is every change after its snapshot");
    for it in tail {
        index.push(it.version, it.change.receipts(it.version));
    }
    index
}
