//! Callers that ask and do not read: what was made for them has a limit, and a
//! good one is served all the while.

use headwater_client::Outcome;
use headwater_daemon::auth::Role;
use headwater_daemon::limit::LimitOptions;
use headwater_proto::v1;
use http::{HeaderMap, Request, Response};
use http_body_util::{BodyExt as _, Full};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http2::{self, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo};
use prost::Message as _;
use tokio::net::TcpStream;
use tokio_util::task::AbortOnDropHandle;

use crate::fixture::{Files, LIMITS, Server, Setup, row, token};
use crate::flood::Good;

const MIB: u64 = 1 << 20;
/// Of all callers. One has a quarter of it.
const ANSWERS_MAX: u64 = 64 * MIB;

/// A connection on which the server may send next to nothing.
async fn connect(server: &Server) -> (SendRequest<Full<Bytes>>, AbortOnDropHandle<()>) {
    let io = TokioIo::new(TcpStream::connect(server.address).await.unwrap());
    let mut builder = http2::Builder::new(TokioExecutor::new());
    builder.initial_stream_window_size(1).max_concurrent_streams(10_000);
    let (sender, connection) = builder.handshake(io).await.unwrap();
    let task = tokio::spawn(async move { drop(connection.await) });
    (sender, AbortOnDropHandle::new(task))
}

fn get(token: &str) -> Request<Full<Bytes>> {
    let message =
        v1::GetRequest { history: "good".to_owned(), key: "large".into(), ..Default::default() };
    let mut body = vec![0];
    body.extend(u32::try_from(message.encoded_len()).unwrap().to_be_bytes());
    body.extend(message.encode_to_vec());
    Request::post("http://h/headwater.v1.ReadService/Get")
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .header("authorization", format!("Bearer {token}"))
        .body(Full::new(Bytes::from(body)))
        .unwrap()
}

/// Asks, and takes the first byte: the answer, of which the rest is not taken,
/// or the status that it was refused with.
async fn ask(
    sender: &mut SendRequest<Full<Bytes>>,
    token: &str,
) -> Result<Response<Incoming>, String> {
    let status =
        |headers: &HeaderMap| headers.get("grpc-status").map(|it| it.to_str().unwrap().to_owned());
    let mut answer = sender.send_request(get(token)).await.unwrap();
    if let Some(refused) = status(answer.headers()) {
        return Err(refused);
    }
    let frame = answer.body_mut().frame().await.unwrap().unwrap();
    match frame.trailers_ref().and_then(status) {
        Some(refused) => Err(refused),
        None => Ok(answer),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn answers_that_nobody_takes_have_a_limit_and_leave_the_rest_unharmed() {
    let files = Files::new();
    let (good, hog) = (token(), token());
    let rights = row(&good, "good", Role::Admin, "") + &row(&hog, "hog", Role::Read, "");
    files.write("rights.toml", &rights);
    files.write("good", &good.text);
    let limits = LimitOptions { answer_bytes_max: ANSWERS_MAX, ..LIMITS };
    let setup = Setup { has_rights: true, limits, ..Setup::default() };
    let server = Server::start(&files, setup).await;
    let client = server.client(false).token_file(files.path("good")).build().unwrap();
    let good = Good::begin(client.clone()).await;
    // The largest value that there may be, about.
    let large = client.operation().put("large", vec![7; 900 << 10]);
    let put = client.session("good").submit(large).await.unwrap();
    assert!(matches!(put, Outcome::Accepted(_)));

    // Four times as many as the caller has room for, on several connections.
    let (mut held, mut refused, mut connections) = (Vec::new(), 0, Vec::new());
    for _ in 0..4 {
        let (mut sender, task) = connect(&server).await;
        for _ in 0..20 {
            match ask(&mut sender, &hog.text).await {
                Ok(answer) => held.push(answer),
                // RESOURCE_EXHAUSTED.
                Err(status) => {
                    assert_eq!(status, "8");
                    refused += 1;
                }
            }
            assert!(server.limits.answer_bytes() <= ANSWERS_MAX / 4 + MIB);
        }
        connections.push((sender, task));
    }
    good.goes_on(20).await;
    let taken = server.limits.answer_bytes();
    assert!(ANSWERS_MAX / 8 < taken && taken <= ANSWERS_MAX / 4 + MIB, "{taken}");
    assert!(held.len() <= 18 && held.len() + refused == 80, "{} and {refused}", held.len());

    // What it gives up, it may have again.
    drop((held, connections));
    while ANSWERS_MAX / 64 < server.limits.answer_bytes() {
        good.goes_on(1).await;
    }
    let (mut sender, _task) = connect(&server).await;
    ask(&mut sender, &hog.text).await.unwrap();
    assert!(0 < good.end().await);
    server.end().await;
}
