//! Which bucket, and how to reach it.

use std::fmt;
use std::sync::Arc;

use object_store::client::HttpConnector;
use object_store::gcp::{
    GcpCredential, GoogleCloudStorage, GoogleCloudStorageBuilder, GoogleConfigKey,
};
use object_store::{ClientConfigKey, RetryConfig, StaticCredentialProvider};

use crate::bucket::options::{BucketOptionsError, BucketUrl, parse_bool, root};

/// A prefix in a bucket. Credentials come from the environment
/// (`GOOGLE_SERVICE_ACCOUNT`, `GOOGLE_SERVICE_ACCOUNT_KEY`,
/// `GOOGLE_APPLICATION_CREDENTIALS`), or from the machine.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct GcsOptions {
    /// Name of the bucket.
    pub bucket: String,
    /// Folder in the bucket, without `/` at its ends; empty for all of it.
    pub prefix: String,
    /// URL of the service.
    pub endpoint: Option<String>,
    /// Whether the endpoint may be plain HTTP.
    pub allow_http: Option<bool>,
    /// An OAuth access token instead of the environment's credentials: for tests
    /// and tools.
    pub access_token: Option<String>,
}

impl fmt::Debug for GcsOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GcsOptions")
            .field("bucket", &self.bucket)
            .field("prefix", &self.prefix)
            .field("endpoint", &self.endpoint)
            .finish_non_exhaustive()
    }
}

/// A client, and where it sends to.
pub(super) struct Built {
    pub(super) client: GoogleCloudStorage,
    /// Ends without `/`.
    pub(super) base_url: String,
}

const KNOWN: &str = "endpoint and allow_http";

impl GcsOptions {
    /// Reads `gs://bucket/prefix?endpoint=...`. The prefix is taken as it
    /// stands, without percent-decoding.
    ///
    /// # Errors
    ///
    /// [`BucketOptionsError`] names the part that is wrong.
    pub fn parse(url: &str) -> Result<Self, BucketOptionsError> {
        let BucketUrl { bucket, prefix, options: named } = BucketUrl::parse("gs", url)?;
        let mut options = Self { bucket, prefix, ..Self::default() };
        for (name, value) in named {
            match name.as_str() {
                "endpoint" => options.endpoint = Some(value),
                "allow_http" => options.allow_http = Some(parse_bool(&name, &value)?),
                _ => return Err(BucketOptionsError::UnknownOption { name, known: KNOWN }),
            }
        }
        Ok(options)
    }

    /// What all keys begin with: empty, or ends with `/`.
    pub(super) fn root(&self) -> Result<String, BucketOptionsError> {
        root(&self.prefix)
    }

    pub(super) fn build(&self, http: impl HttpConnector) -> Result<Built, BucketOptionsError> {
        // No repeats below this line, as for S3: what is repeated after a lost
        // answer meets its own success, and reports it as a mismatch.
        let no_retries = RetryConfig { max_retries: 0, ..RetryConfig::default() };
        let timeout = GoogleConfigKey::Client(ClientConfigKey::Timeout);
        let mut builder = GoogleCloudStorageBuilder::from_env()
            .with_bucket_name(&self.bucket)
            .with_retry(no_retries)
            .with_http_connector(http)
            .with_config(timeout, "10 minutes");
        if let Some(endpoint) = &self.endpoint {
            builder = builder.with_config(GoogleConfigKey::BaseUrl, endpoint.trim_end_matches('/'));
        }
        if let Some(is_allowed) = self.allow_http {
            let key = GoogleConfigKey::Client(ClientConfigKey::AllowHttp);
            builder = builder.with_config(key, is_allowed.to_string());
        }
        if let Some(token) = &self.access_token {
            let credential = GcpCredential { bearer: token.clone() };
            builder = builder.with_credentials(Arc::new(StaticCredentialProvider::new(credential)));
        }
        // A service account's file may name another place, for emulators alone
        // (`gcs_base_url`); questions do not go there.
        let base_url = builder
            .get_config_value(&GoogleConfigKey::BaseUrl)
            .filter(|it| !it.is_empty())
            .unwrap_or_else(|| "https://storage.googleapis.com".to_owned());
        let client = builder.build().map_err(BucketOptionsError::Client)?;
        Ok(Built { client, base_url })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_names_bucket_prefix_and_options_and_a_wrong_part_is_named() {
        let options = GcsOptions::parse("gs://b/p/q/?endpoint=http://h&allow_http=true").unwrap();
        assert_eq!((&*options.bucket, &*options.prefix), ("b", "p/q"));
        assert_eq!(
            (options.endpoint.as_deref(), options.allow_http),
            (Some("http://h"), Some(true))
        );
        let message = |url: &str| GcsOptions::parse(url).unwrap_err().to_string();
        assert!(message("gs://").contains("gs://bucket/prefix"));
        assert!(message("gs://b?region=x").contains("`region`"));
    }

    #[test]
    fn a_token_is_not_printed() {
        let access_token = Some("hidden".to_owned());
        let printed = format!("{:?}", GcsOptions { access_token, ..GcsOptions::default() });
        assert!(!printed.contains("hidden"), "{printed}");
    }
}
