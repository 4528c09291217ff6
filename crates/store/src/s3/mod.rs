//! Buckets that speak S3: AWS, its directory buckets, and compatible servers.
//!
//! In here: settings, credentials that `object_store` does not look for, tags in
//! either form. Not in here: the calls ([`Bucket`]).
//!
//! # Architecture invariants
//!
//! - A tag is a strong `ETag` and nothing else, since that is what If-Match
//!   compares. A version id says which version, not whether it is the newest.

mod ask;
#[cfg(test)]
mod express_test;
mod options;
mod profile;
mod sse;

use std::fmt;

use async_trait::async_trait;
use futures::{StreamExt, TryStreamExt, stream};
use headwater_core::id::Tag;
use http::StatusCode;
use object_store::aws::AmazonS3;
use object_store::multipart::MultipartStore;
use object_store::path::Path;
use object_store::{Error, ObjectStore, UpdateVersion};

pub use self::options::{S3Credentials, S3Options, TagForm};
pub use self::sse::Sse;
use crate::Cause;
use crate::bucket::options::BucketOptionsError;
use crate::bucket::{
    Bucket, Condition, Dialect, Exchange, ListOrder, NotingConnector, Proof, proof_by_status,
    strong_tag,
};

/// A prefix in a bucket that speaks S3.
pub type S3Bucket = Bucket<S3>;

/// The words of S3.
pub struct S3 {
    client: AmazonS3,
    tag_form: TagForm,
    list_order: ListOrder,
    has_parts: bool,
    asking: ask::Asking,
}

impl fmt::Debug for S3 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("S3Bucket")
    }
}

impl S3Bucket {
    /// Takes the bucket that `options` names. Nothing is sent.
    ///
    /// # Errors
    ///
    /// [`BucketOptionsError`] when the options do not fit together.
    pub fn open(options: &S3Options) -> Result<Self, BucketOptionsError> {
        Self::open_over(options, &NotingConnector::default())
    }

    fn open_over(
        options: &S3Options,
        connector: &NotingConnector,
    ) -> Result<Self, BucketOptionsError> {
        let root = options.root()?;
        let built = options.build(connector.clone())?;
        let dialect = S3 {
            asking: ask::Asking::new(built.region, built.bucket_endpoint, connector.client()),
            client: built.client,
            tag_form: options.tag_form,
            list_order: if options.is_directory() { ListOrder::None } else { ListOrder::ByKey },
            has_parts: options.multipart.unwrap_or(true),
        };
        Ok(Self::new(dialect, &options.bucket, root))
    }
}

#[async_trait]
impl Dialect for S3 {
    type Client = AmazonS3;

    fn client(&self) -> &AmazonS3 {
        &self.client
    }

    fn tag(&self, e_tag: Option<String>, _version: Option<String>) -> Result<Tag, Cause> {
        Ok(strong_tag(e_tag)?)
    }

    fn condition(&self, tag: &Tag) -> UpdateVersion {
        let e_tag = tag.e_tag().map(|it| match self.tag_form {
            TagForm::Quoted => it.to_owned(),
            // Ceph 16 compares the header with the bare MD5, byte by byte
            // (rgw_rados.cc, `Object::Write::_do_write_meta`). Reads are
            // compared without the quotes there, so those keep them.
            TagForm::Unquoted => it.trim_matches('"').to_owned(),
        });
        UpdateVersion { e_tag, version: None }
    }

    fn proof(&self, condition: Condition, status: StatusCode, _code: &str) -> Proof {
        proof_by_status(condition, status)
    }

    fn is_bucket_missing(&self, code: &str) -> bool {
        code == "NoSuchBucket"
    }

    fn list_order(&self) -> ListOrder {
        self.list_order
    }

    fn parts(&self) -> Option<&dyn MultipartStore> {
        self.has_parts.then_some(&self.client)
    }

    async fn delete(&self, path: Path, exchange: &Exchange) -> Result<(), Error> {
        let one = stream::iter([Ok(path)]).boxed();
        exchange.around(self.client.delete_stream(one).try_collect::<Vec<_>>()).await.map(drop)
    }
}

#[cfg(test)]
mod tests {
    use headwater_core::id::Tag;
    use object_store::PutResult;

    use super::*;
    use crate::HeadWrite;

    fn bucket(url: &str) -> S3Bucket {
        S3Bucket::open(&S3Options::parse(url).unwrap()).unwrap()
    }

    fn refused() -> Result<PutResult, Error> {
        Err(Error::Precondition { path: "head.json".into(), source: "x".into() })
    }

    #[test]
    fn a_mismatch_that_answers_a_repeated_request_is_no_answer() {
        let bucket = bucket("s3://b");
        let judge = |n_sent, status| {
            let exchange = Exchange::answered(n_sent, status, "");
            bucket.head_answer(refused(), Condition::Tag, &exchange)
        };
        let (failed, missing) = (StatusCode::PRECONDITION_FAILED, StatusCode::NOT_FOUND);
        assert!(matches!(judge(1, failed), HeadWrite::Mismatch));
        assert!(matches!(judge(1, missing), HeadWrite::Gone));
        for status in [failed, missing] {
            let answer = judge(2, status);
            assert!(matches!(answer, HeadWrite::NoAnswer(_)), "the first may have been applied");
        }
    }

    #[test]
    fn an_error_without_a_status_is_no_answer_whatever_the_client_calls_it() {
        let exchange = Exchange::default();
        let answer = bucket("s3://b").head_answer(refused(), Condition::Tag, &exchange);
        assert!(matches!(answer, HeadWrite::NoAnswer(_)), "{answer:?}");
    }

    #[test]
    fn a_tag_is_a_strong_e_tag_and_is_compared_in_the_form_that_was_chosen() {
        let bucket = bucket("s3://b");
        let tag = |e_tag: &str| bucket.dialect.tag(Some(e_tag.into()), Some("v".into()));
        assert_eq!(tag("\"a\"").unwrap(), Tag::new("\"a\""));
        assert!(tag("W/\"a\"").unwrap_err().to_string().contains("weak"));
        assert!(bucket.dialect.tag(None, None).is_err());
        for (url, sent) in [("s3://b", "\"a\""), ("s3://b?tag_form=unquoted", "a")] {
            let condition = self::bucket(url).dialect.condition(&Tag::new("\"a\""));
            assert_eq!(condition.e_tag.as_deref(), Some(sent));
        }
    }
}
