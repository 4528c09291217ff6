//! [`Store`] over a directory of one host.
//!
//! In here: compare-and-swap between tasks and processes, create-if-absent,
//! durability, listing in the order of keys. Not in here: more than one host.
//! Advisory locks over a network file system are as good as its lock daemon.
//!
//! ```text
//! <root>/<key>                       an object, a folder for each `/`
//! <root>/.headwater/locks/<xx>       locks of heads, by hash of the key
//! <root>/.headwater/staging/<random> files being written, one folder a process
//! ```
//!
//! # Architecture invariants
//!
//! - A file appears under its key whole and synced, by one rename.
//! - What a call reports as written, or as found, survives a loss of power: the
//!   folder is synced before the answer.
//! - The tag of a head is the hash of its bytes. Inode, size and time of a file
//!   can repeat; heads have unique bytes (PROTOCOL 3).
//! - A replaced or deleted head is locked from the comparison to the sync.

mod error;
mod files;
mod staging;
mod walk;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use headwater_core::id::Tag;
use tokio::task;

use self::error::CallError;
pub use self::error::LocalError;
use self::files::Files;
use crate::{Folder, HeadRead, HeadWrite, Listed, NoAnswer, PutError, ReadError, Store, key};

/// A directory as a store. Clones share it.
///
/// Every call runs on tokio's blocking threads and is not stopped by dropping
/// its future.
#[derive(Clone, Debug)]
pub struct LocalDir(Arc<Files>);

impl LocalDir {
    /// Takes `root`, which the first write creates where it is missing. Nothing
    /// is read or written here.
    ///
    /// # Errors
    ///
    /// [`LocalError::Relative`]: a relative path would name another store after
    /// a change of directory.
    pub fn open(root: impl Into<PathBuf>) -> Result<Self, LocalError> {
        let root = root.into();
        if !root.is_absolute() {
            return Err(LocalError::Relative { path: root });
        }
        Ok(Self(Arc::new(Files::new(root))))
    }

    /// Where the objects are.
    pub fn root(&self) -> &Path {
        self.0.root()
    }

    async fn run<T: Send + 'static>(
        &self,
        call: impl FnOnce(&Files) -> Result<T, CallError> + Send + 'static,
    ) -> Result<T, CallError> {
        let files = Arc::clone(&self.0);
        task::spawn_blocking(move || files.check_root().and_then(|()| call(&files)))
            .await
            .unwrap_or_else(|error| Err(CallError::Stopped(error)))
    }

    async fn write_head(
        &self,
        key: &str,
        write: impl FnOnce(&Files, &str) -> Result<HeadWrite, CallError> + Send + 'static,
    ) -> HeadWrite {
        if let Err(error) = key::check(key, 0) {
            return HeadWrite::NoAnswer(NoAnswer::bad_key(error));
        }
        let key = key.to_owned();
        // An error after the rename leaves the new head in place, and one
        // before it does not: to the protocol both are no answer.
        self.run(move |files| write(files, &key))
            .await
            .unwrap_or_else(|error| HeadWrite::NoAnswer(error.into_no_answer()))
    }
}

#[async_trait]
impl Store for LocalDir {
    async fn read_head(&self, key: &str, known: Option<&Tag>) -> Result<HeadRead, ReadError> {
        key::check(key, 0).map_err(|it| ReadError::bad_key(key, it))?;
        let (path_key, known) = (key.to_owned(), known.cloned());
        self.run(move |files| files.read_head(&path_key, known.as_ref()))
            .await
            .map_err(|it| it.into_read_error(key))
    }

    async fn create_head(&self, key: &str, bytes: Bytes) -> HeadWrite {
        self.write_head(key, move |files, key| files.create_head(key, &bytes)).await
    }

    async fn replace_head(&self, key: &str, if_match: &Tag, bytes: Bytes) -> HeadWrite {
        let if_match = if_match.clone();
        self.write_head(key, move |files, key| files.replace_head(key, &if_match, &bytes)).await
    }

    async fn put(&self, key: &str, bytes: Bytes) -> Result<(), PutError> {
        key::check(key, 0).map_err(|it| ReadError::bad_key(key, it))?;
        let path_key = key.to_owned();
        let is_ours = self
            .run(move |files| files.put(&path_key, &bytes))
            .await
            .map_err(|it| it.into_read_error(key))?;
        if is_ours { Ok(()) } else { Err(PutError::Occupied { key: key.into() }) }
    }

    async fn get(&self, key: &str) -> Result<Bytes, ReadError> {
        key::check(key, 0).map_err(|it| ReadError::bad_key(key, it))?;
        let path_key = key.to_owned();
        self.run(move |files| files.read(&path_key))
            .await
            .map_err(|it| it.into_read_error(key))?
            .ok_or_else(|| ReadError::Missing { key: key.into() })
    }

    async fn get_sized(&self, key: &str, _size_bytes: u64) -> Result<Bytes, ReadError> {
        self.get(key).await
    }

    async fn list(
        &self,
        prefix: &str,
        start_after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<Listed>, ReadError> {
        key::check_prefix(prefix, 0).map_err(|it| ReadError::bad_key(prefix, it))?;
        let query = walk::Query {
            prefix: prefix.to_owned(),
            start_after: start_after.map(str::to_owned),
            limit,
        };
        self.run(move |files| walk::list(files.root(), &query))
            .await
            .map_err(|it| it.into_read_error(prefix))
    }

    async fn list_folder(&self, prefix: &str) -> Result<Folder, ReadError> {
        key::check_folder(prefix, 0).map_err(|it| ReadError::bad_key(prefix, it))?;
        let path_prefix = prefix.to_owned();
        self.run(move |files| walk::list_folder(files.root(), &path_prefix))
            .await
            .map_err(|it| it.into_read_error(prefix))
    }

    async fn delete(&self, key: &str) -> Result<(), ReadError> {
        key::check(key, 0).map_err(|it| ReadError::bad_key(key, it))?;
        let path_key = key.to_owned();
        self.run(move |files| files.delete(&path_key)).await.map_err(|it| it.into_read_error(key))
    }
}
