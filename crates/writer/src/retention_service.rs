//! `RetentionService`: pins, retention, and what is made of older versions.

use std::sync::Arc;

use headwater_core::head::{HistoryRef, Pin, Retention};
use headwater_core::id::{OperationId, PinName};
use headwater_core::publish::{Answer, Control, NewPin};
use headwater_core::version::StateVersion;
use headwater_daemon::audit::Record;
use headwater_daemon::auth::{Role, allow};
use headwater_daemon::deadline;
use headwater_daemon::status::{self, FieldViolation};
use headwater_proto::v1;
use headwater_proto::v1::retention_service_server::RetentionService;
use tokio::time::Instant;
use tonic::{Request, Response, Status};

use crate::answer::{self, About};
use crate::config::WriterConfig;
use crate::fork::Fork;
use crate::histories::Histories;
use crate::history_service;
use crate::lifecycle::LifecycleError;
use crate::request::Checks;
use crate::restore::{Restore, RestoreError, Restored};

/// What the names of pins begin with that forks make.
const FORK_PREFIX: &str = "fork:";

#[derive(Clone, Debug)]
pub(crate) struct RetentionRpc {
    histories: Arc<Histories>,
}

impl RetentionRpc {
    pub(crate) fn new(histories: Arc<Histories>) -> Self {
        Self { histories }
    }

    fn deadline<T>(&self, request: &Request<T>) -> Instant {
        deadline::of(request.metadata(), self.histories.config.operation_timeout())
    }

    async fn control(
        &self,
        about: About<'_>,
        control: Control,
        deadline: Instant,
    ) -> Result<Answer, Status> {
        let answer = self.histories.control(about.history, control, deadline).await;
        answer.map_err(|error| failed(about, error))
    }
}

/// A pin as the wire has it.
pub(crate) fn shown_pin(pin: &Pin) -> v1::Pin {
    let child = pin.child.as_ref();
    v1::Pin {
        name: pin.name.to_string(),
        version: pin.version.get(),
        expires_at_ms: pin.expires_at_ms.unwrap_or(0),
        child: child.map(|it| it.history.to_string()).unwrap_or_default(),
        child_history_id: child.map(|it| it.history_id.to_string()).unwrap_or_default(),
    }
}

pub(crate) fn shown_retention(retention: Retention) -> v1::Retention {
    v1::Retention { versions: retention.versions, age_ms: retention.age_ms }
}

/// Checks what a caller wants to be kept.
pub(crate) fn retention(
    checks: &mut Checks,
    field: &str,
    wanted: Option<v1::Retention>,
) -> Option<Retention> {
    let Some(v1::Retention { versions, age_ms }) = wanted else {
        checks.refuse(field, "what is to be kept is needed");
        return None;
    };
    let max = WriterConfig::RETAIN_AGE_MS_MAX;
    if max < age_ms {
        checks.refuse(format!("{field}.age_ms"), format!("{age_ms} ms, the limit is {max}"));
        return None;
    }
    Some(Retention { versions, age_ms })
}

fn failed(about: About<'_>, error: LifecycleError) -> Status {
    match error {
        LifecycleError::Submit(error) => answer::failed(about, error),
        LifecycleError::Ask(error) => answer::not_taken(about, &error),
        error @ (LifecycleError::Exists
        | LifecycleError::BeingDeleted
        | LifecycleError::IdUsed
        | LifecycleError::NotConfirmed { .. }) => history_service::failed(about.history, error),
    }
}

fn restore_failed(about: About<'_>, error: RestoreError) -> Status {
    match error {
        RestoreError::TooLarge => {
            status::field_invalid([FieldViolation::new("version", error.to_string())])
        }
        RestoreError::Submit(error) => answer::failed(about, error),
        RestoreError::Ask(error) => answer::not_taken(about, &error),
    }
}

impl RetentionRpc {
    async fn pin(
        &self,
        request: Request<v1::PinVersionRequest>,
    ) -> Result<Response<v1::PinVersionResponse>, Status> {
        allow(&request, Role::Maintain, &request.get_ref().name)?;
        let deadline = self.deadline(&request);
        let request = request.into_inner();
        let mut checks = Checks::default();
        let name = checks.history("name", &request.name);
        let pin = checks.take("pin", PinName::parse(&request.pin));
        if request.pin.starts_with(FORK_PREFIX) {
            checks.refuse("pin", "names that begin with `fork:` are the service's");
        }
        let (name, pin) = checks.finish(name.zip(pin))?;
        let version = request.version.map(StateVersion::new);
        let expires_at_ms = Some(request.expires_at_ms).filter(|it| *it != 0);
        let new = NewPin { name: pin.clone(), version, expires_at_ms, child: None };
        let about = About::pin(&name, &pin, version);
        let answer = self.control(about, Control::Pin(new), deadline).await?;
        let Answer::Pinned(pin) = answer else { return Err(answer::unexpected()) };
        tracing::info!(history = %name, pin = %pin.name, version = pin.version.get(), "pinned");
        Ok(Response::new(v1::PinVersionResponse { pin: Some(shown_pin(&pin)) }))
    }

    async fn unpin(
        &self,
        request: Request<v1::UnpinVersionRequest>,
    ) -> Result<Response<v1::UnpinVersionResponse>, Status> {
        allow(&request, Role::Maintain, &request.get_ref().name)?;
        let deadline = self.deadline(&request);
        let request = request.into_inner();
        let mut checks = Checks::default();
        let name = checks.history("name", &request.name);
        let pin = checks.take("pin", PinName::parse(&request.pin));
        let child = checks.history_id("child_history_id", &request.child_history_id);
        let (name, pin) = checks.finish(name.zip(pin))?;
        let control = Control::Unpin { name: pin.clone(), child };
        let answer = self.control(About::pin(&name, &pin, None), control, deadline).await?;
        let Answer::Unpinned = answer else { return Err(answer::unexpected()) };
        tracing::info!(history = %name, %pin, "unpinned");
        Ok(Response::new(v1::UnpinVersionResponse {}))
    }

    async fn set(
        &self,
        request: Request<v1::SetRetentionRequest>,
    ) -> Result<Response<v1::SetRetentionResponse>, Status> {
        allow(&request, Role::Maintain, &request.get_ref().name)?;
        let deadline = self.deadline(&request);
        let request = request.into_inner();
        let mut checks = Checks::default();
        let name = checks.history("name", &request.name);
        let wanted = retention(&mut checks, "retention", request.retention);
        let (name, wanted) = checks.finish(name.zip(wanted))?;
        let control = Control::SetRetention(wanted);
        let answer = self.control(About::history(&name), control, deadline).await?;
        let Answer::RetentionSet(retention) = answer else { return Err(answer::unexpected()) };
        tracing::info!(history = %name, ?retention, "retention was set");
        let retention = Some(shown_retention(retention));
        Ok(Response::new(v1::SetRetentionResponse { retention }))
    }

    async fn restore(
        &self,
        request: Request<v1::RestoreVersionRequest>,
    ) -> Result<Response<v1::RestoreVersionResponse>, Status> {
        allow(&request, Role::Maintain, &request.get_ref().name)?;
        let deadline = self.deadline(&request);
        let request = request.into_inner();
        let mut checks = Checks::default();
        let name = checks.history("name", &request.name);
        let id = checks.take("operation_id", OperationId::parse(&request.operation_id));
        let (name, operation_id) = checks.finish(name.zip(id))?;
        let restore = Restore {
            version: StateVersion::new(request.version),
            operation_id,
            issued_from: StateVersion::new(request.issued_from_version),
            writer_epoch: request.writer_epoch,
        };
        let about = About {
            history: &name,
            operation_id: restore.operation_id.as_str(),
            newest_named: request.version,
        };
        let restored = self.histories.restore(&name, &restore, deadline).await;
        let response = match restored.map_err(|error| restore_failed(about, error))? {
            Restored::Accepted { version, keys_changed, is_from_receipt, .. } => {
                let (from, to) = (restore.version.get(), version.get());
                tracing::info!(history = %name, from, to, keys_changed, "a version was restored");
                v1::RestoreVersionResponse {
                    state_version: to,
                    keys_changed,
                    from_receipt: is_from_receipt,
                    outcome_unknown: false,
                }
            }
            Restored::Unknown => v1::RestoreVersionResponse {
                outcome_unknown: true,
                ..v1::RestoreVersionResponse::default()
            },
        };
        Ok(Response::new(response))
    }

    async fn fork(
        &self,
        request: Request<v1::ForkHistoryRequest>,
    ) -> Result<Response<v1::ForkHistoryResponse>, Status> {
        allow(&request, Role::Maintain, &request.get_ref().source)?;
        allow(&request, Role::Admin, &request.get_ref().name)?;
        let deadline = self.deadline(&request);
        let request = request.into_inner();
        let mut checks = Checks::default();
        let source = checks.history("source", &request.source);
        let history = checks.history("name", &request.name);
        let id = checks.history_id("history_id", &request.history_id);
        if request.history_id.is_empty() {
            checks.refuse("history_id", "the new history's id is needed, so that a retry finds it");
        }
        if request.source == request.name {
            checks.refuse("name", "a history is forked under another name");
        }
        let (source, (history, history_id)) = checks.finish(source.zip(history.zip(id)))?;
        let version = request.version.map(StateVersion::new);
        let child = HistoryRef { history, history_id };
        let fork = Fork { source, version, child };
        let (head, created) = self
            .histories
            .fork(&fork, deadline)
            .await
            .map_err(|error| fork_failed(&fork, error))?;
        tracing::info!(source = %fork.source, history = %head.history, created, "forked");
        let history = Some(history_service::shown(&head));
        Ok(Response::new(v1::ForkHistoryResponse { history, created }))
    }
}

#[tonic::async_trait]
impl RetentionService for RetentionRpc {
    async fn pin_version(
        &self,
        request: Request<v1::PinVersionRequest>,
    ) -> Result<Response<v1::PinVersionResponse>, Status> {
        let record = Record::begin(&request, "PinVersion", &request.get_ref().name);
        record.end(self.pin(request)).await
    }

    async fn unpin_version(
        &self,
        request: Request<v1::UnpinVersionRequest>,
    ) -> Result<Response<v1::UnpinVersionResponse>, Status> {
        let record = Record::begin(&request, "UnpinVersion", &request.get_ref().name);
        record.end(self.unpin(request)).await
    }

    async fn set_retention(
        &self,
        request: Request<v1::SetRetentionRequest>,
    ) -> Result<Response<v1::SetRetentionResponse>, Status> {
        let record = Record::begin(&request, "SetRetention", &request.get_ref().name);
        record.end(self.set(request)).await
    }

    async fn restore_version(
        &self,
        request: Request<v1::RestoreVersionRequest>,
    ) -> Result<Response<v1::RestoreVersionResponse>, Status> {
        let record = Record::begin(&request, "RestoreVersion", &request.get_ref().name);
        record.end(self.restore(request)).await
    }

    async fn fork_history(
        &self,
        request: Request<v1::ForkHistoryRequest>,
    ) -> Result<Response<v1::ForkHistoryResponse>, Status> {
        let v1::ForkHistoryRequest { source, name, .. } = request.get_ref();
        let record = Record::begin(&request, "ForkHistory", name).from_source(source);
        record.end(self.fork(request)).await
    }
}

/// What is refused about the new history names that; everything else is about
/// the source.
fn fork_failed(fork: &Fork, error: LifecycleError) -> Status {
    let newest_named = fork.version.unwrap_or_default().get();
    let about = |history| About { history, operation_id: "", newest_named };
    match error {
        error @ (LifecycleError::Exists
        | LifecycleError::BeingDeleted
        | LifecycleError::IdUsed
        | LifecycleError::NotConfirmed { .. }) => failed(about(&fork.child.history), error),
        error @ (LifecycleError::Submit(_) | LifecycleError::Ask(_)) => {
            failed(about(&fork.source), error)
        }
    }
}
