//! How each kind of answer says that something went wrong.

use std::time::Duration;

use bytes::{Bytes, BytesMut};

use crate::{
    Cause, Folder, HeadRead, HeadWrite, Listed, NoAnswer, NoAnswerKind, PutError, ReadError,
};

/// The cause inside every answer that a script ordered.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("a fault was ordered: {kind:?}")]
struct Ordered {
    kind: NoAnswerKind,
}

/// What a store answers to some call.
pub(super) trait Answer: Send + Sized {
    /// There is no trustworthy answer.
    fn lost(key: &str, kind: NoAnswerKind, retry_after: Option<Duration>) -> Self;

    /// There is no such object, and no head to replace.
    fn missing(key: &str) -> Self {
        Self::lost(key, NoAnswerKind::Other, None)
    }

    /// The condition failed.
    fn mismatch(key: &str) -> Self {
        Self::lost(key, NoAnswerKind::Other, None)
    }

    /// Changes the bytes that were read, where there are some.
    #[must_use]
    fn map_bytes(self, _change: fn(&Bytes) -> Bytes) -> Self {
        self
    }
}

fn lost(key: &str, kind: NoAnswerKind, retry_after: Option<Duration>) -> ReadError {
    let cause: Cause = Box::new(Ordered { kind });
    match kind {
        NoAnswerKind::Denied => ReadError::Denied { key: key.into(), cause },
        NoAnswerKind::Conflict | NoAnswerKind::Throttled | NoAnswerKind::Other => {
            ReadError::Unavailable { retry_after, cause }
        }
    }
}

impl Answer for HeadWrite {
    fn lost(_key: &str, kind: NoAnswerKind, retry_after: Option<Duration>) -> Self {
        Self::NoAnswer(NoAnswer { kind, retry_after, cause: Box::new(Ordered { kind }) })
    }

    fn missing(_key: &str) -> Self {
        Self::Gone
    }

    fn mismatch(_key: &str) -> Self {
        Self::Mismatch
    }
}

impl Answer for Result<HeadRead, ReadError> {
    fn lost(key: &str, kind: NoAnswerKind, retry_after: Option<Duration>) -> Self {
        Err(lost(key, kind, retry_after))
    }

    fn missing(_key: &str) -> Self {
        Ok(HeadRead::Missing)
    }

    fn map_bytes(self, change: fn(&Bytes) -> Bytes) -> Self {
        self.map(|read| match read {
            HeadRead::Found { bytes, tag } => HeadRead::Found { bytes: change(&bytes), tag },
            HeadRead::Unchanged | HeadRead::Missing => read,
        })
    }
}

impl Answer for Result<Bytes, ReadError> {
    fn lost(key: &str, kind: NoAnswerKind, retry_after: Option<Duration>) -> Self {
        Err(lost(key, kind, retry_after))
    }

    fn missing(key: &str) -> Self {
        Err(ReadError::Missing { key: key.into() })
    }

    fn map_bytes(self, change: fn(&Bytes) -> Bytes) -> Self {
        self.map(|bytes| change(&bytes))
    }
}

impl Answer for Result<(), PutError> {
    fn lost(key: &str, kind: NoAnswerKind, retry_after: Option<Duration>) -> Self {
        Err(lost(key, kind, retry_after).into())
    }

    fn mismatch(key: &str) -> Self {
        Err(PutError::Occupied { key: key.into() })
    }
}

impl Answer for Result<(), ReadError> {
    fn lost(key: &str, kind: NoAnswerKind, retry_after: Option<Duration>) -> Self {
        Err(lost(key, kind, retry_after))
    }
}

impl Answer for Result<Vec<Listed>, ReadError> {
    fn lost(key: &str, kind: NoAnswerKind, retry_after: Option<Duration>) -> Self {
        Err(lost(key, kind, retry_after))
    }

    fn missing(_key: &str) -> Self {
        Ok(Vec::new())
    }
}

impl Answer for Result<Folder, ReadError> {
    fn lost(key: &str, kind: NoAnswerKind, retry_after: Option<Duration>) -> Self {
        Err(lost(key, kind, retry_after))
    }

    fn missing(_key: &str) -> Self {
        Ok(Folder::default())
    }
}

/// Flips one bit in the middle; an empty object gets a byte.
pub(super) fn corrupt(bytes: &Bytes) -> Bytes {
    let mut bytes = BytesMut::from(bytes.as_ref());
    let middle = bytes.len() / 2;
    match bytes.get_mut(middle) {
        Some(byte) => *byte ^= 1,
        None => bytes.extend_from_slice(b"\0"),
    }
    bytes.freeze()
}

/// Keeps the first half.
pub(super) fn truncate(bytes: &Bytes) -> Bytes {
    bytes.slice(..bytes.len() / 2)
}
