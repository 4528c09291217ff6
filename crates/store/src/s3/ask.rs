//! Questions about the bucket itself, which are no calls of a store.

use bytes::{Bytes, BytesMut};
use futures::StreamExt as _;
use http::header::DATE;
use http::{Request, StatusCode};
use object_store::aws::AwsAuthorizer;
use object_store::client::{HttpClient, HttpRequestBody};

use super::S3Bucket;

/// Longest answer that is read.
const ANSWER_LEN_BYTES_MAX: usize = 1 << 20;

/// What the store said about the bucket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Said {
    /// Its status; an error of the store is an answer as well.
    pub status: StatusCode,
    /// Its time, as the `Date` header has it.
    pub date: Option<String>,
    /// The document.
    pub body: String,
}

/// Why there was no answer.
#[derive(Debug, thiserror::Error)]
pub enum AskError {
    /// No credentials, or none that sign.
    #[error("the question could not be signed")]
    Credentials(#[source] object_store::Error),
    /// The bucket's address is no URL.
    #[error("the bucket has no address that could be asked")]
    Address(#[source] http::Error),
    /// There is no connection, or it broke.
    #[error("the store could not be asked")]
    Connection(#[source] object_store::client::HttpError),
    /// The answer is longer than a bucket's settings are.
    #[error("the answer is longer than {ANSWER_LEN_BYTES_MAX} bytes")]
    TooLong,
    /// The client was built without a connection.
    #[error("there is no client to ask with")]
    NoClient,
}

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
        let client = asking.client.as_ref().ok_or(AskError::NoClient)?;
        let mut request = Request::get(format!("{}?{setting}", asking.bucket_endpoint))
            .body(HttpRequestBody::empty())
            .map_err(AskError::Address)?;
        let provider = self.dialect.client.credentials();
        let credential = provider.get_credential().await.map_err(AskError::Credentials)?;
        AwsAuthorizer::new(&credential, "s3", &asking.region)
            .try_authorize(&mut request, None)
            .map_err(AskError::Credentials)?;
        let answer = client.execute(request).await.map_err(AskError::Connection)?;
        let (parts, body) = answer.into_parts();
        let date = parts.headers.get(DATE).and_then(|it| it.to_str().ok()).map(str::to_owned);
        let mut document = BytesMut::new();
        let mut pieces = body.bytes_stream();
        while let Some(piece) = pieces.next().await {
            let piece: Bytes = piece.map_err(AskError::Connection)?;
            if ANSWER_LEN_BYTES_MAX < document.len() + piece.len() {
                return Err(AskError::TooLong);
            }
            document.extend_from_slice(&piece);
        }
        let body = String::from_utf8_lossy(&document).into_owned();
        Ok(Said { status: parts.status, date, body })
    }
}
