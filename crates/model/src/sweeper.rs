//! The sweep of PROTOCOL 7, in its order: raise the boundary, read the head
//! again, delete.

use std::sync::Arc;

use headwater_core::head::{Head, Publisher, Successor};
use headwater_core::id::{Nonce, Tag};
use headwater_core::keys::ObjectKey;
use headwater_core::publish::PublishReply;
use headwater_core::version::Revision;

use crate::promise::Broken;
use crate::setup::{DriverFault, Setup};
use crate::world::World;

/// Where a sweep is. It may stay there for ever: that is how it dies.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub enum Sweeper {
    /// None is under way.
    #[default]
    Idle,
    /// The boundary is about to be raised.
    Raising {
        /// The condition.
        if_match: Tag,
        /// The new head.
        head: Arc<Head>,
        /// The head with which the sweep began.
        first: Arc<Head>,
    },
    /// The boundary was raised, or may have been.
    Raised {
        /// The head with which the sweep began.
        first: Arc<Head>,
    },
    /// The head was read again.
    Deleting {
        /// What is to go.
        keys: Vec<ObjectKey>,
    },
}

impl World {
    /// The next step of a sweep. `is_lost` is about the answer of the store, if
    /// it is asked to replace the head.
    ///
    /// # Errors
    ///
    /// The promise that this breaks.
    pub fn sweep(&mut self, setup: &Setup, is_lost: bool) -> Result<(), Broken> {
        self.sweeper = match std::mem::take(&mut self.sweeper) {
            Sweeper::Idle => {
                if setup.fault == Some(DriverFault::SweptBeforeRaised) {
                    let head = Arc::clone(&self.bucket.read().head);
                    let keys = self.garbage(setup, &head, head.revision);
                    self.delete(&keys)?;
                }
                self.raising(Arc::clone(&self.bucket.read().head))
            }
            Sweeper::Raising { if_match, head, first } => {
                match self.try_replace(setup, &if_match, &head)? {
                    PublishReply::Mismatch if !is_lost => self.raising(first),
                    PublishReply::Mismatch
                    | PublishReply::Replaced { .. }
                    | PublishReply::NoAnswer => Sweeper::Raised { first },
                }
            }
            Sweeper::Raised { first } => {
                let now = Arc::clone(&self.bucket.read().head);
                let by_first = setup.fault == Some(DriverFault::SweptByFirstHead);
                let by = if by_first { &first } else { &now };
                Sweeper::Deleting { keys: self.garbage(setup, by, now.sweep_from) }
            }
            Sweeper::Deleting { keys } => {
                self.delete(&keys)?;
                Sweeper::Idle
            }
        };
        Ok(())
    }

    fn raising(&self, first: Arc<Head>) -> Sweeper {
        let observed = self.bucket.read();
        let mut nonce = [0xee; 16];
        nonce[..8].copy_from_slice(&observed.head.revision.get().to_be_bytes());
        let publisher = Publisher { id: "sweeper".into(), nonce: Nonce::from_bytes(nonce) };
        let mut head = Successor::of(&observed.head, publisher).finish();
        head.sweep_from = observed.head.revision;
        Sweeper::Raising { if_match: observed.tag.clone(), head: Arc::new(head), first }
    }

    fn garbage(&self, setup: &Setup, head: &Head, boundary: Revision) -> Vec<ObjectKey> {
        let live: Vec<_> = if setup.fault == Some(DriverFault::ChunksSwept) {
            head.references().map(|it| it.key.clone()).collect()
        } else {
            self.bucket.reachable(head).iter().map(|it| it.key.clone()).collect()
        };
        let is_below = |it: &ObjectKey| {
            it.staged() < boundary
                || setup.fault == Some(DriverFault::SweptAtBoundary) && it.staged() == boundary
        };
        self.bucket.keys().filter(|it| is_below(it) && !live.contains(it)).cloned().collect()
    }

    fn delete(&mut self, keys: &[ObjectKey]) -> Result<(), Broken> {
        let bucket = Arc::make_mut(&mut self.bucket);
        for key in keys {
            bucket.delete(key);
        }
        self.bucket.check_reachable()
    }
}
