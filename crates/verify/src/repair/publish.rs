//! Publishing the head of a repair.
//!
//! By itself and not through a writer: a repair is for when writers cannot open
//! the history. The condition on the head's tag makes it as safe beside them as
//! another writer is; what it changes is conditioned once more on every head
//! that it is put into.

use std::time::Duration;

use bytes::Bytes;
use headwater_core::format;
use headwater_core::head::{Head, Lifecycle, Publisher, Successor};
use headwater_core::id::{HistoryName, Nonce, Tag};
use headwater_core::version::Revision;
use headwater_store::{Entropy, HeadRead, HeadWrite, Store};

use super::RepairError;

/// How often it is tried. Each time that it is lost, somebody else has moved the
/// history on.
const ATTEMPTS_MAX: u32 = 16;
/// Longest pause between two tries.
const PAUSE: Duration = Duration::from_millis(500);
/// Names the process in heads.
const PUBLISHER: &str = "headwater-verify";

pub(super) struct Current {
    pub(super) head: Head,
    pub(super) tag: Tag,
}

/// The head as it is now.
pub(super) async fn current(
    store: &dyn Store,
    history: &HistoryName,
) -> Result<Current, RepairError> {
    match store.read_head(&history.head_key(), None).await? {
        HeadRead::Found { bytes, tag } => match format::head::decode(&bytes) {
            Ok(head) if head.lifecycle == Lifecycle::Live => Ok(Current { head, tag }),
            Ok(_) | Err(_) => Err(RepairError::Moved),
        },
        HeadRead::Missing | HeadRead::Unchanged => Err(RepairError::Moved),
    }
}

/// Publishes what `put` puts into the newest head. `is_done` tells it in a head
/// that is read after a lost answer.
pub(super) async fn publish(
    store: &dyn Store,
    history: &HistoryName,
    entropy: &Entropy,
    put: impl Fn(&mut Successor<'_>) -> bool + Send + Sync,
    is_done: impl Fn(&Head) -> bool + Send + Sync,
) -> Result<Revision, RepairError> {
    let mut is_in_doubt = false;
    for _ in 0..ATTEMPTS_MAX {
        let Current { head, tag } = current(store, history).await?;
        if is_done(&head) {
            return Ok(head.revision);
        }
        let nonce = Nonce::from_bytes(entropy.bytes16());
        let mut successor =
            Successor::of(&head, Publisher { id: PUBLISHER.into(), nonce, address: None });
        if !put(&mut successor) {
            return Err(if is_in_doubt { RepairError::InDoubt } else { RepairError::Moved });
        }
        let next = successor.finish();
        // The last line of defence, as for every head that is published.
        if let Err(error) = next.check().and_then(|()| next.check_follows(&head)) {
            tracing::warn!(%error, "a repair does not fit the head");
            return Err(RepairError::Moved);
        }
        let bytes = Bytes::from(format::head::encode(&next));
        match store.replace_head(&history.head_key(), &tag, bytes).await {
            HeadWrite::Replaced { .. } => return Ok(next.revision),
            HeadWrite::Mismatch | HeadWrite::Gone => (),
            HeadWrite::NoAnswer(error) => {
                tracing::warn!(%error, "publishing a repair got no answer; the head is read again");
                is_in_doubt = true;
            }
        }
        tokio::time::sleep(entropy.jitter(PAUSE)).await;
    }
    Err(RepairError::InDoubt)
}
