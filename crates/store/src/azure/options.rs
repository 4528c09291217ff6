//! Which container, and how to reach it.

use std::fmt;

use object_store::azure::{AzureConfigKey, MicrosoftAzure, MicrosoftAzureBuilder};
use object_store::client::HttpConnector;
use object_store::{ClientConfigKey, RetryConfig};
use url::Url;

use crate::bucket::options::{BucketOptionsError, BucketUrl, parse_bool, root};

/// The key of a storage account, for tests and tools.
#[derive(Clone, PartialEq, Eq)]
pub struct AzureAccessKey(String);

impl AzureAccessKey {
    /// A key in base64, as the portal shows it.
    pub fn new(base64: impl Into<String>) -> Self {
        Self(base64.into())
    }
}

impl fmt::Debug for AzureAccessKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AzureAccessKey")
    }
}

/// A prefix in a container. What is `None` comes from the environment
/// (`AZURE_STORAGE_ACCOUNT_NAME`, `AZURE_STORAGE_ACCOUNT_KEY`,
/// `AZURE_STORAGE_SAS_TOKEN`, `AZURE_CLIENT_ID`, ...), or from the machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AzureOptions {
    /// Name of the container.
    pub container: String,
    /// Folder in the container, without `/` at its ends; empty for all of it.
    pub prefix: String,
    /// Name of the storage account.
    pub account: Option<String>,
    /// URL of the account's blob service.
    pub endpoint: Option<String>,
    /// Whether the endpoint may be plain HTTP.
    pub allow_http: Option<bool>,
    /// Instead of the environment's credentials, or those of the machine.
    pub access_key: Option<AzureAccessKey>,
}

const KNOWN: &str = "account, endpoint and allow_http";

/// A client, and where it sends to.
pub(super) struct Built {
    pub(super) client: MicrosoftAzure,
    pub(super) account: String,
    pub(super) container_url: Url,
}

impl AzureOptions {
    /// Reads `az://container/prefix?account=...&endpoint=...`. The prefix is
    /// taken as it stands, without percent-decoding.
    ///
    /// # Errors
    ///
    /// [`BucketOptionsError`] names the part that is wrong.
    pub fn parse(url: &str) -> Result<Self, BucketOptionsError> {
        let BucketUrl { bucket, prefix, options: named } = BucketUrl::parse("az", url)?;
        let mut options = Self { container: bucket, prefix, ..Self::default() };
        for (name, value) in named {
            match name.as_str() {
                "account" => options.account = Some(value),
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
        let timeout = AzureConfigKey::Client(ClientConfigKey::Timeout);
        let mut builder = MicrosoftAzureBuilder::from_env()
            .with_container_name(&self.container)
            .with_retry(no_retries)
            .with_http_connector(http)
            .with_config(timeout, "10 minutes");
        if let Some(account) = &self.account {
            builder = builder.with_account(account);
        }
        if let Some(endpoint) = &self.endpoint {
            builder = builder.with_endpoint(endpoint.clone());
        }
        if let Some(is_allowed) = self.allow_http {
            builder = builder.with_allow_http(is_allowed);
        }
        if let Some(AzureAccessKey(key)) = &self.access_key {
            builder = builder.with_access_key(key);
        }
        let setting = |key| builder.get_config_value(&key).filter(|it| !it.is_empty());
        if setting(AzureConfigKey::UseEmulator).is_some_and(|it| it == "true") {
            let what =
                "AZURE_STORAGE_USE_EMULATOR is not followed: give `?endpoint=` and `?account=`";
            return Err(BucketOptionsError::Combination { what });
        }
        let is_fabric = setting(AzureConfigKey::UseFabricEndpoint).is_some_and(|it| it == "true");
        let domain = if is_fabric { "blob.fabric.microsoft.com" } else { "blob.core.windows.net" };
        let account = setting(AzureConfigKey::AccountName).ok_or({
            let what =
                "the storage account is not named: `?account=` or AZURE_STORAGE_ACCOUNT_NAME";
            BucketOptionsError::Combination { what }
        })?;
        let endpoint = setting(AzureConfigKey::Endpoint)
            .unwrap_or_else(|| format!("https://{account}.{domain}"));
        let container_url = self.container_url(&endpoint)?;
        let client = builder.build().map_err(BucketOptionsError::Client)?;
        Ok(Built { client, account, container_url })
    }

    fn container_url(&self, endpoint: &str) -> Result<Url, BucketOptionsError> {
        let what = "the endpoint is no URL of a blob service";
        let mut url = Url::parse(endpoint).map_err(|_| BucketOptionsError::Combination { what })?;
        url.path_segments_mut()
            .map_err(|()| BucketOptionsError::Combination { what })?
            .pop_if_empty()
            .push(&self.container);
        Ok(url)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_names_container_account_and_options_and_a_wrong_part_is_named() {
        let url = "az://c/p/?account=a&endpoint=http://127.0.0.1:10000/a&allow_http=true";
        let options = AzureOptions::parse(url).unwrap();
        assert_eq!((&*options.container, &*options.prefix), ("c", "p"));
        assert_eq!(options.account.as_deref(), Some("a"));
        let message = |url: &str| AzureOptions::parse(url).unwrap_err().to_string();
        assert!(message("az://").contains("az://bucket/prefix"));
        assert!(message("az://c?key=secret").contains("`key`"));
    }

    #[test]
    fn a_container_is_below_its_endpoint() {
        let options = AzureOptions::parse("az://c").unwrap();
        let url = |endpoint| options.container_url(endpoint).unwrap().to_string();
        assert_eq!(url("https://a.blob.core.windows.net"), "https://a.blob.core.windows.net/c");
        assert_eq!(url("http://127.0.0.1:10000/a/"), "http://127.0.0.1:10000/a/c");
    }

    #[test]
    fn a_key_is_not_printed() {
        let access_key = Some(AzureAccessKey::new("hidden"));
        let printed = format!("{:?}", AzureOptions { access_key, ..AzureOptions::default() });
        assert!(!printed.contains("hidden"), "{printed}");
    }
}
