//! The invariants of PROTOCOL 3, enforced on every head read and on every head
//! about to be published.

use alloc::collections::BTreeSet;
use alloc::format;
use alloc::string::String;

use super::{ChangeBody, Head, ObjectRef, RunRef};
use crate::hash::ContentHash;
use crate::keys::ObjectKind;
use crate::version::{Revision, StateVersion};

/// Which invariant a head breaks.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("head field `{field}` is wrong: {rule}")]
pub struct HeadError {
    /// The JSON field.
    pub field: &'static str,
    /// The rule and what was found.
    pub rule: String,
}

/// Largest counter in a head. At a billion a second it takes 292 years to come
/// near it; a head that is past it was not counted up by anybody.
const COUNT_MAX: u64 = u64::MAX / 2;

fn broken(field: &'static str, rule: String) -> HeadError {
    HeadError { field, rule }
}

impl Head {
    /// Checks the head by itself.
    ///
    /// # Errors
    ///
    /// [`HeadError`] names the field.
    pub fn check(&self) -> Result<(), HeadError> {
        if self.revision < Revision::FIRST {
            return Err(broken("revision", "revisions begin at 1".into()));
        }
        // Whoever replaces this head counts on; a stored number must not be
        // able to stop a process.
        let counters = [
            ("revision", self.revision.get()),
            ("stateVersion", self.state_version.get()),
            ("operationCount", self.operation_count),
            ("writerEpoch", self.writer_epoch),
        ];
        if let Some((field, count)) = counters.into_iter().find(|(_, it)| COUNT_MAX < *it) {
            return Err(broken(field, format!("{count} leaves no room to count on")));
        }
        self.check_publisher()?;
        self.check_tail()?;
        self.check_receipts()?;
        self.check_kept()?;
        if !self.is_exclusive && self.writer_epoch != 0 {
            return Err(broken("writerEpoch", "only an exclusive history has epochs".into()));
        }
        if self.revision < self.sweep_from {
            let rule = format!("{} is above revision {}", self.sweep_from, self.revision);
            return Err(broken("sweepFrom", rule));
        }
        if self.operation_count < self.state_version.get() {
            let rule = format!("{} is below {}", self.operation_count, self.state_version);
            return Err(broken("operationCount", rule));
        }
        Ok(())
    }

    fn check_publisher(&self) -> Result<(), HeadError> {
        let id = self.publisher.id.as_bytes();
        let is_plain = |it: &u8| it.is_ascii_alphanumeric() || matches!(it, b'.' | b'_' | b'-');
        if id.is_empty() || 64 < id.len() || !id.iter().all(is_plain) {
            return Err(broken("publisher", "id is 1 to 64 of [A-Za-z0-9._-]".into()));
        }
        Ok(())
    }

    fn check_tail(&self) -> Result<(), HeadError> {
        check_kind("snapshot", ObjectKind::Snapshot, self.snapshot.object.key.kind())?;
        let mut last =
            check_runs("segments", ObjectKind::Segment, self.snapshot.version, &self.segments)?;
        for change in &self.changes {
            if last.get().checked_add(1) != Some(change.version.get()) {
                let rule = format!("{} follows {last}", change.version);
                return Err(broken("changes", rule));
            }
            match &change.body {
                ChangeBody::Staged(object) => {
                    check_kind("changes", ObjectKind::Change, object.key.kind())?;
                    if object.hash != change.hash {
                        let rule = format!("two hashes for {}", object.key);
                        return Err(broken("changes", rule));
                    }
                }
                ChangeBody::Inline(bytes) => {
                    if ContentHash::of(bytes) != change.hash {
                        let rule = format!("inline bytes of {} have another hash", change.version);
                        return Err(broken("changes", rule));
                    }
                }
            }
            last = change.version;
        }
        if last != self.state_version {
            let rule = format!("{} is stated, the tail leads to {last}", self.state_version);
            return Err(broken("stateVersion", rule));
        }
        Ok(())
    }

    fn check_kept(&self) -> Result<(), HeadError> {
        if self.sweep_from < self.swept_to {
            let rule = format!("{} is above sweepFrom {}", self.swept_to, self.sweep_from);
            return Err(broken("sweptTo", rule));
        }
        if let Some(archive) = &self.archive {
            check_kind("archive", ObjectKind::Archive, archive.object.key.kind())?;
            if self.snapshot.version < archive.retained_from {
                let rule = format!("{} is after the snapshot", archive.retained_from);
                return Err(broken("archive", rule));
            }
        }
        if Self::PINS_MAX < self.pins.len() {
            return Err(broken("pins", format!("more than {}", Self::PINS_MAX)));
        }
        if let Some(pair) = self.pins.windows(2).find(|it| it[1].name <= it[0].name) {
            let rule = format!("{} follows {}", pair[1].name, pair[0].name);
            return Err(broken("pins", rule));
        }
        if let Some(pin) = self.pins.iter().find(|it| self.state_version < it.version) {
            let rule = format!("{} is on {}, which is to come", pin.name, pin.version);
            return Err(broken("pins", rule));
        }
        if let Some(pin) = self.pins.iter().find(|it| self.revision < it.revision) {
            let rule = format!("{} came with revision {}", pin.name, pin.revision);
            return Err(broken("pins", rule));
        }
        Ok(())
    }

    fn check_receipts(&self) -> Result<(), HeadError> {
        let coverage_from = self.receipt_coverage_from;
        if coverage_from == StateVersion::ZERO || self.state_version.get() + 1 < coverage_from.get()
        {
            let rule = format!("{coverage_from} is not between 1 and the version to come");
            return Err(broken("receiptCoverageFrom", rule));
        }
        let Some(first) = self.receipt_pages.first() else {
            // Without pages the tail is all the evidence there is.
            if coverage_from < self.tail_from() {
                let rule = format!("no page from {coverage_from}, the tail begins later");
                return Err(broken("receiptPages", rule));
            }
            return Ok(());
        };
        if coverage_from < first.from || first.from == StateVersion::ZERO {
            let rule = format!("pages begin at {}, coverage at {coverage_from}", first.from);
            return Err(broken("receiptPages", rule));
        }
        let before = StateVersion::new(first.from.get() - 1);
        let pages = &self.receipt_pages;
        let last = check_runs("receiptPages", ObjectKind::Receipts, before, pages)?;
        if last != self.snapshot.version {
            let rule = format!("pages end at {last}, the tail begins later");
            return Err(broken("receiptPages", rule));
        }
        Ok(())
    }

    /// Checks that this head may replace `previous`: what must not fall, what
    /// must not change, and the publishing rule of PROTOCOL 7.
    ///
    /// # Errors
    ///
    /// [`HeadError`] names the field.
    pub fn check_follows(&self, previous: &Self) -> Result<(), HeadError> {
        if self.history_id != previous.history_id || self.history != previous.history {
            return Err(broken("historyId", "a history never changes its identity".into()));
        }
        if self.is_exclusive != previous.is_exclusive {
            return Err(broken("exclusive", "fixed when the history was created".into()));
        }
        if previous.revision.get().checked_add(1) != Some(self.revision.get()) {
            let rule = format!("{} replaces {}", self.revision, previous.revision);
            return Err(broken("revision", rule));
        }
        if self.publisher.nonce == previous.publisher.nonce {
            return Err(broken("publisher", "the nonce is fresh for every attempt".into()));
        }
        if self.lifecycle < previous.lifecycle {
            let rule = format!("{:?} does not become {:?}", previous.lifecycle, self.lifecycle);
            return Err(broken("lifecycle", rule));
        }
        let floors = [
            ("stateVersion", self.state_version.get(), previous.state_version.get()),
            ("operationCount", self.operation_count, previous.operation_count),
            ("writerEpoch", self.writer_epoch, previous.writer_epoch),
            (
                "receiptCoverageFrom",
                self.receipt_coverage_from.get(),
                previous.receipt_coverage_from.get(),
            ),
            ("sweepFrom", self.sweep_from.get(), previous.sweep_from.get()),
            ("snapshot", self.snapshot.version.get(), previous.snapshot.version.get()),
            ("sweptTo", self.swept_to.get(), previous.swept_to.get()),
            ("archive", self.retained_from().get(), previous.retained_from().get()),
        ];
        if let Some((field, now, then)) = floors.into_iter().find(|(_, now, then)| now < then) {
            return Err(broken(field, format!("falls from {then} to {now}")));
        }
        let is_other_base = |it: &super::Base| previous.base.as_ref() != Some(it);
        if self.base.as_ref().is_some_and(is_other_base) {
            return Err(broken("base", "a history is forked once, when it is created".into()));
        }
        // A version that could not be read any more cannot be kept from now on.
        let is_lost = |it: &&super::Pin| !previous.is_retained(it.version);
        let is_past = |it: &&super::Pin| it.version <= previous.state_version;
        if let Some(pin) = self.pins.iter().filter(is_past).find(is_lost) {
            let rule = format!("{} is on {}, which is gone", pin.name, pin.version);
            return Err(broken("pins", rule));
        }
        if let Some(object) = self.swept_reference(previous) {
            let rule = format!("{} was staged below it and is newly named", object.key);
            return Err(broken("sweepFrom", rule));
        }
        Ok(())
    }

    /// The publishing rule of PROTOCOL 7: an object staged below the boundary
    /// may be about to be deleted, unless the predecessor keeps it alive.
    /// Returns one that this head names all the same.
    pub(crate) fn swept_reference(&self, previous: &Self) -> Option<&ObjectRef> {
        let old: BTreeSet<_> = previous.references().map(|it| &it.key).collect();
        self.references()
            .find(|it| it.key.staged() < previous.sweep_from && !old.contains(&it.key))
            .filter(|_| !planted!(SweptNameUsed))
    }
}

fn check_kind(
    field: &'static str,
    expected: ObjectKind,
    found: ObjectKind,
) -> Result<(), HeadError> {
    if expected == found {
        return Ok(());
    }
    Err(broken(field, format!("names an object in {}", found.folder())))
}

/// Runs follow one another from after `before`; returns the last version.
fn check_runs(
    field: &'static str,
    kind: ObjectKind,
    before: StateVersion,
    runs: &[RunRef],
) -> Result<StateVersion, HeadError> {
    let mut last = before;
    for run in runs {
        check_kind(field, kind, run.object.key.kind())?;
        if last.get().checked_add(1) != Some(run.from.get()) || run.to < run.from {
            let rule = format!("{} to {} follows {last}", run.from, run.to);
            return Err(broken(field, rule));
        }
        last = run.to;
    }
    Ok(last)
}
