//! One `SubmitStream`: operations handed over in the order in which they come,
//! answers as they become known.

use std::collections::VecDeque;
use std::sync::Arc;

use futures::stream::{self, FuturesUnordered, Stream};
use futures::{FutureExt as _, StreamExt as _, future::BoxFuture};
use headwater_core::decide::Ask;
use headwater_core::id::HistoryName;
use headwater_daemon::auth::{Caller, Role, allow_caller};
use headwater_daemon::status::{self, FieldViolation};
use headwater_proto::limits::STREAM_UNANSWERED_MAX;
use headwater_proto::v1::{self, submit_stream_response::Result as Outcome};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tonic::{Status, Streaming};

use crate::answer::{self, About};
use crate::driver::Question;
use crate::histories::{Asker, Histories};
use crate::request;

struct Session {
    histories: Arc<Histories>,
    caller: Option<Arc<Caller>>,
    /// `None` once the caller has sent everything.
    requests: Option<Streaming<v1::SubmitRequest>>,
    history: Option<HistoryName>,
    unanswered: FuturesUnordered<BoxFuture<'static, v1::SubmitStreamResponse>>,
    /// Refusals that need no waiting.
    ready: VecDeque<v1::SubmitStreamResponse>,
    /// Said last, after every answer.
    end: Option<Status>,
    leaving: CancellationToken,
}

/// Serves one stream. Nothing is spawned: a caller that goes away takes the
/// stream with it, and what it handed over is still decided.
///
/// Once its connection takes no more calls, the stream takes no more requests:
/// what it has taken is answered, and then it ends.
pub(crate) fn serve(
    histories: Arc<Histories>,
    caller: Option<Arc<Caller>>,
    requests: Streaming<v1::SubmitRequest>,
    leaving: CancellationToken,
) -> impl Stream<Item = Result<v1::SubmitStreamResponse, Status>> + Send {
    let session = Session {
        histories,
        caller,
        requests: Some(requests),
        history: None,
        unanswered: FuturesUnordered::new(),
        ready: VecDeque::new(),
        end: None,
        leaving,
    };
    stream::unfold(session, |mut session| async {
        let next = session.next().await?;
        Some((next, session))
    })
}

impl Session {
    async fn next(&mut self) -> Option<Result<v1::SubmitStreamResponse, Status>> {
        loop {
            if let Some(response) = self.ready.pop_front() {
                return Some(Ok(response));
            }
            let has_room = self.unanswered.len() < STREAM_UNANSWERED_MAX;
            let is_reading = self.requests.is_some();
            let reading = self.requests.as_mut().filter(|_| has_room);
            if reading.is_none() && self.unanswered.is_empty() {
                return self.end.take().map(Err);
            }
            let leaving = self.leaving.cancelled();
            tokio::select! {
                biased;
                Some(response) = self.unanswered.next(), if !self.unanswered.is_empty() => {
                    return Some(Ok(response));
                }
                () = leaving, if is_reading => {
                    self.requests = None;
                    self.end = Some(status::shutting_down());
                }
                request = read(reading) => match request {
                    Ok(Some(request)) => self.hand_over(request),
                    Ok(None) => self.requests = None,
                    Err(status) => {
                        self.requests = None;
                        self.end = Some(status);
                    }
                },
            }
        }
    }

    fn hand_over(&mut self, request: v1::SubmitRequest) {
        let operation_id = request.operation_id.clone();
        match self.submit(request) {
            Ok(waiting) => self.unanswered.push(waiting),
            Err(status) => self.ready.push_back(refusal(operation_id, &status)),
        }
    }

    fn submit(
        &mut self,
        request: v1::SubmitRequest,
    ) -> Result<BoxFuture<'static, v1::SubmitStreamResponse>, Status> {
        let named = match &self.history {
            Some(first) if request.history.is_empty() => first.as_str(),
            Some(_) | None => &request.history,
        };
        allow_caller(self.caller.as_deref(), Role::Write, named)?;
        let submission = request::submission(request, self.history.as_ref())?;
        let (history, operation) = (submission.history, submission.operation);
        let first = self.history.get_or_insert_with(|| history.clone());
        if *first != history {
            let rule = format!("the requests of this stream are for `{first}`");
            return Err(status::field_invalid([FieldViolation::new("history", rule)]));
        }
        let deadline = Instant::now() + self.histories.config.operation_timeout();
        let question = Question::Ask(Ask::Submit(operation.clone()));
        let told = self
            .histories
            .send_for(Asker::CallerInOrder, &history, question, deadline)
            .map_err(|error| answer::not_taken(About::operation(&history, &operation), &error))?;
        let waiting = async move {
            let about = About::operation(&history, &operation);
            let operation_id = operation.id.as_str().to_owned();
            let answered = match told.await {
                Ok(told) => answer::submitted(about, told),
                Err(_) => Err(answer::unexpected()),
            };
            match answered {
                Ok(response) => v1::SubmitStreamResponse {
                    operation_id,
                    result: Some(Outcome::Response(response)),
                },
                Err(status) => refusal(operation_id, &status),
            }
        };
        Ok(waiting.boxed())
    }
}

async fn read(
    requests: Option<&mut Streaming<v1::SubmitRequest>>,
) -> Result<Option<v1::SubmitRequest>, Status> {
    match requests {
        Some(requests) => requests.message().await,
        None => std::future::pending().await,
    }
}

fn refusal(operation_id: String, status: &Status) -> v1::SubmitStreamResponse {
    let error_status = status::to_bytes(status);
    v1::SubmitStreamResponse { operation_id, result: Some(Outcome::ErrorStatus(error_status)) }
}
