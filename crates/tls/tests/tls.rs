//! Both ends of TLS over a pipe: who is let in, and what happens when files
//! change.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot set up has failed")]

use std::fs;
use std::path::PathBuf;

use headwater_tls::{
    Acceptor, ClientCertificates, ClientFiles, ConnectError, Connector, Reloaded, ServerFiles,
    TlsError, Validity,
};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::HandshakeKind;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};

type Authority = CertifiedIssuer<'static, KeyPair>;

fn authority() -> Authority {
    let mut params = CertificateParams::new(Vec::<String>::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
}

/// Files of one test.
struct Files(TempDir);

impl Files {
    fn new() -> Self {
        Self(TempDir::new().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.path(name), text).unwrap();
    }

    /// `NAME.crt` and `NAME.key`, for these DNS names or URIs.
    fn issue(&self, name: &str, authority: &Authority, subjects: &[&str]) {
        let dns: Vec<String> =
            subjects.iter().filter(|it| !it.contains("://")).map(ToString::to_string).collect();
        let mut params = CertificateParams::new(dns).unwrap();
        for uri in subjects.iter().filter(|it| it.contains("://")) {
            params.subject_alt_names.push(rcgen::SanType::URI((*uri).try_into().unwrap()));
        }
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, authority).unwrap();
        self.write(&format!("{name}.crt"), &certificate.pem());
        self.write(&format!("{name}.key"), &key.serialize_pem());
    }

    /// As [`Files::issue`], until the last day before `year`.
    fn issue_until(&self, name: &str, authority: &Authority, year: i32) {
        let mut params = CertificateParams::new(vec!["h.example".to_owned()]).unwrap();
        params.not_after = rcgen::date_time_ymd(year, 1, 1);
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, authority).unwrap();
        self.write(&format!("{name}.crt"), &certificate.pem());
        self.write(&format!("{name}.key"), &key.serialize_pem());
    }

    fn server(&self, client_authorities: Option<&str>) -> ServerFiles {
        ServerFiles {
            certificate: self.path("server.crt"),
            key: self.path("server.key"),
            client_authorities: client_authorities.map(|it| self.path(it)),
            client_certificates: ClientCertificates::Required,
        }
    }

    fn client(&self, identity: Option<&str>) -> ClientFiles {
        let path =
            |name: &str| (self.path(&format!("{name}.crt")), self.path(&format!("{name}.key")));
        ClientFiles {
            authorities: Some(self.path("ca.pem")),
            identity: identity.map(path),
            server_name: None,
        }
    }
}

/// What the server saw: the client's names, or nothing where it was refused.
type Seen = Option<Option<Vec<String>>>;

/// Connects, and has the server say a word as a server of HTTP/2 does.
async fn meet(
    acceptor: &Acceptor,
    connector: &Connector,
    host: &str,
) -> (Result<(), ConnectError>, Seen) {
    let (near, far) = tokio::io::duplex(64 << 10);
    let serving = serve(acceptor.clone(), far);
    let connecting = async {
        let mut connected = connector.connect(host, near).await?;
        let mut word = [0; 5];
        connected.read_exact(&mut word).await.expect("the server speaks");
        assert_eq!(&word, b"hello");
        Ok(())
    };
    tokio::join!(connecting, serving)
}

async fn serve(acceptor: Acceptor, far: DuplexStream) -> Seen {
    let mut accepted = acceptor.accept(far).await.ok()?;
    let names = accepted.client_names.as_ref().map(|it| it.to_vec());
    accepted.stream.write_all(b"hello").await.ok()?;
    accepted.stream.flush().await.ok()?;
    // Until the client has read it.
    let mut end = [0];
    drop(accepted.stream.read(&mut end).await);
    Some(names)
}

#[tokio::test]
async fn a_server_is_trusted_by_its_authority_and_its_name() {
    let (files, ca) = (Files::new(), authority());
    files.issue("server", &ca, &["h.example"]);
    files.write("ca.pem", &ca.pem());
    let acceptor = Acceptor::load(files.server(None), Acceptor::GRPC).await.unwrap();
    let connector = Connector::new(files.client(None));

    let (met, seen) = meet(&acceptor, &connector, "h.example").await;
    met.unwrap();
    assert_eq!(seen, Some(None));

    let (met, _) = meet(&acceptor, &connector, "other.example").await;
    assert!(matches!(met, Err(ConnectError::Handshake { .. })), "{met:?}");
    let named = ClientFiles { server_name: Some("h.example".to_owned()), ..files.client(None) };
    assert!(meet(&acceptor, &Connector::new(named), "other.example").await.0.is_ok());

    files.write("ca.pem", &authority().pem());
    let stranger = Connector::new(files.client(None));
    let (met, seen) = meet(&acceptor, &stranger, "h.example").await;
    assert!(matches!(met, Err(ConnectError::Handshake { .. })), "{met:?}");
    assert_eq!(seen, None);
}

#[tokio::test]
async fn a_client_is_known_by_its_certificate_or_refused() {
    let (files, ca, clients) = (Files::new(), authority(), authority());
    files.issue("server", &ca, &["h.example"]);
    files.write("ca.pem", &ca.pem());
    files.write("clients.pem", &clients.pem());
    files.issue("good", &clients, &["app.example", "spiffe://prod/app"]);
    files.issue("wrong", &ca, &["app.example"]);
    let required = files.server(Some("clients.pem"));
    let acceptor = Acceptor::load(required.clone(), Acceptor::GRPC).await.unwrap();
    let meet_as = |identity, acceptor: Acceptor| {
        let connector = Connector::new(files.client(identity));
        async move { meet(&acceptor, &connector, "h.example").await }
    };

    let (met, seen) = meet_as(Some("good"), acceptor.clone()).await;
    met.unwrap();
    assert_eq!(seen, Some(Some(vec!["app.example".to_owned(), "spiffe://prod/app".to_owned()])));

    // Whoever is refused knows it before anything was sent.
    for identity in [None, Some("wrong")] {
        let (met, seen) = meet_as(identity, acceptor.clone()).await;
        assert!(matches!(met, Err(ConnectError::Refused { .. })), "{met:?}");
        assert_eq!(seen, None);
    }

    let optional = ServerFiles { client_certificates: ClientCertificates::Optional, ..required };
    let acceptor = Acceptor::load(optional, Acceptor::GRPC).await.unwrap();
    let (met, seen) = meet_as(None, acceptor.clone()).await;
    met.unwrap();
    assert_eq!(seen, Some(None));
    assert!(meet_as(Some("wrong"), acceptor).await.0.is_err(), "a bad one is not as none");
}

/// How the server's side of a second connection of the same client came about.
async fn second_handshake(acceptor: &Acceptor, connector: &Connector) -> HandshakeKind {
    let mut last = None;
    for _ in 0..2 {
        let (near, far) = tokio::io::duplex(64 << 10);
        let serving = async {
            let mut accepted = acceptor.accept(far).await.unwrap();
            accepted.stream.write_all(b"hello").await.unwrap();
            accepted.stream.flush().await.unwrap();
            accepted.stream.get_ref().1.handshake_kind()
        };
        let connecting = async {
            let mut connected = connector.connect("h.example", near).await.unwrap();
            connected.read_exact(&mut [0; 5]).await.unwrap();
            connected
        };
        let (kind, _connected) = tokio::join!(serving, connecting);
        last = kind;
    }
    last.unwrap()
}

#[tokio::test]
async fn a_client_certificate_is_looked_at_for_every_connection() {
    let (files, ca, clients) = (Files::new(), authority(), authority());
    files.issue("server", &ca, &["h.example"]);
    files.write("ca.pem", &ca.pem());
    files.write("clients.pem", &clients.pem());
    files.issue("good", &clients, &["app.example"]);

    // What makes this test one: without certificates of clients it is resumed.
    let acceptor = Acceptor::load(files.server(None), Acceptor::GRPC).await.unwrap();
    let connector = Connector::new(files.client(None));
    assert_eq!(second_handshake(&acceptor, &connector).await, HandshakeKind::Resumed);

    for client_certificates in [ClientCertificates::Required, ClientCertificates::Optional] {
        let asking = ServerFiles { client_certificates, ..files.server(Some("clients.pem")) };
        let acceptor = Acceptor::load(asking, Acceptor::GRPC).await.unwrap();
        let connector = Connector::new(files.client(Some("good")));
        assert_eq!(second_handshake(&acceptor, &connector).await, HandshakeKind::Full);
    }
}

#[tokio::test]
async fn new_files_are_used_and_bad_ones_are_not() {
    let (files, ca, next) = (Files::new(), authority(), authority());
    files.issue("server", &ca, &["h.example"]);
    files.write("ca.pem", &ca.pem());
    let acceptor = Acceptor::load(files.server(None), Acceptor::GRPC).await.unwrap();
    let connector = Connector::new(files.client(None));
    assert_eq!(acceptor.reload().await.unwrap(), Reloaded::Unchanged);

    // Half of a change: the key does not fit the certificate.
    let old_key = fs::read_to_string(files.path("server.key")).unwrap();
    files.issue("server", &next, &["h.example"]);
    let new_key = fs::read_to_string(files.path("server.key")).unwrap();
    files.write("server.key", &old_key);
    let unfit = acceptor.reload().await.unwrap_err();
    assert!(matches!(unfit, TlsError::Identity { .. }));
    assert!(unfit.to_string().contains("server.crt") && unfit.to_string().contains("server.key"));
    assert!(acceptor.stale_since().is_some());
    assert!(meet(&acceptor, &connector, "h.example").await.0.is_ok());

    files.write("server.key", &new_key);
    assert_eq!(acceptor.reload().await.unwrap(), Reloaded::Changed);
    assert_eq!(acceptor.stale_since(), None);
    assert!(meet(&acceptor, &connector, "h.example").await.0.is_err());
    // The client's files change too, and the connector is the same one.
    files.write("ca.pem", &next.pem());
    assert!(meet(&acceptor, &connector, "h.example").await.0.is_ok());
    assert_eq!(connector.stale_since(), None);
    files.write("ca.pem", "nothing");
    assert!(meet(&acceptor, &connector, "h.example").await.0.is_ok(), "the old one stays in use");
    let since = connector.stale_since();
    assert!(meet(&acceptor, &connector, "h.example").await.0.is_ok());
    assert!(since.is_some() && connector.stale_since() == since, "since the first time");

    for text in ["", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"] {
        files.write("server.crt", text);
        assert!(acceptor.reload().await.is_err(), "{text:?}");
    }
    fs::remove_file(files.path("server.crt")).unwrap();
    assert!(matches!(acceptor.reload().await, Err(TlsError::Read { .. })));
    files.write("ca.pem", &next.pem());
    assert!(meet(&acceptor, &connector, "h.example").await.0.is_ok());
    assert_eq!(connector.stale_since(), None);
}

fn ends(validity: Option<Validity>) -> Option<u64> {
    validity.map(|it| it.ends_at)
}

#[tokio::test]
async fn what_is_in_use_says_when_it_ends() {
    let (files, ca) = (Files::new(), authority());
    // By `date -u -d 2031-01-01 +%s`, and a year later.
    let (y2031, y2032) = (1_924_992_000, 1_956_528_000);
    files.issue_until("server", &ca, 2031);
    files.issue_until("good", &ca, 2031);
    files.write("ca.pem", &ca.pem());
    let acceptor = Acceptor::load(files.server(None), Acceptor::GRPC).await.unwrap();
    let connector = Connector::new(files.client(Some("good")));
    assert_eq!(ends(acceptor.validity()), Some(y2031));
    assert_eq!(ends(connector.validity()), None, "nothing was read yet");
    connector.check().await.unwrap();
    assert_eq!(ends(connector.validity()), Some(y2031));

    files.write("server.crt", "nothing");
    files.write("good.crt", "nothing");
    acceptor.reload().await.unwrap_err();
    connector.check().await.unwrap();
    assert_eq!((ends(acceptor.validity()), ends(connector.validity())), (Some(y2031), Some(y2031)));
    assert!(connector.stale_since().is_some());

    files.issue_until("server", &ca, 2032);
    files.issue_until("good", &ca, 2032);
    acceptor.reload().await.unwrap();
    connector.check().await.unwrap();
    assert_eq!((ends(acceptor.validity()), ends(connector.validity())), (Some(y2032), Some(y2032)));
    let shows_none = Connector::new(files.client(None));
    shows_none.check().await.unwrap();
    assert_eq!(ends(shows_none.validity()), None);
}

#[cfg(unix)]
#[tokio::test]
async fn a_moved_link_is_a_change() {
    let (files, ca, next) = (Files::new(), authority(), authority());
    // As Kubernetes mounts a secret: what is read is behind a link to a folder.
    for (folder, authority) in [("one", &ca), ("two", &next)] {
        fs::create_dir(files.path(folder)).unwrap();
        files.issue(&format!("{folder}/server"), authority, &["h.example"]);
    }
    let link = |folder: &str| {
        std::os::unix::fs::symlink(files.path(folder), files.path("moving")).unwrap();
        fs::rename(files.path("moving"), files.path("data")).unwrap();
    };
    link("one");
    let paths = ServerFiles {
        certificate: files.path("data/server.crt"),
        key: files.path("data/server.key"),
        ..files.server(None)
    };
    let acceptor = Acceptor::load(paths, Acceptor::GRPC).await.unwrap();

    link("two");
    assert_eq!(acceptor.reload().await.unwrap(), Reloaded::Changed);
    files.write("ca.pem", &next.pem());
    let connector = Connector::new(files.client(None));
    assert!(meet(&acceptor, &connector, "h.example").await.0.is_ok());
}

#[tokio::test]
async fn what_shows_a_key_shows_none() {
    let (files, ca) = (Files::new(), authority());
    files.issue("server", &ca, &["h.example"]);
    let key = fs::read_to_string(files.path("server.key")).unwrap();
    let secret = key.lines().nth(1).unwrap().to_owned();
    let acceptor = Acceptor::load(files.server(None), Acceptor::GRPC).await.unwrap();
    files.write("server.key", &key.replace("PRIVATE", "SECRET"));
    let error = acceptor.reload().await.unwrap_err();
    assert!(!format!("{acceptor:?} {error:?} {error}").contains(&secret));
}
