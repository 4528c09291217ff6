//! Connections that are too many, too slow or too old, and what becomes of the
//! others meanwhile.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot set up has failed")]

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures::future::BoxFuture;
use headwater_daemon::auth::GuardLayer;
use headwater_daemon::limit::LimitOptions;
use headwater_daemon::serve::{
    Accept, Accepted, GrpcService, Listening, ServerOptions, Services, Serving,
};
use http::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_stream::StreamExt as _;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;
use tonic::Code;
use tonic::body::Body;
use tonic::transport::{Channel, Endpoint};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;
use tonic_reflection::pb::v1::ServerReflectionRequest;
use tonic_reflection::pb::v1::server_reflection_client::ServerReflectionClient;
use tonic_reflection::pb::v1::server_reflection_request::MessageRequest;
use tower::{Layer, Service};

/// Longer than anything here takes; a test that waits for it has failed.
const PATIENCE: Duration = Duration::from_secs(30);

/// How every HTTP/2 connection begins: the preface and empty settings.
const BEGINNING: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00";

struct Running {
    address: SocketAddr,
    stop: CancellationToken,
    task: JoinHandle<()>,
}

impl Running {
    async fn start(options: ServerOptions) -> Self {
        Self::start_with(Services::new(), options).await
    }

    async fn start_with(services: Services, options: ServerOptions) -> Self {
        let listening = Listening::bind("127.0.0.1:0".parse().unwrap()).await.unwrap();
        let address = listening.local_address();
        let stop = CancellationToken::new();
        let serving = Serving { options, ..Serving::new(stop.clone()) };
        let task =
            tokio::spawn(async move { listening.serve_with(services, serving).await.unwrap() });
        Self { address, stop, task }
    }

    async fn socket(&self) -> TcpStream {
        TcpStream::connect(self.address).await.unwrap()
    }

    fn channel(&self) -> Channel {
        Endpoint::from_shared(format!("http://{}", self.address)).unwrap().connect_lazy()
    }

    fn client(&self) -> HealthClient<Channel> {
        HealthClient::new(self.channel())
    }
}

/// A call that goes on, and not one of health.
struct LongCall {
    questions: tokio::sync::mpsc::Sender<ServerReflectionRequest>,
    answers: tonic::Streaming<tonic_reflection::pb::v1::ServerReflectionResponse>,
}

impl LongCall {
    async fn begin(channel: Channel) -> Self {
        let (questions, asked) = tokio::sync::mpsc::channel(1);
        let asked = tokio_stream::wrappers::ReceiverStream::new(asked);
        let mut client = ServerReflectionClient::new(channel);
        let answers = client.server_reflection_info(asked).await.unwrap().into_inner();
        let mut call = Self { questions, answers };
        call.goes_on().await;
        call
    }

    async fn goes_on(&mut self) {
        let list = Some(MessageRequest::ListServices(String::new()));
        let question = ServerReflectionRequest { host: String::new(), message_request: list };
        self.questions.send(question).await.unwrap();
        timeout(PATIENCE, self.answers.next()).await.unwrap().unwrap().unwrap();
    }
}

fn whole_server() -> HealthCheckRequest {
    HealthCheckRequest::default()
}

/// Whether the other side ends the connection.
async fn is_ended(mut socket: TcpStream) -> bool {
    let end = async {
        let mut buffer = [0; 1_024];
        while let Ok(1..) = socket.read(&mut buffer).await {}
    };
    timeout(PATIENCE, end).await.is_ok()
}

#[tokio::test]
async fn who_sends_nothing_or_little_is_sent_away() {
    let options = ServerOptions { handshake_timeout_ms: 100, ..ServerOptions::default() };
    let server = Running::start(options).await;
    let mut client = server.client();
    client.check(whole_server()).await.unwrap();

    let silent = server.socket().await;
    let mut hesitant = server.socket().await;
    hesitant.write_all(&BEGINNING[..20]).await.unwrap();
    let mut other = server.socket().await;
    other.write_all(b"GET / HTTP/1.1\r\nhost: h\r\n\r\n").await.unwrap();

    assert!(is_ended(silent).await && is_ended(hesitant).await && is_ended(other).await);
    client.check(whole_server()).await.unwrap();
}

/// With the clock stopped, since it takes half a minute: time passes only when
/// nobody has anything to do.
#[tokio::test(start_paused = true)]
async fn who_sends_a_frame_byte_by_byte_is_sent_away() {
    let server = Running::start(ServerOptions::default()).await;
    let mut slow = server.socket().await;
    slow.write_all(BEGINNING).await.unwrap();
    // The header of a HEADERS frame of 200 bytes, which never come.
    slow.write_all(b"\x00\x00\xc8\x01\x04\x00\x00\x00\x01\x82").await.unwrap();

    let mut buffer = Vec::new();
    timeout(Duration::from_secs(60), slow.read_to_end(&mut buffer)).await.unwrap().ok();
}

#[tokio::test]
async fn a_flood_of_connections_leaves_callers_alone_and_gives_way_to_new_ones() {
    let options = ServerOptions { connections_max: 32, ..ServerOptions::default() };
    let server = Running::start(options).await;
    let channel = server.channel();
    let mut early = HealthClient::new(channel.clone());
    let mut call = LongCall::begin(channel).await;

    // Ten times as many as there may be, all held open as far as they are let.
    let mut flood = Vec::new();
    for _ in 0..320 {
        let mut socket = server.socket().await;
        socket.write_all(BEGINNING).await.ok();
        flood.push(socket);
    }

    // The one with a call is as it was, and a new caller finds a place once
    // those of the flood have been idle for a while.
    early.check(whole_server()).await.unwrap();
    let mut late = server.client();
    let found = async {
        while late.check(whole_server()).await.is_err() {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    timeout(PATIENCE, found).await.expect("a place is made");
    call.goes_on().await;
}

#[tokio::test]
async fn past_the_limit_connections_with_calls_stay_and_new_ones_are_refused() {
    let options = ServerOptions { connections_max: 2, ..ServerOptions::default() };
    let server = Running::start(options).await;
    let mut calls = Vec::new();
    for _ in 0..2 {
        calls.push(LongCall::begin(server.channel()).await);
    }

    assert!(is_ended(server.socket().await).await);
    assert!(server.client().check(whole_server()).await.is_err());

    for call in &mut calls {
        call.goes_on().await;
    }
}

#[tokio::test]
async fn connections_with_calls_of_health_alone_make_room() {
    let options = ServerOptions { connections_max: 2, ..ServerOptions::default() };
    let server = Running::start(options).await;
    let mut held = Vec::new();
    for _ in 0..2 {
        let mut client = server.client();
        let mut watch = client.watch(whole_server()).await.unwrap().into_inner();
        watch.next().await.unwrap().unwrap();
        // One after the other, for as long as the connection lives.
        let asking = async move { while client.check(whole_server()).await.is_ok() {} };
        held.push((watch, AbortOnDropHandle::new(tokio::spawn(asking))));
    }

    let mut late = server.client();
    let found = async {
        while late.check(whole_server()).await.is_err() {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    timeout(PATIENCE, found).await.expect("a place is made");
}

#[tokio::test]
async fn streams_end_with_the_age_of_their_connection_and_calls_go_on_over_a_new_one() {
    let options = ServerOptions {
        connection_age_seconds_max: 1,
        connection_age_grace_seconds: 3_600,
        ..ServerOptions::default()
    };
    let server = Running::start(options).await;
    let mut client = server.client();
    let mut watch = client.watch(whole_server()).await.unwrap().into_inner();
    watch.next().await.unwrap().unwrap();

    // By itself, and well before the grace is over.
    let end = timeout(PATIENCE, watch.next()).await.expect("the stream ends");

    assert!(end.is_none_or(|it| it.is_err()));
    client.check(whole_server()).await.unwrap();
}

#[tokio::test]
async fn while_the_delay_lasts_it_is_not_ready_and_serves_everybody() {
    let options = ServerOptions { drain_delay_seconds: 3_600, ..ServerOptions::default() };
    let server = Running::start(options).await;
    let mut watch = server.client().watch(whole_server()).await.unwrap().into_inner();
    assert_eq!(watch.next().await.unwrap().unwrap().status(), ServingStatus::Serving);

    server.stop.cancel();

    assert_eq!(watch.next().await.unwrap().unwrap().status(), ServingStatus::NotServing);
    let answer = server.client().check(whole_server()).await.unwrap().into_inner();
    assert_eq!(answer.status(), ServingStatus::NotServing, "on a new connection");
    assert!(!server.task.is_finished());
}

/// Calls that never end, whatever is called.
#[derive(Clone)]
struct Never;

impl Layer<GrpcService> for Never {
    type Service = Self;

    fn layer(&self, _inner: GrpcService) -> Self {
        Self
    }
}

impl Service<Request<Body>> for Never {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = std::future::Pending<Result<Response<Body>, Infallible>>;

    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _request: Request<Body>) -> Self::Future {
        std::future::pending()
    }
}

#[tokio::test]
async fn a_deadline_is_kept_for_services_that_do_not_look_at_it() {
    let services = Services::new().with_layer(Never);
    let server = Running::start_with(services, ServerOptions::default()).await;
    // Without a client that counts the time itself.
    let io = TokioIo::new(server.socket().await);
    let (mut http, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), io).await.unwrap();
    let connection = AbortOnDropHandle::new(tokio::spawn(connection));
    let request = Request::post(format!("http://{}/any.Service/Call", server.address))
        .header("content-type", "application/grpc")
        .header("grpc-timeout", "50m")
        .body(Body::empty())
        .unwrap();

    let answer = timeout(PATIENCE, http.send_request(request)).await.expect("it is answered");

    let code = Code::from_bytes(answer.unwrap().headers()["grpc-status"].as_bytes());
    assert_eq!(code, Code::DeadlineExceeded);
    drop(connection);
}

#[tokio::test]
async fn calls_that_do_not_end_are_cut_when_the_drain_has_lasted_long_enough() {
    let services = Services::new().with_layer(Never);
    let options = ServerOptions { drain_seconds_max: 0, ..ServerOptions::default() };
    let server = Running::start_with(services, options).await;
    let mut client = server.client();
    let call = tokio::spawn(async move { client.check(whole_server()).await });
    // Until the call is there, which nobody says.
    tokio::time::sleep(Duration::from_millis(200)).await;

    server.stop.cancel();

    timeout(PATIENCE, server.task).await.expect("it ends").unwrap();
    assert!(timeout(PATIENCE, call).await.expect("the call ends").unwrap().is_err());
}

/// A handshake that never ends.
struct NoHandshake;

impl Accept for NoHandshake {
    fn accept(&self, _: TcpStream) -> BoxFuture<'static, std::io::Result<Accepted>> {
        Box::pin(std::future::pending())
    }
}

/// Longer than a test waits: whoever holds the drain has failed it.
const LONG_DRAIN: ServerOptions = ServerOptions {
    drain_delay_seconds: 0,
    drain_seconds_max: 3_600,
    connection_age_seconds_max: 0,
    connection_age_grace_seconds: 30,
    connections_max: 100,
    handshake_timeout_ms: 3_600_000,
};

#[tokio::test]
async fn who_does_not_answer_does_not_hold_the_drain_and_who_has_a_call_does() {
    let server = Running::start(LONG_DRAIN).await;
    let mut silent = Vec::new();
    for sent in [0, 20, BEGINNING.len()] {
        let mut socket = server.socket().await;
        socket.write_all(&BEGINNING[..sent]).await.unwrap();
        silent.push(socket);
    }
    let mut call = LongCall::begin(server.channel()).await;
    let mut idle = server.client();
    idle.check(whole_server()).await.unwrap();

    server.stop.cancel();

    for socket in silent {
        assert!(is_ended(socket).await);
    }
    call.goes_on().await;
    assert!(!server.task.is_finished());
    drop((call, idle));
    timeout(PATIENCE, server.task).await.expect("nobody holds it").unwrap();
}

#[tokio::test]
async fn a_handshake_that_does_not_end_does_not_hold_the_drain() {
    let listening = Listening::bind("127.0.0.1:0".parse().unwrap()).await.unwrap();
    let (address, stop) = (listening.local_address(), CancellationToken::new());
    let acceptor = Arc::new(NoHandshake);
    let serving = Serving { options: LONG_DRAIN, acceptor, ..Serving::new(stop.clone()) };
    let server = tokio::spawn(listening.serve_with(Services::new(), serving));
    let _socket = TcpStream::connect(address).await.unwrap();
    // Until it was taken, which nobody says.
    tokio::time::sleep(Duration::from_millis(200)).await;

    stop.cancel();

    timeout(PATIENCE, server).await.expect("nobody holds it").unwrap().unwrap();
}

/// Answers that are larger than what a caller has room for.
#[derive(Clone)]
struct Large;

impl Service<Request<Body>> for Large {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = std::future::Ready<Result<Response<Body>, Infallible>>;

    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request<Body>) -> Self::Future {
        let body = http_body_util::Full::new(bytes::Bytes::from(vec![0; 1 << 20]));
        std::future::ready(Ok(Response::new(Body::new(body))))
    }
}

impl Layer<GrpcService> for Large {
    type Service = Self;

    fn layer(&self, _inner: GrpcService) -> Self {
        Self
    }
}

/// With the clock stopped, since it takes a minute.
#[tokio::test(start_paused = true)]
async fn who_does_not_take_its_answers_is_sent_away_and_gives_back_what_it_held() {
    let guard = GuardLayer::new(None, LimitOptions::default());
    let limits = guard.limits();
    let services = Services::new().with_layer(guard).with_layer(Large);
    let server = Running::start_with(services, ServerOptions::default()).await;
    let io = TokioIo::new(server.socket().await);
    let mut builder = hyper::client::conn::http2::Builder::new(TokioExecutor::new());
    builder.initial_stream_window_size(1);
    let (mut http, connection) = builder.handshake(io).await.unwrap();
    let connection = tokio::spawn(connection);
    let path = format!("http://{}/headwater.v1.ReadService/Get", server.address);
    let asked = Request::post(path).body(Body::empty()).unwrap();
    let answer = http.send_request(asked).await.unwrap();
    while limits.answer_bytes() == 0 {
        tokio::task::yield_now().await;
    }

    let ended = timeout(Duration::from_secs(300), connection).await.expect("it is sent away");

    drop((ended, answer));
    while limits.answer_bytes() != 0 {
        tokio::task::yield_now().await;
    }
}
