//! A deterministic simulator: whole deployments in one thread, under a seed.
//!
//! In here: a bucket, a network and processes that die, all simulated; clients;
//! and the checks of everything that is published and answered. Not in here:
//! what is checked. Writers, replicas, decorators, state and maintenance are
//! the real ones, over tokio's paused clock.
//!
//! ```text
//! clients --- network ---> writers, replicas --- links ---> bucket
//!    |                     (real, die and                      |
//!    |                      start again)                       |
//!    +----- what was told -----> truth <----- what is so ------+
//! ```
//!
//! # Architecture invariants
//!
//! - A seed decides everything. Two runs of one seed have the same trace, byte
//!   for byte: one thread, virtual time, draws by seed and label, and nothing
//!   that iterates in an order of chance.
//! - A check needs nothing but what the bucket took and what callers were told.
//! - What was sent belongs to the network. It arrives, or not, whatever becomes
//!   of its sender.

mod bucket;
mod chaos;
mod client;
mod dice;
mod disk;
mod handing;
pub mod kept;
mod link;
mod model;
mod plan;
#[cfg(feature = "planted")]
pub mod planted;
mod process;
mod reading;
pub mod real;
mod requests;
mod run;
mod scenarios;
mod steward;
mod totals;
mod trace;
mod truth;
mod watching;
mod weather;
mod world;

pub use self::plan::{Kind, Plan};
pub use self::run::{Report, run};
pub use self::scenarios::Scenario;
pub use self::totals::Totals;
pub use self::trace::Keep;
pub use self::truth::Tally;
