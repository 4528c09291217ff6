//! The state file: what an import has sent, from which version, and how far it
//! is confirmed.
//!
//! ```json
//! {
//!   "format": 1,
//!   "history": "packages", "historyId": "5f0c…",
//!   "importId": "…", "input": { "lines": 60000, "bytes": 81920000 },
//!   "issue": "newest",
//!   "spans": [ { "fromLine": 4097, "toLine": 6144, "issuedFromVersion": 17 } ],
//!   "confirmedThroughLine": 4500, "confirmedChain": "…",
//!   "unknownLines": [],
//!   "complete": false
//! }
//! ```
//!
//! # Invariants
//!
//! - A file is replaced whole: written beside, synced, renamed, and the folder
//!   synced. A crash leaves the old one or the new one.
//! - One process at a time has it, by an advisory lock on `FILE.lock`.

use std::collections::BTreeSet;
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use headwater_client::IssueVersion;
use serde::{Deserialize, Serialize};

use super::identity::{Chain, ImportId};
use super::input::Source;
use super::ledger::Mark;
use crate::durable::{beside, replace};
use crate::exit::Exit;
use crate::failed::Failed;

/// The only format so far.
const FORMAT: u64 = 1;

/// Lines of one span. A span costs one synced write; a run that is taken up
/// after its receipts are gone cannot tell about the unconfirmed lines of the
/// spans that were open.
const SPAN_LINES: u64 = 2_048;

/// State versions after which a span ends early: its last lines need receipts
/// as far back as its issue version, so a writer has to keep more than these.
pub(super) const SPAN_VERSIONS: u64 = 64;

/// Largest state file that is read. One holds a few spans, and at most the
/// unknown lines of them.
const SIZE_BYTES_MAX: u64 = 16 << 20;

/// Who keeps the issue version of new spans, and which it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum Issue {
    /// 0: an earlier run, unknown to this file, may have sent the lines.
    Zero,
    /// The version current when a span is opened: nobody else sent its lines.
    Newest,
    /// The writer keeps it.
    ServiceKept,
}

/// Lines that were sent, or may have been, from one issue version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Span {
    /// First line.
    pub(super) from_line: u64,
    /// Last line.
    pub(super) to_line: u64,
    /// Absent: the writer keeps it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) issued_from_version: Option<u64>,
}

/// What is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct State {
    pub(super) history: String,
    pub(super) history_id: String,
    pub(super) import_id: ImportId,
    /// What a file held; for people.
    pub(super) input: Option<InputNote>,
    pub(super) issue: Issue,
    pub(super) spans: Vec<Span>,
    pub(super) confirmed: Mark,
    /// Lines whose outcome is unknown for good, in order.
    pub(super) unknown_lines: BTreeSet<u64>,
    pub(super) is_complete: bool,
}

/// What a file held.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct InputNote {
    pub(super) lines: u64,
    pub(super) bytes: u64,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Stored {
    format: u64,
    history: String,
    history_id: String,
    import_id: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    input: Option<InputNote>,
    issue: Issue,
    spans: Vec<Span>,
    confirmed_through_line: u64,
    confirmed_chain: String,
    unknown_lines: Vec<u64>,
    complete: bool,
}

impl State {
    /// The span that has `line`.
    pub(super) fn span(&self, line: u64) -> Option<Span> {
        self.spans.iter().copied().find(|it| (it.from_line..=it.to_line).contains(&line))
    }

    /// Begins a span at `from_line`. The last one ends there, if it has not.
    pub(super) fn begin_span(&mut self, from_line: u64, issued_from_version: Option<u64>) {
        for span in &mut self.spans {
            span.to_line = span.to_line.min(from_line - 1);
        }
        let to_line = from_line + SPAN_LINES - 1;
        self.spans.push(Span { from_line, to_line, issued_from_version });
    }

    /// Takes note of how far everything is settled; spans below it are done.
    pub(super) fn confirm(&mut self, confirmed: Mark) {
        self.confirmed = confirmed;
        self.spans.retain(|it| confirmed.line < it.to_line);
    }

    fn to_json(&self) -> Result<Vec<u8>, serde_json::Error> {
        serde_json::to_vec_pretty(&Stored {
            format: FORMAT,
            history: self.history.clone(),
            history_id: self.history_id.clone(),
            import_id: self.import_id.to_hex(),
            input: self.input,
            issue: self.issue,
            spans: self.spans.clone(),
            confirmed_through_line: self.confirmed.line,
            confirmed_chain: self.confirmed.chain.to_hex(),
            unknown_lines: self.unknown_lines.iter().copied().collect(),
            complete: self.is_complete,
        })
    }

    fn from_json(json: &[u8]) -> Result<Self, String> {
        let stored: Stored = serde_json::from_slice(json).map_err(|it| it.to_string())?;
        if stored.format != FORMAT {
            return Err(format!("it has format {}, this build reads {FORMAT}", stored.format));
        }
        let chain = Chain::parse(&stored.confirmed_chain);
        Ok(Self {
            history: stored.history,
            history_id: stored.history_id,
            import_id: ImportId::parse(&stored.import_id).ok_or("`importId` is not a hash")?,
            input: stored.input,
            issue: stored.issue,
            spans: stored.spans,
            confirmed: Mark {
                line: stored.confirmed_through_line,
                chain: chain.ok_or("`confirmedChain` is not a hash")?,
            },
            unknown_lines: stored.unknown_lines.into_iter().collect(),
            is_complete: stored.complete,
        })
    }
}

impl Span {
    pub(super) fn issue(&self) -> IssueVersion {
        self.issued_from_version.map_or(IssueVersion::ServiceKept, IssueVersion::At)
    }
}

/// Where the state of an import of `source` is kept, unless it is told.
pub(super) fn default_path(source: &Source) -> Option<PathBuf> {
    match source {
        Source::File(path) => Some(beside(path, ".headwater-import.json")),
        Source::Stdin => None,
    }
}

/// A state file that this process has for itself.
#[derive(Debug)]
pub(super) struct StateFile {
    path: PathBuf,
    _lock: File,
}

impl StateFile {
    /// Takes the file at `path`, which need not exist.
    pub(super) fn open(path: PathBuf) -> Result<Self, Failed> {
        let lock_path = beside(&path, ".lock");
        let failed = |error| Failed::file("open", &lock_path, &error);
        let lock = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .open(&lock_path)
            .map_err(failed)?;
        match lock.try_lock() {
            Ok(()) => Ok(Self { path, _lock: lock }),
            Err(TryLockError::WouldBlock) => {
                let message = format!("another import is using {}", path.display());
                Err(Failed::usage(message).advise("wait for it, or name another file with --state"))
            }
            Err(TryLockError::Error(error)) => Err(failed(error)),
        }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// What is recorded; none where there is no file.
    pub(super) fn load(&self) -> Result<Option<State>, Failed> {
        let file = match File::open(&self.path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(Failed::file("read", &self.path, &error)),
        };
        let mut json = Vec::new();
        file.take(SIZE_BYTES_MAX)
            .read_to_end(&mut json)
            .map_err(|error| Failed::file("read", &self.path, &error))?;
        State::from_json(&json).map(Some).map_err(|what| {
            let path = self.path.display();
            Failed::new(Exit::BadData, format!("{path} is not the state of an import: {what}"))
                .advise("without it, see --fresh and --service-kept")
        })
    }

    /// Replaces the file. It is durable when this returns.
    pub(super) fn save(&self, state: &State) -> Result<(), Failed> {
        let json = state.to_json();
        let mut json = json.map_err(|it| Failed::new(Exit::Unexpected, it.to_string()))?;
        json.push(b'\n');
        replace(&self.path, &json).map_err(|error| Failed::file("write", &self.path, &error))
    }
}

#[cfg(test)]
#[path = "state_test.rs"]
mod tests;
