//! Saying a thing at once, and again once a minute at most while it goes on.
//!
//! For what may happen with each call: a store that is down, or refuses the
//! process, would fill the log with one line.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use headwater_store::ReadError;
use tokio::time::Instant;

use crate::telemetry::with_causes;

/// Least time between two lines of one kind.
const INTERVAL: Duration = Duration::from_secs(60);
/// Kinds that one place tells apart; more are one.
const KINDS_MAX: usize = 16;
const OTHER: &str = "other";

/// What one place in the program has said lately.
#[derive(Debug, Default)]
pub struct Seldom {
    said: Mutex<BTreeMap<&'static str, Said>>,
}

#[derive(Debug)]
struct Said {
    at: Instant,
    /// How often it was left out since.
    left_out: u64,
}

impl Seldom {
    /// Nothing was said yet.
    pub const fn new() -> Self {
        Self { said: Mutex::new(BTreeMap::new()) }
    }

    /// Whether `kind` is to be said now, and how often it was left out since the
    /// last time. `None`: it was said less than a minute ago, and counts as left
    /// out.
    pub fn is_due(&self, kind: &'static str) -> Option<u64> {
        let now = Instant::now();
        // Whole between its statements, so a panic elsewhere left it so.
        let mut said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        let is_known = said.contains_key(kind) || said.len() < KINDS_MAX;
        let kind = if is_known { kind } else { OTHER };
        match said.get_mut(kind) {
            Some(it) if now.saturating_duration_since(it.at) < INTERVAL => {
                it.left_out += 1;
                None
            }
            found => {
                let left_out = found.map_or(0, |it| it.left_out);
                said.insert(kind, Said { at: now, left_out: 0 });
                Some(left_out)
            }
        }
    }
}

/// Logs that a read of the store failed: each kind of failure at once, and again
/// once a minute while it goes on. Callers are told in fixed words; this is for
/// the operator.
pub fn store_call_failed(error: &ReadError) {
    static SAID: Seldom = Seldom::new();
    let kind = match error {
        ReadError::Unavailable { .. } => "no answer",
        ReadError::Denied { .. } => "denied",
        ReadError::Missing { .. } => "missing",
        ReadError::Sealed { .. } => "sealed",
    };
    let error = with_causes(error);
    if let Some(left_out) = SAID.is_due(kind) {
        tracing::warn!(error, left_out, "a store call failed");
    } else {
        tracing::debug!(error, "a store call failed");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn what_goes_on_is_said_once_a_minute_and_what_is_new_at_once() {
        let seldom = Seldom::new();
        assert_eq!(seldom.is_due("denied"), Some(0));
        assert_eq!(seldom.is_due("denied"), None);
        assert_eq!(seldom.is_due("no answer"), Some(0));
        // Two that go on side by side do not make each other new.
        assert_eq!(seldom.is_due("denied"), None);

        tokio::time::advance(INTERVAL).await;
        assert_eq!(seldom.is_due("denied"), Some(2));
        assert_eq!(seldom.is_due("denied"), None);
    }

    #[tokio::test(start_paused = true)]
    async fn kinds_beyond_those_that_are_told_apart_are_one() {
        let seldom = Seldom::new();
        let kinds: Vec<&'static str> = (0..2 * KINDS_MAX).map(|n| &*n.to_string().leak()).collect();
        let said = kinds.iter().filter(|it| seldom.is_due(it).is_some()).count();
        assert_eq!(said, KINDS_MAX + 1);
        assert!(seldom.said.lock().unwrap().len() <= KINDS_MAX + 1);
    }
}
