//! [`Store`] over a bucket of a cloud, by the `object_store` crate.
//!
//! In here: each call sent once, the raw status of its answer, and what that
//! status proves, in the words of the bucket's [`Dialect`]. Not in here: repeats
//! ([`Retry`](crate::Retry)), time limits ([`Timeout`](crate::Timeout)), settings.
//!
//! ```text
//! S3Bucket, GcsBucket, AzureContainer -> Bucket<Dialect> -> object_store -> wire
//!                                              exchange: what was sent and said
//! ```
//!
//! # Architecture invariants
//!
//! - The status of the one request that a call sent decides, never the kind of
//!   error that `object_store` made of it: that crate reports 409 on a create
//!   as "already exists", although on S3 and GCS nothing was written, makes one
//!   error of 404 and 412 on a replacement, and repeats what failed unless told
//!   not to.
//! - A tag is what the store's condition on a write compares.

pub(crate) mod ask;
mod dialect;
mod exchange;
mod list;
mod mismatched;
pub(crate) mod options;
mod parts;
mod ranges;

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use bytes::Bytes;
use headwater_core::id::Tag;
use http::StatusCode;
use object_store::path::Path;
use object_store::{Error, GetOptions, ObjectStore as _, PutMode, PutOptions, PutResult};

pub(crate) use self::dialect::{Condition, Dialect, ListOrder, Proof};
pub(crate) use self::dialect::{TagError, proof_by_status, strong_tag};
pub(crate) use self::exchange::Exchange;
pub(crate) use self::exchange::NotingConnector;
use self::mismatched::Mismatched;
use crate::{
    Cause, Folder, HeadRead, HeadWrite, Listed, NoAnswer, NoAnswerKind, PutError, ReadError, Store,
    key,
};

/// A prefix in a bucket or container.
pub struct Bucket<D> {
    pub(crate) dialect: D,
    /// Name of the bucket.
    name: String,
    /// Empty, or ends with `/`.
    root: String,
    mismatched: Mismatched,
    /// Conditional reads that brought what the caller had.
    n_in_vain: AtomicU64,
}

impl<D: Dialect> fmt::Debug for Bucket<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The client would print its credentials' provider and all its settings.
        write!(f, "{:?}({:?}, {:?})", self.dialect, self.name, self.root)
    }
}

/// The bucket or container does not exist: nothing in it can be read or written,
/// and repeating a call does not help.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no bucket {bucket} (the store answered {status})")]
pub struct NoBucket {
    /// Its name.
    pub bucket: String,
    /// The status that said so.
    pub status: StatusCode,
}

impl<D: Dialect> Bucket<D> {
    pub(crate) fn new(dialect: D, name: &str, root: String) -> Self {
        Self {
            dialect,
            name: name.into(),
            root,
            mismatched: Mismatched::default(),
            n_in_vain: AtomicU64::new(0),
        }
    }

    /// Name of the bucket or container.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// What a store that keeps versions calls that of an object.
    pub(crate) async fn version_of(&self, key: &str) -> Result<Option<String>, ReadError> {
        match self.fetch(key, GetOptions::default()).await? {
            Fetched::Found { version, .. } => Ok(version),
            Fetched::Unchanged | Fetched::Missing => Err(ReadError::Missing { key: key.into() }),
        }
    }

    fn path(&self, key: &str) -> Result<Path, Cause> {
        key::check(key, self.root.len())?;
        Ok(Path::parse(format!("{}{key}", self.root))?)
    }

    fn read_path(&self, key: &str) -> Result<Path, ReadError> {
        self.path(key).map_err(|cause| ReadError::Denied { key: key.into(), cause })
    }

    async fn fetch(&self, key: &str, options: GetOptions) -> Result<Fetched, ReadError> {
        let path = self.read_path(key)?;
        let exchange = Exchange::default();
        let options = GetOptions { extensions: exchange.extensions(), ..options };
        let got = async {
            let got = self.dialect.client().get_opts(&path, options).await?;
            let (e_tag, version) = (got.meta.e_tag.clone(), got.meta.version.clone());
            Ok::<_, Error>(Fetched::Found { bytes: got.bytes().await?, e_tag, version })
        };
        match got.await {
            Ok(found) => Ok(found),
            Err(error) => match exchange.status() {
                Some(StatusCode::NOT_MODIFIED) => Ok(Fetched::Unchanged),
                Some(StatusCode::NOT_FOUND) if !self.is_bucket_missing(&exchange) => {
                    Ok(Fetched::Missing)
                }
                _ => Err(self.read_error(key, &exchange, error)),
            },
        }
    }

    async fn write_head(
        &self,
        key: &str,
        mode: PutMode,
        condition: Condition,
        bytes: Bytes,
    ) -> HeadWrite {
        let path = match self.path(key) {
            Ok(path) => path,
            Err(cause) => {
                let kind = NoAnswerKind::Denied;
                return HeadWrite::NoAnswer(NoAnswer { kind, retry_after: None, cause });
            }
        };
        let exchange = Exchange::default();
        let options =
            PutOptions { mode, extensions: exchange.extensions(), ..PutOptions::default() };
        let result = self.dialect.client().put_opts(&path, bytes.into(), options).await;
        self.head_answer(result, condition, &exchange)
    }

    /// What the answer to a conditional write proves. An allow-list, in answer
    /// to the only request that was sent. All else, statuses invented later
    /// included, is no answer.
    pub(crate) fn head_answer(
        &self,
        result: Result<PutResult, Error>,
        condition: Condition,
        exchange: &Exchange,
    ) -> HeadWrite {
        let cause: Cause = match result {
            Ok(put) => match self.dialect.tag(put.e_tag, put.version) {
                Ok(tag) => return HeadWrite::Replaced { tag },
                Err(cause) => cause,
            },
            Err(error) => match self.proof(condition, exchange) {
                Proof::ConditionFailed => return HeadWrite::Mismatch,
                Proof::Gone => return HeadWrite::Gone,
                Proof::NoBucket => {
                    let (kind, cause) = (NoAnswerKind::Denied, Box::new(self.no_bucket()));
                    return HeadWrite::NoAnswer(NoAnswer { kind, retry_after: None, cause });
                }
                Proof::Nothing => Box::new(error),
            },
        };
        let kind = match exchange.status() {
            Some(StatusCode::CONFLICT) => NoAnswerKind::Conflict,
            Some(StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE) => {
                NoAnswerKind::Throttled
            }
            Some(StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN) => NoAnswerKind::Denied,
            _ => NoAnswerKind::Other,
        };
        HeadWrite::NoAnswer(NoAnswer { kind, retry_after: exchange.retry_after(), cause })
    }

    fn proof(&self, condition: Condition, exchange: &Exchange) -> Proof {
        match exchange.status() {
            None => Proof::Nothing,
            Some(StatusCode::NOT_FOUND) if self.is_bucket_missing(exchange) => Proof::NoBucket,
            Some(status) => self.dialect.proof(condition, status, &exchange.code()),
        }
    }

    /// Whether a 404 blames the bucket and not the key.
    fn is_bucket_missing(&self, exchange: &Exchange) -> bool {
        self.dialect.is_bucket_missing(&exchange.code())
    }

    /// What a 404 says that is not about a key.
    fn no_bucket(&self) -> NoBucket {
        NoBucket { bucket: self.name.clone(), status: StatusCode::NOT_FOUND }
    }

    fn read_error(&self, key: &str, exchange: &Exchange, error: Error) -> ReadError {
        let denied = |cause| ReadError::Denied { key: key.into(), cause };
        match exchange.status() {
            Some(StatusCode::NOT_FOUND) if self.is_bucket_missing(exchange) => {
                denied(Box::new(self.no_bucket()))
            }
            Some(StatusCode::NOT_FOUND) => ReadError::Missing { key: key.into() },
            Some(StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN) => denied(Box::new(error)),
            _ => {
                let cause = Box::new(error);
                ReadError::Unavailable { retry_after: exchange.retry_after(), cause }
            }
        }
    }

    /// What a failed creation of an immutable object means.
    async fn put_error(
        &self,
        key: &str,
        bytes: &Bytes,
        error: Error,
        exchange: &Exchange,
    ) -> Result<(), PutError> {
        match self.proof(Condition::Absent, exchange) {
            // The key is taken, maybe by an earlier attempt of this very call.
            Proof::ConditionFailed => match self.get(key).await {
                Ok(found) if found == *bytes => Ok(()),
                Ok(_) => Err(PutError::Occupied { key: key.into() }),
                // Deleted in between: the next attempt creates it.
                Err(ReadError::Missing { .. }) => {
                    let cause = Box::new(error);
                    Err(ReadError::Unavailable { retry_after: None, cause }.into())
                }
                Err(error) => Err(error.into()),
            },
            Proof::NoBucket => {
                let cause = Box::new(self.no_bucket());
                Err(ReadError::Denied { key: key.into(), cause }.into())
            }
            // 409 is among these on S3 and GCS: a concurrent call was in the
            // way, and nothing is known to have been written.
            Proof::Gone | Proof::Nothing => Err(self.read_error(key, exchange, error).into()),
        }
    }
}

enum Fetched {
    Unchanged,
    Missing,
    Found { bytes: Bytes, e_tag: Option<String>, version: Option<String> },
}

#[async_trait]
impl<D: Dialect> Store for Bucket<D> {
    fn put_requests(&self, size_bytes: u64) -> u64 {
        match self.dialect.parts() {
            Some(_) => parts::requests(size_bytes),
            None => 1,
        }
    }

    fn get_requests(&self, size_bytes: u64) -> u64 {
        ranges::requests(size_bytes)
    }

    fn reads_in_vain(&self) -> u64 {
        self.n_in_vain.load(Ordering::Relaxed)
    }

    async fn read_head(&self, key: &str, known: Option<&Tag>) -> Result<HeadRead, ReadError> {
        let asked = known.filter(|tag| !self.mismatched.take(key, tag));
        let if_none_match = asked.and_then(Tag::e_tag).map(str::to_owned);
        let is_conditional = if_none_match.is_some();
        let options = GetOptions { if_none_match, ..GetOptions::default() };
        match self.fetch(key, options).await? {
            Fetched::Missing => Ok(HeadRead::Missing),
            Fetched::Unchanged if is_conditional => Ok(HeadRead::Unchanged),
            Fetched::Unchanged => Err(ReadError::Unavailable {
                retry_after: None,
                cause: "304 in answer to an unconditional read".into(),
            }),
            Fetched::Found { bytes, e_tag, version } => match self.dialect.tag(e_tag, version) {
                // A store that ignores If-None-Match costs bytes, and is right.
                Ok(tag) if asked == Some(&tag) => {
                    self.n_in_vain.fetch_add(1, Ordering::Relaxed);
                    Ok(HeadRead::Unchanged)
                }
                Ok(tag) => Ok(HeadRead::Found { bytes, tag }),
                Err(cause) => Err(ReadError::Denied { key: key.into(), cause }),
            },
        }
    }

    async fn create_head(&self, key: &str, bytes: Bytes) -> HeadWrite {
        self.write_head(key, PutMode::Create, Condition::Absent, bytes).await
    }

    async fn replace_head(&self, key: &str, if_match: &Tag, bytes: Bytes) -> HeadWrite {
        let mode = PutMode::Update(self.dialect.condition(if_match));
        let answer = self.write_head(key, mode, Condition::Tag, bytes).await;
        if matches!(answer, HeadWrite::Mismatch) {
            self.mismatched.note(key, if_match);
        }
        answer
    }

    async fn put(&self, key: &str, bytes: Bytes) -> Result<(), PutError> {
        let path = self.read_path(key)?;
        if let Some(parts) = self.dialect.parts()
            && parts::SINGLE_LEN_BYTES_MAX < bytes.len()
        {
            return self.put_in_parts(key, &path, bytes, parts).await;
        }
        let exchange = Exchange::default();
        let options = PutOptions {
            mode: PutMode::Create,
            extensions: exchange.extensions(),
            ..PutOptions::default()
        };
        match self.dialect.client().put_opts(&path, bytes.clone().into(), options).await {
            Ok(_) => Ok(()),
            Err(error) => self.put_error(key, &bytes, error, &exchange).await,
        }
    }

    async fn get(&self, key: &str) -> Result<Bytes, ReadError> {
        match self.fetch(key, GetOptions::default()).await? {
            Fetched::Found { bytes, .. } => Ok(bytes),
            Fetched::Unchanged | Fetched::Missing => Err(ReadError::Missing { key: key.into() }),
        }
    }

    async fn get_sized(&self, key: &str, size_bytes: u64) -> Result<Bytes, ReadError> {
        if 1 < ranges::requests(size_bytes) {
            if let Some(bytes) = self.get_in_parts(key, size_bytes).await? {
                return Ok(bytes);
            }
            // The size was wrong, or the store has no parts. That is asked again
            // with the next large object, of which there are few.
            tracing::debug!(key, size_bytes, "read whole: no parts of that size");
        }
        self.get(key).await
    }

    async fn list(
        &self,
        prefix: &str,
        start_after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<Listed>, ReadError> {
        key::check_prefix(prefix, self.root.len()).map_err(|it| ReadError::bad_key(prefix, it))?;
        match self.dialect.list_order() {
            ListOrder::ByKey => self.list_ordered(prefix, start_after, limit).await,
            ListOrder::None => self.list_unordered(prefix, start_after, limit).await,
        }
    }

    async fn list_folder(&self, prefix: &str) -> Result<Folder, ReadError> {
        key::check_folder(prefix, self.root.len()).map_err(|it| ReadError::bad_key(prefix, it))?;
        self.list_one_folder(prefix).await
    }

    async fn delete(&self, key: &str) -> Result<(), ReadError> {
        let path = self.read_path(key)?;
        let exchange = Exchange::default();
        match self.dialect.delete(path, &exchange).await {
            Ok(()) => Ok(()),
            Err(error) => match self.read_error(key, &exchange, error) {
                ReadError::Missing { .. } => Ok(()),
                error @ (ReadError::Unavailable { .. }
                | ReadError::Denied { .. }
                | ReadError::Sealed { .. }) => Err(error),
            },
        }
    }
}
