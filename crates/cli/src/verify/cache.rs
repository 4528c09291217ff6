//! A replica's cache directory: each file against the hash in its name.
//!
//! The process that uses a cache checks every file before it believes it, so a
//! damaged one only costs a fetch. This finds them before they are asked for,
//! and is safe beside that process: a file that is gone is fetched again.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use headwater_core::hash::ContentHash;
use serde_json::json;

use super::VerifyArgs;
use crate::exit::Exit;
use crate::failed::Failed;
use crate::output::Output;

#[derive(Debug, Default)]
struct Seen {
    files: u64,
    bytes: u64,
    damaged: Vec<PathBuf>,
}

pub(super) async fn verify(
    dir: &Path,
    args: &VerifyArgs,
    output: &mut Output,
) -> Result<Exit, Failed> {
    let (root, deletes) = (dir.to_owned(), args.repair && args.yes);
    let looked = tokio::task::spawn_blocking(move || look(&root, deletes)).await;
    let looked = looked.map_err(|error| Failed::new(Exit::Unexpected, error.to_string()))?;
    let seen = looked.map_err(|(path, error)| Failed::file("read", &path, &error))?;
    for path in &seen.damaged {
        let what = if deletes { "deleted" } else { "damaged" };
        output.answer(
            || json!({ "finding": "damaged", "severity": "warning", "file": path, "done": what }),
            || format!("{what}: {}: its content has another hash than its name", path.display()),
        )?;
    }
    let (files, damaged) = (seen.files, seen.damaged.len());
    output.answer(
        || {
            json!({
                "summary": if damaged == 0 { "clean" } else { "damaged" },
                "cacheDir": dir,
                "files": files,
                "bytes": seen.bytes,
                "damaged": damaged,
                "deleted": deletes,
            })
        },
        || format!("{}: {files} files, {damaged} of them damaged", dir.display()),
    )?;
    Ok(if damaged == 0 || deletes { Exit::Done } else { Exit::BadData })
}

/// Looks at every file `DIR/<2 digits>/<64 digits>`; others are not the cache's.
fn look(root: &Path, deletes: bool) -> Result<Seen, (PathBuf, io::Error)> {
    let mut seen = Seen::default();
    for folder in entries(root)? {
        let is_folder = folder.file_name().is_some_and(|it| it.len() == 2) && folder.is_dir();
        if !is_folder {
            continue;
        }
        for path in entries(&folder)? {
            let name = path.file_name().and_then(|it| it.to_str()).unwrap_or_default();
            let Ok(hash) = ContentHash::from_hex(name) else { continue };
            let bytes = match fs::read(&path) {
                Ok(bytes) => bytes,
                // Evicted meanwhile.
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(error) => return Err((path, error)),
            };
            seen.files += 1;
            seen.bytes += bytes.len() as u64;
            if ContentHash::of(&bytes) != hash {
                if deletes {
                    fs::remove_file(&path).map_err(|error| (path.clone(), error))?;
                }
                seen.damaged.push(path);
            }
        }
    }
    Ok(seen)
}

fn entries(dir: &Path) -> Result<Vec<PathBuf>, (PathBuf, io::Error)> {
    let failed = |error| (dir.to_owned(), error);
    let listed = fs::read_dir(dir).map_err(failed)?;
    listed.map(|it| it.map(|it| it.path()).map_err(failed)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_with_another_hash_than_its_name_is_found_and_deleted_on_request() {
        let dir = tempfile::tempdir().unwrap();
        let place = |content: &[u8]| {
            let name = ContentHash::of(content).to_hex();
            let folder = dir.path().join(&name[..2]);
            fs::create_dir_all(&folder).unwrap();
            folder.join(name)
        };
        let (good, bad) = (place(b"good"), place(b"bad"));
        fs::write(&good, b"good").unwrap();
        fs::write(&bad, b"bent").unwrap();
        fs::write(dir.path().join("recency"), b"not a part").unwrap();

        let seen = look(dir.path(), false).unwrap();
        assert_eq!((seen.files, &*seen.damaged), (2, &[bad.clone()][..]));
        assert!(bad.exists());
        look(dir.path(), true).unwrap();
        assert!(good.exists() && !bad.exists());
        assert!(look(dir.path(), false).unwrap().damaged.is_empty());
    }
}
