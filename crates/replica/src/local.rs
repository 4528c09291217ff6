//! What a replica has of one history, and what it knows about how current that
//! is.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use headwater_core::follow::Position;
use headwater_core::head::Head;
use headwater_core::id::{HistoryId, Tag};
use headwater_core::version::{Revision, StateVersion};
use headwater_state::View;
use tokio::time::Instant;

/// A head, followed to its end. Never changes.
#[derive(Debug)]
pub(crate) struct Local {
    /// The state that the head stands for.
    pub(crate) view: View,
    pub(crate) head: Arc<Head>,
    /// The head as stored.
    pub(crate) head_json: Bytes,
    /// To ask the store whether the head is still this one.
    pub(crate) tag: Tag,
}

impl Local {
    pub(crate) fn position(&self) -> Position {
        Position::of(&self.head)
    }
}

/// A view that a request holds, with what is known about it. Later changes do
/// not reach it.
#[derive(Clone, Debug)]
pub struct Pinned {
    view: View,
    local: Arc<Local>,
    proof_began: Instant,
}

impl Pinned {
    pub(crate) fn new(local: Arc<Local>, proof_began: Instant) -> Self {
        Self { view: local.view.clone(), local, proof_began }
    }

    /// The same knowledge, with an older view of the same history, or with the
    /// same version over another snapshot.
    pub(crate) fn with_view(self, view: View) -> Self {
        Self { view, ..self }
    }

    /// The view.
    pub fn view(&self) -> &View {
        &self.view
    }

    /// The history.
    pub fn history_id(&self) -> HistoryId {
        self.view.history_id()
    }

    /// The version of the view.
    pub fn version(&self) -> StateVersion {
        self.view.version()
    }

    /// The newest head that was followed. It may be newer than the view, where
    /// an older version was asked for.
    pub fn head(&self) -> &Arc<Head> {
        &self.local.head
    }

    /// That head as stored.
    pub fn head_json(&self) -> &Bytes {
        &self.local.head_json
    }

    /// Its revision.
    pub fn revision(&self) -> Revision {
        self.local.head.revision
    }

    /// How long ago the last successful freshness check began. The head was
    /// current at some moment since.
    pub fn proof_age(&self) -> Duration {
        self.proof_began.elapsed()
    }
}

/// What a follower has come to. Its requests watch it.
#[derive(Clone, Debug, Default)]
pub(crate) struct State {
    /// `None` until the history is open.
    pub(crate) proved: Option<Proved>,
    /// What stands in the way of checks at the moment.
    pub(crate) trouble: Option<&'static str>,
    /// Nothing comes after this.
    pub(crate) is_ended: bool,
}

/// A local state and the last proof that it was current.
#[derive(Clone, Debug)]
pub(crate) struct Proved {
    pub(crate) local: Arc<Local>,
    /// When the last successful check began.
    pub(crate) began: Instant,
}

impl Proved {
    pub(crate) fn pin(&self) -> Pinned {
        Pinned::new(Arc::clone(&self.local), self.began)
    }

    pub(crate) fn version(&self) -> StateVersion {
        self.local.view.version()
    }
}
