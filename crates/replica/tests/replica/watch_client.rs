//! The client's watch against three replicas, over connections that are cut.

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::StreamExt as _;
use futures::future::BoxFuture;
use headwater_client::{Client, Connection, Network, WatchEvent, WatchOptions};
use headwater_replica::{Replica, ReplicaConfig, start};
use headwater_store::{Entropy, Faults, Memory};
use tokio::io::DuplexStream;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::sleep;
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::CancellationToken;
use tonic::transport::Server;

use crate::bucket::{TestWriter, quiet};

const VERSIONS: u64 = 10_000;
const CUTS: usize = 200;
const PIPE_BYTES: usize = 16 << 10;

/// Replicas 1 to 3 behind one name, over pipes in memory.
#[derive(Clone, Debug)]
struct Pipes {
    listening: Arc<[mpsc::Sender<DuplexStream>]>,
    relays: Arc<Mutex<Vec<JoinHandle<()>>>>,
}

fn address(number: usize) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, u8::try_from(number).unwrap()], 7411))
}

impl Pipes {
    /// Ends every connection.
    fn cut(&self) -> usize {
        let relays: Vec<_> = self.relays.lock().unwrap().drain(..).collect();
        let live = relays.into_iter().filter(|it| !it.is_finished());
        live.map(|it| it.abort()).count()
    }
}

impl Network for Pipes {
    fn resolve<'a>(&'a self, _: &'a str, _: u16) -> BoxFuture<'a, io::Result<Vec<SocketAddr>>> {
        let all = (0..self.listening.len()).map(address).collect();
        Box::pin(async move { Ok(all) })
    }

    fn connect(&self, to: SocketAddr) -> BoxFuture<'static, io::Result<Box<dyn Connection>>> {
        let pipes = self.clone();
        Box::pin(async move {
            let number = (0..pipes.listening.len()).find(|it| address(*it) == to).unwrap();
            let (near, mut near_end) = tokio::io::duplex(PIPE_BYTES);
            let (mut far_end, far) = tokio::io::duplex(PIPE_BYTES);
            pipes.listening[number]
                .send(far)
                .await
                .map_err(|_| io::ErrorKind::ConnectionRefused)?;
            let relay = tokio::spawn(async move {
                // Either end may close it, at any time.
                drop(tokio::io::copy_bidirectional(&mut near_end, &mut far_end).await);
            });
            pipes.relays.lock().unwrap().push(relay);
            Ok(Box::new(near) as Box<dyn Connection>)
        })
    }
}

fn serve(replica: &Replica, incoming: mpsc::Receiver<DuplexStream>) {
    let incoming = ReceiverStream::new(incoming).map(Ok::<_, io::Error>);
    let watches = replica.watch_service(CancellationToken::new());
    tokio::spawn(Server::builder().add_service(watches).serve_with_incoming(incoming));
}

#[tokio::test(start_paused = true)]
async fn a_client_cut_off_200_times_among_three_replicas_is_told_10_000_versions_once() {
    let faults = Faults::new(Arc::new(Memory::new()));
    let mut writer = TestWriter::create(faults.behind(), "h", 1).await;
    let (mut replicas, mut listening) = (Vec::new(), Vec::new());
    for seed in 1..=3 {
        let config = ReplicaConfig { poll_ms: 20, ..quiet() };
        let replica = start(faults.store(), config, Entropy::from_seed(seed)).unwrap();
        let (sender, incoming) = mpsc::channel(16);
        serve(&replica, incoming);
        replicas.push(replica);
        listening.push(sender);
    }
    let pipes = Pipes { listening: listening.into(), relays: Arc::default() };
    let client = Client::builder().writers(["r:1"]).seed(7).network(pipes.clone()).build().unwrap();

    let writing = tokio::spawn(async move {
        let dice = Entropy::from_seed(7);
        while writer.version().get() < VERSIONS {
            let count = u64::from(dice.bytes16()[0] % 40) + 1;
            writer.put_versions(count.min(VERSIONS - writer.version().get()), 20).await;
            if 400 < writer.head.changes.len() {
                writer.fold_and_sweep().await;
            }
            sleep(Duration::from_millis(10)).await;
        }
    });
    let cutting = tokio::spawn(async move {
        let dice = Entropy::from_seed(9);
        let mut n_cuts = 0;
        while n_cuts < CUTS {
            sleep(Duration::from_millis(u64::from(dice.bytes16()[0]) % 40 + 1)).await;
            n_cuts += usize::from(0 < pipes.cut());
        }
    });

    let options = WatchOptions { after: Some(0), ..WatchOptions::default() };
    let mut watch = client.session("h").watch(options);
    let mut seen = Vec::new();
    while seen.last() != Some(&VERSIONS) || !cutting.is_finished() {
        match watch.next().await.unwrap() {
            WatchEvent::Version { version, mutations } => {
                assert_eq!(mutations.len(), 1);
                seen.push(version);
            }
            WatchEvent::Progress { .. } => {}
            WatchEvent::SnapshotBegin { .. }
            | WatchEvent::SnapshotEntries(_)
            | WatchEvent::SnapshotEnd { .. } => panic!(),
        }
    }

    writing.await.unwrap();
    assert_eq!(seen, (1..=VERSIONS).collect::<Vec<_>>());
}
