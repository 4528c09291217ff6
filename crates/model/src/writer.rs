//! A writer process: core's publisher, and as little of a driver as will do.

use std::any::Any;
use std::collections::VecDeque;
use std::hash::{Hash, Hasher};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use bytes::Bytes;
use headwater_core::decide::Needs;
use headwater_core::format;
use headwater_core::head::{Head, ObjectRef, ObservedHead};
use headwater_core::id::Tag;
use headwater_core::operation::RequestRecord;
use headwater_core::publish::{
    BatchId, Effect, Event, EvidenceUpdate, FoundRecord, Maintenance, Pace, PublishReply,
    Publisher, ReadOutcome, RecordSays, Settings, StagedChange, Ticket, Trouble,
};
use headwater_core::version::StateVersion;

use crate::domain::State;
use crate::promise::{Broken, Promise, ensure};
use crate::setup::{DriverFault, Setup};
use crate::sweeper::{SWEEPS, Sweeper};
use crate::world::{Late, World};

/// One process.
#[derive(Clone, Debug)]
pub struct Writer {
    /// What decides.
    pub publisher: Publisher,
    /// What it asked for and is not done.
    pub works: Vec<Work>,
    /// What the publisher is to be told next of the replacement that is put off,
    /// if one is.
    pub rest: Option<Pace>,
    /// How often its like has died.
    pub life: u8,
    /// The state at the head that was observed.
    view: Arc<State>,
    predicted: Vec<(BatchId, Arc<State>)>,
}

/// Something under way.
#[derive(Clone, Debug)]
#[expect(clippy::large_enum_variant, reason = "few at a time, each moved once")]
pub enum Work {
    /// Read the head.
    Read {
        /// The tag that is known.
        known: Option<Tag>,
    },
    /// The head was read; the reply is on its way.
    ReadReply {
        /// What was found; `None` is no change.
        found: Option<ObservedHead>,
    },
    /// Look facts up.
    Facts {
        /// For this batch.
        batch: BatchId,
        /// What is asked for.
        needs: Needs,
    },
    /// Upload.
    Stage {
        /// For this batch.
        batch: BatchId,
        /// The candidate.
        change: Option<StagedChange>,
        /// Records to create.
        records: Vec<(Ticket, RequestRecord)>,
    },
    /// Uploaded; the reply is on its way.
    StageReply {
        /// For this batch.
        batch: BatchId,
        /// Records that were there before.
        found: Vec<FoundRecord>,
    },
    /// Replace the head.
    Publish {
        /// The condition.
        if_match: Tag,
        /// The new head.
        head: Arc<Head>,
    },
    /// The store is done with it; the reply is on its way.
    PublishReply(PublishReply),
    /// Upload what maintenance made.
    Prepare {
        /// What it made.
        maintenance: Maintenance,
        /// The objects.
        objects: Vec<(ObjectRef, Bytes)>,
    },
}

/// What becomes of one head replacement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fate {
    /// Carried out and answered.
    Answered,
    /// Carried out; the answer takes its time.
    AnswerSlow,
    /// Carried out, the answer is lost.
    AnswerLost,
    /// Carried out; the network sends it once more, and the answer is that of
    /// the second copy.
    Echoed,
    /// Never carried out, and no answer.
    RequestLost,
    /// No answer; carried out later, or never.
    Late,
    /// Carried out and answered; carried out once more later.
    Repeated,
}

impl Writer {
    /// A process that has just started.
    pub fn new(settings: Settings, place: usize, life: u8) -> Self {
        let mut seed = [life; 32];
        seed[0] = u8::try_from(place).unwrap_or(u8::MAX);
        Self {
            publisher: Publisher::new(settings, seed),
            works: Vec::new(),
            rest: None,
            life,
            view: Arc::default(),
            predicted: Vec::new(),
        }
    }

    fn predicted_state(&self) -> &State {
        self.predicted.last().map_or(&self.view, |it| &it.1)
    }
}

impl Hash for Writer {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        (self.life, self.rest).hash(hasher);
        self.publisher.shape(hasher);
        // The states follow from the publisher's heads and batches.
        for work in &self.works {
            std::mem::discriminant(work).hash(hasher);
            match work {
                Work::Read { known } => known.hash(hasher),
                Work::ReadReply { found } => found.hash(hasher),
                // What is asked for follows from the batch.
                Work::Facts { batch, needs: _ } => self.publisher.place_of(*batch).hash(hasher),
                Work::Stage { batch, change, records } => {
                    self.publisher.place_of(*batch).hash(hasher);
                    change.as_ref().map(|it| &it.object).hash(hasher);
                    records.hash(hasher);
                }
                Work::StageReply { batch, found } => {
                    self.publisher.place_of(*batch).hash(hasher);
                    found.len().hash(hasher);
                    for it in found {
                        let says = it.says.as_ref().ok();
                        (it.ticket, says.map(|it| (it.request_hash, it.issued_from))).hash(hasher);
                    }
                }
                Work::Publish { if_match, head } => (if_match, head).hash(hasher),
                Work::PublishReply(reply) => match reply {
                    PublishReply::Replaced { tag } => tag.hash(hasher),
                    PublishReply::Mismatch => 1.hash(hasher),
                    PublishReply::NoAnswer => 2.hash(hasher),
                },
                Work::Prepare { maintenance: _, objects } => {
                    for (object, _) in objects {
                        object.hash(hasher);
                    }
                }
            }
        }
    }
}

fn said(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().cloned();
    text.or_else(|| panic.downcast_ref::<&str>().map(|it| (*it).to_owned())).unwrap_or_default()
}

impl World {
    /// Gives a publisher an event, and does what needs no outside.
    ///
    /// # Errors
    ///
    /// The promise that this breaks.
    pub fn feed(&mut self, setup: &Setup, writer: usize, event: Event) -> Result<(), Broken> {
        let mut events = VecDeque::from([event]);
        while let Some(event) = events.pop_front() {
            let publisher = &mut Arc::make_mut(&mut self.writers[writer]).publisher;
            let effects = catch_unwind(AssertUnwindSafe(|| publisher.on(event)))
                .map_err(|it| Broken { promise: Promise::KeepsGoing, what: said(&*it) })?;
            for effect in effects {
                self.take_effect(setup, writer, effect, &mut events)?;
            }
        }
        Ok(())
    }

    fn take_effect(
        &mut self,
        setup: &Setup,
        index: usize,
        effect: Effect,
        events: &mut VecDeque<Event>,
    ) -> Result<(), Broken> {
        let writer = Arc::make_mut(&mut self.writers[index]);
        match effect {
            Effect::ReadHead { known, .. } => writer.works.push(Work::Read { known }),
            Effect::FindFacts { batch, needs, .. } if setup.has_slow_facts => {
                writer.works.push(Work::Facts { batch, needs });
            }
            Effect::FindFacts { batch, needs, .. } => {
                let facts = writer.predicted_state().facts(&needs);
                events.push_back(Event::FactsFound { batch, facts });
            }
            Effect::Decided { batch, version, change, .. } => {
                let mut state = writer.predicted_state().clone();
                change.operations.iter().for_each(|it| state.apply(version, it));
                writer.predicted.push((batch, Arc::new(state)));
            }
            Effect::Stage { batch, change, records, .. } => {
                writer.works.push(Work::Stage { batch, change, records });
            }
            Effect::Publish { if_match, bytes } => {
                let head = format::head::decode(&bytes).map_err(|error| Broken {
                    promise: Promise::KeepsGoing,
                    what: format!("a head that nobody reads: {error}"),
                })?;
                writer.works.push(Work::Publish { if_match, head: Arc::new(head) });
            }
            Effect::Advanced { observed, batches } => {
                let at = writer.predicted.iter().rposition(|it| batches.contains(&it.0));
                if let Some(at) = at {
                    writer.view = Arc::clone(&writer.predicted[at].1);
                    writer.predicted.drain(..=at);
                }
                let version = observed.head.state_version;
                let is_published =
                    version <= self.bucket.version() && writer.view == *self.bucket.state(version);
                ensure(is_published, Promise::WholeVersions, || {
                    format!("{version} is served and is another state")
                })?;
            }
            Effect::RolledBack { from } => writer.predicted.retain(|it| it.0 < from),
            Effect::Maintained { maintenance, is_applied } => {
                self.sweep_is_told(index, &maintenance, is_applied);
            }
            Effect::Answer { ticket, answer } => self.hear(setup, ticket, &answer)?,
        }
        Ok(())
    }

    /// Carries out one work, as a store and a network that are well.
    ///
    /// # Errors
    ///
    /// The promise that this breaks.
    pub fn carry_out(&mut self, setup: &Setup, index: usize, at: usize) -> Result<(), Broken> {
        let work = Arc::make_mut(&mut self.writers[index]).works.remove(at);
        match work {
            Work::Read { known } => {
                let found = self.head_for(known.as_ref());
                self.deliver_read(setup, index, found)
            }
            Work::ReadReply { found } => self.deliver_read(setup, index, found),
            Work::Facts { batch, needs } => {
                let facts = self.writers[index].predicted_state().facts(&needs);
                self.feed(setup, index, Event::FactsFound { batch, facts })
            }
            Work::Stage { batch, change, records } => {
                let is_early = setup.fault == Some(DriverFault::StagedEarly);
                let found = if is_early {
                    let change = change.map(|it| Late::Put { object: it.object, bytes: it.bytes });
                    self.late.extend(change);
                    self.stage(setup, None, &records)
                } else {
                    self.stage(setup, change.as_ref(), &records)
                };
                self.feed(setup, index, Event::Staged { batch, records: found })
            }
            Work::StageReply { batch, found } => {
                self.feed(setup, index, Event::Staged { batch, records: found })
            }
            Work::Publish { if_match, head } => {
                self.publish(setup, index, &if_match, &head, Fate::Answered)
            }
            Work::PublishReply(reply) => self.feed(setup, index, Event::Published(reply)),
            Work::Prepare { maintenance, objects } => {
                let bucket = Arc::make_mut(&mut self.bucket);
                for (object, bytes) in &objects {
                    bucket.put(object, bytes);
                }
                self.feed(setup, index, Event::Prepared(maintenance))
            }
        }
    }

    /// Carries out one work, whose reply takes its time.
    pub fn carry_out_slowly(&mut self, setup: &Setup, index: usize, at: usize) {
        let work = Arc::make_mut(&mut self.writers[index]).works.remove(at);
        let reply = match work {
            Work::Read { known } => Work::ReadReply { found: self.head_for(known.as_ref()) },
            Work::Stage { batch, change, records } => {
                let found = self.stage(setup, change.as_ref(), &records);
                Work::StageReply { batch, found }
            }
            it @ (Work::ReadReply { .. }
            | Work::Facts { .. }
            | Work::StageReply { .. }
            | Work::Publish { .. }
            | Work::PublishReply(_)
            | Work::Prepare { .. }) => it,
        };
        Arc::make_mut(&mut self.writers[index]).works.push(reply);
    }

    /// One work fails. Of an upload, all or nothing was done before it did.
    ///
    /// # Errors
    ///
    /// The promise that this breaks.
    pub fn fail(
        &mut self,
        setup: &Setup,
        index: usize,
        at: usize,
        is_done: bool,
    ) -> Result<(), Broken> {
        let work = Arc::make_mut(&mut self.writers[index]).works.remove(at);
        let trouble = Trouble::Unavailable;
        let event = match work {
            Work::Read { .. } => Event::HeadRead(ReadOutcome::Failed(trouble)),
            Work::Stage { batch, change, records } => {
                if is_done {
                    self.stage(setup, change.as_ref(), &records);
                }
                Event::StageFailed { batch, trouble }
            }
            Work::ReadReply { .. }
            | Work::Facts { .. }
            | Work::StageReply { .. }
            | Work::Publish { .. }
            | Work::PublishReply(_)
            | Work::Prepare { .. } => return Ok(()),
        };
        self.feed(setup, index, event)
    }

    fn head_for(&self, known: Option<&Tag>) -> Option<ObservedHead> {
        let now = self.bucket.read();
        (known != Some(&now.tag)).then(|| now.clone())
    }

    fn deliver_read(
        &mut self,
        setup: &Setup,
        index: usize,
        found: Option<ObservedHead>,
    ) -> Result<(), Broken> {
        let Some(observed) = found else {
            return self.feed(setup, index, Event::HeadRead(ReadOutcome::Unchanged));
        };
        let head = &observed.head;
        let known = self.writers[index].publisher.observed().map(|it| it.head.state_version);
        let evidence = match known.filter(|it| head.snapshot.version <= *it) {
            Some(known) => {
                let versions = (known.get() + 1..=head.state_version.get()).map(StateVersion::new);
                EvidenceUpdate::Extend(
                    versions.map(|it| (it, self.bucket.receipts_of(it))).collect(),
                )
            }
            None => EvidenceUpdate::Replace(self.bucket.evidence(head)),
        };
        let state = Arc::clone(self.bucket.state(head.state_version));
        Arc::make_mut(&mut self.writers[index]).view = state;
        self.feed(setup, index, Event::HeadRead(ReadOutcome::Found { observed, evidence }))
    }

    /// Makes a candidate and records durable; returns the records that were
    /// there before.
    fn stage(
        &mut self,
        setup: &Setup,
        change: Option<&StagedChange>,
        records: &[(Ticket, RequestRecord)],
    ) -> Vec<FoundRecord> {
        let bucket = Arc::make_mut(&mut self.bucket);
        if let Some(change) = change {
            bucket.put(&change.object, &change.bytes);
        }
        let mut found = Vec::new();
        for (ticket, record) in records {
            let stored = bucket.record(record);
            if stored != record && setup.fault != Some(DriverFault::RecordOverwritten) {
                let says = RecordSays {
                    request_hash: stored.request_hash,
                    issued_from: stored.issued_from,
                };
                found.push(FoundRecord { ticket: *ticket, says: Ok(says) });
            }
        }
        found
    }

    /// The publication that is under way meets its fate.
    ///
    /// # Errors
    ///
    /// The promise that this breaks.
    pub fn publish(
        &mut self,
        setup: &Setup,
        index: usize,
        if_match: &Tag,
        head: &Arc<Head>,
        fate: Fate,
    ) -> Result<(), Broken> {
        let late = || Late::Replace { if_match: if_match.clone(), head: Arc::clone(head) };
        let reply = match fate {
            Fate::Answered => self.try_replace(setup, if_match, head)?,
            Fate::Repeated => {
                let reply = self.try_replace(setup, if_match, head)?;
                self.late.push(late());
                reply
            }
            Fate::AnswerSlow => {
                let reply = self.try_replace(setup, if_match, head)?;
                let works = &mut Arc::make_mut(&mut self.writers[index]).works;
                works.push(Work::PublishReply(reply));
                return Ok(());
            }
            Fate::AnswerLost => {
                self.try_replace(setup, if_match, head)?;
                PublishReply::NoAnswer
            }
            Fate::Echoed => {
                self.try_replace(setup, if_match, head)?;
                self.try_replace(setup, if_match, head)?
            }
            Fate::RequestLost => PublishReply::NoAnswer,
            Fate::Late => {
                self.late.push(late());
                PublishReply::NoAnswer
            }
        };
        if reply == PublishReply::NoAnswer && setup.fault == Some(DriverFault::CandidateDeleted) {
            let named = head.changes.last().map(|it| it.body.clone());
            if let Some(headwater_core::head::ChangeBody::Staged(object)) = named {
                Arc::make_mut(&mut self.bucket).delete(&object.key);
                self.bucket.check_reachable()?;
            }
        }
        // As the driver does: the rest is told before the answer that began it,
        // so that nothing is sent again between the two.
        if reply == PublishReply::NoAnswer && 0 < self.left.rests {
            self.left.rests -= 1;
            Arc::make_mut(&mut self.writers[index]).rest = Some(Pace::Stage);
            self.feed(setup, index, Event::Paced(Pace::Gather))?;
        }
        self.feed(setup, index, Event::Published(reply))
    }

    /// The moment at which the head may be replaced again comes nearer.
    ///
    /// # Errors
    ///
    /// The promise that this breaks.
    pub fn rest_goes_on(&mut self, setup: &Setup, index: usize) -> Result<(), Broken> {
        let writer = Arc::make_mut(&mut self.writers[index]);
        let Some(pace) = writer.rest.take() else { return Ok(()) };
        writer.rest = (pace == Pace::Stage).then_some(Pace::Publish);
        self.feed(setup, index, Event::Paced(pace))
    }

    /// The store carries out a replacement, if its condition holds.
    ///
    /// # Errors
    ///
    /// The promise that this breaks.
    pub fn try_replace(
        &mut self,
        setup: &Setup,
        if_match: &Tag,
        head: &Arc<Head>,
    ) -> Result<PublishReply, Broken> {
        let before = self.bucket.head();
        let (since, epoch) = (before.state_version, before.writer_epoch);
        let Some(tag) = Arc::make_mut(&mut self.bucket).replace(if_match, head)? else {
            return Ok(PublishReply::Mismatch);
        };
        self.check_accepted(setup, since, epoch)?;
        self.check_not_applied(setup)?;
        Ok(PublishReply::Replaced { tag })
    }

    /// The process dies and another one starts. What it sent may still be
    /// carried out.
    pub fn crash(&mut self, setup: &Setup, index: usize) {
        let life = self.writers[index].life + 1;
        let next = Arc::new(Writer::new(setup.settings(index), index, life));
        let last = std::mem::replace(&mut self.writers[index], next);
        for work in &last.works {
            match work {
                Work::Publish { if_match, head } => self
                    .late
                    .push(Late::Replace { if_match: if_match.clone(), head: Arc::clone(head) }),
                Work::Stage { change, records, .. } if setup.has_slow_uploads => {
                    let change = change.clone();
                    self.late
                        .extend(change.map(|it| Late::Put { object: it.object, bytes: it.bytes }));
                    self.late.extend(records.iter().map(|it| Late::Record(it.1.clone())));
                }
                Work::Read { .. }
                | Work::ReadReply { .. }
                | Work::Facts { .. }
                | Work::Stage { .. }
                | Work::StageReply { .. }
                | Work::PublishReply(_)
                | Work::Prepare { .. } => (),
            }
        }
        for client in &mut self.clients {
            client.lose(index);
        }
        if index == SWEEPS {
            self.sweeper = Sweeper::Idle;
        }
    }

    /// A request that nobody waits for is carried out.
    ///
    /// # Errors
    ///
    /// The promise that this breaks.
    pub fn arrive(&mut self, setup: &Setup, at: usize) -> Result<(), Broken> {
        match self.late.remove(at) {
            Late::Replace { if_match, head } => {
                self.try_replace(setup, &if_match, &head)?;
            }
            Late::Put { object, bytes } => Arc::make_mut(&mut self.bucket).put(&object, &bytes),
            Late::Record(record) => {
                Arc::make_mut(&mut self.bucket).record(&record);
            }
        }
        Ok(())
    }
}
