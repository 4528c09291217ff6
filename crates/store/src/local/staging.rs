//! Where files are written before they get their names.

use std::fs::{self, File, TryLockError};
use std::io::{self, Write};
use std::path::Path;

use tempfile::{NamedTempFile, TempDir};

use super::error::CallError;

/// A folder of this process for files that are being written. Removed with it;
/// after a crash, by the next process that writes.
#[derive(Debug)]
pub(super) struct Staging {
    folder: TempDir,
    /// Held for as long as the folder is in use, so that nobody takes it for a
    /// dead one's. The system gives it up when the process dies.
    _lock: File,
}

const LOCK: &str = "lock";

impl Staging {
    /// Makes a folder below `parent`, and removes those of dead processes.
    pub(super) fn open(parent: &Path) -> Result<Self, CallError> {
        fs::create_dir_all(parent).map_err(CallError::io("create", parent))?;
        // Only its holder makes and removes folders. Without it a folder could
        // be seen between its creation and its lock, and be removed as dead.
        let _turn = lock(&parent.with_extension("lock"))?;
        remove_dead(parent)?;
        let folder = tempfile::Builder::new()
            .prefix("")
            .tempdir_in(parent)
            .map_err(CallError::io("create a folder in", parent))?;
        let held = lock(&folder.path().join(LOCK))?;
        Ok(Self { folder, _lock: held })
    }

    /// Writes a file and syncs it. It has no name that a reader looks for yet,
    /// and goes away when dropped.
    pub(super) fn write(&self, bytes: &[u8]) -> Result<NamedTempFile, CallError> {
        let folder = self.folder.path();
        let mut file = new_file(folder).map_err(CallError::io("create a file in", folder))?;
        file.write_all(bytes).map_err(CallError::io("write a file in", folder))?;
        file.as_file().sync_all().map_err(CallError::io("sync a file in", folder))?;
        Ok(file)
    }
}

#[cfg(unix)]
fn new_file(folder: &Path) -> io::Result<NamedTempFile> {
    use std::os::unix::fs::PermissionsExt;

    // The mode of an ordinary file, less the umask: tempfile's own default,
    // 0600, would shut other users out of a shared directory.
    let mode = fs::Permissions::from_mode(0o666);
    tempfile::Builder::new().permissions(mode).tempfile_in(folder)
}

#[cfg(not(unix))]
fn new_file(folder: &Path) -> io::Result<NamedTempFile> {
    NamedTempFile::new_in(folder)
}

/// Opens a lock file, and waits until this process has it alone. Another lock
/// on the same file waits too, in this process as well.
///
/// Lock files stay: whoever removed one could do so while another waits for it.
pub(super) fn lock(path: &Path) -> Result<File, CallError> {
    let file = open_lock(path).map_err(CallError::io("open", path))?;
    loop {
        match file.lock() {
            Ok(()) => return Ok(file),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => (),
            Err(error) => return Err(CallError::io("lock", path)(error)),
        }
    }
}

fn open_lock(path: &Path) -> io::Result<File> {
    File::options().read(true).write(true).create(true).truncate(false).open(path)
}

fn remove_dead(parent: &Path) -> Result<(), CallError> {
    for entry in fs::read_dir(parent).map_err(CallError::io("list", parent))? {
        let folder = entry.map_err(CallError::io("list", parent))?.path();
        if is_dead(&folder).map_err(CallError::io("examine", &folder))? {
            match fs::remove_dir_all(&folder) {
                Ok(()) => (),
                // Its owner is leaving, and was faster.
                Err(error) if error.kind() == io::ErrorKind::NotFound => (),
                Err(error) => return Err(CallError::io("remove", &folder)(error)),
            }
        }
    }
    Ok(())
}

fn is_dead(folder: &Path) -> io::Result<bool> {
    match File::options().read(true).write(true).open(folder.join(LOCK)) {
        Ok(file) => match file.try_lock() {
            Ok(()) => Ok(true),
            Err(TryLockError::WouldBlock) => Ok(false),
            Err(TryLockError::Error(error)) => Err(error),
        },
        // Every folder gets its lock before its owner gives up the turn that
        // the caller holds: without one it is a crash's, or is being removed.
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(true),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(parent: &Path) -> usize {
        fs::read_dir(parent).unwrap().count()
    }

    #[test]
    fn leftovers_of_the_dead_go_and_those_of_the_living_stay() {
        let root = tempfile::tempdir().unwrap();
        let parent = root.path().join("staging");
        let living = Staging::open(&parent).unwrap();
        let file = living.write(b"x").unwrap();
        fs::create_dir(parent.join("died-early")).unwrap();
        fs::create_dir(parent.join("died-late")).unwrap();
        fs::write(parent.join("died-late/lock"), "").unwrap();
        fs::write(parent.join("died-late/half"), "x").unwrap();

        let other = Staging::open(&parent).unwrap();

        assert_eq!(names(&parent), 2, "the living and the other");
        assert_eq!(fs::read(file.path()).unwrap(), b"x");
        drop((file, living, other));
        assert_eq!(names(&parent), 0);
    }
}
