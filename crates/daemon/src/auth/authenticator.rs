//! The file of rights in use, read again when it changes.

use std::convert::Infallible;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use headwater_store::Clock;
use headwater_tls::StaleSince;
use tokio::sync::watch;
use tokio::time::Instant;

use super::Principal;
use super::access::{Access, AccessError, Shown, Sources, Unknown};
use crate::telemetry::with_causes;

/// Why there are no rights to go by.
#[derive(Debug, thiserror::Error)]
#[error("the file of rights {} cannot be used", path.display())]
pub struct AuthenticatorError {
    /// Which file.
    pub path: PathBuf,
    /// What is wrong.
    #[source]
    pub source: AccessError,
}

/// Says who a caller is. Clones share the file.
#[derive(Clone, Debug)]
pub struct Authenticator(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    path: PathBuf,
    clock: Clock,
    current: watch::Sender<Arc<Access>>,
    fingerprint: Mutex<blake3::Hash>,
    stale: StaleSince,
}

impl Authenticator {
    /// Reads the file.
    ///
    /// # Errors
    ///
    /// [`AuthenticatorError`] names the line or the row.
    pub async fn load(path: PathBuf, clock: Clock) -> Result<Self, AuthenticatorError> {
        let failed = |source| AuthenticatorError { path: path.clone(), source };
        let sources = Sources::read(&path).await.map_err(failed)?;
        let access = Access::of(&path, &sources).map_err(failed)?;
        let fingerprint = Mutex::new(sources.fingerprint());
        let current = watch::Sender::new(Arc::new(access));
        let stale = StaleSince::default();
        Ok(Self(Arc::new(Inner { path, clock, current, fingerprint, stale })))
    }

    /// Who has shown this.
    ///
    /// # Errors
    ///
    /// [`Unknown`].
    pub fn authenticate(&self, shown: &Shown) -> Result<Principal, Unknown> {
        let access = Arc::clone(&self.0.current.borrow());
        access.authenticate(shown, self.0.clock.now_ms())
    }

    /// Looks at the files again; says whether others are in use now.
    ///
    /// # Errors
    ///
    /// [`AuthenticatorError`]: the old ones stay in use.
    pub async fn reload(&self) -> Result<bool, AuthenticatorError> {
        let reloaded = self.read_again().await;
        self.0.stale.note(reloaded.is_ok());
        reloaded
    }

    /// Since when the files cannot be used, and older rights are in use in their
    /// place; `None` while all is well.
    pub fn stale_since(&self) -> Option<Instant> {
        self.0.stale.get()
    }

    async fn read_again(&self) -> Result<bool, AuthenticatorError> {
        let failed = |source| AuthenticatorError { path: self.0.path.clone(), source };
        let sources = Sources::read(&self.0.path).await.map_err(failed)?;
        let fingerprint = sources.fingerprint();
        if *self.0.fingerprint.lock().unwrap_or_else(PoisonError::into_inner) == fingerprint {
            return Ok(false);
        }
        let access = Access::of(&self.0.path, &sources).map_err(failed)?;
        self.0.current.send_replace(Arc::new(access));
        *self.0.fingerprint.lock().unwrap_or_else(PoisonError::into_inner) = fingerprint;
        Ok(true)
    }

    /// Looks at the files again every `interval`, until it is dropped.
    pub async fn keep_fresh(self, interval: Duration) -> Infallible {
        let path = self.0.path.display().to_string();
        let mut said = None;
        loop {
            tokio::time::sleep(interval).await;
            match self.reload().await {
                Ok(false) => said = None,
                Ok(true) => {
                    said = None;
                    tracing::info!(target: crate::audit::TARGET, path, "new rights are in use");
                }
                Err(error) => {
                    // Once for each way in which they are bad.
                    let error = with_causes(&error);
                    if said.as_ref() != Some(&error) {
                        tracing::error!(
                            path,
                            error,
                            "changed rights cannot be used; the old ones stay in use"
                        );
                        said = Some(error);
                    }
                }
            }
        }
    }

    /// Waits until what was shown proves something else than `before`, or
    /// nothing any more.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe.
    pub(crate) async fn changed(self, shown: Shown, before: Principal) {
        let mut current = self.0.current.subscribe();
        loop {
            current.mark_unchanged();
            let now_ms = self.0.clock.now_ms();
            let access = Arc::clone(&current.borrow());
            match access.authenticate(&shown, now_ms) {
                Ok(it) if it == before => {}
                Ok(_) | Err(_) => return,
            }
            let expiry = async {
                match before.expires_at_ms {
                    Some(at) => {
                        // At least a while: clocks of the day stand still or go
                        // back, and this is no place to spin.
                        let left = at.saturating_sub(now_ms).max(100);
                        tokio::time::sleep(Duration::from_millis(left)).await;
                    }
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                changed = current.changed() => if changed.is_err() { return },
                () = expiry => {}
            }
        }
    }
}
