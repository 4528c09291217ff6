//! Sweeping one history: giving back the space of what no head can name.
//!
//! ```text
//! raise the boundary --> read the head --> list, judge, delete --> say so
//!   (publication)                            (headwater_core::sweep)  (publication)
//! ```
//!
//! A sweep that is cut off anywhere leaves garbage, never a loss, and the next
//! one completes it. Any number of them may run at once.

use std::collections::BTreeSet;
use std::sync::Arc;

use futures::{StreamExt as _, TryStreamExt as _, stream};
use headwater_core::head::Head;
use headwater_core::id::HistoryName;
use headwater_core::keys::{ObjectKey, ObjectKind};
use headwater_core::publish::{Maintenance, SubmitError, Trouble};
use headwater_core::sweep::{Judgement, Sweep};
use headwater_core::version::Revision;
use headwater_state::{Loader, StateError};
use headwater_store::{Listed, planted};
use tokio::time::Instant;

use crate::driver::{AskError, put_trouble, read_trouble, state_trouble};
use crate::histories::Histories;
use crate::metrics::SweepEnd;

/// Objects listed at a time.
const LIST_PAGE: usize = 1_000;
/// Objects deleted at a time.
const DELETES_AT_ONCE: usize = 16;
/// Tries to publish the end of a sweep: each is lost only to another change of
/// the archive.
const PUBLISH_TRIES_MAX: usize = 8;
/// Tries to begin again because what the head named was gone.
const READ_TRIES_MAX: usize = 4;

/// How to sweep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SweepOptions {
    /// Judge and report, and delete nothing.
    pub is_dry_run: bool,
    /// Look at everything, not only at what was staged since the last sweep:
    /// finds what a process uploaded that had stalled meanwhile.
    pub is_full: bool,
    /// Objects deleted at most; the next sweep goes on.
    pub deletes_max: u64,
    /// Raise the boundary to this revision, if it is past; `None` completes
    /// what an earlier sweep began.
    pub below: Option<Revision>,
}

/// An object that a sweep looked at, and what it thinks of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SweptObject {
    /// Its key below the history.
    pub key: ObjectKey,
    /// Its length in bytes, where it was listed; what was let go by name is not.
    pub size_bytes: Option<u64>,
    /// What it is.
    pub judgement: Judgement,
}

/// What a sweep did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SweepReport {
    /// The boundary: objects staged below it were judged.
    pub below: Revision,
    /// Objects looked at.
    pub looked_at: u64,
    /// Objects deleted, or that would have been in a dry run.
    pub deleted: u64,
    /// Their bytes, as far as they were listed.
    pub deleted_bytes: u64,
    /// Whether nothing was left for want of [`SweepOptions::deletes_max`].
    pub is_complete: bool,
}

/// Why a sweep ended early. What it deleted is gone; what it did not is found
/// by the next one.
#[derive(Debug, thiserror::Error)]
pub enum SweepError {
    /// There is no such history.
    #[error("the history does not exist")]
    Missing,
    /// The store or what is stored.
    #[error(transparent)]
    Trouble(#[from] Trouble),
    /// The history's publisher did not take it.
    #[error(transparent)]
    Ask(#[from] AskError),
    /// Other changes of the archive kept winning.
    #[error("other maintenance kept changing the archive; sweep again later")]
    Contended,
}

impl From<SweepError> for SubmitError {
    fn from(error: SweepError) -> Self {
        match error {
            SweepError::Missing => Self::HistoryMissing,
            SweepError::Trouble(trouble) => trouble.into(),
            SweepError::Ask(_) | SweepError::Contended => Self::Contended,
        }
    }
}

/// One sweep under way.
struct Under<'a> {
    histories: &'a Arc<Histories>,
    history: &'a HistoryName,
    options: SweepOptions,
    loader: Loader,
    report: SweepReport,
    /// What was deleted by name.
    released: BTreeSet<ObjectKey>,
}

impl Histories {
    /// Sweeps a history; `look` is shown every object that is judged.
    pub(crate) async fn sweep(
        self: &Arc<Self>,
        history: &HistoryName,
        options: SweepOptions,
        look: impl FnMut(&SweptObject) + Send,
    ) -> Result<SweepReport, SweepError> {
        let began = Instant::now();
        let swept = self.sweep_once(history, options, look).await;
        if !options.is_dry_run {
            self.metrics.sweep_duration.record(began.elapsed().as_secs_f64(), &[]);
            self.metrics.sweeps.add(match &swept {
                Ok(report) if report.is_complete => SweepEnd::Complete,
                Ok(_) => SweepEnd::Limited,
                Err(_) => SweepEnd::Failed,
            });
            if let Ok(report) = &swept {
                self.metrics.swept_objects.add(report.deleted, &[]);
                self.metrics.swept_bytes.add(report.deleted_bytes, &[]);
            }
        }
        swept
    }

    async fn sweep_once(
        self: &Arc<Self>,
        history: &HistoryName,
        options: SweepOptions,
        mut look: impl FnMut(&SweptObject) + Send,
    ) -> Result<SweepReport, SweepError> {
        let loader = self.loader(history);
        let mut under = Under {
            histories: self,
            history,
            options,
            loader,
            report: SweepReport::default(),
            released: BTreeSet::new(),
        };
        if !options.is_dry_run {
            let head = under.head().await?;
            let deadline = Instant::now() + self.config.operation_timeout();
            if let Err(error) = self.release_forks(history, &head, deadline).await {
                tracing::warn!(%history, %error, "pins of forks are looked at again later");
            }
        }
        let older = if planted!(SweptByOlderHead) { Some(under.head().await?) } else { None };
        under.raise().await?;
        for attempt in 1..=READ_TRIES_MAX {
            let mut head = under.head().await?;
            if let Some(older) = &older {
                head = Head { sweep_from: head.sweep_from, ..older.clone() };
            }
            under.report = SweepReport { is_complete: true, ..SweepReport::default() };
            match under.delete(&head, &mut look).await {
                Ok(()) => break,
                // Compacted and swept by others meanwhile.
                Err(SweepFault::Overtaken) if attempt < READ_TRIES_MAX => (),
                Err(SweepFault::Overtaken) => return Err(SweepError::Contended),
                Err(SweepFault::Trouble(trouble)) => return Err(trouble.into()),
            }
        }
        if !options.is_dry_run {
            under.say_so().await?;
        }
        Ok(under.report)
    }
}

/// Why a pass did not come to its end.
enum SweepFault {
    /// What the head named is gone: it is not the current one any more.
    Overtaken,
    Trouble(Trouble),
}

impl From<Trouble> for SweepFault {
    fn from(trouble: Trouble) -> Self {
        Self::Trouble(trouble)
    }
}

impl SweepFault {
    fn of(key: &str, error: &StateError) -> Self {
        match error {
            StateError::Missing { .. } => Self::Overtaken,
            StateError::Store(_)
            | StateError::Bad { .. }
            | StateError::TooNew { .. }
            | StateError::Follow(_) => Self::Trouble(state_trouble(key, error)),
        }
    }
}

impl Under<'_> {
    async fn head(&self) -> Result<Head, SweepError> {
        let found = self.histories.head_of(self.history).await?;
        let (mut head, _) = found.filter(|(it, _)| !it.is_retired()).ok_or(SweepError::Missing)?;
        if (self.options.is_dry_run || planted!(SweptUnraised))
            && let Some(below) = self.options.below
        {
            // As the head will be once the boundary is raised.
            head.sweep_from = head.sweep_from.max(below.min(head.revision));
        }
        Ok(head)
    }

    /// The first step. Nothing is deleted before a head with the boundary is
    /// the current one.
    async fn raise(&self) -> Result<(), SweepError> {
        let is_left = self.options.is_dry_run || planted!(SweptUnraised);
        let Some(below) = self.options.below.filter(|_| !is_left) else {
            return Ok(());
        };
        let head = self.head().await?;
        let sweep_from = below.min(head.revision);
        if head.sweep_from < sweep_from {
            let raise = Maintenance::RaiseSweep { sweep_from };
            // Where it does not fit, another one has raised it as far.
            self.histories.maintain(self.history, raise).await?;
        }
        Ok(())
    }

    async fn delete(
        &mut self,
        head: &Head,
        look: &mut (impl FnMut(&SweptObject) + Send),
    ) -> Result<(), SweepFault> {
        let key = self.history.head_key();
        let archive = self.loader.archive(head).await.map_err(|it| SweepFault::of(&key, &it))?;
        let mut sweep = Sweep::of(head, &archive, self.options.is_full);
        self.report.below = sweep.below();
        let released: Vec<_> = sweep.released().to_vec();
        let by_name = released.into_iter().map(|key| SweptObject {
            key,
            size_bytes: None,
            judgement: Judgement::Released,
        });
        let deleted = self.delete_all(by_name.collect(), look).await?;
        self.released.extend(deleted);
        let mut is_read = false;
        for kind in ObjectKind::ALL {
            let mut after = Some(listing_start(self.history, kind, sweep.lists_from(kind)));
            let folder = self.history.folder(kind);
            loop {
                let store = &self.histories.store;
                let page = store.list(&folder, after.as_deref(), LIST_PAGE).await;
                let page = page.map_err(|error| read_trouble(&error))?;
                let Some(last) = page.last().map(|it| it.key.clone()) else { break };
                let is_last = page.len() < LIST_PAGE;
                let mut objects = self.parse(page);
                // Listing order is staging order: nothing older comes after.
                let is_beyond = objects.last().is_some_and(|(it, _)| sweep.below() <= it.staged());
                objects.retain(|(it, _)| it.staged() < sweep.below());
                if !objects.is_empty() && Sweep::needs_snapshots(kind) && !is_read {
                    self.read_snapshots(&mut sweep).await?;
                    is_read = true;
                }
                let judged = objects.into_iter().map(|(key, size_bytes)| SweptObject {
                    judgement: sweep.judge(&key),
                    size_bytes: Some(size_bytes),
                    key,
                });
                self.delete_all(judged.collect(), look).await?;
                if is_last || is_beyond || !self.report.is_complete {
                    break;
                }
                after = Some(last);
            }
        }
        Ok(())
    }

    /// Objects of this history by their keys; whatever else lies in its folders
    /// is nobody's, and is left alone.
    fn parse(&self, page: Vec<Listed>) -> Vec<(ObjectKey, u64)> {
        let prefix = format!("{}/", self.history);
        let parse = |it: Listed| {
            let key = ObjectKey::parse(it.key.strip_prefix(&prefix)?).ok()?;
            Some((key, it.size_bytes))
        };
        page.into_iter().filter_map(parse).collect()
    }

    async fn read_snapshots(&self, sweep: &mut Sweep) -> Result<(), SweepFault> {
        let key = self.history.head_key();
        for snapshot in sweep.snapshots().to_vec() {
            let mut reached = self.loader.reached(&snapshot);
            while let Some(object) =
                reached.try_next().await.map_err(|it| SweepFault::of(&key, &it))?
            {
                if object.owner.is_none() {
                    sweep.reach(object.object.key);
                }
            }
        }
        Ok(())
    }

    /// Deletes what may be, up to the limit; returns what went.
    async fn delete_all(
        &mut self,
        objects: Vec<SweptObject>,
        look: &mut (impl FnMut(&SweptObject) + Send),
    ) -> Result<Vec<ObjectKey>, Trouble> {
        let mut doomed = Vec::new();
        for object in objects {
            self.report.looked_at += 1;
            look(&object);
            if !object.judgement.is_deletable() {
                continue;
            }
            if self.options.deletes_max <= self.report.deleted + doomed.len() as u64 {
                self.report.is_complete = false;
                break;
            }
            self.report.deleted_bytes += object.size_bytes.unwrap_or(0);
            doomed.push(object.key);
        }
        self.report.deleted += doomed.len() as u64;
        if !self.options.is_dry_run {
            let store = &self.histories.store;
            let keys: Vec<_> = doomed.iter().map(|it| self.history.object_key(it)).collect();
            stream::iter(keys)
                .map(|key| async move { store.delete(&key).await })
                .buffer_unordered(DELETES_AT_ONCE)
                .try_collect::<Vec<()>>()
                .await
                .map_err(|error| read_trouble(&error))?;
        }
        Ok(doomed)
    }

    /// The last step: the head says how far it is swept, and the archive forgets
    /// what was deleted by name.
    async fn say_so(&self) -> Result<(), SweepError> {
        for _ in 0..PUBLISH_TRIES_MAX {
            let head = self.head().await?;
            let swept_to = if self.report.is_complete { self.report.below } else { head.swept_to };
            let archive = match self.loader.archive(&head).await {
                Ok(archive) => archive,
                Err(StateError::Missing { .. }) => continue,
                Err(error) => return Err(state_trouble(&self.history.head_key(), &error).into()),
            };
            let rest = archive.without_released(&self.released);
            if swept_to <= head.swept_to && rest.is_none() {
                return Ok(());
            }
            let update = match rest {
                None => None,
                Some(rest) => {
                    let object = self.loader.write_archive(head.revision, &rest).await;
                    let object = object.map_err(|error| put_trouble(&error))?;
                    Some(rest.as_update(&head, object))
                }
            };
            let swept = Maintenance::Swept { swept_to, update };
            if self.histories.maintain(self.history, swept).await? {
                return Ok(());
            }
        }
        Err(SweepError::Contended)
    }
}

/// Where a listing begins so that the first object staged at `from` is in it.
fn listing_start(history: &HistoryName, kind: ObjectKind, from: Revision) -> String {
    // `-` comes after every digit is over, and before every name.
    format!("{}{:020}-", history.folder(kind), from.get())
}
