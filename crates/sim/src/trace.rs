//! What happened in a run, in order.
//!
//! Every event has a number, and the numbers are the order: one thread runs
//! everything, so what has the lower number came first in real time too. The
//! text of events is kept or hashed only where somebody wants it.

use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::time::Instant;

/// What is kept of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Keep {
    /// The count of events.
    #[default]
    Count,
    /// A hash over all of them.
    Hash,
    /// All of them, as text.
    Text,
    /// As `Text`, printed as they come.
    Print,
}

#[derive(Debug)]
pub(crate) struct Trace {
    keep: Keep,
    began: Instant,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    count: u64,
    hasher: blake3::Hasher,
    text: String,
}

impl Trace {
    pub(crate) fn new(keep: Keep) -> Self {
        Self { keep, began: Instant::now(), state: Mutex::default() }
    }

    /// The number of the last event: "now" in the order of the run.
    pub(crate) fn now(&self) -> u64 {
        self.state().count
    }

    /// Takes down an event and returns its number.
    #[expect(clippy::print_stdout, reason = "the trace was asked for")]
    pub(crate) fn event(&self, what: fmt::Arguments<'_>) -> u64 {
        let mut state = self.state();
        state.count += 1;
        let count = state.count;
        if self.keep == Keep::Count {
            return count;
        }
        let at_us = self.began.elapsed().as_micros();
        let line = format!("{count} {}.{:06} {what}\n", at_us / 1_000_000, at_us % 1_000_000);
        match self.keep {
            Keep::Count => (),
            Keep::Hash => {
                state.hasher.update(line.as_bytes());
            }
            Keep::Text => state.text.push_str(&line),
            Keep::Print => print!("{line}"),
        }
        count
    }

    /// The text so far.
    pub(crate) fn text(&self) -> String {
        self.state().text.clone()
    }

    /// The hash so far, in hexadecimal digits.
    pub(crate) fn digest(&self) -> String {
        self.state().hasher.finalize().to_hex()[..16].to_owned()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
