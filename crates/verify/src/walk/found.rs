//! Findings, bounded: so many are kept of each severity, and all are counted.

use std::collections::{BTreeMap, HashMap};

use headwater_core::version::StateVersion;
use headwater_state::StateError;

use super::{Walk, mark};
use crate::finding::{Finding, Kind, Role, Severity};
use crate::metered::Ended;
use crate::report::Reason;
use crate::trouble::{Blamed, Trouble};

/// So many calls without an answer are the store's trouble, and not that of the
/// objects.
const UNANSWERED_MAX: u32 = 16;

#[derive(Debug)]
pub(super) struct Found {
    findings: Vec<Finding>,
    counts: BTreeMap<Severity, u64>,
    max: usize,
    /// Objects that cannot be used, and their finding where it was kept.
    bad: HashMap<u128, Option<usize>>,
    unanswered: u32,
}

impl Found {
    pub(super) fn new(max: usize) -> Self {
        Self {
            findings: Vec::new(),
            counts: BTreeMap::new(),
            max,
            bad: HashMap::new(),
            unanswered: 0,
        }
    }

    /// Adds a finding; where it was kept.
    pub(super) fn add(&mut self, finding: Finding) -> Option<usize> {
        let count = self.counts.entry(finding.severity()).or_default();
        *count += 1;
        if (self.max as u64) < *count {
            return None;
        }
        self.findings.push(finding);
        Some(self.findings.len() - 1)
    }

    /// Whether the object cannot be used.
    pub(super) fn is_bad(&self, key: &str) -> bool {
        self.bad.contains_key(&mark(key))
    }

    /// Notes that a snapshot needs an object that cannot be used.
    pub(super) fn note_snapshot(&mut self, key: &str, version: StateVersion) {
        if let Some(Some(at)) = self.bad.get(&mark(key))
            && let Some(finding) = self.findings.get_mut(*at)
        {
            finding.snapshots.insert(version);
        }
    }

    pub(super) fn findings_mut(&mut self) -> &mut [Finding] {
        &mut self.findings
    }

    /// What is not there, as far as the head that was read tells.
    pub(super) fn missing(&self) -> impl Iterator<Item = &Finding> {
        self.findings.iter().filter(|it| it.kind == Kind::Missing)
    }

    /// Takes back what is not damage after all.
    pub(super) fn take_back(&mut self, is_overtaken: impl Fn(&Finding) -> bool) {
        let before = self.findings.len();
        self.findings.retain(|it| !(it.kind == Kind::Missing && is_overtaken(it)));
        let gone = (before - self.findings.len()) as u64;
        if let Some(count) = self.counts.get_mut(&Severity::Damage) {
            *count = count.saturating_sub(gone);
        }
    }

    pub(super) fn into_parts(self) -> (Vec<Finding>, BTreeMap<Severity, u64>) {
        (self.findings, self.counts)
    }
}

impl Walk<'_> {
    /// An object that is in use cannot be used. Each object has one finding,
    /// however many lead to it.
    pub(super) fn blame(
        &mut self,
        role: Role,
        key: &str,
        versions: Option<(StateVersion, StateVersion)>,
        trouble: Trouble,
    ) {
        if let Some(ended) = self.store.ended() {
            return self.leave_gap(Reason::Ended(ended));
        }
        self.leave_gap(Reason::Trouble { key: key.to_owned() });
        if self.found.is_bad(key) {
            return;
        }
        let (kind, what) = match trouble {
            Trouble::Missing => (Kind::Missing, "it is not there".to_owned()),
            Trouble::Damaged(what) => (Kind::Damaged, what),
            Trouble::Chain(what) => (Kind::ChainBroken, what),
            Trouble::Closed(what) => (Kind::NotChecked, what),
            Trouble::NoAnswer(what) => {
                self.found.unanswered += 1;
                if UNANSWERED_MAX <= self.found.unanswered {
                    self.store.end(Ended::Store);
                }
                (Kind::NotChecked, what)
            }
        };
        let mut finding = Finding::new(kind, role, key.to_owned(), what);
        finding.versions = versions;
        let at = self.found.add(finding);
        self.found.bad.insert(mark(key), at);
    }

    /// As [`Walk::blame`], after a load; `key` is of the object that it began
    /// with. Returns the one that is to blame.
    pub(super) fn blame_load(
        &mut self,
        role: Role,
        key: &str,
        versions: Option<(StateVersion, StateVersion)>,
        error: &StateError,
    ) -> String {
        let blamed = Blamed::of_state(error);
        let key = blamed.key.unwrap_or_else(|| key.to_owned());
        self.blame(role, &key, versions, blamed.trouble);
        key
    }
}
