//! Object storage as the protocol sees it.
//!
//! In here: one small trait, [`Store`]; adapters behind it (S3, Google Cloud
//! Storage and Azure through `object_store`, a local directory, memory), chosen
//! by URL ([`open`](fn@open));
//! decorators of one concern each ([`Layers`] puts them together); and the
//! [contract suite](contract) that every adapter passes. Not in here: what the
//! bytes mean.
//!
//! ```text
//! driver -> Retry (immutable objects, reads) -> Hedge -> Pace -> Timeout -> Meter -> adapter
//! ```
//!
//! # Architecture invariants
//!
//! - An adapter sends each call once. A client that silently repeats a
//!   conditional replacement reports its own success as a mismatch.
//! - Every answer to a write of the head is one of [`HeadWrite`]; only an
//!   answer that proves the head was not replaced is a mismatch, or says that
//!   the head is gone.
//! - Nobody lists to find state.

/// Whether a rig has planted this fault (`planted::Fault`). Without the feature
/// `planted`, which nothing that ships is built with, it says `false` and
/// nothing else: the compiler drops what depends on it.
#[cfg(feature = "planted")]
#[macro_export]
macro_rules! planted {
    ($fault:ident) => {
        $crate::planted::is($crate::planted::Fault::$fault)
    };
}
#[cfg(not(feature = "planted"))]
#[macro_export]
#[doc(hidden)]
macro_rules! planted {
    ($fault:ident) => {
        false
    };
}

/// In the root of every program that ships: it does not compile with faults in
/// what it is made of.
#[cfg(feature = "planted")]
#[macro_export]
macro_rules! refuse_planted {
    () => {
        compile_error!("faults can be planted in this build: leave the feature `planted` out");
    };
}
#[cfg(not(feature = "planted"))]
#[macro_export]
#[doc(hidden)]
macro_rules! refuse_planted {
    () => {};
}

#[cfg(feature = "planted")]
pub mod planted;

mod azure;
mod bucket;
mod budget;
mod call;
mod clock;
pub mod contract;
mod entropy;
mod error;
mod faults;
mod forward;
mod gcs;
mod hedge;
mod key;
mod latency;
mod layers;
mod limited;
mod local;
mod memory;
mod meter;
mod open;
mod pace;
mod pools;
pub mod probe;
mod retry;
mod s3;
mod seal;
mod timeout;

use std::fmt;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use headwater_core::id::Tag;

pub use self::azure::{Azure, AzureAccessKey, AzureContainer, AzureOptions};
pub use self::bucket::ask::{AskError, Said};
pub use self::bucket::options::BucketOptionsError;
pub use self::bucket::{Bucket, NoBucket};
pub use self::budget::{RetryBudget, RetryBudgetConfig};
pub use self::call::Call;
pub use self::clock::Clock;
pub use self::entropy::Entropy;
pub use self::error::{Cause, NoAnswer, NoAnswerKind, PutError, ReadError};
pub use self::faults::{Applied, Fault, Faults, Gate, Rule, RuleId};
pub use self::gcs::{Gcs, GcsBucket, GcsOptions};
pub use self::hedge::{Hedge, HedgeConfig};
pub use self::key::{KEY_LEN_BYTES_MAX, KEY_PART_LEN_BYTES_MAX, KEY_PARTS_MAX, KeyError};
pub use self::latency::Latency;
pub use self::layers::{Layers, LayersConfig};
pub use self::limited::Limited;
pub use self::local::{LocalDir, LocalError};
pub use self::memory::Memory;
pub use self::meter::{CallWatcher, Meter, Outcome, Readings, Requests};
pub use self::open::{OpenError, open};
pub use self::pace::{Crowded, Pace, PaceConfig};
pub use self::pools::Pools;
pub use self::retry::{Retry, RetryConfig};
pub use self::s3::{S3, S3Bucket, S3Credentials, S3Options, Sse, TagForm};
pub use self::seal::{KeyId, Keyring, KeyringError, Plain, SealError, Sealed};
pub use self::timeout::{TimedOut, Timeout, TimeoutConfig};

/// What a read of the head returned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HeadRead {
    /// The head still has the tag the caller holds (HTTP 304).
    Unchanged,
    /// The head and its tag.
    Found {
        /// Encoded head.
        bytes: Bytes,
        /// Tag to compare against when replacing it.
        tag: Tag,
    },
    /// There is no head: the history does not exist.
    Missing,
}

/// How the store answered a conditional write of a head (PROTOCOL 4, step 6).
#[derive(Debug)]
pub enum HeadWrite {
    /// The store applied it; the head has this tag now.
    Replaced {
        /// Tag of the head just written.
        tag: Tag,
    },
    /// The store proved that it did not apply it: the condition failed (412).
    Mismatch,
    /// The store proved that it did not apply a replacement: there is no head
    /// to replace (404). Never the answer to a creation. A store may report
    /// this as a mismatch; reading the head tells.
    Gone,
    /// No trustworthy answer. It may have been applied, may be applied later,
    /// or may be lost.
    NoAnswer(NoAnswer),
}

/// One object in a listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// Key below the root of the store.
    pub key: String,
    /// Size in bytes.
    pub size_bytes: u64,
}

/// One page of a listing by folder.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Folder {
    /// Objects directly in the folder, in order of their keys.
    pub objects: Vec<Listed>,
    /// Folders directly in the folder, each ending with `/`, in order.
    pub folders: Vec<String>,
}

/// The operations that the protocol needs from a bucket.
///
/// Keys are relative to the root that the store was opened at. All methods are
/// cancel safe in this sense: a dropped write may or may not have been applied,
/// as after [`HeadWrite::NoAnswer`]; a dropped read had no effect.
#[async_trait]
pub trait Store: fmt::Debug + Send + Sync + 'static {
    /// Reads a head; `known` makes the read conditional (If-None-Match).
    ///
    /// # Errors
    ///
    /// [`ReadError`]; never [`ReadError::Missing`], which is
    /// [`HeadRead::Missing`] here.
    async fn read_head(&self, key: &str, known: Option<&Tag>) -> Result<HeadRead, ReadError>;

    /// Creates a head if there is none (If-None-Match: *).
    async fn create_head(&self, key: &str, bytes: Bytes) -> HeadWrite;

    /// Replaces a head if it still has the tag `if_match`.
    ///
    /// Infallible by type: every failure of the call is one of the answers, and
    /// the protocol core decides what follows from it.
    async fn replace_head(&self, key: &str, if_match: &Tag, bytes: Bytes) -> HeadWrite;

    /// Writes an immutable object: create if absent, and success where the key
    /// holds exactly these bytes already.
    ///
    /// # Errors
    ///
    /// [`PutError::Occupied`] where the key holds other bytes.
    async fn put(&self, key: &str, bytes: Bytes) -> Result<(), PutError>;

    /// Reads an object whole.
    ///
    /// # Errors
    ///
    /// [`ReadError`].
    async fn get(&self, key: &str) -> Result<Bytes, ReadError>;

    /// Reads an object whole, whose size the caller knows: a hint for how long
    /// it may take, and whether it is worth several requests for a part each.
    /// The answer is that of [`Store::get`], and its size whatever it is.
    ///
    /// # Errors
    ///
    /// [`ReadError`].
    async fn get_sized(&self, key: &str, size_bytes: u64) -> Result<Bytes, ReadError>;

    /// How long from now the head at `key` should rest before it is replaced
    /// again, as far as that is known or was found out. A hint for whoever puts
    /// operations together; a replacement that is sent earlier is sent.
    fn replacement_pause(&self, _key: &str) -> Duration {
        Duration::ZERO
    }

    /// How many requests a put of so many bytes is, for the bill: more than one
    /// where a large object goes in parts.
    fn put_requests(&self, _size_bytes: u64) -> u64 {
        1
    }

    /// How many requests a read of an object of that known size is, for the
    /// bill: more than one where a large object comes in parts.
    fn get_requests(&self, _size_bytes: u64) -> u64 {
        1
    }

    /// Conditional reads so far that were answered with the whole head although
    /// it was the one that the caller has: right, and paid for in bytes. 0 for
    /// stores that look at If-None-Match.
    fn reads_in_vain(&self) -> u64 {
        0
    }

    /// Lists up to `limit` objects whose keys begin with `prefix`, in order,
    /// after `start_after`. Fewer than `limit` means that there are no more.
    ///
    /// In a [sealed](Sealed) store objects of one folder and staged revision
    /// are in the order of their sealed names, and a prefix may not end within
    /// a hash.
    ///
    /// # Errors
    ///
    /// [`ReadError`].
    async fn list(
        &self,
        prefix: &str,
        start_after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<Listed>, ReadError>;

    /// Lists what is directly in the folder `prefix` (empty, or ending with
    /// `/`): objects and folders, without descending.
    ///
    /// # Errors
    ///
    /// [`ReadError`].
    async fn list_folder(&self, prefix: &str) -> Result<Folder, ReadError>;

    /// Deletes an object; success where there is none.
    ///
    /// # Errors
    ///
    /// [`ReadError`]; the object may be gone all the same.
    async fn delete(&self, key: &str) -> Result<(), ReadError>;
}
