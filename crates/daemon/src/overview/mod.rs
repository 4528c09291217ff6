//! How a process stands, as plain values: what the status page shows, and
//! `/status.json` says.
//!
//! In here: the shape of these values. Writer and replica fill them from what
//! their drivers have left for it, without asking a driver or a store. Not in
//! here: how they are shown ([`crate::page`]).
//!
//! # Invariants
//!
//! - Field names are for programs: none ever changes its name or its unit.
//! - No value of any history is in here, and no key of a state.
//! - Every list has a limit, whatever the number of open histories.

mod head;
mod replica;
mod window;
mod writer;

use serde::{Deserialize, Serialize};

pub use self::head::{HeadOverview, PinOverview};
pub use self::replica::{
    DiskOverview, ReplicaHistory, ReplicaOverview, ReplicaSource, ReplicaTotals, WriterLink,
};
pub use self::window::Window;
pub use self::writer::{
    Incident, IncidentKind, NoticeSubscriber, WriterHistory, WriterOverview, WriterSource,
    WriterTotals,
};

/// Chunks in memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CacheOverview {
    /// What they take, in bytes.
    pub size_bytes: u64,
    /// What they may take, in bytes.
    pub size_bytes_max: u64,
    /// Chunks and index pages that were there when they were needed.
    pub hits: u64,
    /// Those that had to be fetched.
    pub misses: u64,
}
