//! What clap's definition says of one setting.

use std::any::TypeId;
use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Arg, ArgAction, Command};

use super::NOT_SETTINGS;

/// A setting, as an argument of clap.
#[derive(Clone, Copy, Debug)]
pub struct Setting<'a> {
    arg: &'a Arg,
    name: &'a str,
}

/// What a setting can be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Flag,
    Number,
    Choice(Vec<String>),
    Address,
    Path,
    Text,
}

/// The settings of a command, in the order of its help page. Arguments without
/// a long name, and those that are global or say what to do, are none.
pub fn settings(command: &Command) -> impl Iterator<Item = Setting<'_>> {
    command.get_arguments().filter_map(|arg| {
        let name = arg.get_long()?;
        let is_setting = !NOT_SETTINGS.contains(&name) && !arg.is_global_set();
        is_setting.then_some(Setting { arg, name })
    })
}

impl<'a> Setting<'a> {
    /// Its name: the flag without its dashes.
    pub fn name(&self) -> &'a str {
        self.name
    }

    /// Its variable.
    pub fn variable(&self) -> Option<&'a str> {
        self.arg.get_env()?.to_str()
    }

    /// Whether its value is never shown.
    pub fn is_secret(&self) -> bool {
        self.arg.is_hide_env_values_set()
    }

    pub(super) fn arg(&self) -> &'a Arg {
        self.arg
    }

    /// Whether it may have several values.
    pub(super) fn is_list(&self) -> bool {
        matches!(self.arg.get_action(), ArgAction::Append) || self.delimiter().is_some()
    }

    pub(super) fn delimiter(&self) -> Option<char> {
        self.arg.get_value_delimiter()
    }

    pub(super) fn is_required(&self) -> bool {
        self.arg.is_required_set()
    }

    pub(super) fn kind(&self) -> Kind {
        if !self.arg.get_action().takes_values() {
            return Kind::Flag;
        }
        let parser = self.arg.get_value_parser();
        let choices = self.arg.get_possible_values();
        if parser.type_id() == TypeId::of::<bool>() {
            Kind::Flag
        } else if !choices.is_empty() {
            Kind::Choice(choices.iter().map(|it| it.get_name().to_owned()).collect())
        } else if is_number(self.arg) {
            Kind::Number
        } else if parser.type_id() == TypeId::of::<SocketAddr>() {
            Kind::Address
        } else if parser.type_id() == TypeId::of::<PathBuf>() {
            Kind::Path
        } else {
            Kind::Text
        }
    }

    /// What it may be, for people.
    pub(super) fn expected(&self) -> String {
        let one = match self.kind() {
            Kind::Flag => "true or false".to_owned(),
            Kind::Number => "a whole number".to_owned(),
            Kind::Choice(names) => format!("one of {}", names.join(", ")),
            Kind::Address => "an address such as 127.0.0.1:7410".to_owned(),
            Kind::Path => "a path".to_owned(),
            Kind::Text => "text".to_owned(),
        };
        if self.is_list() { format!("{one}, or a list of it") } else { one }
    }

    /// Its default, as it would stand on a command line. `None`: not set.
    pub(super) fn default(&self) -> Option<String> {
        let values = self.arg.get_default_values();
        let texts: Vec<_> = values.iter().map(|it| it.to_string_lossy()).collect();
        match (self.kind(), texts.is_empty()) {
            (Kind::Flag, true) => Some("false".to_owned()),
            (_, true) => None,
            (_, false) => Some(texts.join(",")),
        }
    }
}

fn is_number(arg: &Arg) -> bool {
    let parsed = arg.get_value_parser().type_id();
    let numbers = [
        TypeId::of::<u64>(),
        TypeId::of::<usize>(),
        TypeId::of::<u32>(),
        TypeId::of::<u16>(),
        TypeId::of::<u8>(),
        TypeId::of::<i64>(),
    ];
    numbers.into_iter().any(|it| parsed == it)
}
