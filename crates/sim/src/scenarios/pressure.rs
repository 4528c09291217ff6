//! More than the store or one head takes.

use std::sync::atomic::Ordering;
use std::time::Duration;

use headwater_core::operation::Operation;
use headwater_store::Call;
use headwater_writer::WriterConfig;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use super::{Stage, add, play, quiet};
use crate::client::{Client, End};
use crate::plan::Plan;
use crate::run::Report;
use crate::trace::Keep;

/// 32 writers on one head: all finish, and a commit takes under four attempts.
pub(super) fn retry_storm(seed: u64, keep: Keep) -> Report {
    const WRITERS: usize = 32;
    const EACH: u64 = 10;
    let plan = Plan { clients: WRITERS, ..quiet(seed, vec![WriterConfig::default(); WRITERS]) };
    play(plan, keep, async |stage| {
        let mut clients = JoinSet::new();
        for writer in 0..WRITERS {
            let mut client = stage.client_of(writer, writer);
            clients.spawn(async move {
                let mut ends = Vec::new();
                for n in 0..EACH {
                    let operation = add(&format!("w{writer}-{n}"), client.knowing.seen);
                    ends.push(client.submit(&operation).await);
                }
                ends
            });
        }
        for end in clients.join_all().await.into_iter().flatten() {
            stage.expect_accepted(end);
        }
        let sent = stage.world.climate.calls(Call::ReplaceHead);
        let commits = WRITERS as u64 * EACH;
        stage.expect(sent < 4 * commits, &format!("{sent} attempts for {commits} commits"));
    })
}

/// So many operations a second, each by a client of its own, for so long; what
/// became of each, and what was sent again.
async fn load(stage: &Stage, per_second: u64, seconds: u64) -> Vec<End> {
    let mut sent = JoinSet::new();
    for n in 0..per_second * seconds {
        let mut client: Client = stage.client_of(usize::try_from(n).unwrap_or(0), 0);
        let operation: Operation = add(&format!("op-{n}"), 0);
        sent.spawn(async move { client.submit(&operation).await });
        if (n + 1) % (per_second / 100).max(1) == 0 {
            sleep(Duration::from_millis(1_000 / per_second.min(100))).await;
        }
    }
    sent.join_all().await
}

/// One call in five is answered with 503 for a minute: callers notice nothing.
pub(super) fn storm_of_503(seed: u64, keep: Keep) -> Report {
    play(quiet(seed, vec![WriterConfig::default()]), keep, async |stage| {
        stage.world.climate.set_storm(200);
        let ends = load(&stage, 50, 60).await;
        for end in &ends {
            stage.expect_accepted(*end);
        }
        let attempts = stage.done.attempts.load(Ordering::Relaxed);
        stage.expect(attempts == ends.len() as u64, "callers are told of nothing");
        stage.world.climate.set_storm(0);
        sleep(Duration::from_secs(5)).await;
        let began = Instant::now();
        let mut client = stage.client_of(0, 0);
        client.knowing.seen = stage.head().state_version.get();
        stage.commit(&mut client, "after", 20).await;
        let took = began.elapsed();
        stage.expect(took < Duration::from_secs(2), &format!("20 commits took {took:?} in calm"));
    })
}

/// The store takes one replacement of an object a second. A thousand operations
/// a second are accepted all the same, in batches.
pub(super) fn one_per_second(seed: u64, keep: Keep) -> Report {
    const SECONDS: u64 = 10;
    let interval = Duration::from_secs(1);
    let plan = quiet(seed, vec![WriterConfig::default()]);
    let plan = Plan { replacement_interval: interval, ..plan };
    play(plan, keep, async |stage| {
        let before = stage.world.climate.calls(Call::ReplaceHead);
        let ends = load(&stage, 1_000, SECONDS).await;
        for end in &ends {
            stage.expect_accepted(*end);
        }
        let sent = stage.world.climate.calls(Call::ReplaceHead) - before;
        let took = stage.world.elapsed().as_secs();
        stage.expect(took <= SECONDS + 5, &format!("{SECONDS} s of load took {took} s"));
        stage.world.trace.event(format_args!("{sent} replacements were tried"));
    })
}
