//! What can happen next.

use std::sync::Arc;

use headwater_core::publish::Event;

use crate::client::{Attempt, Heard, ticket};
use crate::promise::Broken;
use crate::replica::CHECKS_MAX;
use crate::setup::{Limits, Sent, Setup};
use crate::sweeper::Sweeper;
use crate::upkeep::Made;
use crate::world::World;
use crate::writer::{Fate, Work};

/// One thing that happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Step {
    /// A client asks a writer.
    Ask {
        /// Which client.
        client: usize,
        /// Which writer.
        writer: usize,
    },
    /// A client's time is up.
    Expire {
        /// Which client.
        client: usize,
        /// Which of its attempts.
        attempt: usize,
    },
    /// A work of a writer is done.
    Do {
        /// Which writer.
        writer: usize,
        /// Which of its works.
        work: usize,
    },
    /// A work is done, and its reply takes its time.
    Slow {
        /// Which writer.
        writer: usize,
        /// Which of its works.
        work: usize,
    },
    /// A work fails.
    Fail {
        /// Which writer.
        writer: usize,
        /// Which of its works.
        work: usize,
        /// Whether it was done all the same.
        is_done: bool,
    },
    /// A head replacement does not go well.
    Publish {
        /// Which writer's.
        writer: usize,
        /// What becomes of it.
        fate: Fate,
    },
    /// A writer's next replacement comes nearer.
    Pace {
        /// Which writer's.
        writer: usize,
    },
    /// A writer process dies.
    Crash {
        /// Which.
        writer: usize,
    },
    /// A writer makes a segment or a snapshot.
    Make {
        /// Which writer.
        writer: usize,
        /// What.
        made: Made,
    },
    /// A late request is carried out.
    Arrive {
        /// Which.
        late: usize,
    },
    /// The sweep goes on. It dies with the writer that runs it.
    Sweep,
    /// So much time passes that pins which expire are over.
    Hour,
    /// A fork reads the head, and what it needs of it.
    Fork,
    /// A strong read arrives at the replica.
    Read,
    /// The replica begins a check.
    CheckBegins,
    /// The store answers a check.
    CheckSeen {
        /// Which.
        check: usize,
    },
    /// The answer reaches the replica.
    CheckEnds {
        /// Which check's.
        check: usize,
    },
    /// A check fails.
    CheckFails {
        /// Which.
        check: usize,
    },
}

fn spend(left: &mut u8) {
    *left = left.saturating_sub(1);
}

impl World {
    /// Everything that can happen now.
    pub fn steps(&self, setup: &Setup, steps: &mut Vec<Step>) {
        if self.broken.is_some() {
            return;
        }
        self.client_steps(setup, steps);
        for writer in 0..self.writers.len() {
            self.writer_steps(setup, writer, steps);
        }
        steps.extend((0..self.late.len()).map(|late| Step::Arrive { late }));
        self.sweep_steps(steps);
        self.replica_steps(steps);
        if 0 < self.left.hours {
            steps.push(Step::Hour);
        }
        if 0 < self.left.forks && self.bucket.can_fork() {
            steps.push(Step::Fork);
        }
    }

    fn client_steps(&self, setup: &Setup, steps: &mut Vec<Step>) {
        for (client, script) in setup.scripts.iter().enumerate() {
            let attempts = &self.clients[client].attempts;
            for (attempt, it) in attempts.iter().enumerate() {
                if it.heard == Heard::Nothing && 0 < self.left.expiries {
                    steps.push(Step::Expire { client, attempt });
                }
            }
            let Some(last) = attempts.last() else {
                if script.after.is_none_or(|it| self.clients[it].is_done()) {
                    steps.push(Step::Ask { client, writer: script.home });
                }
                continue;
            };
            let is_left = attempts.len() <= usize::from(script.retries);
            if is_left && (script.is_impatient || last.heard != Heard::Nothing) {
                steps.extend((0..self.writers.len()).map(|writer| Step::Ask { client, writer }));
            }
        }
    }

    fn writer_steps(&self, setup: &Setup, writer: usize, steps: &mut Vec<Step>) {
        let Limits { slow, failures, crashes, folds, compactions, releases, .. } = self.left;
        let works = &self.writers[writer].works;
        for (work, it) in works.iter().enumerate() {
            steps.push(Step::Do { writer, work });
            match it {
                Work::Read { .. } => {
                    if 0 < slow {
                        steps.push(Step::Slow { writer, work });
                    }
                    if 0 < failures {
                        steps.push(Step::Fail { writer, work, is_done: false });
                    }
                }
                Work::Stage { .. } => {
                    if setup.has_slow_uploads {
                        steps.push(Step::Slow { writer, work });
                    }
                    if 0 < failures {
                        let fail = |is_done| Step::Fail { writer, work, is_done };
                        steps.extend([true, false].map(fail));
                    }
                }
                Work::Publish { .. } => {
                    steps.extend(self.fates().map(|fate| Step::Publish { writer, fate }));
                }
                Work::ReadReply { .. }
                | Work::Facts { .. }
                | Work::StageReply { .. }
                | Work::PublishReply(_)
                | Work::Prepare { .. } => (),
            }
        }
        if self.writers[writer].rest.is_some() {
            steps.push(Step::Pace { writer });
        }
        if 0 < crashes && self.writers[writer].publisher.observed().is_some() {
            steps.push(Step::Crash { writer });
        }
        for (made, left) in
            [(Made::Segment, folds), (Made::Snapshot, compactions), (Made::Release, releases)]
        {
            if 0 < left && self.can_make(writer, made) {
                steps.push(Step::Make { writer, made });
            }
        }
    }

    fn fates(&self) -> impl Iterator<Item = Fate> {
        let left = [
            (Fate::AnswerLost, self.left.lost_answers),
            (Fate::Echoed, self.left.echoes),
            (Fate::RequestLost, self.left.lost_requests),
            (Fate::Late, self.left.late),
            (Fate::Repeated, self.left.repeated),
            (Fate::AnswerSlow, self.left.slow),
        ];
        left.into_iter().filter(|it| 0 < it.1).map(|it| it.0)
    }

    fn sweep_steps(&self, steps: &mut Vec<Step>) {
        match &self.sweeper {
            Sweeper::Idle => {
                if 0 < self.left.sweeps && self.can_sweep() {
                    steps.push(Step::Sweep);
                }
            }
            Sweeper::Raising { .. } | Sweeper::Recording => (),
            Sweeper::Raised { .. } | Sweeper::Deleting { .. } => steps.push(Step::Sweep),
        }
    }

    fn replica_steps(&self, steps: &mut Vec<Step>) {
        if 0 < self.left.reads {
            steps.push(Step::Read);
        }
        let checks = &self.replica.checks;
        if !self.replica.waiting.is_empty() && checks.len() < CHECKS_MAX {
            steps.push(Step::CheckBegins);
        }
        for (check, it) in checks.iter().enumerate() {
            if it.seen.is_some() {
                steps.push(Step::CheckEnds { check });
            } else {
                steps.push(Step::CheckSeen { check });
            }
            if 0 < self.left.failures {
                steps.push(Step::CheckFails { check });
            }
        }
    }

    /// The state after `step`.
    #[must_use]
    pub fn after(&self, setup: &Setup, step: Step) -> Self {
        let mut next = self.clone();
        if let Err(broken) = next.take(setup, step) {
            next.broken = Some(broken);
        }
        next
    }

    fn take(&mut self, setup: &Setup, step: Step) -> Result<(), Broken> {
        match step {
            Step::Ask { client, writer } => self.ask(setup, client, writer),
            Step::Expire { client, attempt } => {
                spend(&mut self.left.expiries);
                let writer = self.clients[client].attempts[attempt].writer;
                self.feed(setup, writer, Event::Expired { ticket: ticket(client, attempt) })
            }
            Step::Do { writer, work } => self.carry_out(setup, writer, work),
            Step::Slow { writer, work } => {
                if matches!(self.writers[writer].works[work], Work::Read { .. }) {
                    spend(&mut self.left.slow);
                }
                self.carry_out_slowly(setup, writer, work);
                Ok(())
            }
            Step::Fail { writer, work, is_done } => {
                spend(&mut self.left.failures);
                self.fail(setup, writer, work, is_done)
            }
            Step::Publish { writer, fate } => self.publish_badly(setup, writer, fate),
            Step::Pace { writer } => self.rest_goes_on(setup, writer),
            Step::Crash { writer } => {
                spend(&mut self.left.crashes);
                self.crash(setup, writer);
                Ok(())
            }
            Step::Make { writer, made } => {
                spend(match made {
                    Made::Segment => &mut self.left.folds,
                    Made::Snapshot => &mut self.left.compactions,
                    Made::Release => &mut self.left.releases,
                });
                self.make(writer, made);
                Ok(())
            }
            Step::Arrive { late } => self.arrive(setup, late),
            Step::Sweep => {
                if self.sweeper == Sweeper::Idle {
                    spend(&mut self.left.sweeps);
                }
                self.sweep(setup)
            }
            Step::Hour => {
                spend(&mut self.left.hours);
                Arc::make_mut(&mut self.bucket).pass_time();
                Ok(())
            }
            Step::Fork => {
                spend(&mut self.left.forks);
                Arc::make_mut(&mut self.bucket).fork();
                Ok(())
            }
            Step::Read => {
                spend(&mut self.left.reads);
                self.read_arrives(setup);
                Ok(())
            }
            Step::CheckBegins => {
                self.check_begins();
                Ok(())
            }
            Step::CheckSeen { check } => {
                self.check_is_seen(check);
                Ok(())
            }
            Step::CheckEnds { check } => self.check_ends(check),
            Step::CheckFails { check } => {
                spend(&mut self.left.failures);
                self.check_fails(setup, check)
            }
        }
    }

    fn ask(&mut self, setup: &Setup, client: usize, writer: usize) -> Result<(), Broken> {
        let asked_at = self.bucket.version();
        let it = &mut self.clients[client];
        if it.attempts.is_empty() {
            it.seen = asked_at;
        }
        let ticket = ticket(client, it.attempts.len());
        it.attempts.push(Attempt { writer, asked_at, heard: Heard::Nothing });
        let event = match setup.sent(client, it.seen) {
            Sent::Ask(ask) => Event::Asked { ticket, ask, asked_at_ms: 0 },
            Sent::Control(control) => Event::Controlled { ticket, control },
        };
        self.feed(setup, writer, event)
    }

    fn publish_badly(&mut self, setup: &Setup, writer: usize, fate: Fate) -> Result<(), Broken> {
        match fate {
            Fate::Answered => (),
            Fate::AnswerSlow => spend(&mut self.left.slow),
            Fate::AnswerLost => spend(&mut self.left.lost_answers),
            Fate::Echoed => spend(&mut self.left.echoes),
            Fate::RequestLost => spend(&mut self.left.lost_requests),
            Fate::Late => spend(&mut self.left.late),
            Fate::Repeated => spend(&mut self.left.repeated),
        }
        let works = &mut Arc::make_mut(&mut self.writers[writer]).works;
        let Some(at) = works.iter().position(|it| matches!(it, Work::Publish { .. })) else {
            return Ok(());
        };
        let Work::Publish { if_match, head } = works.remove(at) else { return Ok(()) };
        self.publish(setup, writer, &if_match, &head, fate)
    }
}
