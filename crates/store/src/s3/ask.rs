//! Asking a bucket in S3 about itself.

use http::Request;
use object_store::aws::AwsAuthorizer;
use object_store::client::{HttpClient, HttpRequestBody};

use super::S3Bucket;
use crate::bucket::ask::{self, AskError, Said};

/// Where and with what a bucket is asked.
pub(super) struct Asking {
    region: String,
    bucket_endpoint: String,
    client: Option<HttpClient>,
}

impl Asking {
    pub(super) fn new(region: String, bucket_endpoint: String, client: Option<HttpClient>) -> Self {
        Self { region, bucket_endpoint, client }
    }
}

impl S3Bucket {
    /// Asks for a setting of the bucket, such as `versioning` or `lifecycle`
    /// (S3's API reference, `GetBucketVersioning` and its neighbours). Sent once.
    ///
    /// # Errors
    ///
    /// [`AskError`]; a refusal by the store is not one of them.
    pub async fn ask(&self, setting: &str) -> Result<Said, AskError> {
        let asking = &self.dialect.asking;
        let mut request = Request::get(format!("{}?{setting}", asking.bucket_endpoint))
            .body(HttpRequestBody::empty())
            .map_err(AskError::Address)?;
        let provider = self.dialect.client.credentials();
        let credential = provider.get_credential().await.map_err(AskError::Credentials)?;
        AwsAuthorizer::new(&credential, "s3", &asking.region)
            .try_authorize(&mut request, None)
            .map_err(AskError::Credentials)?;
        ask::send(asking.client.as_ref(), request).await
    }
}
