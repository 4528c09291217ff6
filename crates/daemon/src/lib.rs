//! What every Headwater process needs around its services.
//!
//! In here: [`daemon`] and [`process`] (one way from a command line to the end
//! of a process), [`config`] (where settings come from), [`serve`] (listening,
//! connections, draining), [`health`] and [`admin`] (whether it is ready, and
//! the second port that says so), [`logs`], [`telemetry`], [`trace`] and [`metrics`] (logs,
//! traces, and what is measured), [`prices`], [`signals`], [`status`] (errors
//! as every service says them), [`deadline`] (how long a request may take),
//! [`seldom`] (what a log is not to be filled with),
//! [`tls`], [`auth`], [`limit`] and [`audit`] (who calls, what they may do, how
//! much of it, and what is written down; [`security`] puts them together),
//! [`writer_line`] (connections that a process makes to writers), [`options`] that
//! the binaries share, [`keys`] and [`trust`] among them. Not in here: any service of ours, and any decision of the protocol.

pub mod admin;
pub mod audit;
pub mod auth;
pub mod config;
pub mod daemon;
pub mod deadline;
pub mod health;
pub mod keys;
pub mod limit;
pub mod logs;
pub mod metrics;
pub mod options;
pub mod overview;
pub mod page;
pub mod prices;
pub mod process;
pub mod security;
pub mod seldom;
pub mod serve;
pub mod signals;
pub mod status;
pub mod tally;
pub mod telemetry;
pub mod tls;
pub mod trace;
pub mod trust;
pub mod usage;
pub mod writer_line;
