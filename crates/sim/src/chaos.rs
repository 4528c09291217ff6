//! What happens to processes and ways while clients work: deaths, partitions,
//! storms, calls that are held.

use std::sync::Arc;
use std::time::Duration;

use headwater_store::Call;
use tokio::time::{sleep, timeout};

use crate::dice::Dice;
use crate::weather::Party;
use crate::world::World;

/// Runs until the plan's time for it is over.
pub(crate) async fn run(world: Arc<World>) {
    let chaos = world.plan.chaos;
    let everything = async {
        tokio::join!(
            biased;
            at_intervals(&world, "deaths", chaos.deaths, death),
            at_intervals(&world, "partitions", chaos.partitions, partition),
            at_intervals(&world, "storms", chaos.storms, storm),
            at_intervals(&world, "holds", chaos.holds, hold),
        )
    };
    let _over = timeout(chaos.lasts, everything).await;
}

async fn at_intervals<F: Future<Output = ()>>(
    world: &Arc<World>,
    label: &str,
    interval: Option<Duration>,
    happen: impl Fn(Arc<World>, Dice) -> F,
) {
    let Some(interval) = interval else { return };
    let dice = Dice::new(world.plan.seed, label);
    let interval_ms = u64::try_from(interval.as_millis()).unwrap_or(u64::MAX);
    loop {
        sleep(dice.ms(0, interval_ms.saturating_mul(2))).await;
        happen(Arc::clone(world), dice.clone()).await;
    }
}

/// A process dies, and is started again some time later.
async fn death(world: Arc<World>, dice: Dice) {
    let index = dice.index(world.processes.len());
    let down = dice.ms(0, 2_000);
    world.processes[index].kill();
    tokio::spawn(async move {
        sleep(down).await;
        world.start(index);
    });
}

/// Nothing passes between two parties for some time.
async fn partition(world: Arc<World>, dice: Dice) {
    let process = Party::Process(dice.index(world.processes.len()));
    let other = match dice.below(4) {
        0 | 1 => Party::Bucket,
        2 => Party::Client(dice.index(world.plan.clients)),
        _ => Party::Process(dice.index(world.processes.len())),
    };
    world.trace.event(format_args!("{process:?} and {other:?} are cut apart"));
    world.climate.set_cut(process, other, true);
    sleep(dice.ms(100, 8_000)).await;
    world.climate.set_cut(process, other, false);
    world.trace.event(format_args!("{process:?} and {other:?} are together again"));
}

/// The store has too much to do.
async fn storm(world: Arc<World>, dice: Dice) {
    let per_mille = dice.pick(&[200, 500, 1_000]);
    world.trace.event(format_args!("{per_mille} in a thousand calls are throttled"));
    world.climate.set_storm(per_mille);
    sleep(dice.ms(200, 5_000)).await;
    world.climate.set_storm(0);
    world.trace.event(format_args!("calls are no longer throttled"));
}

/// A process is stopped before calls of one kind for some time, and then goes
/// on as if nothing had happened.
async fn hold(world: Arc<World>, dice: Dice) {
    let process = &world.processes[dice.index(world.processes.len())];
    let call = dice.pick(&[Call::ReadHead, Call::ReplaceHead, Call::Put, Call::Get]);
    world.trace.event(format_args!("process {}: {} is held", process.index, call.as_str()));
    process.hold.set(Some(call));
    sleep(dice.ms(100, 30_000)).await;
    process.hold.set(None);
    world.trace.event(format_args!("process {}: nothing is held", process.index));
}
