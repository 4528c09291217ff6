//! Following what changes: every version after one, whole and in order, each
//! once, over as many connections as it takes.
//!
//! ```text
//! replicas --parts--> versions put together --> events
//!    ^                       |
//!    +--- after the last whole version: any replica goes on from there
//! ```
//!
//! # Invariants
//!
//! - The position moves only with what was given to the caller: a connection
//!   that breaks costs nothing but the parts of one version.
//! - A message that would go back, or repeat a version, is an error, and is not
//!   given.

mod driver;
mod event;

use std::time::Duration;

use futures::Stream;

use self::driver::Driver;
pub use self::event::{SnapshotMode, WatchEvent, WatchedKind, WatchedMutation};
use crate::id::Token;
use crate::range::KeyRange;
use crate::read::ReadError;
use crate::session::Session;

/// What is watched, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WatchOptions {
    /// The last version that the caller knows: the first that is told is the
    /// next. So the version of a read is what to watch from, and 0 is the
    /// beginning. None: from now.
    pub after: Option<u64>,
    /// Which keys: at most 64 ranges; none: every key.
    pub ranges: Vec<KeyRange>,
    /// Tell also what was there before each mutation.
    pub previous_values: bool,
    /// When nothing was told for so long, progress is: 100 ms to an hour. A
    /// connection that is silent for twice that and 5 seconds is given up.
    pub progress_interval: Duration,
    /// Whether the state may, or shall, be told.
    pub snapshot: SnapshotMode,
    /// Most bytes of keys and values of one version, with what was there before.
    /// A version is put together in memory.
    pub version_bytes_max: usize,
}

impl Default for WatchOptions {
    /// From now, every key, progress after 10 seconds, and 64 MiB for one
    /// version: a version has about 4 MiB without previous values.
    fn default() -> Self {
        Self {
            after: None,
            ranges: Vec::new(),
            previous_values: false,
            progress_interval: Duration::from_secs(10),
            snapshot: SnapshotMode::default(),
            version_bytes_max: 64 << 20,
        }
    }
}

/// Why a watch has nothing to tell.
#[derive(Clone, Debug, thiserror::Error)]
pub enum WatchError {
    /// No replica tells what is wanted. [`ReadError::VersionRetired`]: the
    /// versions after the position are gone; its failure has the oldest version
    /// to watch from. [`ReadError::Expired`]: no replica was reached for the
    /// client's deadline; ask again, and it goes on trying.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// A version is larger than [`WatchOptions::version_bytes_max`].
    #[error("version {version} has more than {bytes_max} bytes")]
    VersionTooLarge {
        /// The version.
        version: u64,
        /// The limit.
        bytes_max: usize,
    },
}

/// A watch under way.
#[must_use = "a watch tells nothing until it is asked"]
pub struct Watch {
    driver: Driver,
}

impl Session {
    /// Begins a watch. Nothing is asked of a replica before the first event is.
    ///
    /// ```no_run
    /// use headwater_client::{Session, WatchEvent, WatchOptions};
    ///
    /// # async fn example(session: Session) -> Result<(), headwater_client::WatchError> {
    /// let mut watch = session.watch(WatchOptions { after: Some(0), ..WatchOptions::default() });
    /// loop {
    ///     if let WatchEvent::Version { version, mutations } = watch.next().await? {
    ///         println!("version {version}: {mutations:?}");
    ///     }
    /// }
    /// # }
    /// ```
    pub fn watch(&self, options: WatchOptions) -> Watch {
        Watch { driver: Driver::new(self.clone(), options) }
    }
}

impl Watch {
    /// What comes next. Waits for it, over as many connections as it takes.
    ///
    /// Cancel safe: what was not given is given by the next call.
    ///
    /// # Errors
    ///
    /// [`WatchError`]. The position stays: asking again tries again from there.
    pub async fn next(&mut self) -> Result<WatchEvent, WatchError> {
        self.driver.next().await
    }

    /// Where another watch would go on: everything up to this version was given
    /// to the caller, or is not asked for. None before a watch from now has
    /// begun, and before a state that was wanted first is complete.
    pub fn position(&self) -> Option<Token> {
        self.driver.position()
    }

    /// The events one by one. Ends after the first error.
    pub fn into_stream(self) -> impl Stream<Item = Result<WatchEvent, WatchError>> + Send {
        futures::stream::unfold(Some(self), |watch| async {
            let mut watch = watch?;
            let event = watch.next().await;
            let rest = event.is_ok().then_some(watch);
            Some((event, rest))
        })
    }
}

impl std::fmt::Debug for Watch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Watch").field("position", &self.position()).finish_non_exhaustive()
    }
}
