//! Buckets of Google Cloud Storage, by its XML API.
//!
//! In here: settings, questions about the bucket itself, and tags that carry the
//! generation. Not in here: the calls
//! ([`Bucket`]).
//!
//! # Architecture invariants
//!
//! - A write is conditioned on the generation (`x-goog-if-generation-match`): 0
//!   for a creation. Generations never repeat, also after a deletion.
//! - A tag has both, the `ETag` and the generation: a read is conditioned on the
//!   first (If-None-Match), which is all that the XML API offers to reads. The
//!   `ETag` of an object that is written whole is its MD5, so it may recur with
//!   equal bytes. "Unchanged" is then true of the bytes, and a writer that holds
//!   a generation from before reads again after its first mismatch.

mod ask;
mod options;

use std::fmt;

use async_trait::async_trait;
use futures::{StreamExt, TryStreamExt, stream};
use headwater_core::id::Tag;
use http::StatusCode;
use object_store::gcp::GoogleCloudStorage;
use object_store::path::Path;
use object_store::{Error, ObjectStore, UpdateVersion};

pub use self::options::GcsOptions;
use crate::Cause;
use crate::bucket::options::BucketOptionsError;
use crate::bucket::{
    Bucket, Condition, Dialect, Exchange, NotingConnector, Proof, TagError, proof_by_status,
    strong_tag,
};

/// A prefix in a bucket of Google Cloud Storage.
pub type GcsBucket = Bucket<Gcs>;

/// The words of Google Cloud Storage.
pub struct Gcs {
    client: GoogleCloudStorage,
    asking: ask::Asking,
}

impl fmt::Debug for Gcs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("GcsBucket")
    }
}

impl GcsBucket {
    /// Takes the bucket that `options` names. Nothing is sent.
    ///
    /// # Errors
    ///
    /// [`BucketOptionsError`] when the options do not fit together.
    pub fn open(options: &GcsOptions) -> Result<Self, BucketOptionsError> {
        let root = options.root()?;
        let connector = NotingConnector::default();
        let built = options.build(connector.clone())?;
        let asking = ask::Asking { base_url: built.base_url, client: connector.client() };
        Ok(Self::new(Gcs { client: built.client, asking }, &options.bucket, root))
    }
}

#[async_trait]
impl Dialect for Gcs {
    type Client = GoogleCloudStorage;

    fn client(&self) -> &GoogleCloudStorage {
        &self.client
    }

    fn tag(&self, e_tag: Option<String>, version: Option<String>) -> Result<Tag, Cause> {
        let e_tag = strong_tag(e_tag)?.e_tag().map(str::to_owned);
        let version = version.ok_or(TagError::NoGeneration)?;
        Tag::from_parts(e_tag, Some(version)).ok_or_else(|| TagError::NoGeneration.into())
    }

    fn condition(&self, tag: &Tag) -> UpdateVersion {
        // object_store 0.14.2 refuses a replacement without a version before it
        // sends anything (src/gcp/client.rs, `MissingVersion`): a tag of another
        // store is no answer, and writes nothing.
        let (e_tag, version) = (tag.e_tag().map(str::to_owned), tag.version().map(str::to_owned));
        UpdateVersion { e_tag, version }
    }

    fn proof(&self, condition: Condition, status: StatusCode, _code: &str) -> Proof {
        // 412 where the generation is another one, a missing object included.
        // 409 is a concurrent write of the same object: nothing is known.
        proof_by_status(condition, status)
    }

    fn is_bucket_missing(&self, code: &str) -> bool {
        code == "NoSuchBucket"
    }

    async fn delete(&self, path: Path, exchange: &Exchange) -> Result<(), Error> {
        let one = stream::iter([Ok(path)]).boxed();
        exchange.around(self.client.delete_stream(one).try_collect::<Vec<_>>()).await.map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_has_the_generation_and_a_store_without_one_is_refused() {
        let options = GcsOptions::parse("gs://b?endpoint=http://x&allow_http=true").unwrap();
        let options = GcsOptions { access_token: Some("t".into()), ..options };
        let bucket = GcsBucket::open(&options).unwrap();
        let e_tag = Some("\"a\"".to_owned());
        let tag = bucket.dialect.tag(e_tag.clone(), Some("17".into())).unwrap();
        assert_eq!((tag.e_tag(), tag.version()), (Some("\"a\""), Some("17")));
        let condition = bucket.dialect.condition(&tag);
        assert_eq!(condition.version.as_deref(), Some("17"));
        let error = bucket.dialect.tag(e_tag, None).unwrap_err().to_string();
        assert!(error.contains("generation"), "{error}");
    }
}
