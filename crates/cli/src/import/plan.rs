//! How a run begins: from what an earlier one recorded, or from nothing.

use headwater_client::History;

use super::ImportArgs;
use super::identity::ImportId;
use super::input::Identified;
use super::ledger::Mark;
use super::state::{InputNote, Issue, State};
use crate::failed::Failed;

/// What a run starts with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Plan {
    pub(super) state: State,
    /// The version current at the start.
    pub(super) state_version: u64,
}

impl Plan {
    /// Decides how the run begins. Nothing was sent yet.
    pub(super) fn make(
        args: &ImportArgs,
        input: &Identified,
        recorded: Option<State>,
        history: &History,
    ) -> Result<Self, Failed> {
        let wanted = match (args.fresh, args.service_kept) {
            (true, _) => Some(Issue::Newest),
            (false, true) => Some(Issue::ServiceKept),
            (false, false) => None,
        };
        let state = match recorded {
            Some(state) => {
                check_same(args, input, &state, history)?;
                // Spans that are open keep what they were sent with.
                State { issue: wanted.unwrap_or(state.issue), ..state }
            }
            None => begin(input, wanted, history)?,
        };
        Ok(Self { state, state_version: history.state_version })
    }

    /// Whether an earlier run has done everything. An input that can be read
    /// only once has to be read to know.
    pub(super) fn is_done(&self) -> bool {
        self.state.is_complete && self.state.input.is_some()
    }
}

fn begin(input: &Identified, wanted: Option<Issue>, history: &History) -> Result<State, Failed> {
    let issue = wanted.unwrap_or(Issue::Zero);
    let coverage_from = history.receipt_coverage_from;
    if issue == Issue::Zero && 1 < coverage_from {
        return Err(Failed::usage(format!(
            "no state file says whether {} was imported before, and {} has receipts only from \
             version {coverage_from} on, so it cannot tell either; nothing was sent",
            input.source.name(),
            history.name,
        ))
        .advise(
            "name the state file of the earlier run with --state, or say --fresh if you are \
             certain that there was none",
        ));
    }
    let import_id = match input.content {
        Some(content) => content.id,
        // What can be read only once cannot be hashed before it is sent.
        None => ImportId::new(drawn()),
    };
    Ok(State {
        history: history.name.clone(),
        history_id: history.history_id.to_string(),
        import_id,
        input: input.content.map(|it| InputNote { lines: it.lines, bytes: it.size_bytes }),
        issue,
        spans: Vec::new(),
        confirmed: Mark::default(),
        unknown_lines: std::collections::BTreeSet::new(),
        is_complete: false,
    })
}

fn drawn() -> [u8; 32] {
    let entropy = headwater_store::Entropy::from_os();
    let mut bytes = [0; 32];
    bytes[..16].copy_from_slice(&entropy.bytes16());
    bytes[16..].copy_from_slice(&entropy.bytes16());
    bytes
}

fn check_same(
    args: &ImportArgs,
    input: &Identified,
    state: &State,
    history: &History,
) -> Result<(), Failed> {
    let name = input.source.name();
    if state.history != history.name {
        return Err(Failed::usage(format!(
            "the state file is of an import into {}, not into {}",
            state.history, args.history
        ))
        .advise("name another file with --state"));
    }
    if state.history_id != history.history_id.as_str() {
        return Err(Failed::usage(format!(
            "the state file is of an import into history {}, which is gone; {} has id {} now",
            state.history_id, args.history, history.history_id
        ))
        .advise("name another file with --state to import into the new one"));
    }
    let is_same = match input.content {
        Some(content) => state.input.is_some() && state.import_id == content.id,
        None => state.input.is_none(),
    };
    if !is_same {
        return Err(Failed::usage(format!("the state file is of another input than {name}"))
            .advise("name another file with --state; every line is then a new operation"));
    }
    Ok(())
}

#[cfg(test)]
#[path = "plan_test.rs"]
mod tests;
