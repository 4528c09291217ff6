//! Operations that wait for a history which is contended, on their way out.
//!
//! What was asked before it was known that races are lost would wait here for as
//! long as this writer keeps losing, while what comes later is handed over. So
//! it is taken back from the publisher, as if its time were up, and handed over
//! as well. What the publisher says to that tells whether it may have been
//! applied.

use headwater_core::decide::Ask;
use headwater_core::operation::Operation;
use headwater_core::publish::{Answer, Event, SubmitError, Ticket};

use super::waiting::Waiter;
use super::{Asked, Driver, Question};
use crate::forward::Outbound;

/// Operations taken back at a time: those that wait longest. They are found at
/// the front of the publisher's queue.
const AT_ONCE: usize = 1_024;

/// Whether a waiting operation may go to another writer.
#[derive(Debug)]
pub(super) enum Move {
    /// It is decided here: it has an order to keep, or came back.
    Never,
    /// It may.
    May(Operation),
    /// It was taken back, and goes once the publisher has let go of it.
    Going(Operation),
}

impl Move {
    pub(super) fn of(asked: &Asked) -> Self {
        match &asked.question {
            Question::Ask(Ask::Submit(operation)) if asked.may_move => Self::May(operation.clone()),
            Question::Ask(_) | Question::Control(_) => Self::Never,
        }
    }
}

impl Driver {
    /// After a race was lost, and its head read: takes operations back that can
    /// be handed over. Nothing is in flight then, and what was is known to have
    /// lost, so that the publisher is sure of nearly all of them.
    pub(super) fn take_back(&mut self) -> Vec<Event> {
        if !self.turn.has_lost() || self.parts.route.target(None).is_none() {
            return Vec::new();
        }
        // Without a way out they stay: the process is stopping.
        let histories = self.parts.room.histories.upgrade();
        self.outbound = histories.and_then(|it| it.outbound(&self.parts.history));
        if self.outbound.is_none() {
            return Vec::new();
        }
        let tickets = self.waiting.begin_moving(AT_ONCE);
        tickets.into_iter().map(|ticket| Event::Expired { ticket }).collect()
    }

    /// Hands an operation over that was taken back, if this is the answer to
    /// that; says whether it is.
    pub(super) fn moves_on(&mut self, ticket: Ticket, answer: &Answer) -> bool {
        let Some(is_in_doubt) = is_let_go(answer) else { return false };
        let Some(outbound) = &self.outbound else { return false };
        if !self.waiting.find(ticket).is_some_and(|it| matches!(it.moves, Move::Going(_))) {
            return false;
        }
        let Some((deadline, waiter)) = self.waiting.take(ticket) else { return false };
        let Waiter { asked, origin, reply, moves: Move::Going(operation), permits, is_handed } =
            waiter
        else {
            return false;
        };
        let question = Question::Ask(Ask::Submit(operation));
        let (at, may_move) = (asked.at, false);
        let asked = Asked { question, at, origin, deadline, reply, permits, may_move, is_handed };
        // Room for every permit. Where nobody takes it any more, its caller hears
        // nothing, which is in doubt.
        let _stopping = outbound.try_send(Outbound { asked, is_in_doubt });
        true
    }
}

/// Whether the publisher gave an operation up, and may have applied it.
#[expect(clippy::wildcard_enum_match_arm, reason = "any other answer is the caller's")]
fn is_let_go(answer: &Answer) -> Option<bool> {
    match answer {
        Answer::Failed(
            SubmitError::Expired | SubmitError::Contended | SubmitError::StoreUnavailable,
        ) => Some(false),
        Answer::Failed(SubmitError::InDoubt) => Some(true),
        _ => None,
    }
}
