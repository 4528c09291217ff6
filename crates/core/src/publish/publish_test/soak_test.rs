//! Thousands of random schedules: publishers that race, restart and give up,
//! over a store that loses, delays and fails, with maintenance and sweeps in
//! between.
//!
//! Each answer is checked when it is given ([`check::check_answer`]) and each
//! head when it is published ([`super::bucket`]); the rest at the end. A
//! failure names the seed of its schedule.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::vec::Vec;

use super::bucket::Bucket;
use super::check;
use super::dice::Dice;
use super::maintain;
use super::op::{Op, key, look_up, range, version};
use super::rig::{Fate, Kind, Rig, Work, settings};
use crate::hash::ContentHash;
use crate::head::HeadLimits;
use crate::head::Retention;
use crate::id::PinName;
use crate::operation::{Issue, Mutation, Operation, Precondition};
use crate::publish::{
    Answer, Control, Determinacy, Event, Maintenance, NewPin, Pace, Settings, SubmitError, Ticket,
    Trouble,
};
use crate::receipt::Window;
use crate::version::StateVersion;

const SCHEDULES: u64 = 2000;
const STEPS: usize = 160;

struct Soak {
    dice: Dice,
    rig: Rig,
    settings: Vec<Settings>,
    /// What clients have submitted, each under one id for ever.
    ops: Vec<Op>,
    submissions: Vec<Submission>,
    sweeps: u8,
    planned: Option<maintain::Planned>,
}

struct Submission {
    op: usize,
    ticket: Ticket,
    /// Its process died, and nobody knows.
    is_orphan: bool,
}

impl Soak {
    fn new(seed: u64) -> Self {
        let mut dice = Dice::new(seed);
        let mut rig = Rig::over(Bucket::new(1, dice.once_in(3)));
        let window = random_window(&mut dice);
        let settings: Vec<_> = (0..=dice.below(3))
            .map(|_| {
                let window = if dice.once_in(5) { random_window(&mut dice) } else { window };
                random_settings(&mut dice, window)
            })
            .collect();
        for it in &settings {
            rig.writer_with(it.clone());
        }
        Self {
            dice,
            rig,
            settings,
            ops: Vec::new(),
            submissions: Vec::new(),
            sweeps: 100,
            planned: None,
        }
    }

    fn run(&mut self) {
        for _ in 0..STEPS {
            self.step();
        }
        self.calm_down();
        self.check();
    }

    fn step(&mut self) {
        let writer = self.dice.below(self.settings.len());
        match self.dice.below(40) {
            0..8 => self.submit_new(writer),
            8..10 => self.submit_again(writer),
            10 => self.look_up(writer),
            11 => self.expire(writer),
            12 if self.dice.once_in(3) => self.restart(writer),
            13 | 16 => self.maintain(writer),
            17 if self.dice.once_in(2) => self.keep_or_release(writer),
            14 if self.rig.bucket.head().is_exclusive && self.dice.once_in(3) => {
                let expected = self.rig.bucket.head().writer_epoch;
                let expected = Some(expected).filter(|_| self.dice.once_in(2));
                self.rig.control(writer, Control::RaiseWriterEpoch { expected });
            }
            15 => self.arrive_late(),
            19 => {
                let pace = self.dice.pick(&[Pace::Gather, Pace::Stage, Pace::Publish]);
                self.rig.on(writer, Event::Paced(pace));
            }
            _ => self.work(writer),
        }
    }

    fn submit_new(&mut self, writer: usize) {
        let count = 1 + self.dice.below(3);
        let first = self.ops.len();
        for _ in 0..count {
            let op = self.new_op();
            self.ops.push(op);
            // Sometimes twice in one go.
            if self.dice.once_in(8) {
                let op = self.ops.last().unwrap().clone();
                self.ops.push(op);
            }
        }
        let tickets = self.rig.submit_all(writer, &self.ops[first..]);
        for (ticket, op) in tickets.into_iter().zip(first..) {
            self.submissions.push(Submission { op, ticket, is_orphan: false });
        }
    }

    fn new_op(&mut self) -> Op {
        let now = self.rig.bucket.version().get();
        let mut op = Op::new(std::format!("op-{}", self.ops.len()));
        op.issue = match self.dice.below(6) {
            0 => Op::new("x").service_kept().issue,
            1 => Issue::ClientKept(version(now + 1)),
            2 => Issue::ClientKept(version(now.saturating_sub(2))),
            _ => Issue::ClientKept(version(now)),
        };
        if self.rig.bucket.head().is_exclusive {
            op.writer_epoch = self.rig.bucket.head().writer_epoch;
        }
        let keys = ["a", "b", "c", "d"];
        for _ in 0..self.dice.below(3) {
            let at = key(self.dice.pick(&keys));
            let since = version(now.saturating_sub(self.dice.below(3) as u64));
            op = op.when(match self.dice.below(7) {
                0 => Precondition::KeyExists(at),
                1 => Precondition::KeyAbsent(at),
                2 => Precondition::KeyAtVersion(at, since),
                3 => Precondition::KeyUnchangedSince(at, since),
                4 => {
                    Precondition::RangeUnchangedSince(range("a", self.dice.pick(&keys[1..])), since)
                }
                5 => Precondition::ValueEquals(at, "v".into()),
                _ => Precondition::ValueHashEquals(at, ContentHash::of(b"v")),
            });
        }
        for _ in 0..=self.dice.below(3) {
            let at = self.dice.pick(&keys);
            op = match self.dice.below(8) {
                0 => op.put(at, "v"),
                1 => {
                    op.mutations.push(Mutation::Delete(key(at)));
                    op
                }
                2 => {
                    op.mutations.push(Mutation::DeleteRange(range("b", "d")));
                    op
                }
                3 => op.put("large", &"x".repeat(300)),
                _ => op.add(self.dice.pick(&["n", "m", "a"]), 1),
            };
        }
        op
    }

    /// A client that does not know the outcome comes back, perhaps to another
    /// process, with what it sent before. Now and then one mixes its ids up.
    fn submit_again(&mut self, writer: usize) {
        if self.ops.is_empty() {
            return;
        }
        let mut op = self.dice.below(self.ops.len());
        if self.dice.once_in(10) {
            let mut other = self.new_op();
            other.id = self.ops[op].id.clone();
            other.issue = self.ops[op].issue;
            op = self.ops.len();
            self.ops.push(other);
        }
        let ticket = self.rig.submit(writer, &self.ops[op].clone());
        self.submissions.push(Submission { op, ticket, is_orphan: false });
    }

    /// Looks up what was sent, as its sender would: from its issue version, or
    /// from its record. Where there is no record, it cannot have been published
    /// yet.
    fn look_up(&mut self, writer: usize) {
        if self.ops.is_empty() {
            return;
        }
        let op = &self.ops[self.dice.below(self.ops.len())];
        let issued_from = match op.issue {
            Issue::ClientKept(issued_from) => issued_from,
            Issue::ServiceKept { .. } => {
                let record = self.rig.bucket.records.get(&op.id());
                record.map_or(self.rig.bucket.version(), |it| it.issued_from)
            }
        };
        self.rig.ask(writer, look_up(&op.id, issued_from.get()));
    }

    fn expire(&mut self, writer: usize) {
        let of = |it: &&Ticket| self.rig.asked[it].writer == writer && !self.rig.is_answered(**it);
        let open: Vec<_> = self.rig.asked.keys().filter(of).copied().collect();
        if !open.is_empty() {
            let ticket = self.dice.pick(&open);
            self.rig.expire(writer, ticket);
        }
    }

    fn restart(&mut self, writer: usize) {
        self.rig.restart(writer, self.settings[writer].clone());
        let rig = &self.rig;
        for it in &mut self.submissions {
            it.is_orphan |= !rig.asked.contains_key(&it.ticket);
        }
    }

    fn maintain(&mut self, writer: usize) {
        let bucket = &mut self.rig.bucket;
        match self.dice.below(6) {
            0 => {
                self.sweeps = self.sweeps.wrapping_add(1);
                if self.sweeps.is_multiple_of(2) {
                    maintain::raise_sweep_boundary(bucket, self.sweeps);
                } else {
                    let publisher = &self.rig.writers[writer].publisher;
                    let Some(head) = publisher.observed().map(|it| it.head.clone()) else { return };
                    let sweep_from = head.revision;
                    let raise = Maintenance::RaiseSweep { sweep_from };
                    self.rig.on(writer, Event::Prepared(raise));
                }
            }
            // Planned now, carried out whenever.
            1 => {
                if let Some(planned) = self.planned.take() {
                    let swept = maintain::carry_out(bucket, &planned);
                    self.rig.on(writer, Event::Prepared(swept));
                } else {
                    self.planned = Some(maintain::plan_sweep(bucket, false));
                }
            }
            2 => self.keep_or_release(writer),
            kind => {
                let publisher = &self.rig.writers[writer].publisher;
                let Some(head) = publisher.observed().map(|it| it.head.clone()) else { return };
                // Two snapshots in a row may both say that nothing is kept.
                if head.changes.is_empty() {
                    return;
                }
                let count = 1 + self.dice.below(head.changes.len());
                // What the head named may be gone: then there is nothing to do.
                let has_all = head.references().all(|it| bucket.objects.contains_key(&it.key));
                if !has_all {
                    return;
                }
                let maintenance = if kind == 3 {
                    maintain::fold(bucket, &head, count)
                } else {
                    let version = head.changes[count - 1].version;
                    let pages = head.receipt_pages.iter().map(|it| it.from);
                    let starts: Vec<_> = pages.chain([head.tail_from()]).collect();
                    let from = self.dice.pick(&starts);
                    maintain::compact_with_pages(bucket, &head, version, from)
                };
                self.rig.on(writer, Event::Prepared(maintenance));
            }
        }
    }

    fn keep_or_release(&mut self, writer: usize) {
        let bucket = &mut self.rig.bucket;
        let publisher = &self.rig.writers[writer].publisher;
        let Some(head) = publisher.observed().map(|it| it.head.clone()) else { return };
        let name = PinName::parse(self.dice.pick(&["p", "q"])).unwrap();
        let control = match self.dice.below(4) {
            0 => {
                let newest = head.state_version.get();
                let version = newest.saturating_sub(self.dice.below(5) as u64);
                let version = Some(StateVersion::new(version)).filter(|_| self.dice.once_in(2));
                Control::Pin(NewPin { name, version, expires_at_ms: None, child: None })
            }
            1 => Control::Unpin { name, child: None },
            2 => {
                let versions = self.dice.below(8) as u64;
                Control::SetRetention(Retention { versions, age_ms: 0 })
            }
            _ => {
                if head.references().all(|it| bucket.objects.contains_key(&it.key)) {
                    let release = maintain::release(bucket, &head);
                    self.rig.on(writer, Event::Prepared(release));
                }
                return;
            }
        };
        self.rig.control(writer, control);
    }

    fn arrive_late(&mut self) {
        if !self.rig.late.is_empty() {
            let at = self.dice.below(self.rig.late.len());
            self.rig.late.swap(0, at);
            self.rig.apply_late();
        }
    }

    fn work(&mut self, writer: usize) {
        let count = self.rig.writers[writer].works.len();
        if count == 0 {
            return;
        }
        let at = self.dice.below(count);
        let kind = self.rig.writers[writer].works[at].kind();
        if kind == Kind::Publish {
            let fates =
                [Fate::AnswerSlow, Fate::AnswerLost, Fate::Echoed, Fate::RequestLost, Fate::Late];
            let fate = if self.dice.once_in(2) { self.dice.pick(&fates) } else { Fate::Answered };
            return self.rig.publish(writer, fate);
        }
        let work = self.rig.writers[writer].works.remove(at).unwrap();
        if kind == Kind::Reply || !self.dice.once_in(5) {
            return self.rig.carry_out(writer, work);
        }
        let trouble = Trouble::Unavailable;
        let event = match work {
            Work::Read { .. } => Event::HeadRead(crate::publish::ReadOutcome::Failed(trouble)),
            Work::Facts { batch, .. } => Event::FactsFailed { batch, trouble },
            Work::Stage { batch, change, records } => {
                // Some of it may have become durable.
                let count = self.dice.below(records.len() + 1);
                let change = change.filter(|_| self.dice.once_in(2));
                self.rig.stage(change.as_ref(), &records[..count]);
                Event::StageFailed { batch, trouble }
            }
            Work::Publish { .. } | Work::Reply(_) => unreachable!(),
        };
        self.rig.on(writer, event);
    }

    /// The faults end: everything that is asked gets its answer.
    fn calm_down(&mut self) {
        for writer in 0..self.settings.len() {
            self.rig.on(writer, Event::Paced(Pace::Publish));
        }
        for _ in 0..2 {
            for writer in 0..self.settings.len() {
                self.rig.run(writer);
            }
            while !self.rig.late.is_empty() {
                self.rig.apply_late();
            }
        }
        for (ticket, asked) in &self.rig.asked {
            assert!(self.rig.is_answered(*ticket), "{ticket:?} {asked:?} has no answer");
        }
        for writer in &self.rig.writers {
            assert!(writer.publisher.is_idle());
        }
    }

    fn check(&mut self) {
        maintain::check_clean(&mut self.rig.bucket, 99);
        let operations: Vec<Operation> = self.ops.iter().map(Op::operation).collect();
        check::check_history(&self.rig.bucket, &operations);
        for operation in &operations {
            self.check_outcomes(operation, &operations);
        }
    }

    /// What the callers of one operation were told, all together.
    fn check_outcomes(&self, operation: &Operation, operations: &[Operation]) {
        let is_it = |it: &&Submission| operations[it.op] == *operation;
        let accepted: Vec<_> = self
            .rig
            .bucket
            .accepted(&operation.id)
            .into_iter()
            .filter(|it| it.request_hash == operation.request_hash)
            .collect();
        let mut may_be_applied = false;
        let mut told = Vec::new();
        for submission in self.submissions.iter().filter(is_it) {
            if submission.is_orphan {
                may_be_applied = true;
                continue;
            }
            let answer = self.rig.answer(submission.ticket);
            told.push((submission.ticket, answer));
            match answer {
                Answer::Accepted { receipt, .. } => {
                    assert_eq!(accepted, core::slice::from_ref(receipt));
                    may_be_applied = true;
                }
                Answer::Unknown { .. } => may_be_applied = true,
                Answer::Rejected { .. } => (),
                Answer::Failed(error) => {
                    may_be_applied |= error.determinacy() == Determinacy::MaybeApplied;
                }
                other => panic!("{other:?}"),
            }
        }
        assert!(
            may_be_applied || accepted.is_empty(),
            "{operation:?} was applied as {accepted:?}, but its callers were told {told:?}"
        );
    }
}

fn random_window(dice: &mut Dice) -> Window {
    Window {
        versions_max: dice.pick(&[1, 3, 1000, 1000, 1000]),
        bytes_max: dice.pick(&[0, 1 << 20, 1 << 20, 1 << 20, 1 << 20]),
    }
}

fn random_settings(dice: &mut Dice, window: Window) -> Settings {
    Settings {
        batch_operations_max: 1 + dice.below(5),
        inline_bytes_max: dice.pick(&[0, 150, 400, 2000]),
        beside_bytes_max: dice.pick(&[0, 0, 1_000, 4_000]),
        batches_ahead_max: 1 + dice.below(4),
        window,
        head: HeadLimits {
            soft_bytes: dice.pick(&[0, 1500, 10_000]),
            hard_bytes: dice.pick(&[2500, 20_000, 20_000]),
        },
        ..settings()
    }
}

fn kind(answer: &Answer) -> &'static str {
    match answer {
        Answer::Accepted { is_from_receipt: false, .. } => "accepted",
        Answer::Accepted { is_from_receipt: true, .. } => "accepted before",
        Answer::Rejected { .. } => "rejected",
        Answer::Unknown { .. } => "unknown",
        Answer::NotAccepted { .. } => "not accepted",
        Answer::WriterEpochRaised { .. } => "epoch raised",
        Answer::Pinned(_) => "pinned",
        Answer::Unpinned => "unpinned",
        Answer::RetentionSet(_) => "retention set",
        Answer::Failed(SubmitError::PinExists { .. }) => "pin exists",
        Answer::Failed(SubmitError::PinMissing) => "pin missing",
        Answer::Failed(SubmitError::VersionRetired { .. }) => "version retired",
        Answer::Failed(SubmitError::IdReused) => "id reused",
        Answer::Failed(SubmitError::IssuedAhead { .. }) => "issued ahead",
        Answer::Failed(SubmitError::Fenced { .. }) => "fenced",
        Answer::Failed(SubmitError::HeadTooLarge) => "head too large",
        Answer::Failed(SubmitError::InDoubt) => "in doubt",
        Answer::Failed(SubmitError::Expired) => "expired",
        Answer::Failed(SubmitError::Contended) => "contended",
        Answer::Failed(SubmitError::StoreUnavailable) => "store unavailable",
        other @ (Answer::Retired | Answer::Failed(_)) => panic!("{other:?} is not to be had here"),
    }
}

/// One seed: `HEADWATER_SOAK_SEED`. More of them: `HEADWATER_SOAK_SCHEDULES`.
#[test]
fn whatever_happens_every_answer_is_true() {
    let number = |name| std::env::var(name).ok().map(|it| it.parse::<u64>().unwrap());
    let schedules = number("HEADWATER_SOAK_SCHEDULES").unwrap_or(SCHEDULES);
    let seeds = number("HEADWATER_SOAK_SEED").map_or(0..schedules, |it| it..it + 1);
    let is_whole = SCHEDULES <= seeds.end - seeds.start;
    let mut counts = BTreeMap::new();
    for seed in seeds {
        let run = || {
            let mut soak = Soak::new(seed);
            soak.run();
            soak.rig.answers.into_values().collect::<Vec<_>>()
        };
        match catch_unwind(AssertUnwindSafe(run)) {
            Ok(answers) => {
                answers.iter().for_each(|it| *counts.entry(kind(it)).or_insert(0_u64) += 1);
            }
            Err(panic) => {
                std::eprintln!("repeat with HEADWATER_SOAK_SEED={seed}");
                resume_unwind(panic);
            }
        }
    }
    // A soak in which something never happens proves nothing about it.
    std::eprintln!("{counts:?}");
    assert!(!is_whole || (counts.len() == 20 && counts.values().all(|it| 20 < *it)), "{counts:?}");
}
