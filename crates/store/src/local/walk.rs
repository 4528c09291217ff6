//! Listing a directory in the order of keys.

use std::fs;
use std::io;
use std::path::Path;

use super::error::CallError;
use crate::key::OWN_FOLDER;
use crate::{Folder, Listed};

/// What a listing asks for.
#[derive(Debug)]
pub(super) struct Query {
    pub(super) prefix: String,
    pub(super) start_after: Option<String>,
    pub(super) limit: usize,
}

impl Query {
    fn wants(&self, key: &str) -> bool {
        key.starts_with(&self.prefix) && self.start_after.as_deref().is_none_or(|it| it < key)
    }

    /// Whether a key that begins with `folder` can be wanted.
    fn may_want_in(&self, folder: &str) -> bool {
        // Greater than `folder` without being in it: greater than all keys in it.
        let is_over = |after: &str| folder < after && !after.starts_with(folder);
        (folder.starts_with(&self.prefix) || self.prefix.starts_with(folder))
            && !self.start_after.as_deref().is_some_and(is_over)
    }
}

/// Lists objects by key. Memory: the names in one folder for each `/` of the
/// keys, and `limit` results.
pub(super) fn list(root: &Path, query: &Query) -> Result<Vec<Listed>, CallError> {
    let start = query.prefix.rfind('/').map_or("", |at| &query.prefix[..=at]);
    let mut found = Vec::new();
    // Folders being walked, each with what is left of it.
    let mut walk = vec![entries(root, start)?.into_iter()];
    while found.len() < query.limit {
        let Some(folder) = walk.last_mut() else { break };
        let Some(key) = folder.next() else {
            walk.pop();
            continue;
        };
        if is_folder(&key) {
            if query.may_want_in(&key) {
                walk.push(entries(root, &key)?.into_iter());
            }
        } else if query.wants(&key) {
            found.extend(measure(root, key)?);
        }
    }
    Ok(found)
}

/// Lists what is directly in a folder. Folders without an object below them are
/// what deletions left; a bucket would not show them.
pub(super) fn list_folder(root: &Path, prefix: &str) -> Result<Folder, CallError> {
    let mut folder = Folder::default();
    for key in entries(root, prefix)? {
        if is_folder(&key) {
            let any = Query { prefix: key.clone(), start_after: None, limit: 1 };
            if !list(root, &any)?.is_empty() {
                folder.folders.push(key);
            }
        } else {
            folder.objects.extend(measure(root, key)?);
        }
    }
    Ok(folder)
}

fn is_folder(key: &str) -> bool {
    key.ends_with('/')
}

/// What is directly in a folder, by key. Folders end with `/` and are sorted
/// with it: `a-b` comes before `a/b`, as it does in a bucket, although the
/// folder `a` would come before `a-b`.
fn entries(root: &Path, folder: &str) -> Result<Vec<String>, CallError> {
    let path = root.join(folder);
    let listing = match fs::read_dir(&path) {
        Ok(listing) => listing,
        Err(error)
            if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) =>
        {
            return Ok(Vec::new());
        }
        Err(error) => return Err(CallError::io("list", &path)(error)),
    };
    let mut keys = Vec::new();
    for entry in listing {
        let entry = entry.map_err(CallError::io("list", &path))?;
        // Names that are not UTF-8 are not ours: keys are.
        let name = entry.file_name();
        let Some(name) = name.to_str() else { continue };
        if folder.is_empty() && name == OWN_FOLDER {
            continue;
        }
        let kind = entry.file_type().map_err(CallError::io("examine", &path))?;
        if kind.is_dir() {
            keys.push(format!("{folder}{name}/"));
        } else if kind.is_file() {
            keys.push(format!("{folder}{name}"));
        }
    }
    keys.sort_unstable();
    Ok(keys)
}

/// The size of an object; `None` if it is gone since its folder was read.
fn measure(root: &Path, key: String) -> Result<Option<Listed>, CallError> {
    let path = root.join(&key);
    match fs::symlink_metadata(&path) {
        Ok(metadata) => Ok(Some(Listed { key, size_bytes: metadata.len() })),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(CallError::io("examine", &path)(error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn query(prefix: &str, start_after: Option<&str>) -> Query {
        Query { prefix: prefix.into(), start_after: start_after.map(Into::into), limit: 9 }
    }

    #[test]
    fn folders_that_end_before_the_start_are_not_read() {
        for (after, folder, may_want) in [
            ("a/b", "a/", true),
            ("a/", "a/", true),
            ("a", "a/", true),
            ("a-", "a/", true),
            ("a0", "a/", false),
            ("b", "a/", false),
            ("a/b/c", "a/a/", false),
            ("a/b/c", "a/b/", true),
        ] {
            let query = query("", Some(after));
            assert_eq!(query.may_want_in(folder), may_want, "{folder} after {after}");
        }
        assert!(query("a/b", None).may_want_in("a/"));
        assert!(query("a/b", None).may_want_in("a/bc/"));
        assert!(!query("a/b", None).may_want_in("a/c/"));
    }
}
