//! Certificates and tokens are replaced while they are in use: nothing is
//! started again, and no call fails.

use std::time::Duration;

use headwater_client::{ClientBuilder, Consistency, ReadError, Reason, WatchEvent, WatchOptions};
use headwater_daemon::auth::Role;
use headwater_daemon::serve::ServerOptions;

use crate::fixture::{Files, LOOK, SERVER, Server, Setup, authority, row, token};
use crate::flood::Good;

/// Long enough for servers to have looked at their files.
const NOTICED: Duration = LOOK.saturating_mul(10);
/// Long enough for a client to have looked at its token.
const SHOWN: Duration = Duration::from_millis(1_500);

#[tokio::test(flavor = "multi_thread")]
async fn everything_is_replaced_under_load_and_no_call_fails() {
    let (files, ca, clients) = (Files::new(), authority(), authority());
    files.issue("server", &ca, "localhost");
    files.issue("client", &clients, "app.example");
    files.write("ca.pem", &ca.pem());
    files.write("clients.pem", &clients.pem());
    let (old, new) = (token(), token());
    files.write("rights.toml", &row(&old, "old", Role::Admin, ""));
    files.write("token", &old.text);
    files.write("old-token", &old.text);
    // Connections are made again all the time, so that certificates matter.
    let server = ServerOptions { connection_age_seconds_max: 1, ..SERVER };
    let setup =
        Setup { has_rights: true, has_tls: true, asks_clients: true, server, ..Setup::default() };
    let server = Server::start(&files, setup).await;
    let with = |token: &str| -> ClientBuilder {
        let client = server.client(true).tls_authorities(files.path("ca.pem"));
        let client = client.tls_identity(files.path("client.crt"), files.path("client.key"));
        client.token_file(files.path(token))
    };
    let loaded = with("token").build().unwrap();
    let first = Good::begin(loaded.clone()).await;
    let second = Good::go_on(with("token").build().unwrap(), "second");
    let session = loaded.session("good");
    let watching = tokio::spawn(async move {
        let mut watch = session.watch(WatchOptions::default());
        let mut last = None;
        loop {
            let event = watch.next().await.expect("a watch goes on");
            let WatchEvent::Version { version, .. } = event else { continue };
            assert!(last.is_none_or(|it| it + 1 == version), "{last:?} then {version}");
            last = Some(version);
            if 0 < version && STOP.load(std::sync::atomic::Ordering::Relaxed) {
                return version;
            }
        }
    });

    // The server's certificate, its authority staying.
    let before = shown_certificate(&server, &files).await;
    files.issue("server", &ca, "localhost");
    tokio::time::sleep(NOTICED).await;
    let after = shown_certificate(&server, &files).await;
    assert_ne!(before, after, "new connections get the new certificate");
    // The authority: both are trusted, then the certificate changes, then one.
    let next = authority();
    files.write("ca.pem", &(ca.pem() + &next.pem()));
    tokio::time::sleep(NOTICED).await;
    files.issue("server", &next, "localhost");
    tokio::time::sleep(NOTICED).await;
    files.write("ca.pem", &next.pem());
    first.goes_on(20).await;
    // The clients' authority and certificate, likewise.
    let next_clients = authority();
    files.write("clients.pem", &(clients.pem() + &next_clients.pem()));
    tokio::time::sleep(NOTICED).await;
    files.issue("client", &next_clients, "app.example");
    tokio::time::sleep(NOTICED).await;
    files.write("clients.pem", &next_clients.pem());
    second.goes_on(20).await;
    // The token: both are known, then clients show the new one, then one.
    files.write(
        "rights.toml",
        &(row(&old, "old", Role::Admin, "") + &row(&new, "new", Role::Admin, "")),
    );
    tokio::time::sleep(NOTICED).await;
    files.write("token", &new.text);
    tokio::time::sleep(SHOWN).await;
    files.write("rights.toml", &row(&new, "new", Role::Admin, ""));
    tokio::time::sleep(NOTICED).await;
    first.goes_on(20).await;

    let refused = with("old-token").build().unwrap().session("good");
    let refused = refused.get("good", Consistency::Strong).await.unwrap_err();
    let ReadError::Refused(refused) = refused else { panic!("{refused}") };
    assert_eq!(refused.reason, Reason::Unauthenticated);
    second.goes_on(20).await;
    STOP.store(true, std::sync::atomic::Ordering::Relaxed);
    assert!(0 < watching.await.unwrap());
    assert!(100 < first.end().await + second.end().await);
    server.end().await;
}

static STOP: std::sync::atomic::AtomicBool = std::sync::atomic::AtomicBool::new(false);

/// The server's certificate, as a new connection gets it.
async fn shown_certificate(server: &Server, files: &Files) -> Vec<u8> {
    use rustls::pki_types::pem::PemObject as _;
    use rustls::pki_types::{CertificateDer, PrivateKeyDer};
    let certificates =
        |name| CertificateDer::pem_file_iter(files.path(name)).unwrap().map(Result::unwrap);
    let mut roots = rustls::RootCertStore::empty();
    roots.add_parsable_certificates(certificates("ca.pem"));
    let provider = std::sync::Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_client_auth_cert(
            certificates("client.crt").collect(),
            PrivateKeyDer::from_pem_file(files.path("client.key")).unwrap(),
        )
        .unwrap();
    let stream = tokio::net::TcpStream::connect(server.address).await.unwrap();
    let connector = tokio_rustls::TlsConnector::from(std::sync::Arc::new(config));
    let stream = connector.connect("localhost".try_into().unwrap(), stream).await.unwrap();
    stream.get_ref().1.peer_certificates().unwrap()[0].to_vec()
}
