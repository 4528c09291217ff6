//! The receiver of OTLP: where it is, and the connection to it.
//!
//! TLS is ours, and not what the exporter could be built with: the same files,
//! read again for each connection, and the same library as everywhere else.

use std::io;
use std::path::PathBuf;
use std::task::{Context, Poll};
use std::time::Duration;

use futures::future::BoxFuture;
use headwater_tls::{ClientFiles, Connected, Connector, TlsError};
use http::Uri;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tonic::transport::{Channel, Endpoint};
use tower::Service;

/// Longest wait for a connection, its handshake included.
const CONNECT_MAX: Duration = Duration::from_secs(5);

/// Whom a process trusts as the receiver of its telemetry, and what it shows.
#[derive(Clone, Debug, Default, PartialEq, Eq, clap::Args)]
pub struct ReceiverTls {
    /// Authorities of the receiver's certificate, as PEM, for an endpoint that
    /// is https. Default: those that this machine trusts.
    #[arg(long, value_name = "FILE", env = "HEADWATER_OTLP_TLS_CA")]
    pub otlp_tls_ca: Option<PathBuf>,
    /// A certificate to show to the receiver, as PEM.
    #[arg(long, value_name = "FILE", env = "HEADWATER_OTLP_TLS_CERT")]
    #[arg(requires = "otlp_tls_key")]
    pub otlp_tls_cert: Option<PathBuf>,
    /// The key of that certificate, as PEM.
    #[arg(long, value_name = "FILE", env = "HEADWATER_OTLP_TLS_KEY")]
    #[arg(requires = "otlp_tls_cert")]
    pub otlp_tls_key: Option<PathBuf>,
}

/// A receiver of OTLP.
#[derive(Clone, Debug)]
pub(super) struct Receiver {
    pub(super) endpoint: String,
    /// Without it, it is asked in the clear. All connections share it.
    pub(super) tls: Option<Connector>,
}

/// Why there is no receiver.
#[derive(Debug, thiserror::Error)]
pub enum ReceiverError {
    /// The address is not one.
    #[error(
        "the OTLP endpoint is `{found}`, and has to be http://HOST:PORT or https://HOST:PORT, \
         which is OTLP over gRPC"
    )]
    Endpoint {
        /// What was given.
        found: String,
    },
    /// Certificates that nobody would use.
    #[error("--otlp-tls files are given, and the OTLP endpoint `{found}` is not https")]
    Plain {
        /// What was given.
        found: String,
    },
}

impl Receiver {
    /// The receiver at `found`.
    pub(super) fn new(found: String, tls: &ReceiverTls) -> Result<Self, ReceiverError> {
        let uri = found.parse::<Uri>().ok();
        let uri = uri.filter(|it| it.host().is_some_and(|it| !it.is_empty()));
        let files = ClientFiles {
            authorities: tls.otlp_tls_ca.clone(),
            identity: tls.otlp_tls_cert.clone().zip(tls.otlp_tls_key.clone()),
            server_name: None,
        };
        match uri.as_ref().and_then(Uri::scheme_str) {
            Some("https") => Ok(Self { endpoint: found, tls: Some(Connector::new(files)) }),
            Some("http") if files == ClientFiles::default() => {
                Ok(Self { endpoint: found, tls: None })
            }
            Some("http") => Err(ReceiverError::Plain { found }),
            Some(_) | None => Err(ReceiverError::Endpoint { found }),
        }
    }

    /// Reads the files for its certificate.
    pub(super) async fn check_files(&self) -> Result<(), TlsError> {
        match &self.tls {
            Some(connector) => connector.check().await,
            None => Ok(()),
        }
    }

    /// A channel over TLS, which connects when it is first used; `None` where
    /// the receiver is asked in the clear.
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime.
    pub(super) fn channel(&self) -> Result<Option<Channel>, ReceiverError> {
        let Some(connector) = &self.tls else { return Ok(None) };
        let endpoint = Endpoint::from_shared(self.endpoint.clone());
        let endpoint =
            endpoint.map_err(|_| ReceiverError::Endpoint { found: self.endpoint.clone() })?;
        let dialer = Dialer(connector.clone());
        Ok(Some(endpoint.connect_with_connector_lazy(dialer)))
    }
}

/// Connects over TLS.
#[derive(Clone, Debug)]
struct Dialer(Connector);

impl Service<Uri> for Dialer {
    type Response = TokioIo<Connected<TcpStream>>;
    type Error = io::Error;
    type Future = BoxFuture<'static, Result<Self::Response, io::Error>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let Self(connector) = self.clone();
        Box::pin(async move {
            let connecting = async {
                let host = uri.host().unwrap_or_default().trim_matches(['[', ']']);
                let stream = TcpStream::connect((host, uri.port_u16().unwrap_or(443))).await?;
                stream.set_nodelay(true)?;
                connector.connect(host, stream).await.map_err(io::Error::other)
            };
            Ok(TokioIo::new(timeout(CONNECT_MAX, connecting).await??))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endpoint_that_cannot_be_is_refused_with_what_it_has_to_be() {
        for bad in ["127.0.0.1:4317", "grpc://x", "http://", "https://", ""] {
            let error = Receiver::new(bad.to_owned(), &ReceiverTls::default()).unwrap_err();
            assert!(error.to_string().contains("https://HOST:PORT"), "{bad}: {error}");
        }
        for (good, is_tls) in [("http://127.0.0.1:4317", false), ("https://collector:4317", true)] {
            let receiver = Receiver::new(good.to_owned(), &ReceiverTls::default()).unwrap();
            assert_eq!((&*receiver.endpoint, receiver.tls.is_some()), (good, is_tls));
        }
    }

    #[test]
    fn certificates_are_for_an_endpoint_that_takes_them() {
        let tls = ReceiverTls { otlp_tls_ca: Some("ca.pem".into()), ..ReceiverTls::default() };
        let refused = Receiver::new("http://127.0.0.1:4317".to_owned(), &tls).unwrap_err();
        assert!(refused.to_string().contains("is not https"), "{refused}");
        assert!(Receiver::new("https://127.0.0.1:4317".to_owned(), &tls).is_ok());
    }
}
