//! What can be measured.

mod contend;
mod follow;
mod history;
mod start;

use std::sync::{Arc, Mutex, PoisonError};

use futures::future::join_all;
use headwater_store::Readings;

use crate::Plan;
use crate::load::{self, Measured};
use crate::report::{Line, line};
use crate::system::{BoxError, System};

/// A scenario of the command line.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
pub(crate) enum Scenario {
    /// Puts; the store's own write in the same run as the baseline.
    Commit,
    /// Puts through several writers of one history, against one writer alone.
    CommitContended,
    /// Strong reads of keys that were written before.
    StrongRead,
    /// Eight reads at hand, a strong read and a put of each ten calls.
    ReadMix,
    /// From the acknowledgement of a put to its being visible on a replica, with
    /// and without notices. One caller.
    FollowLag,
    /// A new replica: its first strong read, and all of the state, against plain
    /// parallel reads of as many bytes.
    ColdStart,
    /// Entries in order, with chunks to be fetched and with chunks at hand.
    Scan,
    /// As many commits as `--changes`, one after the other: the first tenth
    /// against the last.
    LongHistory,
    /// Puts while replicas follow, against none.
    Replicas,
    /// What replicas ask while nothing happens.
    Idle,
    /// Commit and strong-read, one after the other.
    All,
}

impl Scenario {
    pub(crate) async fn measure(self, plan: Plan) -> Result<Vec<Line>, BoxError> {
        Ok(match self {
            Self::Commit => vec![commit(plan).await?],
            Self::CommitContended => contend::measure(plan).await?,
            Self::StrongRead => vec![strong_read(plan).await?],
            Self::ReadMix => vec![read_mix(plan).await?],
            Self::FollowLag => follow::lag(plan).await?,
            Self::ColdStart => vec![start::cold(plan).await?],
            Self::Scan => start::scan(plan).await?,
            Self::LongHistory => vec![history::long(plan).await?],
            Self::Replicas => follow::replicas(plan).await?,
            Self::Idle => vec![follow::idle(plan).await?],
            Self::All => vec![commit(plan).await?, strong_read(plan).await?],
        })
    }
}

async fn commit(plan: Plan) -> Result<Line, BoxError> {
    let system = System::start(plan).await?;
    // One replacement of the head: nothing can be durable with less.
    let floor_ms = system.floor_ms(true).await?;
    let putter = system.putter(plan.value_bytes);
    let (measured, store) = counted(&system, plan, move |caller, n| {
        let putter = putter.clone();
        async move { putter.put(caller, n).await }
    })
    .await;
    system.stop().await;
    Ok(line("commit", plan, floor_ms, &measured, &store))
}

async fn strong_read(plan: Plan) -> Result<Line, BoxError> {
    let system = System::start(plan).await?;
    let putter = system.putter(plan.value_bytes);
    let puts = (0..plan.callers).map(|caller| putter.put(caller, 0));
    if !join_all(puts).await.into_iter().all(|is_accepted| is_accepted) {
        return Err("the keys to read could not be written".into());
    }
    // One conditional read of the head.
    let floor_ms = system.floor_ms(false).await?;
    let getter = system.getter();
    let (measured, store) = counted(&system, plan, move |caller, _| {
        let getter = getter.clone();
        async move { getter.get(caller).await }
    })
    .await;
    system.stop().await;
    Ok(line("strong-read", plan, floor_ms, &measured, &store))
}

async fn read_mix(plan: Plan) -> Result<Line, BoxError> {
    let system = System::start(plan).await?;
    let putter = system.putter(plan.value_bytes);
    let puts = (0..plan.callers).map(|caller| putter.put(caller, 0));
    if !join_all(puts).await.into_iter().all(|is_accepted| is_accepted) {
        return Err("the keys to read could not be written".into());
    }
    let floor_ms = system.floor_ms(false).await?;
    let getter = system.getter();
    let (measured, store) = counted(&system, plan, move |caller, n| {
        let (getter, putter) = (getter.clone(), putter.clone());
        async move {
            match n % 10 {
                0 => putter.put(caller, n + 1).await,
                5 => getter.get(caller).await,
                _ => getter.get_at_hand(caller).await,
            }
        }
    })
    .await;
    system.stop().await;
    Ok(line("read-mix", plan, floor_ms, &measured, &store))
}

/// Puts or reads until the time is up, and what the store was asked for it.
async fn counted<C, F>(system: &System, plan: Plan, call: C) -> (Measured, Readings)
where
    C: Fn(usize, u64) -> F + Clone + Send + 'static,
    F: Future<Output = bool> + Send + 'static,
{
    let before = Arc::new(Mutex::new(Readings::default()));
    let begin = || *before.lock().unwrap_or_else(PoisonError::into_inner) = system.readings();
    let measured = match plan.per_second {
        None => load::run(plan.callers, plan.time, call, begin).await,
        Some(rate) => load::run_open(rate, plan.callers, plan.time, call, begin).await,
    };
    let before = *before.lock().unwrap_or_else(PoisonError::into_inner);
    (measured, system.readings().since(&before))
}
