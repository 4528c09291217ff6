//! The way from one process to the bucket, as a [`Store`].
//!
//! ```text
//! process -> Layers (the real decorators) -> Link -> network -> Bucket
//!                                             |         |
//!                                  dropped with the     goes on without it
//!                                  process
//! ```

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use headwater_core::id::Tag;
use headwater_store::{
    Call, Folder, HeadRead, HeadWrite, Listed, NoAnswer, NoAnswerKind, PutError, ReadError, Store,
};
use tokio::sync::{Notify, oneshot};
use tokio::time::sleep;

use crate::bucket::Bucket;
use crate::dice::Dice;
use crate::trace::Trace;
use crate::weather::{Climate, Fate, Party, Trip, Weather};

/// How long it takes to notice that a message was lost, where that is noticed
/// at all: a connection that is reset. Otherwise the caller's own limit ends it.
const NOTICED_AFTER: Duration = Duration::from_millis(40);

/// What a process reaches the bucket through.
pub(crate) struct Link(Arc<Inner>);

struct Inner {
    bucket: Bucket,
    climate: Arc<Climate>,
    trace: Arc<Trace>,
    dice: Dice,
    weather: Weather,
    of: Party,
    hold: Hold,
    n_calls: AtomicU64,
    n_replacements: AtomicU64,
    /// The last head that was sent.
    last_head: Mutex<Bytes>,
    script: Script,
    is_silent: Arc<AtomicBool>,
}

/// Stops calls of a kind on their way to the bucket, until it is let go of: a
/// process that was paused there, seen from outside. Clones are the same.
#[derive(Clone, Debug, Default)]
pub(crate) struct Hold(Arc<Held>);

#[derive(Debug, Default)]
struct Held {
    call: Mutex<Option<Call>>,
    /// Calls that came while they were held.
    n_stopped: AtomicU64,
    /// Not a `watch`, which wakes those who wait in an order of chance.
    changed: Notify,
}

/// What is to happen at chosen calls, instead of what the weather has for them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Script {
    /// The call of this number is sent, and the process hears of nothing any
    /// more and sends nothing: it was killed there. Counted from 0.
    pub(crate) dies_after: Option<u64>,
    /// What becomes of the first replacements of a head.
    pub(crate) replacements: Vec<Fate>,
    /// Heads look as if a newer build had written them.
    pub(crate) sees_newer_format: bool,
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Link").field(&self.0.of).finish()
    }
}

/// What a link is made of.
pub(crate) struct LinkParts {
    pub(crate) bucket: Bucket,
    pub(crate) climate: Arc<Climate>,
    pub(crate) trace: Arc<Trace>,
    pub(crate) dice: Dice,
    pub(crate) weather: Weather,
    pub(crate) of: Party,
    pub(crate) hold: Hold,
    pub(crate) script: Script,
    /// Set when the script has the process die.
    pub(crate) is_silent: Arc<AtomicBool>,
}

impl Hold {
    /// Holds calls of this kind from now on; `None` lets all of them go.
    pub(crate) fn set(&self, call: Option<Call>) {
        *self.0.call.lock().unwrap_or_else(PoisonError::into_inner) = call;
        self.0.changed.notify_waiters();
    }

    /// How many calls were held so far.
    pub(crate) fn n_held(&self) -> u64 {
        self.0.n_stopped.load(Ordering::Relaxed)
    }

    fn holds(&self, call: Call) -> bool {
        *self.0.call.lock().unwrap_or_else(PoisonError::into_inner) == Some(call)
    }

    async fn pass(&self, call: Call) {
        if self.holds(call) {
            self.0.n_stopped.fetch_add(1, Ordering::Relaxed);
        }
        while self.holds(call) {
            self.0.changed.notified().await;
        }
    }
}

/// The answers of a store, for a call that failed on its way.
trait Answer: Send + 'static {
    fn none(key: &str, kind: NoAnswerKind, retry_after: Option<Duration>) -> Self;
    fn shown(&self) -> &'static str;
}

/// The message did not get through, or its answer did not.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("the network or the store failed: {0:?}")]
struct Failed(NoAnswerKind);

fn unavailable(kind: NoAnswerKind, retry_after: Option<Duration>) -> ReadError {
    ReadError::Unavailable { retry_after, cause: Box::new(Failed(kind)) }
}

fn shown_error(error: &ReadError) -> &'static str {
    match error {
        ReadError::Unavailable { .. } => "unavailable",
        ReadError::Missing { .. } => "missing",
        ReadError::Denied { .. } => "denied",
        ReadError::Sealed { .. } => "sealed",
    }
}

impl Answer for HeadWrite {
    fn none(_key: &str, kind: NoAnswerKind, retry_after: Option<Duration>) -> Self {
        Self::NoAnswer(NoAnswer { kind, retry_after, cause: Box::new(Failed(kind)) })
    }

    fn shown(&self) -> &'static str {
        match self {
            Self::Replaced { .. } => "replaced",
            Self::Mismatch => "mismatch",
            Self::Gone => "gone",
            Self::NoAnswer(_) => "no answer",
        }
    }
}

impl<T: Send + 'static> Answer for Result<T, ReadError> {
    fn none(_key: &str, kind: NoAnswerKind, retry_after: Option<Duration>) -> Self {
        Err(unavailable(kind, retry_after))
    }

    fn shown(&self) -> &'static str {
        self.as_ref().map_or_else(shown_error, |_| "ok")
    }
}

impl Answer for Result<(), PutError> {
    fn none(_key: &str, kind: NoAnswerKind, retry_after: Option<Duration>) -> Self {
        Err(unavailable(kind, retry_after).into())
    }

    fn shown(&self) -> &'static str {
        match self {
            Ok(()) => "ok",
            Err(PutError::Occupied { .. }) => "occupied",
            Err(PutError::Store(error)) => shown_error(error),
        }
    }
}

impl Link {
    pub(crate) fn new(parts: LinkParts) -> Self {
        let LinkParts { bucket, climate, trace, dice, weather, of, hold, script, is_silent } =
            parts;
        let (n_calls, n_replacements) = (AtomicU64::new(0), AtomicU64::new(0));
        Self(Arc::new(Inner {
            bucket,
            climate,
            trace,
            dice,
            weather,
            of,
            hold,
            n_calls,
            n_replacements,
            last_head: Mutex::default(),
            script,
            is_silent,
        }))
    }

    async fn carry<A: Answer>(
        &self,
        call: Call,
        key: &str,
        apply: impl Fn(&Bucket) -> A + Send + 'static,
    ) -> A {
        let inner = &self.0;
        inner.hold.pass(call).await;
        let n = inner.n_calls.fetch_add(1, Ordering::Relaxed);
        let is_dead = inner.script.dies_after.is_some_and(|it| it < n);
        if is_dead {
            return std::future::pending().await;
        }
        inner.climate.count(call);
        let mut trip = inner.weather.trip(&inner.dice, &inner.climate, Some(call));
        if call == Call::ReplaceHead {
            let n = inner.n_replacements.fetch_add(1, Ordering::Relaxed);
            let chosen = usize::try_from(n).ok().and_then(|it| inner.script.replacements.get(it));
            trip.fate = chosen.copied().unwrap_or(trip.fate);
        }
        if inner.script.dies_after == Some(n) {
            // Sent, and nobody is there for the answer.
            trip.fate = Fate::LosesReply;
            inner.is_silent.store(true, Ordering::Relaxed);
        }
        inner.trace.event(format_args!("{:?}: {} {key} {trip:?}", inner.of, call.as_str()));
        let (reply, answer) = oneshot::channel();
        tokio::spawn(travel(Arc::clone(inner), call, key.to_owned(), trip, apply, reply));
        match answer.await {
            Ok(answer) => answer,
            // Nobody says that it was lost: the caller's limit ends it.
            Err(_) => std::future::pending().await,
        }
    }
}

/// A call's way there and back. Spawned: it goes on when its sender is gone.
async fn travel<A: Answer>(
    link: Arc<Inner>,
    call: Call,
    key: String,
    trip: Trip,
    apply: impl Fn(&Bucket) -> A + Send + 'static,
    reply: oneshot::Sender<A>,
) {
    let Trip { there, back, fate } = trip;
    let is_cut = || link.climate.is_cut(link.of, Party::Bucket);
    let is_seen = || link.dice.percent(70);
    sleep(there).await;
    let lost = |reply: oneshot::Sender<A>| {
        // Dropped otherwise: the caller waits for nothing.
        if is_seen() {
            let _gone = reply.send(A::none(&key, NoAnswerKind::Other, None));
        }
    };
    if is_cut() || fate == Fate::LosesCall {
        sleep(NOTICED_AFTER).await;
        return lost(reply);
    }
    if let Fate::Refused { kind, retry_after } = fate {
        sleep(back).await;
        let _gone = reply.send(A::none(&key, kind, retry_after));
        return;
    }
    if let Fate::Late { after } = fate {
        lost(reply);
        sleep(after).await;
        let answer = apply(&link.bucket);
        note(&link, call, &key, &answer);
        return;
    }
    let mut answer = apply(&link.bucket);
    note(&link, call, &key, &answer);
    if let Fate::Repeats { after } = fate {
        // Answered as the first or as the second one: what is in between may
        // repeat a request, and pass on what it heard last.
        let is_ordered = !link.script.replacements.is_empty() && call == Call::ReplaceHead;
        if !is_ordered && link.dice.percent(50) {
            sleep(back).await;
            let _gone = reply.send(answer);
            sleep(after).await;
            let answer = apply(&link.bucket);
            return note(&link, call, &key, &answer);
        }
        sleep(after).await;
        answer = apply(&link.bucket);
        note(&link, call, &key, &answer);
    }
    sleep(back).await;
    if is_cut() || fate == Fate::LosesReply {
        return lost(reply);
    }
    let _gone = reply.send(answer);
}

fn note<A: Answer>(link: &Inner, call: Call, key: &str, answer: &A) {
    let answer = answer.shown();
    link.trace.event(format_args!("bucket: {:?} {} {key}: {answer}", link.of, call.as_str()));
}

#[async_trait]
impl Store for Link {
    async fn read_head(&self, key: &str, known: Option<&Tag>) -> Result<HeadRead, ReadError> {
        let (at, known) = (key.to_owned(), known.cloned());
        let read = move |it: &Bucket| it.read_head(&at, known.as_ref());
        let answer = self.carry(Call::ReadHead, key, read).await;
        if self.0.script.sees_newer_format { answer.map(newer_format) } else { answer }
    }

    async fn create_head(&self, key: &str, bytes: Bytes) -> HeadWrite {
        let at = key.to_owned();
        self.carry(Call::CreateHead, key, move |it| it.create_head(&at, &bytes)).await
    }

    async fn replace_head(&self, key: &str, if_match: &Tag, bytes: Bytes) -> HeadWrite {
        let last = std::mem::replace(
            &mut *self.0.last_head.lock().unwrap_or_else(PoisonError::into_inner),
            bytes.clone(),
        );
        if last == bytes {
            self.0.bucket.violation(format!("{:?} sends one head twice", self.0.of));
        }
        let (at, tag) = (key.to_owned(), if_match.clone());
        self.carry(Call::ReplaceHead, key, move |it| it.replace_head(&at, &tag, &bytes)).await
    }

    async fn put(&self, key: &str, bytes: Bytes) -> Result<(), PutError> {
        let at = key.to_owned();
        self.carry(Call::Put, key, move |it| it.put(&at, &bytes)).await
    }

    async fn get(&self, key: &str) -> Result<Bytes, ReadError> {
        let at = key.to_owned();
        self.carry(Call::Get, key, move |it| it.get(&at)).await
    }

    async fn get_sized(&self, key: &str, _size_bytes: u64) -> Result<Bytes, ReadError> {
        self.get(key).await
    }

    async fn list(
        &self,
        prefix: &str,
        start_after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<Listed>, ReadError> {
        let (at, after) = (prefix.to_owned(), start_after.map(str::to_owned));
        let list = move |it: &Bucket| it.list(&at, after.as_deref(), limit);
        self.carry(Call::List, prefix, list).await
    }

    async fn list_folder(&self, prefix: &str) -> Result<Folder, ReadError> {
        let at = prefix.to_owned();
        self.carry(Call::ListFolder, prefix, move |it| it.list_folder(&at)).await
    }

    async fn delete(&self, key: &str) -> Result<(), ReadError> {
        let at = key.to_owned();
        self.carry(Call::Delete, key, move |it| it.delete(&at)).await
    }
}

/// The same head under a format number that this build does not know.
fn newer_format(read: HeadRead) -> HeadRead {
    const FIELD: &[u8] = b"\"format\":";
    match read {
        HeadRead::Found { bytes, tag } => {
            let at = bytes.windows(FIELD.len()).position(|it| it == FIELD);
            let at = at.map_or(bytes.len(), |it| it + FIELD.len());
            // A digit in front of the number is at least ten times as much.
            let newer = [&bytes[..at], b"9", &bytes[at..]].concat();
            HeadRead::Found { bytes: newer.into(), tag }
        }
        HeadRead::Unchanged | HeadRead::Missing => read,
    }
}
