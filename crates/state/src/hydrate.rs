//! Filling the disk with what a view is over, before a read asks for it.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use headwater_core::head::ObjectRef;
use headwater_core::id::HistoryName;
use tokio::time::{Instant, sleep, sleep_until};

use crate::disk::DiskCache;
use crate::error::StateError;
use crate::loader::Loader;
use crate::page::PagePlace;
use crate::source::Keep;
use crate::view::View;

/// Pause after the store gave no answer. Nobody waits for this.
const PAUSE: Duration = Duration::from_secs(10);

/// How fast disks are filled: one rate over all who share it. Clones do.
#[derive(Clone, Debug)]
pub struct HydrationRate(Arc<Rate>);

#[derive(Debug)]
struct Rate {
    bytes_per_second: u64,
    /// When the next one may begin.
    next_at: Mutex<Option<Instant>>,
}

/// What came of filling the disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Hydrated {
    /// Objects fetched.
    pub objects: u64,
    /// Their bytes.
    pub size_bytes: u64,
    /// Whether all that the view's snapshot leads to is on the disk now. If
    /// not, the disk is full.
    pub is_whole: bool,
}

impl HydrationRate {
    /// So many bytes a second, at least 1.
    pub fn new(bytes_per_second: u64) -> Self {
        let bytes_per_second = bytes_per_second.max(1);
        Self(Arc::new(Rate { bytes_per_second, next_at: Mutex::new(None) }))
    }

    /// Waits until so many bytes may be fetched. Who goes away while it waits
    /// has taken its turn all the same.
    async fn take(&self, size_bytes: u64) {
        let takes = Duration::from_micros(
            size_bytes.saturating_mul(1_000_000).div_ceil(self.0.bytes_per_second),
        );
        let begin = {
            let mut next_at = self.0.next_at.lock().unwrap_or_else(PoisonError::into_inner);
            let now = Instant::now();
            let begin = next_at.map_or(now, |it| it.max(now));
            *next_at = begin.checked_add(takes);
            begin
        };
        sleep_until(begin).await;
    }
}

impl Loader {
    /// Brings the index pages and chunks below `view` to the disk, one at a time
    /// and at a rate, in order of keys. Pushes nothing out: it ends when the disk
    /// is full. Does nothing without a disk.
    ///
    /// While the store is away it waits. Cancel safe; what was fetched stays.
    ///
    /// # Errors
    ///
    /// [`StateError`] when an object is damaged, missing or refused. A view that
    /// was overtaken by a sweep ends with [`StateError::Missing`].
    pub async fn hydrate(&self, view: &View, rate: &HydrationRate) -> Result<Hydrated, StateError> {
        let mut done = Hydrated::default();
        let Some(disk) = &self.source().disk else { return Ok(done) };
        // So that what is on its way is counted.
        disk.settle().await;
        for place in view.base().places() {
            if let PagePlace::There(page) = place
                && !self.bring(disk, page.owner.as_ref(), &page.object, rate, &mut done).await?
            {
                return Ok(done);
            }
            for chunk in view.base().page_once(place).await?.chunks() {
                let owner = chunk.seen_owner();
                if !self.bring(disk, owner, &chunk.object, rate, &mut done).await? {
                    return Ok(done);
                }
            }
        }
        done.is_whole = true;
        Ok(done)
    }

    /// Whether there was room for it.
    async fn bring(
        &self,
        disk: &DiskCache,
        owner: Option<&Arc<HistoryName>>,
        object: &ObjectRef,
        rate: &HydrationRate,
        done: &mut Hydrated,
    ) -> Result<bool, StateError> {
        if disk.has(&object.hash) {
            return Ok(true);
        }
        if !disk.has_room_for(object.size_bytes) {
            return Ok(false);
        }
        rate.take(object.size_bytes).await;
        let bytes = loop {
            match self.source().fetch_of(owner, object, Keep::No).await {
                Ok(bytes) => break bytes,
                Err(StateError::Store(error)) if error.is_transient() => sleep(PAUSE).await,
                Err(error) => return Err(error),
            }
        };
        done.objects += 1;
        done.size_bytes += object.size_bytes;
        disk.put_in_turn(object.hash, &bytes).await;
        Ok(true)
    }
}
