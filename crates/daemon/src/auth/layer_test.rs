use std::path::Path;

use headwater_proto::limits::MESSAGE_BYTES_MAX;
use headwater_proto::reason;
use headwater_store::{Clock, Entropy};
use http_body_util::{BodyExt as _, StreamBody};
use hyper::body::{Bytes, Frame};
use tokio::sync::mpsc;
use tokio::time::Instant;
use tonic::Code;
use tonic_types::StatusExt as _;
use tower::ServiceExt as _;

use super::*;
use crate::auth::token::NewToken;

#[path = "layer_bytes_test.rs"]
mod bytes;

const GET: &str = "/headwater.v1.ReadService/Get";
const DELETE: &str = "/headwater.v1.HistoryService/DeleteHistory";
const WATCH: &str = "/headwater.v1.WatchService/Watch";
const HEALTH: &str = "/grpc.health.v1.Health/Check";
const HEALTH_WATCH: &str = "/grpc.health.v1.Health/Watch";

/// What reached the service.
#[derive(Debug)]
struct Reached {
    caller: Arc<Caller>,
    has_authorization: bool,
    body: Result<Bytes, Status>,
}

/// Reads the whole request and answers with nothing, or never.
#[derive(Clone)]
struct Service {
    reached: mpsc::Sender<Reached>,
    is_endless: bool,
    /// Length of its answer.
    answer: usize,
}

impl tonic::codegen::Service<Request<Body>> for Service {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Response<Body>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let service = self.clone();
        Box::pin(async move {
            let caller = request.extensions().get::<Arc<Caller>>().unwrap();
            let caller = Arc::clone(caller);
            let has_authorization = request.headers().contains_key(AUTHORIZATION);
            let body = request.into_body().collect().await.map(http_body_util::Collected::to_bytes);
            let refused = body.as_ref().err().cloned();
            service.reached.send(Reached { caller, has_authorization, body }).await.unwrap();
            if let Some(refused) = refused {
                return Ok(refused.into_http());
            }
            let body = if service.is_endless {
                Body::new(StreamBody::new(tokio_stream::pending::<Result<Frame<Bytes>, Status>>()))
            } else {
                full(message(service.answer))
            };
            Ok(Response::new(body))
        })
    }
}

struct World {
    guard: Guard<Service>,
    layer: GuardLayer,
    authenticator: Option<Authenticator>,
    reached: mpsc::Receiver<Reached>,
    token: NewToken,
    file: tempfile::NamedTempFile,
}

fn row(token: &NewToken, role: &str) -> String {
    let (id, hash) = (&token.id, token.hash.to_text());
    format!(
        "[[token]]\nname = \"t\"\nid = \"{id}\"\nhash = \"{hash}\"\n\
         grants = [{{ role = \"{role}\", histories = [\"app-\"] }}]\n"
    )
}

impl World {
    async fn new(has_rights: bool, options: LimitOptions) -> Self {
        let token = NewToken::draw(&Entropy::from_seed(1));
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), row(&token, "write")).unwrap();
        let authenticator = if has_rights { Some(load(file.path()).await) } else { None };
        let (sender, reached) = mpsc::channel(64);
        let layer = GuardLayer::new(authenticator.clone(), options);
        let guard = layer.layer(Service { reached: sender, is_endless: false, answer: 1 });
        Self { guard, layer, authenticator, reached, token, file }
    }

    fn request(&self, path: &str, body: Body) -> Request<Body> {
        let request = Request::builder().uri(path);
        request.header(AUTHORIZATION, format!("Bearer {}", self.token.text)).body(body).unwrap()
    }

    async fn call(&self, request: Request<Body>) -> Response<Body> {
        self.guard.clone().oneshot(request).await.unwrap()
    }

    async fn refused(&self, request: Request<Body>) -> Status {
        let answer = self.call(request).await;
        Status::from_header_map(answer.headers()).expect("a refusal")
    }
}

async fn load(path: &Path) -> Authenticator {
    let clock = Clock::virtual_from(1_800_000_000_000);
    Authenticator::load(path.to_owned(), clock).await.unwrap()
}

fn anonymous(path: &str) -> Request<Body> {
    Request::builder().uri(path).body(Body::empty()).unwrap()
}

fn told(status: &Status) -> String {
    status.get_error_details().error_info().unwrap().reason.clone()
}

fn message(len: usize) -> Vec<u8> {
    let mut bytes = vec![0];
    bytes.extend(u32::try_from(len).unwrap().to_be_bytes());
    bytes.resize(5 + len, 7);
    bytes
}

fn full(bytes: Vec<u8>) -> Body {
    Body::new(http_body_util::Full::new(Bytes::from(bytes)))
}

#[tokio::test(start_paused = true)]
async fn who_proves_nothing_is_refused_everything_but_health() {
    let mut world = World::new(true, LimitOptions::default()).await;
    for method in methods::METHODS.iter().filter(|it| it.need != Need::Open) {
        let refused = world.refused(anonymous(method.path)).await;
        assert_eq!(refused.code(), Code::Unauthenticated, "{}", method.path);
        assert_eq!(told(&refused), reason::UNAUTHENTICATED);
    }
    assert_eq!(world.call(anonymous(HEALTH)).await.status(), 200);
    assert!(&*world.reached.try_recv().unwrap().caller.name == "health unknown");
    assert!(world.reached.try_recv().is_err(), "nothing else has reached a service");
}

#[tokio::test(start_paused = true)]
async fn a_role_too_small_everywhere_reaches_no_service() {
    let mut world = World::new(true, LimitOptions::default()).await;

    let refused = world.refused(world.request(DELETE, Body::empty())).await;
    assert_eq!(
        (refused.code(), told(&refused).as_str()),
        (Code::PermissionDenied, reason::PERMISSION_DENIED)
    );
    let unknown = world.request("/headwater.v1.ReadService/NewOne", Body::empty());
    assert_eq!(world.refused(unknown).await.code(), Code::PermissionDenied);
    assert!(world.reached.try_recv().is_err());

    world.call(world.request(GET, Body::empty())).await;
    let reached = world.reached.try_recv().unwrap();
    assert_eq!(&*reached.caller.name, "token t");
    assert!(reached.caller.allow(Role::Write, "app-1").is_ok());
    assert!(!reached.has_authorization, "the token goes no further than the layer");
}

#[tokio::test(start_paused = true)]
async fn a_call_counts_until_its_answer_is_done_or_dropped() {
    let options =
        LimitOptions { caller_requests_max: 1, requests_max: 1, ..LimitOptions::default() };
    let mut world = World::new(true, options).await;
    let limits = world.layer.limits();
    let body = full(message(100));

    let answer = world.call(world.request(GET, body)).await;
    assert_eq!((limits.calls(), limits.bytes()), (1, 105));
    let refused = world.refused(world.request(GET, Body::empty())).await;
    assert_eq!(told(&refused), reason::TOO_MANY_REQUESTS);
    assert!(refused.get_error_details().retry_info().is_some());
    assert_eq!(world.call(anonymous(HEALTH)).await.status(), 200, "health counts apart");

    answer.into_body().collect().await.unwrap();
    assert_eq!((limits.calls(), limits.bytes()), (0, 0));
    drop(world.call(world.request(GET, Body::empty())).await);
    assert_eq!(limits.calls(), 0);
    while world.reached.try_recv().is_ok() {}
}

#[tokio::test(start_paused = true)]
async fn without_rights_everybody_may_and_an_address_has_its_limit() {
    let options = LimitOptions { caller_requests_max: 1, ..LimitOptions::default() };
    let mut world = World::new(false, options).await;
    let from = |address: &str| {
        let mut request = anonymous(DELETE);
        let remote_addr = Some(address.parse().unwrap());
        request.extensions_mut().insert(TcpConnectInfo { local_addr: None, remote_addr });
        request
    };
    let _held = world.call(from("10.0.0.1:1")).await;
    let caller = world.reached.try_recv().unwrap().caller;
    assert_eq!(&*caller.name, "address 10.0.0.1");
    assert!(caller.allow(Role::Admin, "anything").is_ok());

    assert_eq!(told(&world.refused(from("10.0.0.1:2")).await), reason::TOO_MANY_REQUESTS);
    assert_eq!(world.call(from("10.0.0.2:1")).await.status(), 200);
    // Of IPv6 it is the network.
    let _held = world.call(from("[2001:db8::1]:1")).await;
    assert_eq!(told(&world.refused(from("[2001:db8::2]:1")).await), reason::TOO_MANY_REQUESTS);
}

#[tokio::test(start_paused = true)]
async fn a_message_over_the_limit_is_refused_by_its_first_bytes() {
    let mut world = World::new(true, LimitOptions::default()).await;
    let mut head = vec![0];
    head.extend(u32::try_from(MESSAGE_BYTES_MAX + 1).unwrap().to_be_bytes());
    // No more of it ever comes.
    let (_kept, body) = half_sent(head);

    let refused = world.refused(world.request(GET, body)).await;

    assert_eq!(refused.code(), Code::ResourceExhausted);
    assert_eq!(told(&refused), reason::MESSAGE_TOO_LARGE);
    assert!(world.reached.try_recv().unwrap().body.is_err());
}

#[tokio::test(start_paused = true)]
async fn a_request_that_does_not_arrive_is_cut_off() {
    // Also where only the answers are a stream.
    for path in [GET, WATCH, HEALTH, HEALTH_WATCH] {
        let mut world = World::new(true, LimitOptions::default()).await;
        let began = Instant::now();
        let (_kept, body) = half_sent(message(100)[..50].to_vec());

        let answering = world.refused(world.request(path, body));
        let refused = tokio::time::timeout(Duration::from_secs(60), answering).await;

        assert_eq!(told(&refused.expect(path)), reason::EXPIRED, "{path}");
        assert_eq!(began.elapsed(), Duration::from_secs(30));
        assert_eq!(world.layer.limits().bytes(), 0);
        assert!(world.reached.try_recv().unwrap().body.is_err());
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_that_trickles_is_cut_off_too() {
    let mut world = World::new(true, LimitOptions::default()).await;
    let (sender, body) = half_sent(message(1_000)[..50].to_vec());
    let trickling = async {
        while sender.send(Ok(Frame::data(Bytes::from_static(b"x")))).await.is_ok() {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    let (refused, ()) = tokio::join!(world.refused(world.request(WATCH, body)), trickling);
    assert_eq!(told(&refused), reason::EXPIRED);
    assert!(world.reached.try_recv().unwrap().body.is_err());
}

#[tokio::test(start_paused = true)]
async fn what_nobody_answers_for_is_small_and_takes_no_room() {
    let mut world = World::new(true, LimitOptions::default()).await;
    for path in [HEALTH, HEALTH_WATCH] {
        for body in [
            // One that says that it will be large, many that are empty, and two
            // where there should be one.
            message(4 << 20)[..1_000].to_vec(),
            vec![0; 5 << 10],
            message(3_000).repeat(2),
        ] {
            let (_kept, body) = half_sent(body);
            let refused = world.refused(Request::builder().uri(path).body(body).unwrap()).await;
            assert_eq!(told(&refused), reason::MESSAGE_TOO_LARGE, "{path}");
            assert!(world.reached.try_recv().unwrap().body.is_err());
        }
    }
    // Half of one is held, and counts for nobody.
    let mut held = Vec::new();
    for _ in 0..65 {
        let (kept, body) = half_sent(message(4_000)[..3_000].to_vec());
        let guard = world.guard.clone();
        let request = Request::builder().uri(HEALTH).body(body).unwrap();
        held.push((kept, tokio::spawn(async move { guard.oneshot(request).await })));
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(world.layer.limits().bytes(), 0);
    for (_, answering) in held {
        assert!(!answering.is_finished());
        answering.abort();
    }
}

#[tokio::test(start_paused = true)]
async fn watches_of_health_have_an_end_for_an_address_and_for_all() {
    let options = LimitOptions { requests_max: 300, ..LimitOptions::default() };
    let mut world = World::new(true, options).await;
    world.guard.inner.is_endless = true;
    let from = |path: &str, address: &str| {
        let mut request = anonymous(path);
        let remote_addr = Some(address.parse().unwrap());
        request.extensions_mut().insert(TcpConnectInfo { local_addr: None, remote_addr });
        request
    };
    let mut held = Vec::new();
    let mut refused = Vec::new();
    for (address, count) in [("10.0.0.1:1", 257), ("10.0.0.2:1", 45)] {
        for _ in 0..count {
            let answer = world.call(from(HEALTH_WATCH, address)).await;
            match Status::from_header_map(answer.headers()) {
                None => held.push((answer, world.reached.try_recv().unwrap())),
                Some(status) => refused.push(status),
            }
        }
    }
    // The 257th of the one, and after 44 of the other there are 300.
    assert_eq!(held.len(), 300);
    assert_eq!(refused.len(), 2);
    for status in &refused {
        assert_eq!(status.code(), Code::ResourceExhausted);
        assert_eq!(told(status), reason::TOO_MANY_REQUESTS);
        assert!(status.get_error_details().retry_info().is_some());
    }
    // A check of the same address is answered, and so is whoever has a token.
    assert_eq!(world.call(from(HEALTH, "10.0.0.1:1")).await.status(), 200);
    let body = world.call(world.request(GET, Body::empty())).await;
    assert!(Status::from_header_map(body.headers()).is_none());
    held.clear();
    let again = world.call(from(HEALTH_WATCH, "10.0.0.2:1")).await;
    assert!(Status::from_header_map(again.headers()).is_none());
}

#[tokio::test(start_paused = true)]
async fn a_call_of_one_message_is_refused_what_comes_after_it() {
    let mut world = World::new(true, LimitOptions::default()).await;
    for path in [GET, WATCH] {
        let body = full(message(MESSAGE_BYTES_MAX / 2).repeat(3));
        let refused = world.refused(world.request(path, body)).await;
        assert_eq!(told(&refused), reason::MESSAGE_TOO_LARGE, "{path}");
        assert!(world.reached.try_recv().unwrap().body.is_err());
        assert_eq!(world.layer.limits().bytes(), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn the_request_of_a_stream_of_answers_counts_until_it_has_arrived() {
    let options = LimitOptions { request_bytes_max: 1 << 20, ..LimitOptions::default() };
    let mut world = World::new(true, options).await;
    let limits = world.layer.limits();
    world.guard.inner.is_endless = true;
    let answer = world.call(world.request(WATCH, full(message(1_000)))).await;
    assert_eq!((limits.calls(), limits.bytes()), (1, 0));
    drop(answer);
    assert!(world.reached.try_recv().unwrap().body.is_ok());

    let refused = world.refused(world.request(WATCH, full(message(1 << 20)))).await;
    assert_eq!(told(&refused), reason::TOO_MANY_REQUESTS);
    assert!(world.reached.try_recv().unwrap().body.is_err());
}

/// A body of which a part has come, and the rest will when the sender says so.
fn half_sent(bytes: Vec<u8>) -> (mpsc::Sender<Result<Frame<Bytes>, Status>>, Body) {
    let (sender, receiver) = mpsc::channel(4);
    sender.try_send(Ok(Frame::data(Bytes::from(bytes)))).unwrap();
    let stream = tokio_stream::wrappers::ReceiverStream::new(receiver);
    (sender, Body::new(StreamBody::new(stream)))
}

#[tokio::test(start_paused = true)]
async fn a_stream_ends_when_its_callers_rights_change() {
    let other = NewToken::draw(&Entropy::from_seed(2));
    for (change, is_ended) in [
        // Somebody else came.
        (|own: &NewToken, other: &NewToken| row(own, "write") + &row(other, "read"), false),
        // The role shrank; the token went.
        (|own: &NewToken, _: &NewToken| row(own, "read"), true),
        (|_: &NewToken, other: &NewToken| row(other, "write"), true),
    ] as [(fn(&NewToken, &NewToken) -> String, bool); 3]
    {
        let mut world = World::new(true, LimitOptions::default()).await;
        world.guard.inner.is_endless = true;
        let answer = world.call(world.request(WATCH, Body::empty())).await;
        let limits = world.layer.limits();
        assert_eq!(limits.calls(), 1);
        let mut body = answer.into_body();

        std::fs::write(world.file.path(), change(&world.token, &other)).unwrap();
        assert!(world.authenticator.as_ref().unwrap().reload().await.unwrap());

        let next = tokio::time::timeout(Duration::from_secs(60), body.frame()).await;
        assert_eq!(next.is_ok(), is_ended);
        if let Ok(frame) = next {
            let trailers = frame.unwrap().unwrap().into_trailers().unwrap();
            let end = Status::from_header_map(&trailers).unwrap();
            assert_eq!(end.code(), Code::Unauthenticated);
            let details = end.get_error_details();
            assert_eq!(
                details.error_info().unwrap().metadata[reason::DETERMINACY],
                reason::MAYBE_APPLIED
            );
            assert!(details.retry_info().is_some());
            assert_eq!(limits.calls(), 0);
            assert!(body.frame().await.is_none());
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_stream_ends_when_its_token_expires() {
    let mut world = World::new(true, LimitOptions::default()).await;
    let expiring =
        row(&world.token, "read").replace("grants", "expires = 2027-01-15T08:01:00Z\ngrants");
    std::fs::write(world.file.path(), expiring).unwrap();
    world.authenticator.as_ref().unwrap().reload().await.unwrap();
    world.guard.inner.is_endless = true;
    let began = Instant::now();

    let mut body = world.call(world.request(WATCH, Body::empty())).await.into_body();
    let frame = body.frame().await.unwrap().unwrap();

    assert!(frame.is_trailers());
    // The clock began at 08:00:00 of that day.
    let took = began.elapsed();
    assert!(Duration::from_secs(59) <= took && took <= Duration::from_secs(61), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn a_bad_file_of_rights_keeps_the_old_ones() {
    let world = World::new(true, LimitOptions::default()).await;
    let authenticator = world.authenticator.clone().unwrap();
    std::fs::write(world.file.path(), "token = 1").unwrap();

    assert!(authenticator.reload().await.is_err());
    assert_eq!(world.call(world.request(GET, Body::empty())).await.status(), 200);

    std::fs::write(world.file.path(), "").unwrap();
    assert!(authenticator.reload().await.unwrap());
    assert_eq!(
        world.refused(world.request(GET, Body::empty())).await.code(),
        Code::Unauthenticated
    );
}
