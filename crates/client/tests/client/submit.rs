//! Submissions: retries, fail-over, deadlines, doubt.
use std::sync::Arc;
use std::time::Duration;

use crate::fake::{Deployment, HISTORY, HISTORY_ID, Model, Step, address, in_doubt, refusal};
use headwater_client::{
    Accepted, Determinacy, HistoryError, IssueVersion, Lookup, Operation, Outcome, Reason,
    SubmitError,
};
use headwater_proto::v1::get_operation_request::Issue as Issued;
use headwater_proto::v1::submit_response::Outcome as WireOutcome;
use headwater_proto::{reason, v1};
use tokio::time::Instant;
use tonic::{Code, Status};

fn accepted(outcome: Outcome) -> Accepted {
    match outcome {
        Outcome::Accepted(accepted) => accepted,
        Outcome::Rejected(it) => panic!("rejected: {it:?}"),
        Outcome::Unknown(it) => panic!("unknown: {it:?}"),
    }
}

fn passing() -> Status {
    let retry_after = Some(Duration::from_millis(10));
    refusal(reason::HEAD_CONTENDED, Code::Aborted, retry_after)
}

fn fenced() -> Status {
    refusal(reason::FENCED, Code::FailedPrecondition, None)
}

#[tokio::test(start_paused = true)]
async fn a_retry_keeps_operation_id_and_issue_version() {
    let deployment = Deployment::of(1);
    let session = deployment.client().session(HISTORY);
    // The head moves between the attempts, and the issue version must not.
    let advance = |model: &mut Model| model.put("other", "x");
    deployment.shared().model.put("other", "x");
    deployment.script([Step::Refuse(passing()), Step::Lose, Step::After(Box::new(advance))]);

    let outcome = session.submit(session.client().operation().put("k", "v")).await.unwrap();

    assert_eq!(accepted(outcome).state_version, 3);
    let sent = deployment.submissions();
    assert_eq!(sent.len(), 3);
    assert!(sent.iter().all(|it| it.operation_id == sent[0].operation_id));
    assert!(sent.iter().all(|it| it.issued_from_version == Some(1)));
    assert!(sent.iter().all(|it| it.history_id == HISTORY_ID));
}

#[tokio::test(start_paused = true)]
async fn a_lost_answer_is_found_by_the_same_id() {
    let deployment = Deployment::of(1);
    let session = deployment.client().session(HISTORY);
    deployment.script([Step::ServeAndLose]);

    let outcome = session.submit(session.client().operation().put("k", "v")).await.unwrap();

    let accepted = accepted(outcome);
    assert!(accepted.from_receipt);
    assert_eq!(accepted.state_version, 1);
    assert_eq!(deployment.shared().model.version(), 1);
}

#[tokio::test(start_paused = true)]
async fn doubt_outlives_a_refusal_that_says_not_applied() {
    for first in [Step::ServeAndLose, Step::Refuse(in_doubt())] {
        let deployment = Deployment::of(1);
        let session = deployment.client().session(HISTORY);
        deployment.script([first, Step::Refuse(fenced())]);

        let error = session.submit(session.client().operation().put("k", "v")).await.unwrap_err();

        assert_eq!(error.determinacy(), Determinacy::MaybeApplied);
        let SubmitError::InDoubt(in_doubt) = error else { panic!("{error:?}") };
        assert_eq!(in_doubt.last.reason, Reason::Fenced);
        // What the last attempt says of itself is not true of the call.
        let message = in_doubt.to_string();
        assert!(message.contains("an attempt got no answer"), "{message}");
        assert!(message.ends_with("failed with FENCED"), "{message}");
        // What is given back is the operation as it was sent.
        assert_eq!(in_doubt.operation.issue_version(), IssueVersion::At(0));
        assert_eq!(in_doubt.operation.id().as_str(), deployment.submissions()[0].operation_id);
    }
}

#[tokio::test(start_paused = true)]
async fn a_refusal_without_doubt_is_not_applied() {
    let deployment = Deployment::of(1);
    let session = deployment.client().session(HISTORY);
    deployment.script([Step::Refuse(passing()), Step::Refuse(fenced())]);

    let error = session.submit(session.client().operation().put("k", "v")).await.unwrap_err();

    assert!(matches!(error, SubmitError::Fenced(_)), "{error:?}");
    assert_eq!(error.determinacy(), Determinacy::NotApplied);
}

#[tokio::test(start_paused = true)]
async fn doubt_that_a_later_attempt_settles_is_over() {
    let deployment = Deployment::of(1);
    let session = deployment.client().session(HISTORY);
    deployment.script([Step::Refuse(in_doubt()), Step::Lose]);

    let outcome = session.submit(session.client().operation().put("k", "v")).await.unwrap();

    assert!(!accepted(outcome).from_receipt);
}

#[tokio::test(start_paused = true)]
async fn a_rejection_after_a_lost_attempt_says_that_it_may_yet_apply() {
    let deployment = Deployment::of(1);
    let session = deployment.client().session(HISTORY);
    let operation = || session.client().operation().require_exists("k").put("k", "v");
    deployment.script([Step::Serve, Step::Lose]);

    let Outcome::Rejected(first) = session.submit(operation()).await.unwrap() else { panic!() };
    let Outcome::Rejected(second) = session.submit(operation()).await.unwrap() else { panic!() };

    assert!(!first.may_yet_apply);
    assert!(second.may_yet_apply);
}

#[tokio::test(start_paused = true)]
async fn unknown_is_told_and_not_repeated() {
    let deployment = Deployment::of(1);
    let session = deployment.client().session(HISTORY);
    let unknown = v1::Unknown { earliest_version: 1, receipt_coverage_from: 9 };
    let outcome = Some(WireOutcome::Unknown(unknown));
    let history_id = HISTORY_ID.to_owned();
    deployment.script([Step::Say(v1::SubmitResponse { history_id, outcome })]);

    let outcome = session.submit(session.client().operation().put("k", "v")).await.unwrap();

    assert!(matches!(outcome, Outcome::Unknown(it) if it.receipt_coverage_from == 9));
    assert_eq!(deployment.submissions().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn another_writer_takes_over_from_one_that_is_gone() {
    let deployment = Deployment::of(3);
    let session = deployment.client().session(HISTORY);
    let submit = || session.submit(session.client().operation().put("k", "v"));
    accepted(submit().await.unwrap());
    let first = deployment.submission_servers()[0];

    deployment.network.take_down(first);
    accepted(submit().await.unwrap());
    accepted(submit().await.unwrap());

    let servers = deployment.submission_servers();
    assert_eq!(servers.len(), 3);
    assert_ne!(servers[1], first);
    // One writer a history, as long as it is there.
    assert_eq!(servers[1], servers[2]);
}

#[tokio::test(start_paused = true)]
async fn a_connection_cut_under_a_call_leaves_doubt_until_it_is_settled() {
    let deployment = Deployment::of(1);
    let session = deployment.client().session(HISTORY);
    deployment.script([Step::Hang]);
    let operation = session.client().operation().put("k", "v");

    let network = deployment.network.clone();
    let shared = Arc::clone(&deployment.shared);
    let cutting = async move {
        while shared.lock().unwrap().submissions.is_empty() {
            tokio::task::yield_now().await;
        }
        network.take_down(address(1));
    };
    let (outcome, ()) = tokio::join!(session.submit(operation), cutting);

    assert_eq!(outcome.unwrap_err().determinacy(), Determinacy::MaybeApplied);
}

#[tokio::test(start_paused = true)]
async fn what_never_left_is_not_applied() {
    let deployment = Deployment::default();
    deployment.network.name("servers", [address(1)]);
    let session = deployment.client().session(HISTORY);
    let operation = session.client().operation().issued(IssueVersion::ServiceKept).put("k", "v");

    let error = session.submit(operation).await.unwrap_err();

    assert!(matches!(error, SubmitError::Expired(_)), "{error:?}");
    assert_eq!(error.determinacy(), Determinacy::NotApplied);
}

#[tokio::test(start_paused = true)]
async fn the_deadline_bounds_all_attempts_and_is_sent() {
    let deployment = Deployment::of(1);
    let client = deployment.client().with_deadline(Duration::from_secs(2));
    let session = client.session(HISTORY);
    deployment.script((0..100).map(|_| Step::Refuse(passing())));
    let begun = Instant::now();

    let error = session.submit(client.operation().put("k", "v")).await.unwrap_err();

    assert!(begun.elapsed() <= Duration::from_secs(2));
    assert!(matches!(error, SubmitError::Expired(_)), "{error:?}");
    assert!(deployment.submissions().len() > 1);
    let timeouts = deployment.shared().timeouts.clone();
    assert!(timeouts.iter().all(Option::is_some), "{timeouts:?}");
}

#[tokio::test(start_paused = true)]
async fn silence_until_the_deadline_is_doubt() {
    let deployment = Deployment::of(1);
    let client = deployment.client().with_deadline(Duration::from_secs(2));
    deployment.script([Step::Hang]);
    let begun = Instant::now();

    let error = client.session(HISTORY).submit(client.operation().put("k", "v")).await.unwrap_err();

    assert_eq!(begun.elapsed().as_secs(), 2);
    assert_eq!(error.determinacy(), Determinacy::MaybeApplied);
}

#[tokio::test(start_paused = true)]
async fn a_silent_writer_costs_one_attempt_and_not_the_call() {
    let deployment = Deployment::of(2);
    let session = deployment.client().session(HISTORY);
    deployment.script([Step::Hang]);

    let outcome = session.submit(session.client().operation().put("k", "v")).await.unwrap();

    assert_eq!(accepted(outcome).state_version, 1);
    let servers = deployment.submission_servers();
    assert_ne!(servers[0], servers[1]);
}

#[tokio::test(start_paused = true)]
async fn a_writer_cut_off_from_the_store_is_left_and_a_contended_one_is_not() {
    let retry_after = Some(Duration::from_millis(1));
    let cut_off = refusal(reason::STORE_UNAVAILABLE, Code::Unavailable, retry_after);
    for (status, moves) in [(cut_off, true), (passing(), false), (in_doubt(), false)] {
        let deployment = Deployment::of(3);
        let session = deployment.client().session(HISTORY);
        deployment.script([Step::Refuse(status)]);

        accepted(session.submit(session.client().operation().put("k", "v")).await.unwrap());

        let servers = deployment.submission_servers();
        assert_eq!(servers[0] != servers[1], moves);
    }
}

#[tokio::test(start_paused = true)]
async fn what_the_server_asks_for_is_waited_out() {
    let deployment = Deployment::of(1);
    let session = deployment.client().session(HISTORY);
    let asked = Some(Duration::from_secs(7));
    let full = refusal(reason::QUEUE_FULL, Code::ResourceExhausted, asked);
    deployment.script([Step::Refuse(full)]);
    let begun = Instant::now();

    accepted(session.submit(session.client().operation().put("k", "v")).await.unwrap());

    assert!(begun.elapsed() >= Duration::from_secs(7));
}

#[tokio::test(start_paused = true)]
async fn the_head_is_asked_for_a_version_once() {
    let deployment = Deployment::of(1);
    let session = deployment.client().session(HISTORY);

    for _ in 0..3 {
        let operation = session.client().operation().put("k", "v");
        accepted(session.submit(operation).await.unwrap());
    }

    assert_eq!(deployment.shared().heads_read, 1);
    let issued: Vec<_> = deployment.submissions().iter().map(|it| it.issued_from_version).collect();
    assert_eq!(issued, [Some(0), Some(1), Some(2)]);
}

#[tokio::test(start_paused = true)]
async fn service_kept_sends_no_version_and_asks_nothing() {
    let deployment = Deployment::of(1);
    let session = deployment.client().session(HISTORY);
    let operation = session.client().operation().issued(IssueVersion::ServiceKept).put("k", "v");

    accepted(session.submit(operation).await.unwrap());

    assert_eq!(deployment.submissions()[0].issued_from_version, None);
    assert_eq!(deployment.shared().heads_read, 0);
}

#[tokio::test(start_paused = true)]
async fn another_history_of_the_same_name_is_not_written_to() {
    let deployment = Deployment::of(1);
    let session = deployment.client().session(HISTORY);
    let submit = || session.submit(session.client().operation().put("k", "v"));
    accepted(submit().await.unwrap());

    deployment.shared().model.history_id = "f".repeat(32);
    let error = submit().await.unwrap_err();

    assert!(matches!(error, SubmitError::HistoryMissing(_)), "{error:?}");
}

#[tokio::test(start_paused = true)]
async fn an_operation_too_large_to_send_is_refused_here() {
    let deployment = Deployment::of(1);
    let session = deployment.client().session(HISTORY);
    let operation = || session.client().operation();
    let mebibyte = || vec![0; 1 << 20];
    let fits = |operation: Operation| (0..3).fold(operation, |it, _| it.put("k", mebibyte()));
    for (operation, message) in [
        (
            operation().delete("k").put("k", vec![0; (1 << 20) + 1]),
            "mutations[1].put.value: a value is 1048577 bytes, the limit is 1048576",
        ),
        (
            operation().require_value("k", vec![0; 9 << 20]).delete("k"),
            "preconditions[0].value_equals.value: a value is 9437184 bytes, the limit is 1048576",
        ),
        (
            fits(operation()).put("k", mebibyte()),
            "mutations: an operation is 4194308 bytes, the limit is 4194304",
        ),
        (
            (0..1_025).fold(operation(), |it, _| it.delete("k")),
            "mutations: 1025 are given, the limit is 1024",
        ),
    ] {
        let error = session.submit(operation).await.unwrap_err();

        assert!(matches!(error, SubmitError::Invalid(_)), "{error:?}");
        assert_eq!(error.to_string(), format!("operation is invalid: {message}"));
    }
    assert!(deployment.submissions().is_empty());
    accepted(session.submit(fits(operation())).await.unwrap());
    assert_eq!(deployment.submissions().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn creating_again_after_a_lost_answer_finds_the_same_history() {
    let deployment = Deployment::of(1);
    deployment.script([Step::ServeAndLose]);

    let history = deployment.client().create_history("a/b", false).await.unwrap();

    assert_eq!(history.history_id.as_str(), deployment.shared().model.history_id);
}

#[tokio::test(start_paused = true)]
async fn deleting_again_after_a_lost_answer_is_done() {
    let deployment = Deployment::of(1);
    let client = deployment.client();
    let id = HISTORY_ID.parse().unwrap();
    deployment.script([Step::ServeAndLose]);

    assert_eq!(client.delete_history(HISTORY, &id).await.unwrap(), 0);
    let error = client.delete_history(HISTORY, &id).await.unwrap_err();
    assert!(matches!(error, HistoryError::Missing(_)), "{error:?}");
}

#[tokio::test(start_paused = true)]
async fn a_lookup_says_what_became_of_an_operation() {
    let deployment = Deployment::of(1);
    let session = deployment.client().session(HISTORY);
    let operation = session.client().operation().put("k", "v");
    let id = operation.id().clone();
    let at = IssueVersion::At(0);

    let before = session.lookup(&id, at).await.unwrap();
    accepted(session.submit(operation).await.unwrap());
    let after = session.lookup(&id, IssueVersion::ServiceKept).await.unwrap();

    assert_eq!(before, Lookup::NotAccepted { through_version: 0 });
    assert!(matches!(after, Lookup::Accepted(it) if it.state_version == 1));
    let shared = deployment.shared();
    let asked: Vec<_> = shared.lookups.iter().map(|it| it.issue).collect();
    assert_eq!(asked, [Some(Issued::IssuedFromVersion(0)), Some(Issued::ServiceKept(true))]);
}
