//! A value that others wait on, woken in the order in which they came.
//!
//! Tokio's `watch` (1.54, `sync/watch.rs`) spreads those who wait over eight
//! lists, chosen by chance, to spare its locks. So who is served first would
//! be chance as well, and no run of a simulator could be replayed.

use std::pin::pin;
use std::sync::{PoisonError, RwLock, RwLockReadGuard};

use tokio::sync::Notify;

#[derive(Debug, Default)]
pub(crate) struct Watched<T> {
    value: RwLock<T>,
    changed: Notify,
}

impl<T> Watched<T> {
    /// The value, locked: what is wanted of it is to be copied at once.
    pub(crate) fn borrow(&self) -> RwLockReadGuard<'_, T> {
        // Nobody leaves it half changed.
        self.value.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the value, and has everybody who waits look at it.
    pub(crate) fn send_modify(&self, change: impl FnOnce(&mut T)) {
        change(&mut self.value.write().unwrap_or_else(PoisonError::into_inner));
        self.changed.notify_waiters();
    }

    /// Waits until `take` finds what it looks for. Cancel safe.
    pub(crate) async fn wait_for<R>(&self, take: impl Fn(&T) -> Option<R>) -> R {
        loop {
            let mut changed = pin!(self.changed.notified());
            // Before looking: a change in between is not to be missed.
            changed.as_mut().enable();
            if let Some(found) = take(&self.borrow()) {
                return found;
            }
            changed.await;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    /// Until everybody waits.
    async fn settle() {
        tokio::time::sleep(std::time::Duration::from_millis(1)).await;
    }

    #[tokio::test(start_paused = true)]
    async fn those_who_wait_are_woken_in_the_order_in_which_they_came() {
        const WAITERS: usize = 100;
        let watched = Arc::new(Watched::<u64>::default());
        let woken = Arc::new(Mutex::new(Vec::new()));
        let mut tasks = tokio::task::JoinSet::new();
        for n in 0..WAITERS {
            let (watched, woken) = (Arc::clone(&watched), Arc::clone(&woken));
            tasks.spawn(async move {
                watched.wait_for(|it| (*it == 2).then_some(())).await;
                woken.lock().unwrap().push(n);
            });
        }
        settle().await;

        watched.send_modify(|it| *it = 1);
        settle().await;
        assert!(woken.lock().unwrap().is_empty());
        watched.send_modify(|it| *it = 2);
        tasks.join_all().await;

        assert_eq!(*woken.lock().unwrap(), (0..WAITERS).collect::<Vec<_>>());
    }
}
