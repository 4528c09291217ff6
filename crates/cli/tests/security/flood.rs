//! Callers that mean harm, or have a bug: they are refused or cut off, and a
//! good one is served all the while.

use std::io::Read as _;
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use headwater_client::{Client, Consistency, IssueVersion, Operation, Outcome};
use headwater_daemon::limit::LimitOptions;
use headwater_daemon::serve::ServerOptions;
use headwater_proto::v1;
use headwater_proto::v1::read_service_client::ReadServiceClient;
use headwater_proto::v1::watch_service_client::WatchServiceClient;
use headwater_proto::v1::write_service_client::WriteServiceClient;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::task::JoinHandle;
use tonic::Code;
use tonic::transport::Channel;
use tonic_types::StatusExt as _;

use crate::fixture::{Files, LIMITS, SERVER, Server, Setup, authority};

/// A caller that reads and writes without a pause. It fails its test as soon as
/// one call fails.
pub(crate) struct Good {
    task: JoinHandle<()>,
    is_over: Arc<AtomicBool>,
    calls: Arc<AtomicU64>,
}

impl Good {
    pub(crate) async fn begin(client: Client) -> Self {
        client.create_history("good", false).await.unwrap();
        Self::go_on(client, "good")
    }

    pub(crate) fn go_on(client: Client, key: &'static str) -> Self {
        let (is_over, calls) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let (flag, count) = (Arc::clone(&is_over), Arc::clone(&calls));
        let task = tokio::spawn(async move {
            let session = client.session("good");
            while !flag.load(Ordering::Relaxed) {
                let n = count.load(Ordering::Relaxed);
                let operation = Operation::new(client.operation_id(), IssueVersion::Newest);
                let put = session.submit(operation.put(key, n.to_string())).await;
                let put = put.unwrap_or_else(|it| panic!("write {n} failed: {it}"));
                assert!(matches!(put, Outcome::Accepted(_)), "{put:?}");
                let got = session.get(key, Consistency::Strong).await;
                let got = got.unwrap_or_else(|it| panic!("read {n} failed: {it}"));
                assert_eq!(got.value.unwrap().value, n.to_string());
                count.fetch_add(1, Ordering::Relaxed);
            }
        });
        Self { task, is_over, calls }
    }

    pub(crate) fn calls(&self) -> u64 {
        self.calls.load(Ordering::Relaxed)
    }

    /// Waits until it has been served so many times more.
    pub(crate) async fn goes_on(&self, more: u64) {
        let until = self.calls() + more;
        while self.calls() < until {
            assert!(!self.task.is_finished(), "the good caller has failed");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    pub(crate) async fn end(self) -> u64 {
        self.is_over.store(true, Ordering::Relaxed);
        self.task.await.unwrap();
        self.calls.load(Ordering::Relaxed)
    }
}

/// Waits for the server to close the connection.
async fn is_closed(stream: &mut tokio::net::TcpStream) {
    let mut bytes = [0; 1_024];
    let closing = async {
        loop {
            match stream.read(&mut bytes).await {
                Ok(0) | Err(_) => return,
                Ok(_) => {}
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(20), closing).await.expect("the server closes it");
}

#[tokio::test(flavor = "multi_thread")]
async fn who_never_finishes_a_handshake_or_never_asks_is_cut_off() {
    let (files, ca) = (Files::new(), authority());
    files.issue("server", &ca, "localhost");
    files.write("ca.pem", &ca.pem());
    let options = ServerOptions { handshake_timeout_ms: 500, ..SERVER };
    let setup = Setup { has_tls: true, server: options, ..Setup::default() };
    let server = Server::start(&files, setup).await;
    let client = server.client(true).tls_authorities(files.path("ca.pem")).build().unwrap();
    let good = Good::begin(client).await;

    // Nothing at all; the beginning of a handshake, byte by byte; TLS and then
    // nothing; the beginning of a preface.
    let hello = [0x16, 0x03, 0x01, 0x02, 0x00, 0x01, 0x00];
    let mut slow = Vec::new();
    for n in 0..200 {
        let mut stream = tokio::net::TcpStream::connect(server.address).await.unwrap();
        if n % 2 == 0 {
            stream.write_all(&hello[..n % hello.len()]).await.unwrap();
        }
        slow.push(stream);
    }
    let connector = headwater_tls::Connector::new(headwater_tls::ClientFiles {
        authorities: Some(files.path("ca.pem")),
        ..headwater_tls::ClientFiles::default()
    });
    let mut silent = Vec::new();
    for n in 0..20 {
        let stream = tokio::net::TcpStream::connect(server.address).await.unwrap();
        let mut stream = connector.connect("localhost", stream).await.unwrap();
        if n % 2 == 0 {
            stream.write_all(b"PRI * HTTP/2.0\r\n").await.unwrap();
            stream.flush().await.unwrap();
        }
        silent.push(stream);
    }
    good.goes_on(20).await;
    for stream in &mut slow {
        is_closed(stream).await;
    }
    for stream in &mut silent {
        let mut rest = Vec::new();
        let closing = stream.read_to_end(&mut rest);
        let closed = tokio::time::timeout(Duration::from_secs(20), closing).await;
        drop(closed.expect("the server closes it"));
    }
    assert!(0 < good.end().await);
    server.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_over_a_limit_is_refused_and_the_next_call_is_served() {
    let limits = LimitOptions { caller_requests_max: 8, ..LIMITS };
    let server = Server::start(&Files::new(), Setup { limits, ..Setup::default() }).await;
    let good = Good::begin(server.client(false).build().unwrap()).await;
    let uri = format!("http://{}", server.address);
    let channel = Channel::from_shared(uri).unwrap().connect().await.unwrap();

    // A message over the limit: the reason comes before the bytes.
    let put = v1::Put { key: "k".into(), value: vec![0; 9 << 20].into() };
    let mutations = vec![v1::Mutation { kind: Some(v1::mutation::Kind::Put(put)) }];
    let request = v1::SubmitRequest { history: "good".to_owned(), mutations, ..Default::default() };
    let refused = WriteServiceClient::new(channel.clone()).submit(request).await.unwrap_err();
    assert_eq!(refused.code(), Code::ResourceExhausted, "{refused}");
    let details = refused.get_error_details();
    assert_eq!(details.error_info().unwrap().reason, headwater_proto::reason::MESSAGE_TOO_LARGE);
    good.goes_on(5).await;

    // More streams than a caller may have; the good one asks from the same
    // address, so it has to wait for its turn, and gets it.
    let watch = v1::WatchRequest { history: "good".to_owned(), ..Default::default() };
    let mut held = Vec::new();
    let refused = loop {
        match WatchServiceClient::new(channel.clone()).watch(watch.clone()).await {
            Ok(stream) => held.push(stream),
            Err(refused) => break refused,
        }
        assert!(held.len() < 9, "there is a limit");
    };
    let details = refused.get_error_details();
    assert_eq!(details.error_info().unwrap().reason, headwater_proto::reason::TOO_MANY_REQUESTS);
    assert!(details.retry_info().is_some_and(|it| it.retry_delay.is_some()));
    drop(held);
    good.goes_on(5).await;
    let get = v1::GetRequest { history: "good".to_owned(), key: "k".into(), ..Default::default() };
    ReadServiceClient::new(channel.clone()).get(get).await.unwrap();
    assert!(0 < good.end().await);
    drop(channel);
    server.end().await;
}

/// Connections that are asked for, of one process: the server is another.
const CONNECTIONS: usize = 10_000;
/// File descriptors that this process needs for the rest.
const SPARE: usize = 512;

/// Whether the server has ended it. Its first words may be there before.
fn is_ended(mut stream: &TcpStream) -> bool {
    loop {
        match stream.read(&mut [0; 1_024]) {
            Ok(0) => return true,
            Ok(_) => {}
            Err(error) => return error.kind() != std::io::ErrorKind::WouldBlock,
        }
    }
}

fn file_descriptors_max() -> usize {
    let limits = std::fs::read_to_string("/proc/self/limits").unwrap_or_default();
    let line = limits.lines().find(|it| it.starts_with("Max open files"));
    let soft = line.and_then(|it| it.split_whitespace().nth(3)).and_then(|it| it.parse().ok());
    soft.unwrap_or(1_024)
}

#[tokio::test(flavor = "multi_thread")]
async fn ten_thousand_connections_leave_the_rest_unharmed() {
    let count = CONNECTIONS.min(file_descriptors_max().saturating_sub(SPARE));
    eprintln!("{count} connections are opened, of {CONNECTIONS} if the system lets us");
    let files = Files::new();
    let served = crate::support::Served::start_on(
        &files.path("data"),
        "127.0.0.1:0",
        // Fewer than come, so that there is something to refuse.
        &["--connections-max", &(count * 4 / 5).to_string(), "--handshake-timeout-ms", "30000"],
    );
    let address: SocketAddr = served.address.parse().unwrap();
    let client = Client::builder().writers([&served.address]).build().unwrap();
    let good = Good::begin(client).await;

    let flood = tokio::task::spawn_blocking(move || {
        let mut held = Vec::with_capacity(count);
        for _ in 0..count {
            let Ok(stream) = TcpStream::connect_timeout(&address, Duration::from_secs(10)) else {
                continue;
            };
            stream.set_nonblocking(true).unwrap();
            held.push(stream);
        }
        held
    });
    let held = flood.await.unwrap();
    good.goes_on(20).await;
    // Some were sent away, the others are still there.
    let closed = held.iter().filter(|it| is_ended(it)).count();
    eprintln!("{} were taken, {closed} of them were closed by the server", held.len());
    assert!(count * 9 / 10 <= held.len(), "{}", held.len());
    assert!(0 < closed && closed < held.len(), "{closed}");
    drop(held);
    good.goes_on(20).await;
    assert!(0 < good.end().await);
    assert_eq!(served.stop(), 0);
}
