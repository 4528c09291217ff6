//! The thread that writes and deletes files; or nobody's thread, where a
//! simulation wants everything done at once and in order.

use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use bytes::Bytes;
use headwater_core::hash::ContentHash;

use super::{Counts, Shared};

/// Jobs that wait. They hold bytes: 16 chunks of about 1 MiB, and 96 MiB at
/// worst. More come when the disk is slower than the bucket, and are let go.
const JOBS_MAX: usize = 16;
/// The order of use is written after so many new objects, and at the end: what a
/// crash costs is that some of the last ones count as old.
const WRITES_UNTIL_ORDER: u32 = 256;

/// Ends its thread when it is dropped, and waits for that: the directory is free
/// afterwards.
pub(super) struct Keeper {
    /// Taken when it is dropped.
    jobs: Option<SyncSender<Job>>,
    thread: Option<JoinHandle<()>>,
    /// Does the work without a thread.
    at_once: Option<Mutex<Worker>>,
}

enum Job {
    Write(ContentHash, Bytes),
    Delete(ContentHash),
    Settle(SyncSender<()>),
}

impl Keeper {
    /// `None` when the system has no thread to give.
    pub(super) fn start(shared: &Arc<Shared>) -> Option<Self> {
        let (jobs, taken) = sync_channel(JOBS_MAX);
        let shared = Arc::clone(shared);
        let thread = std::thread::Builder::new().name("disk-cache".into());
        match thread.spawn(move || Worker { shared, n_unordered: 0 }.run(&taken)) {
            Ok(thread) => Some(Self { jobs: Some(jobs), thread: Some(thread), at_once: None }),
            Err(error) => {
                tracing::warn!(%error, "no cache on disk: its thread cannot be started");
                None
            }
        }
    }

    /// Without a thread: whoever gives a job does it.
    pub(super) fn at_once(shared: &Arc<Shared>) -> Self {
        let worker = Worker { shared: Arc::clone(shared), n_unordered: 0 };
        worker.make_room(0);
        Self { jobs: None, thread: None, at_once: Some(Mutex::new(worker)) }
    }

    fn do_at_once(&self, job: Job) {
        if let Some(worker) = &self.at_once {
            worker.lock().unwrap_or_else(PoisonError::into_inner).carry_out(job);
        }
    }

    /// Whether there was room for it.
    pub(super) fn write(&self, hash: ContentHash, bytes: Bytes) -> bool {
        if self.at_once.is_some() {
            self.do_at_once(Job::Write(hash, bytes));
            return true;
        }
        self.jobs.as_ref().is_some_and(|it| it.try_send(Job::Write(hash, bytes)).is_ok())
    }

    /// A file that stays where it is costs nothing but its room: it is found
    /// damaged again.
    pub(super) fn delete(&self, hash: ContentHash) {
        self.do_at_once(Job::Delete(hash));
        if let Some(jobs) = &self.jobs {
            drop(jobs.try_send(Job::Delete(hash)));
        }
    }

    /// Waits until every job that was given before is done.
    pub(super) async fn settle(&self) {
        self.do_and_settle(None).await;
    }

    /// As [`Keeper::write`], and waits for its turn and its end.
    pub(super) async fn write_in_turn(&self, hash: ContentHash, bytes: Bytes) {
        self.do_and_settle(Some(Job::Write(hash, bytes))).await;
    }

    async fn do_and_settle(&self, job: Option<Job>) {
        let Some(jobs) = self.jobs.clone() else {
            if let Some(job) = job {
                self.do_at_once(job);
            }
            return;
        };
        // The queue may be full, and waiting for it would hold up the runtime.
        let settled = tokio::task::spawn_blocking(move || {
            let (done, is_done) = sync_channel(1);
            let mut all = job.into_iter().chain([Job::Settle(done)]);
            all.all(|it| jobs.send(it).is_ok()) && is_done.recv().is_ok()
        });
        // A thread that has ended has settled everything.
        settled.await.unwrap_or(true);
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        drop(self.jobs.take());
        if let Some(thread) = self.thread.take() {
            // It does what it has, some 16 files, and ends.
            drop(thread.join());
        }
        if let Some(worker) = self.at_once.take() {
            worker.into_inner().unwrap_or_else(PoisonError::into_inner).write_order();
        }
    }
}

struct Worker {
    shared: Arc<Shared>,
    n_unordered: u32,
}

impl Worker {
    fn run(mut self, jobs: &Receiver<Job>) {
        self.make_room(0);
        while let Ok(job) = jobs.recv() {
            self.carry_out(job);
        }
        self.write_order();
    }

    fn carry_out(&mut self, job: Job) {
        match job {
            Job::Write(hash, bytes) => self.write(hash, &bytes),
            Job::Delete(hash) => self.delete(hash),
            // Who asked may be gone.
            Job::Settle(done) => done.send(()).unwrap_or_default(),
        }
    }

    fn write(&mut self, hash: ContentHash, bytes: &Bytes) {
        let shared = Arc::clone(&self.shared);
        if shared.recency().has(&hash) {
            return;
        }
        let size_bytes = bytes.len() as u64;
        self.make_room(size_bytes);
        let conduct = shared.conduct.as_ref();
        let permitted = conduct.map_or(Ok(()), |it| it.before_write(size_bytes));
        if let Err(error) = permitted.and_then(|()| shared.files.write(hash, bytes)) {
            Counts::add(&shared.counts.write_failures);
            if !shared.is_write_trouble.swap(true, Ordering::Relaxed) {
                tracing::warn!(%error, "the cache on disk cannot be written; fetches go on without it");
            }
            return;
        }
        if shared.is_write_trouble.swap(false, Ordering::Relaxed) {
            tracing::info!("the cache on disk can be written again");
        }
        shared.recency().add(hash, size_bytes);
        Counts::add(&shared.counts.written);
        self.n_unordered += 1;
        if WRITES_UNTIL_ORDER <= self.n_unordered {
            self.write_order();
        }
    }

    /// Deletes what was used least recently until so much more fits.
    fn make_room(&self, size_bytes: u64) {
        let shared = &self.shared;
        loop {
            let oldest = {
                let mut recency = shared.recency();
                if recency.size_bytes() + size_bytes <= shared.bytes_max {
                    return;
                }
                recency.pop()
            };
            let Some(oldest) = oldest else { return };
            self.delete(oldest);
            Counts::add(&shared.counts.evicted);
        }
    }

    fn delete(&self, hash: ContentHash) {
        if let Err(error) = self.shared.files.delete(hash) {
            // It is found again at the next start, and counted.
            tracing::debug!(%hash, %error, "a file of the cache on disk cannot be deleted");
        }
    }

    fn write_order(&mut self) {
        self.n_unordered = 0;
        let order = self.shared.recency().in_order();
        if let Err(error) = self.shared.files.write_order(&order) {
            tracing::debug!(%error, "the order of use cannot be written");
        }
    }
}
