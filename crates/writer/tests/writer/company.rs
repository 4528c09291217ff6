//! Callers that were answered together, and entries that travel in the head.

use std::sync::Arc;
use std::time::Duration;

use headwater_core::head::ChangeBody;
use headwater_store::{Call, Fault, Gate, Latency, Rule, Store};
use headwater_writer::WriterConfig;
use tokio::time::Instant;

use crate::fixture::{Host, Op, World, accepted, look, name, settle};

const WRITE: Duration = Duration::from_millis(20);

/// A writer that is one write away from a bucket with one history.
async fn far_away(config: WriterConfig) -> (World, Host) {
    let (world, near) = World::new().await;
    near.writer.shutdown().await;
    let host = world.host_behind(config, |bucket: Arc<dyn Store>| {
        Arc::new(Latency::new(bucket, WRITE / 2, WRITE))
    });
    // It finds out that nobody else publishes.
    for n in 0..20 {
        host.accept(Op::new(format!("warm-{n}")).add("n", 1)).await;
    }
    (world, host)
}

/// Callers that each ask again when they are answered.
async fn closed_loop(host: &Host, callers: usize, rounds: usize, op: fn(String) -> Op) {
    let callers = (0..callers).map(|caller| async move {
        for round in 0..rounds {
            accepted(host.submit(op(format!("{caller}-{round}"))).await);
        }
    });
    futures::future::join_all(callers).await;
}

#[tokio::test(start_paused = true)]
async fn callers_that_ask_again_together_share_each_replacement() {
    for op in [(|id| Op::new(id).add("n", 1)) as fn(String) -> Op, |id| Op::new(id).large()] {
        let (_world, host) = far_away(WriterConfig::default()).await;
        let before = host.readings();
        closed_loop(&host, 8, 20, op).await;
        let made = host.readings().since(&before);
        // One more where the first of them went ahead alone.
        let replacements = made.calls(Call::ReplaceHead);
        assert!((20..=22).contains(&replacements), "{replacements}");
        assert!(made.calls(Call::Put) <= replacements, "{} uploads", made.calls(Call::Put));
    }
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_is_alone_waits_for_nobody() {
    let (_world, host) = far_away(WriterConfig::default()).await;
    let began = Instant::now();
    closed_loop(&host, 1, 10, |id| Op::new(id).large()).await;
    assert_eq!(began.elapsed(), WRITE * 10, "one round trip each, by the clock of the test");
}

/// The upload is on its way for a second; everybody is answered meanwhile.
#[tokio::test(start_paused = true)]
async fn what_travels_is_answered_before_it_is_uploaded_and_named_afterwards() {
    let (world, host) = far_away(WriterConfig::default()).await;
    let gate = Gate::new();
    host.faults.add(Rule::new(Fault::Hold(gate.clone())).on(Call::Put));
    let first = host.accept(Op::new("large").large()).await;
    assert!(is_inline(&world, first.accepted_at.get()).await);
    host.accept(Op::new("small").add("n", 1)).await;
    assert!(is_inline(&world, first.accepted_at.get()).await);

    gate.open();
    settle().await;
    settle().await;
    let state = world.state().await;
    host.accept(Op::new("next").add("n", 1)).await;
    assert!(!is_inline(&world, first.accepted_at.get()).await);
    // From the object now, and not from the head.
    let rebuilt = world.state().await;
    assert_eq!(rebuilt.get("large"), state.get("large"));
}

/// A process that dies with its upload under way has lost nothing.
#[tokio::test(start_paused = true)]
async fn what_travels_does_not_need_the_process_that_sent_it() {
    let (world, host) = far_away(WriterConfig::default()).await;
    let gate = Gate::new();
    host.faults.add(Rule::new(Fault::Hold(gate.clone())).on(Call::Put));
    let first = host.accept(Op::new("large").large()).await;
    let state = world.state().await;
    drop(host);

    let other = world.host();
    other.accept(Op::new("b").add("n", 1)).await;
    assert!(is_inline(&world, first.accepted_at.get()).await);
    assert_eq!(world.state().await.get("large"), state.get("large"));
    let again = accepted(other.submit(Op::new("large").large()).await);
    assert_eq!(again, first, "its receipt is in the head");
}

/// The head has the change of that version in full.
async fn is_inline(world: &World, version: u64) -> bool {
    let head = look::head(&*world.store, &name("h")).await;
    let change = head.changes.iter().find(|it| it.version.get() == version).unwrap();
    matches!(change.body, ChangeBody::Inline(_))
}
