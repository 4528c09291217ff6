//! Local state over the bucket: views of one version, and what makes them.
//!
//! In here: fetching and verifying what a head names, the chunk cache, the
//! overlay of the tail, reading from both as one ordered map, and writing
//! snapshots, segments and receipt pages. Not in here: which head is current,
//! what may be published, and when to compact; writer and replica drive this.
//!
//! ```text
//! head -> Loader::open, Loader::advance -> View -> get, scan, newest_change
//!                                           |
//!             overlay (tail) over chunks (snapshot, fetched when read)
//!                                           |
//!                                           +-> build_snapshot -> bucket
//! ```
//!
//! # Architecture invariants
//!
//! - A [`View`] never changes. A request that holds one sees one version.
//! - Not a byte of an object is used before its length and hash agree with the
//!   reference that named it. A damaged object is an error that names its key:
//!   it is never skipped and never served.
//! - Every entry of the overlay is newer than every entry of the snapshot, and
//!   newer than a deleted range that contains it.
//! - Local copies are never the truth: the cache is filled from the bucket, by
//!   content hash, and may lose anything at any time.

mod build;
mod cache;
mod chunk;
mod disk;
mod error;
mod hydrate;
mod loader;
mod memory;
mod overlay;
mod page;
mod seen;
mod source;
mod span;
mod view;

#[cfg(test)]
mod bucket;
#[cfg(test)]
mod build_test;
#[cfg(test)]
mod cold_test;
#[cfg(test)]
mod damage_test;
#[cfg(test)]
mod difference_test;
#[cfg(test)]
mod fetch_test;
#[cfg(test)]
mod fork_test;
#[cfg(test)]
mod hydrate_test;
#[cfg(test)]
mod model_test;
#[cfg(test)]
mod page_test;

pub use self::build::{
    BuildOptions, BuiltSnapshot, build_fork, build_snapshot, write_empty_snapshot,
    write_receipt_pages, write_segment,
};
pub use self::cache::{ChunkCache, ChunkCacheReadings};
pub use self::disk::{DiskCache, DiskCacheInUse, DiskConduct, DiskReadings};
pub use self::error::{BuildError, Defect, StateError};
pub use self::hydrate::{Hydrated, HydrationRate};
pub use self::loader::{Advanced, LoadOptions, LoadedChange, Loader, Opened, ReachedObject};
pub use self::memory::{Memory, MemoryPart};
pub use self::seen::Seen;
pub use self::view::{Difference, Entry, Page, Scan, View};
