//! Writing what maintenance publishes. Publishing it is the caller's.

mod chunks;
mod cut;
mod objects;
mod snapshot;

#[cfg(test)]
pub(crate) use self::cut::ChunkBytes;
pub(crate) use self::objects::put;
pub use self::objects::{write_empty_snapshot, write_receipt_pages, write_segment};
#[cfg(test)]
pub(crate) use self::snapshot::build_sized;
pub use self::snapshot::{BuildOptions, BuiltSnapshot, build_snapshot};
