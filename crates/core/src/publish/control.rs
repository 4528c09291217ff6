//! Controls: changes of the head that are not operations.

use alloc::vec::Vec;

use super::answer::{Answer, SubmitError};
use super::event::{Control, Effect, NewPin, Pace};
use super::{Item, Publisher};
use crate::head::{Head, Pin, Successor};

/// What is to be done about a control.
enum Step {
    /// Publish it.
    Publish,
    /// The head is as it asks for, once the head is proven current.
    Done(Answer),
    /// It cannot be, once the head is proven current.
    Refuse(SubmitError),
}

fn step(control: &Control, head: &Head, is_in_doubt: bool) -> Step {
    match control {
        Control::RaiseWriterEpoch { .. } if !head.is_exclusive => {
            Step::Refuse(SubmitError::NotExclusive)
        }
        Control::RaiseWriterEpoch { expected: Some(expected) }
            if *expected != head.writer_epoch =>
        {
            Step::Refuse(SubmitError::Fenced { writer_epoch: head.writer_epoch })
        }
        Control::Retire { history_id } if *history_id != head.history_id => {
            Step::Refuse(SubmitError::OtherHistory { found: head.history_id })
        }
        Control::Retire { .. } => match head.pins.iter().find_map(|it| it.child.as_ref()) {
            Some(child) => {
                Step::Refuse(SubmitError::NeededByFork { history: child.history.clone() })
            }
            None => Step::Publish,
        },
        Control::Pin(new) => pin_step(new, head, is_in_doubt),
        Control::Unpin { name, child } => match head.pin(name) {
            Some(pin) if pin.child.as_ref().map(|it| it.history_id) == *child => Step::Publish,
            Some(Pin { child: Some(child), .. }) => {
                Step::Refuse(SubmitError::NeededByFork { history: child.history.clone() })
            }
            // Whoever took it away, it is gone.
            None if is_in_doubt => Step::Done(Answer::Unpinned),
            Some(_) | None => Step::Refuse(SubmitError::PinMissing),
        },
        Control::SetRetention(retention) if *retention == head.retention => {
            Step::Done(Answer::RetentionSet(*retention))
        }
        Control::RaiseWriterEpoch { .. } | Control::SetRetention(_) => Step::Publish,
    }
}

fn pin_step(new: &NewPin, head: &Head, is_in_doubt: bool) -> Step {
    if let Some(pin) = head.pin(&new.name) {
        // Asked for again after a lost answer, "the newest" is what it was then.
        let is_it = new.version.map_or(is_in_doubt, |it| it == pin.version)
            && pin.child == new.child
            && pin.expires_at_ms == new.expires_at_ms;
        return if is_it {
            Step::Done(Answer::Pinned(pin.clone()))
        } else {
            Step::Refuse(SubmitError::PinExists { version: pin.version })
        };
    }
    match new.version {
        Some(version) if head.state_version < version => {
            Step::Refuse(SubmitError::VersionAhead { newest: head.state_version })
        }
        Some(version) if !head.is_retained(version) => {
            Step::Refuse(SubmitError::VersionRetired { oldest: head.retained_from() })
        }
        _ if Head::PINS_MAX <= head.pins.len() => Step::Refuse(SubmitError::PinsFull),
        Some(_) | None => Step::Publish,
    }
}

/// What is told once `head` has it.
fn done(control: &Control, head: &Head) -> Answer {
    match control {
        Control::RaiseWriterEpoch { .. } => {
            Answer::WriterEpochRaised { writer_epoch: head.writer_epoch }
        }
        Control::Retire { .. } => Answer::Retired,
        Control::Pin(new) => {
            let pin = head.pin(&new.name).cloned();
            pin.map_or(Answer::Failed(SubmitError::InDoubt), Answer::Pinned)
        }
        Control::Unpin { .. } => Answer::Unpinned,
        Control::SetRetention(_) => Answer::RetentionSet(head.retention),
    }
}

impl Control {
    pub(super) fn put_into(&self, successor: &mut Successor<'_>) {
        match self {
            Self::RaiseWriterEpoch { .. } => successor.raise_writer_epoch(),
            Self::Retire { .. } => successor.retire(),
            Self::Pin(new) => {
                let version = new.version.unwrap_or(successor.head().state_version);
                successor.pin(Pin {
                    name: new.name.clone(),
                    version,
                    revision: successor.head().revision,
                    expires_at_ms: new.expires_at_ms,
                    child: new.child.clone(),
                });
            }
            Self::Unpin { name, .. } => successor.unpin(name),
            Self::SetRetention(retention) => successor.set_retention(*retention),
        }
    }
}

impl Publisher {
    /// Starts the control at the front of the queue, once everything before it
    /// is done.
    pub(super) fn carry_out_control(&mut self, effects: &mut Vec<Effect>) -> bool {
        let Some(observed) = &self.observed else { return false };
        let Some(Item::Control(pending)) = self.queue.front() else { return false };
        if !self.pipeline.is_empty() {
            return false;
        }
        let step = step(&pending.control, &observed.head, pending.is_in_doubt());
        let (arrived, is_in_doubt) = (pending.arrived, pending.is_in_doubt());
        if matches!(step, Step::Publish) {
            if pending.ticket.is_none() {
                self.queue.pop_front();
                return true;
            }
            if self.pace != Pace::Publish {
                return false;
            }
            let control = pending.control.clone();
            self.publish(Vec::new(), Some((arrived, &control)), effects);
            return false;
        }
        if !is_in_doubt && !self.is_proven_since(arrived) {
            self.read_head(effects);
            return false;
        }
        if let Some(Item::Control(mut pending)) = self.queue.pop_front()
            && let Some(ticket) = pending.ticket.take()
        {
            let answer = match step {
                Step::Done(answer) => answer,
                Step::Refuse(error) if !is_in_doubt => Answer::Failed(error),
                Step::Refuse(_) | Step::Publish => Answer::Failed(SubmitError::InDoubt),
            };
            effects.push(Effect::Answer { ticket, answer });
        }
        true
    }

    /// The control that arrived at `arrived` was carried out by `head`.
    pub(super) fn answer_control(&mut self, arrived: u64, head: &Head, effects: &mut Vec<Effect>) {
        // What was decided meanwhile rests on the head before it: another
        // epoch. There is something only if the control's caller gave up.
        self.roll_back(0, effects);
        // It is still at the front, unless its caller gave up after it got no
        // answer; another control there was not carried out by this.
        let is_it = |item: &Item| match item {
            Item::Control(control) => control.arrived == arrived,
            Item::Ask(_) => false,
        };
        if self.queue.front().is_some_and(is_it)
            && let Some(Item::Control(pending)) = self.queue.pop_front()
            && let Some(ticket) = pending.ticket
        {
            let answer = done(&pending.control, head);
            effects.push(Effect::Answer { ticket, answer });
        }
        if head.is_retired() {
            self.fail_all(&SubmitError::HistoryMissing, None, effects);
            self.forget(effects);
        }
    }
}
