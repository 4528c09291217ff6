//! Reads: what is asked, how fresh it must be, and what can go wrong.

use std::net::SocketAddr;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use headwater_proto::v1::consistency::{Any, Level, Strong};
use headwater_proto::{duration, v1};

use crate::call::{GaveUp, timed};
use crate::client::read_service;
use crate::failure::{Failure, Reason};
use crate::id::HistoryId;
use crate::session::Session;

/// How fresh a read must be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Consistency {
    /// Linearizable. Costs up to one round trip to the object store, shared by
    /// all requests that wait.
    #[default]
    Strong,
    /// Whatever this session has seen or written, at least. Strong where it has
    /// seen nothing.
    Session,
    /// This state version or a later one.
    AtLeast(u64),
    /// Exactly this state version, while a replica has it at hand.
    Exact(u64),
    /// Proved current no longer ago than this.
    MaxStaleness(Duration),
    /// Whatever the replica has at hand; [`Stamp::proof_age`] says how old.
    Any,
}

/// What a read was served from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stamp {
    /// The history's id.
    pub history_id: HistoryId,
    /// The state version of the view.
    pub state_version: u64,
    /// The head's revision.
    pub revision: u64,
    /// How long before the answer the last proof of freshness began.
    pub proof_age: Duration,
}

/// An answer and what it was served from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Read<T> {
    /// The answer.
    pub value: T,
    /// What it was served from.
    pub stamp: Stamp,
}

/// One key with its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The key.
    pub key: Bytes,
    /// The value; empty in a scan of keys only.
    pub value: Bytes,
    /// The state version that last wrote the key. 0 for what a transaction reads
    /// back of its own writes.
    pub version: u64,
}

/// One page of change entries.
#[derive(Clone, Debug, PartialEq)]
pub struct Changes {
    /// Consecutive versions, as the wire has them.
    pub changes: Vec<v1::ChangeEntry>,
    /// The oldest version at hand.
    pub oldest_version: u64,
    /// Where to ask next; none after the last version.
    pub next_version: Option<u64>,
}

/// The version of a moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VersionAt {
    /// The version.
    pub version: u64,
    /// When it was decided, by its writer's clock. None for version 0, which
    /// nobody decided.
    pub decided_at: Option<SystemTime>,
}

/// Why a read has no answer. Nothing was changed, whatever it is.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ReadError {
    /// There is no such history, or not the one that the session has seen.
    #[error("history is missing: {0}")]
    HistoryMissing(Box<Failure>),
    /// The version is no longer at hand; [`Failure::oldest_version`] is. A scan
    /// has to begin again.
    #[error("version is retired: {0}")]
    VersionRetired(Box<Failure>),
    /// The version does not exist yet; [`Failure::newest_version`] does.
    #[error("version is ahead: {0}")]
    VersionAhead(Box<Failure>),
    /// The request breaks a rule; [`Failure::fields`] says which.
    #[error("request is invalid: {}", .0.rules())]
    Invalid(Box<Failure>),
    /// Time ran out. With [`Reason::FreshnessUnverified`], a weaker consistency
    /// may be answered.
    #[error("not read in time: {0}")]
    Expired(Box<Failure>),
    /// Refused for another reason, which the failure names.
    #[error("refused: {0}")]
    Refused(Box<Failure>),
    /// A transaction has read more than one operation can depend on.
    #[error("a transaction depends on {max} keys and ranges at most")]
    ReadSetFull {
        /// The limit.
        max: usize,
    },
}

impl From<GaveUp> for ReadError {
    fn from(gave_up: GaveUp) -> Self {
        let is_expired = gave_up.is_expired;
        let failure = gave_up.into_failure();
        if is_expired { Self::Expired(Box::new(failure)) } else { failure.into() }
    }
}

impl From<Failure> for ReadError {
    fn from(failure: Failure) -> Self {
        let failure = Box::new(failure);
        match failure.reason {
            Reason::HistoryMissing => Self::HistoryMissing(failure),
            Reason::VersionRetired => Self::VersionRetired(failure),
            Reason::VersionAhead => Self::VersionAhead(failure),
            Reason::FieldInvalid => Self::Invalid(failure),
            Reason::OperationIdReused
            | Reason::HistoryExists
            | Reason::PinExists
            | Reason::PinMissing
            | Reason::PinsFull
            | Reason::HistoryNeeded
            | Reason::HeadContended
            | Reason::QueueFull
            | Reason::HeadTooLarge
            | Reason::TooManyRequests
            | Reason::MessageTooLarge
            | Reason::StoreUnavailable
            | Reason::ShuttingDown
            | Reason::PublicationInDoubt
            | Reason::FreshnessUnverified
            | Reason::Expired
            | Reason::WatcherSlow
            | Reason::Fenced
            | Reason::FormatTooNew
            | Reason::StoredDataBad
            | Reason::Unauthenticated
            | Reason::PermissionDenied
            | Reason::Transport
            | Reason::Unrecognized => Self::Refused(failure),
        }
    }
}

impl Session {
    /// Reads one key.
    ///
    /// # Errors
    ///
    /// [`ReadError`]. An absent key is not one.
    pub async fn get(
        &self,
        key: impl Into<Bytes>,
        consistency: Consistency,
    ) -> Result<Read<Option<Entry>>, ReadError> {
        Ok(self.get_from(key.into(), consistency, None).await?.0)
    }

    /// Reads one key, and says who answered.
    pub(crate) async fn get_from(
        &self,
        key: Bytes,
        consistency: Consistency,
        prefer: Option<SocketAddr>,
    ) -> Result<(Read<Option<Entry>>, SocketAddr), ReadError> {
        let request = v1::GetRequest {
            history: self.history.to_string(),
            consistency: Some(self.consistency(consistency)),
            key,
            history_id: self.pinned_id(),
        };
        let call = self.client.to_replicas(prefer);
        let answer = call
            .run(|channel, time| {
                let request = timed(request.clone(), time);
                async move { read_service(channel).get(request).await }
            })
            .await?;
        let stamp = self.stamp(answer.value.stamp)?;
        Ok((Read { value: answer.value.entry.map(Entry::from), stamp }, answer.from))
    }

    /// Reads up to 1,024 keys from one view. One answer for each key, in their
    /// order.
    ///
    /// # Errors
    ///
    /// [`ReadError`].
    pub async fn batch_get(
        &self,
        keys: impl IntoIterator<Item = Bytes>,
        consistency: Consistency,
    ) -> Result<Read<Vec<Option<Entry>>>, ReadError> {
        let request = v1::BatchGetRequest {
            history: self.history.to_string(),
            consistency: Some(self.consistency(consistency)),
            keys: keys.into_iter().collect(),
            history_id: self.pinned_id(),
        };
        let call = self.client.to_replicas(None);
        let answer = call
            .run(|channel, time| {
                let request = timed(request.clone(), time);
                async move { read_service(channel).batch_get(request).await }
            })
            .await?
            .value;
        if answer.found.len() != request.keys.len() {
            return Err(Failure::malformed("an answer has not one value for each key").into());
        }
        let stamp = self.stamp(answer.stamp)?;
        let value = answer.found.into_iter().map(|it| it.entry.map(Entry::from)).collect();
        Ok(Read { value, stamp })
    }

    /// Reads the head as it is stored: JSON.
    ///
    /// # Errors
    ///
    /// [`ReadError`].
    pub async fn head(&self, consistency: Consistency) -> Result<Read<Bytes>, ReadError> {
        let request = v1::GetHeadRequest {
            history: self.history.to_string(),
            consistency: Some(self.consistency(consistency)),
            history_id: self.pinned_id(),
        };
        let call = self.client.to_replicas(None);
        let answer = call
            .run(|channel, time| {
                let request = timed(request.clone(), time);
                async move { read_service(channel).get_head(request).await }
            })
            .await?
            .value;
        let stamp = self.stamp(answer.stamp)?;
        Ok(Read { value: answer.head_json, stamp })
    }

    /// Reads change entries from a version on, oldest first; none means from the
    /// oldest at hand. `page_size` is at most 1,000; 0 means 100.
    ///
    /// # Errors
    ///
    /// [`ReadError::VersionRetired`] below the oldest version at hand.
    pub async fn changes(
        &self,
        from_version: Option<u64>,
        page_size: u32,
        consistency: Consistency,
    ) -> Result<Read<Changes>, ReadError> {
        let request = v1::ListChangesRequest {
            history: self.history.to_string(),
            consistency: Some(self.consistency(consistency)),
            from_version: from_version.unwrap_or_default(),
            page_size,
            history_id: self.pinned_id(),
        };
        let call = self.client.to_replicas(None);
        let answer = call
            .run(|channel, time| {
                let request = timed(request.clone(), time);
                async move { read_service(channel).list_changes(request).await }
            })
            .await?
            .value;
        let stamp = self.stamp(answer.stamp)?;
        let value = Changes {
            changes: answer.changes,
            oldest_version: answer.oldest_version,
            next_version: Some(answer.next_version).filter(|&it| it != 0),
        };
        Ok(Read { value, stamp })
    }

    /// Finds the version of a moment: the newest one that was decided then or
    /// before, by the clock of the writer that decided it. For people: clocks
    /// differ. Read it with [`Consistency::Exact`].
    ///
    /// # Errors
    ///
    /// [`ReadError::VersionRetired`] when every change that is kept was decided
    /// later; [`ReadError::Invalid`] for a moment before 1970.
    pub async fn version_at(
        &self,
        time: SystemTime,
        consistency: Consistency,
    ) -> Result<Read<VersionAt>, ReadError> {
        let request = v1::VersionAtRequest {
            history: self.history.to_string(),
            consistency: Some(self.consistency(consistency)),
            history_id: self.pinned_id(),
            time: Some(time.into()),
        };
        let call = self.client.to_replicas(None);
        let answer = call
            .run(|channel, time| {
                let request = timed(request.clone(), time);
                async move { read_service(channel).version_at(request).await }
            })
            .await?
            .value;
        let stamp = self.stamp(answer.stamp)?;
        let decided_at = answer.decided_at.and_then(|it| SystemTime::try_from(it).ok());
        Ok(Read { value: VersionAt { version: answer.version, decided_at }, stamp })
    }

    /// Reads a stamp, and takes note of its version.
    pub(crate) fn stamp(&self, stamp: Option<v1::ReadStamp>) -> Result<Stamp, Failure> {
        let stamp = stamp.ok_or_else(|| Failure::malformed("an answer has no stamp"))?;
        self.note(&stamp.history_id, Some(stamp.state_version))?;
        let history_id = HistoryId::new(stamp.history_id)
            .map_err(|_| Failure::malformed("an answer names no history"))?;
        let proof_age = proof_age(stamp.proof_age)?;
        Ok(Stamp {
            history_id,
            state_version: stamp.state_version,
            revision: stamp.revision,
            proof_age,
        })
    }

    pub(crate) fn consistency(&self, consistency: Consistency) -> v1::Consistency {
        let level = match consistency {
            Consistency::Strong => Level::Strong(Strong {}),
            Consistency::Session => match self.token() {
                Some(token) => Level::AtLeastVersion(token.state_version),
                None => Level::Strong(Strong {}),
            },
            Consistency::AtLeast(version) => Level::AtLeastVersion(version),
            Consistency::Exact(version) => Level::ExactVersion(version),
            // One that does not fit the wire's 10,000 years is no limit.
            Consistency::MaxStaleness(age) => match age.try_into() {
                Ok(age) => Level::MaxStaleness(age),
                Err(_) => Level::Any(Any {}),
            },
            Consistency::Any => Level::Any(Any {}),
        };
        v1::Consistency { level: Some(level) }
    }
}

/// How old a proof is. One that is not said, or not as a duration, is no proof
/// of now: nobody may take what it stands for as fresh.
pub(crate) fn proof_age(wire: Option<prost_types::Duration>) -> Result<Duration, Failure> {
    let age = wire.and_then(duration::from_wire);
    age.ok_or_else(|| Failure::malformed("an answer does not say how old its proof is"))
}

impl From<v1::Entry> for Entry {
    fn from(wire: v1::Entry) -> Self {
        Self { key: wire.key, value: wire.value, version: wire.version }
    }
}
