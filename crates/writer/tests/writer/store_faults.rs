//! Stores that refuse, fall silent and come back; deadlines meanwhile.

use std::time::Duration;

use headwater_core::publish::{Answer, SubmitError};
use headwater_proto::reason;
use headwater_store::{Call, Fault, Gate, Rule};
use headwater_writer::WriterConfig;
use tokio::time::Instant;

use crate::fixture::{Op, World, accepted, failed, look, rpc, settle, staging, sums};

async fn rough_weather(faults: &[(Call, Fault)]) {
    let (world, host) = World::new().await;
    for (n, (call, fault)) in (3..).zip(faults) {
        host.faults.on_every(*call, n, fault.clone());
    }
    for n in 0..60 {
        let op = Op::new(format!("o{n}")).add("n", 1);
        let op = if n % 3 == 0 { op.large() } else { op };
        let op = if n % 4 == 0 { op.service_kept() } else { op };
        assert_eq!(sums(&host.accept(op).await), [n + 1]);
    }
    assert!(20 < host.faults.fired());
    assert_eq!(world.head().await.operation_count, 60);
    assert_eq!(look::number(&world.state().await, "n"), 60);
}

#[tokio::test(start_paused = true)]
async fn a_store_that_refuses_now_and_then_only_slows_operations_down() {
    rough_weather(&[
        (Call::ReplaceHead, Fault::Conflict),
        (Call::ReplaceHead, Fault::Throttled(Some(Duration::from_secs(1)))),
        (Call::ReplaceHead, Fault::Throttled(None)),
        (Call::Put, Fault::Conflict),
        (Call::Put, Fault::Throttled(Some(Duration::from_millis(100)))),
        (Call::ReadHead, Fault::Throttled(None)),
    ])
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_store_that_refuses_what_it_applied_applies_nothing_twice() {
    rough_weather(&[
        (Call::ReplaceHead, Fault::LoseReply),
        (Call::ReplaceHead, Fault::Repeat),
        (Call::Put, Fault::LoseReply),
        (Call::Put, Fault::Repeat),
        (Call::ReadHead, Fault::LoseReply),
        (Call::Get, Fault::LoseReply),
    ])
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_store_that_names_a_time_is_left_alone_for_it() {
    let (_world, host) = World::new().await;
    host.accept(Op::new("warm").add("n", 1)).await;
    let pause = Duration::from_secs(2);
    host.faults.on_next(Call::ReplaceHead, Fault::Throttled(Some(pause)));
    let began = Instant::now();

    host.accept(Op::new("slow").add("n", 1)).await;

    assert!(pause <= began.elapsed());
    assert!(began.elapsed() < 2 * pause);
}

fn impatient() -> WriterConfig {
    WriterConfig { operation_timeout_ms: 5_000, ..staging() }
}

#[tokio::test(start_paused = true)]
async fn an_unreachable_store_fails_operations_by_their_deadline_and_not_for_good() {
    let (world, host) = World::with(impatient()).await;
    host.accept(Op::new("warm").add("n", 1)).await;
    host.faults.set_outage(true);
    let began = Instant::now();

    // Its candidate cannot be uploaded: nothing was published.
    let staged = host.begin(Op::new("large").large());
    let error = failed(staged.await.unwrap());

    assert_eq!(error, SubmitError::StoreUnavailable);
    assert_eq!(began.elapsed().as_secs(), 5);
    host.faults.set_outage(false);
    assert_eq!(host.accept(Op::new("large").large()).await.accepted_at.get(), 2);
    assert_eq!(world.head().await.operation_count, 2);
}

#[tokio::test(start_paused = true)]
async fn an_unanswered_publication_is_in_doubt_by_the_deadline() {
    let (world, host) = World::with(impatient()).await;
    host.accept(Op::new("warm").add("n", 1)).await;
    host.faults.set_outage(true);
    let began = Instant::now();

    let status = host
        .submit_rpc(rpc::submit_request("h", "inline", vec![rpc::put("k", "v")]))
        .await
        .unwrap_err();

    assert_eq!(began.elapsed().as_secs(), 5);
    assert_eq!(rpc::reason(&status), reason::PUBLICATION_IN_DOUBT);
    assert_eq!(rpc::metadata(&status, reason::DETERMINACY), reason::MAYBE_APPLIED);
    // What came after it was part of no publication.
    let status = host
        .submit_rpc(rpc::submit_request("h", "later", vec![rpc::put("k", "w")]))
        .await
        .unwrap_err();
    assert_eq!(rpc::reason(&status), reason::STORE_UNAVAILABLE);
    assert_eq!(rpc::metadata(&status, reason::DETERMINACY), reason::NOT_APPLIED);

    host.faults.set_outage(false);
    host.submit_rpc(rpc::submit_request("h", "inline", vec![rpc::put("k", "v")])).await.unwrap();
    assert_eq!(world.head().await.operation_count, 2);
}

#[tokio::test(start_paused = true)]
async fn an_unreachable_store_fails_an_operation_on_a_history_that_is_not_open() {
    let (world, _) = World::new().await;
    let host = world.host_with(impatient());
    host.faults.set_outage(true);
    let began = Instant::now();

    let error = host.fail(Op::new("o").add("n", 1)).await;

    assert_eq!(error, SubmitError::StoreUnavailable);
    assert_eq!(began.elapsed().as_secs(), 5);
    host.faults.set_outage(false);
    host.accept(Op::new("o").add("n", 1)).await;
}

#[tokio::test(start_paused = true)]
async fn an_outage_shorter_than_the_deadline_is_not_noticed() {
    let (world, host) = World::new().await;
    host.accept(Op::new("warm").add("n", 1)).await;
    host.faults.set_outage(true);
    let calls: Vec<_> = (0..20).map(|n| host.begin(Op::new(format!("o{n}")).add("n", 1))).collect();
    tokio::time::sleep(Duration::from_secs(20)).await;
    host.faults.set_outage(false);

    for call in calls {
        accepted(call.await.unwrap());
    }
    assert_eq!(look::number(&world.state().await, "n"), 21);
    // It was not asked all the time: the pause grows to two seconds.
    assert!(host.faults.fired() < 60, "{}", host.faults.fired());
}

#[tokio::test(start_paused = true)]
async fn a_deadline_shorter_than_the_stores_answer_is_doubt_and_a_retry_finds_out() {
    let (world, host) = World::new().await;
    host.accept(Op::new("warm").add("n", 1)).await;
    host.faults.on_next(Call::ReplaceHead, Fault::Delay(Duration::from_secs(10)));
    let request = || {
        let add = headwater_proto::v1::Add { key: "n".into(), delta: 1 };
        let kind = Some(headwater_proto::v1::mutation::Kind::Add(add));
        rpc::submit_request("h", "slow", vec![headwater_proto::v1::Mutation { kind }])
    };
    let mut hasty = tonic::Request::new(request());
    hasty.set_timeout(Duration::from_secs(1));
    let began = Instant::now();

    let status = host.submit_rpc(hasty).await.unwrap_err();

    assert!(began.elapsed() < Duration::from_secs(1));
    assert_eq!(rpc::reason(&status), reason::PUBLICATION_IN_DOUBT);
    // The first is still on its way; the second shares its fate.
    let response = host.submit_rpc(request()).await.unwrap();
    let Some(headwater_proto::v1::submit_response::Outcome::Accepted(accepted)) = response.outcome
    else {
        panic!("{response:?}")
    };
    assert_eq!(accepted.state_version, 2);
    assert_eq!(world.head().await.operation_count, 2);
    assert!(!response.history_id.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_deadline_that_passes_in_the_queue_takes_the_operation_back() {
    let (world, host) = World::with(impatient()).await;
    host.accept(Op::new("warm").add("n", 1)).await;
    let gate = Gate::new();
    host.faults.on_next(Call::ReplaceHead, Fault::Hold(gate.clone()));
    let first = host.begin(Op::new("first").add("n", 1));
    gate.arrived(1).await;

    let error = host.fail(Op::new("queued").add("n", 10)).await;

    assert_eq!(error, SubmitError::Expired);
    gate.open();
    assert_eq!(failed(first.await.unwrap()), SubmitError::InDoubt);
    host.accept(Op::new("after").add("n", 1)).await;
    assert_eq!(look::number(&world.state().await, "n"), 3);
}

#[tokio::test(start_paused = true)]
async fn a_history_that_others_keep_winning_is_contended() {
    let (world, host) = World::with(impatient()).await;
    let other = world.host();
    host.accept(Op::new("warm").add("n", 1)).await;
    other.accept(Op::new("warm-too").add("n", 1)).await;
    // What it adds up to is another change after each loss, and is uploaded
    // again: the deadline comes in the middle of the second upload.
    host.faults.while_set(Call::Put, Fault::Delay(Duration::from_secs(3)));

    let call = host.begin(Op::new("o").add("n", 1).large());
    settle().await;
    other.accept(Op::new("wins").add("n", 1)).await;

    // The head was read after the loss, and it is another's.
    assert_eq!(failed(call.await.unwrap()), SubmitError::Contended);
    assert_eq!(world.head().await.operation_count, 3);
}

/// A mismatch with the head as it was is no loss to anybody: whoever says it
/// may have sent the request before.
#[tokio::test(start_paused = true)]
async fn a_mismatch_that_no_head_explains_is_in_doubt() {
    let (world, host) = World::with(impatient()).await;
    host.accept(Op::new("warm").add("n", 1)).await;
    host.faults.while_set(Call::ReplaceHead, Fault::Mismatch);

    assert_eq!(host.fail(Op::new("o").add("n", 1)).await, SubmitError::InDoubt);
    host.faults.clear();
    host.accept(Op::new("o").add("n", 1)).await;
    assert_eq!(world.head().await.operation_count, 2);
}

#[tokio::test(start_paused = true)]
async fn a_store_that_denies_access_is_named_at_once() {
    let (world, _) = World::new().await;
    let host = world.host();
    host.faults.while_set(Call::ReadHead, Fault::Denied);
    let began = Instant::now();

    let status =
        host.submit_rpc(rpc::submit_request("h", "o", vec![rpc::put("k", "v")])).await.unwrap_err();

    assert_eq!(rpc::reason(&status), reason::PERMISSION_DENIED);
    assert!(began.elapsed() < Duration::from_secs(1));
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_goes_away_leaves_its_operation_behind() {
    let (world, host) = World::new().await;
    host.accept(Op::new("warm").add("n", 1)).await;
    let gate = Gate::new();
    host.faults.on_next(Call::ReplaceHead, Fault::Hold(gate.clone()));
    let call = host.begin(Op::new("gone").add("n", 1));
    gate.arrived(1).await;
    call.abort();
    gate.open();
    settle().await;

    assert_eq!(look::number(&world.state().await, "n"), 2);
    let answer = host.submit(Op::new("gone").add("n", 1)).await;
    assert!(matches!(answer, Answer::Accepted { is_from_receipt: true, .. }));
}

#[tokio::test(start_paused = true)]
async fn a_store_that_never_answers_holds_nobody_past_the_deadline() {
    for call in [Call::ReadHead, Call::Put, Call::Get, Call::ReplaceHead] {
        let (world, host) = World::with(impatient()).await;
        host.accept(Op::new("warm").large()).await;
        drop(host);
        let host = world.host_with(impatient());
        host.faults.add(Rule::new(Fault::Hang).on(call));
        let began = Instant::now();

        let error = host.fail(Op::new("o").large()).await;

        assert_eq!(began.elapsed().as_secs(), 5, "{call:?}");
        let is_doubt = error == SubmitError::InDoubt;
        assert_eq!(is_doubt, call == Call::ReplaceHead, "{call:?}: {error}");
    }
}
