//! Where settings come from: flag over variable over file over default.
//!
//! ```text
//! clap's definition ──────────────┬──────────────▶ matches ─▶ the settings' types
//! file.toml ─▶ entries ─▶ checked ┘ (as defaults)     └────▶ what came from where
//! ```
//!
//! clap's definition is the only list of settings. The file is a layer below
//! it: what it says becomes the default of the argument of the same name. So a
//! new setting is one field with `#[arg(long, env = "HEADWATER_…")]`, and is in
//! the file, in `--show-config` and in docs/configuration.md by itself.
//!
//! One name for each setting: `--drain-seconds-max` is the variable
//! `HEADWATER_DRAIN_SECONDS_MAX` and the key `drain-seconds-max`. In a table the
//! name of the table is the beginning of the names: `[writer] head-soft-bytes`
//! is `writer-head-soft-bytes`.
//!
//! # Invariants
//!
//! - Nothing in a file is passed over: an unknown key, a wrong type and a value
//!   that the flag would refuse end the start, with the line.
//! - The value of a setting that is marked as secret (`hide_env_values`) is
//!   never shown.

mod file;
mod layer;
mod page;
mod setting;
mod show;

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{ArgMatches, Command};

pub use self::file::FileError;
pub use self::page::{Program, page};
pub use self::setting::settings;
pub use self::show::{Shown, Source, as_json, as_text};

/// The file, and looking at what came of it.
#[derive(Clone, Debug, Default, clap::Args)]
#[command(next_help_heading = "Configuration")]
pub struct ConfigOptions {
    /// Read settings from this TOML file. Flags and variables go before it.
    #[arg(long, value_name = "FILE", env = "HEADWATER_CONFIG")]
    pub config: Option<PathBuf>,
    /// Check all settings, load the files that they name, and end: 0 where all
    /// is fit, 2 where not. Nothing remote is asked.
    #[arg(long)]
    pub check_config: bool,
    /// Print every setting with where it came from, and end. As text it is a
    /// file that could be used. Secrets are left out.
    #[arg(long, value_name = "FORMAT", num_args = 0..=1, default_missing_value = "text",
          require_equals = true)]
    pub show_config: Option<ShowFormat>,
    /// What a running process has to know to read the file again.
    #[arg(skip)]
    pub origin: Origin,
}

/// How settings are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum ShowFormat {
    /// TOML with comments.
    Text,
    /// One JSON array.
    Json,
}

/// Where the settings of this process came from, as far as it matters later.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Origin {
    /// The file, if there was one.
    pub file: Option<PathBuf>,
    /// Whether a flag or a variable says what is logged: then a change of the
    /// file changes nothing.
    pub is_log_given: bool,
}

/// Settings that were read.
#[derive(Debug)]
pub struct Loaded {
    /// To make the settings' types of.
    pub matches: ArgMatches,
    /// Every setting, and where it came from.
    pub shown: Vec<Shown>,
    /// For a process that runs.
    pub origin: Origin,
}

/// Why settings could not be read.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// clap's own: flags and variables, and the pages that `--help` asks for.
    #[error(transparent)]
    Arguments(#[from] clap::Error),
    /// The file.
    #[error(transparent)]
    File(#[from] Box<FileError>),
}

/// What these are for: not settings, so not in a file.
const NOT_SETTINGS: [&str; 5] = ["config", "check-config", "show-config", "help", "version"];

/// The setting that says what is logged.
const LOG: &str = "log";

/// Reads `arguments`, the environment and the file that they name, by the
/// definition in `command`. Where `subcommand` is given the settings are those
/// of that subcommand, and a command line with another one has none.
///
/// # Errors
///
/// [`LoadError`].
pub fn load(
    command: Command,
    arguments: Vec<OsString>,
    subcommand: Option<&str>,
) -> Result<Loaded, LoadError> {
    let first = layer::first_look(command.clone(), &arguments, subcommand)?;
    let (command, entries) = match &first.file {
        None => (command, Vec::new()),
        Some(path) => {
            let entries = file::read(path).map_err(Box::new)?;
            layer::with_file(command, path, entries, &first, subcommand)?
        }
    };
    let matches = command.clone().try_get_matches_from(arguments)?;
    let own = match subcommand {
        None => Some((&command, &matches)),
        Some(name) => command.find_subcommand(name).zip(matches.subcommand_matches(name)),
    };
    let path = first.file.as_deref();
    let shown = own.map(|(command, own)| show::shown(command, own, path, &entries));
    let origin = Origin { file: first.file, is_log_given: first.given.contains(LOG) };
    Ok(Loaded { matches, shown: shown.unwrap_or_default(), origin })
}

/// What the file at `origin` says now of what is logged. `None` where it says
/// nothing.
///
/// # Errors
///
/// [`FileError`]; other settings of the file are not looked at.
pub fn log_of_file(origin: &Origin) -> Result<Option<String>, Box<FileError>> {
    let Some(path) = &origin.file else { return Ok(None) };
    let entries = file::read(path)?;
    let Some(entry) = entries.into_iter().find(|it| it.name == LOG) else { return Ok(None) };
    match entry.value.text() {
        Some(text) => Ok(Some(text.to_owned())),
        None => Err(Box::new(FileError::wrong_type(path, entry.line, LOG, &entry.value, "text"))),
    }
}

#[cfg(test)]
#[path = "config_test.rs"]
mod tests;
