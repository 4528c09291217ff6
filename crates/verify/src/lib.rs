//! Checking what is stored of a history, and mending what can be mended.
//!
//! In here: the walk from a head over everything that it leads to, what is
//! found there, and putting a snapshot in the place of a damaged one. Not in
//! here: how findings are shown, and when anybody looks.
//!
//! ```text
//! head ─▶ snapshot ─▶ its parts         every object: there, length, hash
//!   │        ├─ chain ─▶ tail ─▶ head   every change: chain, receipts
//!   │        └─ entries = older snapshot + changes
//!   ├─▶ receipt pages = what the changes say
//!   ├─▶ archive ─▶ runs, older snapshots and their parts
//!   └─▶ pins
//! listing − all of that = unreached: garbage, young, released, foreign
//! ```
//!
//! # Architecture invariants
//!
//! - A missing object is damage only if a head leads to it that was read after
//!   it was missed: histories are written to while they are checked.
//! - What was not looked at is never called sound. A report names every part
//!   that was left out, and why.
//! - The walk only reads. A repair publishes one head, by compare-and-swap, and
//!   only what was just seen to be sound goes into it. Nothing is deleted.
//! - Memory does not grow with the state: a few parts of snapshots and runs at a
//!   time, what the changes after the last archived snapshot wrote, and about 20
//!   bytes for each object and covered operation.

mod finding;
mod histories;
mod metered;
mod options;
mod repair;
mod report;
mod trouble;
mod walk;

use std::sync::Arc;

use headwater_core::head::Lifecycle;
use headwater_core::id::HistoryName;
use headwater_store::{ReadError, Store};
use tokio_util::sync::CancellationToken;

pub use self::finding::{Finding, Kind, Role, Severity};
pub use self::metered::Ended;
use self::metered::Metered;
pub use self::options::{Budget, Options, Progress, Reading};
pub use self::repair::{Plan, PlanError, RepairError, Repaired, repair};
pub use self::report::{Part, PartState, Reason, Report, Tally, Unreached, Verdict};

/// Checks histories, all within one budget.
#[derive(Debug)]
pub struct Verifier {
    store: Arc<Metered>,
    options: Options,
}

/// Why there is nothing to check, or nothing can be said.
#[derive(Debug, thiserror::Error)]
pub enum VerifyError {
    /// There is no head.
    #[error("there is no history {history}")]
    Missing {
        /// The name.
        history: HistoryName,
    },
    /// It was deleted, or is being deleted: its objects are on their way out.
    #[error(
        "history {history} {}",
        match lifecycle {
            Lifecycle::Cleared => "was deleted",
            Lifecycle::Live | Lifecycle::Retiring =>
                "is being deleted: `headwater delete-history` goes on with it",
        }
    )]
    Retired {
        /// The name.
        history: HistoryName,
        /// How far it is.
        lifecycle: Lifecycle,
    },
    /// The head, or a folder of histories, cannot be read.
    #[error("the store cannot be read")]
    Store(#[from] ReadError),
    /// The budget ended before anything was read.
    #[error("ended before anything was checked: {0}")]
    Ended(Ended),
}

impl Verifier {
    /// Checks what is in `store`. The budget begins now; `stop` ends it early.
    pub fn new(
        store: Arc<dyn Store>,
        options: Options,
        progress: Progress,
        stop: CancellationToken,
    ) -> Self {
        let options = Options { fetches_max: options.fetches_max.max(1), ..options };
        Self { store: Arc::new(Metered::new(store, options.budget, progress, stop)), options }
    }

    /// Whether the budget has ended, and by what.
    pub fn ended(&self) -> Option<Ended> {
        self.store.ended()
    }
}
