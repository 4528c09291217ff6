//! Encryption of everything in the bucket, by the processes that use it.
//!
//! In here: [`Sealed`], a store whose objects are encrypted with keys that the
//! bucket does not have, and [`Plain`], which refuses such objects by the name
//! of their key. Not in here: where keys come from.
//!
//! What the bucket still sees: names of histories, kinds, staged revisions,
//! sizes and times, and of a head its revision and the id of the key.
//!
//! # Architecture invariants
//!
//! - What was sealed for one name does not open under another: the object's
//!   key and the header are authenticated with the content.
//! - Equal content under an equal name is sealed to equal bytes by one key, so
//!   a repeated call repeats its bytes. Two heads of a history are never
//!   equal, so their ciphertexts are not either (PROTOCOL 3.1).
//! - One name for one object, whatever key seals it: names have a secret of
//!   their own, which does not rotate. Otherwise "create if absent" would
//!   create twice in the middle of a rotation.

mod envelope;
mod keyring;
mod names;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use headwater_core::format;
use headwater_core::id::Tag;
use headwater_core::version::Revision;
use tokio::task::spawn_blocking;

pub use self::envelope::SealError;
pub use self::keyring::{KeyId, Keyring, KeyringError};
use crate::forward::forward;
use crate::{Folder, HeadRead, HeadWrite, Listed, NoAnswer, PutError, ReadError, Store};

/// Content from this size on is sealed and opened beside the tasks, in bytes.
/// A megabyte takes about a millisecond.
const BESIDE_LEN_BYTES: usize = 1 << 20;

/// Encrypts what is written, and decrypts and authenticates what is read.
#[derive(Debug)]
pub struct Sealed {
    inner: Arc<dyn Store>,
    keyring: Arc<Keyring>,
}

impl Sealed {
    /// Seals what goes to `inner` with the first key of `keyring`, and opens
    /// with all of them.
    ///
    /// Goes around retries: they then repeat bytes, and do not seal again.
    pub fn new(inner: Arc<dyn Store>, keyring: Keyring) -> Self {
        Self { inner, keyring: Arc::new(keyring) }
    }

    fn name(&self, key: &str) -> String {
        names::seal(self.keyring.names(), key)
    }

    async fn seal(
        &self,
        key: &str,
        revision: Option<u64>,
        bytes: Bytes,
    ) -> Result<Bytes, SealError> {
        let (keyring, key) = (Arc::clone(&self.keyring), key.to_owned());
        let n_bytes = bytes.len();
        beside(n_bytes, move || envelope::seal(keyring.sealing(), &key, revision, &bytes)).await
    }

    async fn open(&self, key: &str, bytes: Bytes) -> Result<Bytes, ReadError> {
        let (keyring, name) = (Arc::clone(&self.keyring), key.to_owned());
        let n_bytes = bytes.len();
        let opened = beside(n_bytes, move || envelope::open(&keyring, &name, &bytes)).await;
        opened.map_err(|error| ReadError::sealed(key, error))
    }

    async fn seal_head(&self, key: &str, bytes: Bytes) -> Result<Bytes, HeadWrite> {
        let revision = format::head::peek_revision(&bytes).map(Revision::get);
        self.seal(key, revision, bytes)
            .await
            .map_err(|it| HeadWrite::NoAnswer(NoAnswer::sealed(it)))
    }

    fn listed(&self, stored: &Listed) -> Listed {
        let overhead = envelope::OVERHEAD_LEN_BYTES as u64;
        Listed {
            key: names::open(self.keyring.names(), &stored.key),
            size_bytes: stored.size_bytes.saturating_sub(overhead),
        }
    }
}

/// Runs `work` here, or beside the tasks where it would hold them up.
async fn beside(
    n_bytes: usize,
    work: impl FnOnce() -> Result<Bytes, SealError> + Send + 'static,
) -> Result<Bytes, SealError> {
    if n_bytes < BESIDE_LEN_BYTES {
        return work();
    }
    match spawn_blocking(work).await {
        Ok(done) => done,
        // The runtime is shutting down: nobody sees the answer.
        Err(_) => Err(SealError::Malformed),
    }
}

#[async_trait]
impl Store for Sealed {
    forward!(inner: reads_in_vain);

    fn replacement_pause(&self, key: &str) -> Duration {
        self.inner.replacement_pause(&self.name(key))
    }

    fn put_requests(&self, size_bytes: u64) -> u64 {
        let stored_bytes = size_bytes.saturating_add(envelope::OVERHEAD_LEN_BYTES as u64);
        self.inner.put_requests(stored_bytes)
    }

    fn get_requests(&self, size_bytes: u64) -> u64 {
        let stored_bytes = size_bytes.saturating_add(envelope::OVERHEAD_LEN_BYTES as u64);
        self.inner.get_requests(stored_bytes)
    }

    async fn read_head(&self, key: &str, known: Option<&Tag>) -> Result<HeadRead, ReadError> {
        let answer = self.inner.read_head(&self.name(key), known).await;
        match answer.map_err(|it| it.of_key(key))? {
            HeadRead::Found { bytes, tag } => {
                Ok(HeadRead::Found { bytes: self.open(key, bytes).await?, tag })
            }
            seen @ (HeadRead::Unchanged | HeadRead::Missing) => Ok(seen),
        }
    }

    async fn create_head(&self, key: &str, bytes: Bytes) -> HeadWrite {
        match self.seal_head(key, bytes).await {
            Ok(sealed) => self.inner.create_head(&self.name(key), sealed).await,
            Err(answer) => answer,
        }
    }

    async fn replace_head(&self, key: &str, if_match: &Tag, bytes: Bytes) -> HeadWrite {
        match self.seal_head(key, bytes).await {
            Ok(sealed) => self.inner.replace_head(&self.name(key), if_match, sealed).await,
            Err(answer) => answer,
        }
    }

    async fn put(&self, key: &str, bytes: Bytes) -> Result<(), PutError> {
        let sealed = self.seal(key, None, bytes.clone()).await;
        let sealed = sealed.map_err(|error| ReadError::sealed(key, error))?;
        match self.inner.put(&self.name(key), sealed).await {
            // Maybe the same content, sealed with another key.
            Err(PutError::Occupied { .. }) => match self.get(key).await? {
                found if found == bytes => Ok(()),
                _ => Err(PutError::Occupied { key: key.into() }),
            },
            Err(PutError::Store(error)) => Err(error.of_key(key).into()),
            Ok(()) => Ok(()),
        }
    }

    async fn get(&self, key: &str) -> Result<Bytes, ReadError> {
        let bytes = self.inner.get(&self.name(key)).await.map_err(|it| it.of_key(key))?;
        self.open(key, bytes).await
    }

    async fn get_sized(&self, key: &str, size_bytes: u64) -> Result<Bytes, ReadError> {
        let stored_bytes = size_bytes.saturating_add(envelope::OVERHEAD_LEN_BYTES as u64);
        let bytes = self.inner.get_sized(&self.name(key), stored_bytes).await;
        self.open(key, bytes.map_err(|it| it.of_key(key))?).await
    }

    async fn list(
        &self,
        prefix: &str,
        start_after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<Listed>, ReadError> {
        let after = start_after.map(|it| self.name(it));
        let listed = self.inner.list(&self.name(prefix), after.as_deref(), limit).await?;
        Ok(listed.iter().map(|it| self.listed(it)).collect())
    }

    async fn list_folder(&self, prefix: &str) -> Result<Folder, ReadError> {
        let Folder { objects, folders } = self.inner.list_folder(prefix).await?;
        let objects = objects.iter().map(|it| self.listed(it)).collect();
        Ok(Folder { objects, folders })
    }

    async fn delete(&self, key: &str) -> Result<(), ReadError> {
        self.inner.delete(&self.name(key)).await.map_err(|it| it.of_key(key))
    }
}

/// A store that is used without keys. Sealed objects in it are refused by the
/// id of their key, and not as damaged.
#[derive(Debug)]
pub struct Plain {
    inner: Arc<dyn Store>,
}

impl Plain {
    /// Refuses what is sealed in `inner`.
    pub fn new(inner: Arc<dyn Store>) -> Self {
        Self { inner }
    }
}

#[async_trait]
impl Store for Plain {
    forward!(inner: hints, create_head, replace_head, put, list, list_folder, delete);

    async fn read_head(&self, key: &str, known: Option<&Tag>) -> Result<HeadRead, ReadError> {
        match self.inner.read_head(key, known).await? {
            HeadRead::Found { bytes, tag } => {
                let bytes = envelope::pass(bytes).map_err(|it| ReadError::sealed(key, it))?;
                Ok(HeadRead::Found { bytes, tag })
            }
            seen @ (HeadRead::Unchanged | HeadRead::Missing) => Ok(seen),
        }
    }

    async fn get(&self, key: &str) -> Result<Bytes, ReadError> {
        let bytes = self.inner.get(key).await?;
        envelope::pass(bytes).map_err(|it| ReadError::sealed(key, it))
    }

    async fn get_sized(&self, key: &str, size_bytes: u64) -> Result<Bytes, ReadError> {
        let bytes = self.inner.get_sized(key, size_bytes).await?;
        envelope::pass(bytes).map_err(|it| ReadError::sealed(key, it))
    }
}
