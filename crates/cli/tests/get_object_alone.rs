//! A replica whose keys may do one thing: read objects by their names.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot set up has failed")]

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use headwater_client::{Client, Consistency, KeyRange, Outcome, Session};
use headwater_daemon::serve::{Listening, Services};
use headwater_replica::{Replica, ReplicaConfig};
use headwater_s3_double::{ACCESS_KEY_ID, Conduct, Op, S3Double, SECRET_ACCESS_KEY};
use headwater_store::{
    Clock, Entropy, Layers, LayersConfig, S3Bucket, S3Credentials, S3Options, Store,
};
use headwater_writer::{Writer, WriterConfig};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

const HISTORY: &str = "shop/stock";

fn store(s3: &S3Double, access_key_id: &str, secret_access_key: &str) -> Arc<dyn Store> {
    let credentials = Some(S3Credentials {
        access_key_id: access_key_id.into(),
        secret_access_key: secret_access_key.into(),
    });
    let options = S3Options::parse(&s3.url("root")).unwrap();
    let bucket = S3Bucket::open(&S3Options { credentials, ..options }).unwrap();
    Layers::around(Arc::new(bucket), LayersConfig::default(), Entropy::from_os()).store
}

/// What serves on a port of its own until it is dropped.
struct Served {
    address: String,
    server: JoinHandle<()>,
}

impl Served {
    async fn start(services: Services) -> Self {
        let listening = Listening::bind(([127, 0, 0, 1], 0).into()).await.unwrap();
        let address = listening.local_address().to_string();
        let serving = listening.serve(services, CancellationToken::new(), Duration::ZERO);
        Self { address, server: tokio::spawn(async move { serving.await.unwrap() }) }
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.server.abort();
    }
}

async fn start_writer(s3: &S3Double) -> (Writer, Served) {
    // Snapshots, so that a reader meets every kind of object.
    let config = WriterConfig {
        compact_tail_versions: 20,
        compact_keep_versions: 5,
        ..WriterConfig::default()
    };
    let store = store(s3, ACCESS_KEY_ID, SECRET_ACCESS_KEY);
    let writer =
        headwater_writer::start(store, config, Entropy::from_os(), Clock::system()).unwrap();
    let services = Services::new().with(writer.write_service()).with(writer.history_service());
    let served = Served::start(services).await;
    (writer, served)
}

async fn start_replica(store: Arc<dyn Store>) -> (Replica, Served) {
    let replica =
        headwater_replica::start(store, ReplicaConfig::default(), Entropy::from_os()).unwrap();
    let served = Served::start(Services::new().with(replica.service())).await;
    (replica, served)
}

async fn put(session: &Session, client: &Client, n: u32) {
    // Some travel in the head, some are uploaded.
    let value = vec![b'v'; if n.is_multiple_of(3) { 6_000 } else { 10 }];
    let operation = client.operation().put(format!("key/{n:03}"), value);
    let outcome = session.submit(operation).await.unwrap();
    assert!(matches!(outcome, Outcome::Accepted(_)), "{outcome:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replica_opens_follows_and_scans_with_get_object_alone() {
    let s3 = S3Double::start().await.unwrap();
    let reader = s3.issue_key(Duration::from_secs(3600));
    // HEAD goes by the permission to get.
    let denied = BTreeSet::from([Op::Put, Op::Delete, Op::List, Op::Settings, Op::Other]);
    let denied_key = Some(reader.access_key_id.clone());
    s3.set_conduct(Conduct { denied, denied_key, ..Conduct::default() });
    let reads_only = store(&s3, &reader.access_key_id, &reader.secret_access_key);
    reads_only.list("", None, 1).await.expect_err("it is denied");
    reads_only.put("x", "x".into()).await.expect_err("it is denied");
    s3.clear_requests();

    let (_writer, writing) = start_writer(&s3).await;
    let (_replica, reading) = start_replica(Arc::clone(&reads_only)).await;
    let client = Client::builder()
        .writers([writing.address.clone()])
        .replicas([reading.address.clone()])
        .deadline(Duration::from_secs(60))
        .build()
        .unwrap();
    client.create_history(HISTORY, false).await.unwrap();
    let session = client.session(HISTORY);
    for n in 0..100 {
        put(&session, &client, n).await;
        if n.is_multiple_of(20) {
            let read = session.get(format!("key/{n:03}"), Consistency::Strong).await.unwrap();
            assert!(read.value.is_some(), "{n}");
        }
    }

    // Snapshots are made beside commits: go on until there is one.
    let mut n_put = 100;
    while !s3.keys().iter().any(|it| it.contains("/chunks/")) {
        assert!(n_put < 1_000, "no snapshot after {n_put} versions: {:?}", s3.keys());
        put(&session, &client, n_put).await;
        n_put += 1;
    }
    // Another one, which opens what is there by now: snapshot, segments, tail.
    let (_later, reading) = start_replica(reads_only).await;
    let client = Client::builder()
        .writers([writing.address.clone()])
        .replicas([reading.address.clone()])
        .deadline(Duration::from_secs(60))
        .build()
        .unwrap();
    let session = client.session(HISTORY);
    let mut scan = session.scan(KeyRange::all());
    let mut n_entries = 0;
    while let Some(page) = scan.next_page().await.unwrap() {
        n_entries += page.value.len();
    }
    assert_eq!(n_entries, n_put as usize);
}
