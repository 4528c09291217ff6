//! Asking about a storage account, and about the versions of a blob.

use http::Request;
use object_store::azure::AzureAuthorizer;
use object_store::client::HttpRequestBody;

use super::AzureContainer;
use crate::ReadError;
use crate::bucket::ask::{self, AskError, Said};

impl AzureContainer {
    /// Asks for the properties of the account's blob service (Blob service REST
    /// API, "Get Blob Service Properties"). Sent once. An account's key may, and
    /// an identity that may read the service; keys for one container may not.
    ///
    /// # Errors
    ///
    /// [`AskError`]; a refusal by the store is not one of them.
    pub async fn ask(&self) -> Result<Said, AskError> {
        let mut url = self.dialect.container_url.clone();
        if let Ok(mut parts) = url.path_segments_mut() {
            parts.pop().push("");
        }
        url.set_query(Some("restype=service&comp=properties"));
        let mut request =
            Request::get(url.as_str()).body(HttpRequestBody::empty()).map_err(AskError::Address)?;
        let credentials = self.dialect.client.credentials();
        let credential = credentials.get_credential().await.map_err(AskError::Credentials)?;
        AzureAuthorizer::new(&credential, &self.dialect.account)
            .try_authorize(&mut request)
            .map_err(AskError::Credentials)?;
        ask::send(self.dialect.http.as_ref(), request).await
    }

    /// The version of a blob, which it has where the account keeps versions
    /// (`x-ms-version-id`); `None` where it does not.
    ///
    /// # Errors
    ///
    /// [`ReadError`].
    pub async fn version_id(&self, key: &str) -> Result<Option<String>, ReadError> {
        self.version_of(key).await
    }
}
