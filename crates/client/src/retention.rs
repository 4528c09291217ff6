//! Older versions: pins, retention, restores and forks.

use headwater_proto::v1;

use crate::admin::{History, HistoryError, read_history};
use crate::call::timed;
use crate::client::{Client, retention_service};
use crate::id::{HistoryId, OperationId};

/// A name on a version that retention respects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pin {
    /// Its name.
    pub name: String,
    /// The version that stays readable.
    pub version: u64,
    /// When it may go by itself, in milliseconds since 1970.
    pub expires_at_ms: Option<u64>,
    /// The forked history that needs it.
    pub child: Option<String>,
}

/// How far back versions can be read. What any of the two keeps is kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Retention {
    /// So many versions before the newest.
    pub versions: u64,
    /// Versions that were the newest within this time, in milliseconds.
    pub age_ms: u64,
}

/// What came of a restore.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Restored {
    /// There is a version with the old state.
    Accepted {
        /// It.
        state_version: u64,
        /// Keys that were written or deleted for it.
        keys_changed: u64,
        /// Whether an earlier submission was what got it accepted.
        from_receipt: bool,
    },
    /// The receipts that could tell whether it was accepted before are gone.
    Unknown,
}

impl Pin {
    pub(crate) fn read(wire: v1::Pin) -> Self {
        Self {
            name: wire.name,
            version: wire.version,
            expires_at_ms: Some(wire.expires_at_ms).filter(|it| *it != 0),
            child: Some(wire.child).filter(|it| !it.is_empty()),
        }
    }
}

impl Retention {
    pub(crate) fn read(wire: v1::Retention) -> Self {
        Self { versions: wire.versions, age_ms: wire.age_ms }
    }
}

impl Client {
    /// Puts a name on a version, or on the newest, so that it stays readable.
    /// Safe to repeat with the version named.
    ///
    /// # Errors
    ///
    /// [`HistoryError`]; [`HistoryError::Exists`] when the name is on another
    /// version.
    pub async fn pin_version(
        &self,
        name: &str,
        pin: &str,
        version: Option<u64>,
        expires_at_ms: Option<u64>,
    ) -> Result<Pin, HistoryError> {
        let request = v1::PinVersionRequest {
            name: name.to_owned(),
            pin: pin.to_owned(),
            version,
            expires_at_ms: expires_at_ms.unwrap_or(0),
        };
        let answer = self
            .to_writers(name)
            .run(|channel, time| {
                let request = timed(request.clone(), time);
                async move { retention_service(channel).pin_version(request).await }
            })
            .await?;
        Ok(Pin::read(answer.value.pin.unwrap_or_default()))
    }

    /// Takes a name away. `child` names the fork whose pin it is, where it is
    /// one's and is known not to be needed.
    ///
    /// # Errors
    ///
    /// [`HistoryError`]. After a lost answer the pin may be gone already, which
    /// is then refused as missing.
    pub async fn unpin_version(
        &self,
        name: &str,
        pin: &str,
        child: Option<&HistoryId>,
    ) -> Result<(), HistoryError> {
        let request = v1::UnpinVersionRequest {
            name: name.to_owned(),
            pin: pin.to_owned(),
            child_history_id: child.map(|it| it.as_str().to_owned()).unwrap_or_default(),
        };
        self.to_writers(name)
            .run(|channel, time| {
                let request = timed(request.clone(), time);
                async move { retention_service(channel).unpin_version(request).await }
            })
            .await?;
        Ok(())
    }

    /// Sets how far back versions of a history are kept. Safe to repeat.
    ///
    /// # Errors
    ///
    /// [`HistoryError`].
    pub async fn set_retention(
        &self,
        name: &str,
        retention: Retention,
    ) -> Result<Retention, HistoryError> {
        let Retention { versions, age_ms } = retention;
        let wanted = v1::Retention { versions, age_ms };
        let request = v1::SetRetentionRequest { name: name.to_owned(), retention: Some(wanted) };
        let answer = self
            .to_writers(name)
            .run(|channel, time| {
                let request = timed(request.clone(), time);
                async move { retention_service(channel).set_retention(request).await }
            })
            .await?;
        Ok(answer.value.retention.map_or(retention, Retention::read))
    }

    /// Accepts one more version whose state equals that of `version`. The same
    /// id, sent again, finds out what became of it.
    ///
    /// # Errors
    ///
    /// [`HistoryError`]; [`HistoryError::Invalid`] too for a difference that is
    /// over the limits of one operation.
    pub async fn restore_version(
        &self,
        name: &str,
        version: u64,
        operation_id: &OperationId,
        issued_from_version: u64,
        writer_epoch: u64,
    ) -> Result<Restored, HistoryError> {
        let request = v1::RestoreVersionRequest {
            name: name.to_owned(),
            version,
            operation_id: operation_id.as_str().to_owned(),
            issued_from_version,
            writer_epoch,
        };
        let answer = self
            .to_writers(name)
            .run(|channel, time| {
                let request = timed(request.clone(), time);
                async move { retention_service(channel).restore_version(request).await }
            })
            .await?;
        let v1::RestoreVersionResponse { state_version, keys_changed, from_receipt, .. } =
            answer.value;
        if answer.value.outcome_unknown {
            return Ok(Restored::Unknown);
        }
        Ok(Restored::Accepted { state_version, keys_changed, from_receipt })
    }

    /// Makes a new history that begins with an older version of another, or with
    /// its newest. Safe to repeat with the same id.
    ///
    /// # Errors
    ///
    /// [`HistoryError`]; [`HistoryError::Exists`] when the name is taken.
    pub async fn fork_history(
        &self,
        source: &str,
        version: Option<u64>,
        name: &str,
        history_id: &HistoryId,
    ) -> Result<History, HistoryError> {
        let request = v1::ForkHistoryRequest {
            source: source.to_owned(),
            version,
            name: name.to_owned(),
            history_id: history_id.as_str().to_owned(),
        };
        let answer = self
            .to_writers(source)
            .run(|channel, time| {
                let request = timed(request.clone(), time);
                async move { retention_service(channel).fork_history(request).await }
            })
            .await?;
        read_history(answer.value.history)
    }
}
