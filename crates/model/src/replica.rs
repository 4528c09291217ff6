//! A replica with strong reads: core's rules for following a head, and checks
//! that may overtake one another.

use headwater_core::follow::{FollowError, Plan, Position, Step as Fetch, plan, steps_after};
use headwater_core::head::{Head, ObservedHead};
use headwater_core::id::Tag;
use headwater_core::version::StateVersion;

use crate::promise::{Broken, Promise, ensure};
use crate::setup::{DriverFault, Setup};
use crate::world::World;

/// The replica.
#[derive(Clone, Debug, Default)]
pub struct Replica {
    /// How far it has followed, and the tag of the head that it came to.
    position: Option<(Position, Tag)>,
    /// Reads that no check serves yet: what each must see.
    pub waiting: Vec<StateVersion>,
    /// Checks under way, oldest first.
    pub checks: Vec<Check>,
    /// The newest version that a strong read was served.
    served: StateVersion,
}

/// A freshness check.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Check {
    /// The reads that it serves: what each must see.
    reads: Vec<StateVersion>,
    /// The tag of the local head when it began.
    known: Option<Tag>,
    /// What the store said, once it did.
    pub seen: Option<Seen>,
}

/// What the store said.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Seen {
    /// The head is the one that was known (304).
    Same,
    /// This is the head.
    Head(ObservedHead),
}

/// Checks under way at most.
pub const CHECKS_MAX: usize = 2;

impl std::hash::Hash for Replica {
    fn hash<H: std::hash::Hasher>(&self, hasher: &mut H) {
        let position = self.position.as_ref();
        position.map(|it| (it.0.revision, it.0.version, it.0.chain_hash)).hash(hasher);
        (&self.waiting, &self.checks, self.served).hash(hasher);
    }
}

impl World {
    /// A strong read arrives.
    pub fn read_arrives(&mut self, setup: &Setup) {
        let floor = self.acknowledged().max(self.replica.served);
        match self.replica.checks.last_mut() {
            Some(check) if setup.fault == Some(DriverFault::CheckShared) => check.reads.push(floor),
            Some(_) | None => self.replica.waiting.push(floor),
        }
    }

    /// A check begins, for every read that waits.
    pub fn check_begins(&mut self) {
        let reads = std::mem::take(&mut self.replica.waiting);
        let known = self.replica.position.as_ref().map(|it| it.1.clone());
        self.replica.checks.push(Check { reads, known, seen: None });
    }

    /// The store answers a check; the answer is on its way.
    pub fn check_is_seen(&mut self, at: usize) {
        let now = self.bucket.read();
        let check = &mut self.replica.checks[at];
        let is_same = check.known.as_ref() == Some(&now.tag);
        check.seen = Some(if is_same { Seen::Same } else { Seen::Head(now.clone()) });
    }

    /// A check fails. Its reads wait for another one.
    ///
    /// # Errors
    ///
    /// The promise that this breaks.
    pub fn check_fails(&mut self, setup: &Setup, at: usize) -> Result<(), Broken> {
        let check = self.replica.checks.remove(at);
        if setup.fault == Some(DriverFault::CheckFailureServed) {
            return self.serve(&check.reads);
        }
        self.replica.waiting.extend(check.reads);
        Ok(())
    }

    /// The answer of a check is there: catch up, and serve.
    ///
    /// # Errors
    ///
    /// The promise that this breaks.
    pub fn check_ends(&mut self, at: usize) -> Result<(), Broken> {
        let check = self.replica.checks.remove(at);
        let Some(Seen::Head(observed)) = check.seen else { return self.serve(&check.reads) };
        let head = &observed.head;
        let local = self.replica.position.as_ref().map(|it| &it.0);
        let steps = match local.map(|it| plan(it, head)) {
            Some(Ok(Plan::Extend(steps))) => steps,
            Some(Ok(Plan::Reopen)) | None => steps_after(head.snapshot.version, head),
            // Another check overtook this one, and what it found is newer.
            Some(Err(FollowError::WentBack { seen, found, .. })) if found < seen => {
                return self.serve(&check.reads);
            }
            Some(Err(error)) => {
                let what = format!("an honest head is not followed: {error}");
                return Err(Broken { promise: Promise::WholeVersions, what });
            }
        };
        self.check_leads_to(head, &steps)?;
        if !self.can_fetch(head, &steps) {
            // Compacted and swept meanwhile: the newest head has it all.
            self.replica.waiting.extend(check.reads);
            let is_current = self.bucket.read().tag == observed.tag;
            return ensure(!is_current, Promise::NothingMissing, || {
                "what the current head names cannot be fetched".into()
            });
        }
        self.replica.position = Some((Position::of(head), observed.tag));
        self.serve(&check.reads)
    }

    /// The steps lead, change by change, to what the history really is.
    fn check_leads_to(&self, head: &Head, steps: &[Fetch]) -> Result<(), Broken> {
        let first = steps.first().map(|it| match it {
            Fetch::Inline { version, .. } | Fetch::Change { version, .. } => *version,
            Fetch::Segment { from, .. } => *from,
        });
        let local = self.replica.position.as_ref().map(|it| it.0.version);
        let known = local.filter(|it| head.snapshot.version <= *it);
        let from = known.unwrap_or(head.snapshot.version).next();
        let is_whole = match first {
            Some(first) => first == from,
            None => head.state_version < from,
        };
        ensure(is_whole, Promise::WholeVersions, || {
            format!("{first:?} is fetched first on the way to {}, not {from}", head.state_version)
        })
    }

    fn can_fetch(&self, head: &Head, steps: &[Fetch]) -> bool {
        let has_tail = steps.iter().all(|it| match it {
            Fetch::Inline { .. } => true,
            Fetch::Change { object, .. } => self.bucket.get(object).is_some(),
            Fetch::Segment { run, .. } => self.bucket.get(&run.object).is_some(),
        });
        let local = self.replica.position.as_ref();
        let is_open = local.is_some_and(|it| head.snapshot.version <= it.0.version);
        let snapshot = self.bucket.get(&head.snapshot.object);
        has_tail && (is_open || snapshot.is_some())
    }

    fn serve(&mut self, reads: &[StateVersion]) -> Result<(), Broken> {
        let version = self.replica.position.as_ref().map(|it| it.0.version).unwrap_or_default();
        for floor in reads {
            ensure(*floor <= version, Promise::StrongReads, || {
                format!("served {version}, and {floor} was acknowledged or served before")
            })?;
        }
        if !reads.is_empty() {
            self.replica.served = self.replica.served.max(version);
        }
        Ok(())
    }
}
