//! The sweep of PROTOCOL 7, in its order: raise the boundary, read the head
//! again, delete, record it. What may be deleted is core's decision; the heads
//! go through the publisher of one of the writers.

use std::collections::BTreeSet;
use std::sync::Arc;

use headwater_core::format;
use headwater_core::head::{Head, ObjectRef};
use headwater_core::keys::{ObjectKey, ObjectKind};
use headwater_core::publish::{Event, Maintenance};
use headwater_core::sweep::Sweep;
use headwater_core::version::Revision;

use crate::promise::Broken;
use crate::setup::{DriverFault, Setup};
use crate::world::World;

/// The writer that sweeps.
pub const SWEEPS: usize = 0;

/// Where a sweep is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub enum Sweeper {
    /// None is under way.
    #[default]
    Idle,
    /// The publisher is to raise the boundary.
    Raising {
        /// The head with which the sweep began.
        first: Arc<Head>,
    },
    /// It was raised.
    Raised {
        /// The head with which the sweep began.
        first: Arc<Head>,
    },
    /// The head was read again.
    Deleting {
        /// What is to go.
        keys: Vec<ObjectKey>,
        /// What of it goes by name.
        released: Vec<ObjectKey>,
        /// The boundary.
        below: Revision,
    },
    /// The publisher is to record what was swept.
    Recording,
}

impl World {
    /// Whether there is a boundary to raise.
    pub fn can_sweep(&self) -> bool {
        let observed = self.writers[SWEEPS].publisher.observed();
        observed.is_some_and(|it| it.head.sweep_from < it.head.revision)
    }

    /// The publisher is done with a part of a sweep, one way or the other. If it
    /// did not get it published, the next sweep does it all again.
    pub fn sweep_is_told(&mut self, writer: usize, about: &Maintenance, is_applied: bool) {
        if writer != SWEEPS {
            return;
        }
        self.sweeper = match (std::mem::take(&mut self.sweeper), about) {
            (Sweeper::Raising { first }, Maintenance::RaiseSweep { .. }) if is_applied => {
                Sweeper::Raised { first }
            }
            (Sweeper::Raising { .. }, Maintenance::RaiseSweep { .. })
            | (Sweeper::Recording, Maintenance::Swept { .. }) => Sweeper::Idle,
            (it, _) => it,
        };
    }

    /// The next step of a sweep.
    ///
    /// # Errors
    ///
    /// The promise that this breaks.
    pub fn sweep(&mut self, setup: &Setup) -> Result<(), Broken> {
        match std::mem::take(&mut self.sweeper) {
            Sweeper::Idle => {
                let observed = self.writers[SWEEPS].publisher.observed();
                let Some(first) = observed.map(|it| Arc::clone(&it.head)) else { return Ok(()) };
                let sweep_from = first.revision;
                if setup.fault == Some(DriverFault::SweptBeforeRaised) {
                    let (keys, _) = self.garbage(setup, &Head { sweep_from, ..(*first).clone() });
                    self.delete(&keys)?;
                }
                self.sweeper = Sweeper::Raising { first };
                let raise = Maintenance::RaiseSweep { sweep_from };
                self.feed(setup, SWEEPS, Event::Prepared(raise))
            }
            Sweeper::Raised { first } => {
                let now = Arc::clone(&self.bucket.read().head);
                let below = now.sweep_from;
                let by = match setup.fault {
                    Some(DriverFault::SweptByFirstHead) => {
                        Head { sweep_from: below, ..(*first).clone() }
                    }
                    Some(DriverFault::SweptAtBoundary) => {
                        Head { sweep_from: below.next(), ..(*now).clone() }
                    }
                    Some(_) | None => (*now).clone(),
                };
                let (keys, released) = self.garbage(setup, &by);
                self.sweeper = Sweeper::Deleting { keys, released, below };
                Ok(())
            }
            Sweeper::Deleting { keys, released, below } => {
                self.delete(&keys)?;
                self.record(setup, &released, below)
            }
            it @ (Sweeper::Raising { .. } | Sweeper::Recording) => {
                self.sweeper = it;
                Ok(())
            }
        }
    }

    /// What may be deleted by what `head` says, and which of it by name.
    fn garbage(&self, setup: &Setup, head: &Head) -> (Vec<ObjectKey>, Vec<ObjectKey>) {
        let mut sweep = Sweep::of(head, &self.bucket.archive(head), false);
        if setup.fault != Some(DriverFault::ChunksSwept) {
            for snapshot in sweep.snapshots().to_vec() {
                for chunk in self.bucket.chunks(&snapshot) {
                    sweep.reach(chunk.object.key);
                }
            }
        }
        let is_listed = |it: &&ObjectKey| sweep.lists_from(it.kind()) <= it.staged();
        let listed = self.bucket.keys().filter(is_listed);
        let released = sweep.released().to_vec();
        let keys = listed.filter(|it| sweep.judge(it).is_deletable()).chain(&released);
        (keys.cloned().collect(), released)
    }

    fn delete(&mut self, keys: &[ObjectKey]) -> Result<(), Broken> {
        let bucket = Arc::make_mut(&mut self.bucket);
        for key in keys {
            bucket.delete(key);
        }
        self.bucket.check_reachable()
    }

    /// Writes the archive without what was deleted by name, and has the head
    /// say how far it is swept.
    fn record(
        &mut self,
        setup: &Setup,
        released: &[ObjectKey],
        swept_to: Revision,
    ) -> Result<(), Broken> {
        let observed = self.writers[SWEEPS].publisher.observed();
        let Some(head) = observed.map(|it| Arc::clone(&it.head)) else { return Ok(()) };
        let is_there = head.archive.as_ref().is_none_or(|it| self.bucket.get(&it.object).is_some());
        if !is_there {
            // Another head has another archive by now.
            return Ok(());
        }
        let deleted: BTreeSet<_> = released.iter().cloned().collect();
        let rest = self.bucket.archive(&head).without_released(&deleted);
        let update = rest.map(|rest| {
            let object = (!rest.is_empty()).then(|| {
                let bytes = format::archive::encode(&rest);
                let object = ObjectRef::to_content(ObjectKind::Archive, head.revision, &bytes);
                Arc::make_mut(&mut self.bucket).put(&object, &bytes.into());
                object
            });
            rest.as_update(&head, object)
        });
        self.sweeper = Sweeper::Recording;
        self.feed(setup, SWEEPS, Event::Prepared(Maintenance::Swept { swept_to, update }))
    }
}
