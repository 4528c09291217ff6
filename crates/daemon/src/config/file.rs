//! A TOML file as a flat list of names and values, each with its line.

use std::fmt;
use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// Most bytes of a file. All settings with all comments take a few KiB.
const FILE_BYTES_MAX: u64 = 1 << 20;
/// Tables within tables: more than any name has parts.
const DEPTH_MAX: usize = 8;

/// What a file says of one setting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    /// Names of tables and key, joined by `-`.
    pub(super) name: String,
    pub(super) value: Value,
    /// From 1.
    pub(super) line: usize,
}

/// A value, as far as a setting can have it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Value {
    Text(String),
    /// A whole number, in decimal digits.
    Number(String),
    Flag(bool),
    List(Vec<Value>),
    /// What no setting is: named, to be refused.
    Other(&'static str),
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(text) => write!(f, "{text:?}"),
            Self::Number(digits) => f.write_str(digits),
            Self::Flag(flag) => write!(f, "{flag}"),
            Self::List(_) => f.write_str("a list"),
            Self::Other(what) => write!(f, "a {what}"),
        }
    }
}

impl Value {
    /// What a list has.
    pub(super) fn items(&self) -> Option<&[Self]> {
        if let Self::List(items) = self { Some(items) } else { None }
    }

    /// What a text says.
    pub(super) fn text(&self) -> Option<&str> {
        if let Self::Text(text) = self { Some(text) } else { None }
    }
}

/// Why a file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// It cannot be read.
    #[error("cannot read {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// It is longer than any file of settings.
    #[error("{} has more than {FILE_BYTES_MAX} bytes", path.display())]
    TooLong {
        /// The file.
        path: PathBuf,
    },
    /// It is not TOML.
    #[error("{}:{line}: {what}", path.display())]
    Toml {
        /// The file.
        path: PathBuf,
        /// From 1.
        line: usize,
        /// What the parser said.
        what: String,
    },
    /// There is no such setting.
    #[error("{}:{line}: there is no setting `{name}`{}", path.display(), did_you_mean(nearest.as_deref()))]
    Unknown {
        /// The file.
        path: PathBuf,
        /// From 1.
        line: usize,
        /// As it stands there.
        name: String,
        /// The setting whose name is most like it.
        nearest: Option<String>,
    },
    /// A setting cannot have this value.
    #[error("{}:{line}: `{name}` is {found}; expected {expected}", path.display())]
    Value {
        /// The file.
        path: PathBuf,
        /// From 1.
        line: usize,
        /// The setting.
        name: String,
        /// What stands there.
        found: String,
        /// What it may be.
        expected: String,
    },
    /// The same setting twice, as a name and in a table.
    #[error("{}:{line}: `{name}` is set again; it is in line {first} too", path.display())]
    Twice {
        /// The file.
        path: PathBuf,
        /// From 1.
        line: usize,
        /// The setting.
        name: String,
        /// The line that has it first.
        first: usize,
    },
    /// Two settings that exclude each other.
    #[error("{}:{line}: `{name}` cannot be set together with `{other}`", path.display())]
    Together {
        /// The file.
        path: PathBuf,
        /// From 1.
        line: usize,
        /// The setting.
        name: String,
        /// The other one.
        other: String,
    },
}

fn did_you_mean(nearest: Option<&str>) -> String {
    nearest.map(|it| format!("; did you mean `{it}`?")).unwrap_or_default()
}

impl FileError {
    pub(super) fn wrong_type(
        path: &Path,
        line: usize,
        name: &str,
        found: &Value,
        expected: &str,
    ) -> Self {
        Self::Value {
            path: path.to_owned(),
            line,
            name: name.to_owned(),
            found: found.to_string(),
            expected: expected.to_owned(),
        }
    }
}

/// Reads a file. Blocks: for the start of a process.
pub(super) fn read(path: &Path) -> Result<Vec<Entry>, FileError> {
    let failed = |source| FileError::Read { path: path.to_owned(), source };
    let mut text = String::new();
    let file = File::open(path).map_err(failed)?;
    let n_read = file.take(FILE_BYTES_MAX + 1).read_to_string(&mut text).map_err(failed)?;
    if FILE_BYTES_MAX < n_read as u64 {
        return Err(FileError::TooLong { path: path.to_owned() });
    }
    parse(path, &text)
}

fn parse(path: &Path, text: &str) -> Result<Vec<Entry>, FileError> {
    let line_of = |at: usize| 1 + text.bytes().take(at).filter(|it| *it == b'\n').count();
    let table = DeTable::parse(text).map_err(|error| FileError::Toml {
        path: path.to_owned(),
        line: error.span().map_or(1, |it| line_of(it.start)),
        what: error.message().to_owned(),
    })?;
    let mut entries = Vec::new();
    flatten("", table.get_ref(), &line_of, DEPTH_MAX, &mut entries);
    entries.sort_by_key(|it| it.line);
    for (n, entry) in entries.iter().enumerate() {
        if let Some(first) = entries[..n].iter().find(|it| it.name == entry.name) {
            return Err(FileError::Twice {
                path: path.to_owned(),
                line: entry.line,
                name: entry.name.clone(),
                first: first.line,
            });
        }
    }
    Ok(entries)
}

fn flatten(
    prefix: &str,
    table: &DeTable<'_>,
    line_of: &dyn Fn(usize) -> usize,
    depth: usize,
    entries: &mut Vec<Entry>,
) {
    for (key, value) in table {
        let name = format!("{prefix}{}", key.get_ref());
        if let (DeValue::Table(inner), 1..) = (value.get_ref(), depth) {
            flatten(&format!("{name}-"), inner, line_of, depth - 1, entries);
        } else {
            let line = line_of(key.span().start);
            entries.push(Entry { name, value: as_value(value.get_ref()), line });
        }
    }
}

fn as_value(value: &DeValue<'_>) -> Value {
    match value {
        DeValue::String(text) => Value::Text(text.clone().into_owned()),
        DeValue::Integer(it) => match i128::from_str_radix(it.as_str(), it.radix()) {
            Ok(number) => Value::Number(number.to_string()),
            Err(_) => Value::Other("number out of range"),
        },
        DeValue::Boolean(flag) => Value::Flag(*flag),
        DeValue::Array(items) => {
            Value::List(items.iter().map(Spanned::get_ref).map(as_value).collect())
        }
        DeValue::Float(_) => Value::Other("fraction"),
        DeValue::Datetime(_) => Value::Other("date"),
        DeValue::Table(_) => Value::Other("table"),
    }
}
