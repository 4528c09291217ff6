//! Questions that may go to another writer.

use std::sync::{Arc, PoisonError};

use headwater_core::decide::Ask;
use headwater_core::id::HistoryName;
use headwater_daemon::trace::Origin;
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use super::{Histories, Open};
use crate::driver::{AskError, Asked, Command, Question, Told};
use crate::forward::{Forwarding, Outbound, Outgoing, OutgoingParts, Route};

impl Histories {
    /// As [`Histories::send`], for a caller of this process: an operation of a
    /// contended history may be handed to another writer, and is in no order with
    /// others then.
    pub(crate) fn send_anywhere(
        self: &Arc<Self>,
        history: &HistoryName,
        question: Question,
        deadline: Instant,
    ) -> Result<oneshot::Receiver<Told>, AskError> {
        let mut open = self.lock();
        let handle = self.handle(&mut open, history)?;
        handle.route.heard(None);
        let goes_away = match &question {
            Question::Ask(Ask::Submit(operation)) => {
                handle.route.target(operation.history_id).is_some()
            }
            Question::Ask(Ask::LookUp(_)) | Question::Control(_) => false,
        };
        let Some(forwarding) = self.forwarding.as_ref().filter(|_| goes_away) else {
            // It may go yet, where it waits for long.
            let may_move = self.forwarding.is_some() && !self.rules.hosts.is_empty();
            let until = (deadline, may_move);
            return self.hand_to_driver(&mut open, history, question, until);
        };
        let permits = self.permits(handle, &question)?;
        let outgoing = self.outgoing(&mut open, history, forwarding).ok_or(AskError::Lost)?;
        let (reply, answer) = oneshot::channel();
        let (at, origin) = (Instant::now(), Origin::current());
        let asked = Asked { question, at, origin, deadline, reply, permits, may_move: false };
        // Room for every permit; and it ends with its handle.
        let outbound = Outbound { asked, is_in_doubt: false };
        outgoing.try_send(outbound).map_err(|_| AskError::Lost)?;
        Ok(answer)
    }

    /// As [`Histories::send`], for a caller of this process who wants an order.
    pub(crate) fn send_in_order(
        self: &Arc<Self>,
        history: &HistoryName,
        question: Question,
        deadline: Instant,
    ) -> Result<oneshot::Receiver<Told>, AskError> {
        let mut open = self.lock();
        self.handle(&mut open, history)?.route.heard(None);
        self.hand_to_driver(&mut open, history, question, (deadline, false))
    }

    /// The way of a history's operations to another writer; `None` once the
    /// process is stopping, or where there is none.
    pub(crate) fn outbound(
        self: &Arc<Self>,
        history: &HistoryName,
    ) -> Option<mpsc::Sender<Outbound>> {
        let forwarding = self.forwarding.as_ref()?;
        let mut open = self.lock();
        self.outgoing(&mut open, history, forwarding)
    }

    fn outgoing(
        self: &Arc<Self>,
        open: &mut Open,
        history: &HistoryName,
        forwarding: &Forwarding,
    ) -> Option<mpsc::Sender<Outbound>> {
        let Open { histories, tasks, .. } = open;
        let handle = histories.as_mut()?.get_mut(history)?;
        if let Some(outgoing) = &handle.outgoing {
            return Some(outgoing.clone());
        }
        let (outgoing, taken) = mpsc::channel(self.config.queue_operations_max);
        let parts = OutgoingParts {
            history: history.clone(),
            publisher_id: self.publisher_id.clone(),
            forwarding: forwarding.clone(),
            route: Arc::clone(&handle.route),
            metrics: Arc::clone(&self.metrics),
            driver: handle.commands.clone(),
            histories: Arc::downgrade(self),
        };
        tasks.spawn(Outgoing::new(parts).run(taken));
        handle.outgoing = Some(outgoing.clone());
        Some(outgoing)
    }

    /// Hands a question to whichever driver there is by now. Whoever waits is
    /// told nothing where there is none: the process is stopping.
    pub(crate) fn send_again(self: &Arc<Self>, history: &HistoryName, asked: Asked) {
        let mut open = self.lock();
        if let Ok(handle) = self.handle(&mut open, history) {
            let _stopping = handle.commands.try_send(Command::Ask(asked));
        }
    }

    /// The route of a history that is open.
    pub(crate) fn route(&self, history: &HistoryName) -> Option<Arc<Route>> {
        let open = self.lock();
        Some(Arc::clone(&open.histories.as_ref()?.get(history)?.route))
    }

    /// Whether a message of another writer has not come before.
    pub(crate) fn is_new_message(&self, life: [u8; 16], number: u64) -> bool {
        self.repeats.lock().unwrap_or_else(PoisonError::into_inner).is_new(life, number)
    }
}
