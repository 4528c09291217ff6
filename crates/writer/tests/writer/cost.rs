//! What an operation costs, and how batches and uploads overlap.

use std::sync::Arc;
use std::time::Duration;

use headwater_core::publish::Answer;
use headwater_store::{Call, Fault, Gate, Latency, Outcome, Readings, Rule};
use headwater_writer::WriterConfig;
use tokio::time::Instant;

use crate::fixture::{Host, Op, World, accepted, look, name, settle, staging};

/// Calls of each kind: replace, put, read, get.
fn calls(readings: &Readings) -> [u64; 4] {
    [Call::ReplaceHead, Call::Put, Call::ReadHead, Call::Get].map(|it| readings.calls(it))
}

async fn cost_of(host: &Host, op: Op) -> [u64; 4] {
    let before = host.readings();
    host.submit(op).await;
    settle().await;
    let cost = host.readings().since(&before);
    assert_eq!(cost.total(), calls(&cost).iter().sum::<u64>(), "nothing is listed or deleted");
    calls(&cost)
}

#[tokio::test(start_paused = true)]
async fn an_operation_alone_costs_one_replacement_and_no_read() {
    let (_world, host) = World::new().await;
    host.accept(Op::new("warm").add("n", 1)).await;

    assert_eq!(cost_of(&host, Op::new("small").add("n", 1)).await, [1, 0, 0, 0]);
    assert_eq!(cost_of(&host, Op::new("checked").if_present("n").add("n", 1)).await, [1, 0, 0, 0]);
    assert_eq!(cost_of(&host, Op::new("large").large()).await, [1, 1, 0, 0]);
    assert_eq!(cost_of(&host, Op::new("kept").add("n", 1).service_kept()).await, [1, 1, 0, 0]);
    assert_eq!(cost_of(&host, Op::new("both").large().service_kept()).await, [1, 2, 0, 0]);
    // A receipt in the head at hand is proof by itself.
    assert_eq!(cost_of(&host, Op::new("small").add("n", 1)).await, [0, 0, 0, 0]);
}

#[tokio::test(start_paused = true)]
async fn a_rejection_costs_one_conditional_read() {
    let (_world, host) = World::new().await;
    host.accept(Op::new("warm").add("n", 1)).await;
    let before = host.readings();

    let answer = host.submit(Op::new("rejected").if_absent("n").add("n", 1)).await;

    assert!(matches!(answer, Answer::Rejected { .. }));
    let cost = host.readings().since(&before);
    assert_eq!(calls(&cost), [0, 0, 1, 0]);
    assert_eq!(cost.count(Call::ReadHead, Outcome::Unchanged), 1);
}

#[tokio::test(start_paused = true)]
async fn rejections_that_wait_share_a_read_and_one_beside_a_publication_needs_none() {
    let (_world, host) = World::new().await;
    host.accept(Op::new("warm").add("n", 1)).await;
    let before = host.readings();

    let calls_made: Vec<_> =
        (0..50).map(|n| host.begin(Op::new(format!("r{n}")).if_absent("n").add("n", 1))).collect();
    for call in calls_made {
        assert!(matches!(call.await.unwrap(), Answer::Rejected { .. }));
    }
    let cost = host.readings().since(&before);
    assert!(calls(&cost)[2] <= 2, "{:?}", calls(&cost));

    let before = host.readings();
    let rejected = host.begin(Op::new("r").if_absent("n").add("n", 1));
    let good = host.begin(Op::new("good").add("n", 1));
    assert!(matches!(rejected.await.unwrap(), Answer::Rejected { .. }));
    accepted(good.await.unwrap());
    let cost = host.readings().since(&before);
    assert_eq!(calls(&cost), [1, 0, 0, 0]);
}

#[tokio::test(start_paused = true)]
async fn a_record_is_written_beside_the_change_and_not_before_it() {
    let (_world, host) = World::new().await;
    host.accept(Op::new("warm").add("n", 1)).await;
    let gate = Gate::new();
    host.faults.add(Rule::new(Fault::Hold(gate.clone())).on(Call::Put));

    let call = host.begin(Op::new("both").large().service_kept());
    gate.arrived(2).await;
    // Neither is answered, so no head may name the change.
    assert_eq!(host.faults.calls(Call::ReplaceHead), 1);
    gate.open();

    accepted(call.await.unwrap());
}

#[tokio::test(start_paused = true)]
async fn nothing_is_published_before_it_is_durable() {
    for part in ["/changes/", "/requests/"] {
        let (_world, host) = World::new().await;
        host.accept(Op::new("warm").add("n", 1)).await;
        let gate = Gate::new();
        host.faults.add(Rule::new(Fault::Hold(gate.clone())).on(Call::Put).key_has(part));

        let call = host.begin(Op::new("both").large().service_kept());
        gate.arrived(1).await;
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!(host.faults.calls(Call::ReplaceHead), 1, "{part}");
        gate.open();

        accepted(call.await.unwrap());
    }
}

fn far(store: Arc<dyn headwater_store::Store>) -> Arc<dyn headwater_store::Store> {
    Arc::new(Latency::new(store, Duration::from_millis(10), Duration::from_millis(20)))
}

#[tokio::test(start_paused = true)]
async fn a_thousand_callers_share_a_few_publications() {
    let (world, _) = World::new().await;
    let host = world.host_behind(WriterConfig::default(), far);
    host.accept(Op::new("warm").add("n", 1)).await;
    let (before, began) = (host.readings(), Instant::now());

    let all = (0..1_000).map(|n| host.accept(Op::new(format!("o{n}")).add("n", 1)));
    futures::future::join_all(all).await;

    let cost = calls(&host.readings().since(&before));
    assert!(cost[0] <= 5, "{cost:?}");
    assert!(began.elapsed() < Duration::from_millis(250), "{:?}", began.elapsed());
    assert_eq!(look::number(&world.state().await, "n"), 1_001);
}

#[tokio::test(start_paused = true)]
async fn one_caller_waits_for_one_round_trip() {
    let (world, _) = World::new().await;
    let host = world.host_behind(WriterConfig::default(), far);
    host.accept(Op::new("warm").add("n", 1)).await;

    for (op, round_trips) in [
        (Op::new("small").add("n", 1), 1),
        (Op::new("large").large(), 2),
        (Op::new("kept").add("n", 1).service_kept(), 2),
        (Op::new("both").large().service_kept(), 2),
    ] {
        let began = Instant::now();
        host.accept(op).await;
        // The clock of a paused test moves in whole milliseconds.
        let slack = Duration::from_millis(5);
        assert!(began.elapsed() <= Duration::from_millis(20) * round_trips + slack);
    }
}

#[tokio::test(start_paused = true)]
async fn the_next_batches_are_uploaded_while_a_publication_is_in_flight() {
    // So that no batch waits for company.
    let config = WriterConfig { batch_operations_max: 1, ..staging() };
    let (world, host) = World::with(config).await;
    host.accept(Op::new("warm").add("n", 1)).await;
    let gate = Gate::new();
    host.faults.on_next(Call::ReplaceHead, Fault::HoldReply(gate.clone()));
    let first = host.begin(Op::new("first").add("n", 1));
    gate.arrived(1).await;

    let mut later = Vec::new();
    for n in 1..=3 {
        later.push(host.begin(Op::new(format!("large-{n}")).large()));
        settle().await;
        assert_eq!(look::keys(&*world.store, "h/changes/").await.len(), n);
    }
    assert_eq!(host.faults.calls(Call::ReplaceHead), 2, "one publication at a time");
    gate.open();

    assert_eq!(accepted(first.await.unwrap()).accepted_at.get(), 2);
    for (n, call) in (3..).zip(later) {
        assert_eq!(accepted(call.await.unwrap()).accepted_at.get(), n);
    }
    // One replacement named all three.
    assert_eq!(host.faults.calls(Call::ReplaceHead), 3);
    assert_eq!(look::tail(&world.store, &name("h")).await.len(), 5);
}

#[tokio::test(start_paused = true)]
async fn batches_decided_ahead_are_bounded() {
    let config = WriterConfig { batches_ahead_max: 2, batch_operations_max: 1, ..staging() };
    let (world, host) = World::with(config).await;
    host.accept(Op::new("warm").add("n", 1)).await;
    let gate = Gate::new();
    host.faults.on_next(Call::ReplaceHead, Fault::HoldReply(gate.clone()));
    let first = host.begin(Op::new("first").add("n", 1));
    gate.arrived(1).await;

    let later: Vec<_> = (0..5).map(|n| host.begin(Op::new(format!("large-{n}")).large())).collect();
    settle().await;
    assert_eq!(look::keys(&*world.store, "h/changes/").await.len(), 1);
    gate.open();

    accepted(first.await.unwrap());
    for call in later {
        accepted(call.await.unwrap());
    }
}

#[tokio::test(start_paused = true)]
async fn operations_that_would_wait_anyway_share_a_batch() {
    let (world, host) = World::new().await;
    host.accept(Op::new("warm").add("n", 1)).await;
    let gate = Gate::new();
    host.faults.on_next(Call::ReplaceHead, Fault::HoldReply(gate.clone()));
    let first = host.begin(Op::new("first").add("n", 1));
    gate.arrived(1).await;

    let mut later = Vec::new();
    for n in 0..10 {
        later.push(host.begin(Op::new(format!("small-{n}")).add("n", 1)));
        settle().await;
    }
    gate.open();

    accepted(first.await.unwrap());
    for call in later {
        assert_eq!(accepted(call.await.unwrap()).accepted_at.get(), 3);
    }
    assert_eq!(world.head().await.state_version.get(), 3);
}

#[tokio::test(start_paused = true)]
async fn an_idle_history_costs_nothing() {
    let (_world, host) = World::new().await;
    host.accept(Op::new("warm").add("n", 1)).await;
    let before = host.readings();

    tokio::time::sleep(Duration::from_secs(3_600)).await;

    assert_eq!(host.readings().since(&before).total(), 0);
}
