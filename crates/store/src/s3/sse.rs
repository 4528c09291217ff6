//! Encryption by the store.

use std::fs;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey};

use crate::bucket::options::BucketOptionsError;

/// Bytes of a customer's key: AES-256 is what there is.
const CUSTOMER_KEY_LEN_BYTES: usize = 32;

/// How the store encrypts what it keeps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Sse {
    /// With the store's own key (`AES256`, SSE-S3).
    S3,
    /// With a key of the key management service (`aws:kms`, SSE-KMS).
    Kms {
        /// Its id, ARN or alias. `None`: the account's own.
        key_id: Option<String>,
    },
    /// With two of its layers (`aws:kms:dsse`).
    KmsTwice {
        /// As for [`Sse::Kms`].
        key_id: Option<String>,
    },
    /// With a key that goes with each request and that the store forgets
    /// (SSE-C).
    Customer {
        /// A file with the key: 32 bytes, or 44 characters of base64.
        key_file: PathBuf,
    },
}

/// The parts of [`Sse`] as a URL has them.
#[derive(Default)]
pub(super) struct SseParts {
    pub(super) kind: Option<String>,
    pub(super) kms_key_id: Option<String>,
    pub(super) customer_key_file: Option<String>,
}

impl SseParts {
    pub(super) fn read(self) -> Result<Option<Sse>, BucketOptionsError> {
        let combination = |what| Err(BucketOptionsError::Combination { what });
        let Some(kind) = self.kind else {
            return if self.kms_key_id.is_some() || self.customer_key_file.is_some() {
                combination("a key for encryption is given, and no `sse` that uses it")
            } else {
                Ok(None)
            };
        };
        let key_id = self.kms_key_id;
        let sse = match (kind.as_str(), self.customer_key_file) {
            ("AES256", None) if key_id.is_none() => Sse::S3,
            ("aws:kms", None) => Sse::Kms { key_id },
            ("aws:kms:dsse", None) => Sse::KmsTwice { key_id },
            ("sse-c", Some(file)) if key_id.is_none() => Sse::Customer { key_file: file.into() },
            ("sse-c", None) => return combination("`sse=sse-c` needs `sse_customer_key_file`"),
            ("AES256" | "aws:kms" | "aws:kms:dsse" | "sse-c", _) => {
                return combination("`sse` and the key for encryption do not fit together");
            }
            (_, _) => {
                return Err(BucketOptionsError::NotOneOf {
                    name: "sse".into(),
                    value: kind,
                    known: "AES256, aws:kms, aws:kms:dsse, sse-c",
                });
            }
        };
        Ok(Some(sse))
    }
}

impl Sse {
    pub(super) fn apply(
        &self,
        builder: AmazonS3Builder,
    ) -> Result<AmazonS3Builder, BucketOptionsError> {
        let (kind, key_id) = match self {
            Self::Customer { key_file } => {
                return Ok(builder.with_ssec_encryption(read_customer_key(key_file)?));
            }
            Self::S3 => ("AES256", None),
            Self::Kms { key_id } => ("aws:kms", key_id.as_deref()),
            Self::KmsTwice { key_id } => ("aws:kms:dsse", key_id.as_deref()),
        };
        let builder = builder.with_config(named("aws_server_side_encryption")?, kind);
        match key_id {
            Some(key_id) => Ok(builder.with_config(named("aws_sse_kms_key_id")?, key_id)),
            None => Ok(builder),
        }
    }
}

/// A setting that `object_store` 0.14.2 names by text only.
fn named(name: &str) -> Result<AmazonS3ConfigKey, BucketOptionsError> {
    name.parse().map_err(BucketOptionsError::Client)
}

/// Reads a customer's key, and gives it in base64.
fn read_customer_key(path: &Path) -> Result<String, BucketOptionsError> {
    let source_of = |source| BucketOptionsError::File { path: path.into(), source };
    let bytes = fs::read(path).map_err(source_of)?;
    if bytes.len() == CUSTOMER_KEY_LEN_BYTES {
        return Ok(BASE64_STANDARD.encode(bytes));
    }
    let text = bytes.trim_ascii();
    match BASE64_STANDARD.decode(text) {
        Ok(key) if key.len() == CUSTOMER_KEY_LEN_BYTES => Ok(BASE64_STANDARD.encode(key)),
        Ok(_) | Err(_) => Err(BucketOptionsError::BadFile {
            path: path.into(),
            what: format!("not a key of {CUSTOMER_KEY_LEN_BYTES} bytes, plain or in base64"),
        }),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;
    use crate::S3Options;

    fn sse(query: &str) -> Result<Option<Sse>, String> {
        let parsed = S3Options::parse(&format!("s3://b?{query}"));
        parsed.map(|it| it.sse).map_err(|it| it.to_string())
    }

    #[test]
    fn a_url_says_how_the_store_encrypts() {
        let key_id = Some("alias/k".to_owned());
        assert_eq!(sse("").unwrap(), None);
        assert_eq!(sse("sse=AES256").unwrap(), Some(Sse::S3));
        assert_eq!(sse("sse=aws:kms").unwrap(), Some(Sse::Kms { key_id: None }));
        let twice = sse("sse=aws:kms:dsse&sse_kms_key_id=alias/k").unwrap();
        assert_eq!(twice, Some(Sse::KmsTwice { key_id }));
        for (query, part) in [
            ("sse=rot13", "rot13"),
            ("sse=sse-c", "sse_customer_key_file"),
            ("sse=AES256&sse_kms_key_id=k", "fit together"),
            ("sse_kms_key_id=k", "no `sse`"),
        ] {
            let error = sse(query).unwrap_err();
            assert!(error.contains(part), "{query}: {error}");
        }
    }

    #[test]
    fn a_customer_key_is_32_bytes_plain_or_in_base64() {
        let key = [7; 32];
        let text = BASE64_STANDARD.encode(key);
        let read = |content: &[u8]| {
            let mut file = tempfile::NamedTempFile::new().unwrap();
            file.write_all(content).unwrap();
            read_customer_key(file.path()).map_err(|it| it.to_string())
        };
        assert_eq!(read(&key).unwrap(), text);
        assert_eq!(read(format!("{text}\n").as_bytes()).unwrap(), text);
        for bad in [b"".as_slice(), b"short", &[7; 31], b"AAAA"] {
            assert!(read(bad).unwrap_err().contains("32 bytes"), "{bad:?}");
        }
        assert!(read_customer_key(Path::new("/no/such/file")).is_err());
    }
}
