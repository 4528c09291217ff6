//! Operations of a contended history, handed to the writer that publishes.
//!
//! ```text
//! caller -> writer A -- Histories::send_for
//!                          | quiet                    | contended
//!                          v                          v
//!                       driver                     outgoing --Line--> writer B: incoming -> driver
//!                          ^      without an outcome  |
//!                          +--------------------------+
//! ```
//!
//! In here: when it is done ([`route`]), how it is done ([`outgoing`],
//! [`incoming`]), and the way there ([`Line`], over gRPC in [`line`]). Not in
//! here: any decision about an operation. The writer that takes one decides it
//! as its own, and whichever way it goes, its id decides that it is applied
//! once. `docs/decisions/forwarding.md` has the argument.
//!
//! # Invariants
//!
//! - An operation that was handed over is never handed on.
//! - A caller is told an outcome of another writer, and no error of one: without
//!   an outcome its own writer decides.
//! - What another writer may still apply is never reported as not applied, and
//!   not as rejected either.

mod hosts;
mod incoming;
mod line;
mod outgoing;
mod repeats;
mod route;
mod wire;

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use headwater_core::id::{HistoryId, HistoryName, WriterAddress};
use headwater_core::operation::Operation;
use headwater_core::publish::Answer;
use headwater_store::Entropy;

pub(crate) use self::hosts::Hosts;
pub(crate) use self::incoming::{ForwardRpc, take};
pub use self::line::GrpcLine;
pub(crate) use self::outgoing::{Outbound, Outgoing, OutgoingParts};
pub(crate) use self::repeats::Repeats;
pub(crate) use self::route::{Route, Rules};

/// Operations in one message at most.
pub(crate) const OPERATIONS_MAX: usize = 1_024;
/// Bytes of operations in one message, unless a single one has more: half of
/// what a message may have, and the most that one operation may have.
pub(crate) const BYTES_MAX: usize = 4 << 20;

/// The way to other writers. Over gRPC it is [`GrpcLine`].
pub trait Line: Debug + Send + Sync {
    /// Hands operations to the writer at `address`, and waits for what became of
    /// them. A dropped call may have arrived.
    fn hand(
        &self,
        address: WriterAddress,
        handed: Handed,
    ) -> BoxFuture<'static, Result<Taken, LineError>>;
}

/// Operations on their way to another writer: one message.
#[derive(Clone, Debug)]
pub struct Handed {
    /// Their history.
    pub history: HistoryName,
    /// The id that it has where they come from.
    pub history_id: HistoryId,
    /// Who hands them over, as it is named in heads.
    pub publisher_id: String,
    /// What hands over the operations of this history, in this life of that
    /// process.
    pub life: [u8; 16],
    /// The message, among those of that life. Never used twice.
    pub number: u64,
    /// They.
    pub operations: Vec<HandedOperation>,
    /// How long all of it is waited for.
    pub patience: Duration,
    /// The trace that the first one of them is part of, if any.
    pub traceparent: Option<String>,
}

/// One of them.
#[derive(Clone, Debug)]
pub struct HandedOperation {
    /// It.
    pub operation: Operation,
    /// How long its caller waits for an answer.
    pub time: Duration,
}

/// What a writer says to operations that it took.
#[derive(Clone, Debug)]
pub struct Taken {
    /// What became of each, in their order.
    pub verdicts: Vec<Verdict>,
    /// Whether the writer had operations of anybody else lately, or saw heads of
    /// somebody else.
    pub is_shared: bool,
    /// To whom it hands operations itself, if it does.
    pub instead: Option<WriterAddress>,
}

/// What became of one operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Accepted, rejected or unknown.
    Outcome(Answer),
    /// No outcome, and it was not applied.
    NotApplied,
    /// No outcome, and it may have been applied.
    MaybeApplied,
}

/// Why nothing was heard.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LineError {
    /// Nothing was sent.
    #[error("the writer cannot be reached")]
    NotTaken,
    /// It may have arrived. A refusal too: a copy of the message may have been
    /// taken before another one was refused.
    #[error("the writer did not answer")]
    NoAnswer,
}

/// What every history of a process has for it.
#[derive(Clone, Debug)]
pub(crate) struct Forwarding {
    pub(crate) line: Arc<dyn Line>,
    entropy: Entropy,
}

impl Forwarding {
    pub(crate) fn new(line: Arc<dyn Line>, entropy: Entropy) -> Self {
        Self { line, entropy }
    }
}
