//! The audit log: one line for each administrative call, whatever became of it.
//!
//! Lines have the target [`TARGET`] and these fields: `what`, `history`, `source`
//! (of a fork: the history that it is made from), `caller`, `peer`, `outcome` (a reason of [`headwater_proto::reason`], a gRPC
//! code, `OK`, or `CANCELLED` for a caller that did not wait). Never a token, a
//! key or a value.

use std::future::Future;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;
use tonic::{Code, Request, Status};
use tonic_types::StatusExt as _;

use crate::auth::Caller;

/// The target of every line.
pub const TARGET: &str = "headwater::audit";

/// Most bytes that are shown of the name of a history. A valid one is 256 at
/// most; what is asked for may be anything.
const NAME_LEN_BYTES_MAX: usize = 256;

/// A call that will be one line of the log. One that is dropped before
/// [`Record::end`] was cancelled, and may have been carried out.
#[derive(Debug)]
pub struct Record {
    what: &'static str,
    history: String,
    source: Option<String>,
    caller: Option<Arc<Caller>>,
    is_told: bool,
}

impl Record {
    /// Begins to record `what` its caller does to `history`.
    pub fn begin<T>(request: &Request<T>, what: &'static str, history: &str) -> Self {
        let caller = Caller::of(request);
        Self { what, history: shown(history), source: None, caller, is_told: false }
    }

    /// The history is made from `source`.
    #[must_use]
    pub fn from_source(mut self, source: &str) -> Self {
        self.source = Some(shown(source));
        self
    }

    /// Waits for the call, and records how it ended.
    ///
    /// # Errors
    ///
    /// Those of the call.
    pub async fn end<T>(
        mut self,
        call: impl Future<Output = Result<T, Status>>,
    ) -> Result<T, Status> {
        let outcome = call.await;
        match &outcome {
            Ok(_) => self.tell("OK"),
            Err(status) => self.tell(&word(status)),
        }
        outcome
    }

    fn tell(&mut self, outcome: &str) {
        self.is_told = true;
        let caller = self.caller.as_ref();
        let peer = caller.and_then(|it| it.peer).map(|it| it.to_string());
        let Self { what, history, source, .. } = self;
        tracing::info!(
            target: TARGET,
            what,
            history,
            source = source.as_deref(),
            caller = caller.map_or("-", |it| &it.name),
            peer = peer.as_deref().unwrap_or("-"),
            outcome,
            "administrative call"
        );
    }
}

impl Drop for Record {
    fn drop(&mut self) {
        if !self.is_told {
            self.tell("CANCELLED");
        }
    }
}

/// A name as a line has it. Before it is checked it may be as long as a message,
/// and hold what would look like a line of its own.
fn shown(name: &str) -> String {
    let start = name.char_indices().map(|(at, it)| at + it.len_utf8());
    let end = start.take_while(|&it| it <= NAME_LEN_BYTES_MAX).last().unwrap_or(0);
    name[..end].escape_debug().to_string()
}

/// Records a call that was refused before it reached a service, and so before
/// it was known which history it was about.
pub(crate) fn refused(
    path: &'static str,
    caller: &str,
    peer: Option<SocketAddr>,
    refused: &Status,
) {
    let what = path.rsplit('/').next().unwrap_or(path);
    let peer = peer.map_or_else(|| "-".to_owned(), |it| it.to_string());
    let outcome = word(refused);
    tracing::info!(target: TARGET, what, history = "-", caller, peer, outcome, "administrative call");
}

/// Records what was done to the process and not to a history, such as a change
/// of what it logs. `outcome` is a word.
pub fn process(
    what: &'static str,
    detail: &str,
    caller: &str,
    peer: Option<SocketAddr>,
    outcome: &str,
) {
    let detail = detail.escape_debug().to_string();
    let peer = peer.map_or_else(|| "-".to_owned(), |it| it.to_string());
    tracing::info!(target: TARGET, what, detail, caller, peer, outcome, "administrative call");
}

/// Least time between two lines about calls that were refused before they
/// reached anything: whoever floods a port does not flood the log.
const REFUSED_LINE_INTERVAL: Duration = Duration::from_millis(100);

/// Keeps lines about refused calls apart.
#[derive(Debug, Default)]
pub(crate) struct Sparing(Mutex<Option<Instant>>);

impl Sparing {
    /// Whether there may be one now.
    pub(crate) fn is_due(&self) -> bool {
        let now = Instant::now();
        let mut told = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if told.is_some_and(|it| now < it + REFUSED_LINE_INTERVAL) {
            return false;
        }
        *told = Some(now);
        true
    }
}

fn word(status: &Status) -> String {
    let details = status.get_error_details();
    let named = details.error_info().map(|it| it.reason.clone());
    named.unwrap_or_else(|| code_word(status.code()))
}

fn code_word(code: Code) -> String {
    format!("{code:?}").to_uppercase()
}

#[cfg(test)]
#[path = "audit_test.rs"]
mod tests;
