//! A snapshot of a view: old chunks by reference where nothing changed, new
//! ones where something did.
//!
//! ```text
//! old    [a..c][d..g][h..k][l..p]
//! tail            f   (hidden: h-k)
//! new    [a..c][d f g][l..p]         first and last by reference
//! ```
//!
//! Memory: entries of one chunk in the making, [`BuildOptions::reads_max`]
//! chunks read ahead, [`BuildOptions::uploads_max`] objects on their way out,
//! each under 6 MiB decompressed and 1 MiB on average; beside that one page of
//! the old index and one of the new, the tops of both, and about 150 bytes for
//! each part that is replaced. It does not grow with the state's size otherwise.

use std::iter::Peekable;
use std::sync::Arc;

use futures::stream::BoxStream;
use futures::{StreamExt as _, TryStreamExt as _, stream};
use headwater_core::format;
use headwater_core::format::snapshot::{OWNERS_MAX, SnapshotIndex};
use headwater_core::head::SnapshotRef;
use headwater_core::id::{HistoryId, HistoryName};
use headwater_core::keys::{ObjectKey, ObjectKind};
use headwater_core::operation::Key;
use headwater_core::version::Revision;

use super::chunks::{ChunkWriter, unshared};
use super::cut::{ChunkBytes, Cutter};
use super::index::{IndexWriter, PageChunks};
use super::objects::put;
use super::target::{Target, Uploads};
use crate::chunk::Chunk;
use crate::error::{BuildError, StateError};
use crate::loader::Loader;
use crate::overlay::{Overlay, Written};
use crate::page::{ChunkAt, OpenPage, PagePlace};
use crate::view::{Base, View};

/// How a snapshot is built.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BuildOptions {
    /// Chunks read ahead; at least 1 is taken.
    pub reads_max: usize,
    /// Chunks uploaded at once; at least 1 is taken.
    pub uploads_max: usize,
}

impl Default for BuildOptions {
    fn default() -> Self {
        Self { reads_max: 4, uploads_max: 4 }
    }
}

/// A snapshot, durable and not published.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BuiltSnapshot {
    /// What a head is to name.
    pub snapshot: SnapshotRef,
    /// The snapshot whose chunks it reuses. It may be published only over a
    /// head that still names this one, unless nothing was reused: what a head
    /// let go may be swept (PROTOCOL 7).
    pub based_on: SnapshotRef,
    /// Whether `based_on` leads to objects of other histories itself.
    pub based_on_others: bool,
    /// The other histories that have objects which it leads to, in order.
    pub owners: Vec<HistoryName>,
    /// Chunks and pages of the history that `based_on` leads to and this one
    /// does not, its index left out, in order of object keys: what a head that
    /// moves from one to the other lets go. Nothing in a fork, which lets go of
    /// nothing. About 150 bytes in memory for each.
    pub replaced: Vec<ObjectKey>,
    /// Chunks uploaded.
    pub chunks_written: usize,
    /// Chunks taken over by reference.
    pub chunks_reused: usize,
    /// Bytes uploaded, the index and its pages included.
    pub bytes_written: u64,
}

/// Builds a snapshot of `view`; new objects are staged at `staged`, a revision
/// that the caller had read before.
///
/// Equal states over equal snapshots with an equal `staged` give equal objects:
/// two builders do no harm. Cancel safe: what was uploaded stays as garbage for
/// the sweep.
///
/// # Errors
///
/// [`BuildError`]; nothing is to be published.
pub async fn build_snapshot(
    loader: &Loader,
    view: &View,
    staged: Revision,
    options: BuildOptions,
) -> Result<BuiltSnapshot, BuildError> {
    build_sized(loader, view, staged, options, Sizes::STANDARD).await
}

/// Builds the snapshot that a fork begins with: the state of `view` for another
/// history. Chunks and pages of the snapshot below the view are named where they
/// lie, and not copied; what the tail wrote is written below the new history.
///
/// Whoever publishes it sees to it that the histories in
/// [`BuiltSnapshot::owners`] keep what the snapshot names.
///
/// # Errors
///
/// [`BuildError`]; nothing is to be published.
pub async fn build_fork(
    loader: &Loader,
    view: &View,
    child: (&HistoryName, HistoryId),
    staged: Revision,
    options: BuildOptions,
) -> Result<BuiltSnapshot, BuildError> {
    build_fork_sized(loader, view, child, staged, options, Sizes::STANDARD).await
}

/// As [`build_fork`], with parts of other sizes.
pub(crate) async fn build_fork_sized(
    loader: &Loader,
    view: &View,
    (history, id): (&HistoryName, HistoryId),
    staged: Revision,
    options: BuildOptions,
    sizes: Sizes,
) -> Result<BuiltSnapshot, BuildError> {
    let target = Target::fork(loader.source(), history.clone(), id, staged);
    build(&target, view, options, sizes).await
}

/// Where chunks and pages are cut.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sizes {
    pub(crate) chunk: ChunkBytes,
    pub(crate) page: PageChunks,
}

impl Sizes {
    pub(crate) const STANDARD: Self =
        Self { chunk: ChunkBytes::STANDARD, page: PageChunks::STANDARD };
}

/// As [`build_snapshot`], with parts of other sizes.
pub(crate) async fn build_sized(
    loader: &Loader,
    view: &View,
    staged: Revision,
    options: BuildOptions,
    sizes: Sizes,
) -> Result<BuiltSnapshot, BuildError> {
    let target = Target::same(loader.source(), view.history_id(), staged);
    build(&target, view, options, sizes).await
}

async fn build(
    target: &Target,
    view: &View,
    options: BuildOptions,
    sizes: Sizes,
) -> Result<BuiltSnapshot, BuildError> {
    let base = view.base();
    let n_owners = base.owners().len() + target.parent().iter().count();
    if OWNERS_MAX < n_owners {
        return Err(BuildError::TooManyOwners { limit: OWNERS_MAX });
    }
    let (cutter, uploads) = (Cutter::new(sizes.chunk), Uploads::new(options.uploads_max.max(1)));
    let mut writer = ChunkWriter::new(target, cutter, IndexWriter::new(sizes.page), uploads);
    merge(view, &mut writer, options.reads_max.max(1)).await?;
    let (parts, tally) = writer.finish(base).await?;

    let index = SnapshotIndex {
        history_id: target.history_id,
        version: view.version(),
        chain_hash: view.chain_hash(),
        parts,
    };
    let owners = index.owners().iter().map(|it| HistoryName::clone(it)).collect();
    let bytes = format::snapshot::encode(&index);
    let kind = ObjectKind::Snapshot;
    let object = put(&*target.store, &target.history, kind, target.staged, bytes).await?;
    Ok(BuiltSnapshot {
        bytes_written: tally.bytes_written + object.size_bytes,
        snapshot: SnapshotRef { version: view.version(), object },
        based_on: view.snapshot().clone(),
        based_on_others: !base.owners().is_empty(),
        owners,
        replaced: tally.replaced.into_keys(),
        chunks_written: tally.chunks_written,
        chunks_reused: tally.chunks_reused,
    })
}

/// Brings the entries of `view`, in order, to `writer`: whole pages and chunks
/// where it can take them.
async fn merge(
    view: &View,
    writer: &mut ChunkWriter<'_>,
    reads_max: usize,
) -> Result<(), BuildError> {
    let (base, overlay) = (view.base(), view.overlay());
    let mut merging = Merging {
        base,
        overlay,
        written: overlay.iter().peekable(),
        last_put: overlay.last_put(),
        last_of_base: base.last_key(),
        reads_max,
    };
    for place in base.places() {
        let Some((first, last)) = place.bounds() else { continue };
        merging.push_before(first, writer).await?;
        if let PagePlace::There(page) = place {
            let is_untouched = overlay.is_untouched(first.as_ref(), last.as_ref());
            if is_untouched && writer.is_at_page_cut() && merging.ends_the_same(last) {
                writer.reuse_page(page);
                continue;
            }
            writer.replace_page(page);
        }
        merging.page(&base.page_once(place).await?, writer).await?;
    }
    for (key, it) in merging.written {
        writer.push_written(key, it).await?;
    }
    Ok(())
}

/// The two sorted runs that a snapshot is made of.
struct Merging<'a, I: Iterator<Item = (&'a Key, &'a Written)>> {
    base: &'a Base,
    overlay: &'a Overlay,
    written: Peekable<I>,
    last_put: Option<&'a Key>,
    last_of_base: Option<&'a Key>,
    reads_max: usize,
}

impl<'a, I: Iterator<Item = (&'a Key, &'a Written)>> Merging<'a, I> {
    /// What the tail wrote before `key`.
    async fn push_before(
        &mut self,
        key: &Key,
        writer: &mut ChunkWriter<'_>,
    ) -> Result<(), BuildError> {
        while let Some((key, it)) = self.written.next_if(|(written, _)| **written < *key) {
            writer.push_written(key, it).await?;
        }
        Ok(())
    }

    async fn page(
        &mut self,
        page: &OpenPage,
        writer: &mut ChunkWriter<'_>,
    ) -> Result<(), BuildError> {
        let (base, overlay) = (self.base, self.overlay);
        let mut reads = read_touched(page, base, overlay, self.reads_max);
        while let Some((chunk, fate)) = reads.try_next().await? {
            self.push_before(&chunk.first, writer).await?;
            let read = match fate {
                Fate::Untouched if writer.is_at_cut() && self.ends_the_same(&chunk.last) => {
                    writer.reuse(&chunk).await?;
                    continue;
                }
                Fate::Hidden => {
                    writer.replace(&chunk);
                    continue;
                }
                Fate::Untouched => base.fetch_once(&chunk).await?,
                Fate::Touched(read) => read,
            };
            writer.replace(&chunk);
            for entry in read.entries() {
                self.push_before(&entry.key, writer).await?;
                let is_overwritten = self.written.peek().is_some_and(|(key, _)| **key == entry.key);
                if !is_overwritten && !overlay.is_masked(entry.key.as_ref()) {
                    writer.push(unshared(entry)).await?;
                }
            }
        }
        Ok(())
    }

    /// Whether an untouched part that begins at a cut and ends with `last` also
    /// ends as it did. All but the last of a snapshot end with a cut; the last
    /// one ends with the entries, and has to be cut anew when something follows
    /// it now.
    fn ends_the_same(&self, last: &Key) -> bool {
        self.last_of_base != Some(last) || self.last_put.is_none_or(|it| it < last)
    }
}

/// What the tail did to an old chunk.
enum Fate {
    /// Nothing.
    Untouched,
    /// Every entry is gone; there is nothing to read.
    Hidden,
    /// Something: here are its entries.
    Touched(Arc<Chunk>),
}

/// The chunks of a page in order, the touched ones read a few ahead.
fn read_touched<'a>(
    page: &'a OpenPage,
    base: &'a Base,
    overlay: &'a Overlay,
    reads_max: usize,
) -> BoxStream<'a, Result<(ChunkAt, Fate), StateError>> {
    let reads = stream::iter(page.chunks()).map(move |it| read_if_touched(base, overlay, it));
    reads.buffered(reads_max).boxed()
}

async fn read_if_touched(
    base: &Base,
    overlay: &Overlay,
    chunk: ChunkAt,
) -> Result<(ChunkAt, Fate), StateError> {
    let (first, last) = (chunk.first.as_ref(), chunk.last.as_ref());
    let fate = if overlay.is_untouched(first, last) {
        Fate::Untouched
    } else if overlay.is_all_masked(first, last) {
        Fate::Hidden
    } else {
        Fate::Touched(base.fetch_once(&chunk).await?)
    };
    Ok((chunk, fate))
}
