//! Several writers of one history.

use headwater_store::{Call, Outcome, Readings};
use tokio_util::sync::CancellationToken;

use crate::Plan;
use crate::load::{self, Measured};
use crate::report::{Line, line};
use crate::system::{BoxError, World};

/// Whether writers hand operations to the one that publishes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Forwarding {
    Off,
    On,
}

/// One writer alone, then all of them with as many callers together: in each
/// other's way, and handing over.
pub(super) async fn measure(plan: Plan) -> Result<Vec<Line>, BoxError> {
    let (alone, alone_store) = run(plan, 1, Forwarding::Off).await?;
    let floor_ms = plan.write.as_secs_f64() * 1_000.0;
    let alone_rate = rate(&alone);
    let first = line("commit-contended", plan, floor_ms, &merged(alone, plan), &alone_store);
    let mut lines = vec![first.with("writers", 1.0)];
    for forwarding in [Forwarding::Off, Forwarding::On] {
        lines.push(together(plan, forwarding, alone_rate).await?);
    }
    Ok(lines)
}

async fn together(plan: Plan, forwarding: Forwarding, alone_rate: f64) -> Result<Line, BoxError> {
    let floor_ms = plan.write.as_secs_f64() * 1_000.0;
    let (each, store) = run(plan, plan.writers, forwarding).await?;
    let together = rate(&each);
    let mean = together / number(plan.writers as u64);
    let slowest = each.iter().map(Measured::rate).fold(f64::INFINITY, f64::min);
    let applied = store.count(Call::ReplaceHead, Outcome::Done).max(1);
    let attempts = number(store.calls(Call::ReplaceHead)) / number(applied);
    let is_on = f64::from(u8::from(forwarding == Forwarding::On));
    Ok(line("commit-contended", plan, floor_ms, &merged(each, plan), &store)
        .with("writers", number(plan.writers as u64))
        .with("togetherToAlone", together / alone_rate)
        .with("slowestToMean", slowest / mean)
        .with("attemptsPerReplacement", attempts)
        .with("forwarding", is_on))
}

/// What each writer's callers got, and what all writers asked of the store.
async fn run(
    plan: Plan,
    n_writers: usize,
    forwarding: Forwarding,
) -> Result<(Vec<Measured>, Readings), BoxError> {
    let world = World::new(plan).await?;
    let mut loads = Vec::new();
    let (mut writers, mut meters) = (Vec::new(), Vec::new());
    let callers = plan.callers.div_ceil(n_writers);
    let stop = CancellationToken::new();
    for at in 0..n_writers {
        let (writer, meter) = match forwarding {
            Forwarding::Off => world.writer()?,
            Forwarding::On => world.linked_writer(stop.clone()).await?,
        };
        let putter = world.putter(&writer, plan.value_bytes);
        loads.push(tokio::spawn(load::run(
            callers,
            plan.time,
            move |caller, n| {
                let putter = putter.clone();
                // Ids and keys of its own.
                async move { putter.put(at * 10_000 + caller, n).await }
            },
            || (),
        )));
        writers.push(writer);
        meters.push(meter);
    }
    let mut measured = Vec::new();
    for load in loads {
        measured.push(load.await?);
    }
    let store =
        meters.iter().map(|it| it.read()).fold(Readings::default(), |sum, it| sum.plus(&it));
    for writer in writers {
        writer.shutdown().await;
    }
    stop.cancel();
    Ok((measured, store))
}

fn rate(all: &[Measured]) -> f64 {
    all.iter().map(Measured::rate).sum()
}

fn merged(all: Vec<Measured>, plan: Plan) -> Measured {
    let mut sum = Measured::empty(plan.time);
    for it in all {
        sum.add(it);
    }
    sum
}

#[expect(clippy::cast_precision_loss, reason = "a figure for people")]
fn number(count: u64) -> f64 {
    count as f64
}
