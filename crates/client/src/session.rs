//! One history, as one caller has seen it so far.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use headwater_proto::v1;
use tokio::time::Instant;

use crate::call::{GaveUp, timed};
use crate::client::{Client, history_service};
use crate::failure::Failure;
use crate::id::{HistoryId, Token};
use crate::submit::refused;

/// Works on one history, and remembers the newest state version it has seen:
/// for reads of what it wrote itself, and as the issue version of operations.
///
/// Clones share what they have seen. The history's id is pinned by the first
/// answer: when the history is deleted and another one is created under its
/// name, every further call fails with `HISTORY_MISSING`, and a new session is
/// needed. Versions of one say nothing about the other.
#[derive(Clone, Debug)]
pub struct Session {
    pub(crate) client: Client,
    pub(crate) history: Arc<str>,
    pub(crate) writer_epoch: u64,
    seen: Arc<Mutex<Option<Token>>>,
}

/// A token of another history than the session's.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the session has seen history {pinned}; this is {other}")]
pub struct OtherHistory {
    /// The session's.
    pub pinned: HistoryId,
    /// The other.
    pub other: HistoryId,
}

impl Session {
    pub(crate) fn new(client: Client, history: String, seen: Option<Token>) -> Self {
        let seen = Arc::new(Mutex::new(seen));
        Self { client, history: history.into(), writer_epoch: 0, seen }
    }

    /// The history's name.
    pub fn history(&self) -> &str {
        &self.history
    }

    /// The client that it works through.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// The newest version seen, to hand to another process:
    /// [`Client::session_from`]. None before the first answer.
    pub fn token(&self) -> Option<Token> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Takes note of a version that somebody else has seen.
    ///
    /// # Errors
    ///
    /// [`OtherHistory`]; nothing was noted.
    pub fn observe(&self, token: Token) -> Result<(), OtherHistory> {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        match &mut *seen {
            Some(pinned) if pinned.history_id != token.history_id => {
                Err(OtherHistory { pinned: pinned.history_id.clone(), other: token.history_id })
            }
            Some(pinned) => {
                pinned.state_version = pinned.state_version.max(token.state_version);
                Ok(())
            }
            None => {
                *seen = Some(token);
                Ok(())
            }
        }
    }

    /// The same session, with another time for each call, all its attempts
    /// together.
    #[must_use]
    pub fn with_deadline(&self, deadline: Duration) -> Self {
        Self { client: self.client.with_deadline(deadline), ..self.clone() }
    }

    /// The same session, as the owner of an exclusive history: the epoch is from
    /// [`Client::raise_writer_epoch`].
    #[must_use]
    pub fn with_writer_epoch(&self, writer_epoch: u64) -> Self {
        Self { writer_epoch, ..self.clone() }
    }

    /// The pinned history id as requests carry it; empty before the first
    /// answer.
    pub(crate) fn pinned_id(&self) -> String {
        self.token().map_or_else(String::new, |it| it.history_id.as_str().to_owned())
    }

    /// Takes note of what an answer says about itself.
    pub(crate) fn note(&self, history_id: &str, version: Option<u64>) -> Result<(), Failure> {
        let Ok(history_id) = HistoryId::new(history_id) else {
            return Err(Failure::malformed("an answer names no history"));
        };
        let state_version = version.unwrap_or_default();
        self.observe(Token { history_id, state_version })
            .map_err(|error| Failure::other_history(error.to_string()))
    }

    /// The newest version seen; asks for the head's where none was.
    pub(crate) async fn newest(&self, deadline: Instant) -> Result<Token, GaveUp> {
        match self.token() {
            Some(token) => Ok(token),
            None => self.refresh(deadline).await,
        }
    }

    async fn refresh(&self, deadline: Instant) -> Result<Token, GaveUp> {
        let request = v1::GetHistoryRequest { name: self.history.to_string() };
        let call = self.client.to_writers(&self.history).by(deadline);
        let answer = call
            .run(|channel, time| {
                let request = timed(request.clone(), time);
                async move { history_service(channel).get_history(request).await }
            })
            .await?;
        let refused = |failure| refused(failure, false);
        let history = answer.value.history.unwrap_or_default();
        self.note(&history.history_id, Some(history.state_version)).map_err(refused)?;
        self.token().ok_or_else(|| refused(Failure::malformed("a history without id")))
    }
}
