//! Replicas that listen to a writer which serves TLS and wants to know them.

use std::sync::Arc;
use std::time::Duration;

use headwater_client::{Client, ClientBuilder, Outcome};
use headwater_core::id::HistoryName;
use headwater_daemon::auth::Role;
use headwater_daemon::overview::Window;
use headwater_replica::{Consistency, Replica, ReplicaConfig, WriterLineOptions};
use headwater_store::Entropy;
use tokio::time::Instant;

use crate::fixture::{Files, Server, Setup, authority, row, token};

/// Longer than a test waits: what is seen earlier was told.
const NEVER_MS: u64 = 3_600_000;

struct World {
    files: Files,
    server: Server,
    client: Client,
}

impl World {
    /// A writer that wants tokens, and certificates too where it `asks_clients`.
    async fn start(asks_clients: bool) -> Self {
        let (files, ca, clients) = (Files::new(), authority(), authority());
        files.issue("server", &ca, "localhost");
        files.issue("replica", &clients, "replica.example");
        files.issue("stranger", &clients, "stranger.example");
        files.write("ca.pem", &ca.pem());
        files.write("other-ca.pem", &authority().pem());
        files.write("clients.pem", &clients.pem());
        let (ops, replica) = (token(), token());
        let certificate = "[[certificate]]\nname = \"replicas\"\nsubjects = [\"replica.example\"]\n\
                           grants = [{ role = \"read\", histories = [\"\"] }]\n";
        let tokens = row(&ops, "ops", Role::Admin, "") + &row(&replica, "replica", Role::Read, "");
        files.write("rights.toml", &(tokens + certificate));
        files.write("ops", &ops.text);
        files.write("replica-token", &replica.text);
        files.write("unknown-token", &token().text);
        let setup = Setup { has_rights: true, has_tls: true, asks_clients, ..Setup::default() };
        let server = Server::start(&files, setup).await;
        let client: ClientBuilder = server.client(true).tls_authorities(files.path("ca.pem"));
        let client = client.tls_identity(files.path("replica.crt"), files.path("replica.key"));
        let client = client.token_file(files.path("ops")).build().unwrap();
        client.create_history("h", false).await.unwrap();
        put(&client).await;
        Self { files, server, client }
    }

    fn line(&self, authority: &str) -> WriterLineOptions {
        let writers_tls_ca = Some(self.files.path(authority));
        WriterLineOptions { writers_tls_ca, ..WriterLineOptions::default() }
    }

    /// A replica over the same store that listens to the writer.
    async fn replica(&self, line: WriterLineOptions, poll_ms: u64) -> Replica {
        let config = ReplicaConfig {
            writers: vec![format!("localhost:{}", self.server.address.port())],
            writers_line: line,
            poll_ms,
            ..ReplicaConfig::default()
        };
        let store = Arc::clone(&self.server.store);
        let replica = headwater_replica::start(store, config, Entropy::from_os()).unwrap();
        assert_eq!(version(&replica).await, 1);
        replica
    }

    async fn end(self, replica: Replica) {
        replica.shutdown().await;
        drop(self.client);
        self.server.end().await;
    }
}

async fn put(client: &Client) {
    let put = client.session("h").submit(client.operation().put("k", "v")).await.unwrap();
    assert!(matches!(put, Outcome::Accepted(_)));
}

/// What the replica has at hand: the store is not asked.
async fn version(replica: &Replica) -> u64 {
    let reader = replica.reader(HistoryName::parse("h").unwrap());
    let deadline = Instant::now() + Duration::from_secs(20);
    reader.pin(Consistency::Any, deadline).await.unwrap().version().get()
}

fn is_listening(replica: &Replica) -> bool {
    let window = Window { prefix: String::new(), after: String::new(), limit: 1 };
    replica.source().overview(&window).writers[0].is_listening
}

async fn comes_to(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let waiting = async {
        while !holds().await {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let waited = tokio::time::timeout(Duration::from_secs(60), waiting).await;
    waited.unwrap_or_else(|_| panic!("waited in vain until {what}"));
}

/// It hears of a version that it would not look for.
async fn hears(world: World, line: WriterLineOptions) {
    let replica = world.replica(line, NEVER_MS).await;
    comes_to("it listens", async || is_listening(&replica)).await;
    // Its history is added to the stream after that; a head that is told before
    // is lost, which is allowed.
    comes_to("it is told", async || {
        put(&world.client).await;
        1 < version(&replica).await
    })
    .await;
    world.end(replica).await;
}

/// It does not listen, and finds what is new by itself.
async fn polls(world: World, line: WriterLineOptions) {
    let replica = world.replica(line, 50).await;
    for n in 2..6 {
        put(&world.client).await;
        comes_to("it looks for itself", async || version(&replica).await == n).await;
        assert!(!is_listening(&replica));
    }
    world.end(replica).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replica_with_a_token_is_told_over_tls() {
    let world = World::start(false).await;
    let token = Some(world.files.path("replica-token"));
    let line = WriterLineOptions { writers_token_file: token, ..world.line("ca.pem") };
    hears(world, line).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replica_with_a_certificate_is_told_over_tls() {
    let world = World::start(true).await;
    let line = WriterLineOptions {
        writers_tls_cert: Some(world.files.path("replica.crt")),
        writers_tls_key: Some(world.files.path("replica.key")),
        ..world.line("ca.pem")
    };
    hears(world, line).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_writer_of_another_authority_is_not_listened_to_and_the_replica_goes_on_by_polling() {
    let world = World::start(false).await;
    let token = Some(world.files.path("replica-token"));
    let line = WriterLineOptions { writers_token_file: token, ..world.line("other-ca.pem") };
    polls(world, line).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replica_that_the_writer_does_not_know_goes_on_by_polling() {
    for name in [None, Some("unknown-token")] {
        let world = World::start(false).await;
        let token = name.map(|it| world.files.path(it));
        let line = WriterLineOptions { writers_token_file: token, ..world.line("ca.pem") };
        polls(world, line).await;
    }
    // A certificate without rights, and none where one is wanted.
    for name in [None, Some("stranger")] {
        let world = World::start(true).await;
        let path = |kind: &str| name.map(|it| world.files.path(&format!("{it}.{kind}")));
        let line = WriterLineOptions {
            writers_tls_cert: path("crt"),
            writers_tls_key: path("key"),
            ..world.line("ca.pem")
        };
        polls(world, line).await;
    }
}
