//! Asking a bucket of Google Cloud Storage about itself.

use http::Request;
use http::header::AUTHORIZATION;
use object_store::client::{HttpClient, HttpRequestBody};

use super::GcsBucket;
use crate::bucket::ask::{self, AskError, Said};

/// Where and with what a bucket is asked.
pub(super) struct Asking {
    pub(super) base_url: String,
    pub(super) client: Option<HttpClient>,
}

impl GcsBucket {
    /// Asks for settings of the bucket by the JSON API (`Buckets: get`), where
    /// one answer has all of them. The XML API, which the calls go by, does not
    /// know of soft deletion. Sent once; needs `storage.buckets.get`.
    ///
    /// # Errors
    ///
    /// [`AskError`]; a refusal by the store is not one of them.
    pub async fn ask(&self, fields: &str) -> Result<Said, AskError> {
        let asking = &self.dialect.asking;
        // Names of buckets have letters, digits, and `-_.` (Google, "Bucket
        // names"): nothing to be encoded.
        let url = format!("{}/storage/v1/b/{}?fields={fields}", asking.base_url, self.name());
        let credentials = self.dialect.client.credentials();
        let credential = credentials.get_credential().await.map_err(AskError::Credentials)?;
        let mut request = Request::get(url);
        if !credential.bearer.is_empty() {
            request = request.header(AUTHORIZATION, format!("Bearer {}", credential.bearer));
        }
        let request = request.body(HttpRequestBody::empty()).map_err(AskError::Address)?;
        ask::send(asking.client.as_ref(), request).await
    }
}
