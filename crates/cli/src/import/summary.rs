//! What a run did.

use headwater_client::History;
use serde_json::{Value, json};

use super::ImportArgs;
use super::state::{State, StateFile};
use crate::exit::Exit;

/// Unknown lines that are named; the state file has all of them.
const UNKNOWN_SHOWN_MAX: usize = 20;

/// What a run did, by lines.
#[derive(Clone, Debug)]
pub(super) struct Summary {
    history: String,
    history_id: String,
    file: String,
    state_path: Option<String>,
    /// Accepted by this run.
    pub(super) applied: u64,
    /// Found to have been accepted before: by an earlier run, or by this one
    /// where the first answer was lost.
    pub(super) found: u64,
    /// Not sent: recorded as settled by an earlier run.
    pub(super) skipped: u64,
    /// Lines with nothing on them.
    pub(super) blank: u64,
    /// Outcomes unknown for good, in all runs.
    unknown: Vec<u64>,
    /// The newest version of an answer.
    pub(super) state_version: u64,
    is_complete: bool,
    pub(super) is_interrupted: bool,
}

impl Summary {
    pub(super) fn new(args: &ImportArgs, history: &History, file: Option<&StateFile>) -> Self {
        Self {
            history: history.name.clone(),
            history_id: history.history_id.to_string(),
            file: args.file.display().to_string(),
            state_path: file.map(|it| it.path().display().to_string()),
            applied: 0,
            found: 0,
            skipped: 0,
            blank: 0,
            unknown: Vec::new(),
            state_version: history.state_version,
            is_complete: false,
            is_interrupted: false,
        }
    }

    /// Everything was done before.
    pub(super) fn nothing_to_do(&mut self, state: &State) {
        self.skipped = state.confirmed.line;
        self.conclude(state);
    }

    /// Takes over what the state says at the end.
    pub(super) fn conclude(&mut self, state: &State) {
        self.unknown = state.unknown_lines.iter().copied().collect();
        self.is_complete = state.is_complete;
    }

    pub(super) fn exit(&self) -> Exit {
        if self.is_interrupted {
            Exit::Interrupted
        } else if self.unknown.is_empty() {
            Exit::Done
        } else {
            Exit::Unknown
        }
    }

    pub(super) fn to_json(&self) -> Value {
        json!({
            "history": self.history,
            "historyId": self.history_id,
            "file": self.file,
            "state": self.state_path,
            "appliedLines": self.applied,
            "foundLines": self.found,
            "skippedLines": self.skipped,
            "blankLines": self.blank,
            "unknownLines": self.unknown,
            "stateVersion": self.state_version,
            "complete": self.is_complete,
        })
    }

    pub(super) fn to_text(&self) -> String {
        let (file, history) = (&self.file, &self.history);
        let mut lines = vec![
            if self.is_complete {
                format!("imported {file} into {history}")
            } else {
                format!("{file} is not imported into {history} to its end")
            },
            format!("  {} lines applied now", self.applied),
            format!("  {} found applied before", self.found),
            format!("  {} skipped, recorded as done", self.skipped),
        ];
        if self.blank > 0 {
            lines.push(format!("  {} blank", self.blank));
        }
        if !self.unknown.is_empty() {
            let shown: Vec<_> =
                self.unknown.iter().take(UNKNOWN_SHOWN_MAX).map(u64::to_string).collect();
            let more = if self.unknown.len() > shown.len() { ", …" } else { "" };
            let (count, shown) = (self.unknown.len(), shown.join(", "));
            lines.push(format!(
                "  {count} unknown: receipts that could tell are gone; --settle-unknown looks at \
                 the data of lines {shown}{more}"
            ));
        }
        if let Some(path) = self.state_path.as_ref().filter(|_| !self.is_complete) {
            lines.push(format!("run it again to go on; {path} says where"));
        }
        lines.join("\n")
    }
}
