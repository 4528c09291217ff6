//! Every setting, and where it came from.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use clap::parser::ValueSource;
use clap::{ArgMatches, Command};
use serde_json::{Value as Json, json};

use super::file::Entry;
use super::setting::{Kind, Setting, settings};

/// One setting of this process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shown {
    /// Its name.
    pub name: String,
    /// Its values, as texts; empty where it is not set. Hidden where secret.
    pub values: Vec<String>,
    /// Whether its values were left out.
    pub is_hidden: bool,
    /// Where it came from.
    pub source: Source,
    kind: Kind,
    is_list: bool,
}

/// Where a setting came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// The command line.
    Flag,
    /// A variable of the environment.
    Variable(String),
    /// A line of the file.
    File(PathBuf, usize),
    /// Nobody gave it.
    Default,
}

pub(super) fn shown(
    command: &Command,
    matches: &ArgMatches,
    path: Option<&Path>,
    entries: &[Entry],
) -> Vec<Shown> {
    let show = |setting: Setting<'_>| {
        let id = setting.arg().get_id().as_str();
        let raw = matches.get_raw(id).into_iter().flatten();
        let values: Vec<_> = raw.map(|it| it.to_string_lossy().into_owned()).collect();
        let entry = entries.iter().find(|it| it.name == setting.name());
        let source = match (matches.value_source(id), path.zip(entry)) {
            (Some(ValueSource::CommandLine), _) => Source::Flag,
            (Some(ValueSource::EnvVariable), _) => {
                Source::Variable(setting.variable().unwrap_or_default().to_owned())
            }
            (_, Some((path, entry))) => Source::File(path.to_owned(), entry.line),
            (_, None) => Source::Default,
        };
        let is_hidden = setting.is_secret() && !values.is_empty();
        Shown {
            name: setting.name().to_owned(),
            values: if is_hidden { Vec::new() } else { values },
            is_hidden,
            source,
            kind: setting.kind(),
            is_list: setting.is_list(),
        }
    };
    settings(command).map(show).collect()
}

impl Source {
    fn word(&self) -> &'static str {
        match self {
            Self::Flag => "flag",
            Self::Variable(_) => "variable",
            Self::File(..) => "file",
            Self::Default => "default",
        }
    }

    fn place(&self) -> Option<String> {
        match self {
            Self::Variable(name) => Some(name.clone()),
            Self::File(path, line) => Some(format!("{}:{line}", path.display())),
            Self::Flag | Self::Default => None,
        }
    }
}

impl Shown {
    fn json_value(&self) -> Json {
        let one = |text: &String| match self.kind {
            Kind::Flag => text.parse::<bool>().map_or_else(|_| json!(text), Json::from),
            Kind::Number => text.parse::<i64>().map_or_else(|_| json!(text), Json::from),
            Kind::Choice(_) | Kind::Address | Kind::Path | Kind::Text => json!(text),
        };
        match (&*self.values, self.is_list) {
            (values, true) => values.iter().map(one).collect(),
            ([], false) => Json::Null,
            ([first, ..], false) => one(first),
        }
    }
}

/// As a TOML file that would give the same settings, secrets left out.
pub fn as_text(all: &[Shown]) -> String {
    let mut text = String::new();
    for it in all {
        let place = it.source.place().map(|it| format!(" {it}")).unwrap_or_default();
        let source = format!("{}{place}", it.source.word());
        let value = it.json_value();
        let outcome = match (it.is_hidden, value.is_null()) {
            (true, _) => writeln!(text, "# {} is set, and hidden  # {source}", it.name),
            (false, true) => writeln!(text, "# {} is not set", it.name),
            // JSON of numbers, flags, texts and lists of them is TOML too.
            (false, false) => writeln!(text, "{} = {value}  # {source}", it.name),
        };
        outcome.ok();
    }
    text
}

/// As one JSON array of `name`, `value` (null where it is not set), `source`
/// (`flag`, `variable`, `file`, `default`), `place` and `hidden`.
pub fn as_json(all: &[Shown]) -> Json {
    let one = |it: &Shown| {
        json!({
            "name": it.name,
            "value": it.json_value(),
            "source": it.source.word(),
            "place": it.source.place(),
            "hidden": it.is_hidden,
        })
    };
    all.iter().map(one).collect()
}
