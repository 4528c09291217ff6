//! Heads as the bucket takes them: order, replay, at most once, limits, and that
//! nothing is named that is not there.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use headwater_core::change::{AcceptedOperation, Change};
use headwater_core::format;
use headwater_core::hash::ContentHash;
use headwater_core::head::{ChangeBody, ChangeRef, Head, ObjectRef};

use super::reach::Walk;
use super::{Accepted, History, Published, Tally, Truth};
use crate::model::Place;

/// The objects of the bucket, as the checks look at them.
pub(crate) trait Objects {
    /// The bytes of an object.
    fn bytes(&self, key: &str) -> Option<Bytes>;
}

/// When something happened.
#[derive(Clone, Copy, Debug)]
pub(crate) struct When {
    pub(crate) event: u64,
    /// Since the run began.
    pub(crate) at: Duration,
}

impl Truth {
    /// The bucket has a new head under this key.
    pub(crate) fn head_written(
        &mut self,
        head_key: &str,
        bytes: &Bytes,
        objects: &impl Objects,
        when: When,
    ) {
        let head = match format::head::decode(bytes) {
            Ok(head) => Arc::new(head),
            Err(error) => return self.violation(format!("{head_key}: a head is bad: {error}")),
        };
        if !self.histories.contains_key(head_key) {
            self.begin_fork(head_key, &head, when);
        }
        let history = self.histories.entry(head_key.to_owned()).or_default();
        let kept = history.check_kept(&head, objects, when);
        let mut check = Check { history, tally: &mut self.tally, found: Vec::new() };
        check.successor(&head, bytes.len(), self.head_hard_bytes);
        check.reach(&head, objects);
        check.versions(&head, objects, when);
        let mut found = check.found;
        found.extend(kept);
        history.revisions.push(when.event);
        history.head = Some(Arc::clone(&head));
        self.tally.heads += 1;
        for it in found {
            self.violation(format!("{head_key} {}: {it}", head.revision));
        }
    }

    /// The bucket deletes an object.
    pub(crate) fn deleted(&mut self, key: &str) {
        self.tally.deleted += 1;
        let of = self.histories.iter().find(|(_, it)| it.reaches(key)).map(|it| it.0.clone());
        if let Some(head_key) = of {
            self.violation(format!("{key} is deleted, and {head_key} reaches it"));
        }
    }
}

impl History {
    fn reaches(&self, key: &str) -> bool {
        self.reached.contains(key)
            || self.named_by_archive.contains(key)
            || self.snapshots.values().any(|it| it.contains(key))
    }
}

struct Check<'a> {
    history: &'a mut History,
    tally: &'a mut Tally,
    found: Vec<String>,
}

impl Check<'_> {
    fn fail(&mut self, what: String) {
        self.found.push(what);
    }

    /// The head against the one before it.
    fn successor(&mut self, head: &Head, size_bytes: usize, hard_bytes: usize) {
        let Some(before) = self.history.head.clone() else {
            if head.revision.get() != 1 {
                self.fail("it is the first, and its revision is not 1".into());
            }
            return;
        };
        if let Err(error) = head.check_follows(&before) {
            self.fail(error.to_string());
        }
        // Said once more and apart from core: these are what everything else
        // in here rests on.
        if head.revision.get() != before.revision.get() + 1 {
            self.fail(format!("it follows {}", before.revision));
        }
        if head.history_id != before.history_id {
            self.fail("it is another history's".into());
        }
        let added = head.state_version.since(before.state_version);
        if head.state_version < before.state_version {
            self.fail(format!("the version falls from {}", before.state_version));
        }
        if 0 < added && 0 < hard_bytes && hard_bytes < size_bytes {
            self.fail(format!("it takes operations and is {size_bytes} bytes"));
        }
        self.tally.snapshots += u64::from(head.snapshot != before.snapshot);
        self.tally.segments +=
            head.segments.iter().filter(|it| !before.segments.contains(it)).count() as u64;
        self.tally.sweeps += u64::from(head.sweep_from != before.sweep_from);
        self.tally.epochs += u64::from(head.writer_epoch != before.writer_epoch);
        self.tally.pins += head.pins.iter().filter(|it| !before.pins.contains(it)).count() as u64;
    }

    /// Every object that the head reaches is there, and is what the head says.
    fn reach(&mut self, head: &Head, objects: &impl Objects) {
        let before = self.history.head.as_ref();
        let is_moved =
            before.is_none_or(|it| it.snapshot != head.snapshot || it.archive != head.archive);
        let mut named = Walk::new(&head.history, objects, &self.history.reached);
        for object in head.references() {
            named.visit(None, object);
        }
        let (reached, found) = named.finish();
        self.history.reached = reached;
        self.found.extend(found);
        if is_moved {
            let mut snapshots = vec![head.snapshot.object.clone()];
            let mut named = Walk::new(&head.history, objects, &self.history.named_by_archive);
            if let Some(archive) = &head.archive {
                snapshots.extend(named.archive(&archive.object));
            }
            let (reached, found) = named.finish();
            self.history.named_by_archive = reached;
            self.found.extend(found);
            self.reach_snapshots(head, &snapshots, objects);
        }
    }

    /// What each snapshot leads to. Most are the same as before.
    fn reach_snapshots(&mut self, head: &Head, snapshots: &[ObjectRef], objects: &impl Objects) {
        let before = std::mem::take(&mut self.history.snapshots);
        // The newest one has what most of the next one has.
        let nothing = Arc::default();
        let near = self.history.newest_snapshot.as_ref().and_then(|it| before.get(it));
        for object in snapshots {
            let key = head.history.object_key(&object.key);
            let known = before.get(&key).cloned().unwrap_or_else(|| {
                let mut walk = Walk::new(&head.history, objects, near.unwrap_or(&nothing));
                walk.index(object);
                let (reached, found) = walk.finish();
                self.found.extend(found);
                Arc::new(reached)
            });
            self.history.snapshots.insert(key, known);
        }
        self.history.newest_snapshot = Some(head.history.object_key(&head.snapshot.object.key));
    }

    /// Replays every version that is new in the head.
    fn versions(&mut self, head: &Head, objects: &impl Objects, when: When) {
        if self.history.versions.is_empty() {
            self.publish(Change { operations: Vec::new(), decided_at_ms: 0 }, when);
        }
        let known = self.history.newest();
        let new: Vec<ChangeRef> =
            head.changes.iter().filter(|it| known < it.version.get()).cloned().collect();
        if new.len() as u64 != head.state_version.get() - known.min(head.state_version.get()) {
            return self.fail(format!("it does not name each version from {known} on"));
        }
        for change in new {
            let Some(decoded) = self.change(head, &change, objects) else { return };
            let decoded = self.publish(decoded, when);
            self.tally.versions += 1;
            for (position, operation) in (0..).zip(&decoded.operations) {
                let place = Place { version: change.version.get(), position };
                self.replay(head, place, operation);
            }
        }
    }

    fn publish(&mut self, change: Change, when: When) -> Arc<Change> {
        let operations = u32::try_from(change.operations.len()).unwrap_or(u32::MAX);
        let published = Published { event: when.event, at: when.at, operations };
        let change = Arc::new(change);
        self.history.versions.push(published);
        self.history.changes.push(Arc::clone(&change));
        change
    }

    fn change(
        &mut self,
        head: &Head,
        change: &ChangeRef,
        objects: &impl Objects,
    ) -> Option<Change> {
        let bytes = match &change.body {
            // Decoding has compared it with its hash.
            ChangeBody::Inline(bytes) => bytes.clone(),
            ChangeBody::Staged(object) => {
                let Some(bytes) = objects.bytes(&head.history.object_key(&object.key)) else {
                    self.fail(format!("the change of {} is missing", change.version));
                    return None;
                };
                if ContentHash::of(&bytes) != change.hash {
                    self.fail(format!("the change of {} has another hash", change.version));
                }
                bytes
            }
        };
        match format::change::decode(bytes) {
            Ok(decoded) => Some(decoded),
            Err(error) => {
                self.fail(format!("the change of {} is bad: {error}", change.version));
                None
            }
        }
    }

    fn replay(&mut self, head: &Head, place: Place, operation: &AcceptedOperation) {
        let (id, version) = (&operation.id, place.version);
        self.tally.accepted += 1;
        let before = self.history.head.clone();
        let Some(known) = self.history.operations.get(id) else {
            return self.fail(format!("v{version} has {id}, which nobody sent"));
        };
        let (request, restores) = (Arc::clone(&known.request), known.restores);
        let mut found = Vec::new();
        if let Some(accepted) = &known.accepted {
            found.push(format!("{id} is in {:?} and again in {place:?}", accepted.place));
        }
        if known.request_hash != operation.request_hash {
            found.push(format!("{id} in {place:?} is another request"));
        }
        if !known.is_open && !known.is_asked {
            found.push(format!("{id} enters at {place:?} while nobody asks for it"));
        }
        if known.unknown.is_some() {
            found.push(format!("{id} enters at {place:?} after its client was told `unknown`"));
        }
        if let Some(issued_from) = known.issued_from {
            if version <= issued_from {
                found.push(format!("{id} was issued from v{issued_from} and is in v{version}"));
            }
            let coverage = before.as_ref().map_or(1, |it| it.receipt_coverage_from.get());
            if issued_from + 1 < coverage {
                found.push(format!("{id} may have been accepted before v{coverage} already"));
            }
        }
        if head.is_exclusive
            && before.as_ref().is_some_and(|it| it.writer_epoch != known.writer_epoch)
        {
            found.push(format!("{id} in {place:?} is of epoch {}", known.writer_epoch));
        }
        let model = &mut self.history.model;
        if restores.is_none() {
            if let Some(obstacle) = model.obstacle(&request, place) {
                found.push(format!("{id} at {place:?} must not be accepted: {obstacle:?}"));
            }
            match model.resolve(&request, place) {
                Some((mutations, results))
                    if mutations == operation.mutations && results == operation.results => {}
                other => {
                    found.push(format!("{id} at {place:?} comes to {other:?}, not {operation:?}"));
                }
            }
        }
        model.apply(place, &operation.mutations);
        if let Some(restored) = restores {
            let now = Place { position: place.position + 1, ..place };
            if !self.history.is_state_of(restored, now) {
                found.push(format!("{id} at {place:?} does not bring back v{restored}"));
            }
        }
        if let Some(known) = self.history.operations.get_mut(id) {
            known.accepted = Some(Accepted { place, results: operation.results.clone() });
        }
        self.found.extend(found);
    }
}
