//! `ListObjectsV2`.

use std::collections::BTreeMap;
use std::ops::Bound;

use s3s::dto::{self, CommonPrefix, ListObjectsV2Input, ListObjectsV2Output};

use crate::stored::Listed;

/// Most entries of one page, whatever is asked for.
const PAGE_ENTRIES_MAX: usize = 1000;

/// Lists one page. Its token is the last entry of the page before.
pub(crate) fn list(
    objects: &BTreeMap<String, Listed>,
    input: &ListObjectsV2Input,
) -> ListObjectsV2Output {
    let prefix = input.prefix.as_deref().unwrap_or_default();
    let delimiter = input.delimiter.as_deref().filter(|it| !it.is_empty());
    let page_max = input
        .max_keys
        .map_or(PAGE_ENTRIES_MAX, |it| usize::try_from(it).unwrap_or(0).min(PAGE_ENTRIES_MAX));
    let token = input.continuation_token.as_deref();
    let after = token.or(input.start_after.as_deref()).unwrap_or_default();
    let from = if prefix <= after { Bound::Excluded(after) } else { Bound::Included(prefix) };

    let mut contents: Vec<dto::Object> = Vec::new();
    let mut folders: Vec<String> = Vec::new();
    let mut last = None;
    let mut is_truncated = false;
    for (key, object) in objects.range::<str, _>((from, Bound::Unbounded)) {
        let Some(rest) = key.strip_prefix(prefix) else { break };
        let folder = delimiter
            .and_then(|it| rest.find(it).map(|at| key[..prefix.len() + at + it.len()].to_owned()));
        // The page before ended with this folder, or it is in this one already.
        if folder.is_some() && (folder.as_deref() == token || folder.as_ref() == folders.last()) {
            continue;
        }
        if contents.len() + folders.len() == page_max {
            is_truncated = true;
            break;
        }
        last = Some(folder.clone().unwrap_or_else(|| key.clone()));
        match folder {
            Some(folder) => folders.push(folder),
            None => contents.push(dto::Object {
                key: Some(key.clone()),
                size: i64::try_from(object.len_bytes).ok(),
                e_tag: Some(object.e_tag.clone()),
                last_modified: Some(object.modified.clone()),
                ..dto::Object::default()
            }),
        }
    }
    let n_entries = contents.len() + folders.len();
    let folders = folders.into_iter().map(|it| CommonPrefix { prefix: Some(it) });
    ListObjectsV2Output {
        name: Some(input.bucket.clone()),
        prefix: input.prefix.clone(),
        key_count: i32::try_from(n_entries).ok(),
        max_keys: i32::try_from(page_max).ok(),
        is_truncated: Some(is_truncated),
        next_continuation_token: last.filter(|_| is_truncated),
        contents: Some(contents),
        common_prefixes: Some(folders.collect()),
        ..ListObjectsV2Output::default()
    }
}
