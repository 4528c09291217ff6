//! Where the keys of a sealed store come from: a file, or a command that asks
//! a key service.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};

use headwater_store::{Keyring, KeyringError};

/// Most bytes taken from a file or a command. More is no keyring.
const TEXT_LEN_BYTES_MAX: u64 = 128 << 10;

/// The keys that objects are sealed with. Without any, objects are stored as
/// they are.
#[derive(Clone, Debug, Default, PartialEq, Eq, clap::Args)]
#[group(multiple = false)]
pub struct KeyOptions {
    /// Encrypt all objects with the keys in this file: `names SECRET`, then
    /// `key ID SECRET` lines, of which the first one encrypts and all decrypt.
    /// Secrets are 64 hex digits.
    #[arg(long, value_name = "FILE", env = "HEADWATER_STORE_KEY_FILE")]
    pub store_key_file: Option<PathBuf>,
    /// Likewise, with the keys that this shell command prints, such as a call
    /// to a key service.
    #[arg(
        long,
        value_name = "COMMAND",
        env = "HEADWATER_STORE_KEY_COMMAND",
        hide_env_values = true
    )]
    pub store_key_command: Option<String>,
}

/// Why there are no keys. The text of the keys is in none of these.
#[derive(Debug, thiserror::Error)]
pub enum KeyOptionsError {
    /// The file cannot be read.
    #[error("cannot read the store's keys from {}", path.display())]
    File {
        /// Which file.
        path: PathBuf,
        /// What happened.
        #[source]
        source: io::Error,
    },
    /// The command cannot be run, or what it prints is no text.
    #[error("cannot run the command for the store's keys")]
    Command(#[source] io::Error),
    /// The command failed. What it said is on standard error.
    #[error("the command for the store's keys failed: {status}")]
    Failed {
        /// How it ended.
        status: ExitStatus,
    },
    /// What was read is no keyring.
    #[error("{place}: {source}")]
    Keyring {
        /// What it was read from.
        place: String,
        /// What is wrong with it.
        source: KeyringError,
    },
}

impl KeyOptions {
    /// Reads the keys. Blocks, for as long as the command takes.
    ///
    /// # Errors
    ///
    /// [`KeyOptionsError`].
    pub fn keyring(&self) -> Result<Option<Keyring>, KeyOptionsError> {
        match (&self.store_key_file, &self.store_key_command) {
            (None, None) => Ok(None),
            (Some(path), _) => of_file(path).map(Some),
            (None, Some(command)) => {
                let place = || "what the command for the store's keys printed".to_owned();
                parse(&run(command)?, place).map(Some)
            }
        }
    }

    /// Reads the keys where they are in a file. A command is not run: it asks
    /// somebody.
    ///
    /// # Errors
    ///
    /// [`KeyOptionsError`].
    pub fn check_files(&self) -> Result<(), KeyOptionsError> {
        self.store_key_file.as_deref().map_or(Ok(()), |path| of_file(path).map(drop))
    }
}

fn of_file(path: &Path) -> Result<Keyring, KeyOptionsError> {
    let text = read_file(path)
        .map_err(|source| KeyOptionsError::File { path: path.to_owned(), source })?;
    parse(&text, || path.display().to_string())
}

fn parse(text: &str, place: impl FnOnce() -> String) -> Result<Keyring, KeyOptionsError> {
    Keyring::parse(text).map_err(|source| KeyOptionsError::Keyring { place: place(), source })
}

fn read_file(path: &Path) -> io::Result<String> {
    read(File::open(path)?)
}

/// The start of a text. One that is cut off is too long for a keyring anyway.
fn read(from: impl Read) -> io::Result<String> {
    let mut text = String::new();
    from.take(TEXT_LEN_BYTES_MAX).read_to_string(&mut text)?;
    Ok(text)
}

fn run(command: &str) -> Result<String, KeyOptionsError> {
    let mut child = Command::new("/bin/sh")
        .args(["-c", command])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(KeyOptionsError::Command)?;
    let printed = child.stdout.take().map_or_else(|| Ok(String::new()), read);
    // The pipe is closed by now, so a command that prints for ever ends too.
    let status = child.wait().map_err(KeyOptionsError::Command)?;
    // A command that failed has printed no keys, whatever it printed.
    if status.success() {
        printed.map_err(KeyOptionsError::Command)
    } else {
        Err(KeyOptionsError::Failed { status })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: &str = "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff";

    fn by_command(command: &str) -> Result<Option<Keyring>, KeyOptionsError> {
        let store_key_command = Some(command.to_owned());
        KeyOptions { store_key_command, ..KeyOptions::default() }.keyring()
    }

    #[test]
    fn keys_come_from_a_file_or_from_a_command() {
        assert!(KeyOptions::default().keyring().unwrap().is_none());
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(&file, format!("# ours\nnames {SECRET}\nkey 2026-11 {SECRET}\n")).unwrap();
        let store_key_file = Some(file.path().to_owned());
        let keys = KeyOptions { store_key_file, ..KeyOptions::default() };
        assert_eq!(keys.keyring().unwrap().unwrap().sealing_id().as_str(), "2026-11");

        let keys = by_command(&format!("cat {} | sed s/11/12/", file.path().display()));
        assert_eq!(keys.unwrap().unwrap().sealing_id().as_str(), "2026-12");
    }

    #[test]
    fn what_gives_no_keys_is_named_and_secrets_are_not() {
        let error = by_command(&format!("echo key {SECRET}; exit 3")).unwrap_err();
        assert!(error.to_string().contains("exit status: 3"), "{error}");
        let error = by_command(&format!("echo key {SECRET}")).unwrap_err();
        assert!(error.to_string().contains("line 1"), "{error}");
        assert!(!error.to_string().contains(SECRET), "{error}");
        let error = by_command("yes").unwrap_err();
        assert!(matches!(error, KeyOptionsError::Failed { .. } | KeyOptionsError::Keyring { .. }));
        let store_key_file = Some("/nowhere/keys".into());
        let error = KeyOptions { store_key_file, ..KeyOptions::default() }.keyring().unwrap_err();
        assert!(error.to_string().contains("/nowhere/keys"), "{error}");
    }
}
