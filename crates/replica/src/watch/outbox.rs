//! What waits to be taken by the caller of one watch.
//!
//! The transport takes a message when its flow control has room for one. So a
//! caller that does not read leaves messages here, and the watcher waits: at
//! first as it is, then without what it holds of the feed, and at last no
//! longer. Where all watches of the process hold too much, the one whose caller
//! is the slowest is cut: what waits for it is dropped, and it is told to go on
//! behind what it has taken.

use std::collections::VecDeque;
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use headwater_core::version::StateVersion;
use headwater_state::MemoryPart;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, timeout};

use super::budget::Budget;
use super::message::{WatchEnd, WatchFailure, WatchMessage};
use crate::follower::lock;

/// Messages that wait at a time.
const MESSAGES_MAX: usize = 4;
/// After so long without room, what could be read again is let go of; and a
/// caller that has taken nothing for so long may be ended for the sake of others.
const RELEASE_AFTER: Duration = Duration::from_secs(1);
/// How often it is looked for room while the process has none.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// What the caller is given.
pub(super) type Item = Result<WatchMessage, WatchEnd>;

/// The watcher's side.
pub(super) struct Outbox {
    queue: Arc<Queue>,
    budget: Budget,
    number: u64,
    stall_max: Duration,
}

/// The caller's side.
pub(super) struct Inbox {
    queue: Arc<Queue>,
    budget: Budget,
}

/// Between the two.
#[derive(Debug)]
pub(super) struct Queue {
    state: Mutex<State>,
    /// The caller took something, or went away; or the queue was cut.
    changed: Notify,
}

#[derive(Debug)]
struct State {
    messages: VecDeque<WatchMessage>,
    held: MemoryPart,
    /// Since when the caller has taken nothing of what there is.
    since: Instant,
    /// Behind everything that the caller has taken.
    taken_after: StateVersion,
    end: Option<WatchEnd>,
    is_cut: bool,
    /// Nobody puts anything in any more.
    is_closed: bool,
    /// The caller has gone away.
    is_left: bool,
    waker: Option<Waker>,
}

/// Why a message cannot be put in yet, or ever.
enum Room {
    Free,
    Full,
    /// The queue has room, and the process has none.
    Short,
    Left,
    Cut,
}

impl Outbox {
    /// Of a watch that begins behind version `after`.
    pub(super) fn new(after: StateVersion, stall_max: Duration, budget: &Budget) -> (Self, Inbox) {
        let state = State {
            messages: VecDeque::new(),
            held: budget.queue_part(),
            since: Instant::now(),
            taken_after: after,
            end: None,
            is_cut: false,
            is_closed: false,
            is_left: false,
            waker: None,
        };
        let queue = Arc::new(Queue { state: Mutex::new(state), changed: Notify::new() });
        let number = budget.add(&queue);
        let inbox = Inbox { queue: Arc::clone(&queue), budget: budget.clone() };
        (Self { queue, budget: budget.clone(), number, stall_max }, inbox)
    }

    /// Resolves when the caller has gone away.
    pub(super) fn gone(&self) -> impl Future<Output = ()> + Send + use<> {
        let queue = Arc::clone(&self.queue);
        async move {
            loop {
                let mut changed = pin!(queue.changed.notified());
                changed.as_mut().enable();
                if lock(&queue.state).is_left {
                    return;
                }
                changed.await;
            }
        }
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
        let mut message = Some(message);
        if let Ok(put) = timeout(patience, self.put(&mut message)).await {
            return put;
        }
        release();
        let rest = self.stall_max.saturating_sub(patience);
        let put = timeout(rest, self.put(&mut message)).await;
        put.unwrap_or(Err(WatchFailure::Slow { stalled: self.stall_max }))
    }

    async fn put(&self, message: &mut Option<WatchMessage>) -> Result<(), WatchFailure> {
        loop {
            let mut changed = pin!(self.queue.changed.notified());
            changed.as_mut().enable();
            let mut freed = pin!(self.budget.freed());
            freed.as_mut().enable();
            match self.queue.push(message, &self.budget) {
                Room::Free => return Ok(()),
                // Whoever waits for that ends the watch.
                Room::Left => return std::future::pending().await,
                Room::Cut => return Err(WatchFailure::Slow { stalled: RELEASE_AFTER }),
                Room::Full => changed.await,
                Room::Short => {
                    self.budget.cut_slowest(RELEASE_AFTER);
                    tokio::select! {
                        () = changed => {}
                        () = freed => {}
                        () = sleep(LOOK_EVERY) => {}
                    }
                }
            }
        }
    }

    /// Says how the watch ended, behind everything that was put in.
    pub(super) fn end(self, end: WatchEnd) {
        let mut state = lock(&self.queue.state);
        // One that was cut has been told where to go on already.
        if !state.is_cut {
            state.end = Some(end);
        }
    }
}

impl Drop for Outbox {
    fn drop(&mut self) {
        self.budget.forget(self.number);
        let mut state = lock(&self.queue.state);
        state.is_closed = true;
        state.wake();
    }
}

impl Queue {
    fn push(&self, message: &mut Option<WatchMessage>, budget: &Budget) -> Room {
        let mut state = lock(&self.state);
        if state.is_left {
            return Room::Left;
        }
        if state.is_cut {
            return Room::Cut;
        }
        if MESSAGES_MAX <= state.messages.len() {
            return Room::Full;
        }
        let size_bytes = message.as_ref().map_or(0, WatchMessage::size_bytes);
        if !budget.has_room(size_bytes) {
            return Room::Short;
        }
        if let Some(message) = message.take() {
            if state.messages.is_empty() {
                state.since = Instant::now();
            }
            state.messages.push_back(message);
            let held = state.held.size_bytes() + size_bytes;
            state.held.set(held);
            state.wake();
        }
        Room::Free
    }

    /// Since when its caller has taken nothing; `None` where nothing waits.
    pub(super) fn waits_since(&self) -> Option<Instant> {
        let state = lock(&self.state);
        (!state.messages.is_empty()).then_some(state.since)
    }

    /// Drops what waits, and ends the watch behind what was taken.
    pub(super) fn cut(&self, stalled: Duration) {
        let mut state = lock(&self.state);
        if state.is_cut || state.messages.is_empty() {
            return;
        }
        state.messages.clear();
        state.held.set(0);
        state.is_cut = true;
        let resume_after = state.taken_after;
        state.end = Some(WatchEnd { why: WatchFailure::Slow { stalled }, resume_after });
        state.wake();
        drop(state);
        self.changed.notify_waiters();
    }
}

impl State {
    fn wake(&mut self) {
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }

    fn next(&mut self) -> Option<WatchMessage> {
        let message = self.messages.pop_front()?;
        let held = self.held.size_bytes().saturating_sub(message.size_bytes());
        self.held.set(held);
        self.since = Instant::now();
        self.taken_after = message.resume_after;
        Some(message)
    }
}

impl Inbox {
    pub(super) fn poll(&self, cx: &mut Context<'_>) -> Poll<Option<Item>> {
        let mut state = lock(&self.queue.state);
        if let Some(message) = state.next() {
            drop(state);
            self.queue.changed.notify_waiters();
            self.budget.tell_freed();
            return Poll::Ready(Some(Ok(message)));
        }
        if let Some(end) = state.end.take() {
            return Poll::Ready(Some(Err(end)));
        }
        if state.is_closed || state.is_cut {
            return Poll::Ready(None);
        }
        state.waker = Some(cx.waker().clone());
        Poll::Pending
    }
}

impl Drop for Inbox {
    fn drop(&mut self) {
        let mut state = lock(&self.queue.state);
        state.is_left = true;
        state.messages.clear();
        state.held.set(0);
        drop(state);
        self.queue.changed.notify_waiters();
        self.budget.tell_freed();
    }
}
