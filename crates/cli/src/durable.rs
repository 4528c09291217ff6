//! Files that are replaced whole, and survive a crash.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

/// The path with `suffix` after its last part.
pub(crate) fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(suffix);
    name.into()
}

/// Replaces the file at `path`. It is durable when this returns; a crash leaves
/// what was there, or all of `bytes`.
pub(crate) fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let staged = beside(path, ".new");
    let mut file = File::create(&staged)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    rename(&staged, path)
}

/// Renames a file within its folder, durably.
pub(crate) fn rename(from: &Path, to: &Path) -> io::Result<()> {
    fs::rename(from, to)?;
    sync_folder(to)
}

#[cfg(unix)]
fn sync_folder(path: &Path) -> io::Result<()> {
    let folder = path.parent().filter(|it| !it.as_os_str().is_empty());
    File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
}

#[cfg(not(unix))]
fn sync_folder(_path: &Path) -> io::Result<()> {
    // A folder cannot be opened to be synced here; the system's journal has it.
    Ok(())
}
