//! What is kept of older versions: pins, restores, and the forks that begin with
//! one.

use std::sync::Arc;

use bytes::Bytes;
use headwater_core::hash::RequestHash;
use headwater_core::head::{Head, Pin};
use headwater_core::id::PinName;
use headwater_core::operation::{KeyRange, Request};
use headwater_core::version::StateVersion;
use headwater_writer::Restore;

use super::heads::{Objects, When};
use super::{History, Known, Truth};
use crate::model::{Moment, after};
use crate::process::CLOCK_BEGINS_MS;

impl Truth {
    /// A pin may go from here on.
    pub(crate) fn unpinned(&mut self, head_key: &str, name: &PinName) {
        if let Some(history) = self.histories.get_mut(head_key) {
            history.unpinned.insert(name.clone());
        }
    }

    /// A history is about to be forked from another one, under a new name.
    pub(crate) fn forking(&mut self, source: &str, child: &str) {
        self.forks.insert(child.to_owned(), source.to_owned());
    }

    /// Where a fork begins: with what its source was at that version.
    pub(super) fn begin_fork(&mut self, head_key: &str, head: &Head, when: When) {
        let Some(source) = self.forks.get(head_key) else { return };
        let version = head.state_version.get();
        let Some(source) = self.histories.get(source) else { return };
        if source.newest() < version {
            let newest = source.newest();
            return self.violation(format!("{head_key} begins at v{version}, of v{newest}"));
        }
        let mut fork = History::from_version(source, version, when);
        fork.head = None;
        self.tally.forks += 1;
        self.histories.insert(head_key.to_owned(), fork);
    }

    /// A restore is about to be asked for.
    pub(crate) fn restoring(&mut self, head_key: &str, restore: &Restore, event: u64) {
        let history = self.histories.entry(head_key.to_owned()).or_default();
        let Ok(nothing) = Request::new(Vec::new(), Vec::new()).or_else(|_| {
            let mutation = headwater_core::operation::Mutation::DeleteRange(KeyRange::everything());
            Request::new(Vec::new(), vec![mutation])
        }) else {
            return;
        };
        history.operations.insert(
            restore.operation_id.clone(),
            Known {
                request: Arc::new(nothing),
                request_hash: RequestHash::of_restore(restore.version),
                restores: Some(restore.version.get()),
                issued_from: Some(restore.issued_from.get()),
                writer_epoch: restore.writer_epoch,
                first_sent: event,
                accepted: None,
                unknown: None,
                is_open: true,
                is_asked: true,
            },
        );
    }

    /// A version is told to have the state of an older one.
    pub(crate) fn restored(&mut self, head_key: &str, version: u64, at: u64) {
        let Some(history) = self.histories.get(head_key) else { return };
        self.tally.restores += 1;
        if history.newest() < at || !history.is_state_of(version, after(at)) {
            self.violation(format!("{head_key}: v{at} is told to be v{version} again"));
        }
    }
}

impl History {
    fn from_version(source: &Self, version: u64, when: When) -> Self {
        let mut fork = Self::default();
        for number in 0..=version {
            let at = usize::try_from(number).unwrap_or(usize::MAX);
            let operations = source.versions.get(at).map_or(0, |it| it.operations);
            fork.versions.push(super::Published { event: when.event, at: when.at, operations });
            fork.changes.extend(source.changes.get(at).cloned());
        }
        fork.model = source.model.at(after(version));
        fork.n_inherited = version;
        fork
    }

    /// Whether keys have the values that they had at a version.
    pub(super) fn is_state_of(&self, version: u64, now: Moment) -> bool {
        let everything = KeyRange::everything();
        let values = |at| {
            let rows = self.model.entries(&everything, None, at);
            rows.map(|(key, value, _)| (key.clone(), value.clone()))
                .collect::<Vec<(Bytes, Bytes)>>()
        };
        values(after(version)) == values(now)
    }

    /// What a head says can be read has a way to it, and no pin goes that was
    /// not asked to, or whose time is not over.
    pub(super) fn check_kept(
        &self,
        head: &Head,
        objects: &impl Objects,
        when: When,
    ) -> Option<String> {
        if let Some(before) = &self.head {
            let gone = before.pins.iter().find(|it| !head.pins.contains(it));
            let wrong = gone.filter(|it| !self.may_go(it, when));
            if let Some(pin) = wrong {
                return Some(format!("{pin:?} is gone"));
            }
        }
        let is_same = self.head.as_ref().is_some_and(|it| {
            it.archive == head.archive && it.pins == head.pins && it.snapshot == head.snapshot
        });
        if is_same {
            return None;
        }
        let Some(archive) = &head.archive else {
            let pins = head.pins.iter().map(|it| it.version);
            let lost = pins.filter(|it| *it < head.snapshot.version).min();
            return lost.map(|it| format!("{it} is pinned, and there is no archive"));
        };
        let bytes = objects.bytes(&head.history.object_key(&archive.object.key))?;
        let archive = headwater_core::format::archive::decode(bytes).ok()?;
        let retained = head.retained_from().get()..head.snapshot.version.get();
        let pins = head.pins.iter().map(|it| it.version);
        let mut versions = retained.map(StateVersion::new).chain(pins);
        let lost = versions.find(|it| *it < head.snapshot.version && archive.way_to(*it).is_none());
        lost.map(|it| format!("there is no way to {it}, which it keeps"))
    }

    fn may_go(&self, pin: &Pin, when: When) -> bool {
        let now_ms = CLOCK_BEGINS_MS + u64::try_from(when.at.as_millis()).unwrap_or(u64::MAX);
        let is_over = pin.expires_at_ms.is_some_and(|it| it < now_ms);
        // Whoever sweeps frees the pin of a fork that needs it no longer.
        is_over || pin.child.is_some() || self.unpinned.contains(&pin.name)
    }
}
