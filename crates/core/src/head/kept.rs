//! What a head keeps besides the newest state: older versions, pins, and what
//! a forked history still takes from another one.

use super::{Head, ObjectRef};
use crate::id::{HistoryId, HistoryName, PinName};
use crate::version::{Revision, StateVersion};

/// Points at the archive: what retention keeps of the versions before the
/// head's snapshot, and what the next sweep is to delete by name.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ArchiveRef {
    /// Every version from this one on can be read; earlier ones only where a
    /// pin names them.
    pub retained_from: StateVersion,
    /// The archive.
    pub object: ObjectRef,
}

/// How far back versions can be read. What any of the two keeps is kept, and
/// whatever a pin names besides.
///
/// It stands in the head, so that every process lets go of the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Retention {
    /// So many versions before the newest.
    pub versions: u64,
    /// Versions that were the newest within this time, in milliseconds.
    pub age_ms: u64,
}

/// A name on a version that retention respects.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Pin {
    /// Its name, unique in the history.
    pub name: PinName,
    /// The version that stays readable.
    pub version: StateVersion,
    /// Revision of the head that it came with.
    pub revision: Revision,
    /// When it may go by itself, in milliseconds since 1970; `None`: never.
    pub expires_at_ms: Option<u64>,
    /// The forked history that needs it, if one does.
    pub child: Option<HistoryRef>,
}

/// Names a history beyond doubt.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct HistoryRef {
    /// Its name.
    pub history: HistoryName,
    /// Its id.
    pub history_id: HistoryId,
}

/// Where a forked history came from, while it still names objects of there.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Base {
    /// The history that it was forked from.
    pub source: HistoryRef,
    /// The pin that keeps the objects there.
    pub pin: PinName,
}

impl Head {
    /// Most pins of one history: a quarter of the head's usual soft limit, at
    /// up to 180 bytes each without a child.
    pub const PINS_MAX: usize = 128;

    /// The first version from which on every version can be read.
    pub fn retained_from(&self) -> StateVersion {
        self.archive.as_ref().map_or(self.snapshot.version, |it| it.retained_from)
    }

    /// Whether `version` can be read, as far as the head tells.
    pub fn is_retained(&self, version: StateVersion) -> bool {
        let is_pinned = || self.pins.iter().any(|it| it.version == version);
        version <= self.state_version && (self.retained_from() <= version || is_pinned())
    }

    /// Pins of forked histories.
    pub fn forks(&self) -> impl Iterator<Item = &Pin> {
        self.pins.iter().filter(|it| it.child.is_some())
    }

    /// The pin of a name.
    pub fn pin(&self, name: &PinName) -> Option<&Pin> {
        self.pins.iter().find(|it| it.name == *name)
    }
}
