//! Fetching what a reference names: verified, or an error with the key.

use std::sync::Arc;

use bytes::Bytes;
use headwater_core::format::DecodeError;
use headwater_core::hash::ContentHash;
use headwater_core::head::ObjectRef;
use headwater_core::id::HistoryName;
use headwater_core::keys::ObjectKind;
use headwater_store::Store;

use crate::disk::DiskCache;
use crate::error::{Defect, StateError};

/// The objects of one history, and those of others that it names.
#[derive(Debug)]
pub(crate) struct Source {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) history: HistoryName,
    /// Looked into first, for what is named by its content.
    pub(crate) disk: Option<DiskCache>,
}

/// Whether what was fetched goes to the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Keep {
    Yes,
    /// A pass over everything would push out what requests use.
    No,
}

impl Source {
    /// Where an object is: below the prefix of another history, if it has an
    /// owner.
    pub(crate) fn key_of(&self, owner: Option<&Arc<HistoryName>>, object: &ObjectRef) -> String {
        owner.map_or(&self.history, |it| it).object_key(&object.key)
    }

    /// Reads an object whole. Its bytes are the ones that were referenced.
    pub(crate) async fn fetch(&self, object: &ObjectRef) -> Result<Bytes, StateError> {
        self.fetch_of(None, object, Keep::Yes).await
    }

    /// As [`Source::fetch`], of another history if it has an owner.
    pub(crate) async fn fetch_of(
        &self,
        owner: Option<&Arc<HistoryName>>,
        object: &ObjectRef,
        keep: Keep,
    ) -> Result<Bytes, StateError> {
        let disk = self.disk.as_ref().filter(|_| is_for_disk(object));
        if let Some(disk) = disk
            && let Some(bytes) = disk.get(object.hash, object.size_bytes).await
        {
            return Ok(bytes);
        }
        let key = self.key_of(owner, object);
        let bytes = self.store.get_sized(&key, object.size_bytes).await;
        let bytes = bytes.map_err(StateError::of_read)?;
        let found_bytes = bytes.len() as u64;
        if found_bytes != object.size_bytes {
            let what = Defect::Length { expected_bytes: object.size_bytes, found_bytes };
            return Err(StateError::Bad { key, what });
        }
        if ContentHash::of(&bytes) != object.hash {
            return Err(StateError::Bad { key, what: Defect::Hash });
        }
        if let Some(disk) = disk.filter(|_| keep == Keep::Yes) {
            disk.put(object.hash, &bytes);
        }
        Ok(bytes)
    }

    /// Reads an object and takes it apart.
    pub(crate) async fn fetch_as<T>(
        &self,
        object: &ObjectRef,
        decode: impl FnOnce(Bytes) -> Result<T, DecodeError>,
    ) -> Result<T, StateError> {
        let bytes = self.fetch(object).await?;
        decode(bytes).map_err(|it| StateError::of_decode(self.history.object_key(&object.key), it))
    }

    /// The error for an object that is whole and does not fit.
    pub(crate) fn contradicts(&self, object: &ObjectRef, fact: &'static str) -> StateError {
        StateError::contradicts(self.history.object_key(&object.key), fact)
    }
}

/// What is read again and again, and what opening reads. Change entries are
/// small, and soon in a segment.
fn is_for_disk(object: &ObjectRef) -> bool {
    match object.key.kind() {
        ObjectKind::Chunk | ObjectKind::Segment | ObjectKind::Snapshot | ObjectKind::Receipts => {
            true
        }
        ObjectKind::Change | ObjectKind::Data | ObjectKind::Archive => false,
    }
}
