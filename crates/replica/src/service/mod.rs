//! `headwater.v1.ReadService`, and `WatchService` in [`watch`].
//!
//! ```text
//! wire request -> request (checked, core types) -> Reader -> answer -> wire
//! ```
//!
//! In here: conversion, the limits of the contract, and page tokens. Not in
//! here: any decision about freshness.

mod answer;
mod changes;
mod request;
mod scan;
mod times;
mod token;
mod watch;

use std::sync::Arc;
use std::time::Duration;

use headwater_core::operation::Key;
use headwater_daemon::auth::{Role, allow};
use headwater_daemon::deadline;
use headwater_daemon::status::{FieldViolation, field_invalid};
use headwater_proto::v1;
use headwater_proto::v1::batch_get_response::Found;
use headwater_proto::v1::read_service_server::ReadService;
use tokio::time::Instant;
use tonic::{Request, Response, Status};

use self::answer::{entry, stamp, status};
use self::request::{Checked, Violations};
pub use self::watch::WatchRpc;
use crate::consistency::Consistency;
use crate::failure::ReadFailure;
use crate::histories::Histories;
use crate::reader::Reader;

/// Keys of one batch.
const BATCH_KEYS_MAX: usize = 1_024;
/// Keys and values of one batch's answer, in bytes.
const BATCH_BYTES_MAX: usize = 4 << 20;

/// `headwater.v1.ReadService` of one replica.
#[derive(Clone, Debug)]
pub struct ReadRpc {
    histories: Arc<Histories>,
    request_max: Duration,
}

/// A request whose common fields have been checked.
struct Call {
    reader: Reader,
    consistency: Consistency,
    deadline: Instant,
}

impl ReadRpc {
    pub(crate) fn new(histories: Arc<Histories>, request_max: Duration) -> Self {
        Self { histories, request_max }
    }

    fn call<T>(&self, request: &Request<T>, checked: Checked) -> Call {
        let Checked { history, history_id, consistency } = checked;
        let deadline = deadline::of(request.metadata(), self.request_max);
        let reader = Reader::new(Arc::clone(&self.histories), history).of_id(history_id);
        Call { reader, consistency, deadline }
    }
}

impl Call {
    fn status(&self, failure: &ReadFailure) -> Status {
        status(failure, self.reader.history())
    }
}

#[tonic::async_trait]
impl ReadService for ReadRpc {
    #[tracing::instrument(level = "debug", skip_all, fields(history = request.get_ref().history))]
    async fn get(
        &self,
        request: Request<v1::GetRequest>,
    ) -> Result<Response<v1::GetResponse>, Status> {
        allow(&request, Role::Read, &request.get_ref().history)?;
        let mut violations = Violations::default();
        let v1::GetRequest { history, consistency, history_id, key } = request.get_ref();
        let checked = violations.common(history, history_id, consistency.as_ref());
        let key = violations.key("key", key);
        let (checked, key) = violations.finish(checked.zip(key))?;
        let call = self.call(&request, checked);
        let read = call.reader.get(&key, call.consistency, call.deadline).await;
        let (found, pinned) = read.map_err(|it| call.status(&it))?;
        let stamp = Some(stamp(&pinned));
        Ok(Response::new(v1::GetResponse { stamp, entry: found.map(entry) }))
    }

    #[tracing::instrument(level = "debug", skip_all, fields(history = request.get_ref().history))]
    async fn batch_get(
        &self,
        request: Request<v1::BatchGetRequest>,
    ) -> Result<Response<v1::BatchGetResponse>, Status> {
        allow(&request, Role::Read, &request.get_ref().history)?;
        let mut violations = Violations::default();
        let v1::BatchGetRequest { history, consistency, history_id, keys } = request.get_ref();
        let checked = violations.common(history, history_id, consistency.as_ref());
        let keys = batch_keys(&mut violations, keys);
        let (checked, keys) = violations.finish(checked.zip(keys))?;
        let call = self.call(&request, checked);
        let read =
            call.reader.get_many(&keys, BATCH_BYTES_MAX, call.consistency, call.deadline).await;
        let (found, pinned) = read.map_err(|it| call.status(&it))?;
        let Some(found) = found else {
            let rule = format!("the entries pass {BATCH_BYTES_MAX} bytes; ask for fewer keys");
            return Err(field_invalid([FieldViolation::new("keys", rule)]));
        };
        let found = found.into_iter().map(|it| Found { entry: it.map(entry) }).collect();
        Ok(Response::new(v1::BatchGetResponse { stamp: Some(stamp(&pinned)), found }))
    }

    #[tracing::instrument(level = "debug", skip_all, fields(history = request.get_ref().history))]
    async fn scan(
        &self,
        request: Request<v1::ScanRequest>,
    ) -> Result<Response<v1::ScanResponse>, Status> {
        allow(&request, Role::Read, &request.get_ref().history)?;
        self.scan_page(request).await
    }

    #[tracing::instrument(level = "debug", skip_all, fields(history = request.get_ref().history))]
    async fn get_head(
        &self,
        request: Request<v1::GetHeadRequest>,
    ) -> Result<Response<v1::GetHeadResponse>, Status> {
        allow(&request, Role::Read, &request.get_ref().history)?;
        let mut violations = Violations::default();
        let v1::GetHeadRequest { history, consistency, history_id } = request.get_ref();
        let checked = violations.common(history, history_id, consistency.as_ref());
        let checked = violations.finish(checked)?;
        let call = self.call(&request, checked);
        let pinned = call.reader.pin(call.consistency, call.deadline).await;
        let pinned = pinned.map_err(|it| call.status(&it))?;
        let newest = pinned.head().state_version;
        if pinned.version() < newest {
            // The view is at hand, the head that it was built from is not.
            let wanted = pinned.version();
            let failure = ReadFailure::VersionRetired { wanted, oldest: newest, newest };
            return Err(call.status(&failure));
        }
        let head_json = pinned.head_json().clone();
        Ok(Response::new(v1::GetHeadResponse { stamp: Some(stamp(&pinned)), head_json }))
    }

    #[tracing::instrument(level = "debug", skip_all, fields(history = request.get_ref().history))]
    async fn list_changes(
        &self,
        request: Request<v1::ListChangesRequest>,
    ) -> Result<Response<v1::ListChangesResponse>, Status> {
        allow(&request, Role::Read, &request.get_ref().history)?;
        self.change_page(request).await
    }

    #[tracing::instrument(level = "debug", skip_all, fields(history = request.get_ref().history))]
    async fn version_at(
        &self,
        request: Request<v1::VersionAtRequest>,
    ) -> Result<Response<v1::VersionAtResponse>, Status> {
        allow(&request, Role::Read, &request.get_ref().history)?;
        self.find_version(request).await
    }
}

fn batch_keys(violations: &mut Violations, keys: &[bytes::Bytes]) -> Option<Vec<Key>> {
    let count = keys.len();
    if count == 0 || BATCH_KEYS_MAX < count {
        violations.add("keys", format!("1 to {BATCH_KEYS_MAX} keys are asked for, not {count}"));
        return None;
    }
    let keys = keys.iter().enumerate().map(|(i, it)| violations.key(&format!("keys[{i}]"), it));
    // All of them, so that all that are wrong are named.
    let keys: Vec<Option<Key>> = keys.collect();
    keys.into_iter().collect()
}
