//! The client's side of TLS.

use std::convert::Infallible;
use std::fmt;
use std::io;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use rustls::ClientConfig;
use rustls::pki_types::{InvalidDnsNameError, ServerName};
use rustls_platform_verifier::Verifier;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, ReadBuf};
use tokio::time::Instant;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::files::{Contents, Findings, Reloaded, TlsError, provider, with_causes};
use crate::stale::StaleSince;
use crate::validity::{Validity, of_chain};

/// How long the server's first bytes are waited for. Servers of HTTP/2 speak at
/// once; one that waits for its client is taken as it is.
const FIRST_BYTES_WAIT: Duration = Duration::from_millis(500);
/// Bytes of the server that are looked for: its settings are 50.
const FIRST_BYTES_LEN: usize = 1_024;

/// Which certificates a client trusts and shows. All files are PEM.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClientFiles {
    /// Authorities of servers. `None`: those that this machine trusts.
    pub authorities: Option<PathBuf>,
    /// The client's own certificate, then those between it and its authority;
    /// and its key. `None`: none is shown.
    pub identity: Option<(PathBuf, PathBuf)>,
    /// What the server's certificate has to be for, where that is not the name
    /// that is connected to.
    pub server_name: Option<String>,
}

/// Makes TLS of connections to servers. The files are looked at for every
/// connection. Clones share what was read.
#[derive(Clone)]
pub struct Connector(Arc<Inner>);

struct Inner {
    files: ClientFiles,
    speaks: Speaks,
    current: Mutex<Option<Current>>,
    stale: StaleSince,
}

#[derive(Clone)]
struct Current {
    config: Arc<ClientConfig>,
    validity: Option<Validity>,
    fingerprint: blake3::Hash,
}

/// What is spoken above TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Speaks {
    /// The server speaks first.
    Http2,
    /// The client does.
    Http1,
}

impl Speaks {
    fn protocols(self) -> Vec<Vec<u8>> {
        match self {
            Self::Http2 => vec![b"h2".to_vec()],
            Self::Http1 => vec![b"http/1.1".to_vec()],
        }
    }
}

/// Why there is no connection. Nothing was sent.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The client's own files.
    #[error(transparent)]
    Files(#[from] TlsError),
    /// The name is none that a certificate can be for.
    #[error("{name:?} is no name of a server")]
    Name {
        /// What was given.
        name: String,
        /// What is wrong with it.
        #[source]
        source: InvalidDnsNameError,
    },
    /// Server and client do not agree.
    #[error("no TLS with {name}")]
    Handshake {
        /// Who was asked for.
        name: String,
        /// What was said.
        #[source]
        source: io::Error,
    },
    /// The server has ended the connection right away, as it does with a client
    /// whose certificate is missing or not good.
    #[error("{name} has ended the connection after the handshake (does it want a certificate?)")]
    Refused {
        /// Who was asked for.
        name: String,
        /// What was said.
        #[source]
        source: io::Error,
    },
}

impl fmt::Debug for Connector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connector").field("files", &self.0.files).finish_non_exhaustive()
    }
}

impl Connector {
    /// For gRPC. Nothing is read yet.
    pub fn new(files: ClientFiles) -> Self {
        Self::speaking(files, Speaks::Http2)
    }

    /// For plain HTTP, where servers wait for their client. Nothing is read yet.
    pub fn for_http(files: ClientFiles) -> Self {
        Self::speaking(files, Speaks::Http1)
    }

    fn speaking(files: ClientFiles, speaks: Speaks) -> Self {
        Self(Arc::new(Inner {
            files,
            speaks,
            current: Mutex::new(None),
            stale: StaleSince::default(),
        }))
    }

    /// Reads the files: so that a mistake shows at start.
    ///
    /// # Errors
    ///
    /// [`TlsError`] names the file.
    pub async fn check(&self) -> Result<(), TlsError> {
        self.config().await.map(drop)
    }

    /// Agrees on TLS with `host`, a DNS name or an IP address. Takes as long as
    /// the server does: bound it.
    ///
    /// # Errors
    ///
    /// [`ConnectError`]. A server says only after the handshake of TLS 1.3 that
    /// it does not take a client's certificate. For gRPC its first bytes are
    /// waited for, so that this is an error of connecting, of which the caller
    /// knows that nothing was sent.
    ///
    /// # Cancel safety
    ///
    /// A dropped call closes the connection.
    pub async fn connect<S>(&self, host: &str, stream: S) -> Result<Connected<S>, ConnectError>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let name = self.0.files.server_name.as_deref().unwrap_or(host).to_owned();
        let server = ServerName::try_from(name.clone())
            .map_err(|source| ConnectError::Name { name: name.clone(), source })?;
        let config = self.config().await?;
        let connecting = TlsConnector::from(config).connect(server, stream);
        let mut stream = connecting
            .await
            .map_err(|source| ConnectError::Handshake { name: name.clone(), source })?;
        if self.0.speaks == Speaks::Http1 {
            return Ok(Connected { stream, first: Vec::new(), taken: 0 });
        }
        let mut first = vec![0; FIRST_BYTES_LEN];
        let read = match tokio::time::timeout(FIRST_BYTES_WAIT, stream.read(&mut first)).await {
            Ok(Ok(0)) => Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(read) => read,
            Err(_) => Ok(0),
        };
        first.truncate(read.map_err(|source| ConnectError::Refused { name, source })?);
        Ok(Connected { stream, first, taken: 0 })
    }

    /// Since when the files cannot be used; `None` while all is well, as far as
    /// connections were made.
    pub fn stale_since(&self) -> Option<Instant> {
        self.0.stale.get()
    }

    /// When the certificate that is shown is good, or the one above it in the file
    /// that ends first. `None` where none is shown, or nothing was read yet.
    pub fn validity(&self) -> Option<Validity> {
        self.held()?.validity
    }

    /// Looks at the files now and every `interval`, until it is dropped: for those
    /// who ask [`Connector::stale_since`] and [`Connector::validity`] where
    /// connections are seldom made.
    pub async fn keep_fresh(self, interval: Duration) -> Infallible {
        let files = &self.0.files;
        let identity = files.identity.as_ref().map(|it| &it.0);
        let mut findings = Findings::of(identity.or(files.authorities.as_ref()));
        // What is read first has changed for nobody.
        let mut is_first = true;
        loop {
            let looked = self.look().await.map(|it| it.0);
            findings.log(looked.map(|it| if is_first { Reloaded::Unchanged } else { it }));
            is_first = false;
            tokio::time::sleep(interval).await;
        }
    }

    fn held(&self) -> Option<Current> {
        self.0.current.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    async fn look(&self) -> Result<(Reloaded, Arc<ClientConfig>), TlsError> {
        let looked = self.read_again().await;
        self.0.stale.note(looked.is_ok());
        looked
    }

    async fn read_again(&self) -> Result<(Reloaded, Arc<ClientConfig>), TlsError> {
        let contents = Contents::read(paths(&self.0.files)).await?;
        if let Some(held) = self.held()
            && held.fingerprint == contents.fingerprint
        {
            return Ok((Reloaded::Unchanged, held.config));
        }
        let made = current(&self.0.files, self.0.speaks, &contents)?;
        let config = Arc::clone(&made.config);
        *self.0.current.lock().unwrap_or_else(PoisonError::into_inner) = Some(made);
        Ok((Reloaded::Changed, config))
    }

    async fn config(&self) -> Result<Arc<ClientConfig>, TlsError> {
        match (self.look().await, self.held()) {
            (Ok((_, config)), _) => Ok(config),
            (Err(error), Some(held)) => {
                let error = with_causes(&error);
                tracing::error!(error, "certificate files cannot be used; the old ones are");
                Ok(held.config)
            }
            (Err(error), None) => Err(error),
        }
    }
}

fn paths(files: &ClientFiles) -> impl Iterator<Item = &std::path::Path> {
    let identity = files.identity.as_ref();
    [files.authorities.as_ref(), identity.map(|it| &it.0), identity.map(|it| &it.1)]
        .into_iter()
        .flatten()
        .map(PathBuf::as_path)
}

fn current(files: &ClientFiles, speaks: Speaks, contents: &Contents) -> Result<Current, TlsError> {
    let builder = ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .map_err(TlsError::Setup)?;
    let builder = if let Some(path) = &files.authorities {
        builder.with_root_certificates(contents.authorities(path)?)
    } else {
        let verifier = Verifier::new(provider()).map_err(TlsError::Platform)?;
        builder.dangerous().with_custom_certificate_verifier(Arc::new(verifier))
    };
    let mut validity = None;
    let mut config = match &files.identity {
        None => builder.with_no_client_auth(),
        Some((certificate, key)) => {
            let chain = contents.certificates(certificate)?;
            validity = of_chain(&chain);
            let with = builder.with_client_auth_cert(chain, contents.key(key)?);
            with.map_err(|source| {
                let (certificate, key) = (certificate.clone(), key.clone());
                TlsError::Identity { certificate, key, source }
            })?
        }
    };
    config.alpn_protocols = speaks.protocols();
    Ok(Current { config: Arc::new(config), validity, fingerprint: contents.fingerprint })
}

/// A connection over which TLS was agreed, and which the server has taken.
pub struct Connected<S> {
    stream: TlsStream<S>,
    /// What the server has said already, of which so much was taken.
    first: Vec<u8>,
    taken: usize,
}

impl<S> fmt::Debug for Connected<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Connected")
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for Connected<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        let left = &this.first[this.taken..];
        if left.is_empty() {
            return Pin::new(&mut this.stream).poll_read(cx, buffer);
        }
        let taken = left.len().min(buffer.remaining());
        buffer.put_slice(&left[..taken]);
        this.taken += taken;
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Connected<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}
