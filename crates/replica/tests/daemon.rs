//! The daemon as a process: it answers, and a signal ends it cleanly.
#![cfg(unix)]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot set up has failed")]

use std::process::Stdio;
use std::time::Duration;

use headwater_proto::v1::GetRequest;
use headwater_proto::v1::read_service_client::ReadServiceClient;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::Command;
use tokio::time::timeout;
use tonic::Code;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;

/// Longer than anything here takes; a test that waits for it has failed.
const PATIENCE: Duration = Duration::from_secs(20);

#[tokio::test]
async fn it_serves_until_a_signal_and_ends_with_success() {
    let mut daemon = Command::new(env!("CARGO_BIN_EXE_headwater-replica"))
        .args(["--listen", "127.0.0.1:0", "--store", "memory:", "--log-format", "json"])
        .env("HEADWATER_LOG", "info")
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut log = BufReader::new(daemon.stderr.take().unwrap()).lines();
    let address = loop {
        let line = timeout(PATIENCE, log.next_line()).await.unwrap().unwrap().unwrap();
        let line: serde_json::Value = serde_json::from_str(&line).unwrap();
        if let Some(address) = line["address"].as_str() {
            break format!("http://{address}");
        }
    };

    let endpoint = tonic::transport::Endpoint::from_shared(address).unwrap();
    let channel = endpoint.connect().await.unwrap();
    let service = "headwater.v1.ReadService".to_owned();
    let mut health = HealthClient::new(channel.clone());
    let is_serving = async {
        let request = || HealthCheckRequest { service: service.clone() };
        while health.check(request()).await.unwrap().into_inner().status() != ServingStatus::Serving
        {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(PATIENCE, is_serving).await.expect("it is ready in time");
    let request = GetRequest { history: "h".into(), key: "k".into(), ..GetRequest::default() };
    let error = ReadServiceClient::new(channel).get(request).await.unwrap_err();
    assert_eq!(error.code(), Code::NotFound);

    let pid = daemon.id().unwrap().to_string();
    assert!(Command::new("kill").args(["-TERM", &pid]).status().await.unwrap().success());

    let status = timeout(PATIENCE, daemon.wait()).await.expect("it ends").unwrap();
    assert!(status.success(), "{status}");
}
