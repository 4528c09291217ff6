//! A process's own connections to writers, from replicas and from other writers:
//! TLS, and the token that it shows.

use std::convert::Infallible;
use std::io;
use std::path::PathBuf;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use futures::future::BoxFuture;
use headwater_tls::{BearerError, BearerFile, ClientFiles, Connector, TlsError};
use hyper_util::rt::TokioIo;
use opentelemetry::metrics::Meter;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tonic::codegen::Service;
use tonic::metadata::MetadataValue;
use tonic::service::Interceptor;
use tonic::service::interceptor::InterceptedService;
use tonic::transport::{Channel, Endpoint, Error, Uri};
use tonic::{Request, Status};

use crate::metrics::credentials::{self, Files};

/// Whom a process trusts among writers, and what it shows them. Writers want the
/// role `read` on every history that a replica follows, and `write` on every
/// history whose operations another writer forwards.
#[derive(Clone, Debug, Default, PartialEq, Eq, clap::Args)]
#[command(next_help_heading = "Connections to writers")]
pub struct WriterLineOptions {
    /// Authorities of the writers' certificates, as PEM. Default: those that
    /// this machine trusts. With this or any other of these, writers are https
    /// where their address does not say http.
    #[arg(long, value_name = "FILE", env = "HEADWATER_WRITERS_TLS_CA")]
    pub writers_tls_ca: Option<PathBuf>,
    /// A certificate to show to writers, as PEM.
    #[arg(long, value_name = "FILE", env = "HEADWATER_WRITERS_TLS_CERT")]
    #[arg(requires = "writers_tls_key")]
    pub writers_tls_cert: Option<PathBuf>,
    /// The key of that certificate, as PEM.
    #[arg(long, value_name = "FILE", env = "HEADWATER_WRITERS_TLS_KEY")]
    #[arg(requires = "writers_tls_cert")]
    pub writers_tls_key: Option<PathBuf>,
    /// The name that the writers' certificates are for, where it is not the one
    /// of the address.
    #[arg(long, value_name = "NAME", env = "HEADWATER_WRITERS_TLS_SERVER_NAME")]
    pub writers_tls_server_name: Option<String>,
    /// A file with the token to show to writers. It is read again when it
    /// changes.
    #[arg(long, value_name = "FILE", env = "HEADWATER_WRITERS_TOKEN_FILE")]
    pub writers_token_file: Option<PathBuf>,
    /// Send the token also in the clear to other machines: for networks that
    /// encrypt by themselves.
    #[arg(long, env = "HEADWATER_WRITERS_TOKEN_OVER_PLAIN")]
    pub writers_token_over_plain: bool,
}

impl WriterLineOptions {
    /// Whether writers are asked over TLS, where nobody says otherwise.
    pub fn is_tls(&self) -> bool {
        self.files() != ClientFiles::default()
    }

    fn files(&self) -> ClientFiles {
        ClientFiles {
            authorities: self.writers_tls_ca.clone(),
            identity: self.writers_tls_cert.clone().zip(self.writers_tls_key.clone()),
            server_name: self.writers_tls_server_name.clone(),
        }
    }

    /// Reads the files that are named.
    ///
    /// # Errors
    ///
    /// [`WriterLineError`] names the one that cannot be used.
    pub async fn check_files(&self) -> Result<(), WriterLineError> {
        let files = self.files();
        if files != ClientFiles::default() {
            Connector::new(files).check().await?;
        }
        if let Some(path) = &self.writers_token_file {
            BearerFile::new(path).authorization()?;
        }
        Ok(())
    }
}

/// Looks at the files of connections to writers, whether connections are made or
/// not: those go on for hours, and read their files when they are made.
#[derive(Clone, Debug)]
pub struct WatchedFiles {
    connector: Option<Connector>,
    bearer: Option<BearerFile>,
}

impl WatchedFiles {
    /// Those that `options` name. Nothing is read yet.
    pub fn new(options: &WriterLineOptions) -> Self {
        Self {
            connector: options.is_tls().then(|| Connector::new(options.files())),
            bearer: options.writers_token_file.as_ref().map(BearerFile::new),
        }
    }

    /// Measures whether they can be used, and until when the certificate is good.
    pub fn measure(&self, meter: &Meter) {
        let Self { connector, bearer } = self.clone();
        let of_token = move || bearer.as_ref().and_then(BearerFile::stale_since);
        credentials::stale(meter, Files::WritersToken, of_token);
        let of_certificate = connector.clone();
        let since = move || of_certificate.as_ref().and_then(Connector::stale_since);
        credentials::stale(meter, Files::WritersCertificates, since);
        let validity = move || connector.as_ref().and_then(Connector::validity);
        credentials::validity(meter, Files::WritersCertificates, validity);
    }

    /// Looks at them now and every `interval`, until it is dropped.
    pub async fn keep_fresh(self, interval: Duration) -> Infallible {
        let Self { connector, bearer } = self;
        tokio::join!(
            async {
                match connector {
                    Some(it) => match it.keep_fresh(interval).await {},
                    None => std::future::pending().await,
                }
            },
            async {
                match bearer {
                    Some(it) => match it.keep_fresh(interval).await {},
                    None => std::future::pending::<Infallible>().await,
                }
            }
        )
        .0
    }
}

/// A file for the connections to writers that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum WriterLineError {
    /// A certificate, a key, or authorities.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The token.
    #[error(transparent)]
    Token(#[from] BearerError),
}

/// A channel to a writer, which shows the token with each call.
pub type WriterLine = InterceptedService<Channel, ShowToken>;

/// Makes connections to one writer.
#[derive(Clone, Debug)]
pub struct Dial {
    endpoint: Endpoint,
    connector: Connector,
    bearer: Option<BearerFile>,
    is_plain_allowed: bool,
}

impl Dial {
    /// For the writer at `address`: `host:port`, or with `http` or `https`.
    ///
    /// # Errors
    ///
    /// That it is no address.
    pub fn new(
        address: &str,
        options: &WriterLineOptions,
        settings: impl FnOnce(Endpoint) -> Endpoint,
    ) -> Result<Self, Error> {
        let files = options.files();
        let scheme = if options.is_tls() { "https" } else { "http" };
        let uri = if address.contains("://") {
            address.to_owned()
        } else {
            format!("{scheme}://{address}")
        };
        Ok(Self {
            endpoint: settings(Endpoint::from_shared(uri)?),
            connector: Connector::new(files),
            bearer: options.writers_token_file.as_ref().map(BearerFile::new),
            is_plain_allowed: options.writers_token_over_plain,
        })
    }

    /// Reads the token, where there is one to be shown. Connections that are made
    /// by this have one from then on: while the file cannot be used, the old one.
    ///
    /// # Errors
    ///
    /// [`BearerError`]: a call would fail before anything of it is sent.
    pub fn check_token(&self) -> Result<(), BearerError> {
        self.bearer.as_ref().map_or(Ok(()), |it| it.authorization().map(drop))
    }

    /// Connects. The connection is made again where it breaks.
    ///
    /// # Errors
    ///
    /// Nothing was sent.
    ///
    /// # Cancel safety
    ///
    /// A dropped call closes the connection.
    pub async fn connect(&self) -> Result<WriterLine, Error> {
        let channel = self.endpoint.connect_with_connector(self.clone()).await?;
        Ok(InterceptedService::new(channel, ShowToken(self.bearer.clone())))
    }
}

/// A connection, in the clear or not.
pub trait Io: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Io for T {}

impl Service<Uri> for Dial {
    type Response = TokioIo<Pin<Box<dyn Io>>>;
    type Error = io::Error;
    type Future = BoxFuture<'static, Result<Self::Response, io::Error>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let dial = self.clone();
        Box::pin(async move {
            let is_tls = uri.scheme_str() == Some("https");
            let host = uri.host().unwrap_or_default().trim_matches(['[', ']']);
            let port = uri.port_u16().unwrap_or(if is_tls { 443 } else { 80 });
            let stream = TcpStream::connect((host, port)).await?;
            stream.set_nodelay(true)?;
            if is_tls {
                let agreed = dial.connector.connect(host, stream).await;
                let agreed = agreed.map_err(io::Error::other)?;
                return Ok(TokioIo::new(Box::pin(agreed) as Pin<Box<dyn Io>>));
            }
            let is_here = stream.peer_addr()?.ip().to_canonical().is_loopback();
            if dial.bearer.is_some() && !is_here && !dial.is_plain_allowed {
                return Err(io::Error::other(
                    "the token would be sent in the clear to another machine: use https, or say \
                     --writers-token-over-plain",
                ));
            }
            Ok(TokioIo::new(Box::pin(stream) as Pin<Box<dyn Io>>))
        })
    }
}

/// Shows the token, if there is one.
#[derive(Clone, Debug)]
pub struct ShowToken(Option<BearerFile>);

impl Interceptor for ShowToken {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        let Some(bearer) = &self.0 else { return Ok(request) };
        let header =
            bearer.authorization().map_err(|it| Status::unauthenticated(it.to_string()))?;
        // What was a header is metadata, which is one.
        if let Ok(mut value) = MetadataValue::try_from(header.as_bytes()) {
            value.set_sensitive(true);
            request.metadata_mut().insert("authorization", value);
        }
        Ok(request)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_file_that_cannot_be_used_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        assert!(WriterLineOptions::default().check_files().await.is_ok());
        std::fs::write(path("bad"), "two words").unwrap();
        std::fs::write(path("token"), "one").unwrap();
        let token = |name| WriterLineOptions {
            writers_token_file: Some(path(name)),
            ..WriterLineOptions::default()
        };
        assert!(token("token").check_files().await.is_ok());
        let authority = WriterLineOptions { writers_tls_ca: Some(path("bad")), ..token("token") };
        for (options, file) in [(token("bad"), "bad"), (token("none"), "none"), (authority, "bad")]
        {
            let said = options.check_files().await.unwrap_err().to_string();
            assert!(said.contains(path(file).to_str().unwrap()), "{said}");
        }
    }
}
