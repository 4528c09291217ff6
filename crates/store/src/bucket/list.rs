//! Listings, page by page.

use std::collections::BTreeMap;

use object_store::list::{PaginatedListOptions, PaginatedListStore as _};
use object_store::path::Path;
use object_store::{GetOptions, ObjectStore as _};

use super::exchange::Exchange;
use super::{Bucket, Dialect};
use crate::{Folder, Listed, ReadError};

/// Keys in one page of a listing: what S3 and GCS allow. Azure allows more.
const PAGE_KEYS_MAX: usize = 1000;

/// Most entries of one folder. A listing by folder is for people and for the
/// names of histories, of which there are fewer.
const FOLDER_ENTRIES_MAX: usize = 100_000;

/// The folder holds more than can be listed.
#[derive(Debug, thiserror::Error)]
#[error("more than {FOLDER_ENTRIES_MAX} entries in one folder")]
struct FolderTooLarge;

/// A page that says that the same page comes next.
#[derive(Debug, thiserror::Error)]
#[error("the object store's listing does not move on: it gave one continuation token twice")]
struct Stuck;

struct Page {
    objects: Vec<Listed>,
    folders: Vec<String>,
    next: Option<String>,
}

impl<D: Dialect> Bucket<D> {
    /// Lists in the order of keys what a store gives in that order.
    pub(super) async fn list_ordered(
        &self,
        prefix: &str,
        start_after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<Listed>, ReadError> {
        let mut found = Vec::new();
        let may_be_key = !prefix.is_empty() && !prefix.ends_with('/');
        if self.dialect.hides_exact_key()
            && may_be_key
            && 0 < limit
            && start_after.is_none_or(|after| after < prefix)
        {
            found.extend(self.examine(prefix).await?);
        }
        let mut page_token: Option<String> = None;
        while found.len() < limit {
            let options = PaginatedListOptions {
                offset: start_after.map(|it| format!("{}{it}", self.root)),
                max_keys: Some((limit - found.len()).min(PAGE_KEYS_MAX)),
                page_token: page_token.clone(),
                ..PaginatedListOptions::default()
            };
            let page = self.page(prefix, options).await?;
            // Azure's startFrom begins with the key itself, and servers that do
            // not know it begin at the prefix.
            let is_after = |it: &Listed| start_after.is_none_or(|after| after < it.key.as_str());
            found.extend(page.objects.into_iter().filter(is_after));
            // A page may be empty and not be the last: Azure and GCS say so.
            page_token = moved_on(prefix, page_token.as_ref(), page.next)?;
            if page_token.is_none() {
                break;
            }
        }
        found.truncate(limit);
        Ok(found)
    }

    /// The object that has this key, without its bytes.
    async fn examine(&self, key: &str) -> Result<Option<Listed>, ReadError> {
        let path = self.read_path(key)?;
        let exchange = Exchange::default();
        let extensions = exchange.extensions();
        let options = GetOptions { head: true, extensions, ..GetOptions::default() };
        match self.dialect.client().get_opts(&path, options).await {
            Ok(got) => Ok(Some(Listed { key: key.into(), size_bytes: got.meta.size })),
            Err(error) => match self.read_error(key, &exchange, error) {
                ReadError::Missing { .. } => Ok(None),
                error @ (ReadError::Unavailable { .. }
                | ReadError::Denied { .. }
                | ReadError::Sealed { .. }) => Err(error),
            },
        }
    }

    /// Lists in the order of keys what a store gives by whole folders, in no
    /// order: a pass over the whole folder, which keeps the first `limit`.
    pub(super) async fn list_unordered(
        &self,
        prefix: &str,
        start_after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<Listed>, ReadError> {
        let folder = prefix.rfind('/').map_or("", |at| &prefix[..=at]);
        let mut first: BTreeMap<String, u64> = BTreeMap::new();
        let mut page_token: Option<String> = None;
        loop {
            let options = PaginatedListOptions {
                max_keys: Some(PAGE_KEYS_MAX),
                page_token: page_token.clone(),
                ..PaginatedListOptions::default()
            };
            let page = self.page(folder, options).await?;
            let is_asked =
                |key: &str| key.starts_with(prefix) && start_after.is_none_or(|after| after < key);
            for Listed { key, size_bytes } in page.objects {
                if is_asked(&key) {
                    first.insert(key, size_bytes);
                }
                if limit < first.len() {
                    first.pop_last();
                }
            }
            page_token = moved_on(prefix, page_token.as_ref(), page.next)?;
            if page_token.is_none() {
                break;
            }
        }
        Ok(first.into_iter().map(|(key, size_bytes)| Listed { key, size_bytes }).collect())
    }

    /// Lists what is directly in a folder.
    pub(super) async fn list_one_folder(&self, prefix: &str) -> Result<Folder, ReadError> {
        let mut folder = Folder::default();
        let mut page_token: Option<String> = None;
        loop {
            let options = PaginatedListOptions {
                delimiter: Some("/".into()),
                max_keys: Some(PAGE_KEYS_MAX),
                page_token: page_token.clone(),
                ..PaginatedListOptions::default()
            };
            let page = self.page(prefix, options).await?;
            folder.objects.extend(page.objects);
            folder.folders.extend(page.folders);
            page_token = moved_on(prefix, page_token.as_ref(), page.next)?;
            if page_token.is_none() {
                break;
            }
            if FOLDER_ENTRIES_MAX < folder.objects.len() + folder.folders.len() {
                let cause = Box::new(FolderTooLarge);
                return Err(ReadError::Denied { key: prefix.into(), cause });
            }
        }
        // Each page is in order; Express gives the pages in none.
        folder.objects.sort_unstable_by(|a, b| a.key.cmp(&b.key));
        folder.folders.sort_unstable();
        folder.folders.dedup();
        Ok(folder)
    }

    async fn page(&self, prefix: &str, options: PaginatedListOptions) -> Result<Page, ReadError> {
        let exchange = Exchange::default();
        let full = format!("{}{prefix}", self.root);
        let options = PaginatedListOptions { extensions: exchange.extensions(), ..options };
        let prefix_sent = (!full.is_empty()).then_some(full.as_str());
        let page = self
            .dialect
            .client()
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

/// The next token, if it is another one: each page costs a request, and a store
/// that repeats one would be asked for ever.
fn moved_on(
    prefix: &str,
    before: Option<&String>,
    next: Option<String>,
) -> Result<Option<String>, ReadError> {
    if next.is_some() && next.as_ref() == before {
        return Err(ReadError::Denied { key: prefix.into(), cause: Box::new(Stuck) });
    }
    Ok(next)
}
