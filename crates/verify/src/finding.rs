//! What a check finds: about which object, what it means, what to do.

use std::collections::BTreeSet;

use headwater_core::id::PinName;
use headwater_core::version::StateVersion;

/// How bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Severity {
    /// As it should be.
    Note,
    /// Nothing is lost, and space is wasted or something is out of place.
    Warning,
    /// Nobody can say: it could not be read.
    Unchecked,
    /// Something stored is lost or wrong.
    Damage,
}

impl Severity {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Note, Self::Warning, Self::Unchecked, Self::Damage];

    /// The word for programs.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Note => "note",
            Self::Warning => "warning",
            Self::Unchecked => "unchecked",
            Self::Damage => "damage",
        }
    }
}

/// What an object is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Role {
    /// The head.
    Head,
    /// A part of the tail: a segment or a change entry.
    Tail,
    /// Index of the newest snapshot, or a part of it.
    Snapshot,
    /// A page of receipts.
    Receipts,
    /// The archive.
    Archive,
    /// A run of changes before the newest snapshot.
    Run,
    /// Index of an older snapshot, or a part of one.
    OlderSnapshot,
    /// A request record.
    Request,
    /// Nothing that is in use.
    Unreached,
}

impl Role {
    /// What it is, for people.
    pub const fn text(self) -> &'static str {
        match self {
            Self::Head => "the head",
            Self::Tail => "part of the tail",
            Self::Snapshot => "part of the newest snapshot",
            Self::Receipts => "a page of receipts",
            Self::Archive => "the archive",
            Self::Run => "older changes",
            Self::OlderSnapshot => "part of an older snapshot",
            Self::Request => "a request record",
            Self::Unreached => "not in use",
        }
    }
}

/// What was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// An object in use is not there.
    Missing,
    /// An object is not what names it says.
    Damaged,
    /// Changes do not lead from one known point to the next.
    ChainBroken,
    /// A page of receipts says something else than the changes.
    ReceiptsWrong,
    /// An operation that receipts cover was accepted twice.
    OperationRepeated,
    /// The head counts other operations than there are.
    OperationCount,
    /// A version that is to be kept cannot be read any more.
    VersionLost,
    /// The newest snapshot has other entries than the older one and the changes
    /// since lead to.
    ContentDiffers,
    /// An object in use is on a list of what is to be deleted.
    MarkedForDeletion,
    /// The source of a forked history does not keep what this one needs.
    SourceLetGo,
    /// It could not be read.
    NotChecked,
    /// Nothing leads to it and nothing ever will: the next full sweep deletes it.
    Garbage,
    /// No object of this format has such a name.
    Foreign,
    /// Retention let it go: the next sweep deletes it.
    Released,
    /// Nothing leads to it yet: an upload under way, or garbage to be.
    Young,
}

impl Kind {
    /// The word for programs.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Missing => "missing",
            Self::Damaged => "damaged",
            Self::ChainBroken => "chainBroken",
            Self::ReceiptsWrong => "receiptsWrong",
            Self::OperationRepeated => "operationRepeated",
            Self::OperationCount => "operationCount",
            Self::VersionLost => "versionLost",
            Self::ContentDiffers => "contentDiffers",
            Self::MarkedForDeletion => "markedForDeletion",
            Self::SourceLetGo => "sourceLetGo",
            Self::NotChecked => "notChecked",
            Self::Garbage => "garbage",
            Self::Foreign => "foreign",
            Self::Released => "released",
            Self::Young => "young",
        }
    }

    /// How bad it is.
    pub const fn severity(self) -> Severity {
        match self {
            Self::Missing
            | Self::Damaged
            | Self::ChainBroken
            | Self::ReceiptsWrong
            | Self::OperationRepeated
            | Self::OperationCount
            | Self::VersionLost
            | Self::ContentDiffers
            | Self::MarkedForDeletion
            | Self::SourceLetGo => Severity::Damage,
            Self::NotChecked => Severity::Unchecked,
            Self::Garbage | Self::Foreign => Severity::Warning,
            Self::Released | Self::Young => Severity::Note,
        }
    }
}

/// One thing that was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// What.
    pub kind: Kind,
    /// What the object is for.
    pub role: Role,
    /// The object, below the root of the store.
    pub key: String,
    /// What is wrong with it, in its own words.
    pub what: String,
    /// First and last version that it is about.
    pub versions: Option<(StateVersion, StateVersion)>,
    /// Versions of the snapshots that need it.
    pub snapshots: BTreeSet<StateVersion>,
    /// Pins whose versions cannot be read because of it.
    pub pins: Vec<PinName>,
}

const BRING_BACK: &str = "bring this object back from a copy of the bucket: objects never change, \
                          so any copy of it will do";
const REPAIR: &str = "run `headwater verify --repair`, which builds the snapshot again from an \
                      older one and the changes; or bring the object back from any copy";

impl Finding {
    pub(crate) fn new(kind: Kind, role: Role, key: String, what: impl Into<String>) -> Self {
        Self {
            kind,
            role,
            key,
            what: what.into(),
            versions: None,
            snapshots: BTreeSet::new(),
            pins: Vec::new(),
        }
    }

    pub(crate) fn about(mut self, from: StateVersion, to: StateVersion) -> Self {
        self.versions = Some((from, to));
        self
    }

    /// How bad it is.
    pub fn severity(&self) -> Severity {
        self.kind.severity()
    }

    /// What it means.
    pub fn means(&self) -> &'static str {
        match self.kind {
            Kind::Missing | Kind::Damaged => match self.role {
                Role::Head => "nothing of the history can be served or accepted",
                Role::Tail => "the history cannot be opened",
                Role::Snapshot => "reads of these keys fail, and the history may not open",
                Role::Receipts => "writers cannot open the history: retries could not be told",
                Role::Archive => "older versions and pins cannot be read, nothing is swept",
                Role::Run => "some older versions cannot be read; the newest is not touched",
                Role::OlderSnapshot => "reads of some older versions fail; the newest is whole",
                Role::Request => "retries of this operation are refused",
                Role::Unreached => "nothing: it is not in use",
            },
            Kind::ChainBroken => "some change is not the one that was accepted",
            Kind::ReceiptsWrong => "retries may be told something else than what happened",
            Kind::OperationRepeated => "an operation may have been applied twice",
            Kind::OperationCount => "changes or operations are missing or too many",
            Kind::VersionLost => "a version that is promised cannot be read",
            Kind::ContentDiffers => "reads of the newest versions may be wrong",
            Kind::MarkedForDeletion => "the next sweep would delete what is in use",
            Kind::SourceLetGo => "a sweep of the source may delete what this history reads",
            Kind::NotChecked => "nobody can say whether it is sound",
            Kind::Garbage => "it takes space, and nothing else",
            Kind::Foreign => "it was not written by this service, or by a newer build of it",
            Kind::Released => "it takes space until the next sweep",
            Kind::Young => "an upload is under way, or was given up",
        }
    }

    /// What to do.
    pub fn advice(&self) -> &'static str {
        match self.kind {
            Kind::Missing | Kind::Damaged => match self.role {
                Role::Head => {
                    "stop all writers; bring the newest head back from a copy, or from the \
                     bucket's older versions, and read about going back to a copy first"
                }
                Role::Snapshot | Role::OlderSnapshot => REPAIR,
                Role::Tail | Role::Receipts | Role::Archive | Role::Run | Role::Request => {
                    BRING_BACK
                }
                Role::Unreached => "nothing",
            },
            Kind::ChainBroken
            | Kind::ReceiptsWrong
            | Kind::OperationRepeated
            | Kind::OperationCount
            | Kind::ContentDiffers => {
                "keep a copy of the bucket as it is, stop writers, and report it: the objects are \
                 whole, so it was written so"
            }
            Kind::VersionLost => "look for the objects that are missing or damaged; report it else",
            Kind::MarkedForDeletion | Kind::SourceLetGo => {
                "do not sweep; keep a copy of the bucket, and report it"
            }
            Kind::NotChecked => "mend what is said, and check again",
            Kind::Garbage => "sweep, where it matters; never delete by hand",
            Kind::Foreign => "find out whose it is; keep other things out of this prefix",
            Kind::Released | Kind::Young => "nothing",
        }
    }
}
