//! What waits to be taken by the caller of one watch.
//!
//! The transport takes a message when its flow control has room for one. So a
//! caller that does not read leaves messages here, and the watcher waits: at
//! first as it is, then without what it holds of the feed, and at last no
//! longer.

use std::time::Duration;

use tokio::sync::mpsc::{self, OwnedPermit};
use tokio::time::timeout;

use super::message::{WatchEnd, WatchFailure, WatchMessage};

/// Messages that wait at a time.
const MESSAGES_MAX: usize = 4;
/// After so long without room, what could be read again is let go of.
const RELEASE_AFTER: Duration = Duration::from_secs(1);

/// What the caller is given.
pub(super) type Item = Result<WatchMessage, WatchEnd>;

pub(super) struct Outbox {
    messages: mpsc::Sender<Item>,
    /// Room for the end, kept from the beginning: it can always be said.
    end: OwnedPermit<Item>,
    stall_max: Duration,
}

impl Outbox {
    pub(super) fn new(stall_max: Duration) -> (Self, mpsc::Receiver<Item>) {
        let (messages, taken) = mpsc::channel(MESSAGES_MAX + 1);
        #[expect(clippy::expect_used, reason = "a new channel has room")]
        let end = messages.clone().try_reserve_owned().expect("a new channel has room");
        (Self { messages, end, stall_max }, taken)
    }

    /// Resolves when the caller has gone away.
    pub(super) fn gone(&self) -> impl Future<Output = ()> + Send + use<> {
        let messages = self.messages.clone();
        async move { messages.closed().await }
    }

    /// Puts a message in, once there is room. `release` lets go of what can be
    /// had again, when that takes long.
    ///
    /// Cancel safe: a message that was not put in will not be sent.
    pub(super) async fn send(
        &self,
        message: WatchMessage,
        release: impl FnOnce(),
    ) -> Result<(), WatchFailure> {
        let patience = RELEASE_AFTER.min(self.stall_max);
        let mut room = timeout(patience, self.messages.reserve()).await;
        if room.is_err() {
            release();
            room = timeout(self.stall_max.saturating_sub(patience), self.messages.reserve()).await;
        }
        match room {
            Ok(Ok(room)) => {
                room.send(Ok(message));
                Ok(())
            }
            // The caller has gone away: whoever waits for that ends the watch.
            Ok(Err(_)) => std::future::pending().await,
            Err(_) => Err(WatchFailure::Slow { stalled: self.stall_max }),
        }
    }

    /// Says how the watch ended, behind everything that was put in.
    pub(super) fn end(self, end: WatchEnd) {
        self.end.send(Err(end));
    }
}
