//! The three services, over a script.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard};

use futures::StreamExt;
use futures::stream::BoxStream;
use headwater_proto::reason;
use headwater_proto::v1;
use headwater_proto::v1::consistency::Level;
use headwater_proto::v1::history_service_server::{HistoryService, HistoryServiceServer};
use headwater_proto::v1::precondition::Kind as Precondition;
use headwater_proto::v1::read_service_server::{ReadService, ReadServiceServer};
use headwater_proto::v1::submit_stream_response::Result as WireResult;
use headwater_proto::v1::watch_service_server::{WatchService, WatchServiceServer};
use headwater_proto::v1::write_service_server::{WriteService, WriteServiceServer};
use tokio::io::DuplexStream;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Server;
use tonic::{Code, Request, Response, Status, Streaming};

use super::model::in_range;
use super::{Shared, Step, WatchedEnd, refusal};

#[derive(Clone)]
struct Fake {
    shared: Arc<Mutex<Shared>>,
    at: SocketAddr,
}

pub(crate) fn serve(
    shared: Arc<Mutex<Shared>>,
    at: SocketAddr,
    incoming: mpsc::Receiver<DuplexStream>,
) {
    let fake = Fake { shared, at };
    let incoming = ReceiverStream::new(incoming).map(Ok::<_, std::io::Error>);
    let serving = Server::builder()
        .add_service(WriteServiceServer::new(fake.clone()))
        .add_service(ReadServiceServer::new(fake.clone()))
        .add_service(WatchServiceServer::new(fake.clone()))
        .add_service(HistoryServiceServer::new(fake))
        .serve_with_incoming(incoming);
    tokio::spawn(serving);
}

/// An answer that never reaches its caller.
fn lost() -> Status {
    Status::unknown("the connection broke")
}

enum Reply {
    Answer(v1::SubmitResponse),
    Error(Status),
    Hang,
    End,
}

impl Fake {
    fn shared(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock().unwrap()
    }

    fn reply(&self, request: &v1::SubmitRequest) -> Reply {
        let mut shared = self.shared();
        shared.submissions.push((self.at, request.clone()));
        if !request.history_id.is_empty() && request.history_id != shared.model.history_id {
            return Reply::Error(refusal(reason::HISTORY_MISSING, Code::NotFound, None));
        }
        if has_long_bound(request) {
            return Reply::Error(refusal(reason::FIELD_INVALID, Code::InvalidArgument, None));
        }
        match shared.script.pop_front().unwrap_or(Step::Serve) {
            Step::Serve => Reply::Answer(shared.model.submit(request)),
            Step::ServeAndLose => {
                shared.model.submit(request);
                Reply::Error(lost())
            }
            Step::Lose => Reply::Error(lost()),
            Step::Refuse(status) => Reply::Error(status),
            Step::Say(response) => Reply::Answer(response),
            Step::Hang => Reply::Hang,
            Step::After(change) => {
                change(&mut shared.model);
                Reply::Answer(shared.model.submit(request))
            }
            Step::EndStream => Reply::End,
        }
    }

    fn view(&self, consistency: Option<v1::Consistency>) -> Result<u64, Status> {
        let mut shared = self.shared();
        if let Some(status) = shared.read_refusals.pop_front() {
            return Err(status);
        }
        let version = shared.model.version();
        match consistency.and_then(|it| it.level) {
            Some(Level::ExactVersion(exact)) => Ok(exact),
            Some(Level::AtLeastVersion(least)) if least > version => {
                Err(refusal(reason::EXPIRED, Code::DeadlineExceeded, None))
            }
            _ => Ok(version),
        }
    }

    fn stamp(&self, state_version: u64) -> v1::ReadStamp {
        let history_id = self.shared().model.history_id.clone();
        let said = self.shared().proof_ages.pop_front();
        let proof_age = said.unwrap_or_else(|| Some(prost_types::Duration::default()));
        v1::ReadStamp { history_id, state_version, revision: 1, proof_age }
    }

    fn entry(&self, key: &bytes::Bytes, version: u64) -> Option<v1::Entry> {
        let shared = self.shared();
        let (value, version) = shared.model.state(version).get(key)?.clone();
        Some(v1::Entry { key: key.clone(), value, version })
    }
}

/// Whether a precondition's range has a bound over the limit that `types.proto`
/// names.
fn has_long_bound(request: &v1::SubmitRequest) -> bool {
    let ranges = request.preconditions.iter().filter_map(|it| match it.kind.as_ref()? {
        Precondition::RangeUnchangedSince(it) => it.range.as_ref(),
        Precondition::KeyExists(_)
        | Precondition::KeyAbsent(_)
        | Precondition::KeyAtVersion(_)
        | Precondition::KeyUnchangedSince(_)
        | Precondition::ValueEquals(_) => None,
    });
    ranges.flat_map(|it| [&it.start, &it.end]).any(|bound| 1_025 < bound.len())
}

#[tonic::async_trait]
impl WriteService for Fake {
    async fn submit(
        &self,
        request: Request<v1::SubmitRequest>,
    ) -> Result<Response<v1::SubmitResponse>, Status> {
        let timeout = request.metadata().get("grpc-timeout");
        let timeout = timeout.map(|it| it.to_str().unwrap().to_owned());
        self.shared().timeouts.push(timeout);
        match self.reply(request.get_ref()) {
            Reply::Answer(response) => Ok(Response::new(response)),
            Reply::Error(status) => Err(status),
            Reply::Hang | Reply::End => std::future::pending().await,
        }
    }

    type SubmitStreamStream = BoxStream<'static, Result<v1::SubmitStreamResponse, Status>>;

    async fn submit_stream(
        &self,
        request: Request<Streaming<v1::SubmitRequest>>,
    ) -> Result<Response<Self::SubmitStreamStream>, Status> {
        self.shared().streams_opened += 1;
        let fake = self.clone();
        let answers = futures::stream::unfold(request.into_inner(), move |mut requests| {
            let fake = fake.clone();
            async move {
                loop {
                    let request = requests.next().await?.ok()?;
                    let result = match fake.reply(&request) {
                        Reply::Answer(response) => WireResult::Response(response),
                        Reply::Error(status) => {
                            WireResult::ErrorStatus(status.details().to_vec().into())
                        }
                        Reply::Hang => continue,
                        Reply::End => return None,
                    };
                    let operation_id = request.operation_id;
                    let answer = v1::SubmitStreamResponse { operation_id, result: Some(result) };
                    return Some((Ok(answer), requests));
                }
            }
        });
        Ok(Response::new(answers.boxed()))
    }

    async fn get_operation(
        &self,
        request: Request<v1::GetOperationRequest>,
    ) -> Result<Response<v1::GetOperationResponse>, Status> {
        use v1::get_operation_response::Outcome;
        let mut shared = self.shared();
        let outcome = match shared.model.receipt(&request.get_ref().operation_id) {
            Some(accepted) => Outcome::Accepted(accepted),
            None => Outcome::NotAcceptedThroughVersion(shared.model.version()),
        };
        shared.lookups.push(request.into_inner());
        let history_id = shared.model.history_id.clone();
        Ok(Response::new(v1::GetOperationResponse { history_id, outcome: Some(outcome) }))
    }

    type SubscribeHeadsStream = BoxStream<'static, Result<v1::SubscribeHeadsResponse, Status>>;

    async fn subscribe_heads(
        &self,
        _: Request<Streaming<v1::SubscribeHeadsRequest>>,
    ) -> Result<Response<Self::SubscribeHeadsStream>, Status> {
        Err(Status::unimplemented("not in the script"))
    }
}

#[tonic::async_trait]
impl ReadService for Fake {
    async fn get(
        &self,
        request: Request<v1::GetRequest>,
    ) -> Result<Response<v1::GetResponse>, Status> {
        let request = request.into_inner();
        self.shared().reads.push((self.at, request.clone()));
        let version = self.view(request.consistency)?;
        let entry = self.entry(&request.key, version);
        Ok(Response::new(v1::GetResponse { stamp: Some(self.stamp(version)), entry }))
    }

    async fn batch_get(
        &self,
        request: Request<v1::BatchGetRequest>,
    ) -> Result<Response<v1::BatchGetResponse>, Status> {
        let request = request.into_inner();
        let version = self.view(request.consistency)?;
        let found = |key| v1::batch_get_response::Found { entry: self.entry(key, version) };
        let found = request.keys.iter().map(found).collect();
        Ok(Response::new(v1::BatchGetResponse { stamp: Some(self.stamp(version)), found }))
    }

    /// Page tokens are `VERSION:SKIP`.
    async fn scan(
        &self,
        request: Request<v1::ScanRequest>,
    ) -> Result<Response<v1::ScanResponse>, Status> {
        let request = request.into_inner();
        let mut version = self.view(request.consistency)?;
        let mut skip = 0;
        if let Some((of, at)) = std::str::from_utf8(&request.page_token).unwrap().split_once(':') {
            (version, skip) = (of.parse().unwrap(), at.parse().unwrap());
        }
        let range = request.range.unwrap_or_default();
        let shared = self.shared();
        if shared.forgets_scans {
            version = shared.model.version();
        }
        let state = shared.model.state(version);
        let mut entries: Vec<_> = state
            .iter()
            .filter(|it| in_range(it.0, &range))
            .map(|(key, it)| v1::Entry { key: key.clone(), value: it.0.clone(), version: it.1 })
            .collect();
        drop(shared);
        if request.reverse {
            entries.reverse();
        }
        let size = if request.page_size == 0 { 1_000 } else { request.page_size as usize };
        let is_last = skip + size >= entries.len();
        let next = if is_last { String::new() } else { format!("{version}:{}", skip + size) };
        Ok(Response::new(v1::ScanResponse {
            stamp: Some(self.stamp(version)),
            entries: entries.into_iter().skip(skip).take(size).collect(),
            next_page_token: next.into(),
        }))
    }

    async fn get_head(
        &self,
        _: Request<v1::GetHeadRequest>,
    ) -> Result<Response<v1::GetHeadResponse>, Status> {
        Err(Status::unimplemented("not in the script"))
    }

    async fn list_changes(
        &self,
        _: Request<v1::ListChangesRequest>,
    ) -> Result<Response<v1::ListChangesResponse>, Status> {
        Err(Status::unimplemented("not in the script"))
    }

    /// Version `n` was decided `n` seconds after 1970.
    async fn version_at(
        &self,
        request: Request<v1::VersionAtRequest>,
    ) -> Result<Response<v1::VersionAtResponse>, Status> {
        let request = request.into_inner();
        let newest = self.view(request.consistency)?;
        let seconds = request.time.unwrap_or_default().seconds;
        let version = newest.min(seconds.try_into().unwrap());
        Ok(Response::new(v1::VersionAtResponse {
            stamp: Some(self.stamp(newest)),
            version,
            decided_at: (0 < version)
                .then(|| (std::time::UNIX_EPOCH + std::time::Duration::from_secs(version)).into()),
        }))
    }
}

#[tonic::async_trait]
impl WatchService for Fake {
    type WatchStream = BoxStream<'static, Result<v1::WatchResponse, Status>>;

    async fn watch(
        &self,
        request: Request<v1::WatchRequest>,
    ) -> Result<Response<Self::WatchStream>, Status> {
        let mut shared = self.shared();
        shared.watches.push((self.at, request.into_inner()));
        let Some(script) = shared.watch_script.pop_front() else {
            return Ok(Response::new(futures::stream::pending().boxed()));
        };
        let messages = futures::stream::iter(script.messages.into_iter().map(Ok));
        Ok(Response::new(match script.end {
            WatchedEnd::Ended => messages.boxed(),
            WatchedEnd::Silent => messages.chain(futures::stream::pending()).boxed(),
            // Before any message it is what the call ends with.
            WatchedEnd::Status(status) => {
                messages.chain(futures::stream::iter([Err(status)])).boxed()
            }
        }))
    }
}

#[tonic::async_trait]
impl HistoryService for Fake {
    async fn create_history(
        &self,
        request: Request<v1::CreateHistoryRequest>,
    ) -> Result<Response<v1::CreateHistoryResponse>, Status> {
        let request = request.into_inner();
        let mut shared = self.shared();
        let created = shared.model.history_id != request.history_id;
        shared.model.history_id.clone_from(&request.history_id);
        if let Some(Step::ServeAndLose) = shared.script.pop_front() {
            return Err(lost());
        }
        let history_id = request.history_id;
        let history = v1::History { name: request.name, history_id, ..Default::default() };
        Ok(Response::new(v1::CreateHistoryResponse { history: Some(history), created }))
    }

    async fn get_history(
        &self,
        request: Request<v1::GetHistoryRequest>,
    ) -> Result<Response<v1::GetHistoryResponse>, Status> {
        let mut shared = self.shared();
        shared.heads_read += 1;
        let history = v1::History {
            name: request.into_inner().name,
            history_id: shared.model.history_id.clone(),
            state_version: shared.model.version(),
            ..Default::default()
        };
        Ok(Response::new(v1::GetHistoryResponse { history: Some(history) }))
    }

    async fn list_histories(
        &self,
        _: Request<v1::ListHistoriesRequest>,
    ) -> Result<Response<v1::ListHistoriesResponse>, Status> {
        Err(Status::unimplemented("not in the script"))
    }

    async fn delete_history(
        &self,
        _: Request<v1::DeleteHistoryRequest>,
    ) -> Result<Response<v1::DeleteHistoryResponse>, Status> {
        let lost_before = matches!(self.shared().script.pop_front(), Some(Step::ServeAndLose));
        let missing = refusal(reason::HISTORY_MISSING, Code::NotFound, None);
        Err(if lost_before { lost() } else { missing })
    }

    async fn raise_writer_epoch(
        &self,
        _: Request<v1::RaiseWriterEpochRequest>,
    ) -> Result<Response<v1::RaiseWriterEpochResponse>, Status> {
        Err(Status::unimplemented("not in the script"))
    }
}
