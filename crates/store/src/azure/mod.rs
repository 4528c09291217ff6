//! Containers of Azure Blob Storage.
//!
//! In here: settings, questions about the account, and what Azure's error codes
//! prove. Not in here: the calls
//! ([`Bucket`]).
//!
//! # Architecture invariants
//!
//! - A tag is the `ETag`, which Azure makes anew with each write, whatever the
//!   bytes are.
//! - A status alone proves less here than on S3: 409 is the answer to a creation
//!   where the blob exists and to much else, 412 to a failed condition and to a
//!   lease. The code in `x-ms-error-code` tells.

mod ask;
mod options;

use std::fmt;

use async_trait::async_trait;
use headwater_core::id::Tag;
use http::{Method, Request, StatusCode};
use object_store::azure::{AzureAuthorizer, MicrosoftAzure};
use object_store::client::{HttpClient, HttpRequestBody};
use object_store::path::Path;
use object_store::{Error, UpdateVersion};
use url::Url;

pub use self::options::{AzureAccessKey, AzureOptions};
use crate::Cause;
use crate::bucket::options::BucketOptionsError;
use crate::bucket::{Bucket, Condition, Dialect, Exchange, NotingConnector, Proof, strong_tag};

/// A prefix in a container of Azure Blob Storage.
pub type AzureContainer = Bucket<Azure>;

/// The words of Azure Blob Storage.
pub struct Azure {
    client: MicrosoftAzure,
    account: String,
    container_url: Url,
    /// For deletions.
    http: Option<HttpClient>,
}

impl fmt::Debug for Azure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AzureContainer")
    }
}

impl AzureContainer {
    /// Takes the container that `options` names. Nothing is sent.
    ///
    /// # Errors
    ///
    /// [`BucketOptionsError`] when the options do not fit together.
    pub fn open(options: &AzureOptions) -> Result<Self, BucketOptionsError> {
        let root = options.root()?;
        let connector = NotingConnector::default();
        let built = options.build(connector.clone())?;
        let dialect = Azure {
            client: built.client,
            account: built.account,
            container_url: built.container_url,
            http: connector.client(),
        };
        Ok(Self::new(dialect, &options.container, root))
    }
}

/// A deletion that never reached the store, or got no answer, or an error.
#[derive(Debug, thiserror::Error)]
enum DeletionError {
    #[error("the blob has no URL")]
    Url,
    #[error("there is no connection")]
    NoClient,
    #[error("the store answered {status} {code}")]
    Status { status: StatusCode, code: String },
}

fn failed(source: impl Into<Cause>) -> Error {
    Error::Generic { store: "MicrosoftAzure", source: source.into() }
}

#[async_trait]
impl Dialect for Azure {
    type Client = MicrosoftAzure;

    fn client(&self) -> &MicrosoftAzure {
        &self.client
    }

    fn tag(&self, e_tag: Option<String>, _version: Option<String>) -> Result<Tag, Cause> {
        Ok(strong_tag(e_tag)?)
    }

    fn condition(&self, tag: &Tag) -> UpdateVersion {
        UpdateVersion { e_tag: tag.e_tag().map(str::to_owned), version: None }
    }

    fn proof(&self, condition: Condition, status: StatusCode, code: &str) -> Proof {
        // Blob service REST API, "Blob service error codes" and "Specifying
        // conditional headers for Blob service operations".
        match (status, condition, code) {
            (StatusCode::PRECONDITION_FAILED, _, "ConditionNotMet" | "TargetConditionNotMet")
            | (StatusCode::CONFLICT, Condition::Absent, "BlobAlreadyExists") => {
                Proof::ConditionFailed
            }
            (StatusCode::NOT_FOUND, Condition::Tag, "BlobNotFound" | "") => Proof::Gone,
            // Azure answers 404 to a creation for want of a container only.
            (StatusCode::NOT_FOUND, Condition::Absent, _) => Proof::NoBucket,
            _ => Proof::Nothing,
        }
    }

    fn is_bucket_missing(&self, code: &str) -> bool {
        code == "ContainerNotFound"
    }

    // object_store 0.14.2 takes only names that are longer than the prefix
    // (src/azure/client.rs, `to_list_result`).
    fn hides_exact_key(&self) -> bool {
        true
    }

    // object_store 0.14.2 deletes by a batch (src/azure/client.rs,
    // `bulk_delete_request`): its answer is 202, and the status that counts is
    // inside, where it is turned into an error without one. So a refusal could
    // not be told from trouble. One DELETE has a status.
    async fn delete(&self, path: Path, exchange: &Exchange) -> Result<(), Error> {
        let http = self.http.as_ref().ok_or_else(|| failed(DeletionError::NoClient))?;
        let mut url = self.container_url.clone();
        url.path_segments_mut().map_err(|()| failed(DeletionError::Url))?.extend(path.parts());
        let mut request = Request::builder()
            .method(Method::DELETE)
            .uri(url.as_str())
            .extension(exchange.clone())
            .body(HttpRequestBody::empty())
            .map_err(failed)?;
        let credential = self.client.credentials().get_credential().await?;
        AzureAuthorizer::new(&credential, &self.account).try_authorize(&mut request)?;
        let answer = http.execute(request).await.map_err(failed)?;
        let status = answer.status();
        if status.is_success() {
            return Ok(());
        }
        Err(failed(DeletionError::Status { status, code: exchange.code() }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_code_proves_what_a_status_does_not() {
        let options = AzureOptions::parse("az://c?account=a").unwrap();
        let key = Some(AzureAccessKey::new("a2V5"));
        let container = AzureContainer::open(&AzureOptions { access_key: key, ..options }).unwrap();
        let proof = |condition, status: u16, code: &str| {
            container.dialect.proof(condition, StatusCode::from_u16(status).unwrap(), code)
        };
        for (condition, status, code, expected) in [
            (Condition::Absent, 409, "BlobAlreadyExists", Proof::ConditionFailed),
            (Condition::Absent, 412, "ConditionNotMet", Proof::ConditionFailed),
            (Condition::Tag, 412, "ConditionNotMet", Proof::ConditionFailed),
            (Condition::Tag, 404, "BlobNotFound", Proof::Gone),
            (Condition::Absent, 404, "", Proof::NoBucket),
            // A lease, a policy, another call: nothing about the condition.
            (Condition::Tag, 412, "LeaseIdMissing", Proof::Nothing),
            (Condition::Tag, 412, "", Proof::Nothing),
            (Condition::Absent, 409, "BlobImmutableDueToPolicy", Proof::Nothing),
            (Condition::Absent, 409, "", Proof::Nothing),
            (Condition::Tag, 409, "BlobAlreadyExists", Proof::Nothing),
            (Condition::Tag, 404, "AccountNotFound", Proof::Nothing),
            (Condition::Tag, 500, "ConditionNotMet", Proof::Nothing),
        ] {
            assert_eq!(proof(condition, status, code), expected, "{condition:?} {status} {code}");
        }
    }
}
