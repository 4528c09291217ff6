//! Writing what maintenance publishes. Publishing it is the caller's.

mod cut;
mod objects;
mod snapshot;

pub use self::objects::{write_empty_snapshot, write_receipt_pages, write_segment};
pub use self::snapshot::{BuildOptions, BuiltSnapshot, build_snapshot};
