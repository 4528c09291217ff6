//! Faults that are planted on purpose: a rig that misses one is broken.

use headwater_core::planted::{self, Fault};

use crate::explore::{Found, Order, explore};
use crate::setup::{DriverFault, Setup};

/// A fault of core, or of the drivers around it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Planted {
    /// In core's own code.
    Core(Fault),
    /// In the model's drivers.
    Driver(DriverFault),
}

impl Planted {
    /// All of them.
    pub fn all() -> impl Iterator<Item = Self> {
        let core = Fault::ALL.iter().copied().map(Self::Core);
        core.chain(DriverFault::ALL.iter().copied().map(Self::Driver))
    }

    /// Its name, as written in the code.
    pub fn name(self) -> String {
        match self {
            Self::Core(fault) => format!("{fault:?}"),
            Self::Driver(fault) => format!("{fault:?}"),
        }
    }

    /// The world that shows it.
    pub fn world(self) -> &'static str {
        match self {
            Self::Core(fault) => world_of(fault),
            Self::Driver(fault) => match fault {
                DriverFault::CandidateDeleted | DriverFault::StagedEarly => "pipeline",
                DriverFault::RecordOverwritten => "service-kept",
                DriverFault::CheckShared | DriverFault::CheckFailureServed => "strong-reads",
                DriverFault::SweptBeforeRaised
                | DriverFault::SweptByFirstHead
                | DriverFault::SweptAtBoundary => "sweep",
                DriverFault::ChunksSwept => "compactions",
            },
        }
    }

    /// Explores `world` with the fault in it, nearest states first.
    ///
    /// Faults of core are planted in the whole process: one hunt at a time.
    /// Only what breaks liveness is hunted by running states to their end: for
    /// the others the way to the state where it shows is what is printed.
    pub fn hunt(self, world: Setup, threads: usize) -> Found {
        let world = match self {
            Self::Core(fault) => {
                planted::plant(Some(fault));
                world
            }
            Self::Driver(fault) => Setup { fault: Some(fault), ..world },
        };
        let is_dead = self == Self::Core(Fault::NeverSettled);
        let world = Setup { finish_every: u64::from(is_dead), ..world };
        let found = explore(world, Order::Breadth, threads, None);
        planted::plant(None);
        found
    }
}

/// What a hunt found, in a line.
pub fn line(planted: Planted, world: &str, found: &Found) -> String {
    let name = planted.name();
    match &found.broken {
        Some((broken, way)) => format!(
            "{name:22} {:>2} steps, {:>6} states of {world}: not true: {}",
            way.len(),
            found.states,
            broken.promise.name()
        ),
        None => format!("{name:22} is not found in {} states of {world}", found.states),
    }
}

fn world_of(fault: Fault) -> &'static str {
    match fault {
        Fault::StateBeforeReceipts | Fault::NegativeUnproven => "rejections",
        Fault::HashUncompared => "reused-id",
        Fault::AheadAccepted => "issued-ahead",
        Fault::CoverageUnchecked => "lost-reply-window",
        Fault::EpochUnchecked => "epochs",
        Fault::NeighboursIgnored => "restart",
        Fault::MismatchTakenAsLoss => "echoes",
        Fault::DoubtForgotten | Fault::DoubtEndedByWindow => "deadlines",
        Fault::UnchangedTakenAsLost => "paced",
        Fault::ReceiptDroppedEarly
        | Fault::OwnReceiptsForgotten
        | Fault::KeptAfterLoss
        | Fault::ReceiptsNotFollowed
        | Fault::ToldBeforeReplaced => "race",
        Fault::PublishedUnstaged => "pipeline",
        Fault::RepeatToldPredicted => "impatient",
        Fault::RejectionPredicted => "predicted-rejection",
        Fault::IssueVersionMoved | Fault::RecordIgnored | Fault::RecordUnwritten => "service-kept",
        Fault::NeverSettled => "full-head",
        Fault::BaseUncompared => "compactions",
        Fault::PinsForgotten | Fault::ArchiveUnreached => "pins",
        Fault::ExpiryUnchecked => "expiring-pins",
        Fault::ForksForgotten => "forks",
        Fault::SweptBatchKept => "sweep-pipeline",
        Fault::UploadAssumed | Fault::SweptTravellerNamed => "travelling",
        Fault::SweptNameUsed | Fault::YoungDeleted => "sweep",
        Fault::TailDropped => "maintenance-window",
        Fault::OlderHeadTaken => "strong-reads",
    }
}
