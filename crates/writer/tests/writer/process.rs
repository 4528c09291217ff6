//! Histories that are opened, closed and shut down in one process.

use std::time::Duration;

use headwater_core::decide::Ask;
use headwater_proto::reason;
use headwater_store::{Call, Fault, Gate};
use headwater_writer::{AskError, Question, WriterConfig};

use crate::fixture::{Op, World, accepted, look, name, rpc, settle};

fn short() -> WriterConfig {
    WriterConfig { history_idle_ms: 1_000, histories_max: 2, ..WriterConfig::default() }
}

#[tokio::test(start_paused = true)]
async fn an_idle_history_is_closed_and_opened_again() {
    let (world, host) = World::with(short()).await;
    host.accept(Op::new("a").add("n", 1)).await;
    let reads = host.faults.calls(Call::ReadHead);
    host.accept(Op::new("b").add("n", 1)).await;
    assert_eq!(host.faults.calls(Call::ReadHead), reads);

    tokio::time::sleep(Duration::from_secs(2)).await;
    let receipt = host.accept(Op::new("c").add("n", 1)).await;

    assert_eq!(receipt.results[0].sum, 3);
    assert_eq!(host.faults.calls(Call::ReadHead), reads + 1);
    assert_eq!(look::number(&world.state().await, "n"), 3);
}

#[tokio::test(start_paused = true)]
async fn as_many_histories_are_open_as_may_be_and_idle_ones_make_room() {
    let (_world, host) = World::with(short()).await;
    host.create("i").await;
    host.create("j").await;
    let submit = |name: &str| rpc::submit_request(name, "o", vec![rpc::put("k", "v")]);
    host.submit_rpc(submit("h")).await.unwrap();
    host.submit_rpc(submit("i")).await.unwrap();

    let status = host.submit_rpc(submit("j")).await.unwrap_err();

    assert_eq!(rpc::reason(&status), reason::QUEUE_FULL);
    tokio::time::sleep(Duration::from_secs(2)).await;
    host.submit_rpc(submit("j")).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn names_that_are_made_up_are_let_go_of_soon() {
    let config = WriterConfig { histories_max: 2, ..WriterConfig::default() };
    let (_world, host) = World::with(config).await;
    for n in 0..2 {
        let request = rpc::submit_request(&format!("x{n}"), "o", vec![rpc::put("k", "v")]);
        host.submit_rpc(request).await.unwrap_err();
    }

    tokio::time::sleep(Duration::from_secs(2)).await;

    host.accept(Op::new("o").add("n", 1)).await;
}

#[tokio::test(start_paused = true)]
async fn a_question_that_meets_a_closing_history_is_answered() {
    let (world, host) = World::with(short()).await;
    // Every moment around the one at which the history is closed.
    for n in 0..50 {
        let op = Op::new(format!("o{n}")).add("n", 1);
        host.accept(op).await;
        tokio::time::sleep(Duration::from_millis(990 + n % 20)).await;
    }
    assert_eq!(look::number(&world.state().await, "n"), 50);
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_answers_everything_that_was_taken() {
    let (world, host) = World::new().await;
    host.accept(Op::new("warm").add("n", 1)).await;
    let gate = Gate::new();
    host.faults.on_next(Call::ReplaceHead, Fault::Hold(gate.clone()));
    let calls: Vec<_> = (0..50)
        .map(|n| {
            let op = Op::new(format!("o{n}")).add("n", 1);
            host.begin(if n % 7 == 0 { op.large() } else { op })
        })
        .collect();
    gate.arrived(1).await;
    settle().await;

    let writer = host.writer.clone();
    let stopping = tokio::spawn(async move { writer.shutdown().await });
    settle().await;
    assert!(!stopping.is_finished(), "it waits for what it has taken");
    let question = Question::Ask(Ask::Submit(Op::new("late").add("n", 1).operation()));
    let refused = host.writer.ask(&name("h"), question).await.unwrap_err();
    gate.open();
    stopping.await.unwrap();

    assert_eq!(refused, AskError::ShuttingDown);
    for call in calls {
        accepted(call.await.unwrap());
    }
    assert_eq!(look::number(&world.state().await, "n"), 51);
    let status = host
        .submit_rpc(rpc::submit_request("h", "late", vec![rpc::put("k", "v")]))
        .await
        .unwrap_err();
    assert_eq!(rpc::reason(&status), reason::SHUTTING_DOWN);
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_ends_although_the_store_is_silent() {
    let (_world, host) = World::new().await;
    host.accept(Op::new("warm").add("n", 1)).await;
    host.faults.while_set(Call::ReplaceHead, Fault::Hang);
    let call = host.begin(Op::new("o").add("n", 1));
    settle().await;
    let began = tokio::time::Instant::now();

    host.writer.shutdown().await;

    assert!(began.elapsed() <= Duration::from_secs(35));
    assert_eq!(
        crate::fixture::failed(call.await.unwrap()),
        headwater_core::publish::SubmitError::InDoubt
    );
}

#[tokio::test(start_paused = true)]
async fn settings_at_their_ends_work() {
    let small = || WriterConfig {
        batch_operations_max: 1,
        batch_bytes_max: 1,
        batches_ahead_max: 1,
        queue_bytes_max: 1,
        inline_bytes_max: 0,
        receipt_versions_max: 1,
        receipt_bytes_max: 0,
        head_soft_bytes: 0,
        head_hard_bytes: 4 << 10,
        fold_changes: 1,
        compact_tail_bytes: 0,
        compact_tail_versions: 1,
        compact_keep_versions: 0,
        history_idle_ms: 0,
        chunk_cache_bytes: 0,
        ..WriterConfig::default()
    };
    let large = WriterConfig {
        batches_ahead_max: 1_000,
        inline_bytes_max: 1 << 20,
        receipt_versions_max: u64::MAX,
        receipt_bytes_max: u64::MAX,
        head_soft_bytes: 8 << 20,
        head_hard_bytes: 16 << 20,
        fold_changes: usize::MAX,
        compact_tail_bytes: u64::MAX,
        compact_tail_versions: u64::MAX,
        compact_keep_versions: u64::MAX,
        ..WriterConfig::default()
    };
    for config in [small(), WriterConfig { queue_bytes_max: 1 << 20, ..small() }, large] {
        let (world, host) = World::with(config).await;
        let mut seen = 0;
        for n in 0..20 {
            let op = Op::new(format!("o{n}")).if_absent("x").add("n", 1).issued_from(seen);
            let op = if n % 2 == 0 { op.service_kept() } else { op };
            seen = host.accept(op).await.accepted_at.get();
            settle().await;
        }
        assert_eq!(look::number(&world.state().await, "n"), 20);
    }
}

#[tokio::test(start_paused = true)]
async fn histories_do_not_wait_for_each_other() {
    let (_world, host) = World::new().await;
    host.create("i").await;
    host.accept(Op::new("warm").add("n", 1)).await;
    let gate = Gate::new();
    host.faults.on_next(Call::ReplaceHead, Fault::Hold(gate.clone()));
    let slow = host.begin(Op::new("slow").add("n", 1));
    gate.arrived(1).await;

    host.submit_rpc(rpc::submit_request("i", "o", vec![rpc::put("k", "v")])).await.unwrap();

    assert!(!slow.is_finished());
    gate.open();
    accepted(slow.await.unwrap());
}
