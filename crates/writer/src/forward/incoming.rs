//! Operations that another writer hands over.

use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use headwater_core::decide::Ask;
use headwater_core::publish::{Answer, Determinacy};
use headwater_daemon::auth::{Role, allow};
use headwater_daemon::limit::Permit;
use headwater_daemon::status::{self, FieldViolation};
use headwater_daemon::trace;
use headwater_proto::v1;
use headwater_proto::v1::forward_service_server::ForwardService;
use prost::Message as _;
use tokio::time::Instant;
use tonic::{Request, Response, Status};

use super::{Handed, HandedOperation, OPERATIONS_MAX, Taken, Verdict};
use crate::answer::{self, About};
use crate::driver::{AskError, Question, Told};
use crate::histories::{Asker, Histories};
use crate::request::{self, Checks};

/// Decides operations of another writer; `None` where the message came before.
///
/// They are decided here whatever the route of the history is: what was handed
/// over is not handed on.
pub(crate) async fn take(histories: &Arc<Histories>, handed: Handed) -> Option<Taken> {
    let Handed { history, publisher_id, life, number, operations, .. } = handed;
    if !histories.is_new_message(life, number) {
        tracing::info!(%history, from = publisher_id, "operations were handed over twice");
        return None;
    }
    let (now, longest) = (Instant::now(), histories.config.operation_timeout());
    let waiting: Vec<_> = operations
        .into_iter()
        .map(|HandedOperation { operation, time }| {
            let question = Question::Ask(Ask::Submit(operation));
            histories.send_for(Asker::Writer, &history, question, now + time.min(longest))
        })
        .collect();
    histories.metrics.handed.add(waiting.len() as u64, &[]);
    // Heard of before the answer says who else there is: what this process has
    // of its own callers is not the other one's.
    if let Some(route) = histories.route(&history) {
        route.heard(Some(&publisher_id));
    }
    let verdicts = join_all(waiting.into_iter().map(async |asked| match asked {
        Ok(told) => told.await.map_or(Verdict::MaybeApplied, verdict),
        Err(
            AskError::QueueFull { .. } | AskError::TooManyHistories { .. } | AskError::ShuttingDown,
        ) => Verdict::NotApplied,
        Err(AskError::Lost) => Verdict::MaybeApplied,
    }))
    .await;
    // One that is gone by now has been quiet.
    let route = histories.route(&history);
    Some(Taken {
        verdicts,
        is_shared: route.as_ref().is_some_and(|it| it.is_shared(&publisher_id)),
        instead: route.and_then(|it| it.instead()),
    })
}

fn verdict(told: Told) -> Verdict {
    match told.answer {
        answer @ (Answer::Accepted { .. } | Answer::Rejected { .. } | Answer::Unknown { .. }) => {
            Verdict::Outcome(answer)
        }
        Answer::Failed(error) => match error.determinacy() {
            Determinacy::NotApplied => Verdict::NotApplied,
            Determinacy::MaybeApplied => Verdict::MaybeApplied,
        },
        // No answer to a submission: a defect, about which nothing may be claimed.
        Answer::NotAccepted { .. }
        | Answer::WriterEpochRaised { .. }
        | Answer::Retired
        | Answer::Pinned(_)
        | Answer::Unpinned
        | Answer::RetentionSet(_) => Verdict::MaybeApplied,
    }
}

/// Bytes of outcomes past which no rejection is told in full: what a writer
/// takes as an answer is 8 MiB, and one rejection has up to 64 keys of 1 KiB.
const ANSWER_BYTES_MAX: usize = 4 << 20;

/// `ForwardService` over it.
#[derive(Clone, Debug)]
pub(crate) struct ForwardRpc {
    histories: Arc<Histories>,
}

impl ForwardRpc {
    pub(crate) fn new(histories: Arc<Histories>) -> Self {
        Self { histories }
    }
}

#[tonic::async_trait]
impl ForwardService for ForwardRpc {
    async fn forward(
        &self,
        request: Request<v1::ForwardRequest>,
    ) -> Result<Response<v1::ForwardResponse>, Status> {
        allow(&request, Role::Write, &request.get_ref().history)?;
        let permit = request.extensions().get::<Arc<Permit>>().cloned();
        let handed = handed(request.into_inner())?;
        // Nobody is told of an address, so nobody comes here by what a head says.
        if self.histories.config.advertise.is_empty() {
            return Err(Status::unimplemented("this writer takes operations from callers alone"));
        }
        // To a caller that has a rate each operation is a call, as in a stream. A
        // message that is refused was one call, whatever is in it.
        if let Some(permit) = permit {
            let count = handed.operations.len().saturating_sub(1);
            permit.owe(u32::try_from(count).unwrap_or(u32::MAX));
        }
        let (history, history_id) = (handed.history.clone(), handed.history_id);
        let operations: Vec<_> = handed.operations.iter().map(|it| it.operation.clone()).collect();
        let Some(taken) = take(&self.histories, handed).await else {
            return Err(answer::unexpected());
        };
        let mut answer_bytes = 0;
        let results = operations.iter().zip(taken.verdicts).map(|(operation, verdict)| {
            use v1::forwarded_result::Result as Outcome;
            let result = match verdict {
                // Rejections name what is in the way, keys and all. One without
                // room was not applied, and is decided where it comes from.
                Verdict::Outcome(Answer::Rejected { .. }) if ANSWER_BYTES_MAX < answer_bytes => {
                    Outcome::MaybeApplied(false)
                }
                Verdict::Outcome(answer) => {
                    let about = About::operation(&history, operation);
                    let told = Told { answer, history_id: Some(history_id) };
                    answer::submitted(about, told)
                        .map_or(Outcome::MaybeApplied(true), Outcome::Response)
                }
                Verdict::NotApplied => Outcome::MaybeApplied(false),
                Verdict::MaybeApplied => Outcome::MaybeApplied(true),
            };
            let result = v1::ForwardedResult { result: Some(result) };
            answer_bytes += result.encoded_len();
            result
        });
        Ok(Response::new(v1::ForwardResponse {
            results: results.collect(),
            is_shared: taken.is_shared,
            instead: taken.instead.map(|it| it.as_str().to_owned()).unwrap_or_default(),
        }))
    }
}

/// Checks a message. One operation that breaks a rule is all of it: the writer
/// that sent it has checked each.
fn handed(request: v1::ForwardRequest) -> Result<Handed, Status> {
    let v1::ForwardRequest { history, history_id, publisher_id, life, number, operations } =
        request;
    let mut checks = Checks::default();
    let name = checks.history("history", &history);
    let id = checks.history_id("history_id", &history_id);
    if history_id.is_empty() {
        checks.refuse("history_id", "it is needed");
    }
    let is_plain = |it: u8| it.is_ascii_alphanumeric() || matches!(it, b'.' | b'_' | b'-');
    if !(1..=64).contains(&publisher_id.len()) || !publisher_id.bytes().all(is_plain) {
        checks.refuse("publisher_id", "1 to 64 of [A-Za-z0-9._-]");
    }
    let life = checks.take("life", life.as_ref().try_into().map_err(|_| "it is 16 bytes long"));
    let count = operations.len();
    if !(1..=OPERATIONS_MAX).contains(&count) {
        let rule = format!("{count} are given, they are 1 to {OPERATIONS_MAX}");
        checks.refuse("operations", rule);
    }
    let ids = name.zip(id).zip(life).filter(|_| (1..=OPERATIONS_MAX).contains(&count));
    let ((history, history_id), life) = checks.finish(ids)?;
    let operations = operations.into_iter().map(|it| {
        let request = it.request.ok_or_else(|| {
            status::field_invalid([FieldViolation::new("operations.request", "it is needed")])
        })?;
        let mut operation = request::submission(request, Some(&history))?.operation;
        operation.history_id = Some(history_id);
        Ok(HandedOperation { operation, time: Duration::from_millis(it.timeout_ms) })
    });
    let operations = operations.collect::<Result<Vec<_>, Status>>()?;
    // Neither is of use to who decides; a call has them as its own.
    let (patience, traceparent) = (Duration::ZERO, trace::traceparent());
    Ok(Handed {
        history,
        history_id,
        publisher_id,
        life,
        number,
        operations,
        patience,
        traceparent,
    })
}
