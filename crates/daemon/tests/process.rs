//! A process from its start until it serves, as its probes see it.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot set up has failed")]

use std::net::SocketAddr;

use clap::Parser;
use headwater_daemon::options::ProcessOptions;
use headwater_daemon::process::Process;
use headwater_daemon::serve::Services;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

#[derive(Debug, Parser)]
struct Arguments {
    #[command(flatten)]
    process: ProcessOptions,
}

async fn get(address: SocketAddr, path: &str) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer
}

#[tokio::test]
async fn a_process_that_has_checked_nothing_yet_is_alive_and_not_ready() {
    let arguments = ["x", "--admin-listen", "127.0.0.1:0", "--log", "off"];
    let options = Arguments::try_parse_from(arguments).unwrap().process;
    let process = Process::start("test", options).await.unwrap();
    let admin = process.admin_address().unwrap();

    assert!(get(admin, "/livez").await.starts_with("HTTP/1.1 200"));
    let early = get(admin, "/readyz").await;
    assert!(early.starts_with("HTTP/1.1 503") && early.contains("[-]starting"), "{early}");

    let listening = process.listen("127.0.0.1:0".parse().unwrap()).await.unwrap();
    let bound = get(admin, "/readyz").await;
    assert!(bound.starts_with("HTTP/1.1 503"), "{bound}");
    let asked = async {
        let served = get(admin, "/readyz?verbose").await;
        process.stop().cancel();
        served
    };
    let (ended, served) = tokio::join!(process.serve(listening, Services::new()), asked);

    ended.unwrap();
    assert!(served.starts_with("HTTP/1.1 200") && served.contains("[+]starting ok"), "{served}");
    process.end().await;
}
