//! Versions that are promised: pinned ones, and those that retention keeps.

use std::collections::BTreeSet;
use std::sync::Arc;

use headwater_core::archive::Way;
use headwater_core::head::Pin;

use super::Walk;
use crate::finding::{Finding, Kind, Role, Severity};

impl Walk<'_> {
    /// There is a way to each version that is promised. Whether what is on the
    /// way can be read is found where it is read.
    pub(super) fn check_retained(&mut self) {
        let (head, archive) = (Arc::clone(&self.head), Arc::clone(&self.archive));
        let newest = head.snapshot.version;
        let key = self.archive_key();
        // What must not be deleted although it is in use.
        let released: BTreeSet<_> = archive.released.iter().cloned().collect();
        let named: Vec<_> = head.references().chain(archive.references()).cloned().collect();
        for object in named {
            self.mark_if_let_go(Role::Archive, None, &object.key, &released);
        }
        let from = head.retained_from();
        if from < newest {
            let way = archive.way_to(from);
            let leads_on = way.and_then(|it| archive.runs_after(it.snapshot.version, &head));
            if leads_on.is_none() {
                let what = format!("nothing leads from version {from} to {newest}");
                let finding = Finding::new(Kind::VersionLost, Role::Archive, key.clone(), what);
                self.found.add(finding.about(from, newest));
            }
        }
        for pin in &head.pins {
            if pin.version < newest && archive.way_to(pin.version).is_none() {
                let what = format!("nothing leads to version {}", pin.version);
                let mut finding = Finding::new(Kind::VersionLost, Role::Archive, key.clone(), what)
                    .about(pin.version, pin.version);
                finding.pins.push(pin.name.clone());
                self.found.add(finding);
            }
        }
    }

    fn archive_key(&self) -> String {
        let object = self.head.archive.as_ref().map(|it| &it.object.key);
        object.map_or_else(|| self.head.history.head_key(), |it| self.key_of(it))
    }

    /// Says of everything that cannot be used which pins need it.
    pub(super) fn name_pins(&mut self) {
        let (head, archive) = (Arc::clone(&self.head), Arc::clone(&self.archive));
        let older = head.pins.iter().filter(|it| it.version < head.snapshot.version);
        let ways: Vec<(&Pin, Way)> =
            older.filter_map(|it| Some((it, archive.way_to(it.version)?))).collect();
        let history = head.history.clone();
        for finding in self.found.findings_mut() {
            let is_object = matches!(finding.kind, Kind::Missing | Kind::Damaged);
            if !is_object || finding.severity() != Severity::Damage {
                continue;
            }
            for (pin, way) in &ways {
                let is_run =
                    way.runs.iter().any(|it| history.object_key(&it.object.key) == finding.key);
                let is_needed = is_run || finding.snapshots.contains(&way.snapshot.version);
                if is_needed && !finding.pins.contains(&pin.name) {
                    finding.pins.push(pin.name.clone());
                }
            }
        }
    }
}
