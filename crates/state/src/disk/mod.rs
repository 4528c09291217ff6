//! A cache of objects on the local disk: files named by content hash, up to a
//! limit in bytes.
//!
//! ```text
//! DIR/lock                      held by the process that uses it
//! DIR/recency                   hashes, the least recently used first
//! DIR/<2 digits>/<64 digits>    one object, as it is in the bucket
//! DIR/tmp/                      files that are being written
//! ```
//!
//! # Invariants
//!
//! - It is never needed: whatever happens to the disk costs a fetch.
//! - Not a byte of a file is used before its length and hash agree with the
//!   reference that is to be followed. So two processes, a crash in a write or
//!   an operator with `rm` do no harm; the lock only keeps the limit true.
//! - No call blocks a thread of the runtime: reads are on its blocking threads,
//!   writes and deletions on one thread of the cache's own.

mod files;
mod keeper;
mod recency;

#[cfg(test)]
mod disk_test;

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use headwater_core::hash::ContentHash;

use self::files::{Files, Opened, ReadFailure};
use self::keeper::Keeper;
use self::recency::Recency;

/// Objects on a disk. Clones share it; it is let go with the last of them.
#[derive(Clone)]
pub struct DiskCache(Arc<Inner>);

struct Inner {
    /// `None` where the directory cannot be used: everything is a miss.
    keeper: Option<Keeper>,
    shared: Arc<Shared>,
}

/// What the cache and its thread have in common.
struct Shared {
    files: Files,
    recency: Mutex<Recency>,
    bytes_max: u64,
    counts: Counts,
    /// How the disk of a simulation behaves.
    conduct: Option<Arc<dyn DiskConduct>>,
    /// Trouble is logged once, until it is over.
    is_write_trouble: AtomicBool,
    is_read_trouble: AtomicBool,
}

/// How the disk of a simulation behaves: what is slow, and what fails.
pub trait DiskConduct: Send + Sync + fmt::Debug {
    /// How long a read takes.
    fn read_takes(&self) -> Duration;

    /// Called before so many bytes are written.
    ///
    /// # Errors
    ///
    /// What the write fails with, as on a full disk.
    fn before_write(&self, size_bytes: u64) -> io::Result<()>;
}

/// The directory is in use.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the cache directory {} is in use: give each process one of its own", dir.display())]
pub struct DiskCacheInUse {
    /// The directory.
    pub dir: PathBuf,
}

/// What became of the calls so far, and what there is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DiskReadings {
    /// Objects in the cache.
    pub objects: u64,
    /// What they take, in bytes.
    pub size_bytes: u64,
    /// Objects that were read here instead of in the bucket.
    pub hits: u64,
    /// Objects that were not here.
    pub misses: u64,
    /// Objects written.
    pub written: u64,
    /// Objects that were not written, because others were on their way already.
    pub skipped: u64,
    /// Objects deleted to make room.
    pub evicted: u64,
    /// Files that were not what their names say. They are deleted.
    pub damaged: u64,
    /// Files that could not be read.
    pub read_failures: u64,
    /// Files that could not be written, as on a full disk.
    pub write_failures: u64,
    /// Whether the directory cannot be used at all.
    pub is_off: bool,
}

#[derive(Debug, Default)]
struct Counts {
    hits: AtomicU64,
    misses: AtomicU64,
    written: AtomicU64,
    skipped: AtomicU64,
    evicted: AtomicU64,
    damaged: AtomicU64,
    read_failures: AtomicU64,
    write_failures: AtomicU64,
}

impl DiskCache {
    /// A cache in `dir`, which is made if it is not there, of up to `bytes_max`
    /// bytes of objects. What is in it from before is found again, the order of
    /// use about as it was.
    ///
    /// A directory that cannot be used costs the caching, and a line in the log.
    /// Blocks while it looks through the directory: call it at the start.
    ///
    /// # Errors
    ///
    /// [`DiskCacheInUse`] when another process has it, or another cache in this
    /// one.
    pub fn open(dir: &Path, bytes_max: u64) -> Result<Self, DiskCacheInUse> {
        Self::open_with(dir, bytes_max, None)
    }

    /// The same cache without threads, for simulations: whoever asks does the
    /// work, at once, so that the same calls in the same order have the same
    /// effects. It holds up the runtime while it does.
    ///
    /// # Errors
    ///
    /// [`DiskCacheInUse`].
    pub fn open_at_once(
        dir: &Path,
        bytes_max: u64,
        conduct: Arc<dyn DiskConduct>,
    ) -> Result<Self, DiskCacheInUse> {
        Self::open_with(dir, bytes_max, Some(conduct))
    }

    fn open_with(
        dir: &Path,
        bytes_max: u64,
        conduct: Option<Arc<dyn DiskConduct>>,
    ) -> Result<Self, DiskCacheInUse> {
        let (files, recency, is_off) = match Files::open(dir) {
            Opened::Ready { files, found } => (files, Recency::of(found), false),
            Opened::InUse => return Err(DiskCacheInUse { dir: dir.into() }),
            Opened::Unusable { files, error } => {
                tracing::warn!(dir = %dir.display(), %error, "no cache on disk: its directory cannot be used");
                (files, Recency::default(), true)
            }
        };
        let shared = Arc::new(Shared {
            files,
            recency: Mutex::new(recency),
            bytes_max,
            counts: Counts::default(),
            conduct,
            is_write_trouble: AtomicBool::new(false),
            is_read_trouble: AtomicBool::new(false),
        });
        let keeper = match (is_off, &shared.conduct) {
            (true, _) => None,
            (false, Some(_)) => Some(Keeper::at_once(&shared)),
            (false, None) => Keeper::start(&shared),
        };
        Ok(Self(Arc::new(Inner { keeper, shared })))
    }

    /// What became of the calls so far.
    pub fn readings(&self) -> DiskReadings {
        let (objects, size_bytes) = {
            let recency = self.0.shared.recency();
            (recency.len() as u64, recency.size_bytes())
        };
        let counts = &self.0.shared.counts;
        let read = |it: &AtomicU64| it.load(Ordering::Relaxed);
        DiskReadings {
            objects,
            size_bytes,
            hits: read(&counts.hits),
            misses: read(&counts.misses),
            written: read(&counts.written),
            skipped: read(&counts.skipped),
            evicted: read(&counts.evicted),
            damaged: read(&counts.damaged),
            read_failures: read(&counts.read_failures),
            write_failures: read(&counts.write_failures),
            is_off: self.0.keeper.is_none(),
        }
    }

    /// Waits until everything that was put before is written or given up.
    pub async fn settle(&self) {
        if let Some(keeper) = &self.0.keeper {
            keeper.settle().await;
        }
    }

    /// Whether `size_bytes` more would push nothing out.
    pub(crate) fn has_room_for(&self, size_bytes: u64) -> bool {
        let is_on = self.0.keeper.is_some();
        is_on && self.0.shared.recency().size_bytes() + size_bytes <= self.0.shared.bytes_max
    }

    /// Whether an object is here, as far as is known without looking.
    pub(crate) fn has(&self, hash: &ContentHash) -> bool {
        self.0.shared.recency().has(hash)
    }

    /// The object of this hash and length. `None`: fetch it.
    pub(crate) async fn get(&self, hash: ContentHash, size_bytes: u64) -> Option<Bytes> {
        let shared = &self.0.shared;
        if !shared.recency().touch(&hash) {
            Counts::add(&shared.counts.misses);
            return None;
        }
        let read = if let Some(conduct) = &shared.conduct {
            tokio::time::sleep(conduct.read_takes()).await;
            shared.files.read(hash, size_bytes)
        } else {
            let reading = Arc::clone(shared);
            // The runtime ends, or the read panicked: either way there is nothing.
            let read = tokio::task::spawn_blocking(move || reading.files.read(hash, size_bytes));
            read.await.ok()?
        };
        match read {
            Ok(bytes) => {
                Counts::add(&shared.counts.hits);
                shared.is_read_trouble.store(false, Ordering::Relaxed);
                Some(bytes)
            }
            Err(failure) => {
                self.not_read(hash, &failure);
                None
            }
        }
    }

    fn not_read(&self, hash: ContentHash, failure: &ReadFailure) {
        let shared = &self.0.shared;
        shared.recency().forget(&hash);
        Counts::add(&shared.counts.misses);
        match failure {
            ReadFailure::Gone => {}
            ReadFailure::Damaged => {
                Counts::add(&shared.counts.damaged);
                tracing::warn!(%hash, "a file of the cache on disk is damaged; it is deleted and fetched again");
                if let Some(keeper) = &self.0.keeper {
                    keeper.delete(hash);
                }
            }
            ReadFailure::Io(error) => {
                Counts::add(&shared.counts.read_failures);
                if !shared.is_read_trouble.swap(true, Ordering::Relaxed) {
                    tracing::warn!(%hash, %error, "the cache on disk cannot be read");
                }
            }
        }
    }

    /// Takes an object in, if there is time for it. Returns at once.
    pub(crate) fn put(&self, hash: ContentHash, bytes: &Bytes) {
        let Some(keeper) = &self.0.keeper else { return };
        let shared = &self.0.shared;
        if shared.recency().touch(&hash) || shared.bytes_max < bytes.len() as u64 {
            return;
        }
        if !keeper.write(hash, bytes.clone()) {
            Counts::add(&shared.counts.skipped);
        }
    }

    /// As [`DiskCache::put`], but waits for its turn instead of giving up, and
    /// until it is written.
    pub(crate) async fn put_in_turn(&self, hash: ContentHash, bytes: &Bytes) {
        if let Some(keeper) = &self.0.keeper {
            keeper.write_in_turn(hash, bytes.clone()).await;
        }
    }
}

impl Counts {
    fn add(count: &AtomicU64) {
        count.fetch_add(1, Ordering::Relaxed);
    }
}

impl Shared {
    fn recency(&self) -> MutexGuard<'_, Recency> {
        // Nothing in here panics halfway through a change.
        self.recency.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for DiskCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let dir = self.0.shared.files.dir();
        f.debug_struct("DiskCache").field("dir", &dir).finish_non_exhaustive()
    }
}
