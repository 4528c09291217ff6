//! The file below clap's definition.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::error::ErrorKind;
use clap::parser::ValueSource;
use clap::{Arg, ArgGroup, ArgMatches, Command, Id};

use super::LoadError;
use super::file::{Entry, FileError, Value};
use super::setting::{Kind, Setting, settings};

/// What flags and variables say, before the file is known.
#[derive(Debug, Default)]
pub(super) struct FirstLook {
    pub(super) file: Option<PathBuf>,
    /// Names of the settings that a flag or a variable gives.
    pub(super) given: BTreeSet<String>,
}

/// Looks for the file. Errors are left for the second look, in which what the
/// file says is not missing any more; help pages are shown.
pub(super) fn first_look(
    command: Command,
    arguments: &[OsString],
    subcommand: Option<&str>,
) -> Result<FirstLook, LoadError> {
    let nothing_required = |it: Command| it.mut_args(|arg| arg.required(false));
    let command = match subcommand {
        None => nothing_required(command),
        Some(name) => command.mut_subcommand(name, nothing_required),
    };
    let matches = command.clone().ignore_errors(true).try_get_matches_from(arguments)?;
    let found = match subcommand {
        None => Some((&command, &matches)),
        Some(name) => command.find_subcommand(name).zip(matches.subcommand_matches(name)),
    };
    let Some((command, matches)) = found else { return Ok(FirstLook::default()) };
    let file = matches.try_get_one::<PathBuf>("config").ok().flatten().cloned();
    let given = settings(command).filter(|it| is_given(matches, it.arg()));
    let given = given.map(|it| it.name().to_owned()).collect();
    Ok(FirstLook { file, given })
}

fn is_given(matches: &ArgMatches, arg: &Arg) -> bool {
    let source = matches.value_source(arg.get_id().as_str());
    matches!(source, Some(ValueSource::CommandLine | ValueSource::EnvVariable))
}

/// The command with what the file says as defaults, and the entries that came
/// to something.
pub(super) fn with_file(
    command: Command,
    path: &Path,
    entries: Vec<Entry>,
    first: &FirstLook,
    subcommand: Option<&str>,
) -> Result<(Command, Vec<Entry>), LoadError> {
    let own = match subcommand {
        None => Some(&command),
        Some(name) => command.find_subcommand(name),
    };
    let Some(own) = own else { return Ok((command, Vec::new())) };
    let mut defaults = BTreeMap::new();
    let mut used = Vec::new();
    for entry in entries {
        let setting = find(own, path, &entry)?;
        let values = values(&setting, path, &entry)?;
        if is_let_go(own, &setting, path, &used, &entry, first)? {
            continue;
        }
        defaults.insert(setting.arg().get_id().as_str().to_owned(), values);
        used.push(entry);
    }
    let apply = |it: Command| it.mut_args(|arg| with_default(arg, &defaults));
    let command = match subcommand {
        None => apply(command),
        Some(name) => command.mut_subcommand(name, apply),
    };
    Ok((command, used))
}

fn with_default(arg: Arg, defaults: &BTreeMap<String, Vec<String>>) -> Arg {
    let Some(values) = defaults.get(arg.get_id().as_str()) else { return arg };
    // clap keeps what is static. A process reads its settings once or twice in
    // its life, and a file has a limit.
    let leaked = values.iter().map(|it| -> &'static str { Box::leak(it.clone().into_boxed_str()) });
    arg.required(false).default_values(leaked.collect::<Vec<_>>())
}

fn find<'a>(command: &'a Command, path: &Path, entry: &Entry) -> Result<Setting<'a>, LoadError> {
    if let Some(setting) = settings(command).find(|it| it.name() == entry.name) {
        return Ok(setting);
    }
    let distance = |it: &Setting<'_>| strsim::damerau_levenshtein(it.name(), &entry.name);
    let nearest = settings(command).min_by_key(distance);
    // Further away it is no slip of the pen.
    let nearest = nearest.filter(|it| distance(it) <= entry.name.len().max(3) / 2);
    Err(LoadError::File(Box::new(FileError::Unknown {
        path: path.to_owned(),
        line: entry.line,
        name: entry.name.clone(),
        nearest: nearest.map(|it| it.name().to_owned()),
    })))
}

/// Whether a setting that excludes others gives way to one that goes before the
/// file. Two of them in the file are refused.
fn is_let_go(
    command: &Command,
    setting: &Setting<'_>,
    path: &Path,
    used: &[Entry],
    entry: &Entry,
    first: &FirstLook,
) -> Result<bool, LoadError> {
    let rivals = command.get_groups().filter(|group| {
        let has = group.get_args().any(|it| it == setting.arg().get_id());
        has && !(*group).clone().is_multiple()
    });
    let rivals: BTreeSet<_> = rivals.flat_map(ArgGroup::get_args).map(Id::as_str).collect();
    let rivals = settings(command)
        .filter(|it| it.name() != setting.name() && rivals.contains(it.arg().get_id().as_str()));
    let names: Vec<_> = rivals.map(|it| it.name()).collect();
    if let Some(other) = used.iter().find(|it| names.contains(&&*it.name)) {
        return Err(LoadError::File(Box::new(FileError::Together {
            path: path.to_owned(),
            line: entry.line,
            name: entry.name.clone(),
            other: other.name.clone(),
        })));
    }
    Ok(names.iter().any(|it| first.given.contains(*it)))
}

/// What stands in the file, as it would stand on the command line.
fn values(setting: &Setting<'_>, path: &Path, entry: &Entry) -> Result<Vec<String>, LoadError> {
    let refused = |found: &Value, expected: &str| {
        // What was meant for a secret setting is not repeated in an error.
        let hidden = Value::Other("secret that it cannot be");
        let found = if setting.is_secret() { &hidden } else { found };
        FileError::wrong_type(path, entry.line, &entry.name, found, expected)
    };
    let expected = setting.expected();
    let items = entry.value.items().filter(|_| setting.is_list());
    let items = items.unwrap_or(std::slice::from_ref(&entry.value));
    let mut texts = Vec::new();
    for item in items {
        let text = text(setting, item).ok_or_else(|| Box::new(refused(item, &expected)))?;
        if let Err(rule) = check(setting, &text) {
            let expected = rule.unwrap_or_else(|| expected.clone());
            return Err(LoadError::File(Box::new(refused(item, &expected))));
        }
        texts.push(text);
    }
    Ok(texts)
}

/// `None` where the type is wrong.
fn text(setting: &Setting<'_>, value: &Value) -> Option<String> {
    match (setting.kind(), value) {
        (Kind::Flag, Value::Flag(flag)) => Some(flag.to_string()),
        (Kind::Number, Value::Number(digits)) => Some(digits.clone()),
        (Kind::Choice(_) | Kind::Address | Kind::Path | Kind::Text, Value::Text(text)) => {
            // It would come apart there.
            let is_whole = setting.delimiter().is_none_or(|it| !text.contains(it));
            is_whole.then(|| text.clone())
        }
        (
            _,
            Value::Text(_) | Value::Number(_) | Value::Flag(_) | Value::List(_) | Value::Other(_),
        ) => None,
    }
}

/// Whether the flag would take this value; the rule that it breaks where clap
/// knows it.
fn check(setting: &Setting<'_>, text: &str) -> Result<(), Option<String>> {
    if setting.kind() == Kind::Flag {
        return Ok(());
    }
    let parser = setting.arg().get_value_parser().clone();
    let alone = Arg::new("value").value_parser(parser).allow_hyphen_values(true).required(true);
    let command = Command::new("value").no_binary_name(true).arg(alone);
    let Err(error) = command.try_get_matches_from(["--", text]) else { return Ok(()) };
    let is_rule = error.kind() == ErrorKind::ValueValidation;
    let rule = std::error::Error::source(&error).filter(|_| is_rule);
    Err(rule.map(|it| format!("{} ({it})", setting.expected())))
}
