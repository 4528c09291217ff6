//! A deployment in this process, with certificates and rights in files.

use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use headwater_client::{Client, ClientBuilder};
use headwater_daemon::auth::Role;
use headwater_daemon::auth::token::NewToken;
use headwater_daemon::limit::{LimitOptions, Limits};
use headwater_daemon::security::SecurityOptions;
use headwater_daemon::serve::{Listening, ServerOptions, Services, Serving};
use headwater_daemon::tls::{AuthOptions, ClientCertificateRule, TlsOptions};
use headwater_daemon::usage::Usage;
use headwater_replica::ReplicaConfig;
use headwater_store::{Clock, Entropy, Memory, Meter, Store};
use headwater_writer::WriterConfig;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use tempfile::TempDir;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// How often files are looked at.
pub(crate) const LOOK: Duration = Duration::from_millis(50);

pub(crate) type Authority = CertifiedIssuer<'static, KeyPair>;

pub(crate) fn authority() -> Authority {
    let mut params = CertificateParams::new(Vec::<String>::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
}

/// Files of one deployment.
pub(crate) struct Files(TempDir);

impl Files {
    pub(crate) fn new() -> Self {
        Self(TempDir::new().unwrap())
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// In the place of what was there, at once: nobody reads a half of it.
    pub(crate) fn write(&self, name: &str, text: &str) {
        fs::write(self.path("next"), text).unwrap();
        fs::rename(self.path("next"), self.path(name)).unwrap();
    }

    /// `NAME.crt` and `NAME.key`.
    pub(crate) fn issue(&self, name: &str, authority: &Authority, subject: &str) {
        self.issue_until(name, authority, subject, 4096);
    }

    /// One that ends with the last day before `year`.
    pub(crate) fn issue_until(&self, name: &str, authority: &Authority, subject: &str, year: i32) {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(vec![subject.to_owned()]).unwrap();
        params.not_after = rcgen::date_time_ymd(year, 1, 1);
        let certificate = params.signed_by(&key, authority).unwrap();
        self.write(&format!("{name}.key"), &key.serialize_pem());
        self.write(&format!("{name}.crt"), &certificate.pem());
    }
}

/// A row of the file of rights.
pub(crate) fn row(token: &NewToken, name: &str, role: Role, histories: &str) -> String {
    let (id, hash) = (&token.id, token.hash.to_text());
    format!(
        "[[token]]\nname = \"{name}\"\nid = \"{id}\"\nhash = \"{hash}\"\n\
         grants = [{{ role = \"{role}\", histories = [\"{histories}\"] }}]\n\n"
    )
}

pub(crate) fn token() -> NewToken {
    NewToken::draw(&Entropy::from_os())
}

/// As without any flag.
pub(crate) const LIMITS: LimitOptions = LimitOptions {
    requests_max: 16_384,
    caller_requests_max: 4_096,
    caller_requests_per_second_max: 0,
    request_bytes_max: 256 << 20,
    answer_bytes_max: 256 << 20,
    request_arrival_ms_max: 30_000,
};
/// As without any flag.
pub(crate) const SERVER: ServerOptions = ServerOptions {
    drain_delay_seconds: 0,
    drain_seconds_max: 20,
    connection_age_seconds_max: 1_800,
    connection_age_grace_seconds: 30,
    connections_max: 8_192,
    handshake_timeout_ms: 10_000,
};

/// What a deployment is made with.
#[derive(Clone, Debug, Default)]
pub(crate) struct Setup {
    pub(crate) has_rights: bool,
    pub(crate) has_tls: bool,
    pub(crate) asks_clients: bool,
    pub(crate) limits: LimitOptions,
    pub(crate) server: ServerOptions,
}

/// A writer and a replica behind one port.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    /// For replicas of its own of a test.
    pub(crate) store: Arc<dyn Store>,
    pub(crate) limits: Arc<Limits>,
    stop: CancellationToken,
    task: JoinHandle<()>,
}

impl Server {
    /// Serves with the files `server.crt`, `server.key`, `clients.pem` and
    /// `rights.toml`, as far as the setup asks for them.
    pub(crate) async fn start(files: &Files, setup: Setup) -> Self {
        let path = |name: &str, is_there: bool| is_there.then(|| files.path(name));
        let options = SecurityOptions {
            tls: TlsOptions {
                listen_tls_cert_file: path("server.crt", setup.has_tls),
                listen_tls_key_file: path("server.key", setup.has_tls),
                listen_tls_client_ca_file: path("clients.pem", setup.asks_clients),
                listen_tls_client_certificates: ClientCertificateRule::Required,
                ..TlsOptions::default()
            },
            auth: AuthOptions {
                auth_file: path("rights.toml", setup.has_rights),
                credentials_interval_ms: u64::try_from(LOOK.as_millis()).unwrap(),
            },
            limits: setup.limits,
        };
        let security = options.open(Clock::system()).await.unwrap();
        let (entropy, stop) = (Entropy::from_os(), CancellationToken::new());
        let meter = Arc::new(Meter::new(Arc::new(Memory::new())));
        let store: Arc<dyn Store> = Arc::<Meter>::clone(&meter);
        let (config, clock) = (WriterConfig::default(), Clock::system());
        let writer =
            headwater_writer::start(Arc::clone(&store), config, entropy.clone(), clock).unwrap();
        let kept = Arc::clone(&store);
        let replica = headwater_replica::start(store, ReplicaConfig::default(), entropy).unwrap();
        let limits = security.limits();
        let mut serving = Serving::new(stop.clone());
        serving.options = setup.server;
        serving.acceptor = security.acceptor();
        let services = Services::new()
            .with(writer.write_service())
            .with(writer.history_service())
            .with(writer.retention_service())
            .with(writer.forward_service())
            .with(replica.service())
            .with(Usage::service(meter))
            .with(replica.watch_service(serving.leaving.clone()))
            .with_layer(security.layer());
        let listening = Listening::bind("127.0.0.1:0".parse().unwrap()).await.unwrap();
        let address = listening.local_address();
        let task = tokio::spawn(async move {
            tokio::select! {
                served = listening.serve_with(services, serving) => served.unwrap(),
                never = security.keep_fresh() => match never {},
            }
            writer.shutdown().await;
            replica.shutdown().await;
        });
        Self { address, store: kept, limits, stop, task }
    }

    /// A client of it, with nothing to show yet.
    pub(crate) fn client(&self, is_tls: bool) -> ClientBuilder {
        let scheme = if is_tls { "https" } else { "http" };
        let address = format!("{scheme}://localhost:{}", self.address.port());
        Client::builder().writers([address]).deadline(Duration::from_secs(20))
    }

    pub(crate) async fn end(self) {
        self.stop.cancel();
        self.task.await.unwrap();
    }
}
