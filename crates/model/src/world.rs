//! One state of a world: the bucket, the processes, what is on its way, and
//! what clients were told.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use bytes::Bytes;
use headwater_core::head::{Head, ObjectRef};
use headwater_core::id::Tag;
use headwater_core::operation::RequestRecord;
use headwater_core::version::StateVersion;

use crate::bucket::Bucket;
use crate::client::{Client, Heard};
use crate::promise::Broken;
use crate::replica::Replica;
use crate::setup::{Goal, Limits, Script, Setup};
use crate::sweeper::Sweeper;
use crate::writer::Writer;

/// A state.
#[derive(Clone, Debug)]
pub struct World {
    /// The bucket.
    pub bucket: Arc<Bucket>,
    /// The writer processes.
    pub writers: Vec<Arc<Writer>>,
    /// The clients, one for each script.
    pub clients: Vec<Client>,
    /// Requests that nobody waits for any more and that may yet be carried out.
    pub late: Vec<Late>,
    /// The sweeper.
    pub sweeper: Sweeper,
    /// The replica.
    pub replica: Replica,
    /// What may still go wrong.
    pub left: Limits,
    /// The promise that was broken on the way here, if one was.
    pub broken: Option<Broken>,
}

/// A request that nobody waits for any more.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Late {
    /// To replace the head.
    Replace {
        /// The condition.
        if_match: Tag,
        /// The new head.
        head: Arc<Head>,
    },
    /// To create an object.
    Put {
        /// What it is.
        object: ObjectRef,
        /// Its bytes.
        bytes: Bytes,
    },
    /// To create a record.
    Record(RequestRecord),
}

impl World {
    /// The state before anything has happened.
    pub fn new(setup: &Setup) -> Self {
        Self {
            bucket: Arc::new(Bucket::new(setup.is_exclusive)),
            writers: (0..setup.writers)
                .map(|it| Arc::new(Writer::new(setup.settings(it), it, 0)))
                .collect(),
            clients: vec![Client::default(); setup.scripts.len()],
            late: Vec::new(),
            sweeper: Sweeper::default(),
            replica: Replica::default(),
            left: setup.limits,
            broken: None,
        }
    }

    /// The newest version that a client was told of.
    pub fn acknowledged(&self) -> StateVersion {
        self.clients.iter().filter_map(Client::acknowledged).max().unwrap_or_default()
    }

    /// Whether this is a state that the world is for.
    pub fn has_reached(&self, setup: &Setup, goal: Goal) -> bool {
        let mut attempts = self.clients.iter().flat_map(|it| &it.attempts);
        let is_accepted = |it: &Script| it.id().is_none_or(|it| self.bucket.find(it).is_some());
        match goal {
            Goal::AllAccepted => {
                setup.scripts.iter().all(is_accepted) && self.clients.iter().all(Client::is_done)
            }
            Goal::Doubt => attempts.any(|it| it.heard == Heard::Maybe),
            Goal::NotApplied => attempts.any(|it| it.heard == Heard::NotApplied),
            Goal::Swept => {
                matches!(&self.sweeper, Sweeper::Deleting { keys, .. } if !keys.is_empty())
            }
            Goal::PinExpired => self.bucket.has_lost_a_pin(),
            Goal::Forked => self.bucket.has_fork(),
        }
    }

    /// A number that is the same for states that go on the same way.
    pub fn fingerprint(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.hash(&mut hasher);
        hasher.finish()
    }
}

impl Hash for World {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        self.bucket.hash(hasher);
        self.writers.iter().for_each(|it| it.hash(hasher));
        self.clients.hash(hasher);
        // What is late may come in any order.
        let digests = self.late.iter().map(|it| {
            let mut hasher = DefaultHasher::new();
            it.hash(&mut hasher);
            hasher.finish()
        });
        digests.fold(0_u64, u64::wrapping_add).hash(hasher);
        self.sweeper.hash(hasher);
        self.replica.hash(hasher);
        self.left.hash(hasher);
        self.broken.hash(hasher);
    }
}

impl PartialEq for World {
    fn eq(&self, other: &Self) -> bool {
        self.fingerprint() == other.fingerprint()
    }
}
