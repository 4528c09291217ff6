//! docs/configuration.md, from the definitions of all programs.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use clap::Command;

use super::setting::{Setting, settings};

/// A program whose settings the page has.
#[derive(Debug)]
pub struct Program<'a> {
    /// As the page calls it.
    pub name: &'a str,
    /// The definition of its settings.
    pub command: &'a Command,
}

/// One row, and whose setting it is.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Row {
    name: String,
    variable: String,
    expected: String,
    default: String,
    text: String,
}

const INTRODUCTION: &str = "\
# Configuration

Every setting of `headwater serve`, `headwater-writer` and `headwater-replica`. This page is made
from the programs' own definitions (`cargo run -p xtask -- configuration`), and a test compares
them.

A setting has one name. `--drain-seconds-max 5` on the command line,
`HEADWATER_DRAIN_SECONDS_MAX=5` in the environment and `drain-seconds-max = 5` in the file are the
same; a flag goes before a variable, a variable before the file, the file before the default.

The file is TOML, named by `--config FILE` or `HEADWATER_CONFIG`. The name of a table is the
beginning of the names in it, so these are the same too:

```toml
writer-head-soft-bytes = 65536

[writer]
head-soft-bytes = 65536
```

(`store` and `log` are settings themselves, so what begins with them is written out:
`store-key-file`.) A setting that may have several values takes a list. A key that is no setting,
a value of another type and one that the flag would refuse end the start, with file, line and what
is expected.

- `--check-config` checks all settings, loads the files that they name, asks nothing remote, and
  ends: exit code 0 or 2.
- `--show-config` prints every setting with where it came from, as a file that could be used;
  `--show-config=json` as JSON. Secrets are left out.
- SIGHUP reads `log` again from the file. Everything else is read once, at the start.
";

/// The page.
pub fn page(programs: &[Program<'_>]) -> String {
    // By heading in the order in which they come, then by name.
    let mut headings: Vec<String> = Vec::new();
    let mut rows: BTreeMap<(usize, Row), Vec<&str>> = BTreeMap::new();
    for program in programs {
        for setting in settings(program.command) {
            let heading = heading(&setting);
            let n = headings.iter().position(|it| *it == heading).unwrap_or_else(|| {
                headings.push(heading.clone());
                headings.len() - 1
            });
            rows.entry((n, row(&setting))).or_default().push(program.name);
        }
    }
    let mut text = INTRODUCTION.to_owned();
    for (n, heading) in headings.iter().enumerate() {
        write!(
            text,
            "\n## {heading}\n\n| setting | variable | value | default | of | what it is |\n\
             | --- | --- | --- | --- | --- | --- |\n"
        )
        .ok();
        for ((_, row), names) in rows.iter().filter(|((of, _), _)| *of == n) {
            let Row { name, variable, expected, default, text: help } = row;
            let of =
                if names.len() == programs.len() { "all".to_owned() } else { names.join(", ") };
            writeln!(text, "| `{name}` | {variable} | {expected} | {default} | {of} | {help} |")
                .ok();
        }
    }
    text
}

fn heading(setting: &Setting<'_>) -> String {
    match setting.arg().get_help_heading() {
        Some(heading) => heading.to_owned(),
        None if setting.name().starts_with("writer-") => "Writer".to_owned(),
        None if setting.name().starts_with("replica-") => "Replica".to_owned(),
        None => "General".to_owned(),
    }
}

fn row(setting: &Setting<'_>) -> Row {
    let code = |it: &str| format!("`{it}`");
    let help = setting.arg().get_long_help().or(setting.arg().get_help());
    let help = help.map(ToString::to_string).unwrap_or_default();
    let required = if setting.is_required() { "must be given" } else { "not set" };
    Row {
        name: setting.name().to_owned(),
        variable: setting.variable().map(code).unwrap_or_default(),
        expected: setting.expected(),
        default: match setting.default() {
            Some(text) if text.is_empty() => "empty".to_owned(),
            Some(text) => code(&text),
            None => required.to_owned(),
        },
        text: help.split_whitespace().collect::<Vec<_>>().join(" ").replace('|', "\\|"),
    }
}
