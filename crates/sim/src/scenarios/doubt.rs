//! A replacement of the head whose reply is lost.

use std::time::Duration;

use headwater_core::publish::{Answer, SubmitError};
use headwater_store::Call;
use headwater_writer::WriterConfig;
use tokio::time::Instant;

use super::{Stage, add, play, put_large, quiet};
use crate::link::Script;
use crate::run::Report;
use crate::trace::Keep;
use crate::weather::Fate;

fn losing(fates: &[Fate]) -> Script {
    Script { replacements: fates.to_vec(), ..Script::default() }
}

/// Writer 0 starts again, and its replacements meet these fates.
async fn restart_under(stage: &Stage, script: Script) {
    stage.world.processes[0].set_script(script);
    stage.restart(0).await;
}

/// The reply is lost once. The writer finds its own head: the original result,
/// applied once.
pub(super) fn self_conflict(seed: u64, keep: Keep) -> Report {
    play(quiet(seed, vec![WriterConfig::default()]), keep, async |stage| {
        restart_under(&stage, losing(&[Fate::LosesReply, Fate::LosesReply])).await;
        let mut client = stage.client_of(0, 0);
        for operation in [add("first", 0), put_large("second", 0)] {
            let end = client.submit(&operation).await;
            stage.expect_accepted(end);
            let again = client.submit(&operation).await;
            stage.expect(end == again, "the same is told again");
        }
        stage.expect(stage.head().operation_count == 2, "each is applied once");
    })
}

/// As before, and another writer commits before the first one has read the head.
pub(super) fn self_conflict_after_a_commit(seed: u64, keep: Keep) -> Report {
    let plan = quiet(seed, vec![WriterConfig::default(); 2]);
    play(plan, keep, async |stage| {
        restart_under(&stage, losing(&[Fate::LosesReply])).await;
        let (mut one, mut other) = (stage.client_of(0, 0), stage.client_of(0, 1));
        let sent = stage.world.climate.calls(Call::ReplaceHead);
        let first = tokio::spawn(async move { one.submit(&add("first", 0)).await });
        // The head is read once, to begin with; what is held is the read that
        // is to find out.
        stage.until(|it| sent < it.world.climate.calls(Call::ReplaceHead)).await;
        let hold = stage.world.processes[0].hold.clone();
        hold.set(Some(Call::ReadHead));
        stage.until(|_| hold.n_held() == 1).await;
        stage.commit(&mut other, "other", 3).await;
        hold.set(None);
        match first.await {
            Ok(end) => stage.expect_accepted(end),
            Err(error) => stage.expect(false, &error.to_string()),
        }
        stage.expect(stage.head().operation_count == 4, "each is applied once");
    })
}

/// Something below repeats the replacement, and the answer is that of the
/// repetition: a mismatch with oneself.
pub(super) fn repeated_by_the_client(seed: u64, keep: Keep) -> Report {
    play(quiet(seed, vec![WriterConfig::default()]), keep, async |stage| {
        let twice = Fate::Repeats { after: Duration::from_millis(5) };
        restart_under(&stage, losing(&[twice; 8])).await;
        let mut client = stage.client_of(0, 0);
        stage.commit(&mut client, "op", 8).await;
        stage.expect(stage.head().operation_count == 8, "each is applied once");
    })
}

/// The store takes longer than the caller has: the answer comes by the deadline
/// and says that it may have been applied. The same id finds out.
pub(super) fn deadline_shorter_than_retry(seed: u64, keep: Keep) -> Report {
    let config = WriterConfig { operation_timeout_ms: 500, ..WriterConfig::default() };
    play(quiet(seed, vec![config]), keep, async |stage| {
        restart_under(&stage, losing(&[Fate::LosesReply; 3])).await;
        let mut client = stage.client_of(0, 0);
        let operation = add("slow", 0);
        // The first replacement is applied, and nobody answers to anything.
        stage.world.climate.set_storm(0);
        stage.world.processes[0].hold.set(Some(Call::ReplaceHead));
        let event = stage.world.trace.event(format_args!("slow is sent"));
        stage.world.truth().issued(&client.head_key, &operation, event);
        stage.world.truth().left_open(&client.head_key, &operation.id);
        let began = Instant::now();
        let answer = client.hear(0, &operation).await;
        let is_doubt = answer == Some(Answer::Failed(SubmitError::InDoubt));
        stage.expect(is_doubt, &format!("in doubt is expected: {answer:?}"));
        let took = began.elapsed();
        stage.expect(took < Duration::from_millis(600), &format!("it took {took:?}"));
        stage.world.processes[0].hold.set(None);
        let end = client.submit(&operation).await;
        stage.expect_accepted(end);
        stage.expect(stage.head().operation_count == 1, "it is applied once");
    })
}
