//! Processes that die, or are replaced, at every moment.

use std::time::Duration;

use headwater_writer::WriterConfig;
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::{add, busy_upkeep, play, put_large, quiet};
use crate::link::Script;
use crate::plan::{Mix, Plan};
use crate::run::Report;
use crate::totals::Totals;
use crate::trace::Keep;
use crate::weather::Weather;

/// Calls that the story takes without a death, and some more.
const CALLS_MAX: u64 = 120;

/// A writer is killed after each of its calls in turn: nothing is lost, nothing
/// is done twice, and nobody has to do anything but start it again.
pub(super) fn killed_after_every_call(seed: u64, keep: Keep) -> Report {
    let mut last = Report::default();
    let mut totals = Totals::default();
    for call in 0..CALLS_MAX {
        last = killed_after(call, seed, keep);
        totals.add(&last);
        if !last.violations.is_empty() {
            let what = format!("it was killed after call {call}");
            last.violations.push(what);
            return last;
        }
        if last.deaths == 0 {
            // The story is over before the call.
            break;
        }
    }
    if last.deaths != 0 {
        last.violations.push(format!("the story takes more than {CALLS_MAX} calls"));
    }
    Report { operations: totals.operations, tally: totals.tally(), ..last }
}

fn killed_after(call: u64, seed: u64, keep: Keep) -> Report {
    let config = WriterConfig {
        fold_changes: 3,
        compact_tail_versions: 6,
        compact_keep_versions: 1,
        ..busy_upkeep()
    };
    let plan = quiet(seed, vec![config]);
    let mix = Mix { patience_ms: (1_500, 1_500), ..plan.mix };
    let plan = Plan { mix, ..plan };
    play(plan, keep, async |stage| {
        // The first life was spent on creating the history.
        let writer = &stage.world.processes[0];
        writer.kill();
        writer.set_script(Script { dies_after: Some(call), ..Script::default() });
        stage.world.start(0);
        let before = writer.deaths();
        let watch = tokio::spawn({
            let stage = std::sync::Arc::clone(&stage);
            async move {
                let writer = &stage.world.processes[0];
                while writer.deaths() == before {
                    sleep(Duration::from_millis(500)).await;
                    if writer.has_fallen_silent() {
                        writer.kill();
                        sleep(Duration::from_millis(50)).await;
                        stage.world.start(0);
                    }
                }
            }
        });
        let mut client = stage.client_of(0, 0);
        for n in 0..10 {
            let (id, newest) = (format!("op-{n}"), client.knowing.seen);
            let operation = if n % 4 == 3 { put_large(&id, newest) } else { add(&id, newest) };
            let end = client.submit(&operation).await;
            stage.expect_accepted(end);
        }
        // Maintenance that was under way ends, or its writer does.
        sleep(Duration::from_secs(70)).await;
        watch.abort();
        stage.expect(stage.head().operation_count == 10, "each is applied once");
    })
    .without_deaths(1)
}

/// One writer and one replica are replaced again and again under load: it ends
/// as it should, without waiting for anybody to let go of anything.
pub(super) fn rollout_at_one(seed: u64, keep: Keep) -> Report {
    let plan = quiet(seed, vec![WriterConfig::default()]);
    let mix = Mix { reads: 30, patience_ms: (2_000, 2_000), ..Mix::plain() };
    let plan = Plan { mix, clients: 20, operations_each: 20, ..plan };
    play(plan, keep, async |stage| {
        let mut clients = JoinSet::new();
        for index in 0..20 {
            clients.spawn(stage.client_of(index, 0).run());
        }
        for process in [0, 1, 0, 1, 0, 1] {
            sleep(Duration::from_millis(300)).await;
            stage.restart(process).await;
        }
        clients.join_all().await;
    })
}

/// Three writers start at once over a store whose reads take long and pass each
/// other: one order comes of it.
pub(super) fn stale_start(seed: u64, keep: Keep) -> Report {
    let plan = quiet(seed, vec![WriterConfig::default(); 3]);
    let to_bucket = Weather { has_long_tail: true, ..plan.to_bucket };
    let plan = Plan { to_bucket, clients: 3, ..plan };
    play(plan, keep, async |stage| {
        for writer in 0..3 {
            stage.world.processes[writer].kill();
        }
        stage.world.start_all();
        let mut clients = JoinSet::new();
        for writer in 0..3 {
            let (stage, mut client) = (std::sync::Arc::clone(&stage), stage.client_of(0, writer));
            clients
                .spawn(async move { stage.commit(&mut client, &format!("w{writer}"), 10).await });
        }
        clients.join_all().await;
        stage.expect(stage.head().operation_count == 30, "each is applied once");
    })
}
