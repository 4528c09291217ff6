//! Where answers go: standard output, as text for people or as JSON.
//!
//! # Invariants
//!
//! - With `--json`, standard output holds one JSON value a line and nothing
//!   else; an error is one JSON value on standard error.
//! - A reader that closes the pipe ends the command quietly.

use std::io::{self, BufWriter, StdoutLock, Write as _};

use serde_json::Value;

use crate::failed::Failed;

/// How answers are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    Text,
    Json,
}

/// Standard output, held and buffered. What was not flushed is lost: every
/// command ends with [`Output::finish`].
pub(crate) struct Output {
    format: Format,
    out: BufWriter<StdoutLock<'static>>,
}

impl Output {
    pub(crate) fn new(format: Format) -> Self {
        Self { format, out: BufWriter::new(io::stdout().lock()) }
    }

    /// How answers are written.
    pub(crate) fn format(&self) -> Format {
        self.format
    }

    /// Writes one answer: JSON as one line, or the text that `text` makes.
    pub(crate) fn answer(
        &mut self,
        json: impl FnOnce() -> Value,
        text: impl FnOnce() -> String,
    ) -> Result<(), Failed> {
        let line = match self.format {
            Format::Json => json().to_string(),
            Format::Text => text(),
        };
        self.line(&line)
    }

    /// Writes a line as it is.
    pub(crate) fn line(&mut self, line: &str) -> Result<(), Failed> {
        writeln!(self.out, "{line}").map_err(|it| Failed::from_stdout(&it))
    }

    /// Writes bytes as they are.
    pub(crate) fn raw(&mut self, bytes: &[u8]) -> Result<(), Failed> {
        self.out.write_all(bytes).map_err(|it| Failed::from_stdout(&it))
    }

    /// Writes out what is buffered, and goes on.
    pub(crate) fn flush(&mut self) -> Result<(), Failed> {
        self.out.flush().map_err(|it| Failed::from_stdout(&it))
    }

    /// Writes out what is buffered.
    pub(crate) fn finish(mut self) -> Result<(), Failed> {
        self.out.flush().map_err(|it| Failed::from_stdout(&it))
    }
}

/// Writes an error to standard error. Where that is closed, nobody listens.
pub(crate) fn report(failed: &Failed, format: Format) {
    let line = match format {
        Format::Json => failed.to_json().to_string(),
        Format::Text => failed.to_text(),
    };
    if !line.is_empty() {
        drop(writeln!(io::stderr().lock(), "{line}"));
    }
}
