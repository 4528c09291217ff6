//! Many requests at once, of which one may succeed.
//!
//! Each round has a head of its own, so that a limit of writes for one object
//! holds up no round, and every racer is released at the same moment with the
//! same condition. A server that compares and writes in two steps lets several
//! through.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt as _;
use futures::stream;
use headwater_core::id::Tag;
use tokio::sync::Barrier;
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::report::Verdict;
use crate::{Entropy, HeadRead, HeadWrite, Store};

/// What the racers do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RaceKind {
    /// Create one head.
    Create,
    /// Replace one head under its current tag.
    Replace,
}

impl RaceKind {
    pub(super) const ALL: [Self; 2] = [Self::Create, Self::Replace];

    /// The word for people and programs.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Create => "create",
            Self::Replace => "replace",
        }
    }
}

/// How the races of one kind ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Race {
    /// What was done.
    pub kind: RaceKind,
    /// Requests at once.
    pub n_racers: usize,
    /// Rounds in which somebody succeeded.
    pub n_rounds: usize,
    /// Rounds in which nobody did, or that could not be begun.
    pub n_void: usize,
    /// Racers that were told of a success besides the one: acknowledged writes
    /// that would have been lost.
    pub n_lost: usize,
    /// Rounds after which the head was not what its winner wrote.
    pub n_overwritten: usize,
    /// Requests without an answer that proves anything (409, 429, 5xx).
    pub n_unanswered: usize,
}

/// How much is raced.
#[derive(Clone, Copy, Debug)]
pub(super) struct Size {
    pub(super) n_racers: usize,
    pub(super) n_rounds: usize,
}

/// Where.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place<'a> {
    pub(super) stores: [&'a Arc<dyn Store>; 2],
    pub(super) prefix: &'a str,
    pub(super) entropy: &'a Entropy,
}

/// Void rounds, one after the other, after which the rest is not run.
const VOID_MAX: usize = 3;

/// Lost writes after which the rest is not run: they are proof enough.
const LOST_MAX: usize = 3;

/// Heads that are created at once.
const CREATIONS_MAX: usize = 16;

impl Race {
    fn new(kind: RaceKind, n_racers: usize) -> Self {
        Self {
            kind,
            n_racers,
            n_rounds: 0,
            n_void: 0,
            n_lost: 0,
            n_overwritten: 0,
            n_unanswered: 0,
        }
    }

    /// What it comes to, in words.
    pub(super) fn verdict(&self) -> (Verdict, String) {
        let Self { n_racers, n_rounds, n_lost, n_overwritten, n_unanswered, .. } = *self;
        if 0 < n_lost || 0 < n_overwritten {
            let detail = format!(
                "{n_lost} writes were acknowledged and lost in {n_rounds} rounds of {n_racers}: \
                 the store compares and writes in two steps, or does not compare"
            );
            return (Verdict::Broken, detail);
        }
        if n_rounds == 0 {
            let detail = format!("nobody of {n_racers} was ever answered; nothing is known");
            return (Verdict::Open, detail);
        }
        let detail =
            format!("0 lost in {n_rounds} rounds of {n_racers}, {n_unanswered} unanswered");
        (Verdict::Holds, detail)
    }
}

/// How one racer ended.
enum Finish {
    Won(usize),
    Lost,
    Unanswered,
}

/// Runs races of one kind. Ends early once writes are lost: one is enough.
pub(super) async fn run(kind: RaceKind, place: Place<'_>, size: Size) -> Race {
    let mut race = Race::new(kind, size.n_racers);
    // Another name for each run: a bucket remembers.
    let nonce = place.entropy.u64();
    let keys = (0..size.n_rounds)
        .map(|round| format!("{}/{}-{nonce:016x}-{round}/head.json", place.prefix, kind.as_str()));
    let starts = match kind {
        RaceKind::Create => keys.map(|key| Some(Start { key, tag: None })).collect(),
        RaceKind::Replace => created(place, keys).await,
    };
    let mut n_void = 0;
    for start in starts {
        let is_decided = match start {
            Some(start) => run_round(&mut race, place, size.n_racers, &start).await,
            None => false,
        };
        n_void = if is_decided { 0 } else { n_void + 1 };
        race.n_void += usize::from(!is_decided);
        if VOID_MAX <= n_void || LOST_MAX <= race.n_lost {
            break;
        }
    }
    race
}

/// Where a round begins.
struct Start {
    key: String,
    /// Of the head that is to be replaced.
    tag: Option<Tag>,
}

/// Creates the heads of all rounds before the first one: where a store wants a
/// second between two writes of an object, it has passed for most of them.
async fn created(place: Place<'_>, keys: impl Iterator<Item = String>) -> Vec<Option<Start>> {
    let create = async |key: String| match place.stores[0]
        .create_head(&key, Bytes::from_static(b"start"))
        .await
    {
        HeadWrite::Replaced { tag } => Some(Start { key, tag: Some(tag) }),
        HeadWrite::Mismatch | HeadWrite::Gone | HeadWrite::NoAnswer(_) => None,
    };
    stream::iter(keys).map(create).buffered(CREATIONS_MAX).collect().await
}

/// Whether anybody succeeded.
async fn run_round(race: &mut Race, place: Place<'_>, n_racers: usize, start: &Start) -> bool {
    let key = &start.key;
    // Racers that are all throttled at first come back once the object may be
    // written again: a second on stores with a limit for one object.
    for pause in [Duration::ZERO, Duration::from_millis(1_500)] {
        sleep(pause).await;
        let finishes = race_once(place, n_racers, start).await;
        let won = |it: &Finish| match it {
            Finish::Won(racer) => Some(*racer),
            Finish::Lost | Finish::Unanswered => None,
        };
        let winners: Vec<usize> = finishes.iter().filter_map(won).collect();
        race.n_unanswered += finishes.iter().filter(|it| matches!(it, Finish::Unanswered)).count();
        let Some(winner) = winners.first() else { continue };
        race.n_rounds += 1;
        race.n_lost += winners.len() - 1;
        if winners.len() == 1
            && let Ok(HeadRead::Found { bytes, .. }) = place.stores[1].read_head(key, None).await
            && bytes != body(*winner)
        {
            race.n_overwritten += 1;
        }
        return true;
    }
    false
}

/// No two have equal bytes.
fn body(racer: usize) -> Bytes {
    format!("racer {racer}").into()
}

async fn race_once(place: Place<'_>, n_racers: usize, start: &Start) -> Vec<Finish> {
    let barrier = Arc::new(Barrier::new(n_racers));
    let mut racers = JoinSet::new();
    for racer in 0..n_racers {
        let store = Arc::clone(place.stores[racer % 2]);
        let (key, tag) = (start.key.clone(), start.tag.clone());
        let barrier = Arc::clone(&barrier);
        racers.spawn(async move {
            // Opens a connection, which is then at hand for the write.
            drop(store.read_head(&key, None).await);
            barrier.wait().await;
            let answer = match tag {
                None => store.create_head(&key, body(racer)).await,
                Some(tag) => store.replace_head(&key, &tag, body(racer)).await,
            };
            match answer {
                HeadWrite::Replaced { .. } => Finish::Won(racer),
                HeadWrite::Mismatch | HeadWrite::Gone => Finish::Lost,
                HeadWrite::NoAnswer(_) => Finish::Unanswered,
            }
        });
    }
    racers.join_all().await
}
