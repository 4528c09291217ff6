//! Streams of operations: order, windows, lost connections.

use std::sync::Arc;
use std::time::Duration;

use futures::{Stream, StreamExt};
use headwater_client::{
    Client, Determinacy, IssueVersion, OnRefusal, Operation, OperationId, Outcome, Reason,
    StreamAnswer, StreamOptions, SubmitError,
};
use headwater_proto::reason;
use tonic::Code;

use crate::fake::{Deployment, HISTORY, Step, address, refusal};

fn operations(n: usize) -> impl Stream<Item = Operation> + Send + 'static {
    let operation = |i| {
        let id = OperationId::new(format!("op-{i}")).unwrap();
        Operation::new(id, IssueVersion::Newest).put(format!("k{i}"), "v")
    };
    futures::stream::iter((0..n).map(operation))
}

async fn run(client: &Client, n: usize, options: StreamOptions) -> Vec<StreamAnswer> {
    client.session(HISTORY).submit_stream(operations(n), options).collect().await
}

fn ids(n: usize) -> Vec<String> {
    (0..n).map(|i| format!("op-{i}")).collect()
}

fn sent_ids(deployment: &Deployment) -> Vec<String> {
    deployment.submissions().into_iter().map(|it| it.operation_id).collect()
}

fn contended() -> Step {
    let retry_after = Some(Duration::from_millis(10));
    Step::Refuse(refusal(reason::HEAD_CONTENDED, Code::Aborted, retry_after))
}

#[tokio::test(start_paused = true)]
async fn operations_are_sent_and_answered_in_order() {
    let deployment = Deployment::of(1);

    let answers = run(&deployment.client(), 50, StreamOptions::default()).await;

    assert_eq!(sent_ids(&deployment), ids(50));
    for (i, answer) in answers.iter().enumerate() {
        assert_eq!(answer.id.as_str(), format!("op-{i}"));
        let Ok(Outcome::Accepted(accepted)) = &answer.result else { panic!("{answer:?}") };
        assert_eq!(accepted.state_version, i as u64 + 1);
    }
    assert_eq!(deployment.shared().streams_opened, 1);
}

#[tokio::test(start_paused = true)]
async fn what_is_unanswered_is_sent_again_in_order_with_the_same_ids() {
    let deployment = Deployment::of(1);
    // op-1 is applied and its answer lost; op-2 to op-4 are never heard of.
    deployment.script([Step::Serve, Step::EndStream]);
    deployment.shared().script.push_front(Step::Serve);
    let options = StreamOptions { window: 4, ..StreamOptions::default() };

    let answers = run(&deployment.client(), 8, options).await;

    let sent = sent_ids(&deployment);
    let at = sent.iter().position(|it| it == "op-2").unwrap();
    assert_eq!(sent[..at], ids(2));
    // The stream broke at op-2, and goes on there, in order.
    assert_eq!(sent[at], "op-2");
    assert_eq!(sent[at + 1..], ids(8)[2..]);
    let issued: Vec<_> = deployment
        .submissions()
        .iter()
        .filter(|it| it.operation_id == "op-2")
        .map(|it| it.issued_from_version)
        .collect();
    assert_eq!(issued.len(), 2);
    assert_eq!(issued[0], issued[1]);
    let answered: Vec<_> = answers.iter().map(|it| it.id.as_str().to_owned()).collect();
    assert_eq!(answered, ids(8));
    assert!(answers.iter().all(|it| matches!(it.result, Ok(Outcome::Accepted(_)))));
    assert_eq!(deployment.shared().streams_opened, 2);
}

#[tokio::test(start_paused = true)]
async fn a_killed_writer_costs_nothing_but_time() {
    let deployment = Deployment::of(2);
    let client = deployment.client();
    let options = StreamOptions { window: 16, ..StreamOptions::default() };
    let answers = client.session(HISTORY).submit_stream(operations(200), options);
    let mut answers = Box::pin(answers);
    let mut seen = Vec::new();
    for _ in 0..50 {
        seen.push(answers.next().await.unwrap());
    }

    deployment.network.take_down(deployment.submission_servers()[0]);
    seen.extend(answers.collect::<Vec<_>>().await);

    assert!(seen.iter().all(|it| matches!(it.result, Ok(Outcome::Accepted(_)))));
    let answered: Vec<_> = seen.iter().map(|it| it.id.as_str().to_owned()).collect();
    assert_eq!(answered, ids(200));
    // Applied once each.
    assert_eq!(deployment.shared().model.version(), 200);
}

#[tokio::test(start_paused = true)]
async fn the_input_is_not_read_beyond_the_window() {
    let deployment = Deployment::of(1);
    deployment.script((0..100).map(|_| Step::Hang));
    let options = StreamOptions { window: 3, ..StreamOptions::default() };
    let client = deployment.client();
    let mut answers = Box::pin(client.session(HISTORY).submit_stream(operations(10), options));

    let waited = tokio::time::timeout(Duration::from_secs(5), answers.next()).await;

    assert!(waited.is_err());
    assert_eq!(sent_ids(&deployment), ids(3));
}

#[tokio::test(start_paused = true)]
async fn silence_is_followed_by_another_writer() {
    let deployment = Deployment::of(2);
    deployment.script([Step::Hang, Step::Hang]);

    let answers = run(&deployment.client(), 2, StreamOptions::default()).await;

    assert!(answers.iter().all(|it| matches!(it.result, Ok(Outcome::Accepted(_)))));
    let servers = deployment.submission_servers();
    assert_ne!(servers[0], servers[2]);
}

#[tokio::test(start_paused = true)]
async fn a_refusal_that_passes_is_reported_where_order_matters() {
    let deployment = Deployment::of(1);
    deployment.script([Step::Serve, contended()]);

    let answers = run(&deployment.client(), 3, StreamOptions::default()).await;

    let SubmitError::Expired(failure) = answers[1].result.as_ref().unwrap_err() else { panic!() };
    assert_eq!(failure.reason, Reason::HeadContended);
    assert_eq!(sent_ids(&deployment), ids(3));
}

#[tokio::test(start_paused = true)]
async fn a_refusal_that_passes_is_sent_again_where_order_does_not_matter() {
    let deployment = Deployment::of(1);
    deployment.script([Step::Serve, contended(), contended()]);
    let options =
        StreamOptions { on_refusal: OnRefusal::SendAgain, window: 2, ..StreamOptions::default() };

    let answers = run(&deployment.client(), 6, options).await;

    assert_eq!(answers.len(), 6);
    assert!(answers.iter().all(|it| matches!(it.result, Ok(Outcome::Accepted(_)))), "{answers:?}");
    assert_eq!(deployment.submissions().len(), 8);
}

#[tokio::test(start_paused = true)]
async fn what_never_left_is_given_up_as_not_applied() {
    let deployment = Deployment::of(1);
    let client = deployment.client();
    let session = client.session(HISTORY);
    session.get("k", headwater_client::Consistency::Any).await.unwrap();
    deployment.network.take_down(address(1));

    let answers: Vec<_> =
        session.submit_stream(operations(3), StreamOptions::default()).collect().await;

    assert_eq!(answers.len(), 3);
    for answer in answers {
        assert_eq!(answer.result.unwrap_err().determinacy(), Determinacy::NotApplied);
    }
}

#[tokio::test(start_paused = true)]
async fn what_was_sent_and_never_answered_is_given_up_in_doubt() {
    let deployment = Deployment::of(1);
    deployment.script((0..1_000).map(|_| Step::Hang));

    let answers = run(&deployment.client(), 2, StreamOptions::default()).await;

    for answer in answers {
        assert_eq!(answer.result.unwrap_err().determinacy(), Determinacy::MaybeApplied);
    }
}

#[tokio::test(start_paused = true)]
async fn what_a_lost_connection_took_along_is_in_doubt() {
    let deployment = Deployment::of(1);
    deployment.script([Step::EndStream]);
    let client = deployment.client();
    let mut answers =
        Box::pin(client.session(HISTORY).submit_stream(operations(1), StreamOptions::default()));
    let network = deployment.network.clone();
    let shared = Arc::clone(&deployment.shared);
    let cutting = async move {
        while shared.lock().unwrap().submissions.is_empty() {
            tokio::task::yield_now().await;
        }
        network.take_down(address(1));
    };

    let (answer, ()) = tokio::join!(answers.next(), cutting);

    let error = answer.unwrap().result.unwrap_err();
    assert_eq!(error.determinacy(), Determinacy::MaybeApplied);
}
