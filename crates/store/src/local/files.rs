//! The calls of a store on files. Everything here blocks.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use bytes::Bytes;
use headwater_core::id::Tag;
use tempfile::NamedTempFile;

use super::error::CallError;
use super::staging::{self, Staging};
use crate::key::OWN_FOLDER;
use crate::{HeadRead, HeadWrite};

/// Folders that are remembered as durable. One history takes ten.
const KNOWN_FOLDERS_MAX: usize = 10_000;

/// A directory, and what this process knows of it.
#[derive(Debug)]
pub(super) struct Files {
    root: PathBuf,
    /// Opened by the first write: a reader needs no permission to write.
    staging: Mutex<Option<Arc<Staging>>>,
    /// Folders whose own names were synced. Nothing removes folders.
    known_folders: Mutex<BTreeSet<PathBuf>>,
    /// Which folder the root was when it was first there.
    identity: OnceLock<Identity>,
}

/// Tells a folder from another one that took its path.
#[cfg(unix)]
type Identity = (u64, u64);
#[cfg(not(unix))]
type Identity = ();

impl Files {
    pub(super) fn new(root: PathBuf) -> Self {
        Self {
            root,
            staging: Mutex::default(),
            known_folders: Mutex::default(),
            identity: OnceLock::new(),
        }
    }

    /// Whether the root is still the folder that it was. One that was removed,
    /// or whose volume is no longer mounted, has lost nothing as far as anybody
    /// knows: it must not read as a store without histories.
    pub(super) fn check_root(&self) -> Result<(), CallError> {
        let found = match fs::metadata(&self.root) {
            Ok(metadata) => Some(identity_of(&metadata)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(CallError::io("look at", &self.root)(error)),
        };
        let Some(found) = found else {
            // Before the first write there may be none.
            return if self.identity.get().is_some() { Err(self.root_gone()) } else { Ok(()) };
        };
        if *self.identity.get_or_init(|| found) == found { Ok(()) } else { Err(self.root_gone()) }
    }

    fn root_gone(&self) -> CallError {
        CallError::RootGone { root: self.root.clone() }
    }

    pub(super) fn root(&self) -> &Path {
        &self.root
    }

    /// Reads a file; `None` where there is none.
    pub(super) fn read(&self, key: &str) -> Result<Option<Bytes>, CallError> {
        let path = self.root.join(key);
        let Some(bytes) = read(&path)? else { return Ok(None) };
        sync_found(&path)?;
        Ok(Some(bytes))
    }

    pub(super) fn read_head(&self, key: &str, known: Option<&Tag>) -> Result<HeadRead, CallError> {
        let path = self.root.join(key);
        let Some(bytes) = read(&path)? else { return Ok(HeadRead::Missing) };
        let tag = tag_of(&bytes);
        if known == Some(&tag) {
            return Ok(HeadRead::Unchanged);
        }
        sync_found(&path)?;
        Ok(HeadRead::Found { bytes, tag })
    }

    pub(super) fn create_head(&self, key: &str, bytes: &[u8]) -> Result<HeadWrite, CallError> {
        let path = self.root.join(key);
        let staged = self.staging()?.write(bytes)?;
        let _lock = self.lock(key)?;
        match self.place(staged, &path)? {
            Placed::New => Ok(HeadWrite::Replaced { tag: tag_of(bytes) }),
            Placed::Taken => Ok(HeadWrite::Mismatch),
        }
    }

    pub(super) fn replace_head(
        &self,
        key: &str,
        if_match: &Tag,
        bytes: &[u8],
    ) -> Result<HeadWrite, CallError> {
        let path = self.root.join(key);
        let refusal = || {
            Ok(match read(&path)? {
                None => Some(HeadWrite::Gone),
                Some(found) if tag_of(&found) != *if_match => Some(HeadWrite::Mismatch),
                Some(_) => None,
            })
        };
        // Most losers of a race are told here, before they write and sync.
        if let Some(refusal) = refusal()? {
            return Ok(refusal);
        }
        // Written before the lock is taken, so that the others wait for one
        // rename and one sync only.
        let staged = self.staging()?.write(bytes)?;
        let _lock = self.lock(key)?;
        if let Some(refusal) = refusal()? {
            return Ok(refusal);
        }
        staged.persist(&path).map_err(|it| CallError::io("rename to", &path)(it.error))?;
        sync_folder(parent_of(&path))?;
        Ok(HeadWrite::Replaced { tag: tag_of(bytes) })
    }

    /// Creates an object; whether the key holds these bytes now.
    pub(super) fn put(&self, key: &str, bytes: &[u8]) -> Result<bool, CallError> {
        let path = self.root.join(key);
        let staged = self.staging()?.write(bytes)?;
        match self.place(staged, &path)? {
            Placed::New => Ok(true),
            Placed::Taken => {
                let found = read_object(&path)?.ok_or(CallError::Raced)?;
                sync_found(&path)?;
                Ok(found == bytes)
            }
        }
    }

    pub(super) fn delete(&self, key: &str) -> Result<(), CallError> {
        let path = self.root.join(key);
        if read_metadata(&path)?.is_none_or(|it| it.is_dir()) {
            return Ok(());
        }
        // Without the lock a replacement that has compared already would bring
        // a head back after its deletion was reported.
        let _lock = self.lock(key)?;
        match fs::remove_file(&path) {
            Ok(()) => sync_folder(parent_of(&path)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(CallError::io("delete", &path)(error)),
        }
    }

    /// Gives a staged file its name, durably, if nothing has it.
    fn place(&self, staged: NamedTempFile, path: &Path) -> Result<Placed, CallError> {
        let folder = parent_of(path);
        self.make_folder(folder)?;
        let placed = staged.persist_noclobber(path).or_else(|it| {
            if it.error.kind() != io::ErrorKind::NotFound {
                return Err(it);
            }
            // Somebody else removed a folder that we remember.
            self.known_folders().clear();
            match self.make_folder(folder) {
                Ok(()) => it.file.persist_noclobber(path),
                Err(_) => Err(it),
            }
        });
        match placed {
            Ok(_) => sync_folder(folder).map(|()| Placed::New),
            Err(it) if it.error.kind() == io::ErrorKind::AlreadyExists => Ok(Placed::Taken),
            Err(it) => Err(CallError::io("rename to", path)(it.error)),
        }
    }

    /// Creates a folder, durably: a file in a folder whose own name is lost is
    /// lost with it.
    fn make_folder(&self, folder: &Path) -> Result<(), CallError> {
        let is_above = folder == self.root || !folder.starts_with(&self.root);
        if is_above && folder.is_dir() || self.known_folders().contains(folder) {
            return Ok(());
        }
        self.make_folder(parent_of(folder))?;
        match fs::create_dir(folder) {
            Ok(()) => (),
            // It may be another process's, and not synced yet.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => (),
            Err(error) => return Err(CallError::io("create", folder)(error)),
        }
        sync_folder(parent_of(folder))?;
        let mut known = self.known_folders();
        if KNOWN_FOLDERS_MAX <= known.len() {
            known.clear();
        }
        known.insert(folder.into());
        Ok(())
    }

    fn known_folders(&self) -> MutexGuard<'_, BTreeSet<PathBuf>> {
        self.known_folders.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn staging(&self) -> Result<Arc<Staging>, CallError> {
        let mut staging = self.staging.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(open) = &*staging {
            return Ok(Arc::clone(open));
        }
        self.make_folder(&self.root)?;
        let open = Arc::new(Staging::open(&self.root.join(OWN_FOLDER).join("staging"))?);
        *staging = Some(Arc::clone(&open));
        Ok(open)
    }

    /// Locks a head. Two heads may share a lock, which costs time only; the
    /// number of lock files stays bounded.
    fn lock(&self, key: &str) -> Result<File, CallError> {
        let folder = self.root.join(OWN_FOLDER).join("locks");
        fs::create_dir_all(&folder).map_err(CallError::io("create", &folder))?;
        let [first, ..] = *blake3::hash(key.as_bytes()).as_bytes();
        staging::lock(&folder.join(format!("{first:02x}")))
    }
}

enum Placed {
    New,
    Taken,
}

fn tag_of(bytes: &[u8]) -> Tag {
    Tag::new(blake3::hash(bytes).to_hex().as_str())
}

fn parent_of(path: &Path) -> &Path {
    // Keys are not empty and the root is absolute, so only `/` has no parent,
    // and it is its own.
    path.parent().unwrap_or(path)
}

/// Reads a file; `None` where there is none, a folder of that name included: a
/// folder is no object.
fn read(path: &Path) -> Result<Option<Bytes>, CallError> {
    match read_object(path) {
        Err(CallError::ObjectAndFolder) => Ok(None),
        other => other,
    }
}

fn read_object(path: &Path) -> Result<Option<Bytes>, CallError> {
    match fs::read(path) {
        Ok(bytes) => Ok(Some(bytes.into())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(CallError::io("read", path)(error)),
    }
}

fn read_metadata(path: &Path) -> Result<Option<fs::Metadata>, CallError> {
    match fs::symlink_metadata(path) {
        Ok(metadata) => Ok(Some(metadata)),
        Err(error)
            if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) =>
        {
            Ok(None)
        }
        Err(error) => Err(CallError::io("examine", path)(error)),
    }
}

/// Makes what was found at `path` durable, before anybody relies on it. Whoever
/// wrote it may have died, or may be, between rename and sync. A head that was
/// served and then lost with the power would have its revision repeated by
/// another one; a request record, its operation issued anew.
fn sync_found(path: &Path) -> Result<(), CallError> {
    sync_folder(parent_of(path))
}

fn sync_folder(folder: &Path) -> Result<(), CallError> {
    #[cfg(test)]
    tests::note_sync(folder);
    File::open(folder).and_then(|it| it.sync_all()).map_err(CallError::io("sync", folder))
}

#[cfg(unix)]
fn identity_of(metadata: &fs::Metadata) -> Identity {
    use std::os::unix::fs::MetadataExt as _;
    (metadata.dev(), metadata.ino())
}

#[cfg(not(unix))]
fn identity_of(_: &fs::Metadata) -> Identity {}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    thread_local! {
        static SYNCED: RefCell<Vec<PathBuf>> = const { RefCell::new(Vec::new()) };
    }

    pub(super) fn note_sync(folder: &Path) {
        SYNCED.with_borrow_mut(|it| it.push(folder.into()));
    }

    /// The folders that `call` synced, in order.
    fn synced<T>(call: impl FnOnce() -> T) -> (T, Vec<PathBuf>) {
        SYNCED.take();
        let answer = call();
        (answer, SYNCED.take())
    }

    #[test]
    fn what_is_found_is_durable_before_it_is_reported() {
        let root = tempfile::tempdir().unwrap();
        let files = Files::new(root.path().into());
        files.put("h/requests/1", b"first").unwrap();
        files.create_head("h/head.json", b"head").unwrap();
        let folder = root.path().join("h/requests");

        let (is_ours, same) = synced(|| files.put("h/requests/1", b"first").unwrap());
        assert!(is_ours);
        assert_eq!(same.last(), Some(&folder));
        let (is_ours, other) = synced(|| files.put("h/requests/1", b"second").unwrap());
        assert!(!is_ours);
        assert_eq!(other.last(), Some(&folder));
        let (_, read) = synced(|| files.read("h/requests/1").unwrap().unwrap());
        assert_eq!(read, [folder]);
        let (_, head) = synced(|| files.read_head("h/head.json", None).unwrap());
        assert_eq!(head, [root.path().join("h")]);
    }
}
