//! What a check has to say in the end.

use std::collections::BTreeMap;
use std::fmt;

use headwater_core::id::{HistoryId, HistoryName};
use headwater_core::version::{Revision, StateVersion};

use crate::finding::{Finding, Severity};
use crate::metered::Ended;
use crate::repair::Basis;

/// The parts of a check, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Part {
    /// The head by itself.
    Head,
    /// The changes after the newest snapshot, and the chain through them.
    Tail,
    /// The newest snapshot and its parts.
    Snapshot,
    /// The newest snapshot against the older one and the changes since.
    Rebuild,
    /// Pages of receipts.
    Receipts,
    /// The archive and the older changes: chain, receipts, counts.
    Archive,
    /// Older snapshots and their parts.
    OlderSnapshots,
    /// Whether pinned and retained versions can be read.
    Pins,
    /// What nothing leads to.
    Unreached,
    /// Request records.
    Requests,
}

impl Part {
    /// All of them, in order.
    pub const ALL: [Self; 10] = [
        Self::Head,
        Self::Tail,
        Self::Snapshot,
        Self::Rebuild,
        Self::Receipts,
        Self::Archive,
        Self::OlderSnapshots,
        Self::Pins,
        Self::Unreached,
        Self::Requests,
    ];

    /// The word for programs.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Head => "head",
            Self::Tail => "tail",
            Self::Snapshot => "snapshot",
            Self::Rebuild => "rebuild",
            Self::Receipts => "receipts",
            Self::Archive => "archive",
            Self::OlderSnapshots => "olderSnapshots",
            Self::Pins => "pins",
            Self::Unreached => "unreached",
            Self::Requests => "requests",
        }
    }
}

/// Why a part was not looked at, or not all of it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Reason {
    /// The check ended early.
    Ended(Ended),
    /// It leans on an object that could not be used, which has a finding.
    Trouble {
        /// The object.
        key: String,
    },
    /// The head moved faster than it could be followed.
    Overtaken,
    /// It was not asked for.
    NotAsked,
    /// There is nothing older to compare with.
    NothingOlder,
}

impl Reason {
    /// Whether something was left out that should have been looked at.
    pub fn is_gap(&self) -> bool {
        match self {
            Self::Ended(_) | Self::Trouble { .. } | Self::Overtaken => true,
            Self::NotAsked | Self::NothingOlder => false,
        }
    }

    /// The word for programs.
    pub const fn word(&self) -> &'static str {
        match self {
            Self::Ended(ended) => ended.word(),
            Self::Trouble { .. } => "trouble",
            Self::Overtaken => "overtaken",
            Self::NotAsked => "notAsked",
            Self::NothingOlder => "nothingOlder",
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ended(ended) => ended.fmt(f),
            Self::Trouble { key } => write!(f, "it needs {key}"),
            Self::Overtaken => f.write_str("the head moved faster than it could be followed"),
            Self::NotAsked => f.write_str("it was not asked for"),
            Self::NothingOlder => f.write_str("there is no older snapshot to begin from"),
        }
    }
}

/// How far a part got.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum PartState {
    /// All of it was looked at.
    Done,
    /// Some of it.
    Partly(Reason),
    /// Nothing of it.
    LeftOut(Reason),
}

impl PartState {
    /// Why something is left out, where something is.
    pub fn reason(&self) -> Option<&Reason> {
        match self {
            Self::Done => None,
            Self::Partly(reason) | Self::LeftOut(reason) => Some(reason),
        }
    }
}

/// How many objects, and what they take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// How many.
    pub objects: u64,
    /// Bytes.
    pub bytes: u64,
}

impl Tally {
    pub(crate) fn add(&mut self, bytes: u64) {
        self.objects += 1;
        self.bytes += bytes;
    }
}

/// What nothing leads to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Unreached {
    /// A full sweep deletes it.
    pub garbage: Tally,
    /// It may yet come into use.
    pub young: Tally,
    /// The next sweep deletes it.
    pub released: Tally,
    /// It is none of ours.
    pub foreign: Tally,
    /// A snapshot could not be read to its end, so its parts are not judged.
    pub unjudged: Tally,
}

/// The short answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Verdict {
    /// Everything was looked at, and is sound.
    Clean,
    /// What was looked at is sound; a budget ended it.
    Incomplete,
    /// What could be read is sound; something could not.
    Unchecked,
    /// Something is lost or wrong.
    Damaged,
}

impl Verdict {
    /// The word for programs.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Clean => "clean",
            Self::Incomplete => "incomplete",
            Self::Unchecked => "unchecked",
            Self::Damaged => "damaged",
        }
    }
}

/// What a check has to say.
#[derive(Clone, Debug)]
pub struct Report {
    /// The history.
    pub history: HistoryName,
    /// Its id, revision and state version; none where the head is not readable.
    pub head: Option<(HistoryId, Revision, StateVersion)>,
    /// In the order in which they were found.
    pub findings: Vec<Finding>,
    /// How many there were of each severity, those that were not kept included.
    pub counts: BTreeMap<Severity, u64>,
    /// Objects in use that are as they should be.
    pub sound: Tally,
    /// Changes whose place in the chain was verified.
    pub chained: u64,
    /// Receipts that were compared with the change that they are of.
    pub receipts_compared: u64,
    /// Objects that nothing leads to.
    pub unreached: Unreached,
    /// Request records.
    pub requests: Tally,
    /// How far each part got.
    pub parts: BTreeMap<Part, PartState>,
    /// How often it began again because the head had moved.
    pub restarts: u32,
    pub(crate) basis: Option<Basis>,
}

impl Report {
    /// How many findings of one severity there were.
    pub fn count(&self, severity: Severity) -> u64 {
        self.counts.get(&severity).copied().unwrap_or_default()
    }

    /// The short answer.
    pub fn verdict(&self) -> Verdict {
        let gaps = || self.parts.values().filter_map(PartState::reason).filter(|it| it.is_gap());
        let is_budget = |it: &Reason| match it {
            Reason::Ended(Ended::Store) | Reason::Trouble { .. } | Reason::Overtaken => false,
            Reason::Ended(_) | Reason::NotAsked | Reason::NothingOlder => true,
        };
        if 0 < self.count(Severity::Damage) {
            Verdict::Damaged
        } else if 0 < self.count(Severity::Unchecked) || !gaps().all(is_budget) {
            Verdict::Unchecked
        } else if gaps().next().is_some() {
            Verdict::Incomplete
        } else {
            Verdict::Clean
        }
    }
}
