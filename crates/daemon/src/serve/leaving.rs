//! When a stream has to end because its connection does.

use http::Extensions;
use tokio_util::sync::CancellationToken;

/// Cancelled once a connection takes no more calls: the process drains, or the
/// connection is old enough. A stream then says where to go on, and ends.
///
/// It is among the extensions of every request.
#[derive(Clone, Debug)]
pub struct Leaving(CancellationToken);

impl Leaving {
    pub(super) fn new(token: CancellationToken) -> Self {
        Self(token)
    }

    /// The one of this request; where it came by no connection of ours, one
    /// that is never cancelled.
    pub fn of(extensions: &Extensions) -> Self {
        extensions.get().cloned().unwrap_or_else(|| Self(CancellationToken::new()))
    }

    /// The token of this request's connection, which is cancelled with its
    /// process too; `process` where it came by no connection of ours.
    pub fn or(extensions: &Extensions, process: &CancellationToken) -> CancellationToken {
        extensions.get::<Self>().map_or_else(|| process.clone(), |it| it.0.clone())
    }

    /// As a token.
    pub fn token(&self) -> CancellationToken {
        self.0.clone()
    }
}
