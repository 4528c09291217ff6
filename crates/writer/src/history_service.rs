//! `HistoryService`: the wire side of [`crate::lifecycle`].

use std::sync::Arc;

use headwater_core::head::Head;
use headwater_core::id::{HistoryId, HistoryName};
use headwater_core::publish::{Answer, Control, SubmitError};
use headwater_daemon::audit::Record;
use headwater_daemon::auth::{Role, allow};
use headwater_daemon::deadline;
use headwater_daemon::status::{self, FieldViolation};
use headwater_proto::v1;
use headwater_proto::v1::history_service_server::HistoryService;
use tokio::time::{Instant, timeout_at};
use tonic::{Request, Response, Status};

use crate::answer::{self, About};
use crate::driver::Question;
use crate::histories::Histories;
use crate::lifecycle::LifecycleError;
use crate::listing::Listing;
use crate::request::Checks;
use crate::retention_service::{retention, shown_pin, shown_retention};

/// Names in one page of a listing, where the caller says nothing.
const PAGE_DEFAULT: usize = 100;
/// Names in one page of a listing at most.
const PAGE_MAX: usize = 1_000;

#[derive(Clone, Debug)]
pub(crate) struct HistoryRpc {
    histories: Arc<Histories>,
}

impl HistoryRpc {
    pub(crate) fn new(histories: Arc<Histories>) -> Self {
        Self { histories }
    }

    fn deadline<T>(&self, request: &Request<T>) -> Instant {
        deadline::of(request.metadata(), self.histories.config.operation_timeout())
    }
}

pub(crate) fn shown(head: &Head) -> v1::History {
    v1::History {
        name: head.history.to_string(),
        history_id: head.history_id.to_string(),
        state_version: head.state_version.get(),
        revision: head.revision.get(),
        operation_count: head.operation_count,
        exclusive: head.is_exclusive,
        writer_epoch: head.writer_epoch,
        receipt_coverage_from: head.receipt_coverage_from.get(),
        retained_from: head.retained_from().get(),
        retention: Some(shown_retention(head.retention)),
        pins: head.pins.iter().map(shown_pin).collect(),
        forked_from: head.base.as_ref().map(|it| it.source.history.to_string()).unwrap_or_default(),
    }
}

pub(crate) fn failed(history: &HistoryName, error: LifecycleError) -> Status {
    let about = About::history(history);
    match error {
        LifecycleError::Exists => {
            status::history_exists(history.as_str(), "a history of this name exists")
        }
        LifecycleError::BeingDeleted => status::history_exists(
            history.as_str(),
            "a deletion of it was cut off: delete it again, then create it",
        ),
        LifecycleError::IdUsed => status::field_invalid([FieldViolation::new(
            "history_id",
            "a history that was deleted had it, and an id is never used again",
        )]),
        LifecycleError::NotConfirmed { found } => status::field_invalid([FieldViolation::new(
            "confirm_history_id",
            format!("the history's id is {found}; nothing was deleted"),
        )]),
        LifecycleError::Submit(error) => answer::failed(about, error),
        LifecycleError::Ask(error) => answer::not_taken(about, &error),
    }
}

impl HistoryRpc {
    async fn create(
        &self,
        request: Request<v1::CreateHistoryRequest>,
    ) -> Result<Response<v1::CreateHistoryResponse>, Status> {
        allow(&request, Role::Admin, &request.get_ref().name)?;
        let deadline = self.deadline(&request);
        let request = request.into_inner();
        let mut checks = Checks::default();
        let name = checks.history("name", &request.name);
        let id = checks.history_id("history_id", &request.history_id);
        let wanted = request.retention.map(|it| retention(&mut checks, "retention", Some(it)));
        let name = checks.finish(name)?;
        let retention = wanted.flatten().unwrap_or(self.histories.config.retention());
        let id = id.unwrap_or_else(|| HistoryId::from_bytes(self.histories.entropy.bytes16()));
        let (head, created) = self
            .histories
            .create(&name, id, (request.exclusive, retention), deadline)
            .await
            .map_err(|error| failed(&name, error))?;
        if head.is_exclusive != request.exclusive {
            let rule = "the history was created with another value";
            return Err(status::field_invalid([FieldViolation::new("exclusive", rule)]));
        }
        Ok(Response::new(v1::CreateHistoryResponse { history: Some(shown(&head)), created }))
    }

    async fn delete(
        &self,
        request: Request<v1::DeleteHistoryRequest>,
    ) -> Result<Response<v1::DeleteHistoryResponse>, Status> {
        allow(&request, Role::Admin, &request.get_ref().name)?;
        let deadline = self.deadline(&request);
        let request = request.into_inner();
        let mut checks = Checks::default();
        let name = checks.history("name", &request.name);
        let confirmed =
            checks.take("confirm_history_id", HistoryId::parse(&request.confirm_history_id));
        let (name, confirmed) = checks.finish(name.zip(confirmed))?;
        let objects_deleted = self
            .histories
            .delete(&name, confirmed, deadline)
            .await
            .map_err(|error| failed(&name, error))?;
        tracing::info!(history = %name, objects_deleted, "a history was deleted");
        Ok(Response::new(v1::DeleteHistoryResponse { objects_deleted }))
    }

    async fn raise_epoch(
        &self,
        request: Request<v1::RaiseWriterEpochRequest>,
    ) -> Result<Response<v1::RaiseWriterEpochResponse>, Status> {
        allow(&request, Role::Write, &request.get_ref().name)?;
        let deadline = self.deadline(&request);
        let request = request.into_inner();
        let mut checks = Checks::default();
        let name = checks.history("name", &request.name);
        let name = checks.finish(name)?;
        let control = Control::RaiseWriterEpoch { expected: request.expected_writer_epoch };
        let told = self
            .histories
            .send(&name, Question::Control(control), deadline)
            .map_err(|error| answer::not_taken(About::history(&name), &error))?
            .await
            .map_err(|_| answer::unexpected())?;
        match told.answer {
            Answer::WriterEpochRaised { writer_epoch } => {
                tracing::info!(history = %name, writer_epoch, "the writer epoch was raised");
                Ok(Response::new(v1::RaiseWriterEpochResponse { writer_epoch }))
            }
            Answer::Failed(error) => Err(answer::failed(About::history(&name), error)),
            Answer::Accepted { .. }
            | Answer::Rejected { .. }
            | Answer::Unknown { .. }
            | Answer::NotAccepted { .. }
            | Answer::Retired
            | Answer::Pinned(_)
            | Answer::Unpinned
            | Answer::RetentionSet(_) => Err(answer::unexpected()),
        }
    }
}

#[tonic::async_trait]
impl HistoryService for HistoryRpc {
    async fn create_history(
        &self,
        request: Request<v1::CreateHistoryRequest>,
    ) -> Result<Response<v1::CreateHistoryResponse>, Status> {
        let record = Record::begin(&request, "CreateHistory", &request.get_ref().name);
        record.end(self.create(request)).await
    }

    async fn get_history(
        &self,
        request: Request<v1::GetHistoryRequest>,
    ) -> Result<Response<v1::GetHistoryResponse>, Status> {
        allow(&request, Role::Read, &request.get_ref().name)?;
        let deadline = self.deadline(&request);
        let mut checks = Checks::default();
        let name = checks.history("name", &request.get_ref().name);
        let name = checks.finish(name)?;
        let found = match timeout_at(deadline, self.histories.head_of(&name)).await {
            Ok(found) => found.map_err(|trouble| failed(&name, trouble.into()))?,
            Err(_) => return Err(failed(&name, SubmitError::StoreUnavailable.into())),
        };
        match found {
            Some((head, _)) if !head.is_retired() => {
                Ok(Response::new(v1::GetHistoryResponse { history: Some(shown(&head)) }))
            }
            Some(_) | None => Err(failed(&name, SubmitError::HistoryMissing.into())),
        }
    }

    async fn list_histories(
        &self,
        request: Request<v1::ListHistoriesRequest>,
    ) -> Result<Response<v1::ListHistoriesResponse>, Status> {
        // The prefix is as good as a name: whatever begins with it is covered too.
        allow(&request, Role::Read, &request.get_ref().name_prefix)?;
        let deadline = self.deadline(&request);
        let request = request.into_inner();
        let mut checks = Checks::default();
        let page_size = match request.page_size as usize {
            0 => PAGE_DEFAULT,
            size => size,
        };
        if PAGE_MAX < page_size {
            checks.refuse("page_size", format!("{page_size} is over the limit of {PAGE_MAX}"));
        }
        if !request.name_prefix.is_empty() && !HistoryName::may_begin_with(&request.name_prefix) {
            checks.refuse("name_prefix", "no history's name begins like this");
        }
        // The token is the last name given, so any token of the same prefix
        // begins with it and is a name.
        let after = Some(request.page_token.as_str()).filter(|it| !it.is_empty());
        if let Some(after) = after {
            let is_name = HistoryName::parse(after).is_ok();
            if !is_name || !after.starts_with(&request.name_prefix) {
                checks.refuse("page_token", "not from an answer to the same prefix");
            }
        }
        checks.finish(Some(()))?;
        let wanted = Listing { prefix: &request.name_prefix, after, limit: page_size };
        let listing = self.histories.list(wanted);
        let (names, has_more) = match timeout_at(deadline, listing).await {
            Ok(listed) => {
                listed.map_err(|trouble| answer::store_failed(trouble, "the list of histories"))?
            }
            Err(_) => return Err(status::expired("the listing took too long; nothing is lost")),
        };
        let next_page_token =
            if has_more { names.last().cloned().unwrap_or_default() } else { String::new() };
        Ok(Response::new(v1::ListHistoriesResponse { names, next_page_token }))
    }

    async fn delete_history(
        &self,
        request: Request<v1::DeleteHistoryRequest>,
    ) -> Result<Response<v1::DeleteHistoryResponse>, Status> {
        let record = Record::begin(&request, "DeleteHistory", &request.get_ref().name);
        record.end(self.delete(request)).await
    }

    async fn raise_writer_epoch(
        &self,
        request: Request<v1::RaiseWriterEpochRequest>,
    ) -> Result<Response<v1::RaiseWriterEpochResponse>, Status> {
        let record = Record::begin(&request, "RaiseWriterEpoch", &request.get_ref().name);
        record.end(self.raise_epoch(request)).await
    }
}
