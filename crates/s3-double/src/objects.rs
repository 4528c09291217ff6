//! The bucket: its objects, and the operations on them.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use bytes::{Bytes, BytesMut};
use futures::{StreamExt, TryStreamExt, stream};
use md5::{Digest, Md5};
use s3s::dto::{
    DeleteObjectInput, DeleteObjectOutput, DeleteObjectsInput, DeleteObjectsOutput, DeletedObject,
    ETag, ETagCondition, GetObjectInput, GetObjectOutput, HeadBucketInput, HeadBucketOutput,
    HeadObjectInput, HeadObjectOutput, ListObjectsV2Input, ListObjectsV2Output, PutObjectInput,
    PutObjectOutput, StreamingBlob, Timestamp,
};
use s3s::{S3, S3Request, S3Response, S3Result, s3_error};

use crate::{BUCKET, listing};

/// The objects of the bucket. Clones share them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Objects(Arc<Mutex<Stored>>);

#[derive(Debug, Default)]
struct Stored {
    by_key: BTreeMap<String, Object>,
    n_writes: u64,
}

#[derive(Clone, Debug)]
pub(crate) struct Object {
    pub(crate) bytes: Bytes,
    /// MD5 of the bytes, as S3 has it for objects that are put whole: equal
    /// bytes have equal tags, whenever they were written.
    pub(crate) e_tag: ETag,
    pub(crate) modified: Timestamp,
}

impl Objects {
    fn stored(&self) -> MutexGuard<'_, Stored> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The bytes of an object.
    pub(crate) fn bytes(&self, key: &str) -> Option<Bytes> {
        self.stored().by_key.get(key).map(|it| it.bytes.clone())
    }

    /// All keys, in order.
    pub(crate) fn keys(&self) -> Vec<String> {
        self.stored().by_key.keys().cloned().collect()
    }

    /// Compares and writes in one hold of the lock.
    fn write(&self, input: &PutObjectInput, bytes: Bytes) -> S3Result<ETag> {
        let mut stored = self.stored();
        let found = stored.by_key.get(&input.key);
        match (&input.if_match, found) {
            (None, _) | (Some(ETagCondition::Any), Some(_)) => (),
            (Some(ETagCondition::ETag(tag)), Some(it)) if it.e_tag.strong_cmp(tag) => (),
            (Some(_), Some(_)) => return Err(s3_error!(PreconditionFailed)),
            (Some(_), None) => return Err(s3_error!(NoSuchKey)),
        }
        match (&input.if_none_match, found) {
            (None, _) | (Some(_), None) => (),
            (Some(ETagCondition::Any), Some(_)) => return Err(s3_error!(PreconditionFailed)),
            (Some(ETagCondition::ETag(_)), Some(_)) => return Err(s3_error!(NotImplemented)),
        }
        let e_tag = e_tag_of(&bytes);
        stored.n_writes += 1;
        // Times of their own, one second for each write: no clock is needed.
        let modified = SystemTime::UNIX_EPOCH + Duration::from_secs(stored.n_writes);
        let object = Object { bytes, e_tag: e_tag.clone(), modified: modified.into() };
        stored.by_key.insert(input.key.clone(), object);
        Ok(e_tag)
    }

    fn find(&self, key: &str, if_none_match: Option<&ETagCondition>) -> S3Result<Object> {
        let found = self.stored().by_key.get(key).cloned();
        let object = found.ok_or_else(|| s3_error!(NoSuchKey))?;
        match if_none_match {
            Some(ETagCondition::Any) => Err(s3_error!(NotModified)),
            Some(ETagCondition::ETag(tag)) if object.e_tag.weak_cmp(tag) => {
                Err(s3_error!(NotModified))
            }
            Some(ETagCondition::ETag(_)) | None => Ok(object),
        }
    }
}

fn e_tag_of(bytes: &[u8]) -> ETag {
    use std::fmt::Write;

    let mut hex = String::with_capacity(32);
    for byte in Md5::digest(bytes) {
        // Writing to a string does not fail.
        let _ = write!(hex, "{byte:02x}");
    }
    ETag::Strong(hex)
}

fn check_bucket(name: &str) -> S3Result<()> {
    if name == BUCKET { Ok(()) } else { Err(s3_error!(NoSuchBucket)) }
}

fn length(bytes: &Bytes) -> Option<i64> {
    i64::try_from(bytes.len()).ok()
}

#[async_trait::async_trait]
impl S3 for Objects {
    async fn put_object(
        &self,
        request: S3Request<PutObjectInput>,
    ) -> S3Result<S3Response<PutObjectOutput>> {
        let mut input = request.input;
        check_bucket(&input.bucket)?;
        let mut bytes = BytesMut::new();
        if let Some(mut body) = input.body.take() {
            while let Some(part) = body.next().await {
                let part = part.map_err(|_| s3_error!(IncompleteBody))?;
                bytes.extend_from_slice(&part);
            }
        }
        let e_tag = self.write(&input, bytes.freeze())?;
        Ok(S3Response::new(PutObjectOutput { e_tag: Some(e_tag), ..PutObjectOutput::default() }))
    }

    async fn get_object(
        &self,
        request: S3Request<GetObjectInput>,
    ) -> S3Result<S3Response<GetObjectOutput>> {
        let input = request.input;
        check_bucket(&input.bucket)?;
        let object = self.find(&input.key, input.if_none_match.as_ref())?;
        let whole = object.bytes.len();
        let (bytes, content_range) = match input.range {
            None => (object.bytes, None),
            Some(range) => {
                let range = range.check(whole as u64)?;
                let named = format!("bytes {}-{}/{whole}", range.start, range.end - 1);
                let at = |it: u64| usize::try_from(it).unwrap_or(whole);
                (object.bytes.slice(at(range.start)..at(range.end)), Some(named))
            }
        };
        let content_length = length(&bytes);
        let body = stream::iter([Ok::<_, std::io::Error>(bytes)]).into_stream();
        Ok(S3Response::new(GetObjectOutput {
            body: Some(StreamingBlob::wrap(body)),
            content_length,
            content_range,
            e_tag: Some(object.e_tag),
            last_modified: Some(object.modified),
            ..GetObjectOutput::default()
        }))
    }

    async fn head_object(
        &self,
        request: S3Request<HeadObjectInput>,
    ) -> S3Result<S3Response<HeadObjectOutput>> {
        let input = request.input;
        check_bucket(&input.bucket)?;
        let object = self.find(&input.key, input.if_none_match.as_ref())?;
        Ok(S3Response::new(HeadObjectOutput {
            content_length: length(&object.bytes),
            e_tag: Some(object.e_tag),
            last_modified: Some(object.modified),
            ..HeadObjectOutput::default()
        }))
    }

    async fn head_bucket(
        &self,
        request: S3Request<HeadBucketInput>,
    ) -> S3Result<S3Response<HeadBucketOutput>> {
        check_bucket(&request.input.bucket)?;
        Ok(S3Response::new(HeadBucketOutput::default()))
    }

    async fn delete_object(
        &self,
        request: S3Request<DeleteObjectInput>,
    ) -> S3Result<S3Response<DeleteObjectOutput>> {
        check_bucket(&request.input.bucket)?;
        self.stored().by_key.remove(&request.input.key);
        Ok(S3Response::new(DeleteObjectOutput::default()))
    }

    async fn delete_objects(
        &self,
        request: S3Request<DeleteObjectsInput>,
    ) -> S3Result<S3Response<DeleteObjectsOutput>> {
        check_bucket(&request.input.bucket)?;
        let mut stored = self.stored();
        let deleted = request.input.delete.objects.into_iter().map(|it| {
            stored.by_key.remove(&it.key);
            DeletedObject { key: Some(it.key), ..DeletedObject::default() }
        });
        let deleted = Some(deleted.collect());
        Ok(S3Response::new(DeleteObjectsOutput { deleted, ..DeleteObjectsOutput::default() }))
    }

    async fn list_objects_v2(
        &self,
        request: S3Request<ListObjectsV2Input>,
    ) -> S3Result<S3Response<ListObjectsV2Output>> {
        check_bucket(&request.input.bucket)?;
        Ok(S3Response::new(listing::list(&self.stored().by_key, &request.input)))
    }
}
