//! Whether the operations of a history are published here, or handed over; and
//! to whom.
//!
//! ```text
//!            races lost, and a writer that comes before this one
//!   publish --------------------------------------------------> hand over
//!           <--------------------------------------------------
//!            no answer, refused, too slow, or nobody else is there
//! ```
//!
//! Writers that contend have to come to one of them without asking each other.
//! Each sees who publishes, in the heads, and takes the first by id of those
//! that can be reached, itself included. So two never hand over to each other,
//! and all who see the same choose the same. Who publishes last would be another
//! one at each look.
//!
//! Nothing is decided by it: a wrong choice costs time.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use headwater_core::head::Publisher;
use headwater_core::id::{HistoryId, HistoryName, WriterAddress};
use tokio::time::Instant;

use super::{Hosts, Taken};

/// What was seen within this time counts: heads of others, races lost, who
/// handed operations over.
const RECENT: Duration = Duration::from_secs(5);
/// So many races lost are contention. Writers that meet now and then lose one.
const LOSSES: usize = 3;
/// Others that are told apart; of more the last to be seen are.
const OTHERS_MAX: usize = 64;
/// How long a writer that gave no answer is left alone, doubled each time.
const AVOIDED_FIRST: Duration = Duration::from_secs(1);
const AVOIDED_MAX: Duration = Duration::from_secs(60);
/// Publishing in turns with n others takes about n attempts and as many pauses.
/// Handing over that takes longer than twice that is not worth it.
const SLOW_ATTEMPTS: u32 = 4;
/// A shorter time is never too long.
const SLOW_MIN: Duration = Duration::from_millis(100);
/// So many messages in a row without an outcome are the writer's own trouble. One
/// or two may be that of the operations in them.
const WITHOUT_OUTCOME_MAX: u32 = 3;
/// Answers before the time that they take is judged.
const JUDGED_AFTER: u32 = 16;

/// What holds for every history of a process.
#[derive(Clone, Debug)]
pub(crate) struct Rules {
    /// Names this process in heads.
    pub(crate) publisher_id: String,
    /// Where it is reached, if it is.
    pub(crate) address: Option<WriterAddress>,
    /// Where operations may go; nowhere: nothing is handed over.
    pub(crate) hosts: Hosts,
}

/// Whom operations are handed to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    pub(crate) address: WriterAddress,
    /// The history that is meant.
    pub(crate) history_id: HistoryId,
}

/// The route of one history's operations.
#[derive(Debug)]
pub(crate) struct Route {
    history: HistoryName,
    rules: Arc<Rules>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Other publishers, by id.
    others: BTreeMap<String, Other>,
    /// The id of the history that they were seen to publish.
    history_id: Option<HistoryId>,
    /// When the last races were lost.
    losses: VecDeque<Instant>,
    /// What one replacement takes here.
    attempt: Duration,
    /// Who handed operations to this process; under no name its own callers.
    sources: BTreeMap<String, Instant>,
    avoided: BTreeMap<WriterAddress, Avoided>,
    handing: Option<Handing>,
}

#[derive(Debug)]
struct Other {
    address: Option<WriterAddress>,
    seen: Instant,
}

#[derive(Debug)]
struct Avoided {
    until: Instant,
    bound: Duration,
}

/// Operations are handed over.
#[derive(Debug)]
struct Handing {
    target: Target,
    /// When an operation went last.
    used: Instant,
    /// How long an answer takes, smoothed.
    took: Duration,
    n_answers: u32,
    /// Messages since the last one that came to an outcome.
    n_without: u32,
    /// Past this they are published here.
    slow: Duration,
}

impl Route {
    pub(crate) fn new(history: HistoryName, rules: Arc<Rules>) -> Self {
        Self { history, rules, state: Mutex::default() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Nothing in here panics halfway through a change.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A newer head of another process was seen.
    pub(crate) fn met(&self, publisher: &Publisher, history_id: HistoryId) {
        let now = Instant::now();
        let mut state = self.state();
        if state.history_id.replace(history_id).is_some_and(|it| it != history_id) {
            // Another history has the name.
            (state.handing, state.losses) = (None, VecDeque::new());
        }
        let other = Other { address: publisher.address.clone(), seen: now };
        state.others.insert(publisher.id.clone(), other);
        trim(&mut state.others, |it| it.seen);
    }

    /// A replacement was sent, which takes about `attempt`.
    pub(crate) fn sent(&self, is_lost: bool, attempt: Duration) {
        let mut state = self.state();
        state.attempt = attempt;
        if is_lost {
            state.losses.push_back(Instant::now());
            if LOSSES < state.losses.len() {
                state.losses.pop_front();
            }
        }
    }

    /// Operations came from callers (`None`), or from another writer.
    pub(crate) fn heard(&self, from: Option<&str>) {
        let now = Instant::now();
        let mut state = self.state();
        if let Some(at) = state.sources.get_mut(from.unwrap_or_default()) {
            *at = now;
            return;
        }
        state.sources.insert(from.unwrap_or_default().to_owned(), now);
        trim(&mut state.sources, |it| *it);
    }

    /// Whether anybody but `publisher_id` writes to the history by way of this
    /// process, or beside it.
    pub(crate) fn is_shared(&self, but: &str) -> bool {
        let state = self.state();
        let is_other = |(id, at): (&String, Instant)| id != but && at.elapsed() < RECENT;
        state.sources.iter().map(|(id, at)| (id, *at)).any(is_other)
            || state.others.iter().map(|(id, it)| (id, it.seen)).any(is_other)
    }

    /// Whether anybody publishes at the moment who does not hand operations to
    /// this process instead.
    pub(crate) fn has_rivals(&self) -> bool {
        let state = self.state();
        state.others.iter().any(|(id, other)| {
            let is_handing = state.sources.get(id).is_some_and(|at| other.seen <= *at);
            !is_handing && other.seen.elapsed() < RECENT
        })
    }

    /// Where an operation goes, if not to the driver; it has to be for the
    /// history with this id, where it names one.
    pub(crate) fn target(&self, of: Option<HistoryId>) -> Option<Target> {
        if self.rules.hosts.is_empty() {
            return None;
        }
        let now = Instant::now();
        let mut state = self.state();
        if state.handing.as_ref().is_some_and(|it| RECENT <= now - it.used) {
            self.end(&mut state, "it was quiet");
        }
        if state.handing.is_none() {
            self.begin(&mut state, now);
        }
        let handing = state.handing.as_mut()?;
        handing.used = now;
        let is_meant = of.is_none_or(|it| it == handing.target.history_id);
        is_meant.then(|| handing.target.clone())
    }

    /// To whom other writers should go instead.
    pub(crate) fn instead(&self) -> Option<WriterAddress> {
        let state = self.state();
        let handing = state.handing.as_ref().filter(|it| it.used.elapsed() < RECENT);
        handing.map(|it| it.target.address.clone())
    }

    /// Whether operations are handed over at the moment.
    pub(crate) fn is_handing(&self) -> bool {
        self.state().handing.as_ref().is_some_and(|it| it.used.elapsed() < RECENT)
    }

    /// There is an outcome of `address`, after `took`.
    pub(crate) fn answered(&self, address: &WriterAddress, took: Duration, taken: &Taken) {
        let mut state = self.state();
        let Some(handing) = state.handing.as_mut().filter(|it| it.target.address == *address)
        else {
            return;
        };
        handing.n_answers = handing.n_answers.saturating_add(1);
        handing.n_without = 0;
        handing.took = match handing.n_answers {
            1 => took,
            _ => (handing.took * 7 + took) / 8,
        };
        if JUDGED_AFTER <= handing.n_answers && handing.slow < handing.took {
            return self.give_up(&mut state, address, "publishing them here is faster");
        }
        state.avoided.remove(address);
        if !taken.is_shared {
            return self.end(&mut state, "nobody else writes");
        }
        if let Some(instead) = &taken.instead
            && instead != address
            && self.may_take(&state, instead, Instant::now())
            && let Some(handing) = &mut state.handing
        {
            handing.target.address = instead.clone();
            (handing.n_answers, handing.n_without, handing.took) = (0, 0, Duration::ZERO);
            let history = &self.history;
            tracing::info!(%history, address = %instead, "operations are handed to another writer");
        }
    }

    /// `address` answered, and had an outcome of no operation in the message.
    pub(crate) fn without_outcome(&self, address: &WriterAddress) {
        let mut state = self.state();
        let Some(handing) = state.handing.as_mut().filter(|it| it.target.address == *address)
        else {
            return;
        };
        handing.n_without += 1;
        if handing.n_without == WITHOUT_OUTCOME_MAX {
            self.give_up(&mut state, address, "it has no outcomes");
        }
    }

    /// `address` took nothing, or gave no answer.
    pub(crate) fn failed(&self, address: &WriterAddress) {
        let mut state = self.state();
        if state.handing.as_ref().is_some_and(|it| it.target.address == *address) {
            self.give_up(&mut state, address, "it does not take them");
        }
    }

    fn give_up(&self, state: &mut State, address: &WriterAddress, why: &str) {
        avoid(state, address);
        self.end(state, why);
    }

    fn begin(&self, state: &mut State, now: Instant) {
        let is_recent = |at: &Instant| now.saturating_duration_since(*at) < RECENT;
        if state.losses.len() < LOSSES || !state.losses.iter().all(is_recent) {
            return;
        }
        let Some(history_id) = state.history_id else { return };
        let others = || state.others.iter().filter(|(_, it)| is_recent(&it.seen));
        // In the order of ids. One that nobody can reach comes after all.
        let first = others().find_map(|(id, it)| {
            let is_before = self.rules.address.is_none() || *id < self.rules.publisher_id;
            let address = it.address.as_ref().filter(|_| is_before)?;
            self.may_take(state, address, now).then(|| address.clone())
        });
        let Some(address) = first else { return };
        let in_turns = u32::try_from(others().count() + 1).unwrap_or(u32::MAX);
        let slow = state.attempt.saturating_mul(SLOW_ATTEMPTS).saturating_mul(in_turns);
        let history = &self.history;
        tracing::info!(%history, %address, "contended: operations are handed to another writer");
        state.handing = Some(Handing {
            target: Target { address, history_id },
            used: now,
            took: Duration::ZERO,
            n_answers: 0,
            n_without: 0,
            slow: slow.max(SLOW_MIN),
        });
    }

    fn end(&self, state: &mut State, why: &str) {
        if let Some(handing) = state.handing.take() {
            let (history, address) = (&self.history, &handing.target.address);
            tracing::info!(%history, %address, why, "operations are published here again");
        }
        // What comes is seen anew: it may be over.
        state.losses.clear();
    }

    fn may_take(&self, state: &State, address: &WriterAddress, now: Instant) -> bool {
        self.rules.address.as_ref() != Some(address)
            && self.rules.hosts.allow(address)
            && state.avoided.get(address).is_none_or(|it| it.until <= now)
    }
}

/// Leaves a writer alone for a while.
fn avoid(state: &mut State, address: &WriterAddress) {
    let bound = state.avoided.get(address).map_or(AVOIDED_FIRST, |it| it.bound * 2);
    let bound = bound.min(AVOIDED_MAX);
    let avoided = Avoided { until: Instant::now() + bound, bound };
    state.avoided.insert(address.clone(), avoided);
    trim(&mut state.avoided, |it| it.until);
}

/// Lets go of the oldest past the limit.
fn trim<K: Clone + Ord, V>(map: &mut BTreeMap<K, V>, at: impl Fn(&V) -> Instant) {
    if OTHERS_MAX < map.len()
        && let Some(oldest) = map.iter().min_by_key(|(_, it)| at(it)).map(|(key, _)| key.clone())
    {
        map.remove(&oldest);
    }
}

#[cfg(test)]
#[path = "route_test.rs"]
mod route_test;
