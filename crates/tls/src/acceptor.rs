//! The server's side of TLS.

use std::convert::Infallible;
use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use rustls::ServerConfig;
use rustls::pki_types::CertificateDer;
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::Instant;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use webpki::EndEntityCert;

use crate::files::{Contents, Findings, Reloaded, TlsError, provider};
use crate::stale::StaleSince;
use crate::validity::{Validity, of_chain};

/// Names of one certificate that are looked at.
const NAMES_MAX: usize = 64;

/// Whether a client has to show a certificate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ClientCertificates {
    /// Who has none is refused in the handshake.
    #[default]
    Required,
    /// Who has none goes on without: for callers that show a token instead.
    /// One that is shown has to be good all the same.
    Optional,
}

/// Where a server's certificates are. All files are PEM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerFiles {
    /// The server's certificate, then those between it and its authority.
    pub certificate: PathBuf,
    /// Its private key: PKCS#8, SEC1 or PKCS#1.
    pub key: PathBuf,
    /// Authorities of client certificates. `None`: clients are not asked.
    pub client_authorities: Option<PathBuf>,
    /// Whether clients have to show one.
    pub client_certificates: ClientCertificates,
}

/// Makes TLS of accepted connections. Clones share the certificates.
#[derive(Clone)]
pub struct Acceptor(Arc<Inner>);

struct Inner {
    files: ServerFiles,
    /// What is spoken above TLS, as ALPN has it.
    protocols: Vec<Vec<u8>>,
    current: RwLock<Current>,
    stale: StaleSince,
}

struct Current {
    config: Arc<ServerConfig>,
    validity: Option<Validity>,
    fingerprint: blake3::Hash,
}

/// A connection over which TLS was agreed.
pub struct Accepted<S> {
    /// To be read and written.
    pub stream: TlsStream<S>,
    /// The subject alternative names (DNS names and URIs) of the client's
    /// certificate; none where the client showed no certificate.
    pub client_names: Option<Arc<[String]>>,
}

impl<S> fmt::Debug for Accepted<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Accepted").field("client_names", &self.client_names).finish_non_exhaustive()
    }
}

impl fmt::Debug for Acceptor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Acceptor").field("files", &self.0.files).finish_non_exhaustive()
    }
}

impl Acceptor {
    /// What gRPC is agreed on as.
    pub const GRPC: &'static [&'static str] = &["h2"];
    /// What plain HTTP is agreed on as.
    pub const HTTP: &'static [&'static str] = &["http/1.1"];

    /// Reads the files. `protocols` is what may be spoken above TLS.
    ///
    /// # Errors
    ///
    /// [`TlsError`] names the file.
    pub async fn load(files: ServerFiles, protocols: &[&str]) -> Result<Self, TlsError> {
        let protocols: Vec<Vec<u8>> = protocols.iter().map(|it| it.as_bytes().to_vec()).collect();
        let contents = Contents::read(paths(&files)).await?;
        let current = current(&files, &protocols, &contents)?;
        Ok(Self(Arc::new(Inner {
            files,
            protocols,
            current: RwLock::new(current),
            stale: StaleSince::default(),
        })))
    }

    /// Agrees on TLS. Takes as long as the client does: bound it.
    ///
    /// # Errors
    ///
    /// What the client did wrong, or what was refused.
    ///
    /// # Cancel safety
    ///
    /// A dropped call closes the connection.
    pub async fn accept<S>(&self, stream: S) -> io::Result<Accepted<S>>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let config = {
            let current = self.0.current.read().unwrap_or_else(PoisonError::into_inner);
            Arc::clone(&current.config)
        };
        let stream = TlsAcceptor::from(config).accept(stream).await?;
        let shown = stream.get_ref().1.peer_certificates();
        let client_names = shown.and_then(|it| it.first()).map(names);
        Ok(Accepted { stream, client_names })
    }

    /// Looks at the files again.
    ///
    /// # Errors
    ///
    /// [`TlsError`]: the files are not used, and the old ones stay in use.
    pub async fn reload(&self) -> Result<Reloaded, TlsError> {
        let reloaded = self.read_again().await;
        self.0.stale.note(reloaded.is_ok());
        reloaded
    }

    /// Since when the files cannot be used, and older ones are in use in their
    /// place; `None` while all is well.
    pub fn stale_since(&self) -> Option<Instant> {
        self.0.stale.get()
    }

    async fn read_again(&self) -> Result<Reloaded, TlsError> {
        let contents = Contents::read(paths(&self.0.files)).await?;
        {
            let current = self.0.current.read().unwrap_or_else(PoisonError::into_inner);
            if current.fingerprint == contents.fingerprint {
                return Ok(Reloaded::Unchanged);
            }
        }
        // Sessions of the old configuration cannot be resumed with the new one,
        // so an authority that was taken away lets nobody in that way.
        let made = current(&self.0.files, &self.0.protocols, &contents)?;
        *self.0.current.write().unwrap_or_else(PoisonError::into_inner) = made;
        Ok(Reloaded::Changed)
    }

    /// When the certificate that new connections are shown is good, or the one above
    /// it in the file that ends first.
    pub fn validity(&self) -> Option<Validity> {
        self.0.current.read().unwrap_or_else(PoisonError::into_inner).validity
    }

    /// Looks at the files again every `interval`, until it is dropped.
    pub async fn keep_fresh(self, interval: Duration) -> Infallible {
        let mut findings = Findings::of(Some(&self.0.files.certificate));
        loop {
            tokio::time::sleep(interval).await;
            findings.log(self.reload().await);
        }
    }
}

fn paths(files: &ServerFiles) -> impl Iterator<Item = &std::path::Path> {
    let ServerFiles { certificate, key, client_authorities, client_certificates: _ } = files;
    [Some(certificate), Some(key), client_authorities.as_ref()]
        .into_iter()
        .flatten()
        .map(PathBuf::as_path)
}

fn current(
    files: &ServerFiles,
    protocols: &[Vec<u8>],
    contents: &Contents,
) -> Result<Current, TlsError> {
    let builder = ServerConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .map_err(TlsError::Setup)?;
    let builder = match &files.client_authorities {
        None => builder.with_no_client_auth(),
        Some(path) => {
            let roots = Arc::new(contents.authorities(path)?);
            let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider());
            let verifier = match files.client_certificates {
                ClientCertificates::Required => verifier,
                ClientCertificates::Optional => verifier.allow_unauthenticated(),
            };
            let verifier = verifier
                .build()
                .map_err(|source| TlsError::Verifier { path: path.clone(), source })?;
            builder.with_client_cert_verifier(verifier)
        }
    };
    let chain = contents.certificates(&files.certificate)?;
    let validity = of_chain(&chain);
    let key = contents.key(&files.key)?;
    let mut config = builder.with_single_cert(chain, key).map_err(|source| {
        let (certificate, key) = (files.certificate.clone(), files.key.clone());
        TlsError::Identity { certificate, key, source }
    })?;
    config.alpn_protocols = protocols.to_vec();
    if files.client_authorities.is_some() {
        // A session that is resumed brings its client's certificate along
        // without anybody looking at it again: one that has expired meanwhile
        // would go on being good.
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
    }
    Ok(Current { config: Arc::new(config), validity, fingerprint: contents.fingerprint })
}

fn names(certificate: &CertificateDer<'_>) -> Arc<[String]> {
    // It has been verified, so it can be read.
    let Ok(read) = EndEntityCert::try_from(certificate) else { return Arc::new([]) };
    let all = read.valid_dns_names().chain(read.valid_uri_names());
    all.take(NAMES_MAX).map(str::to_owned).collect()
}
