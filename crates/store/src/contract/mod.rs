//! What every adapter does, as a suite that runs against any store.
//!
//! In here: the properties that the protocol rests on, each as one rule, with a
//! name. Not in here: speed; what a store does when it fails.
//!
//! Run against two handles on one place, so that what one of them wrote is read
//! by the other.
//!
//! ```
//! # use std::sync::Arc;
//! # use headwater_store::{Entropy, Memory, contract};
//! # async fn example() -> Result<(), contract::Broken> {
//! let store = Arc::new(Memory::new());
//! let place = contract::Place::new(store.clone(), store, "scratch", Entropy::from_os());
//! let notes = contract::check_all(&place).await?;
//! # Ok(())
//! # }
//! ```

mod heads;
mod keys;
mod objects;
mod race;

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use headwater_core::id::Tag;

use crate::{Entropy, HeadRead, HeadWrite, Store};

/// A rule that a store does not keep.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the store breaks the rule `{rule}`: {seen}")]
pub struct Broken {
    /// Which rule, in words.
    pub rule: &'static str,
    /// What the store did.
    pub seen: String,
}

/// What is allowed, and good to know.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Notes {
    /// Equal bytes get equal tags, also after a deletion. Heads are safe: no two
    /// of them have equal bytes (PROTOCOL 3).
    pub tags_recur: bool,
    /// A conditional read with the tag from before a deletion says "unchanged"
    /// of equal bytes. The bytes are, so readers are right; a replacement with
    /// that tag fails all the same, unless `tags_recur`.
    pub reads_recur: bool,
    /// A replacement where there is no head is answered as such (404) and not
    /// as a failed condition. Either proves that nothing was replaced.
    pub tells_gone: bool,
}

/// Where the rules are checked: a scratch prefix, seen through two handles.
#[derive(Clone, Debug)]
pub struct Place {
    one: Arc<dyn Store>,
    other: Arc<dyn Store>,
    prefix: String,
    entropy: Entropy,
    n_writers: usize,
    n_rounds: usize,
    large_len_bytes: usize,
}

/// Bytes of the large object: more than what adapters send by one request.
const LARGE_LEN_BYTES: usize = 64 << 20;

impl Place {
    /// A place below `prefix`, which no other run may use at the same time, and
    /// which has no objects yet.
    pub fn new(one: Arc<dyn Store>, other: Arc<dyn Store>, prefix: &str, entropy: Entropy) -> Self {
        Self {
            one,
            other,
            prefix: prefix.into(),
            entropy,
            n_writers: 32,
            n_rounds: 5,
            large_len_bytes: LARGE_LEN_BYTES,
        }
    }

    /// How many writers race for a head, and how often each of them wins.
    #[must_use]
    pub fn with_race(mut self, n_writers: usize, n_rounds: usize) -> Self {
        self.n_writers = n_writers;
        self.n_rounds = n_rounds;
        self
    }

    /// How large the large object is; 64 MiB, if nothing is said.
    #[must_use]
    pub fn with_large(mut self, len_bytes: usize) -> Self {
        self.large_len_bytes = len_bytes;
        self
    }

    fn key(&self, name: &str) -> String {
        format!("{}/{name}", self.prefix)
    }
}

/// One part of the suite, for who cannot ask all of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rule {
    Create,
    Replace,
    Missing,
    ConditionalRead,
    DeleteAndRecreate,
    CreateOnce,
    Sizes,
    /// After `Sizes`.
    LargeOnce,
    /// After `Sizes`.
    Ranges,
    Delete,
    List,
    ListFolder,
}

/// Checks one part.
pub(crate) async fn check_rule(place: &Place, rule: Rule) -> Result<(), Broken> {
    match rule {
        Rule::Create => heads::create(place).await,
        Rule::Replace => heads::replace(place).await,
        Rule::Missing => heads::missing(place).await.map(|_| ()),
        Rule::ConditionalRead => heads::conditional_read(place).await,
        Rule::DeleteAndRecreate => heads::delete_and_recreate(place).await.map(|_| ()),
        Rule::CreateOnce => objects::create_once(place).await,
        Rule::Sizes => objects::sizes(place).await,
        Rule::LargeOnce => objects::large_once(place).await,
        Rule::Ranges => objects::ranges(place).await,
        Rule::Delete => objects::delete(place).await,
        Rule::List => objects::list(place).await,
        Rule::ListFolder => objects::list_folder(place).await,
    }
}

/// Checks every rule; the first one that is broken ends it.
///
/// # Errors
///
/// [`Broken`] names the rule.
pub async fn check_all(place: &Place) -> Result<Notes, Broken> {
    heads::create(place).await?;
    heads::replace(place).await?;
    let mut tells_gone = heads::missing(place).await?;
    heads::conditional_read(place).await?;
    let recreated = heads::delete_and_recreate(place).await?;
    tells_gone &= recreated.tells_gone;
    heads::recreate_with_other_bytes(place).await?;
    objects::create_once(place).await?;
    objects::sizes(place).await?;
    objects::large_once(place).await?;
    objects::ranges(place).await?;
    keys::odd(place).await?;
    keys::longest(place).await?;
    keys::bad(place).await?;
    objects::delete(place).await?;
    objects::list(place).await?;
    objects::list_folder(place).await?;
    race::create(place).await?;
    race::put(place).await?;
    race::replace(place).await?;
    Ok(Notes { tells_gone, ..recreated })
}

/// Deletes what [`check_all`] left behind, up to `limit` objects.
///
/// # Errors
///
/// As for a listing and a deletion.
pub async fn clean(place: &Place, limit: usize) -> Result<(), crate::ReadError> {
    for listed in place.one.list(&place.key(""), None, limit).await? {
        place.one.delete(&listed.key).await?;
    }
    Ok(())
}

fn ensure(rule: &'static str, holds: bool, seen: impl fmt::Debug) -> Result<(), Broken> {
    if holds { Ok(()) } else { Err(broken(rule, seen)) }
}

fn broken(rule: &'static str, seen: impl fmt::Debug) -> Broken {
    Broken { rule, seen: format!("{seen:?}") }
}

fn done<T, E: fmt::Debug>(rule: &'static str, answer: Result<T, E>) -> Result<T, Broken> {
    answer.map_err(|error| broken(rule, error))
}

fn replaced(rule: &'static str, answer: HeadWrite) -> Result<Tag, Broken> {
    match answer {
        HeadWrite::Replaced { tag } => Ok(tag),
        answer @ (HeadWrite::Mismatch | HeadWrite::Gone | HeadWrite::NoAnswer(_)) => {
            Err(broken(rule, answer))
        }
    }
}

fn mismatch(rule: &'static str, answer: &HeadWrite) -> Result<(), Broken> {
    ensure(rule, matches!(answer, HeadWrite::Mismatch), answer)
}

/// Whether it is told apart from a mismatch, which proves as much.
fn gone(rule: &'static str, answer: HeadWrite) -> Result<bool, Broken> {
    match answer {
        HeadWrite::Gone => Ok(true),
        HeadWrite::Mismatch => Ok(false),
        answer @ (HeadWrite::Replaced { .. } | HeadWrite::NoAnswer(_)) => Err(broken(rule, answer)),
    }
}

async fn read(rule: &'static str, store: &dyn Store, key: &str) -> Result<(Bytes, Tag), Broken> {
    match done(rule, store.read_head(key, None).await)? {
        HeadRead::Found { bytes, tag } => Ok((bytes, tag)),
        seen @ (HeadRead::Missing | HeadRead::Unchanged) => Err(broken(rule, seen)),
    }
}
