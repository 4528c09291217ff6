//! Histories that are opened, closed and shut down in one process.

use std::sync::Arc;
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
async fn past_the_limit_the_history_used_least_recently_is_closed() {
    let config = WriterConfig { histories_max: 2, ..WriterConfig::default() };
    let (_world, host) = World::with(config).await;
    host.create("i").await;
    host.create("j").await;
    let submit = |name: &str, id: &str| rpc::submit_request(name, id, vec![rpc::put("k", "v")]);
    for (n, history) in ["h", "i", "h", "j"].into_iter().enumerate() {
        host.submit_rpc(submit(history, &format!("o{n}"))).await.unwrap();
        settle().await;
    }

    assert_eq!(host.writer.open_histories(), [name("h"), name("j")]);
    let reads = host.faults.calls(Call::ReadHead);
    host.submit_rpc(submit("h", "p")).await.unwrap();
    assert_eq!(host.faults.calls(Call::ReadHead), reads, "it was open");
    host.submit_rpc(submit("i", "p")).await.unwrap();
    settle().await;
    assert_eq!(host.writer.open_histories(), [name("h"), name("i")]);
    assert!(reads < host.faults.calls(Call::ReadHead), "it had to be opened again");
}

#[tokio::test(start_paused = true)]
async fn a_history_that_somebody_waits_for_makes_no_room() {
    let (_world, host) = World::with(short()).await;
    host.create("i").await;
    host.create("j").await;
    let submit = |name: &str, id: &str| rpc::submit_request(name, id, vec![rpc::put("k", "v")]);
    for history in ["h", "i"] {
        host.submit_rpc(submit(history, "warm")).await.unwrap();
    }
    let gate = Gate::new();
    host.faults.while_set(Call::ReplaceHead, Fault::Hold(gate.clone()));
    let waiting = ["h", "i"].map(|history| {
        let (writer, question) = (host.writer.clone(), Op::new("late").add("n", 1));
        let question = Question::Ask(Ask::Submit(question.operation()));
        tokio::spawn(async move { writer.ask(&name(history), question).await })
    });
    gate.arrived(2).await;

    let status = host.submit_rpc(submit("j", "o")).await.unwrap_err();

    assert_eq!(rpc::reason(&status), reason::QUEUE_FULL);
    gate.open();
    for it in waiting {
        accepted(it.await.unwrap().unwrap().answer);
    }
    host.submit_rpc(submit("j", "o")).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn what_tails_take_in_memory_is_bounded_by_closing_histories() {
    let config = WriterConfig { overlay_bytes: 300 << 10, ..WriterConfig::default() };
    let (_world, host) = World::with(config).await;
    let names: Vec<String> = (0..8).map(|n| format!("h{n}")).collect();
    for history in &names {
        host.create(history).await;
        let (writer, op) = (&host.writer, Op::new("o").put_bytes("k", vec![b'v'; 100 << 10]));
        let question = Question::Ask(Ask::Submit(op.operation()));
        accepted(writer.ask(&name(history), question).await.unwrap().answer);
        settle().await;
        assert!(writer.overlay_bytes() <= 300 << 10, "{}", writer.overlay_bytes());
    }
    assert_eq!(host.writer.open_histories(), [name("h6"), name("h7")]);
    // One that is larger than the limit stays alone, and works.
    for n in 0..5 {
        let op = Op::new(format!("p{n}")).put_bytes(&format!("k{n}"), vec![b'v'; 100 << 10]);
        let question = Question::Ask(Ask::Submit(op.operation()));
        accepted(host.writer.ask(&name("h7"), question).await.unwrap().answer);
    }
    assert_eq!(host.writer.open_histories(), [name("h7")]);
}

#[tokio::test]
async fn a_writer_that_starts_again_finds_chunks_on_its_disk() {
    let dir = tempfile::tempdir().unwrap();
    let config = WriterConfig {
        cache_dir: Some(dir.path().to_owned()),
        chunk_cache_bytes: 0,
        compact_tail_versions: 2,
        compact_keep_versions: 0,
        ..WriterConfig::default()
    };
    let (world, host) = World::with(config.clone()).await;
    for n in 0..4 {
        host.accept(Op::new(format!("o{n}")).put_bytes("k", vec![b'v'; 9 << 10])).await;
    }
    assert!(host.writer.compact(&name("h")).await.unwrap());
    let check = |id: &str| Op::new(id).if_present("k").add("n", 1).issued_from(4);
    host.accept(check("first")).await;
    assert!(matches!(
        headwater_writer::start(
            Arc::clone(&world.store),
            config.clone(),
            headwater_store::Entropy::from_seed(1),
            headwater_store::Clock::system(),
        ),
        Err(headwater_writer::StartError::Cache(_))
    ));
    host.writer.shutdown().await;
    // The thread that writes files is behind: the directory is free once it ends.
    drop(host);
    let again = loop {
        let host = world.try_host_with(config.clone());
        match host {
            Some(host) => break host,
            None => tokio::time::sleep(Duration::from_millis(10)).await,
        }
    };

    again.accept(check("second")).await;

    let readings = again.writer.disk_readings().unwrap();
    assert!(0 < readings.hits, "{readings:?}");
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
