//! A replica: follows histories, and serves reads whose freshness it has
//! proved.
//!
//! In here: freshness checks and who shares them, catching up, which versions
//! are kept at hand, hints from writers, and `headwater.v1.ReadService`. Not in
//! here: how a view is loaded (`headwater-state`), and what a head may be
//! followed by (`headwater-core`).
//!
//! ```text
//! request -> Reader -> Histories -> Follower ---Ask--> driver -> store
//!                                      |                  |
//!            view <----- pinned -------+<----- proved ----+
//! ```
//!
//! # Architecture invariants
//!
//! - A strong read is served from a view that one check proved current, and
//!   that check began after the request arrived. While the store cannot be
//!   asked, strong reads fail; they are never served from what is at hand.
//! - A request keeps the view that it started with. A view never changes, and
//!   the views of a history never go back.
//! - A head that does not extend what was followed is never served, nor merged
//!   with it: not one of another history, nor one that went back or aside. That
//!   holds for as long as the process, also where nobody follows meanwhile.
//! - The store is asked, never written and never listed.
//! - What writers tell makes catching up earlier. Losing all of it changes no
//!   answer, and none of it is proof to a strong read.

mod changes;
mod config;
mod consistency;
pub mod daemon;
mod failure;
mod figures;
mod follower;
mod histories;
mod local;
mod metrics;
mod push;
mod reader;
mod ready;
mod recent;
mod replica;
mod scans;
mod service;
mod times;
mod watch;

pub use self::changes::ChangeRange;
pub use self::config::{ConfigError, ReplicaConfig};
pub use self::consistency::Consistency;
pub use self::failure::ReadFailure;
pub use self::follower::PushedHead;
pub use self::local::Pinned;
pub use self::reader::Reader;
pub use self::ready::ReadinessOptions;
pub use self::replica::{Replica, StartError, start, start_measured, start_over};
pub use self::service::{ReadRpc, WatchRpc};
pub use self::times::VersionAt;
pub use self::watch::{
    KeyFilter, SnapshotMode, Watch, WatchEnd, WatchEvent, WatchFailure, WatchFigures, WatchMessage,
    WatchOptions, WatchedChange, WatchedMutation, prefix_range,
};
pub use headwater_daemon::writer_line::{WriterLineError, WriterLineOptions};
