//! What can be measured.

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
    /// Strong reads of keys that were written before.
    StrongRead,
    /// Both, one after the other.
    All,
}

impl Scenario {
    pub(crate) async fn measure(self, plan: Plan) -> Result<Vec<Line>, BoxError> {
        Ok(match self {
            Self::Commit => vec![commit(plan).await?],
            Self::StrongRead => vec![strong_read(plan).await?],
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

async fn counted<C, F>(system: &System, plan: Plan, call: C) -> (Measured, Readings)
where
    C: Fn(usize, u64) -> F + Clone + Send + 'static,
    F: Future<Output = bool> + Send,
{
    let before = Arc::new(Mutex::new(Readings::default()));
    let begin = || *before.lock().unwrap_or_else(PoisonError::into_inner) = system.readings();
    let measured = load::run(plan.callers, plan.time, call, begin).await;
    let before = *before.lock().unwrap_or_else(PoisonError::into_inner);
    (measured, system.readings().since(&before))
}
