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
//! chunks read ahead, [`BuildOptions::uploads_max`] on their way out, each
//! under 6 MiB decompressed and 1 MiB on average; beside that the two indexes,
//! about 200 bytes a chunk with short keys. It does not grow with the state's
//! size otherwise.

use std::sync::Arc;

use futures::stream::BoxStream;
use futures::{StreamExt as _, TryStreamExt as _, stream};
use headwater_core::format;
use headwater_core::format::snapshot::{ChunkRef, SnapshotIndex};
use headwater_core::head::SnapshotRef;
use headwater_core::keys::{ObjectKey, ObjectKind};
use headwater_core::operation::Key;
use headwater_core::version::Revision;

use super::chunks::{ChunkWriter, unshared};
use super::cut::{ChunkBytes, Cutter};
use super::objects::put;
use crate::chunk::Chunk;
use crate::error::{BuildError, StateError};
use crate::loader::Loader;
use crate::overlay::Overlay;
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
    /// What `based_on` reaches and this one does not, its index left out, in
    /// order of object keys: what a head that moves from one to the other lets
    /// go. About 150 bytes in memory for each chunk that was rewritten.
    pub replaced: Vec<ObjectKey>,
    /// Chunks uploaded.
    pub chunks_written: usize,
    /// Chunks taken over by reference.
    pub chunks_reused: usize,
    /// Bytes uploaded, the index included.
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
    build_sized(loader, view, staged, options, ChunkBytes::STANDARD).await
}

/// As [`build_snapshot`], with chunks of other sizes.
pub(crate) async fn build_sized(
    loader: &Loader,
    view: &View,
    staged: Revision,
    options: BuildOptions,
    sizes: ChunkBytes,
) -> Result<BuiltSnapshot, BuildError> {
    let source = loader.source();
    let uploads_max = options.uploads_max.max(1);
    let mut writer = ChunkWriter::new(source, view.base(), staged, Cutter::new(sizes), uploads_max);
    merge(view, &mut writer, options.reads_max.max(1)).await?;
    let chunks = writer.finish().await?;

    let index = SnapshotIndex {
        history_id: view.history_id(),
        version: view.version(),
        chain_hash: view.chain_hash(),
        chunks,
    };
    let bytes = format::snapshot::encode(&index);
    let object = put(&*source.store, &source.history, ObjectKind::Snapshot, staged, bytes).await?;
    Ok(BuiltSnapshot {
        bytes_written: writer.bytes_written + object.size_bytes,
        snapshot: SnapshotRef { version: view.version(), object },
        based_on: view.snapshot().clone(),
        replaced: writer.take_replaced(),
        chunks_written: writer.chunks_written,
        chunks_reused: writer.chunks_reused,
    })
}

/// Brings the entries of `view`, in order, to `writer`: whole chunks where it
/// can take them.
async fn merge(
    view: &View,
    writer: &mut ChunkWriter<'_>,
    reads_max: usize,
) -> Result<(), BuildError> {
    let (base, overlay) = (view.base(), view.overlay());
    let last_put = overlay.last_put();
    let mut written = overlay.iter().peekable();
    let mut reads = read_touched(base, overlay, reads_max);
    while let Some((chunk, fate)) = reads.try_next().await? {
        while let Some((key, it)) = written.next_if(|(key, _)| **key < chunk.first) {
            writer.push_written(key, it).await?;
        }
        let read = match fate {
            Fate::Hidden => {
                writer.replace(chunk);
                continue;
            }
            Fate::Untouched if writer.is_at_cut() && ends_the_same(chunk, base, last_put) => {
                writer.reuse(chunk.clone());
                continue;
            }
            Fate::Untouched => base.fetch_once(chunk).await?,
            Fate::Touched(read) => read,
        };
        writer.replace(chunk);
        for entry in read.entries() {
            while let Some((key, it)) = written.next_if(|(key, _)| **key < entry.key) {
                writer.push_written(key, it).await?;
            }
            let is_overwritten = written.peek().is_some_and(|(key, _)| **key == entry.key);
            if !is_overwritten && !overlay.is_masked(entry.key.as_ref()) {
                writer.push(unshared(entry)).await?;
            }
        }
    }
    for (key, it) in written {
        writer.push_written(key, it).await?;
    }
    Ok(())
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

/// The chunks of `base` in order, the touched ones read a few ahead.
fn read_touched<'a>(
    base: &'a Base,
    overlay: &'a Overlay,
    reads_max: usize,
) -> BoxStream<'a, Result<(&'a ChunkRef, Fate), StateError>> {
    let reads = stream::iter(base.chunks()).map(move |it| read_if_touched(base, overlay, it));
    reads.buffered(reads_max).boxed()
}

async fn read_if_touched<'a>(
    base: &Base,
    overlay: &Overlay,
    chunk: &'a ChunkRef,
) -> Result<(&'a ChunkRef, Fate), StateError> {
    let (first, last) = (chunk.first.as_ref(), chunk.last.as_ref());
    let fate = if overlay.is_untouched(first, last) {
        Fate::Untouched
    } else if overlay.is_all_masked(first, last) {
        Fate::Hidden
    } else {
        Fate::Touched(base.fetch_once(chunk).await?)
    };
    Ok((chunk, fate))
}

/// Whether an untouched chunk that begins at a cut also ends as it did. All but
/// the last of a snapshot end with a cut; the last one ends with the entries,
/// and has to be cut anew when something follows it now.
fn ends_the_same(chunk: &ChunkRef, base: &Base, last_put: Option<&Key>) -> bool {
    let is_last = base.chunks().last().is_some_and(|it| it.first == chunk.first);
    !is_last || last_put.is_none_or(|it| *it < chunk.last)
}
