//! Fetching what a reference names: verified, or an error with the key.

use std::sync::Arc;

use bytes::Bytes;
use headwater_core::format::DecodeError;
use headwater_core::hash::ContentHash;
use headwater_core::head::ObjectRef;
use headwater_core::id::HistoryName;
use headwater_store::Store;

use crate::error::{Defect, StateError};

/// The objects of one history, and those of others that it names.
#[derive(Debug)]
pub(crate) struct Source {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) history: HistoryName,
}

impl Source {
    /// Where an object is: below the prefix of another history, if it has an
    /// owner.
    pub(crate) fn key_of(&self, owner: Option<&Arc<HistoryName>>, object: &ObjectRef) -> String {
        owner.map_or(&self.history, |it| it).object_key(&object.key)
    }

    /// Reads an object whole. Its bytes are the ones that were referenced.
    pub(crate) async fn fetch(&self, object: &ObjectRef) -> Result<Bytes, StateError> {
        self.fetch_of(None, object).await
    }

    /// As [`Source::fetch`], of another history if it has an owner.
    pub(crate) async fn fetch_of(
        &self,
        owner: Option<&Arc<HistoryName>>,
        object: &ObjectRef,
    ) -> Result<Bytes, StateError> {
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
