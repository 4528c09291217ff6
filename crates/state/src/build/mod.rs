//! Writing what maintenance publishes. Publishing it is the caller's.

mod chunks;
mod cut;
mod index;
mod objects;
mod replaced;
mod snapshot;
mod target;

#[cfg(test)]
pub(crate) use self::cut::ChunkBytes;
#[cfg(test)]
pub(crate) use self::index::PageChunks;
pub(crate) use self::objects::put;
pub use self::objects::{write_empty_snapshot, write_receipt_pages, write_segment};
pub use self::snapshot::{BuildOptions, BuiltSnapshot, build_fork, build_snapshot};
#[cfg(test)]
pub(crate) use self::snapshot::{Sizes, build_fork_sized, build_sized};
