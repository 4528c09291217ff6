//! The operations of S3 on the bucket.

use bytes::{Bytes, BytesMut};
use futures::{StreamExt, TryStreamExt, stream};
use s3s::dto::{
    AbortMultipartUploadInput, AbortMultipartUploadOutput, BucketVersioningStatus,
    CompleteMultipartUploadInput, CompleteMultipartUploadOutput, CreateMultipartUploadInput,
    CreateMultipartUploadOutput, DeleteObjectInput, DeleteObjectOutput, DeleteObjectsInput,
    DeleteObjectsOutput, DeletedObject, ETag, ExpirationStatus,
    GetBucketLifecycleConfigurationInput, GetBucketLifecycleConfigurationOutput,
    GetBucketVersioningInput, GetBucketVersioningOutput, GetObjectInput, GetObjectOutput,
    HeadBucketInput, HeadBucketOutput, HeadObjectInput, HeadObjectOutput, LifecycleExpiration,
    LifecycleRule, LifecycleRuleFilter, ListObjectsV2Input, ListObjectsV2Output,
    NoncurrentVersionExpiration, PutObjectInput, PutObjectOutput, StreamingBlob, UploadPartInput,
    UploadPartOutput,
};
use s3s::{S3, S3Request, S3Response, S3Result, s3_error};

use crate::conduct::{self, Completion, Versioning};
use crate::stored::{Condition, Objects};
use crate::{BUCKET, listing};

fn check_bucket(name: &str) -> S3Result<()> {
    if name == BUCKET { Ok(()) } else { Err(s3_error!(NoSuchBucket)) }
}

async fn whole(body: Option<StreamingBlob>) -> S3Result<Bytes> {
    let mut bytes = BytesMut::new();
    if let Some(mut body) = body {
        while let Some(part) = body.next().await {
            bytes.extend_from_slice(&part.map_err(|_| s3_error!(IncompleteBody))?);
        }
    }
    Ok(bytes.freeze())
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
        let bytes = whole(input.body.take()).await?;
        let condition = Condition {
            if_match: input.if_match,
            if_none_match: input.if_none_match,
            ..Condition::default()
        };
        let e_tag = self.write(&input.key, &condition, bytes).await?;
        Ok(S3Response::new(PutObjectOutput { e_tag: Some(e_tag), ..PutObjectOutput::default() }))
    }

    async fn get_object(
        &self,
        request: S3Request<GetObjectInput>,
    ) -> S3Result<S3Response<GetObjectOutput>> {
        let key_id = request.credentials.map(|it| it.access_key);
        let input = request.input;
        check_bucket(&input.bucket)?;
        let object = self.find(&input.key, input.if_none_match.as_ref(), key_id.as_deref())?;
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
        let key_id = request.credentials.map(|it| it.access_key);
        let input = request.input;
        check_bucket(&input.bucket)?;
        let object = self.find(&input.key, input.if_none_match.as_ref(), key_id.as_deref())?;
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
        self.stored().remove(&request.input.key);
        Ok(S3Response::new(DeleteObjectOutput::default()))
    }

    async fn delete_objects(
        &self,
        request: S3Request<DeleteObjectsInput>,
    ) -> S3Result<S3Response<DeleteObjectsOutput>> {
        check_bucket(&request.input.bucket)?;
        let mut stored = self.stored();
        let deleted = request.input.delete.objects.into_iter().map(|it| {
            stored.remove(&it.key);
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
        Ok(S3Response::new(listing::list(self.stored().listed(), &request.input)))
    }

    async fn create_multipart_upload(
        &self,
        request: S3Request<CreateMultipartUploadInput>,
    ) -> S3Result<S3Response<CreateMultipartUploadOutput>> {
        let input = request.input;
        check_bucket(&input.bucket)?;
        let upload_id = self.stored().uploads.begin(&input.key);
        Ok(S3Response::new(CreateMultipartUploadOutput {
            bucket: Some(input.bucket),
            key: Some(input.key),
            upload_id: Some(upload_id),
            ..CreateMultipartUploadOutput::default()
        }))
    }

    async fn upload_part(
        &self,
        request: S3Request<UploadPartInput>,
    ) -> S3Result<S3Response<UploadPartOutput>> {
        let mut input = request.input;
        check_bucket(&input.bucket)?;
        let bytes = whole(input.body.take()).await?;
        let mut stored = self.stored();
        let e_tag = stored.uploads.add(&input.upload_id, &input.key, input.part_number, bytes)?;
        Ok(S3Response::new(UploadPartOutput { e_tag: Some(e_tag), ..UploadPartOutput::default() }))
    }

    async fn complete_multipart_upload(
        &self,
        request: S3Request<CompleteMultipartUploadInput>,
    ) -> S3Result<S3Response<CompleteMultipartUploadOutput>> {
        let input = request.input;
        check_bucket(&input.bucket)?;
        let parts = input.multipart_upload.and_then(|it| it.parts).unwrap_or_default();
        let named = parts.into_iter().map(|it| {
            let number = it.part_number.unwrap_or_default();
            (number, it.e_tag.map(ETag::into_value).unwrap_or_default())
        });
        let named: Vec<_> = named.collect();
        let (bytes, e_tag) =
            self.stored().uploads.assemble(&input.upload_id, &input.key, &named)?;
        let is_conditioned = self.conduct().completion == Completion::Conditioned;
        let condition = Condition {
            if_match: input.if_match.filter(|_| is_conditioned),
            if_none_match: input.if_none_match.filter(|_| is_conditioned),
            e_tag: Some(e_tag),
            ..Condition::default()
        };
        let e_tag = self.write(&input.key, &condition, bytes).await?;
        self.stored().uploads.end(&input.upload_id)?;
        Ok(S3Response::new(CompleteMultipartUploadOutput {
            bucket: Some(input.bucket),
            e_tag: Some(e_tag),
            key: Some(input.key),
            ..CompleteMultipartUploadOutput::default()
        }))
    }

    async fn abort_multipart_upload(
        &self,
        request: S3Request<AbortMultipartUploadInput>,
    ) -> S3Result<S3Response<AbortMultipartUploadOutput>> {
        check_bucket(&request.input.bucket)?;
        self.stored().uploads.end(&request.input.upload_id)?;
        Ok(S3Response::new(AbortMultipartUploadOutput::default()))
    }

    async fn get_bucket_versioning(
        &self,
        request: S3Request<GetBucketVersioningInput>,
    ) -> S3Result<S3Response<GetBucketVersioningOutput>> {
        check_bucket(&request.input.bucket)?;
        let status = match self.conduct().versioning {
            Versioning::Never => None,
            Versioning::Enabled => Some(BucketVersioningStatus::ENABLED),
            Versioning::Suspended => Some(BucketVersioningStatus::SUSPENDED),
        };
        let status = status.map(BucketVersioningStatus::from_static);
        let output = GetBucketVersioningOutput { status, ..GetBucketVersioningOutput::default() };
        Ok(S3Response::new(output))
    }

    async fn get_bucket_lifecycle_configuration(
        &self,
        request: S3Request<GetBucketLifecycleConfigurationInput>,
    ) -> S3Result<S3Response<GetBucketLifecycleConfigurationOutput>> {
        check_bucket(&request.input.bucket)?;
        let rules = self.conduct().lifecycle;
        if rules.is_empty() {
            return Err(s3_error!(NoSuchLifecycleConfiguration));
        }
        Ok(S3Response::new(GetBucketLifecycleConfigurationOutput {
            rules: Some(rules.into_iter().map(rule).collect()),
            ..GetBucketLifecycleConfigurationOutput::default()
        }))
    }
}

fn rule(rule: conduct::LifecycleRule) -> LifecycleRule {
    let expiration = rule
        .expire_days
        .map(|days| LifecycleExpiration { days: Some(days), ..LifecycleExpiration::default() });
    let noncurrent = rule.noncurrent_days.map(|days| NoncurrentVersionExpiration {
        noncurrent_days: Some(days),
        ..NoncurrentVersionExpiration::default()
    });
    let prefix = Some(rule.prefix);
    LifecycleRule {
        abort_incomplete_multipart_upload: None,
        expiration,
        filter: Some(LifecycleRuleFilter { prefix, ..LifecycleRuleFilter::default() }),
        id: Some(rule.id),
        noncurrent_version_expiration: noncurrent,
        noncurrent_version_transitions: None,
        prefix: None,
        status: ExpirationStatus::from_static(ExpirationStatus::ENABLED),
        transitions: None,
    }
}
