//! `import --settle-unknown`: looks at the data, which is all that is left to do
//! about a line whose outcome is unknown.
//!
//! A line is settled where the history is as if the line had been applied: its
//! key holds its value, or that of a later line of the input. Whether it was the
//! import that put it there, nobody can say.
//!
//! Lines past the recorded progress are left alone: the next run sends them
//! again and records what it is told.
//!
//! # Invariants
//!
//! - The history is read, strongly, and never written.
//! - The state file is replaced once, after the whole input was found to be the
//!   one that was imported.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use futures::{StreamExt as _, TryStreamExt as _};
use headwater_client::{Client, Consistency, Entry, HistoryId, Session, Token};
use serde_json::{Map, Value, json};
use tokio_util::sync::WaitForCancellationFutureOwned;

use super::input::{Event, Identified};
use super::ledger::Mark;
use super::line::{self, Line};
use super::plan::Plan;
use super::state::{State, StateFile};
use crate::exit::Exit;
use crate::failed::Failed;
use crate::field;
use crate::output::Output;
use crate::shown::{Shown, shortened};

/// Keys read at a time.
const READS_MAX: usize = 16;

/// Characters of a value that are shown to people.
const VALUE_CHARS_MAX: usize = 60;

/// What is known of the unknown lines after the input was read.
#[derive(Debug, Default)]
struct Compared {
    /// Lines of each key that no line with an outcome follows, in order, with
    /// the hashes of their values.
    open: BTreeMap<Bytes, Vec<(u64, blake3::Hash)>>,
    settled: Vec<u64>,
}

/// One comparison.
#[derive(Debug)]
pub(super) struct Settling {
    session: Session,
    state: State,
    input: Identified,
    file: Arc<StateFile>,
    settled: Vec<u64>,
}

impl Settling {
    pub(super) fn new(client: &Client, plan: Plan, input: Identified, file: StateFile) -> Self {
        let Plan { state, state_version } = plan;
        // The id came from an answer, and was checked against the state's.
        let session = match HistoryId::new(state.history_id.clone()) {
            Ok(history_id) => {
                client.session_from(&*state.history, Token { history_id, state_version })
            }
            Err(_) => client.session(&*state.history),
        };
        Self { session, state, input, file: Arc::new(file), settled: Vec::new() }
    }

    /// Compares, records what is settled, and says what is not. Ends with the exit
    /// code of what is left.
    pub(super) async fn finish(
        mut self,
        signal: WaitForCancellationFutureOwned,
        output: &mut Output,
    ) -> Result<Exit, Failed> {
        tokio::select! {
            compared = self.compare(output) => compared?,
            () = signal => {
                return Err(Failed::new(Exit::Interrupted, "interrupted; nothing was settled"));
            }
        }
        self.save().await?;
        output.answer(|| self.to_json(), || self.to_text())?;
        Ok(if self.state.unknown_lines.is_empty() { Exit::Done } else { Exit::Unknown })
    }

    async fn compare(&mut self, output: &mut Output) -> Result<(), Failed> {
        let Compared { open, settled } = self.read_input().await?;
        self.settled = settled;
        let session = &self.session;
        let held = futures::stream::iter(open).map(async |(key, lines)| {
            let read = session.get(key.clone(), Consistency::Strong).await?;
            Ok::<_, Failed>((key, lines, read.value))
        });
        let mut held = std::pin::pin!(held.buffered(READS_MAX));
        while let Some((key, lines, entry)) = held.try_next().await? {
            let hash = entry.as_ref().map(|it| blake3::hash(&it.value));
            // The later lines of the key were to be applied on top of it.
            let settled = lines.iter().rposition(|it| Some(it.1) == hash).map_or(0, |it| it + 1);
            self.settled.extend(lines[..settled].iter().map(|it| it.0));
            for &(line, _) in &lines[settled..] {
                report(line, &key, entry.as_ref(), output)?;
            }
        }
        Ok(())
    }

    async fn save(&mut self) -> Result<(), Failed> {
        self.settled.sort_unstable();
        for line in &self.settled {
            self.state.unknown_lines.remove(line);
        }
        let (file, state) = (Arc::clone(&self.file), self.state.clone());
        let saved = tokio::task::spawn_blocking(move || file.save(&state)).await;
        saved.map_err(|_| Failed::new(Exit::Unexpected, "saving the state was cut off"))?
    }

    async fn read_input(&self) -> Result<Compared, Failed> {
        let mut events = self.input.source.clone().lines();
        let mut compared = Compared::default();
        let mut read = Mark::default();
        loop {
            match events.recv().await {
                Some(Event::Line(Line { number, bytes })) => {
                    read = Mark { line: number, chain: read.chain.with(&bytes) };
                    if number == self.state.confirmed.line && read != self.state.confirmed {
                        return Err(self.input.source.begins_otherwise());
                    }
                    if number <= self.state.confirmed.line {
                        self.take_line(number, &bytes, &mut compared)?;
                    }
                }
                Some(Event::End(id)) if self.input.content.is_some_and(|it| it.id != id) => {
                    return Err(self.input.source.changed());
                }
                Some(Event::End(_)) if read.line < self.state.confirmed.line => {
                    return Err(self.input.source.shorter());
                }
                Some(Event::End(_)) => return Ok(compared),
                Some(Event::Failed(failed)) => return Err(failed),
                None => return Err(Failed::new(Exit::Unexpected, "reading the input was cut off")),
            }
        }
    }

    fn take_line(&self, number: u64, bytes: &[u8], compared: &mut Compared) -> Result<(), Failed> {
        let entry = line::entry(number, bytes)
            .map_err(|error| self.input.source.malformed(number, &error))?;
        let Some((key, value)) = entry else { return Ok(()) };
        if self.state.unknown_lines.contains(&number) {
            compared.open.entry(key).or_default().push((number, blake3::hash(&value)));
        } else if let Some(overwritten) = compared.open.remove(&key) {
            // It was sent once those were answered, and it was accepted, or is
            // settled: whether they were applied makes no difference any more.
            compared.settled.extend(overwritten.into_iter().map(|it| it.0));
        }
        Ok(())
    }

    fn to_json(&self) -> Value {
        json!({
            "history": self.state.history,
            "historyId": self.state.history_id,
            "file": self.input.source.name(),
            "state": self.file.path().display().to_string(),
            "settledLines": self.settled,
            "unknownLines": self.state.unknown_lines,
            "complete": self.state.is_complete,
        })
    }

    fn to_text(&self) -> String {
        let (settled, left) = (self.settled.len(), self.state.unknown_lines.len());
        let mut text = format!("{settled} lines settled: the data are as they say, or later ones");
        if 0 < left {
            text = format!(
                "{text}\n{left} left unknown: where a line should hold, put its value with \
                 `headwater put`, and run this again"
            );
        }
        text
    }
}

/// Says what the key of a line holds that is not settled.
fn report(line: u64, key: &[u8], held: Option<&Entry>, output: &mut Output) -> Result<(), Failed> {
    output.answer(
        || {
            let mut object = Map::from_iter([("line".to_owned(), line.into())]);
            field::put(&mut object, "key", key);
            let held = held.map(|it| {
                let mut held = Map::new();
                field::put(&mut held, "value", &it.value);
                held.insert("version".to_owned(), it.version.into());
                Value::Object(held)
            });
            object.insert("held".to_owned(), held.into());
            Value::Object(object)
        },
        || match held {
            Some(it) => {
                let (value, version) = (shortened(&it.value, VALUE_CHARS_MAX), it.version);
                format!("line {line}: {} holds {value}, of version {version}", Shown(key))
            }
            None => format!("line {line}: {} is absent", Shown(key)),
        },
    )
}
