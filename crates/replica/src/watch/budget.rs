//! What all watches of a process hold together: changes that their feeds keep,
//! and messages that wait for their callers.
//!
//! Feeds have at most half of it. Past that they keep nothing more, which costs
//! reads of the store. So messages always have the other half, and nobody is
//! ended for what is kept for everybody. Where messages find no room, the watch
//! whose caller has taken nothing for the longest time is ended, with where to
//! go on. Callers that read are not ended for those that do not.
//!
//! # Invariants
//!
//! - Feeds hold half of the limit at most, but for the change that one of them
//!   is about to drop.
//! - Where no message waits there is room for one, whatever its size.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use headwater_state::{Memory, MemoryPart};
use tokio::sync::Notify;
use tokio::sync::futures::Notified;
use tokio::time::Instant;

use super::outbox::Queue;
use crate::follower::lock;

/// Pause between two looks for the slowest watch: a look is at all of them.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// The budget of a process. Clones share it.
#[derive(Clone, Debug)]
pub(crate) struct Budget(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    bytes_max: u64,
    /// What the feeds keep.
    feeds: Memory,
    /// What waits for callers.
    messages: Memory,
    queues: Mutex<BTreeMap<u64, Weak<Queue>>>,
    n_queues: AtomicU64,
    looked_at: Mutex<Option<Instant>>,
    /// Something was given back.
    freed: Notify,
}

impl Budget {
    pub(crate) fn new(bytes_max: u64) -> Self {
        Self(Arc::new(Inner {
            bytes_max,
            feeds: Memory::default(),
            messages: Memory::default(),
            queues: Mutex::default(),
            n_queues: AtomicU64::new(0),
            looked_at: Mutex::default(),
            freed: Notify::new(),
        }))
    }

    /// What everything takes, in bytes.
    pub(crate) fn size_bytes(&self) -> u64 {
        self.0.feeds.size_bytes().saturating_add(self.0.messages.size_bytes())
    }

    /// The part of one more feed.
    pub(super) fn feed_part(&self) -> MemoryPart {
        self.0.feeds.part()
    }

    /// The part of one more queue.
    pub(super) fn queue_part(&self) -> MemoryPart {
        self.0.messages.part()
    }

    /// Whether the feeds keep more than they may: they give way to messages.
    pub(super) fn is_over(&self) -> bool {
        self.0.bytes_max / 2 < self.0.feeds.size_bytes() || self.0.bytes_max < self.size_bytes()
    }

    /// Whether so much more may wait. One message may, whatever its size, where
    /// no other waits: nobody could be ended to make room for it.
    pub(super) fn has_room(&self, size_bytes: u64) -> bool {
        self.0.messages.size_bytes() == 0
            || self.size_bytes().saturating_add(size_bytes) <= self.0.bytes_max
    }

    /// Knows the queue from now on; the number is what it is forgotten by.
    pub(super) fn add(&self, queue: &Arc<Queue>) -> u64 {
        let number = self.0.n_queues.fetch_add(1, Ordering::Relaxed);
        lock(&self.0.queues).insert(number, Arc::downgrade(queue));
        number
    }

    pub(super) fn forget(&self, number: u64) {
        lock(&self.0.queues).remove(&number);
    }

    /// Resolves when something is given back after this call.
    pub(super) fn freed(&self) -> Notified<'_> {
        self.0.freed.notified()
    }

    pub(super) fn tell_freed(&self) {
        self.0.freed.notify_waiters();
    }

    /// Ends the watch that has waited the longest for its caller, if that is
    /// longer than `patience`.
    pub(super) fn cut_slowest(&self, patience: Duration) {
        let now = Instant::now();
        {
            let mut looked_at = lock(&self.0.looked_at);
            if looked_at.is_some_and(|it| now < it + LOOK_EVERY) {
                return;
            }
            *looked_at = Some(now);
        }
        let queues: Vec<_> = lock(&self.0.queues).values().filter_map(Weak::upgrade).collect();
        let waiting = queues.iter().filter_map(|it| Some((it.waits_since()?, it)));
        if let Some((since, queue)) = waiting.min_by_key(|(since, _)| *since)
            && patience <= now - since
        {
            queue.cut(now - since);
            self.tell_freed();
        }
    }
}
