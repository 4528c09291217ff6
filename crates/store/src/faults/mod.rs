//! Ordered faults, for tests of what is above a store.
//!
//! In here: losing calls and answers, delaying them, lying about them, at
//! exactly the call that a test names. Not in here: faults of the connection,
//! which the S3 test endpoint plays.
//!
//! ```
//! # use std::sync::Arc;
//! # use headwater_store::{Call, Fault, Faults, Gate, Memory, Rule};
//! let faults = Faults::new(Arc::new(Memory::new()));
//! let store = faults.store();
//! faults.on_next(Call::ReplaceHead, Fault::LoseReply);
//! faults.on_nth(Call::Get, 3, Fault::Corrupt);
//! let gate = Gate::new();
//! faults.add(Rule::new(Fault::HoldReply(gate)).on(Call::ReadHead).times(1));
//! faults.set_outage(true);
//! # drop(store);
//! ```

mod answer;
mod gate;
mod script;

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use headwater_core::id::Tag;
use tokio::time::sleep;

use self::answer::Answer;
pub use self::gate::Gate;
use self::script::Script;
pub use self::script::{Rule, RuleId};
use crate::{Call, Folder, HeadRead, HeadWrite, Listed, NoAnswerKind, PutError, ReadError, Store};

/// What happens to one call.
#[derive(Clone, Debug)]
pub enum Fault {
    /// Not sent on. A head write has no answer; everything else is unavailable.
    LoseCall,
    /// Sent on; its answer is lost, as for [`Fault::LoseCall`].
    LoseReply,
    /// Sent on twice, as by a client or a proxy that repeats what it thinks is
    /// lost; answered as the second one was.
    Repeat,
    /// The answer is lost now, and the call is sent on by
    /// [`Faults::apply_late`]. Calls that read are as for [`Fault::LoseCall`].
    ApplyLate,
    /// Waits at the gate, then is sent on.
    Hold(Gate),
    /// Sent on; its answer waits at the gate.
    HoldReply(Gate),
    /// Waits for this long, then is sent on.
    Delay(Duration),
    /// Never answered, not sent on.
    Hang,
    /// Not sent on, answered with 409.
    Conflict,
    /// Not sent on, answered with 503 and this Retry-After.
    Throttled(Option<Duration>),
    /// Not sent on, answered with 403.
    Denied,
    /// Not sent on, answered as if the condition had failed: a mismatch for a
    /// head, occupied for an object. Elsewhere as for [`Fault::LoseCall`].
    Mismatch,
    /// Not sent on, answered as if there were no such object: a replacement of
    /// a head finds it gone. Other writes are as for [`Fault::LoseCall`].
    Missing,
    /// Sent on; one bit of the bytes that were read is wrong.
    Corrupt,
    /// Sent on; the second half of the bytes that were read is missing.
    Truncated,
}

/// A write that [`Fault::ApplyLate`] kept back, as it was answered in the end.
#[derive(Debug)]
pub enum Applied {
    /// A write of a head.
    Head(HeadWrite),
    /// A write of an immutable object.
    Put(Result<(), PutError>),
    /// A deletion.
    Delete(Result<(), ReadError>),
}

/// A write that is kept back.
#[derive(Debug)]
enum Late {
    Create { key: String, bytes: Bytes },
    Replace { key: String, if_match: Tag, bytes: Bytes },
    Put { key: String, bytes: Bytes },
    Delete { key: String },
}

/// Most calls that the log keeps, and most writes that are kept back.
const KEPT_MAX: usize = 100_000;

/// Does what its script says, and passes on what it says nothing about.
///
/// Clones share the script.
#[derive(Clone)]
pub struct Faults(Arc<Inner>);

struct Inner {
    store: Arc<dyn Store>,
    script: Mutex<Script>,
    late: Mutex<Vec<Late>>,
}

impl fmt::Debug for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Faults").field(&self.0.store).finish()
    }
}

impl Faults {
    /// An empty script before `store`.
    pub fn new(store: Arc<dyn Store>) -> Self {
        Self(Arc::new(Inner { store, script: Mutex::default(), late: Mutex::default() }))
    }

    /// This, to be handed to the code under test.
    pub fn store(&self) -> Arc<dyn Store> {
        Arc::new(self.clone())
    }

    /// What is behind the faults, for looking at it without them.
    pub fn behind(&self) -> Arc<dyn Store> {
        Arc::clone(&self.0.store)
    }

    /// Adds a rule. Of the rules that are due, the one added first acts.
    pub fn add(&self, rule: Rule) -> RuleId {
        self.script().add(rule)
    }

    /// Takes a rule back; whether it was still there.
    pub fn remove(&self, id: RuleId) -> bool {
        self.script().remove(id)
    }

    /// Takes all rules back, an outage included. Calls that wait at a gate go
    /// on waiting.
    pub fn clear(&self) {
        self.script().clear();
    }

    /// `fault` at the next such call that no earlier rule takes.
    pub fn on_next(&self, call: Call, fault: Fault) -> RuleId {
        self.add(Rule::new(fault).on(call).times(1))
    }

    /// `fault` at the `n`-th such call from now, counted from 1.
    pub fn on_nth(&self, call: Call, n: u64, fault: Fault) -> RuleId {
        self.add(Rule::new(fault).on(call).skip(n.saturating_sub(1)).times(1))
    }

    /// `fault` at every `n`-th such call from now: at the `n`-th, the `2n`-th.
    pub fn on_every(&self, call: Call, n: u64, fault: Fault) -> RuleId {
        self.add(Rule::new(fault).on(call).skip(n.saturating_sub(1)).every(n))
    }

    /// `fault` at every such call, until the rule is removed.
    pub fn while_set(&self, call: Call, fault: Fault) -> RuleId {
        self.add(Rule::new(fault).on(call))
    }

    /// Lets `n` more calls of any kind pass, and meets all later ones with
    /// `fault`: a process that dies, or a bucket that goes away, at a chosen
    /// call.
    pub fn after(&self, n: u64, fault: Fault) -> RuleId {
        self.add(Rule::new(fault).skip(n))
    }

    /// Loses all calls while on, before any rule is asked.
    pub fn set_outage(&self, is_on: bool) {
        self.script().is_outage = is_on;
    }

    /// Sends on the writes that [`Fault::ApplyLate`] kept back, in their order.
    pub async fn apply_late(&self) -> Vec<Applied> {
        let late = std::mem::take(&mut *lock(&self.0.late));
        let mut answers = Vec::with_capacity(late.len());
        for write in late {
            let store = &self.0.store;
            answers.push(match write {
                Late::Create { key, bytes } => Applied::Head(store.create_head(&key, bytes).await),
                Late::Replace { key, if_match, bytes } => {
                    Applied::Head(store.replace_head(&key, &if_match, bytes).await)
                }
                Late::Put { key, bytes } => Applied::Put(store.put(&key, bytes).await),
                Late::Delete { key } => Applied::Delete(store.delete(&key).await),
            });
        }
        answers
    }

    /// How many such calls came so far, those that met a fault included.
    pub fn calls(&self, call: Call) -> u64 {
        self.script().calls[call as usize]
    }

    /// How many calls met a fault so far.
    pub fn fired(&self) -> u64 {
        self.script().n_fired
    }

    /// Every call since the start or [`Faults::clear_log`], in order, with its
    /// key or prefix: the last 100,000.
    pub fn log(&self) -> Vec<(Call, String)> {
        self.script().log.iter().cloned().collect()
    }

    /// Forgets the log.
    pub fn clear_log(&self) {
        self.script().log.clear();
    }

    fn script(&self) -> MutexGuard<'_, Script> {
        lock(&self.0.script)
    }

    fn keep(&self, write: Late) {
        let mut late = lock(&self.0.late);
        assert!(late.len() < KEPT_MAX, "too many writes are kept back");
        late.push(write);
    }

    async fn pass<A: Answer, F: Future<Output = A> + Send>(
        &self,
        call: Call,
        key: &str,
        late: Option<Late>,
        send: impl Fn() -> F + Send + Sync,
    ) -> A {
        let fault = self.script().take(call, key);
        let Some(fault) = fault else { return send().await };
        tracing::debug!(call = call.as_str(), key, ?fault, "a fault was ordered");
        match fault {
            Fault::LoseCall => A::lost(key, NoAnswerKind::Other, None),
            Fault::LoseReply => {
                drop(send().await);
                A::lost(key, NoAnswerKind::Other, None)
            }
            Fault::Repeat => {
                drop(send().await);
                send().await
            }
            Fault::ApplyLate => {
                if let Some(write) = late {
                    self.keep(write);
                }
                A::lost(key, NoAnswerKind::Other, None)
            }
            Fault::Hold(gate) => {
                gate.pass().await;
                send().await
            }
            Fault::HoldReply(gate) => {
                let answer = send().await;
                gate.pass().await;
                answer
            }
            Fault::Delay(duration) => {
                sleep(duration).await;
                send().await
            }
            Fault::Hang => std::future::pending().await,
            Fault::Conflict => A::lost(key, NoAnswerKind::Conflict, None),
            Fault::Throttled(retry_after) => A::lost(key, NoAnswerKind::Throttled, retry_after),
            Fault::Denied => A::lost(key, NoAnswerKind::Denied, None),
            Fault::Mismatch => A::mismatch(key),
            // Nothing that could be missing is asked for.
            Fault::Missing if call == Call::CreateHead => A::lost(key, NoAnswerKind::Other, None),
            Fault::Missing => A::missing(key),
            Fault::Corrupt => send().await.map_bytes(answer::corrupt),
            Fault::Truncated => send().await.map_bytes(answer::truncate),
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[async_trait]
impl Store for Faults {
    fn replacement_pause(&self, key: &str) -> Duration {
        self.0.store.replacement_pause(key)
    }

    fn put_requests(&self, size_bytes: u64) -> u64 {
        self.0.store.put_requests(size_bytes)
    }

    fn get_requests(&self, size_bytes: u64) -> u64 {
        self.0.store.get_requests(size_bytes)
    }

    fn reads_in_vain(&self) -> u64 {
        self.0.store.reads_in_vain()
    }

    async fn read_head(&self, key: &str, known: Option<&Tag>) -> Result<HeadRead, ReadError> {
        self.pass(Call::ReadHead, key, None, || self.0.store.read_head(key, known)).await
    }

    async fn create_head(&self, key: &str, bytes: Bytes) -> HeadWrite {
        let late = Late::Create { key: key.into(), bytes: bytes.clone() };
        let send = || self.0.store.create_head(key, bytes.clone());
        self.pass(Call::CreateHead, key, Some(late), send).await
    }

    async fn replace_head(&self, key: &str, if_match: &Tag, bytes: Bytes) -> HeadWrite {
        let (if_match_late, bytes_late) = (if_match.clone(), bytes.clone());
        let late = Late::Replace { key: key.into(), if_match: if_match_late, bytes: bytes_late };
        let send = || self.0.store.replace_head(key, if_match, bytes.clone());
        self.pass(Call::ReplaceHead, key, Some(late), send).await
    }

    async fn put(&self, key: &str, bytes: Bytes) -> Result<(), PutError> {
        let late = Late::Put { key: key.into(), bytes: bytes.clone() };
        self.pass(Call::Put, key, Some(late), || self.0.store.put(key, bytes.clone())).await
    }

    async fn get(&self, key: &str) -> Result<Bytes, ReadError> {
        self.pass(Call::Get, key, None, || self.0.store.get(key)).await
    }

    async fn get_sized(&self, key: &str, size_bytes: u64) -> Result<Bytes, ReadError> {
        self.pass(Call::Get, key, None, || self.0.store.get_sized(key, size_bytes)).await
    }

    async fn list(
        &self,
        prefix: &str,
        start_after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<Listed>, ReadError> {
        let send = || self.0.store.list(prefix, start_after, limit);
        self.pass(Call::List, prefix, None, send).await
    }

    async fn list_folder(&self, prefix: &str) -> Result<Folder, ReadError> {
        self.pass(Call::ListFolder, prefix, None, || self.0.store.list_folder(prefix)).await
    }

    async fn delete(&self, key: &str) -> Result<(), ReadError> {
        let late = Late::Delete { key: key.into() };
        self.pass(Call::Delete, key, Some(late), || self.0.store.delete(key)).await
    }
}
