//! Objects that are missing, and a head that moved meanwhile.

use std::collections::BTreeSet;
use std::sync::Arc;

use futures::StreamExt as _;
use headwater_core::head::Head;
use headwater_store::{HeadRead, Store as _};

use super::{Observed, Walk, read_head};
use crate::finding::Finding;
use crate::report::{PartState, Reason, Report};

pub(super) enum Settled {
    Report(Box<Report>),
    /// The head moved past something that was looked for: from the newer one it
    /// is found.
    Again,
}

impl Walk<'_> {
    /// Calls what is missing damage where a head still leads to it that was read
    /// afterwards: an object that no head leads to any more never comes back
    /// into use, so it was in use all the time (PROTOCOL 7).
    pub(super) async fn settle(mut self, is_last: bool) -> Settled {
        let missing: BTreeSet<String> = self.found.missing().map(|it| it.key.clone()).collect();
        if missing.is_empty() {
            return Settled::Report(Box::new(self.into_report()));
        }
        let key = self.head.history.head_key();
        let is_unchanged =
            matches!(self.store.read_head(&key, Some(&self.tag)).await, Ok(HeadRead::Unchanged));
        if is_unchanged {
            return Settled::Report(Box::new(self.into_report()));
        }
        let history = self.head.history.clone();
        let led_to = match read_head(&self.store, &history).await {
            Ok(Observed::Head(head, tag)) if tag == self.tag => {
                drop(head);
                missing.clone()
            }
            Ok(Observed::Head(head, _)) if head.history_id == self.head.history_id => {
                self.led_to(&head, &missing).await
            }
            // Another history, or none: all of it was overtaken. Or nobody can
            // tell, which is no proof of damage.
            Ok(Observed::Head(..) | Observed::Missing | Observed::Unusable(..)) | Err(_) => {
                BTreeSet::new()
            }
        };
        if led_to == missing {
            return Settled::Report(Box::new(self.into_report()));
        }
        if !is_last && self.store.ended().is_none() {
            return Settled::Again;
        }
        self.found.take_back(|it: &Finding| !led_to.contains(&it.key));
        for state in self.parts.values_mut() {
            if let PartState::Partly(Reason::Trouble { key }) = state
                && missing.contains(&*key)
                && !led_to.contains(&*key)
            {
                *state = PartState::Partly(Reason::Overtaken);
            }
        }
        Settled::Report(Box::new(self.into_report()))
    }

    /// Which of the objects `head` leads to. What cannot be read leads nowhere.
    async fn led_to(&self, head: &Arc<Head>, keys: &BTreeSet<String>) -> BTreeSet<String> {
        let history = &head.history;
        let mut found = BTreeSet::new();
        let mut take = |key: String| {
            if keys.contains(&key) {
                found.insert(key);
            }
        };
        for object in head.references() {
            take(history.object_key(&object.key));
        }
        let mut snapshots = vec![head.snapshot.clone()];
        if let Ok(archive) = self.loader.archive(head).await {
            for object in archive.references() {
                take(history.object_key(&object.key));
            }
            snapshots.extend(archive.snapshots.iter().map(|it| it.snapshot.clone()));
        }
        for snapshot in snapshots {
            let mut parts = self.loader.reached(&snapshot);
            while let Some(Ok(part)) = parts.next().await {
                take(part.owner.as_ref().unwrap_or(history).object_key(&part.object.key));
            }
        }
        found
    }
}
