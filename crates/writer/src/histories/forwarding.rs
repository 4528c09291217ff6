//! Questions that may go to another writer.

use std::sync::{Arc, PoisonError};

use headwater_core::decide::Ask;
use headwater_core::id::HistoryName;
use tokio::sync::mpsc;

use super::{Histories, Open};
use crate::driver::{AskError, Asked, Command, Question};
use crate::forward::{Forwarding, Outbound, Outgoing, OutgoingParts, Route};

/// For whom a question is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asker {
    /// A caller of this process. An operation of a contended history may be handed
    /// to another writer, and is in no order with others then.
    Caller,
    /// A caller of this process who wants an order.
    CallerInOrder,
    /// Another writer, which handed the operation over: it is not handed on.
    Writer,
    /// Nobody but this process.
    Process,
}

impl Asker {
    pub(super) fn is_caller(self) -> bool {
        match self {
            Self::Caller | Self::CallerInOrder => true,
            Self::Writer | Self::Process => false,
        }
    }
}

impl Question {
    /// Whether it goes to another writer at the moment, if it may.
    pub(super) fn is_handed_over(&self, route: &Route) -> bool {
        match self {
            Self::Ask(Ask::Submit(operation)) => route.target(operation.history_id).is_some(),
            Self::Ask(Ask::LookUp(_)) | Self::Control(_) => false,
        }
    }
}

impl Histories {
    /// Whether there is a way to other writers, and one that operations may go to.
    pub(super) fn may_hand_over(&self) -> bool {
        self.forwarding.is_some() && !self.rules.hosts.is_empty()
    }

    pub(super) fn hand_to_writer(
        self: &Arc<Self>,
        open: &mut Open,
        history: &HistoryName,
        asked: Asked,
    ) -> Result<(), AskError> {
        let forwarding = self.forwarding.as_ref().ok_or(AskError::Lost)?;
        let outgoing = self.outgoing(open, history, forwarding).ok_or(AskError::Lost)?;
        // Room for every permit; and it ends with its handle.
        outgoing.try_send(Outbound { asked, is_in_doubt: false }).map_err(|_| AskError::Lost)
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
