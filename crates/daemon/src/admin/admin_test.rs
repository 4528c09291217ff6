use axum::routing::{get, post};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::*;
use crate::serve::Plain;

/// Longer than a request may take; who waits for it has failed.
const PATIENCE: Duration = Duration::from_secs(60);
/// More than sockets hold.
const LARGE_BYTES: usize = 64 << 20;

async fn start() -> AdminPort {
    let admin = Admin::new(Health::new(), Gate::open());
    admin.merge(Router::new().route("/take", post(|_: String| async {})));
    admin.merge(Router::new().route("/large", get(|| async { vec![0; LARGE_BYTES] })));
    admin.listen("127.0.0.1:0".parse().unwrap(), Arc::new(Plain)).await.unwrap()
}

async fn send(port: &AdminPort, request: &[u8]) -> TcpStream {
    let mut socket = TcpStream::connect(port.local_address()).await.unwrap();
    socket.write_all(request).await.unwrap();
    socket
}

async fn is_alive(port: &AdminPort) -> bool {
    let asking = async {
        let mut socket = send(port, b"GET /livez HTTP/1.1\r\nhost: h\r\n\r\n").await;
        let mut answer = [0; 12];
        socket.read_exact(&mut answer).await.is_ok_and(|_| &answer == b"HTTP/1.1 200")
    };
    timeout(PATIENCE, asking).await.unwrap_or(false)
}

#[tokio::test(start_paused = true)]
async fn bodies_that_never_come_do_not_keep_probes_out() {
    let port = start().await;
    let mut held = Vec::new();
    for _ in 0..CONNECTIONS_MAX {
        let request = b"POST /take HTTP/1.1\r\nhost: h\r\ncontent-length: 10\r\n\r\n";
        held.push(send(&port, request).await);
    }
    assert!(is_alive(&port).await);
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_nobody_takes_is_given_up() {
    let port = start().await;
    let mut reader = send(&port, b"GET /large HTTP/1.1\r\nhost: h\r\n\r\n").await;
    tokio::time::sleep(PATIENCE).await;

    let mut taken = Vec::new();
    let reading = timeout(PATIENCE, reader.read_to_end(&mut taken));
    // An end or an error, however the system says it.
    let _ended = reading.await.expect("the connection is ended");
    assert!(taken.len() < LARGE_BYTES, "{}", taken.len());
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_goes_on_asking_is_kept() {
    let port = start().await;
    let mut socket = TcpStream::connect(port.local_address()).await.unwrap();
    for _ in 0..20 {
        socket.write_all(b"GET /livez HTTP/1.1\r\nhost: h\r\n\r\n").await.unwrap();
        let mut answer = [0; 1_024];
        let len = timeout(PATIENCE, socket.read(&mut answer)).await.unwrap().unwrap();
        assert!(answer[..len].starts_with(b"HTTP/1.1 200"));
        tokio::time::sleep(HEAD_TIMEOUT / 2).await;
    }
}
