//! What is particular to each kind of store behind `object_store`.

use std::fmt;

use async_trait::async_trait;
use headwater_core::id::Tag;
use http::StatusCode;
use object_store::list::PaginatedListStore;
use object_store::multipart::MultipartStore;
use object_store::path::Path;
use object_store::{Error, ObjectStore, UpdateVersion};

use super::exchange::Exchange;

/// An answer without a tag that a condition could be made of.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TagError {
    #[error("the object store answered without an ETag, so heads cannot be compared")]
    Missing,
    #[error("the object store answered with the weak ETag {e_tag}, which If-Match never matches")]
    Weak { e_tag: String },
    #[error("the object store answered without a generation, so heads cannot be compared")]
    NoGeneration,
}

/// Which condition a write has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Condition {
    /// The object does not exist.
    Absent,
    /// The object has a tag.
    Tag,
}

/// What an error status in answer to the only request of a conditional write
/// proves. An allow-list: everything that is not named proves nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Proof {
    /// The condition did not hold: nothing was written.
    ConditionFailed,
    /// There is no object to replace: nothing was written.
    Gone,
    /// There is no bucket.
    NoBucket,
    /// Nothing.
    Nothing,
}

/// How lists come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ListOrder {
    /// In byte order of the keys, from any key on.
    #[default]
    ByKey,
    /// In no order, and only by whole folders.
    None,
}

/// A kind of store: its client, its tags, its words.
#[async_trait]
pub trait Dialect: fmt::Debug + Send + Sync + 'static {
    /// The client of `object_store`.
    type Client: ObjectStore + PaginatedListStore;

    /// The client.
    fn client(&self) -> &Self::Client;

    /// Makes a tag of what came with an answer.
    ///
    /// # Errors
    ///
    /// A text about what is missing.
    fn tag(&self, e_tag: Option<String>, version: Option<String>) -> Result<Tag, crate::Cause>;

    /// What a replacement of an object with this tag is conditioned on.
    fn condition(&self, tag: &Tag) -> UpdateVersion;

    /// What an error status and its code prove.
    fn proof(&self, condition: Condition, status: StatusCode, code: &str) -> Proof;

    /// Whether this code of a 404 blames the bucket and not the key.
    fn is_bucket_missing(&self, code: &str) -> bool;

    /// How lists come.
    fn list_order(&self) -> ListOrder {
        ListOrder::ByKey
    }

    /// Whether the client leaves out of a listing the key that the prefix is.
    fn hides_exact_key(&self) -> bool {
        false
    }

    /// What uploads large objects in parts; `None` where all go by one request.
    fn parts(&self) -> Option<&dyn MultipartStore> {
        None
    }

    /// Deletes one object by one request.
    async fn delete(&self, path: Path, exchange: &Exchange) -> Result<(), Error>;
}

/// What 412 and 404 prove on S3 and on GCS.
pub(crate) fn proof_by_status(condition: Condition, status: StatusCode) -> Proof {
    match (status, condition) {
        (StatusCode::PRECONDITION_FAILED, _) => Proof::ConditionFailed,
        (StatusCode::NOT_FOUND, Condition::Tag) => Proof::Gone,
        // Nothing has to be there before it is created, but the bucket.
        (StatusCode::NOT_FOUND, Condition::Absent) => Proof::NoBucket,
        _ => Proof::Nothing,
    }
}

/// A tag that is a strong `ETag` and nothing else.
pub(crate) fn strong_tag(e_tag: Option<String>) -> Result<Tag, TagError> {
    match e_tag {
        None => Err(TagError::Missing),
        Some(e_tag) if e_tag.starts_with("W/") => Err(TagError::Weak { e_tag }),
        Some(e_tag) => Ok(Tag::new(e_tag)),
    }
}
