//! [`Store`] over a bucket that speaks S3, by the `object_store` crate.
//!
//! In here: each call sent once, the raw status of its answer, and what that
//! status proves. Not in here: repeats ([`Retry`](crate::Retry)), time limits
//! ([`Timeout`](crate::Timeout)).
//!
//! # Architecture invariants
//!
//! - The status of the one request that a call sent decides, never the kind of
//!   error that `object_store` made of it: that crate reports 409 on a create
//!   as "already exists", although nothing was written, and repeats what failed
//!   unless told not to.
//! - A tag is a strong `ETag` and nothing else, since that is what If-Match
//!   compares.

mod exchange;
mod options;

use std::fmt;

use async_trait::async_trait;
use bytes::Bytes;
use futures::{StreamExt, TryStreamExt, stream};
use headwater_core::id::Tag;
use http::StatusCode;
use object_store::aws::AmazonS3;
use object_store::list::{PaginatedListOptions, PaginatedListStore};
use object_store::path::Path;
use object_store::{Error, GetOptions, ObjectStore, PutMode, PutOptions, PutResult, UpdateVersion};

use self::exchange::Exchange;
pub use self::options::{S3Credentials, S3Options, S3OptionsError};
use crate::{
    Cause, Folder, HeadRead, HeadWrite, Listed, NoAnswer, NoAnswerKind, PutError, ReadError, Store,
    key,
};

/// Keys in one page of a listing: what S3 allows.
const PAGE_KEYS_MAX: usize = 1000;

/// Most entries of one folder. A listing by folder is for people and for the
/// names of histories, of which there are fewer.
const FOLDER_ENTRIES_MAX: usize = 100_000;

/// A prefix in a bucket.
pub struct S3Bucket {
    client: AmazonS3,
    /// Name of the bucket.
    bucket: String,
    /// Empty, or ends with `/`.
    root: String,
}

impl fmt::Debug for S3Bucket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // `client` would print its credentials' provider and all its settings.
        write!(f, "S3Bucket({}, {:?})", self.client, self.root)
    }
}

/// An answer without a tag that If-Match could compare.
#[derive(Debug, thiserror::Error)]
enum TagError {
    #[error("the object store answered without an ETag, so heads cannot be compared")]
    Missing,
    #[error("the object store answered with the weak ETag {e_tag}, which If-Match never matches")]
    Weak { e_tag: String },
}

/// The bucket does not exist: nothing in it can be read or written, and
/// repeating a call does not help.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no bucket {bucket} (the store answered {status})")]
pub struct NoBucket {
    /// Its name.
    pub bucket: String,
    /// The status that said so.
    pub status: StatusCode,
}

/// The folder holds more than can be listed.
#[derive(Debug, thiserror::Error)]
#[error("more than {FOLDER_ENTRIES_MAX} entries in one folder")]
struct FolderTooLarge;

fn tag_of(e_tag: Option<String>) -> Result<Tag, TagError> {
    match e_tag {
        None => Err(TagError::Missing),
        Some(e_tag) if e_tag.starts_with("W/") => Err(TagError::Weak { e_tag }),
        Some(e_tag) => Ok(Tag::new(e_tag)),
    }
}

impl S3Bucket {
    /// Takes the bucket that `options` names. Nothing is sent.
    ///
    /// # Errors
    ///
    /// [`S3OptionsError`] when the options do not fit together.
    pub fn open(options: &S3Options) -> Result<Self, S3OptionsError> {
        let root = options.root()?;
        Ok(Self { client: options.build()?, bucket: options.bucket.clone(), root })
    }

    fn path(&self, key: &str) -> Result<Path, Cause> {
        key::check(key, self.root.len())?;
        Ok(Path::parse(format!("{}{key}", self.root))?)
    }

    fn read_path(&self, key: &str) -> Result<Path, ReadError> {
        self.path(key).map_err(|cause| ReadError::Denied { key: key.into(), cause })
    }

    async fn fetch(&self, key: &str, if_none_match: Option<String>) -> Result<Fetched, ReadError> {
        let path = self.read_path(key)?;
        let exchange = Exchange::default();
        let options = GetOptions {
            if_none_match,
            extensions: exchange.extensions(),
            ..GetOptions::default()
        };
        let got = async {
            let got = self.client.get_opts(&path, options).await?;
            let e_tag = got.meta.e_tag.clone();
            Ok::<_, Error>((got.bytes().await?, e_tag))
        };
        match got.await {
            Ok((bytes, e_tag)) => Ok(Fetched::Found { bytes, e_tag }),
            Err(error) => match exchange.status() {
                Some(StatusCode::NOT_MODIFIED) => Ok(Fetched::Unchanged),
                Some(StatusCode::NOT_FOUND) if !exchange.is_bucket_missing() => {
                    Ok(Fetched::Missing)
                }
                _ => Err(self.read_error(key, &exchange, error)),
            },
        }
    }

    async fn write_head(&self, key: &str, mode: PutMode, bytes: Bytes) -> HeadWrite {
        let path = match self.path(key) {
            Ok(path) => path,
            Err(cause) => {
                let kind = NoAnswerKind::Denied;
                return HeadWrite::NoAnswer(NoAnswer { kind, retry_after: None, cause });
            }
        };
        let exchange = Exchange::default();
        let is_replacement = matches!(mode, PutMode::Update(_));
        let options =
            PutOptions { mode, extensions: exchange.extensions(), ..PutOptions::default() };
        let result = self.client.put_opts(&path, bytes.into(), options).await;
        if exchange.status() == Some(StatusCode::NOT_FOUND)
            && (exchange.is_bucket_missing() || !is_replacement)
        {
            let (kind, cause) = (NoAnswerKind::Denied, Box::new(self.no_bucket()));
            return HeadWrite::NoAnswer(NoAnswer { kind, retry_after: None, cause });
        }
        head_answer(result, &exchange)
    }

    /// What a 404 says that is not about a key.
    fn no_bucket(&self) -> NoBucket {
        NoBucket { bucket: self.bucket.clone(), status: StatusCode::NOT_FOUND }
    }

    fn read_error(&self, key: &str, exchange: &Exchange, error: Error) -> ReadError {
        let denied = |cause| ReadError::Denied { key: key.into(), cause };
        match exchange.status() {
            Some(StatusCode::NOT_FOUND) if exchange.is_bucket_missing() => {
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

    async fn page(&self, prefix: &str, options: PaginatedListOptions) -> Result<Page, ReadError> {
        let exchange = Exchange::default();
        let full = format!("{}{prefix}", self.root);
        let options = PaginatedListOptions { extensions: exchange.extensions(), ..options };
        let prefix_sent = (!full.is_empty()).then_some(full.as_str());
        let page = self
            .client
            .list_paginated(prefix_sent, options)
            .await
            .map_err(|error| self.read_error(prefix, &exchange, error))?;
        // Keys outside the root do not begin with what was asked for.
        let below = |path: &Path| path.as_ref().strip_prefix(&self.root).map(str::to_owned);
        let objects =
            page.result.objects.iter().filter_map(|it| {
                below(&it.location).map(|key| Listed { key, size_bytes: it.size })
            });
        let folders = page.result.common_prefixes.iter().filter_map(below);
        Ok(Page {
            objects: objects.collect(),
            folders: folders.map(|it| it + "/").collect(),
            next: page.page_token,
        })
    }
}

enum Fetched {
    Unchanged,
    Missing,
    Found { bytes: Bytes, e_tag: Option<String> },
}

struct Page {
    objects: Vec<Listed>,
    folders: Vec<String>,
    next: Option<String>,
}

/// What the answer to a conditional write proves.
///
/// An allow-list: 412 is a mismatch, and 404, which S3 answers where If-Match
/// names an object that does not exist, says that the head is gone; each in
/// answer to the only request that was sent. All else, statuses invented later
/// included, is no answer.
fn head_answer(result: Result<PutResult, Error>, exchange: &Exchange) -> HeadWrite {
    let status = exchange.status();
    let cause: Cause = match (result, status) {
        (Ok(put), _) => match tag_of(put.e_tag) {
            Ok(tag) => return HeadWrite::Replaced { tag },
            Err(error) => Box::new(error),
        },
        (Err(_), Some(StatusCode::PRECONDITION_FAILED)) => return HeadWrite::Mismatch,
        (Err(_), Some(StatusCode::NOT_FOUND)) => return HeadWrite::Gone,
        (Err(error), _) => Box::new(error),
    };
    let kind = match status {
        Some(StatusCode::CONFLICT) => NoAnswerKind::Conflict,
        Some(StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE) => {
            NoAnswerKind::Throttled
        }
        Some(StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN) => NoAnswerKind::Denied,
        _ => NoAnswerKind::Other,
    };
    HeadWrite::NoAnswer(NoAnswer { kind, retry_after: exchange.retry_after(), cause })
}

#[async_trait]
impl Store for S3Bucket {
    async fn read_head(&self, key: &str, known: Option<&Tag>) -> Result<HeadRead, ReadError> {
        let if_none_match = known.and_then(Tag::e_tag).map(str::to_owned);
        let is_conditional = if_none_match.is_some();
        match self.fetch(key, if_none_match).await? {
            Fetched::Missing => Ok(HeadRead::Missing),
            Fetched::Unchanged if is_conditional => Ok(HeadRead::Unchanged),
            Fetched::Unchanged => Err(ReadError::Unavailable {
                retry_after: None,
                cause: "304 in answer to an unconditional read".into(),
            }),
            Fetched::Found { bytes, e_tag } => match tag_of(e_tag) {
                // A store that ignores If-None-Match costs bytes, and is right.
                Ok(tag) if known == Some(&tag) => Ok(HeadRead::Unchanged),
                Ok(tag) => Ok(HeadRead::Found { bytes, tag }),
                Err(error) => Err(ReadError::Denied { key: key.into(), cause: Box::new(error) }),
            },
        }
    }

    async fn create_head(&self, key: &str, bytes: Bytes) -> HeadWrite {
        self.write_head(key, PutMode::Create, bytes).await
    }

    async fn replace_head(&self, key: &str, if_match: &Tag, bytes: Bytes) -> HeadWrite {
        let version = UpdateVersion { e_tag: if_match.e_tag().map(str::to_owned), version: None };
        self.write_head(key, PutMode::Update(version), bytes).await
    }

    async fn put(&self, key: &str, bytes: Bytes) -> Result<(), PutError> {
        let path = self.read_path(key)?;
        let exchange = Exchange::default();
        let options = PutOptions {
            mode: PutMode::Create,
            extensions: exchange.extensions(),
            ..PutOptions::default()
        };
        let Err(error) = self.client.put_opts(&path, bytes.clone().into(), options).await else {
            return Ok(());
        };
        match exchange.status() {
            // The key is taken, maybe by an earlier attempt of this very call.
            Some(StatusCode::PRECONDITION_FAILED) => match self.get(key).await {
                Ok(found) if found == bytes => Ok(()),
                Ok(_) => Err(PutError::Occupied { key: key.into() }),
                // Deleted in between: the next attempt creates it.
                Err(ReadError::Missing { .. }) => {
                    let cause = Box::new(error);
                    Err(ReadError::Unavailable { retry_after: None, cause }.into())
                }
                Err(error) => Err(error.into()),
            },
            // Nothing has to be there before it is created, but the bucket.
            Some(StatusCode::NOT_FOUND) => {
                Err(ReadError::Denied { key: key.into(), cause: Box::new(self.no_bucket()) }.into())
            }
            // 409 is among these: a concurrent call was in the way, and nothing
            // is known to have been written.
            _ => Err(self.read_error(key, &exchange, error).into()),
        }
    }

    async fn get(&self, key: &str) -> Result<Bytes, ReadError> {
        match self.fetch(key, None).await? {
            Fetched::Found { bytes, .. } => Ok(bytes),
            Fetched::Unchanged | Fetched::Missing => Err(ReadError::Missing { key: key.into() }),
        }
    }

    async fn list(
        &self,
        prefix: &str,
        start_after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<Listed>, ReadError> {
        key::check_prefix(prefix, self.root.len()).map_err(|it| ReadError::bad_key(prefix, it))?;
        let mut found = Vec::new();
        let mut page_token = None;
        // Ends: every page but the last brings a key, or the store is broken.
        while found.len() < limit {
            let options = PaginatedListOptions {
                offset: start_after.map(|it| format!("{}{it}", self.root)),
                max_keys: Some((limit - found.len()).min(PAGE_KEYS_MAX)),
                page_token,
                ..PaginatedListOptions::default()
            };
            let page = self.page(prefix, options).await?;
            let is_empty = page.objects.is_empty();
            found.extend(page.objects);
            page_token = page.next;
            if page_token.is_none() || is_empty {
                break;
            }
        }
        found.truncate(limit);
        Ok(found)
    }

    async fn list_folder(&self, prefix: &str) -> Result<Folder, ReadError> {
        key::check_folder(prefix, self.root.len()).map_err(|it| ReadError::bad_key(prefix, it))?;
        let mut folder = Folder::default();
        let mut page_token = None;
        loop {
            let options = PaginatedListOptions {
                delimiter: Some("/".into()),
                max_keys: Some(PAGE_KEYS_MAX),
                page_token,
                ..PaginatedListOptions::default()
            };
            let page = self.page(prefix, options).await?;
            let is_empty = page.objects.is_empty() && page.folders.is_empty();
            folder.objects.extend(page.objects);
            folder.folders.extend(page.folders);
            page_token = page.next;
            if page_token.is_none() || is_empty {
                return Ok(folder);
            }
            if FOLDER_ENTRIES_MAX < folder.objects.len() + folder.folders.len() {
                let cause = Box::new(FolderTooLarge);
                return Err(ReadError::Denied { key: prefix.into(), cause });
            }
        }
    }

    async fn delete(&self, key: &str) -> Result<(), ReadError> {
        let path = self.read_path(key)?;
        let exchange = Exchange::default();
        let one = stream::iter([Ok(path)]).boxed();
        let deleted: Result<Vec<_>, _> =
            exchange.around(self.client.delete_stream(one).try_collect()).await;
        match deleted {
            Ok(_) => Ok(()),
            Err(error) => match self.read_error(key, &exchange, error) {
                ReadError::Missing { .. } => Ok(()),
                error @ (ReadError::Unavailable { .. }
                | ReadError::Denied { .. }
                | ReadError::Sealed { .. }) => Err(error),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused() -> Result<PutResult, Error> {
        Err(Error::Precondition { path: "head.json".into(), source: "x".into() })
    }

    #[test]
    fn a_mismatch_that_answers_a_repeated_request_is_no_answer() {
        let judge = |n_sent, status| head_answer(refused(), &Exchange::answered(n_sent, status));
        let (failed, missing) = (StatusCode::PRECONDITION_FAILED, StatusCode::NOT_FOUND);
        assert!(matches!(judge(1, failed), HeadWrite::Mismatch));
        assert!(matches!(judge(1, missing), HeadWrite::Gone));
        for status in [failed, missing] {
            let answer = judge(2, status);
            assert!(matches!(answer, HeadWrite::NoAnswer(_)), "the first may have been applied");
        }
    }

    #[test]
    fn an_error_without_a_status_is_no_answer_whatever_the_client_calls_it() {
        let answer = head_answer(refused(), &Exchange::default());
        assert!(matches!(answer, HeadWrite::NoAnswer(_)), "{answer:?}");
    }

    #[test]
    fn a_tag_is_a_strong_e_tag() {
        assert!(tag_of(Some("\"a\"".into())).is_ok());
        assert!(matches!(tag_of(Some("W/\"a\"".into())), Err(TagError::Weak { .. })));
        assert!(matches!(tag_of(None), Err(TagError::Missing)));
    }
}
