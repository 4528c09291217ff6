//! What came of reading an object, when it was not what it should be.

use headwater_core::format::DecodeError;
use headwater_core::head::ObjectRef;
use headwater_state::StateError;
use headwater_store::{ReadError, SealError, Store};

use bytes::Bytes;

/// Why an object could not be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Trouble {
    /// It is not there.
    Missing,
    /// It is there, and it is not what was referenced.
    Damaged(String),
    /// Nothing is known about it: another build or another key is needed, or
    /// access is denied.
    Closed(String),
    /// The store did not answer, or the budget is spent.
    NoAnswer(String),
    /// The changes do not lead to the head.
    Chain(String),
}

/// Trouble, and the object that it is about where that is known.
pub(crate) struct Blamed {
    pub(crate) key: Option<String>,
    pub(crate) trouble: Trouble,
}

impl Trouble {
    pub(crate) fn of_read(error: &ReadError) -> Self {
        match error {
            ReadError::Missing { .. } => Self::Missing,
            ReadError::Unavailable { .. } => Self::NoAnswer(with_causes(error)),
            ReadError::Denied { .. } => Self::Closed(with_causes(error)),
            ReadError::Sealed { cause, .. } => match cause {
                SealError::NoKeys { .. }
                | SealError::KeyMissing { .. }
                | SealError::OtherKey { .. }
                | SealError::TooNew { .. } => Self::Closed(cause.to_string()),
                SealError::NotSealed | SealError::Refused { .. } | SealError::Malformed => {
                    Self::Damaged(cause.to_string())
                }
            },
        }
    }

    pub(crate) fn of_decode(error: DecodeError) -> Self {
        match error {
            DecodeError::Malformed { .. } => Self::Damaged(error.to_string()),
            DecodeError::TooNew { .. } => Self::Closed(error.to_string()),
        }
    }
}

impl Blamed {
    pub(crate) fn of_state(error: &StateError) -> Self {
        match error {
            StateError::Store(error) => {
                let key = match &**error {
                    ReadError::Unavailable { .. } => None,
                    ReadError::Missing { key }
                    | ReadError::Denied { key, .. }
                    | ReadError::Sealed { key, .. } => Some(key.clone()),
                };
                Self { key, trouble: Trouble::of_read(error) }
            }
            StateError::Missing { key } => {
                Self { key: Some(key.clone()), trouble: Trouble::Missing }
            }
            StateError::Bad { key, what } => {
                Self { key: Some(key.clone()), trouble: Trouble::Damaged(what.to_string()) }
            }
            StateError::TooNew { key, .. } => {
                Self { key: Some(key.clone()), trouble: Trouble::Closed(error.to_string()) }
            }
            StateError::Follow(error) => {
                Self { key: None, trouble: Trouble::Chain(error.to_string()) }
            }
        }
    }
}

/// Reads an object whole: its bytes are the ones that were referenced.
pub(crate) async fn fetch(
    store: &dyn Store,
    key: &str,
    object: &ObjectRef,
) -> Result<Bytes, Trouble> {
    let bytes = store.get(key).await.map_err(|error| Trouble::of_read(&error))?;
    if bytes.len() as u64 != object.size_bytes {
        let (found, expected) = (bytes.len(), object.size_bytes);
        return Err(Trouble::Damaged(format!("it is {found} bytes long and not {expected}")));
    }
    if !object.is_to(&bytes) {
        return Err(Trouble::Damaged("it has another hash than its reference".into()));
    }
    Ok(bytes)
}

fn with_causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(it) = cause {
        text = format!("{text}: {it}");
        cause = it.source();
    }
    text
}
