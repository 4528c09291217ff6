//! The writer: accepts operations over gRPC and publishes them.
//!
//! ```text
//! gRPC -> request -> driver (one task a history) -> answer -> gRPC
//!         checks     carries out the effects of
//!                    headwater_core::publish
//! ```
//!
//! In here: the services, the task that drives one history's publisher, the
//! histories that are open, creating and deleting histories, and maintenance.
//! Not in here: any decision about what may be published or answered; those are
//! [`headwater_core::publish`]'s.
//!
//! # Architecture invariants
//!
//! - One task a history and process publishes; any number of processes may.
//! - Every question is answered by its deadline, whatever the store does.
//! - Maintenance is off the path of a commit: it prepares beside it, and what
//!   it prepared rides on an ordinary publication or goes when nothing waits.

pub mod config;
pub mod daemon;

mod answer;
mod driver;
mod figures;
mod fork;
mod forward;
mod histories;
mod history_service;
mod keeper;
mod lifecycle;
mod listing;
mod metrics;
mod notify;
mod request;
mod restore;
mod retention_service;
mod room;
mod submit_stream;
mod subscribers;
mod sweep;
mod write_service;

use std::sync::Arc;

use headwater_core::id::{HistoryId, HistoryName};
use headwater_core::version::Revision;
use headwater_proto::v1::forward_service_server::ForwardServiceServer;
use headwater_proto::v1::history_service_server::HistoryServiceServer;
use headwater_proto::v1::retention_service_server::RetentionServiceServer;
use headwater_proto::v1::write_service_server::WriteServiceServer;
use headwater_state::{DiskCache, DiskCacheInUse, DiskReadings};
use headwater_store::{Clock, Entropy, Store};
use opentelemetry::metrics::Meter;
use tokio::sync::broadcast;
use tokio::time::Instant;

pub use self::config::{ConfigError, WriterConfig};
pub use self::driver::{AskError, Question, Told};
pub use self::fork::Fork;
use self::forward::ForwardRpc;
pub use self::forward::{GrpcLine, Handed, HandedOperation, Line, LineError, Taken, Verdict};
use self::histories::Histories;
pub use self::histories::{HeadNotice, PUSHED_BYTES_MAX, PUSHED_HEAD_BYTES_MAX, PublishedHead};
use self::history_service::HistoryRpc;
pub use self::lifecycle::LifecycleError;
use self::metrics::WriterMetrics;
pub use self::restore::{Restore, RestoreError, Restored};
use self::retention_service::RetentionRpc;
pub use self::sweep::{SweepError, SweepOptions, SweepReport, SweptObject};
use self::write_service::WriteRpc;

/// A writer in this process. Clones share it.
#[derive(Clone, Debug)]
pub struct Writer {
    histories: Arc<Histories>,
}

/// Why a writer was not started.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// A setting cannot be.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// Another process has the directory of the cache on disk.
    #[error(transparent)]
    Cache(#[from] DiskCacheInUse),
}

/// Starts a writer over `store`. Nothing is read or written until somebody
/// asks for it.
///
/// `clock` is written into what is accepted, for people, and lets retention by
/// age take its time; nothing is correct because of it.
///
/// `store` must not repeat head writes; reads and immutable writes are expected
/// to be repeated below it.
///
/// # Errors
///
/// [`StartError`]; nothing was started.
pub fn start(
    store: Arc<dyn Store>,
    config: WriterConfig,
    entropy: Entropy,
    clock: Clock,
) -> Result<Writer, StartError> {
    start_measured(store, config, entropy, clock, &headwater_daemon::metrics::none())
}

/// As [`start`], and measures by `meter` what it does.
///
/// # Errors
///
/// [`StartError`]; nothing was started.
pub fn start_measured(
    store: Arc<dyn Store>,
    config: WriterConfig,
    entropy: Entropy,
    clock: Clock,
    meter: &Meter,
) -> Result<Writer, StartError> {
    start_linked(store, config, entropy, clock, meter, None)
}

/// As [`start_measured`], and hands operations of contended histories to other
/// writers over `line`, where [`WriterConfig::forward_to`] allows it.
///
/// # Errors
///
/// [`StartError`]; nothing was started.
pub fn start_linked(
    store: Arc<dyn Store>,
    config: WriterConfig,
    entropy: Entropy,
    clock: Clock,
    meter: &Meter,
    line: Option<Arc<dyn Line>>,
) -> Result<Writer, StartError> {
    config.validate()?;
    let disk = match &config.cache_dir {
        Some(dir) => Some(DiskCache::open(dir, config.cache_disk_bytes)?),
        None => None,
    };
    let metrics = WriterMetrics::new(meter);
    let histories = Histories::new(store, disk, config, entropy, clock, metrics, line);
    metrics::observe(meter, &histories);
    Ok(Writer { histories })
}

impl Writer {
    /// The write service.
    pub fn write_service(
        &self,
    ) -> WriteServiceServer<impl headwater_proto::v1::write_service_server::WriteService + use<>>
    {
        WriteServiceServer::new(WriteRpc::new(Arc::clone(&self.histories)))
            .max_decoding_message_size(headwater_proto::limits::MESSAGE_BYTES_MAX)
    }

    /// The history service.
    pub fn history_service(
        &self,
    ) -> HistoryServiceServer<
        impl headwater_proto::v1::history_service_server::HistoryService + use<>,
    > {
        HistoryServiceServer::new(HistoryRpc::new(Arc::clone(&self.histories)))
            .max_decoding_message_size(headwater_proto::limits::MESSAGE_BYTES_MAX)
    }

    /// The service that takes operations from other writers.
    pub fn forward_service(
        &self,
    ) -> ForwardServiceServer<
        impl headwater_proto::v1::forward_service_server::ForwardService + use<>,
    > {
        ForwardServiceServer::new(ForwardRpc::new(Arc::clone(&self.histories)))
            .max_decoding_message_size(headwater_proto::limits::MESSAGE_BYTES_MAX)
    }

    /// Takes operations that another writer hands over, without gRPC: for
    /// programs with a [`Line`] of their own. `None` where the message has come
    /// before, and its operations may have been applied.
    ///
    /// # Cancel safety
    ///
    /// As [`Writer::ask`].
    pub async fn take_handed(&self, handed: Handed) -> Option<Taken> {
        forward::take(&self.histories, handed).await
    }

    /// The retention service.
    pub fn retention_service(
        &self,
    ) -> RetentionServiceServer<
        impl headwater_proto::v1::retention_service_server::RetentionService + use<>,
    > {
        RetentionServiceServer::new(RetentionRpc::new(Arc::clone(&self.histories)))
            .max_decoding_message_size(headwater_proto::limits::MESSAGE_BYTES_MAX)
    }

    /// Heads that this process publishes or sees, as they come. A slow receiver
    /// misses some, which changes no answer.
    pub fn notices(&self) -> broadcast::Receiver<HeadNotice> {
        self.histories.notices()
    }

    /// Names of the histories that are open, in order.
    pub fn open_histories(&self) -> Vec<HistoryName> {
        self.histories.open_names().into_iter().collect()
    }

    /// What the tails of the open histories take in memory, in bytes, about.
    pub fn overlay_bytes(&self) -> u64 {
        self.histories.overlay_bytes()
    }

    /// How the cache on disk stands; `None` where there is none.
    pub fn disk_readings(&self) -> Option<DiskReadings> {
        self.histories.disk_readings()
    }

    /// How often the snapshot of a head was found to be lost, and an older one
    /// made up for it. More than none: `headwater verify` says what is lost.
    pub fn snapshot_fallbacks(&self) -> u64 {
        self.histories.snapshot_fallbacks()
    }

    /// Creates a history without gRPC, or finds the one that an earlier call
    /// with the same id created.
    ///
    /// # Errors
    ///
    /// [`LifecycleError`].
    ///
    /// # Cancel safety
    ///
    /// A dropped call may have created it; the same id finds out.
    pub async fn create(
        &self,
        history: &HistoryName,
        id: HistoryId,
        is_exclusive: bool,
    ) -> Result<(), LifecycleError> {
        let deadline = Instant::now() + self.histories.config.operation_timeout();
        let kept = (is_exclusive, self.histories.config.retention());
        self.histories.create(history, id, kept, deadline).await.map(drop)
    }

    /// Asks without gRPC: for programs that run the writer in their process.
    ///
    /// # Errors
    ///
    /// [`AskError`]; nothing was done, except after [`AskError::Lost`].
    ///
    /// # Cancel safety
    ///
    /// A dropped call may be applied all the same; the same operation id finds
    /// out.
    pub async fn ask(&self, history: &HistoryName, question: Question) -> Result<Told, AskError> {
        self.histories.ask(history, question).await
    }

    /// Gives back the space of what no head can name any more. `look` is shown
    /// every object that is judged.
    ///
    /// # Errors
    ///
    /// [`SweepError`]; what was deleted by then is gone, and the next sweep
    /// completes it.
    ///
    /// # Cancel safety
    ///
    /// A dropped sweep leaves garbage, and nothing else.
    pub async fn sweep(
        &self,
        history: &HistoryName,
        options: SweepOptions,
        look: impl FnMut(&SweptObject) + Send,
    ) -> Result<SweepReport, SweepError> {
        self.histories.sweep(history, options, look).await
    }

    /// The revision of a history's head, read from the store: what is staged
    /// below it may be swept once uploads that began before are over.
    ///
    /// # Errors
    ///
    /// [`SweepError`].
    pub async fn revision(&self, history: &HistoryName) -> Result<Revision, SweepError> {
        let found = self.histories.head_of(history).await?;
        let (head, _) = found.filter(|(it, _)| !it.is_retired()).ok_or(SweepError::Missing)?;
        Ok(head.revision)
    }

    /// Has a snapshot made of the present version, and what it takes the place
    /// of archived or let go; says whether the head has one now. Others may have
    /// accepted more by the time that it returns.
    ///
    /// # Errors
    ///
    /// [`AskError`].
    ///
    /// # Cancel safety
    ///
    /// A dropped call may be carried out all the same.
    pub async fn compact(&self, history: &HistoryName) -> Result<bool, AskError> {
        self.histories.compact(history).await
    }

    /// Forks a history without gRPC, or finds what an earlier call with the same
    /// id has forked.
    ///
    /// # Errors
    ///
    /// [`LifecycleError`].
    ///
    /// # Cancel safety
    ///
    /// A dropped call may have forked it; the same call goes on.
    pub async fn fork(&self, fork: &Fork) -> Result<(), LifecycleError> {
        let deadline = Instant::now() + self.histories.config.operation_timeout();
        self.histories.fork(fork, deadline).await.map(drop)
    }

    /// Restores an older version without gRPC: one more version with its state.
    ///
    /// # Errors
    ///
    /// [`RestoreError`].
    ///
    /// # Cancel safety
    ///
    /// As [`Writer::ask`].
    pub async fn restore(
        &self,
        history: &HistoryName,
        restore: &Restore,
    ) -> Result<Restored, RestoreError> {
        let deadline = Instant::now() + self.histories.config.operation_timeout();
        self.histories.restore(history, restore, deadline).await
    }

    /// Stops taking questions, answers those that wait, and ends every task.
    pub async fn shutdown(&self) {
        self.histories.shutdown().await;
    }
}
