//! Writing the other immutable objects: empty snapshots, segments, receipt
//! pages.

use headwater_core::format;
use headwater_core::format::segment::Segment;
use headwater_core::format::snapshot::SnapshotIndex;
use headwater_core::head::{ObjectRef, RunRef};
use headwater_core::id::{HistoryId, HistoryName};
use headwater_core::keys::ObjectKind;
use headwater_core::receipt::Receipt;
use headwater_core::version::{Revision, StateVersion};
use headwater_store::{PutError, Store};

use crate::loader::{LoadedChange, Loader};

/// A receipt page ends before it would pass this size, in
/// [`Receipt::size_bytes`]: 1 MiB. One version's receipts stay together.
const PAGE_BYTES_MAX: u64 = 1 << 20;

/// Writes the snapshot that a new history begins with, staged at the revision
/// of the cleared head that the history takes over, or at 0 where there is none.
///
/// # Errors
///
/// [`PutError`].
pub async fn write_empty_snapshot(
    store: &dyn Store,
    history: &HistoryName,
    id: HistoryId,
    staged: Revision,
) -> Result<ObjectRef, PutError> {
    let bytes = format::snapshot::encode(&SnapshotIndex::empty(id));
    put(store, history, ObjectKind::Snapshot, staged, bytes).await
}

/// Writes a run of consecutive changes as one segment.
///
/// # Errors
///
/// [`PutError`].
///
/// # Panics
///
/// When there is no change, or one is missing between two others.
pub async fn write_segment(
    loader: &Loader,
    staged: Revision,
    changes: &[LoadedChange],
) -> Result<RunRef, PutError> {
    let (from, to) = run_of(changes);
    let entries = changes.iter().map(|it| (it.hash, it.bytes.clone())).collect();
    let bytes = format::segment::encode(&Segment { from_version: from, entries });
    let source = loader.source();
    let object = put(&*source.store, &source.history, ObjectKind::Segment, staged, bytes).await?;
    Ok(RunRef { from, to, object })
}

/// Writes the receipts of a run of consecutive versions, in order, as pages of
/// about 1 MiB. None for none. One page at a time is in memory beside them.
///
/// # Errors
///
/// [`PutError`].
///
/// # Panics
///
/// When a version is missing between two others.
pub async fn write_receipt_pages(
    loader: &Loader,
    staged: Revision,
    receipts: &[Receipt],
) -> Result<Vec<RunRef>, PutError> {
    let versions: Vec<&[Receipt]> =
        receipts.chunk_by(|a, b| a.accepted_at == b.accepted_at).collect();
    let has_gap = versions.windows(2).any(|it| {
        let [before, after] = it else { return false };
        let next = before.first().map(|it| it.accepted_at.next());
        next != after.first().map(|it| it.accepted_at)
    });
    assert!(!has_gap, "every version has receipts, and they are in order");
    let mut pages = Vec::new();
    let mut page = PageInMaking::default();
    for receipts in versions {
        let size_bytes = receipts.iter().map(Receipt::size_bytes).sum::<u64>();
        if !page.receipts.is_empty() && PAGE_BYTES_MAX < page.size_bytes + size_bytes {
            pages.extend(std::mem::take(&mut page).write(loader, staged).await?);
        }
        page.receipts.extend_from_slice(receipts);
        page.size_bytes += size_bytes;
    }
    pages.extend(page.write(loader, staged).await?);
    Ok(pages)
}

#[derive(Debug, Default)]
struct PageInMaking {
    receipts: Vec<Receipt>,
    size_bytes: u64,
}

impl PageInMaking {
    async fn write(self, loader: &Loader, staged: Revision) -> Result<Option<RunRef>, PutError> {
        let (Some(first), Some(last)) = (self.receipts.first(), self.receipts.last()) else {
            return Ok(None);
        };
        let (from, to) = (first.accepted_at, last.accepted_at);
        let bytes = format::receipts::encode(&self.receipts);
        let source = loader.source();
        let object =
            put(&*source.store, &source.history, ObjectKind::Receipts, staged, bytes).await?;
        Ok(Some(RunRef { from, to, object }))
    }
}

/// First and last version.
fn run_of(changes: &[LoadedChange]) -> (StateVersion, StateVersion) {
    let (Some(first), Some(last)) = (changes.first(), changes.last()) else {
        panic!("a run holds at least one change");
    };
    let versions = changes.iter().map(|it| it.version.get());
    assert!(versions.eq(first.version.get()..=last.version.get()), "a run has no gap");
    (first.version, last.version)
}

pub(crate) async fn put(
    store: &dyn Store,
    history: &HistoryName,
    kind: ObjectKind,
    staged: Revision,
    bytes: Vec<u8>,
) -> Result<ObjectRef, PutError> {
    let object = ObjectRef::to_content(kind, staged, &bytes);
    store.put(&history.object_key(&object.key), bytes.into()).await?;
    Ok(object)
}
