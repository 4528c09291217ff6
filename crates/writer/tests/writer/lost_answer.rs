//! The answer of the head replacement is lost (CASES self-conflict,
//! lost-reply-then-death, cleanup-in-doubt).

use headwater_core::publish::{Answer, SubmitError};
use headwater_core::version::StateVersion;
use headwater_store::{Call, Fault};
use headwater_writer::WriterConfig;

use crate::fixture::{Op, World, accepted, look, settle, sums};

/// A window of one version: the receipt of an operation is gone with the next.
fn narrow() -> WriterConfig {
    WriterConfig { receipt_versions_max: 1, ..WriterConfig::default() }
}

#[tokio::test(start_paused = true)]
async fn a_lost_answer_gives_the_original_result_and_one_application() {
    let (world, host) = World::new().await;
    host.accept(Op::new("first").add("n", 5)).await;
    host.faults.on_next(Call::ReplaceHead, Fault::LoseReply);

    let receipt = host.accept(Op::new("lost").add("n", 2)).await;

    assert_eq!((receipt.accepted_at.get(), sums(&receipt)), (2, vec![7]));
    assert_eq!(look::number(&world.state().await, "n"), 7);
    assert_eq!(world.head().await.operation_count, 2);
    // Sent once: the head that was found told that it was there.
    assert_eq!(host.faults.calls(Call::ReplaceHead), 2);
}

#[tokio::test(start_paused = true)]
async fn self_conflict_is_not_a_loss() {
    let (world, host) = World::new().await;
    // A client in the middle repeats the replacement; the second one gets 412.
    host.faults.on_next(Call::ReplaceHead, Fault::Repeat);

    let receipt = host.accept(Op::new("echoed").add("n", 2)).await;

    assert_eq!(sums(&receipt), [2]);
    assert_eq!(world.head().await.operation_count, 1);
}

#[tokio::test(start_paused = true)]
async fn self_conflict_is_in_doubt_where_the_head_cannot_be_read() {
    let config = WriterConfig { operation_timeout_ms: 3_000, ..WriterConfig::default() };
    for fault in [Fault::LoseCall, Fault::Denied] {
        let (world, host) = World::with(config.clone()).await;
        host.accept(Op::new("warm").add("n", 1)).await;
        host.faults.on_next(Call::ReplaceHead, Fault::Repeat);
        host.faults.while_set(Call::ReadHead, fault.clone());

        // It is in the history, and nobody could tell.
        assert_eq!(host.fail(Op::new("echoed").add("n", 2)).await, SubmitError::InDoubt);
        host.faults.clear();
        let receipt = host.accept(Op::new("echoed").add("n", 2)).await;

        assert_eq!((receipt.accepted_at.get(), sums(&receipt)), (2, vec![3]), "{fault:?}");
        assert_eq!(world.head().await.operation_count, 2);
    }
}

#[tokio::test(start_paused = true)]
async fn self_conflict_with_another_writers_commit_gives_the_original_result() {
    let (world, host) = World::new().await;
    let other = world.host();
    host.accept(Op::new("warm").add("n", 1)).await;
    host.faults.on_next(Call::ReplaceHead, Fault::Repeat);
    let gate = headwater_store::Gate::new();
    host.faults.on_next(Call::ReadHead, Fault::Hold(gate.clone()));

    let call = host.begin(Op::new("echoed").add("n", 10));
    gate.arrived(1).await;
    other.accept(Op::new("between").add("n", 100)).await;
    gate.open();

    assert_eq!(sums(&accepted(call.await.unwrap())), [11]);
    assert_eq!(look::number(&world.state().await, "n"), 111);
    assert_eq!(world.head().await.operation_count, 3);
}

/// The head of a new history is created, the network repeats the request, and
/// then nothing can be read.
#[tokio::test(start_paused = true)]
async fn self_conflict_of_a_creation_is_in_doubt_where_the_head_cannot_be_read() {
    use headwater_writer::LifecycleError;

    let world = World::empty();
    let host = world.host();
    let id = headwater_core::id::HistoryId::from_bytes([7; 16]);
    host.faults.on_next(Call::CreateHead, Fault::Repeat);
    let rule = headwater_store::Rule::new(Fault::LoseCall).on(Call::ReadHead).skip(1);
    host.faults.add(rule);

    let created = host.writer.create(&crate::fixture::name("h"), id, false).await;

    let is_doubt = matches!(created, Err(LifecycleError::Submit(SubmitError::InDoubt)));
    assert!(is_doubt, "{created:?}");
    host.faults.clear();
    host.writer.create(&crate::fixture::name("h"), id, false).await.unwrap();
    assert_eq!(world.head().await.history_id, id);
}

#[tokio::test(start_paused = true)]
async fn a_lost_answer_and_another_writers_commit_give_the_original_result() {
    let (world, host) = World::new().await;
    let other = world.host();
    other.accept(Op::new("before").add("n", 1)).await;
    host.accept(Op::new("warm").add("n", 1)).await;
    host.faults.on_next(Call::ReplaceHead, Fault::LoseReply);
    let gate = headwater_store::Gate::new();
    host.faults.on_next(Call::ReadHead, Fault::Hold(gate.clone()));

    let call = host.begin(Op::new("lost").add("n", 10));
    gate.arrived(1).await;
    // Between the loss and the read that is to find out.
    other.accept(Op::new("between").add("n", 100)).await;
    gate.open();
    let receipt = accepted(call.await.unwrap());

    assert_eq!((receipt.accepted_at.get(), sums(&receipt)), (3, vec![12]));
    let applied = look::applied(&look::tail(&world.store, &crate::fixture::name("h")).await);
    assert_eq!(applied["lost"], 1);
    assert_eq!(look::number(&world.state().await, "n"), 112);
}

#[tokio::test(start_paused = true)]
async fn a_lost_answer_behind_the_window_is_unknown_and_not_applied_again() {
    let world = World::empty();
    let host = world.host_with(narrow());
    host.create("h").await;
    let other = world.host_with(narrow());
    host.accept(Op::new("warm").add("n", 1)).await;
    host.faults.on_next(Call::ReplaceHead, Fault::LoseReply);
    let gate = headwater_store::Gate::new();
    host.faults.on_next(Call::ReadHead, Fault::Hold(gate.clone()));

    let call = host.begin(Op::new("lost").add("n", 10).issued_from(1));
    gate.arrived(1).await;
    for n in 0..3 {
        other.accept(Op::new(format!("past-{n}")).add("n", 100).issued_from(2 + n)).await;
    }
    gate.open();

    let coverage_from = StateVersion::new(5);
    let unknown = Answer::Unknown { earliest: StateVersion::new(2), coverage_from };
    assert_eq!(call.await.unwrap(), unknown);
    // Asking again does not make it known, nor apply it.
    assert_eq!(host.submit(Op::new("lost").add("n", 10).issued_from(1)).await, unknown);
    assert_eq!(look::number(&world.state().await, "n"), 311);
    assert_eq!(world.head().await.operation_count, 5);
}

#[tokio::test(start_paused = true)]
async fn a_lost_call_is_made_again() {
    let (world, host) = World::new().await;
    host.accept(Op::new("warm").add("n", 1)).await;
    host.faults.on_next(Call::ReplaceHead, Fault::LoseCall);

    let receipt = host.accept(Op::new("lost").add("n", 2)).await;

    assert_eq!((receipt.accepted_at.get(), sums(&receipt)), (2, vec![3]));
    assert_eq!(world.head().await.operation_count, 2);
}

#[tokio::test(start_paused = true)]
async fn a_replacement_that_is_applied_late_counts_once() {
    let (world, host) = World::new().await;
    host.accept(Op::new("warm").add("n", 1)).await;
    host.faults.on_next(Call::ReplaceHead, Fault::ApplyLate);
    let gate = headwater_store::Gate::new();
    host.faults.add(
        headwater_store::Rule::new(Fault::Hold(gate.clone()))
            .on(Call::ReplaceHead)
            .skip(1)
            .times(1),
    );

    let call = host.begin(Op::new("late").add("n", 2));
    // The head was unchanged, so the same goes out again; the first overtakes.
    gate.arrived(1).await;
    host.faults.apply_late().await;
    gate.open();

    assert_eq!(sums(&accepted(call.await.unwrap())), [3]);
    assert_eq!(world.head().await.operation_count, 2);
}

#[tokio::test(start_paused = true)]
async fn a_writer_that_dies_after_a_lost_answer_leaves_the_result_to_the_next() {
    for is_service_kept in [false, true] {
        let (world, host) = World::new().await;
        host.accept(Op::new("first").add("n", 5)).await;
        host.faults.on_next(Call::ReplaceHead, Fault::LoseReply);
        host.faults.while_set(Call::ReadHead, Fault::Hang);
        let op = Op::new("lost").add("n", 2).large();
        let op = if is_service_kept { op.service_kept() } else { op };
        let call = host.begin(op.clone());
        while world.head().await.state_version.get() < 2 {
            settle().await;
        }
        call.abort();
        drop(host);

        let next = world.host();
        let answer = next.submit(op).await;

        let Answer::Accepted { receipt, is_from_receipt } = answer else { panic!("{answer:?}") };
        assert!(is_from_receipt);
        assert_eq!((receipt.accepted_at.get(), sums(&receipt)), (2, vec![7]));
        assert_eq!(world.head().await.operation_count, 2);
    }
}

#[tokio::test(start_paused = true)]
async fn a_service_kept_operation_finds_out_although_the_window_passed_and_is_not_applied_again() {
    let world = World::empty();
    let host = world.host_with(narrow());
    host.create("h").await;
    let op = Op::new("kept").add("n", 1).service_kept();
    let receipt = host.accept(op.clone()).await;
    for n in 0..3 {
        host.accept(Op::new(format!("past-{n}")).add("m", 1).issued_from(1 + n)).await;
    }
    drop(host);

    // Nothing but the record says that it is an old one.
    let answer = world.host_with(narrow()).submit(op).await;

    assert_eq!(receipt.accepted_at.get(), 1);
    let coverage_from = StateVersion::new(4);
    assert_eq!(answer, Answer::Unknown { earliest: StateVersion::new(1), coverage_from });
    assert_eq!(look::number(&world.state().await, "n"), 1);
}

#[tokio::test(start_paused = true)]
async fn nothing_is_deleted_while_an_outcome_is_in_doubt() {
    let (world, host) = World::new().await;
    host.accept(Op::new("warm").add("n", 1)).await;
    host.faults.on_next(Call::ReplaceHead, Fault::LoseReply);
    host.faults.while_set(Call::ReadHead, Fault::LoseCall);

    let error = host.fail(Op::new("lost").large()).await;

    assert_eq!(error, SubmitError::InDoubt);
    assert_eq!(host.faults.calls(Call::Delete), 0);
    // Whoever reads the head finds everything that it names.
    assert!(world.state().await.contains_key("large"));
    host.faults.clear();
    assert_eq!(host.accept(Op::new("lost").large()).await.accepted_at.get(), 2);
}
