//! Which bucket, and how to reach it.

use std::sync::Arc;
use std::{env, fmt};

use object_store::aws::{AmazonS3, AmazonS3Builder, AmazonS3ConfigKey, S3ConditionalPut};
use object_store::client::HttpConnector;
use object_store::{ClientConfigKey, RetryConfig};

use super::profile::Profile;
use super::sse::{Sse, SseParts};
use crate::bucket::options::{BucketOptionsError, BucketUrl, parse_bool, parse_one_of, root};

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

/// The form in which a replacement names a tag.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TagForm {
    /// With its quotes, as HTTP has it.
    #[default]
    Quoted,
    /// Without them, for servers that compare the header's bytes with the bare
    /// tag (Ceph 16).
    Unquoted,
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
    /// Whether it is a directory bucket (S3 Express One Zone). `None`: if its
    /// name ends with `--x-s3`.
    pub directory: Option<bool>,
    /// Whether large objects go in parts. `None` is yes.
    pub multipart: Option<bool>,
    /// Whether the requester pays.
    pub request_payer: Option<bool>,
    /// In which form a replacement names a tag.
    pub tag_form: TagForm,
    /// How the store encrypts. `None`: as the bucket is set.
    pub sse: Option<Sse>,
    /// Whether KMS is asked once for many objects of the bucket.
    pub bucket_key: Option<bool>,
    /// A section of the shared credentials and config files.
    pub profile: Option<String>,
    /// URL of the service that hands out a machine's keys.
    pub metadata_endpoint: Option<String>,
    /// Instead of the environment's credentials, or those of the machine.
    pub credentials: Option<S3Credentials>,
}

const KNOWN: &str = "endpoint, region, allow_http, path_style, directory, multipart, \
    request_payer, tag_form, sse, sse_kms_key_id, sse_customer_key_file, bucket_key, \
    metadata_endpoint and profile";

/// A client, and where it sends to.
pub(super) struct Built {
    pub(super) client: AmazonS3,
    pub(super) region: String,
    pub(super) bucket_endpoint: String,
}

impl S3Options {
    /// Reads `s3://bucket/prefix?endpoint=...&region=...`. The prefix is taken
    /// as it stands, without percent-decoding.
    ///
    /// # Errors
    ///
    /// [`BucketOptionsError`] names the part that is wrong.
    pub fn parse(url: &str) -> Result<Self, BucketOptionsError> {
        let BucketUrl { bucket, prefix, options: named } = BucketUrl::parse("s3", url)?;
        let mut options = Self { bucket, prefix, ..Self::default() };
        let mut sse = SseParts::default();
        for (name, value) in named {
            match name.as_str() {
                "endpoint" => options.endpoint = Some(value),
                "region" => options.region = Some(value),
                "metadata_endpoint" => options.metadata_endpoint = Some(value),
                "profile" => options.profile = Some(value),
                "allow_http" => options.allow_http = Some(parse_bool(&name, &value)?),
                "path_style" => options.path_style = Some(parse_bool(&name, &value)?),
                "directory" => options.directory = Some(parse_bool(&name, &value)?),
                "multipart" => options.multipart = Some(parse_bool(&name, &value)?),
                "request_payer" => options.request_payer = Some(parse_bool(&name, &value)?),
                "bucket_key" => options.bucket_key = Some(parse_bool(&name, &value)?),
                "tag_form" => options.tag_form = parse_tag_form(&name, &value)?,
                "sse" => sse.kind = Some(value),
                "sse_kms_key_id" => sse.kms_key_id = Some(value),
                "sse_customer_key_file" => sse.customer_key_file = Some(value),
                _ => return Err(BucketOptionsError::UnknownOption { name, known: KNOWN }),
            }
        }
        options.sse = sse.read()?;
        Ok(options)
    }

    /// What all keys begin with: empty, or ends with `/`.
    pub(super) fn root(&self) -> Result<String, BucketOptionsError> {
        root(&self.prefix)
    }

    /// Whether it is a directory bucket.
    pub(super) fn is_directory(&self) -> bool {
        // "The name must end with --x-s3" (AWS, "Directory bucket naming rules").
        self.directory.unwrap_or_else(|| self.bucket.ends_with("--x-s3"))
    }

    pub(super) fn build(&self, http: impl HttpConnector) -> Result<Built, BucketOptionsError> {
        // No repeats below this line. object_store 0.14 repeats a conditional
        // PUT after a 5xx, 408, 409 or 429, and after a connection that closed
        // without an answer (src/client/retry.rs). If the first one had been
        // applied, the second gets 412, and our own success would be reported
        // as somebody else's. It also makes "exists already" of 409, on which
        // nothing was written. crate::Retry repeats what may be repeated.
        let no_retries = RetryConfig { max_retries: 0, ..RetryConfig::default() };
        let builder = AmazonS3Builder::from_env()
            .with_bucket_name(&self.bucket)
            .with_retry(no_retries)
            .with_http_connector(http)
            .with_conditional_put(S3ConditionalPut::ETagMatch)
            .with_s3_express(self.is_directory())
            // One DELETE for one object. The other form reports failures in the
            // body of a 200, without a status of their own.
            .with_config(AmazonS3ConfigKey::DisableBulkDelete, "true")
            // crate::Timeout bounds calls by what they move. The client's own
            // 30 s would cut off large objects, 10 minutes never come first.
            .with_config(AmazonS3ConfigKey::Client(ClientConfigKey::Timeout), "10 minutes");
        let builder = self.with_encryption(self.with_credentials(self.with_place(builder))?)?;
        let region = setting(&builder, AmazonS3ConfigKey::Region);
        let region = region.unwrap_or_else(|| "us-east-1".into());
        let bucket_endpoint = self.bucket_endpoint(&builder, &region);
        let client = builder.build().map_err(BucketOptionsError::Client)?;
        Ok(Built { client, region, bucket_endpoint })
    }

    fn with_place(&self, mut builder: AmazonS3Builder) -> AmazonS3Builder {
        if let Some(endpoint) = &self.endpoint {
            builder = builder.with_config(AmazonS3ConfigKey::S3Endpoint, endpoint);
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
        if let Some(endpoint) = &self.metadata_endpoint {
            builder = builder.with_metadata_endpoint(endpoint);
        }
        if let Some(pays) = self.request_payer {
            builder = builder.with_request_payer(pays);
        }
        builder
    }

    /// Key pair or profile of the options, key pair of the environment, profile
    /// of the environment; and what `object_store` looks for after that: web
    /// identity, container, machine.
    fn with_credentials(
        &self,
        builder: AmazonS3Builder,
    ) -> Result<AmazonS3Builder, BucketOptionsError> {
        if let Some(credentials) = &self.credentials {
            return Ok(builder
                .with_access_key_id(&credentials.access_key_id)
                .with_secret_access_key(&credentials.secret_access_key));
        }
        let has_keys = setting(&builder, AmazonS3ConfigKey::AccessKeyId).is_some();
        let name = match &self.profile {
            Some(name) => Some(name.clone()),
            None if has_keys => None,
            None => env::var("AWS_PROFILE").ok().filter(|it| !it.is_empty()),
        };
        let Some(name) = name else { return Ok(builder) };
        let profile = Profile::from_env(&name)?;
        let region = setting(&builder, AmazonS3ConfigKey::Region);
        let builder = match (region, profile.region()?) {
            (None, Some(region)) => builder.with_region(region),
            (Some(_), _) | (None, None) => builder,
        };
        Ok(builder.with_credentials(Arc::new(profile)))
    }

    fn with_encryption(
        &self,
        builder: AmazonS3Builder,
    ) -> Result<AmazonS3Builder, BucketOptionsError> {
        let builder = match self.bucket_key {
            Some(is_on) => builder.with_bucket_key(is_on),
            None => builder,
        };
        match &self.sse {
            Some(sse) => sse.apply(builder),
            None => Ok(builder),
        }
    }

    /// Where the bucket is, as `object_store` 0.14.2 works it out for itself
    /// (src/aws/builder.rs, `build`) and does not tell.
    fn bucket_endpoint(&self, builder: &AmazonS3Builder, region: &str) -> String {
        let bucket = &self.bucket;
        let endpoint = setting(builder, AmazonS3ConfigKey::S3Endpoint)
            .or_else(|| setting(builder, AmazonS3ConfigKey::Endpoint));
        let in_host = setting(builder, AmazonS3ConfigKey::VirtualHostedStyleRequest)
            .is_some_and(|it| it == "true");
        match endpoint {
            Some(endpoint) if in_host => endpoint,
            Some(endpoint) => format!("{}/{bucket}", endpoint.trim_end_matches('/')),
            None if in_host => format!("https://{bucket}.s3.{region}.amazonaws.com"),
            None => format!("https://s3.{region}.amazonaws.com/{bucket}"),
        }
    }
}

fn setting(builder: &AmazonS3Builder, name: AmazonS3ConfigKey) -> Option<String> {
    builder.get_config_value(&name).filter(|it| !it.is_empty())
}

fn parse_tag_form(name: &str, value: &str) -> Result<TagForm, BucketOptionsError> {
    parse_one_of(name, value, "quoted, unquoted", |it| match it {
        "quoted" => Some(TagForm::Quoted),
        "unquoted" => Some(TagForm::Unquoted),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_names_bucket_prefix_and_options() {
        let url = "s3://b/a%20b/c/?endpoint=http://127.0.0.1:4577&region=eu-x&allow_http=true\
            &tag_form=unquoted&multipart=false&profile=p";

        let options = S3Options::parse(url).unwrap();

        let expected = S3Options {
            bucket: "b".into(),
            prefix: "a%20b/c".into(),
            endpoint: Some("http://127.0.0.1:4577".into()),
            region: Some("eu-x".into()),
            allow_http: Some(true),
            tag_form: TagForm::Unquoted,
            multipart: Some(false),
            profile: Some("p".into()),
            ..S3Options::default()
        };
        assert_eq!(options, expected);
        assert_eq!(options.root().unwrap(), "a%20b/c/");
        assert_eq!(S3Options::parse("s3://b").unwrap().root().unwrap(), "");
    }

    #[test]
    fn a_directory_bucket_is_known_by_its_name() {
        let is_directory = |url: &str| S3Options::parse(url).unwrap().is_directory();
        assert!(is_directory("s3://b--usw2-az1--x-s3"));
        assert!(!is_directory("s3://b"));
        assert!(!is_directory("s3://b--usw2-az1--x-s3?directory=false"));
    }

    #[test]
    fn a_wrong_part_is_named() {
        let message = |url: &str| S3Options::parse(url).unwrap_err().to_string();
        assert!(message("s3:///p").contains("s3:///p"));
        assert!(message("gs://b/p").contains("gs://b/p"));
        assert!(message("s3://b?secret=x").contains("`secret`"));
        assert!(message("s3://b?allow_http=yes").contains("`yes`"));
        assert!(message("s3://b?tag_form=bare").contains("quoted, unquoted"));
        assert!(message("s3://b/../c").contains("../c"));
    }

    #[test]
    fn a_bucket_is_asked_where_its_objects_are() {
        let endpoint = |url: &str| {
            let options = S3Options::parse(url).unwrap();
            options.build(crate::bucket::NotingConnector::default()).unwrap().bucket_endpoint
        };
        assert_eq!(endpoint("s3://b?region=eu-x"), "https://s3.eu-x.amazonaws.com/b");
        let in_host = "https://b.s3.eu-x.amazonaws.com";
        assert_eq!(endpoint("s3://b?region=eu-x&path_style=false"), in_host);
        assert_eq!(endpoint("s3://b?endpoint=https://h/"), "https://h/b");
        assert_eq!(endpoint("s3://b?endpoint=https://b.h&path_style=false"), "https://b.h");
    }

    #[test]
    fn a_secret_is_not_printed() {
        let (access_key_id, secret_access_key) = ("known".into(), "hidden".into());
        let credentials = Some(S3Credentials { access_key_id, secret_access_key });
        let printed = format!("{:?}", S3Options { credentials, ..S3Options::default() });
        assert!(printed.contains("known") && !printed.contains("hidden"), "{printed}");
    }
}
