//! The files of the cache. Everything here blocks.

use std::collections::BTreeMap;
use std::fs::{self, File, TryLockError};
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

use bytes::Bytes;
use headwater_core::hash::ContentHash;
use headwater_store::planted;

const LOCK: &str = "lock";
const ORDER: &str = "recency";
const STAGING: &str = "tmp";

#[derive(Debug)]
pub(super) struct Files {
    dir: PathBuf,
    /// Held for as long as this is used.
    _lock: Option<File>,
    n_staged: AtomicU64,
}

pub(super) enum Opened {
    /// With what is there, the least recently used first.
    Ready {
        files: Files,
        found: Vec<(ContentHash, u64)>,
    },
    InUse,
    Unusable {
        files: Files,
        error: io::Error,
    },
}

#[derive(Debug)]
pub(super) enum ReadFailure {
    Gone,
    Damaged,
    Io(io::Error),
}

impl Files {
    pub(super) fn open(dir: &Path) -> Opened {
        let files = |lock| Self { dir: dir.into(), _lock: lock, n_staged: AtomicU64::new(0) };
        let lock = match take_lock(dir) {
            Ok(lock) => lock,
            Err(TryLockError::WouldBlock) => return Opened::InUse,
            Err(TryLockError::Error(error)) => {
                return Opened::Unusable { files: files(None), error };
            }
        };
        let files = files(Some(lock));
        match files.look() {
            Ok(found) => Opened::Ready { files, found },
            Err(error) => Opened::Unusable { files, error },
        }
    }

    pub(super) fn dir(&self) -> &Path {
        &self.dir
    }

    fn path(&self, hash: ContentHash) -> PathBuf {
        let name = hash.to_hex();
        let folder = name.get(..2).unwrap_or_default();
        self.dir.join(folder).join(&name)
    }

    /// Everything that looks like a file of the cache. What it holds is verified
    /// when it is read.
    fn look(&self) -> io::Result<Vec<(ContentHash, u64)>> {
        // Left by a process that was killed in a write.
        match fs::remove_dir_all(self.dir.join(STAGING)) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                tracing::debug!(%error, "files of unfinished writes cannot be deleted");
            }
            Ok(()) | Err(_) => {}
        }
        let mut found: BTreeMap<ContentHash, (u64, SystemTime)> = BTreeMap::new();
        for folder in fs::read_dir(&self.dir)? {
            let folder = folder?;
            let is_ours = folder.file_name().to_str().is_some_and(|it| it.len() == 2);
            if !is_ours || !folder.file_type()?.is_dir() {
                continue;
            }
            for file in fs::read_dir(folder.path())? {
                let file = file?;
                let hash = file.file_name().to_str().and_then(|it| ContentHash::from_hex(it).ok());
                let metadata = file.metadata()?;
                if let Some(hash) = hash.filter(|_| metadata.is_file()) {
                    let written = metadata.modified().unwrap_or(SystemTime::UNIX_EPOCH);
                    found.insert(hash, (metadata.len(), written));
                }
            }
        }
        let mut ordered = Vec::with_capacity(found.len());
        for hash in self.read_order() {
            if let Some((size_bytes, _)) = found.remove(&hash) {
                ordered.push((hash, size_bytes));
            }
        }
        // Written after the order was, so used later than all in it.
        let mut rest: Vec<_> = found.into_iter().collect();
        rest.sort_by_key(|(_, (_, written))| *written);
        ordered.extend(rest.into_iter().map(|(hash, (size_bytes, _))| (hash, size_bytes)));
        Ok(ordered)
    }

    /// The object, verified.
    pub(super) fn read(&self, hash: ContentHash, size_bytes: u64) -> Result<Bytes, ReadFailure> {
        let failure = |error: io::Error| {
            let is_gone = error.kind() == ErrorKind::NotFound;
            if is_gone { ReadFailure::Gone } else { ReadFailure::Io(error) }
        };
        let file = File::open(self.path(hash)).map_err(failure)?;
        let is_trusted = planted!(DiskUnverified);
        if !is_trusted && file.metadata().map_err(failure)?.len() != size_bytes {
            return Err(ReadFailure::Damaged);
        }
        let capacity = usize::try_from(size_bytes).map_err(|_| ReadFailure::Damaged)?;
        let mut bytes = Vec::with_capacity(capacity);
        file.take(size_bytes).read_to_end(&mut bytes).map_err(failure)?;
        if !is_trusted && ContentHash::of(&bytes) != hash {
            return Err(ReadFailure::Damaged);
        }
        Ok(bytes.into())
    }

    /// Whole or not at all, as far as other processes see. It is not synced: a
    /// file that a crash cut short is found out when it is read.
    pub(super) fn write(&self, hash: ContentHash, bytes: &[u8]) -> io::Result<()> {
        self.replace(&self.path(hash), bytes)
    }

    pub(super) fn delete(&self, hash: ContentHash) -> io::Result<()> {
        match fs::remove_file(self.path(hash)) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
            Ok(()) | Err(_) => Ok(()),
        }
    }

    /// 32 bytes for each, the least recently used first.
    pub(super) fn write_order(&self, order: &[ContentHash]) -> io::Result<()> {
        let bytes: Vec<u8> = order.iter().flat_map(|it| *it.as_bytes()).collect();
        self.replace(&self.dir.join(ORDER), &bytes)
    }

    /// Nothing where it cannot be read: then the files' own times tell.
    fn read_order(&self) -> Vec<ContentHash> {
        let bytes = fs::read(self.dir.join(ORDER)).unwrap_or_default();
        let (hashes, _) = bytes.as_chunks::<32>();
        hashes.iter().map(|it| ContentHash::from_bytes(*it)).collect()
    }

    fn replace(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        let number = self.n_staged.fetch_add(1, Ordering::Relaxed);
        let staged = self.dir.join(STAGING).join(number.to_string());
        let written = write_new(&staged, bytes).and_then(|()| rename(&staged, path));
        if written.is_err() {
            // Half a file on a full disk would keep it full.
            drop(fs::remove_file(&staged));
        }
        written
    }
}

/// The directory, and a lock in it. It holds what the bucket holds, so others
/// than the owner have no business in there.
fn take_lock(dir: &Path) -> Result<File, TryLockError> {
    make_dir(dir).map_err(TryLockError::Error)?;
    let lock = File::options().write(true).create(true).truncate(false).open(dir.join(LOCK));
    let lock = lock.map_err(TryLockError::Error)?;
    lock.try_lock()?;
    Ok(lock)
}

fn make_dir(dir: &Path) -> io::Result<()> {
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(dir)
}

fn write_new(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = within_dir(path, || File::create(path))?;
    file.write_all(bytes)
}

fn rename(from: &Path, to: &Path) -> io::Result<()> {
    within_dir(to, || fs::rename(from, to))
}

/// Does it, making the folder of `path` first where there is none: folders may
/// be deleted at any time.
fn within_dir<T>(path: &Path, mut act: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    match (act(), path.parent()) {
        (Err(error), Some(parent)) if error.kind() == ErrorKind::NotFound => {
            make_dir(parent)?;
            act()
        }
        (answer, _) => answer,
    }
}
