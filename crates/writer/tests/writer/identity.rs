//! One id, two requests; and questions about an id.

use headwater_core::publish::{Answer, SubmitError};
use headwater_core::version::StateVersion;
use headwater_proto::v1::get_operation_request::Issue as Issued;
use headwater_proto::v1::{self, get_operation_response::Outcome};
use headwater_store::{Call, Fault, Gate, Rule};
use headwater_writer::WriterConfig;

use crate::fixture::{Op, World, accepted, failed, look, rpc, settle, sums};

#[tokio::test(start_paused = true)]
async fn an_id_that_was_used_for_another_request_is_refused() {
    let (world, host) = World::new().await;
    host.accept(Op::new("id").add("n", 1)).await;

    assert_eq!(host.fail(Op::new("id").add("n", 2)).await, SubmitError::IdReused);
    // A precondition is part of the request.
    let op = Op::new("id").if_present("n").add("n", 1);
    assert_eq!(host.fail(op).await, SubmitError::IdReused);
    // Restarted, and by another writer, it is the same.
    assert_eq!(world.host().fail(Op::new("id").add("n", 2)).await, SubmitError::IdReused);
    assert_eq!(look::number(&world.state().await, "n"), 1);
}

#[tokio::test(start_paused = true)]
async fn the_same_request_again_gets_the_same_answer() {
    let (world, host) = World::new().await;
    let first = host.accept(Op::new("id").add("n", 1)).await;
    host.accept(Op::new("other").add("n", 1)).await;

    for host in [&host, &world.host()] {
        let answer = host.submit(Op::new("id").add("n", 1)).await;
        assert_eq!(answer, Answer::Accepted { receipt: first.clone(), is_from_receipt: true });
    }
    assert_eq!(look::number(&world.state().await, "n"), 2);
}

#[tokio::test(start_paused = true)]
async fn an_id_reused_in_one_batch_is_refused_and_a_repetition_shares_the_result() {
    let (world, host) = World::new().await;
    host.accept(Op::new("warm").add("n", 1)).await;
    let gate = Gate::new();
    host.faults.on_next(Call::ReplaceHead, Fault::Hold(gate.clone()));
    let first = host.begin(Op::new("first").add("n", 1));
    gate.arrived(1).await;

    let one = host.begin(Op::new("id").add("n", 1));
    let two = host.begin(Op::new("id").add("n", 2));
    let again = host.begin(Op::new("id").add("n", 1));
    gate.open();

    accepted(first.await.unwrap());
    let (one, again) = (accepted(one.await.unwrap()), accepted(again.await.unwrap()));
    assert_eq!(one, again);
    assert_eq!(sums(&one), [3]);
    assert_eq!(failed(two.await.unwrap()), SubmitError::IdReused);
    assert_eq!(look::number(&world.state().await, "n"), 3);
}

#[tokio::test(start_paused = true)]
async fn a_record_refuses_another_request_even_when_its_receipt_is_gone() {
    let config = WriterConfig { receipt_versions_max: 1, ..WriterConfig::default() };
    let (world, host) = World::with(config.clone()).await;
    host.accept(Op::new("kept").add("n", 1).service_kept()).await;
    for n in 0..3 {
        host.accept(Op::new(format!("past-{n}")).add("m", 1).issued_from(1 + n)).await;
    }

    for host in [&host, &world.host_with(config)] {
        let error = host.fail(Op::new("kept").add("n", 2).service_kept()).await;
        assert_eq!(error, SubmitError::IdReused);
    }
    assert_eq!(look::number(&world.state().await, "n"), 1);
}

#[tokio::test(start_paused = true)]
async fn a_record_that_was_written_and_never_published_is_used_by_the_retry() {
    let (world, host) = World::new().await;
    host.accept(Op::new("warm").add("m", 1)).await;
    host.faults.while_set(Call::ReplaceHead, Fault::Hang);
    let call = host.begin(Op::new("kept").add("n", 1).service_kept());
    while look::keys(&*world.store, "h/requests/").await.is_empty() {
        settle().await;
    }
    call.abort();
    drop(host);

    let next = world.host();
    let refused = next.submit(Op::new("kept").add("n", 2).service_kept()).await;
    let receipt = next.accept(Op::new("kept").add("n", 1).service_kept()).await;

    assert_eq!(failed(refused), SubmitError::IdReused);
    assert_eq!(sums(&receipt), [1]);
    assert_eq!(look::keys(&*world.store, "h/requests/").await.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_version_that_the_history_has_not_reached_is_refused() {
    let (_world, host) = World::new().await;
    host.accept(Op::new("warm").add("n", 1)).await;

    let error = host.fail(Op::new("ahead").add("n", 1).issued_from(2)).await;

    assert_eq!(error, SubmitError::IssuedAhead { state_version: StateVersion::new(1) });
}

fn question(id: &str) -> v1::GetOperationRequest {
    v1::GetOperationRequest {
        history: "h".into(),
        operation_id: id.into(),
        ..v1::GetOperationRequest::default()
    }
}

#[tokio::test(start_paused = true)]
async fn a_question_about_an_operation_tells_what_became_of_it() {
    let (_world, host) = World::new().await;
    host.accept(Op::new("warm").add("n", 1)).await;
    host.accept(Op::new("there").add("n", 4)).await;

    let there = host.look_up(question("there")).await.unwrap();
    let missing = host.look_up(question("missing")).await.unwrap();

    let Some(Outcome::Accepted(accepted)) = there.outcome else { panic!("{there:?}") };
    assert_eq!(accepted.state_version, 2);
    assert_eq!(accepted.results[0].value, Some(v1::mutation_result::Value::Sum(5)));
    assert!(accepted.from_receipt);
    assert_eq!(missing.outcome, Some(Outcome::NotAcceptedThroughVersion(2)));
}

#[tokio::test(start_paused = true)]
async fn a_question_behind_the_window_is_unknown_unless_it_cannot_have_been_published() {
    let config = WriterConfig { receipt_versions_max: 2, ..WriterConfig::default() };
    let (world, host) = World::with(config.clone()).await;
    for n in 0..5 {
        host.accept(Op::new(format!("o{n}")).add("n", 1).issued_from(n)).await;
    }
    let unknown = |earliest_version| {
        Some(Outcome::Unknown(v1::Unknown { earliest_version, receipt_coverage_from: 4 }))
    };
    let host = world.host_with(config);

    // Nothing is known of when it was issued.
    assert_eq!(host.look_up(question("o0")).await.unwrap().outcome, unknown(1));
    let told = async |issue| {
        let request = v1::GetOperationRequest { issue: Some(issue), ..question("x") };
        host.look_up(request).await.unwrap().outcome
    };
    assert_eq!(told(Issued::ServiceKept(false)).await, unknown(1));
    assert_eq!(told(Issued::IssuedFromVersion(2)).await, unknown(3));
    let not_accepted = Some(Outcome::NotAcceptedThroughVersion(5));
    assert_eq!(told(Issued::IssuedFromVersion(3)).await, not_accepted);
    // Service-kept and without a record: never published.
    assert_eq!(told(Issued::ServiceKept(true)).await, not_accepted);
}

#[tokio::test(start_paused = true)]
async fn a_question_takes_the_issue_version_from_the_record() {
    let config = WriterConfig { receipt_versions_max: 2, ..WriterConfig::default() };
    let (world, host) = World::with(config.clone()).await;
    for n in 0..5 {
        host.accept(Op::new(format!("o{n}")).add("n", 1).service_kept()).await;
    }
    // A record of one that was rejected.
    host.submit(Op::new("rejected").if_absent("n").add("n", 1).service_kept()).await;
    let host = world.host_with(config);
    let kept = |id: &str| v1::GetOperationRequest {
        issue: Some(v1::get_operation_request::Issue::ServiceKept(true)),
        ..question(id)
    };

    let unknown = v1::Unknown { earliest_version: 1, receipt_coverage_from: 4 };
    let old = host.look_up(kept("o0")).await.unwrap();
    assert_eq!(old.outcome, Some(Outcome::Unknown(unknown)));
    let recent = host.look_up(kept("o4")).await.unwrap();
    assert!(matches!(recent.outcome, Some(Outcome::Accepted(_))), "{recent:?}");
    // The record says from when; the caller need not.
    let rejected = host.look_up(question("rejected")).await.unwrap();
    assert_eq!(rejected.outcome, Some(Outcome::NotAcceptedThroughVersion(5)));
}

#[tokio::test(start_paused = true)]
async fn a_question_sees_what_another_writer_accepted_a_moment_ago() {
    let (world, host) = World::new().await;
    assert!(host.look_up(question("x")).await.is_ok());
    world.host().accept(Op::new("x").add("n", 1)).await;

    let found = host.look_up(question("x")).await.unwrap();

    assert!(matches!(found.outcome, Some(Outcome::Accepted(_))), "{found:?}");
}

#[tokio::test(start_paused = true)]
async fn a_question_about_another_history_of_the_name_is_refused() {
    let (_world, host) = World::new().await;
    let request = v1::GetOperationRequest { history_id: "ab".repeat(16), ..question("x") };

    let status = host.look_up(request).await.unwrap_err();

    assert_eq!(rpc::reason(&status), headwater_proto::reason::HISTORY_MISSING);
}

#[tokio::test(start_paused = true)]
async fn a_question_never_denies_what_was_accepted_while_it_was_asked() {
    let narrow = WriterConfig { receipt_versions_max: 1, ..WriterConfig::default() };
    let (world, host) = World::with(narrow.clone()).await;
    host.accept(Op::new("warm").add("n", 1)).await;
    let asked = world.host_with(narrow);

    // The record is looked for and is not there. Before the answer it is made,
    // the operation is accepted, and the window passes it.
    let gate = Gate::new();
    let held =
        Rule::new(Fault::HoldReply(gate.clone())).on(Call::Get).key_has("requests/").times(1);
    asked.faults.add(held);
    let request = v1::GetOperationRequest {
        issue: Some(v1::get_operation_request::Issue::ServiceKept(true)),
        ..question("late")
    };
    let look_up = asked.look_up(request);
    let meanwhile = async {
        gate.arrived(1).await;
        host.accept(Op::new("late").add("n", 10).service_kept()).await;
        for n in 0..3 {
            let version = world.head().await.state_version.get();
            host.accept(Op::new(format!("after{n}")).add("n", 1).issued_from(version)).await;
        }
        gate.open();
    };
    let (told, ()) = tokio::join!(look_up, meanwhile);

    let outcome = told.unwrap().outcome;
    assert!(matches!(outcome, Some(Outcome::Unknown(_))), "{outcome:?}");
}
