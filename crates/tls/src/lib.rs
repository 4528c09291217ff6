//! What both ends of a connection show each other: certificates and bearer
//! tokens, from files that are read again when they change.
//!
//! In here: [`Acceptor`], the server's side of TLS; [`Connector`], the
//! client's; [`BearerFile`], the token that a client shows. Not in here: what a
//! certificate or a token allows; that is the servers' business.
//!
//! ```text
//! files --(content changed)--> configuration --> new connections
//! ```
//!
//! # Architecture invariants
//!
//! - A file that cannot be used never takes the place of one that could: the
//!   old one stays in use, and an error is logged once for each bad content.
//! - Files are compared by content. Kubernetes replaces mounted secrets by
//!   moving a symbolic link, after which times and inodes say nothing.
//! - Connections that exist keep what they were made with; a new one gets what
//!   is newest.
//! - No secret is in an error, a log line or a `Debug` text.

mod acceptor;
mod bearer;
mod connector;
mod files;
mod stale;
mod validity;

pub use self::acceptor::{Accepted, Acceptor, ClientCertificates, ServerFiles};
pub use self::bearer::{BearerError, BearerFile};
pub use self::connector::{ClientFiles, ConnectError, Connected, Connector};
pub use self::files::{Reloaded, TlsError};
pub use self::stale::StaleSince;
pub use self::validity::Validity;
