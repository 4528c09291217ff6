//! Publishers over one bucket, moved by hand: each outcome is chosen by the
//! test, and each answer is checked against the bucket when it is given.

use std::collections::{BTreeMap, VecDeque};
use std::string::String;
use std::vec;
use std::vec::Vec;

use bytes::Bytes;

use super::bucket::Bucket;
use super::check;
use super::model::State;
use super::op::Op;
use crate::decide::{Ask, Needs};
use crate::head::{HeadLimits, ObservedHead};
use crate::id::{HistoryId, Tag};
use crate::operation::RequestRecord;
use crate::publish::{
    Answer, BatchId, Control, Effect, Event, EvidenceUpdate, FoundRecord, Maintenance,
    PublishReply, Publisher, ReadOutcome, RecordSays, Settings, StagedChange, SubmitError, Ticket,
    Trouble,
};
use crate::receipt::{Receipt, Window};
use crate::version::StateVersion;

/// Something that a publisher asked for and that is not done yet.
#[derive(Clone, Debug)]
pub(super) enum Work {
    Read {
        known: Option<Tag>,
        failures: u32,
    },
    Facts {
        batch: BatchId,
        needs: Needs,
    },
    Stage {
        batch: BatchId,
        change: Option<StagedChange>,
        records: Vec<(Ticket, RequestRecord)>,
    },
    Publish {
        if_match: Tag,
        bytes: Bytes,
    },
    /// A publication that the store is done with; its answer is on the way.
    Reply(PublishReply),
}

impl Work {
    pub(super) fn kind(&self) -> Kind {
        match self {
            Self::Read { .. } => Kind::Read,
            Self::Facts { .. } => Kind::Facts,
            Self::Stage { .. } => Kind::Stage,
            Self::Publish { .. } => Kind::Publish,
            Self::Reply(_) => Kind::Reply,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Read,
    Facts,
    Stage,
    Publish,
    Reply,
}

/// What becomes of one head replacement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// Carried out and answered.
    Answered,
    /// Carried out; the answer takes its time.
    AnswerSlow,
    /// Carried out, the answer is lost.
    AnswerLost,
    /// Carried out; the network sends it once more, and what is answered is
    /// the second copy.
    Echoed,
    /// Never carried out, and no answer.
    RequestLost,
    /// No answer; carried out when the test says so.
    Late,
}

#[derive(Debug)]
pub(super) struct Writer {
    pub(super) publisher: Publisher,
    pub(super) works: VecDeque<Work>,
    /// The state at the head that was observed.
    view: State,
    predicted: Vec<(BatchId, State)>,
    pub(super) maintained: Vec<(Maintenance, bool)>,
}

/// A question, and where the history was when it was asked.
#[derive(Clone, Debug)]
pub(super) struct Asked {
    pub(super) writer: usize,
    pub(super) question: Question,
    pub(super) version: StateVersion,
}

#[derive(Clone, Debug)]
pub(super) enum Question {
    Ask(Ask),
    Control(Control),
}

#[derive(Debug)]
pub(super) struct Rig {
    pub(super) bucket: Bucket,
    pub(super) writers: Vec<Writer>,
    pub(super) asked: BTreeMap<Ticket, Asked>,
    pub(super) answers: BTreeMap<Ticket, Answer>,
    /// Replacements without an answer that the store has not carried out yet.
    pub(super) late: Vec<(Tag, Bytes)>,
    seeds: u8,
    tickets: u64,
}

pub(super) fn settings() -> Settings {
    Settings {
        publisher_id: "rig".into(),
        address: None,
        batch_operations_max: 8,
        batch_bytes_max: 16 << 10,
        inline_bytes_max: 600,
        beside_bytes_max: 0,
        batches_ahead_max: 4,
        window: Window { versions_max: 100, bytes_max: 1 << 20 },
        head: HeadLimits { soft_bytes: 48 << 10, hard_bytes: 64 << 10 },
    }
}

impl Rig {
    pub(super) fn new() -> Self {
        Self::over(Bucket::new(1, false))
    }

    pub(super) fn over(bucket: Bucket) -> Self {
        Self {
            bucket,
            writers: Vec::new(),
            asked: BTreeMap::new(),
            answers: BTreeMap::new(),
            late: Vec::new(),
            seeds: 0,
            tickets: 0,
        }
    }

    pub(super) fn writer(&mut self) -> usize {
        self.writer_with(settings())
    }

    pub(super) fn writer_with(&mut self, settings: Settings) -> usize {
        let publisher = self.publisher(settings);
        self.writers.push(Writer {
            publisher,
            works: VecDeque::new(),
            view: State::default(),
            predicted: Vec::new(),
            maintained: Vec::new(),
        });
        self.writers.len() - 1
    }

    fn publisher(&mut self, mut settings: Settings) -> Publisher {
        self.seeds += 1;
        // Whoever publishes under one name is one process.
        settings.publisher_id = std::format!("{}-{}", settings.publisher_id, self.seeds);
        Publisher::new(settings, [self.seeds; 32])
    }

    /// The process dies and another one starts. What it was asked stays
    /// unanswered; what it sent may still be carried out.
    pub(super) fn restart(&mut self, writer: usize, settings: Settings) {
        let publisher = self.publisher(settings);
        let Writer { works, .. } = &self.writers[writer];
        for work in works {
            if let Work::Publish { if_match, bytes } = work {
                self.late.push((if_match.clone(), bytes.clone()));
            }
        }
        self.writers[writer] = Writer {
            publisher,
            works: VecDeque::new(),
            view: State::default(),
            predicted: Vec::new(),
            maintained: Vec::new(),
        };
        let answers = &self.answers;
        self.asked.retain(|ticket, it| it.writer != writer || answers.contains_key(ticket));
    }

    pub(super) fn submit(&mut self, writer: usize, op: &Op) -> Ticket {
        self.ask(writer, op.ask())
    }

    pub(super) fn ask(&mut self, writer: usize, ask: Ask) -> Ticket {
        self.ask_all(writer, [ask])[0]
    }

    /// Asks that arrive together.
    pub(super) fn ask_all(
        &mut self,
        writer: usize,
        asks: impl IntoIterator<Item = Ask>,
    ) -> Vec<Ticket> {
        let questions = asks.into_iter().map(Question::Ask).collect();
        self.put_questions(writer, questions)
    }

    pub(super) fn submit_all(&mut self, writer: usize, ops: &[Op]) -> Vec<Ticket> {
        self.ask_all(writer, ops.iter().map(Op::ask))
    }

    pub(super) fn control(&mut self, writer: usize, control: Control) -> Ticket {
        self.put_questions(writer, vec![Question::Control(control)])[0]
    }

    fn put_questions(&mut self, writer: usize, questions: Vec<Question>) -> Vec<Ticket> {
        let version = self.bucket.version();
        let mut tickets = Vec::new();
        let mut events = Vec::new();
        for question in questions {
            let ticket = Ticket(self.tickets);
            self.tickets += 1;
            self.asked.insert(ticket, Asked { writer, question: question.clone(), version });
            tickets.push(ticket);
            events.push(match question {
                Question::Ask(ask) => Event::Asked { ticket, ask, asked_at_ms: 0 },
                Question::Control(control) => Event::Controlled { ticket, control },
            });
        }
        let effects = self.writers[writer].publisher.on_all(events);
        self.take_effects(writer, effects);
        tickets
    }

    pub(super) fn expire(&mut self, writer: usize, ticket: Ticket) {
        self.on(writer, Event::Expired { ticket });
    }

    /// In two steps where a driver takes two.
    pub(super) fn on(&mut self, writer: usize, event: Event) {
        let publisher = &mut self.writers[writer].publisher;
        let is_success = matches!(event, Event::Published(PublishReply::Replaced { .. }));
        let effects = if is_success && publisher.is_next_ready() {
            let mut effects = publisher.on_first(event);
            effects.extend(publisher.on_all([]));
            effects
        } else {
            publisher.on(event)
        };
        self.take_effects(writer, effects);
    }

    fn take_effects(&mut self, index: usize, effects: Vec<Effect>) {
        for effect in effects {
            let writer = &mut self.writers[index];
            let is_under_way = |kind| writer.works.iter().any(|it| it.kind() == kind);
            match effect {
                Effect::ReadHead { known, failures } => {
                    assert!(!is_under_way(Kind::Read), "one read at a time");
                    assert!(!is_under_way(Kind::Publish), "no read while publishing");
                    assert!(!is_under_way(Kind::Reply), "no read while publishing");
                    writer.works.push_back(Work::Read { known, failures });
                }
                Effect::FindFacts { batch, needs, failures: _ } => {
                    writer.works.push_back(Work::Facts { batch, needs });
                }
                Effect::Decided { batch, version, change, hash: _, bytes: _ } => {
                    let mut state = writer.predicted_state().clone();
                    change.operations.iter().for_each(|it| state.apply(version, it));
                    writer.predicted.push((batch, state));
                }
                Effect::Stage { batch, change, records, failures: _ } => {
                    writer.works.push_back(Work::Stage { batch, change, records });
                }
                Effect::Publish { if_match, bytes } => {
                    assert!(!is_under_way(Kind::Read), "no publication while reading");
                    assert!(!is_under_way(Kind::Publish), "one publication at a time");
                    assert!(!is_under_way(Kind::Reply), "one publication at a time");
                    writer.works.push_back(Work::Publish { if_match, bytes });
                }
                Effect::Advanced { observed, batches } => {
                    assert!(self.bucket.is_revision(&observed), "served only what is published");
                    if let Some(at) =
                        writer.predicted.iter().rposition(|it| batches.contains(&it.0))
                    {
                        writer.view = writer.predicted[at].1.clone();
                        writer.predicted.drain(..=at);
                    }
                    let version = observed.head.state_version;
                    assert_eq!(writer.view, *self.bucket.state(version), "at {version}");
                }
                Effect::RolledBack { from } => writer.predicted.retain(|it| it.0 < from),
                Effect::Maintained { maintenance, is_applied } => {
                    writer.maintained.push((maintenance, is_applied));
                }
                Effect::Answer { ticket, answer } => {
                    let asked = self.asked.get(&ticket).expect("an answer is to a question");
                    check::check_answer(&self.bucket, asked, &answer);
                    let before = self.answers.insert(ticket, answer);
                    assert_eq!(before, None, "one answer for each question");
                }
            }
        }
    }

    /// Takes the oldest work of a kind.
    pub(super) fn take(&mut self, writer: usize, kind: Kind) -> Work {
        let works = &mut self.writers[writer].works;
        let at = works.iter().position(|it| it.kind() == kind);
        works.remove(at.unwrap_or_else(|| panic!("no {kind:?} under way"))).unwrap()
    }

    pub(super) fn has(&self, writer: usize, kind: Kind) -> bool {
        self.writers[writer].works.iter().any(|it| it.kind() == kind)
    }

    /// Carries out everything but `held`, until nothing else is left.
    pub(super) fn run_but(&mut self, writer: usize, held: &[Kind]) {
        for _ in 0..100_000 {
            let works = &mut self.writers[writer].works;
            let Some(at) = works.iter().position(|it| !held.contains(&it.kind())) else { return };
            let work = works.remove(at).unwrap();
            self.carry_out(writer, work);
        }
        panic!("the publisher does not come to rest");
    }

    /// Carries out everything, until nothing is left.
    pub(super) fn run(&mut self, writer: usize) {
        self.run_but(writer, &[]);
    }

    pub(super) fn carry_out(&mut self, writer: usize, work: Work) {
        match work {
            Work::Read { known, .. } => self.read(writer, known.as_ref()),
            Work::Facts { batch, needs } => {
                let facts = self.writers[writer].predicted_state().facts(&needs);
                self.on(writer, Event::FactsFound { batch, facts });
            }
            Work::Stage { batch, change, records } => {
                let records = self.stage(change.as_ref(), &records);
                self.on(writer, Event::Staged { batch, records });
            }
            Work::Publish { if_match, bytes } => {
                self.replace(writer, &if_match, &bytes, Fate::Answered);
            }
            Work::Reply(reply) => self.on(writer, Event::Published(reply)),
        }
    }

    fn read(&mut self, writer: usize, known: Option<&Tag>) {
        let Some(observed) = self.bucket.read() else {
            return self.on(writer, Event::HeadRead(ReadOutcome::Missing));
        };
        if known == Some(&observed.tag) {
            return self.on(writer, Event::HeadRead(ReadOutcome::Unchanged));
        }
        let observed = observed.clone();
        let evidence = self.evidence(writer, &observed);
        self.writers[writer].view = self.bucket.state(observed.head.state_version).clone();
        self.on(writer, Event::HeadRead(ReadOutcome::Found { observed, evidence }));
    }

    /// What a driver would have fetched: the tail after what it knows, or all.
    fn evidence(&self, writer: usize, found: &ObservedHead) -> EvidenceUpdate {
        let head = &found.head;
        let known = self.writers[writer].publisher.observed().map(|it| &it.head).filter(|it| {
            it.history_id == head.history_id && head.snapshot.version <= it.state_version
        });
        let Some(known) = known else {
            return EvidenceUpdate::Replace(self.bucket.evidence(head));
        };
        let versions = known.state_version.get() + 1..=head.state_version.get();
        let of = |it| (StateVersion::new(it), self.bucket.receipts_of(StateVersion::new(it)));
        EvidenceUpdate::Extend(versions.map(of).collect())
    }

    /// Makes a candidate and records durable; returns the records that were
    /// there before.
    pub(super) fn stage(
        &mut self,
        change: Option<&StagedChange>,
        records: &[(Ticket, RequestRecord)],
    ) -> Vec<FoundRecord> {
        if let Some(change) = change {
            self.bucket.put(&change.object, &change.bytes);
        }
        let mut found = Vec::new();
        for (ticket, record) in records {
            let stored = self.bucket.records.entry(record.operation_id.clone());
            let stored = stored.or_insert_with(|| record.clone());
            if stored != record {
                let says = RecordSays {
                    request_hash: stored.request_hash,
                    issued_from: stored.issued_from,
                };
                found.push(FoundRecord { ticket: *ticket, says: Ok(says) });
            }
        }
        found
    }

    fn replace(&mut self, writer: usize, if_match: &Tag, bytes: &Bytes, fate: Fate) {
        let reply = match fate {
            Fate::Answered => self.try_replace(if_match, bytes),
            Fate::AnswerSlow => {
                let reply = self.try_replace(if_match, bytes);
                return self.writers[writer].works.push_back(Work::Reply(reply));
            }
            Fate::AnswerLost => {
                self.bucket.replace(if_match, bytes);
                PublishReply::NoAnswer
            }
            Fate::Echoed => {
                self.bucket.replace(if_match, bytes);
                self.try_replace(if_match, bytes)
            }
            Fate::RequestLost => PublishReply::NoAnswer,
            Fate::Late => {
                self.late.push((if_match.clone(), bytes.clone()));
                PublishReply::NoAnswer
            }
        };
        self.on(writer, Event::Published(reply));
    }

    fn try_replace(&mut self, if_match: &Tag, bytes: &Bytes) -> PublishReply {
        match self.bucket.replace(if_match, bytes) {
            Some(tag) => PublishReply::Replaced { tag },
            None => PublishReply::Mismatch,
        }
    }

    /// Decides what becomes of the publication that is in flight.
    pub(super) fn publish(&mut self, writer: usize, fate: Fate) {
        let Work::Publish { if_match, bytes } = self.take(writer, Kind::Publish) else {
            unreachable!()
        };
        self.replace(writer, &if_match, &bytes, fate);
    }

    /// The store gets round to a replacement that it never answered. Whether
    /// it was carried out is up to the condition.
    pub(super) fn apply_late(&mut self) -> bool {
        let (if_match, bytes) = self.late.remove(0);
        self.bucket.replace(&if_match, &bytes).is_some()
    }

    pub(super) fn fail(&mut self, writer: usize, kind: Kind, trouble: Trouble) {
        let event = match self.take(writer, kind) {
            Work::Read { .. } => Event::HeadRead(ReadOutcome::Failed(trouble)),
            Work::Facts { batch, .. } => Event::FactsFailed { batch, trouble },
            Work::Stage { batch, .. } => Event::StageFailed { batch, trouble },
            Work::Publish { .. } | Work::Reply(_) => panic!("a publication has a fate"),
        };
        self.on(writer, event);
    }

    /// Another process commits, and nobody here is told.
    pub(super) fn commit_elsewhere(&mut self, op: &Op) -> Ticket {
        let other = self.writer();
        let ticket = self.submit(other, op);
        self.run(other);
        self.receipt(ticket);
        ticket
    }

    /// The history is deleted, and another one gets its name.
    pub(super) fn recreate(&mut self, history: u8) -> HistoryId {
        self.bucket = Bucket::new(history, false);
        self.bucket.head().history_id
    }

    pub(super) fn answer(&self, ticket: Ticket) -> &Answer {
        self.answers.get(&ticket).unwrap_or_else(|| panic!("{ticket:?} has no answer"))
    }

    pub(super) fn is_answered(&self, ticket: Ticket) -> bool {
        self.answers.contains_key(&ticket)
    }

    pub(super) fn receipt(&self, ticket: Ticket) -> &Receipt {
        match self.answer(ticket) {
            Answer::Accepted { receipt, .. } => receipt,
            other => panic!("{ticket:?} was not accepted: {other:?}"),
        }
    }

    pub(super) fn error(&self, ticket: Ticket) -> &SubmitError {
        match self.answer(ticket) {
            Answer::Failed(error) => error,
            other => panic!("{ticket:?} did not fail: {other:?}"),
        }
    }

    pub(super) fn ids(&self) -> Vec<String> {
        self.bucket.ids()
    }
}

impl Writer {
    fn predicted_state(&self) -> &State {
        self.predicted.last().map_or(&self.view, |it| &it.1)
    }
}
