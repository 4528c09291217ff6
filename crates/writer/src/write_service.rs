//! `WriteService` over the driver.

use std::pin::Pin;
use std::sync::Arc;

use futures::{Stream, StreamExt as _};
use headwater_core::decide::Ask;
use headwater_core::format;
use headwater_core::head::Head;
use headwater_core::id::HistoryName;
use headwater_core::publish::SubmitError;
use headwater_core::version::StateVersion;
use headwater_daemon::auth::{Caller, Role, allow};
use headwater_daemon::deadline;
use headwater_daemon::serve::Leaving;
use headwater_proto::v1;
use headwater_proto::v1::write_service_server::WriteService;
use headwater_store::ReadError;
use tokio::time::{Instant, timeout_at};
use tonic::{Request, Response, Status, Streaming};

use crate::answer::{self, About};
use crate::driver::{Question, read_trouble, record_trouble};
use crate::histories::{Asker, Histories};
use crate::request::{self, Inquiry};
use crate::{notify, submit_stream};

#[derive(Clone, Debug)]
pub(crate) struct WriteRpc {
    histories: Arc<Histories>,
}

impl WriteRpc {
    pub(crate) fn new(histories: Arc<Histories>) -> Self {
        Self { histories }
    }

    async fn look_up(
        &self,
        inquiry: Inquiry,
        deadline: Instant,
    ) -> Result<v1::GetOperationResponse, Status> {
        let (history, id) = (inquiry.history.clone(), inquiry.id.clone());
        let newest_named = inquiry.issued_from.map_or(0, StateVersion::get);
        let about = About { history: &history, operation_id: id.as_str(), newest_named };
        let failed = |error| answer::failed(about, error);
        let head = self.live_head(&history).await.map_err(failed)?;
        if let Some(wanted) = inquiry.history_id
            && wanted != head.history_id
        {
            return Err(failed(SubmitError::OtherHistory { found: head.history_id }));
        }
        let recorded = if inquiry.issued_from.is_some() {
            None
        } else {
            self.read_record(&head, &inquiry).await.map_err(failed)?
        };
        let ask = inquiry.into_ask(&head, recorded);
        let told = self
            .histories
            .send(&history, Question::Ask(ask), deadline)
            .map_err(|error| answer::not_taken(about, &error))?
            .await
            .map_err(|_| answer::unexpected())?;
        answer::looked_up(about, head.history_id, told)
    }

    async fn live_head(&self, history: &HistoryName) -> Result<Head, SubmitError> {
        match self.histories.head_of(history).await? {
            Some((head, _)) if !head.is_retired() => Ok(head),
            Some(_) | None => Err(SubmitError::HistoryMissing),
        }
    }

    async fn read_record(
        &self,
        head: &Head,
        inquiry: &Inquiry,
    ) -> Result<Option<StateVersion>, SubmitError> {
        let key = inquiry.history.request_key(head.history_id, &inquiry.id);
        match self.histories.store.get(&key).await {
            Ok(bytes) => {
                let record = format::record::decode(&bytes)
                    .map_err(|error| SubmitError::from(record_trouble(&key, error)))?;
                Ok(Some(record.issued_from))
            }
            Err(ReadError::Missing { .. }) => Ok(None),
            Err(error) => Err(read_trouble(&error).into()),
        }
    }
}

#[tonic::async_trait]
impl WriteService for WriteRpc {
    #[tracing::instrument(level = "debug", skip_all, fields(operation_id))]
    async fn submit(
        &self,
        request: Request<v1::SubmitRequest>,
    ) -> Result<Response<v1::SubmitResponse>, Status> {
        allow(&request, Role::Write, &request.get_ref().history)?;
        let deadline = deadline::of(request.metadata(), self.histories.config.operation_timeout());
        let submission = request::submission(request.into_inner(), None)?;
        let (history, operation) = (submission.history, submission.operation);
        tracing::Span::current().record("operation_id", operation.id.as_str());
        let about = About::operation(&history, &operation);
        let question = Question::Ask(Ask::Submit(operation.clone()));
        let told = self
            .histories
            .send_for(Asker::Caller, &history, question, deadline)
            .map_err(|error| answer::not_taken(about, &error))?
            .await
            .map_err(|_| answer::unexpected())?;
        answer::submitted(about, told).map(Response::new)
    }

    type SubmitStreamStream =
        Pin<Box<dyn Stream<Item = Result<v1::SubmitStreamResponse, Status>> + Send>>;

    async fn submit_stream(
        &self,
        request: Request<Streaming<v1::SubmitRequest>>,
    ) -> Result<Response<Self::SubmitStreamStream>, Status> {
        let caller = Caller::of(&request);
        let leaving = Leaving::of(request.extensions()).token();
        let (histories, requests) = (Arc::clone(&self.histories), request.into_inner());
        let answers = submit_stream::serve(histories, caller, requests, leaving);
        Ok(Response::new(Box::pin(answers)))
    }

    async fn get_operation(
        &self,
        request: Request<v1::GetOperationRequest>,
    ) -> Result<Response<v1::GetOperationResponse>, Status> {
        allow(&request, Role::Write, &request.get_ref().history)?;
        let deadline = deadline::of(request.metadata(), self.histories.config.operation_timeout());
        let inquiry = request::inquiry(request.get_ref())?;
        let history = inquiry.history.clone();
        let Ok(looked_up) = timeout_at(deadline, self.look_up(inquiry, deadline)).await else {
            return Err(answer::failed(About::history(&history), SubmitError::StoreUnavailable));
        };
        looked_up.map(Response::new)
    }

    type SubscribeHeadsStream =
        Pin<Box<dyn Stream<Item = Result<v1::SubscribeHeadsResponse, Status>> + Send>>;

    async fn subscribe_heads(
        &self,
        request: Request<Streaming<v1::SubscribeHeadsRequest>>,
    ) -> Result<Response<Self::SubscribeHeadsStream>, Status> {
        let caller = Caller::of(&request);
        let leaving = Leaving::of(request.extensions()).token();
        let entry = self.histories.subscribers.enter(request.remote_addr());
        let notices = notify::serve(self.histories.notices(), entry, caller, request.into_inner());
        Ok(Response::new(Box::pin(notices.take_until(leaving.cancelled_owned()))))
    }
}
