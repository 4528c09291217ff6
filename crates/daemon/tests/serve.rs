//! A server over a real socket: what it answers, and how it stops.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot set up has failed")]

use std::net::SocketAddr;
use std::time::Duration;

use headwater_daemon::serve::{Listening, ServeError, Services};
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_stream::StreamExt;
use tokio_util::sync::CancellationToken;
use tonic::transport::Channel;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;
use tonic_reflection::pb::v1::ServerReflectionRequest;
use tonic_reflection::pb::v1::server_reflection_client::ServerReflectionClient;
use tonic_reflection::pb::v1::server_reflection_request::MessageRequest;
use tonic_reflection::pb::v1::server_reflection_response::MessageResponse;

/// Longer than anything here takes; a test that waits for it has failed.
const PATIENCE: Duration = Duration::from_secs(20);

struct Running {
    address: SocketAddr,
    stop: CancellationToken,
    task: JoinHandle<Result<(), ServeError>>,
}

impl Running {
    async fn start(drain_max: Duration) -> Self {
        let listening = Listening::bind("127.0.0.1:0".parse().unwrap()).await.unwrap();
        let address = listening.local_address();
        let stop = CancellationToken::new();
        let task = tokio::spawn(listening.serve(Services::new(), stop.clone(), drain_max));
        Self { address, stop, task }
    }

    async fn channel(&self) -> Channel {
        let uri = format!("http://{}", self.address);
        Channel::from_shared(uri).unwrap().connect().await.unwrap()
    }

    async fn ended(self) {
        timeout(PATIENCE, self.task).await.expect("the server stops").unwrap().unwrap();
    }
}

fn whole_server() -> HealthCheckRequest {
    HealthCheckRequest { service: String::new() }
}

#[tokio::test]
async fn an_open_stream_does_not_hold_the_process() {
    let server = Running::start(Duration::from_millis(50)).await;
    let mut health = HealthClient::new(server.channel().await);
    let mut watched = health.watch(whole_server()).await.unwrap().into_inner();
    let first = watched.next().await.unwrap().unwrap();
    assert_eq!(first.status(), ServingStatus::Serving);

    server.stop.cancel();

    let second = watched.next().await.unwrap().unwrap();
    assert_eq!(second.status(), ServingStatus::NotServing);
    server.ended().await;
    // The connection was cut with the server, not left to its own devices.
    let end = timeout(PATIENCE, watched.next()).await.expect("the stream ends");
    assert!(end.is_none_or(|it| it.is_err()));
}

#[tokio::test]
async fn a_stopped_server_accepts_nobody() {
    let server = Running::start(Duration::from_secs(60)).await;
    let address = server.address;
    drop(server.channel().await);

    server.stop.cancel();
    server.ended().await;

    assert!(tokio::net::TcpStream::connect(address).await.is_err());
}

#[tokio::test]
async fn reflection_describes_the_contract() {
    let server = Running::start(Duration::ZERO).await;
    let mut reflection = ServerReflectionClient::new(server.channel().await);
    let symbol = "headwater.v1.WriteService".to_owned();
    let request = ServerReflectionRequest {
        host: String::new(),
        message_request: Some(MessageRequest::FileContainingSymbol(symbol)),
    };

    let answers = reflection.server_reflection_info(tokio_stream::iter([request])).await.unwrap();

    let answer = answers.into_inner().next().await.unwrap().unwrap();
    assert!(matches!(
        answer.message_response,
        Some(MessageResponse::FileDescriptorResponse(it)) if !it.file_descriptor_proto.is_empty()
    ));
}

#[tokio::test]
async fn a_taken_address_is_named() {
    let first = Listening::bind("127.0.0.1:0".parse().unwrap()).await.unwrap();

    let error = Listening::bind(first.local_address()).await.unwrap_err();

    assert_eq!(error.address, first.local_address());
}
