//! Reading the head, and catching up with it.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use headwater_core::follow::{FollowError, Position};
use headwater_core::format::head::{self, HeadDecodeError};
use headwater_core::head::{Head, ObservedHead};
use headwater_core::id::{HistoryName, Tag};
use headwater_core::publish::{EvidenceUpdate, ReadOutcome, Trouble};
use headwater_daemon::seldom::store_call_failed;
use headwater_state::{LoadedChange, Loader, StateError};
use headwater_store::{HeadRead, ReadError, Store};

use super::Confirmed;

/// Heads read in a row because what one named was gone. A head that is this
/// often overtaken while its objects are fetched is not being compacted, it is
/// broken.
const READS_MAX: u32 = 3;

/// What a read gave.
pub(super) struct Read {
    pub(super) outcome: ReadOutcome,
    /// The state to go on from.
    pub(super) confirmed: Followed,
}

/// What a read did to the state at hand.
pub(super) enum Followed {
    /// Nothing.
    Same,
    /// There is no history any more that it could be of.
    Nothing,
    /// It moved on.
    To(Confirmed),
}

impl Read {
    pub(super) fn unchanged() -> Self {
        Self { outcome: ReadOutcome::Unchanged, confirmed: Followed::Same }
    }

    fn failed(trouble: Trouble) -> Self {
        Self { outcome: ReadOutcome::Failed(trouble), confirmed: Followed::Same }
    }
}

/// Reads the head and fetches what it adds to `confirmed`.
///
/// Cancel safe: nothing is changed.
pub(super) async fn read(
    store: Arc<dyn Store>,
    loader: Loader,
    known: Option<Tag>,
    confirmed: Option<Confirmed>,
    seen: Option<Position>,
) -> Read {
    let key = loader.history().head_key();
    for attempt in 1.. {
        let (bytes, tag) = match store.read_head(&key, known.as_ref()).await {
            Ok(HeadRead::Found { bytes, tag }) => (bytes, tag),
            Ok(HeadRead::Unchanged) => {
                return Read::unchanged();
            }
            Ok(HeadRead::Missing) => {
                return Read { outcome: ReadOutcome::Missing, confirmed: Followed::Nothing };
            }
            Err(error) => return Read::failed(read_trouble(&error)),
        };
        let head = match decode(loader.history(), &bytes) {
            Ok(head) => Arc::new(head),
            Err(trouble) => return Read::failed(trouble),
        };
        if head.is_retired() {
            // Nothing of it is served or extended, and its objects may be gone.
            let evidence = EvidenceUpdate::Extend(Vec::new());
            let outcome = ReadOutcome::Found { observed: ObservedHead { head, tag }, evidence };
            return Read { outcome, confirmed: Followed::Nothing };
        }
        match catch_up(&loader, confirmed.as_ref(), seen, &head).await {
            Ok((state, evidence)) => {
                let outcome = ReadOutcome::Found { observed: ObservedHead { head, tag }, evidence };
                return Read { outcome, confirmed: Followed::To(state) };
            }
            // The head may have been overtaken, and what it named swept.
            Err(StateError::Missing { .. }) if attempt < READS_MAX => (),
            Err(error) => return Read::failed(state_trouble(&key, &error)),
        }
    }
    unreachable!("the last attempt returns")
}

/// Decodes a head, and refuses one that was copied from elsewhere.
pub(crate) fn decode(history: &HistoryName, bytes: &Bytes) -> Result<Head, Trouble> {
    let key = history.head_key();
    let head = head::decode(bytes).map_err(|error| match error {
        HeadDecodeError::TooNew { found } => Trouble::TooNew { key: key.clone(), format: found },
        HeadDecodeError::Malformed(_)
        | HeadDecodeError::Hash { .. }
        | HeadDecodeError::Id { .. }
        | HeadDecodeError::Address(_)
        | HeadDecodeError::Pin { .. }
        | HeadDecodeError::Name(_)
        | HeadDecodeError::Key(_)
        | HeadDecodeError::Inline { .. }
        | HeadDecodeError::Invariant(_) => {
            Trouble::BadData { key: key.clone(), what: error.to_string() }
        }
    })?;
    if head.history != *history {
        let what = format!("it is the head of `{}`", head.history);
        return Err(Trouble::BadData { key, what });
    }
    Ok(head)
}

async fn catch_up(
    loader: &Loader,
    confirmed: Option<&Confirmed>,
    seen: Option<Position>,
    head: &Head,
) -> Result<(Confirmed, EvidenceUpdate), StateError> {
    let position = Position::of(head);
    let advanced = match confirmed {
        None => None,
        Some(it) => match loader.advance(&it.view, &it.position, head).await {
            Ok(advanced) => Some(advanced),
            Err(StateError::Follow(FollowError::Replaced { .. })) => None,
            Err(error) => return Err(error),
        },
    };
    let Some(it) = advanced else {
        let (opened, receipts) = loader.open_with_receipts(head, seen.as_ref()).await?;
        let evidence = EvidenceUpdate::Replace(receipts);
        return Ok((Confirmed { view: opened.view, position }, evidence));
    };
    let view = it.view;
    let evidence = if it.reopened {
        EvidenceUpdate::Replace(loader.receipts(head, &it.changes).await?)
    } else {
        EvidenceUpdate::Extend(it.changes.iter().map(receipts).collect())
    };
    Ok((Confirmed { view, position }, evidence))
}

fn receipts(
    change: &LoadedChange,
) -> (headwater_core::version::StateVersion, Vec<headwater_core::receipt::Receipt>) {
    (change.version, change.change.receipts(change.version).collect())
}

/// What the core is told; the operator is told the rest here, where it is
/// known.
pub(crate) fn read_trouble(error: &ReadError) -> Trouble {
    store_call_failed(error);
    match error {
        ReadError::Unavailable { .. } => Trouble::Unavailable,
        ReadError::Denied { .. } => Trouble::Denied,
        ReadError::Missing { key } => missing(key),
        ReadError::Sealed { key, cause } => {
            Trouble::BadData { key: key.clone(), what: cause.to_string() }
        }
    }
}

pub(crate) fn state_trouble(head_key: &str, error: &StateError) -> Trouble {
    match error {
        StateError::Store(error) => read_trouble(error),
        StateError::Missing { key } => missing(key),
        StateError::Bad { key, what } => {
            Trouble::BadData { key: key.clone(), what: what.to_string() }
        }
        StateError::TooNew { key, found } => {
            Trouble::TooNew { key: key.clone(), format: u64::from(*found) }
        }
        StateError::Follow(error) => {
            Trouble::BadData { key: head_key.to_owned(), what: error.to_string() }
        }
    }
}

fn missing(key: &str) -> Trouble {
    Trouble::BadData { key: key.to_owned(), what: "the object is missing".to_owned() }
}

/// How long to wait before the next attempt, after `failures` in a row: drawn
/// from zero to a bound that begins at one attempt's time and doubles.
pub(super) fn backoff_bound(attempt: Duration, failures: u32) -> Duration {
    /// Longest bound: a store that is back is noticed within a second.
    const BOUND_MAX: Duration = Duration::from_secs(2);
    if failures == 0 {
        return Duration::ZERO;
    }
    let factor = 1_u32 << (failures - 1).min(10);
    attempt.max(Duration::from_millis(1)).saturating_mul(factor).min(BOUND_MAX)
}
