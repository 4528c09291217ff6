//! Which file an export replaces.
//!
//! # Invariant
//!
//! - Only a regular file is replaced. What stands for something else (a pipe, a
//!   device, a folder) is refused before anything is touched: a rename would put
//!   a file in its place.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::failed::Failed;

/// Links that are followed, as many as Linux follows.
const LINKS_MAX: usize = 40;

/// The file behind `output`, links followed, so that a link stays one. It need
/// not exist.
pub(super) fn resolve(output: &Path) -> Result<PathBuf, Failed> {
    let failed = |error| Failed::file("write", output, &error);
    match fs::metadata(output) {
        Ok(it) if it.is_file() => fs::canonicalize(output).map_err(failed),
        Ok(_) => Err(Failed::usage(format!("{} is not a regular file", output.display()))
            .advise("to write into it, use standard output: leave --output out")),
        Err(error) if error.kind() == io::ErrorKind::NotFound => absent(output).map_err(failed),
        Err(error) => Err(failed(error)),
    }
}

/// What a link without a file behind it names.
fn absent(output: &Path) -> io::Result<PathBuf> {
    let mut path = output.to_owned();
    for _ in 0..LINKS_MAX {
        match fs::read_link(&path) {
            // From the folder of the link, unless it is absolute.
            Ok(named) => path = path.parent().unwrap_or(Path::new("")).join(named),
            // Not a link, or nothing.
            Err(_) => return Ok(path),
        }
    }
    Err(io::Error::other("too many links"))
}

#[cfg(all(test, unix))]
mod tests {
    use std::os::unix::fs::symlink;
    use std::os::unix::net::UnixListener;

    use super::*;
    use crate::exit::Exit;

    #[test]
    fn a_link_names_the_file_behind_it() {
        let folder = tempfile::tempdir().unwrap();
        let root = fs::canonicalize(folder.path()).unwrap();
        let at = |name: &str| root.join(name);
        fs::write(at("file"), "old").unwrap();
        fs::create_dir(at("deep")).unwrap();
        symlink("file", at("link")).unwrap();
        symlink("../link", at("deep/again")).unwrap();
        symlink("absent", at("dangling")).unwrap();
        symlink("round", at("round")).unwrap();

        for (output, expected) in [
            ("file", "file"),
            ("link", "file"),
            ("deep/again", "file"),
            ("dangling", "absent"),
            ("absent", "absent"),
        ] {
            assert_eq!(resolve(&at(output)).unwrap(), at(expected), "{output}");
        }
        assert!(resolve(&at("round")).is_err());
    }

    #[test]
    fn what_is_not_a_regular_file_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("socket");
        let _listener = UnixListener::bind(&socket).unwrap();
        let link = folder.path().join("link");
        symlink("/dev/null", &link).unwrap();

        for output in [Path::new("/dev/null"), folder.path(), &socket, &link] {
            let refused = resolve(output).unwrap_err();

            assert_eq!(refused.exit, Exit::Usage);
            assert!(refused.to_text().contains("use standard output"), "{}", refused.to_text());
        }
    }
}
