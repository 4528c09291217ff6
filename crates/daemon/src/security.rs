//! TLS, rights and limits of one process, put together.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use headwater_store::Clock;
use headwater_tls::Acceptor;
use http::Extensions;
use opentelemetry::metrics::Meter;
use tokio::net::TcpStream;

use crate::admin::Gate;
use crate::auth::{Authenticator, AuthenticatorError, GuardLayer};
use crate::limit::{LimitOptions, Limits};
use crate::metrics::credentials::{self, Files};
use crate::serve::{Accept, Accepted, Plain};
use crate::tls::{AuthOptions, Peer, TlsOptions, TlsOptionsError};

/// Who may connect, who may do what, and how much of it.
#[derive(Clone, Debug, Default, PartialEq, Eq, clap::Args)]
pub struct SecurityOptions {
    /// TLS of the ports.
    #[command(flatten, next_help_heading = "TLS and rights")]
    pub tls: TlsOptions,
    /// Who may do what.
    #[command(flatten)]
    pub auth: AuthOptions,
    /// How much of it.
    #[command(flatten, next_help_heading = "Limits")]
    pub limits: LimitOptions,
}

/// Why a process cannot be as safe as it should.
#[derive(Debug, thiserror::Error)]
pub enum SecurityError {
    /// TLS cannot be set up.
    #[error(transparent)]
    Tls(#[from] TlsOptionsError),
    /// There are no rights to go by.
    #[error(transparent)]
    Auth(#[from] AuthenticatorError),
}

/// What was made of the options.
#[derive(Clone, Debug)]
pub struct Security {
    options: SecurityOptions,
    grpc: Option<Acceptor>,
    admin: Option<Acceptor>,
    authenticator: Option<Authenticator>,
    guard: GuardLayer,
}

impl SecurityOptions {
    /// Checks what no single flag can, without reading a file.
    ///
    /// # Errors
    ///
    /// [`TlsOptionsError`].
    pub fn check(&self) -> Result<(), TlsOptionsError> {
        self.tls.check_clients(self.has_rights())
    }

    /// Refuses to serve gRPC to others than this machine in the clear, or
    /// without a way to know them.
    ///
    /// # Errors
    ///
    /// [`TlsOptionsError::Plain`], [`TlsOptionsError::NoRights`].
    pub fn check_address(&self, address: SocketAddr) -> Result<(), TlsOptionsError> {
        self.tls.check_address(address, self.has_rights())
    }

    /// As [`SecurityOptions::check_address`], for the admin port.
    ///
    /// # Errors
    ///
    /// [`TlsOptionsError::Plain`], [`TlsOptionsError::NoRights`].
    pub fn check_admin_address(&self, address: SocketAddr) -> Result<(), TlsOptionsError> {
        self.tls.check_admin_address(address, self.has_rights())
    }

    fn has_rights(&self) -> bool {
        self.auth.auth_file.is_some()
    }

    /// Reads all files.
    ///
    /// # Errors
    ///
    /// [`SecurityError`].
    pub async fn open(&self, clock: Clock) -> Result<Security, SecurityError> {
        let grpc = self.tls.acceptor(self.has_rights(), Acceptor::GRPC).await?;
        let admin = self.tls.admin_acceptor(Acceptor::HTTP).await?;
        let authenticator = match &self.auth.auth_file {
            Some(path) => Some(Authenticator::load(path.clone(), clock).await?),
            None => None,
        };
        let guard = GuardLayer::new(authenticator.clone(), self.limits.clone());
        Ok(Security { options: self.clone(), grpc, admin, authenticator, guard })
    }
}

impl Security {
    /// Decides who may ask the admin port for what.
    pub fn gate(&self) -> Gate {
        let tls = &self.options.tls;
        Gate::new(tls.admin_proof(self.authenticator.clone()), tls.insecure_admin)
    }

    /// Makes connections of the sockets of the gRPC port.
    pub fn acceptor(&self) -> Arc<dyn Accept> {
        accept(self.grpc.clone())
    }

    /// Makes connections of the sockets of the admin port.
    pub fn admin_acceptor(&self) -> Arc<dyn Accept> {
        accept(self.admin.clone())
    }

    /// The layer around all services.
    pub fn layer(&self) -> GuardLayer {
        self.guard.clone()
    }

    /// What counts towards the limits.
    pub fn limits(&self) -> Arc<Limits> {
        self.guard.limits()
    }

    /// Measures whether the files can still be used, and until when certificates
    /// are good.
    pub fn measure(&self, meter: &Meter) {
        let Self { grpc, admin, authenticator, .. } = self.clone();
        let validity = |it: Option<Acceptor>| move || it.as_ref().and_then(Acceptor::validity);
        credentials::validity(meter, Files::Certificates, validity(grpc.clone()));
        credentials::validity(meter, Files::AdminCertificates, validity(admin.clone()));
        let since = |it: Option<Acceptor>| move || it.as_ref().and_then(Acceptor::stale_since);
        credentials::stale(meter, Files::Certificates, since(grpc));
        credentials::stale(meter, Files::AdminCertificates, since(admin));
        let of_rights = move || authenticator.as_ref().and_then(Authenticator::stale_since);
        credentials::stale(meter, Files::Rights, of_rights);
    }

    /// Looks at all files again and again, until it is dropped.
    pub async fn keep_fresh(self) -> Infallible {
        let interval = self.options.auth.interval();
        tokio::join!(
            fresh_certificates(self.grpc, interval),
            fresh_certificates(self.admin, interval),
            async {
                match self.authenticator {
                    Some(it) => match it.keep_fresh(interval).await {},
                    None => std::future::pending().await,
                }
            }
        )
        .0
    }
}

async fn fresh_certificates(acceptor: Option<Acceptor>, interval: Duration) -> Infallible {
    match acceptor {
        Some(it) => it.keep_fresh(interval).await,
        None => std::future::pending().await,
    }
}

fn accept(acceptor: Option<Acceptor>) -> Arc<dyn Accept> {
    match acceptor {
        Some(it) => Arc::new(it),
        None => Arc::new(Plain),
    }
}

impl Accept for Acceptor {
    fn accept(&self, socket: TcpStream) -> BoxFuture<'static, io::Result<Accepted>> {
        let acceptor = self.clone();
        Box::pin(async move {
            let accepted = Acceptor::accept(&acceptor, socket).await?;
            let mut extensions = Extensions::new();
            extensions.insert(Peer { client_names: accepted.client_names });
            Ok(Accepted { io: Box::new(accepted.stream), extensions })
        })
    }
}
