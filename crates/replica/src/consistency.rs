//! How fresh a read has to be.

use std::time::Duration;

use headwater_core::version::StateVersion;

/// What a read may be served from (PROTOCOL 6).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Consistency {
    /// A view that one freshness check has proved current, which began after
    /// the request arrived.
    #[default]
    Strong,
    /// A view of this version or a later one. Waits for it.
    AtLeast(StateVersion),
    /// The view of this very version.
    Exact(StateVersion),
    /// A view whose last successful check began no longer ago than this, by the
    /// local monotonic clock. Otherwise one check is made.
    MaxStaleness(Duration),
    /// Whatever is at hand.
    Any,
}
