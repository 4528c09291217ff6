//! Options of `serve` that depend on more than one flag: which store, and the
//! replica's settings without those of a replica that stands alone.

use std::io;
use std::path::{Path, PathBuf};

use clap::error::ErrorKind;
use clap::parser::ValueSource;
use clap::{ArgMatches, Args, Command, Error, FromArgMatches};
use headwater_replica::ReplicaConfig;
use url::Url;

use crate::failed::Failed;

/// Where histories are kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// A local directory.
    Directory(PathBuf),
    /// A store's URL.
    Store(String),
}

#[derive(Args)]
struct PlaceFlags {
    /// Keep histories in this local directory. It is made where it is missing.
    #[arg(long, value_name = "DIR", default_value = "data", env = "HEADWATER_ROOT")]
    root: PathBuf,
    /// Keep histories in this store instead: `file:///absolute/path`,
    /// `s3://bucket/prefix`, `memory:`. A --root that is given goes before the
    /// variable.
    #[arg(long, value_name = "URL", env = "HEADWATER_STORE")]
    store: Option<String>,
}

impl Place {
    /// The store's URL. A directory is made where it is missing.
    pub(super) fn url(&self) -> Result<String, Failed> {
        match self {
            Self::Directory(root) => directory_url(root),
            Self::Store(url) => Ok(url.clone()),
        }
    }
}

impl Place {
    /// As [`Place::url`], for who only looks: a directory has to be there.
    pub(crate) fn existing_url(&self) -> Result<String, Failed> {
        match self {
            Self::Directory(root) if !root.is_dir() => {
                let message = format!("there is no directory {}", root.display());
                Err(Failed::usage(message).advise("say where histories are: --root or --store"))
            }
            Self::Directory(_) | Self::Store(_) => self.url(),
        }
    }
}

impl FromArgMatches for Place {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        let PlaceFlags { root, store } = PlaceFlags::from_arg_matches(matches)?;
        // `conflicts_with` would let the variable forbid the flag.
        let is_given = |flag| matches.value_source(flag) == Some(ValueSource::CommandLine);
        match (is_given("root"), store) {
            (true, Some(_)) if is_given("store") => Err(Error::raw(
                ErrorKind::ArgumentConflict,
                "--root and --store are both given; give one\n",
            )),
            (false, Some(url)) => Ok(Self::Store(url)),
            (true, _) | (false, None) => Ok(Self::Directory(root)),
        }
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl Args for Place {
    fn augment_args(command: Command) -> Command {
        PlaceFlags::augment_args(command)
    }

    fn augment_args_for_update(command: Command) -> Command {
        PlaceFlags::augment_args_for_update(command)
    }
}

/// The replica's settings, without the writers that tell a replica of its own
/// what they publish: this replica hears it from the writer in its process, and
/// `--writer` says where commands ask.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplicaFlags(pub(crate) ReplicaConfig);

/// Both [`ReplicaConfig`] and [`crate::Connection`] know their writers by it.
const WRITERS: &str = "writers";

impl FromArgMatches for ReplicaFlags {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        // What it finds under `writers` are the addresses that commands ask.
        let config = ReplicaConfig::from_arg_matches(matches)?;
        Ok(Self(ReplicaConfig { writers: Vec::new(), ..config }))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl Args for ReplicaFlags {
    fn augment_args(command: Command) -> Command {
        let all = ReplicaConfig::augment_args(Command::new("replica"));
        let own = all.get_arguments().filter(|it| it.get_id() != WRITERS);
        command.args(own.map(|it| it.clone().help_heading("Replica")))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

fn directory_url(root: &Path) -> Result<String, Failed> {
    let failed = |error| Failed::file("use", root, &error);
    // Anything but a folder, there or on the way there.
    let is_in_the_way =
        |kind| matches!(kind, io::ErrorKind::AlreadyExists | io::ErrorKind::NotADirectory);
    std::fs::create_dir_all(root).map_err(|error| {
        if is_in_the_way(error.kind()) {
            Failed::usage(format!("{} is not a directory", root.display()))
        } else {
            failed(error)
        }
    })?;
    let absolute = std::path::absolute(root).map_err(failed)?;
    let url = Url::from_file_path(&absolute)
        .map_err(|()| Failed::usage(format!("not a directory: {}", absolute.display())))?;
    Ok(url.into())
}
