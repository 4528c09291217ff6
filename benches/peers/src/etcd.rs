//! etcd: one member, on a directory of its own, as it comes.
//!
//! Two messages of its `KV` service are written down here: the crates for etcd
//! want a protocol compiler on the machine.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use headwater_benches::Plan;
use headwater_benches::load::{self, Measured};
use headwater_benches::system::BoxError;
use tokio::process::{Child, Command};
use tokio::time::{Instant, sleep};
use tonic::transport::{Channel, Endpoint};

use crate::echo::unary;

/// `etcdserverpb.PutRequest`, as far as it is used.
#[derive(Clone, PartialEq, prost::Message)]
struct PutRequest {
    #[prost(bytes = "vec", tag = "1")]
    key: Vec<u8>,
    #[prost(bytes = "bytes", tag = "2")]
    value: bytes::Bytes,
}

/// `etcdserverpb.PutResponse`: nothing of it is looked at.
#[derive(Clone, PartialEq, prost::Message)]
struct PutResponse {}

const PUT: &str = "/etcdserverpb.KV/Put";
/// How long it may take to start.
const START_MAX: Duration = Duration::from_secs(20);

pub async fn measure(binary: &Path, plan: Plan) -> Result<Measured, BoxError> {
    let folder = tempfile::tempdir()?;
    let (mut child, channel) = start(binary, folder.path()).await?;
    let value = bytes::Bytes::from(vec![b'v'; plan.value_bytes]);
    let call = move |caller: usize, n: u64| {
        let (channel, value) = (channel.clone(), value.clone());
        let key = format!("key/{caller:05}/{:03}", n % 100).into_bytes();
        async move {
            unary::<PutRequest, PutResponse>(channel, PUT, PutRequest { key, value }).await.is_ok()
        }
    };
    let measured = load::run(plan.callers, plan.time, call, || ()).await;
    child.kill().await?;
    Ok(measured)
}

async fn start(binary: &Path, folder: &Path) -> Result<(Child, Channel), BoxError> {
    let [client, peer] =
        [free_port().await?, free_port().await?].map(|it| format!("http://127.0.0.1:{it}"));
    let child = Command::new(binary)
        .args(["--name", "bench", "--data-dir"])
        .arg(folder)
        .args(["--listen-client-urls", &client, "--advertise-client-urls", &client])
        .args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer])
        .args(["--initial-cluster", &format!("bench={peer}")])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()?;
    let began = Instant::now();
    loop {
        let endpoint = Endpoint::from_shared(client.clone())?;
        if let Ok(channel) = endpoint.connect().await {
            let first = PutRequest { key: b"started".to_vec(), value: bytes::Bytes::new() };
            if unary::<PutRequest, PutResponse>(channel.clone(), PUT, first).await.is_ok() {
                return Ok((child, channel));
            }
        }
        if START_MAX < began.elapsed() {
            return Err("etcd did not start".into());
        }
        sleep(Duration::from_millis(100)).await;
    }
}

async fn free_port() -> Result<u16, BoxError> {
    Ok(tokio::net::TcpListener::bind("127.0.0.1:0").await?.local_addr()?.port())
}
