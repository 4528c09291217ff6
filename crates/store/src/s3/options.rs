//! Which bucket, and how to reach it.

use std::fmt;

use object_store::aws::{AmazonS3, AmazonS3Builder, AmazonS3ConfigKey, S3ConditionalPut};
use object_store::{ClientConfigKey, RetryConfig};

use super::exchange::NotingConnector;
use crate::key::{self, KeyError};

/// A key pair, for tests and tools. Services take theirs from the environment.
#[derive(Clone, PartialEq, Eq)]
pub struct S3Credentials {
    /// Access key id.
    pub access_key_id: String,
    /// Secret access key.
    pub secret_access_key: String,
}

impl fmt::Debug for S3Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("S3Credentials")
            .field("access_key_id", &self.access_key_id)
            .finish_non_exhaustive()
    }
}

/// A prefix in a bucket. What is `None` comes from the environment (`AWS_REGION`,
/// `AWS_ENDPOINT_URL`, `AWS_ALLOW_HTTP`, ...), or is AWS's default.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct S3Options {
    /// Name of the bucket.
    pub bucket: String,
    /// Folder in the bucket, without `/` at its ends; empty for all of it.
    pub prefix: String,
    /// URL of the service.
    pub endpoint: Option<String>,
    /// Region of the bucket.
    pub region: Option<String>,
    /// Whether the endpoint may be plain HTTP.
    pub allow_http: Option<bool>,
    /// Whether the bucket is named in the path and not in the host.
    pub path_style: Option<bool>,
    /// Instead of the environment's credentials, or those of the machine.
    pub credentials: Option<S3Credentials>,
}

/// Why options do not name a bucket.
#[derive(Debug, thiserror::Error)]
pub enum S3OptionsError {
    /// Not `s3://bucket/prefix?...`.
    #[error("a store in S3 is `s3://bucket/prefix`: {url}")]
    NotS3Url {
        /// What was given.
        url: String,
    },
    /// A name after `?` that means nothing.
    #[error("unknown option `{name}`: there are endpoint, region, allow_http and path_style")]
    UnknownOption {
        /// The name.
        name: String,
    },
    /// A value that is not `true` or `false`.
    #[error("option `{name}` is `true` or `false`, not `{value}`")]
    NotBool {
        /// Which option.
        name: String,
        /// What was given.
        value: String,
    },
    /// The prefix cannot be the beginning of a key.
    #[error("not a prefix of keys: {prefix}")]
    Prefix {
        /// The prefix.
        prefix: String,
        /// What is wrong with it.
        #[source]
        source: KeyError,
    },
    /// The client refuses the settings: these, or the environment's.
    #[error("the S3 client refuses its settings")]
    Client(#[source] object_store::Error),
}

impl S3Options {
    /// Reads `s3://bucket/prefix?endpoint=...&region=...&allow_http=true`.
    /// The prefix is taken as it stands, without percent-decoding.
    ///
    /// # Errors
    ///
    /// [`S3OptionsError`] names the part that is wrong.
    pub fn parse(url: &str) -> Result<Self, S3OptionsError> {
        let not_s3 = || S3OptionsError::NotS3Url { url: url.into() };
        let rest = url.strip_prefix("s3://").ok_or_else(not_s3)?;
        let (place, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (bucket, prefix) = place.split_once('/').unwrap_or((place, ""));
        if bucket.is_empty() {
            return Err(not_s3());
        }
        let prefix = prefix.strip_suffix('/').unwrap_or(prefix);
        let mut options = Self { bucket: bucket.into(), prefix: prefix.into(), ..Self::default() };
        options.root()?;
        for (name, value) in url::form_urlencoded::parse(query.as_bytes()) {
            match &*name {
                "endpoint" => options.endpoint = Some(value.into_owned()),
                "region" => options.region = Some(value.into_owned()),
                "allow_http" => options.allow_http = Some(parse_bool(&name, &value)?),
                "path_style" => options.path_style = Some(parse_bool(&name, &value)?),
                _ => return Err(S3OptionsError::UnknownOption { name: name.into_owned() }),
            }
        }
        Ok(options)
    }

    /// What all keys begin with: empty, or ends with `/`.
    pub(super) fn root(&self) -> Result<String, S3OptionsError> {
        if self.prefix.is_empty() {
            return Ok(String::new());
        }
        key::check(&self.prefix, 0)
            .map_err(|source| S3OptionsError::Prefix { prefix: self.prefix.clone(), source })?;
        Ok(format!("{}/", self.prefix))
    }

    pub(super) fn build(&self) -> Result<AmazonS3, S3OptionsError> {
        // No repeats below this line. object_store 0.14 repeats a conditional
        // PUT after a 5xx, 408, 409 or 429, and after a connection that closed
        // without an answer (src/client/retry.rs). If the first one had been
        // applied, the second gets 412, and our own success would be reported
        // as somebody else's. It also makes "exists already" of 409, on which
        // nothing was written. crate::Retry repeats what may be repeated.
        let no_retries = RetryConfig { max_retries: 0, ..RetryConfig::default() };
        let mut builder = AmazonS3Builder::from_env()
            .with_bucket_name(&self.bucket)
            .with_retry(no_retries)
            .with_http_connector(NotingConnector::default())
            .with_conditional_put(S3ConditionalPut::ETagMatch)
            // One DELETE for one object. The other form reports failures in the
            // body of a 200, without a status of their own.
            .with_config(AmazonS3ConfigKey::DisableBulkDelete, "true")
            // crate::Timeout bounds calls by what they move. The client's own
            // 30 s would cut off large objects, 10 minutes never come first.
            .with_config(AmazonS3ConfigKey::Client(ClientConfigKey::Timeout), "10 minutes");
        if let Some(endpoint) = &self.endpoint {
            builder = builder.with_endpoint(endpoint);
        }
        if let Some(region) = &self.region {
            builder = builder.with_region(region);
        }
        if let Some(is_allowed) = self.allow_http {
            builder = builder.with_allow_http(is_allowed);
        }
        if let Some(is_path_style) = self.path_style {
            builder = builder.with_virtual_hosted_style_request(!is_path_style);
        }
        if let Some(credentials) = &self.credentials {
            builder = builder
                .with_access_key_id(&credentials.access_key_id)
                .with_secret_access_key(&credentials.secret_access_key);
        }
        builder.build().map_err(S3OptionsError::Client)
    }
}

fn parse_bool(name: &str, value: &str) -> Result<bool, S3OptionsError> {
    value.parse().map_err(|_| S3OptionsError::NotBool { name: name.into(), value: value.into() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_names_bucket_prefix_and_options() {
        let url = "s3://b/a%20b/c/?endpoint=http://127.0.0.1:4577&region=eu-x&allow_http=true";

        let options = S3Options::parse(url).unwrap();

        let expected = S3Options {
            bucket: "b".into(),
            prefix: "a%20b/c".into(),
            endpoint: Some("http://127.0.0.1:4577".into()),
            region: Some("eu-x".into()),
            allow_http: Some(true),
            ..S3Options::default()
        };
        assert_eq!(options, expected);
        assert_eq!(options.root().unwrap(), "a%20b/c/");
        assert_eq!(S3Options::parse("s3://b").unwrap().root().unwrap(), "");
    }

    #[test]
    fn a_wrong_part_is_named() {
        let message = |url: &str| S3Options::parse(url).unwrap_err().to_string();
        assert!(message("s3:///p").contains("s3:///p"));
        assert!(message("s3://b?secret=x").contains("`secret`"));
        assert!(message("s3://b?allow_http=yes").contains("`yes`"));
        assert!(message("s3://b/../c").contains("../c"));
    }

    #[test]
    fn a_secret_is_not_printed() {
        let (access_key_id, secret_access_key) = ("known".into(), "hidden".into());
        let credentials = Some(S3Credentials { access_key_id, secret_access_key });
        let printed = format!("{:?}", S3Options { credentials, ..S3Options::default() });
        assert!(printed.contains("known") && !printed.contains("hidden"), "{printed}");
    }
}
