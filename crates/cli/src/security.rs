//! Whom commands trust, and what they show.

use std::path::PathBuf;

use clap::Args;
use headwater_client::ClientBuilder;
use headwater_tls::ClientFiles;

/// Whom commands trust, and what they show.
#[derive(Clone, Debug, Default, Args)]
pub struct Security {
    /// Authorities of the servers' certificates, as PEM. Default: those that
    /// this machine trusts. With this or any other --tls option, addresses are
    /// https where they do not say http.
    #[arg(
        long,
        value_name = "FILE",
        env = "HEADWATER_TLS_CA",
        global = true,
        help_heading = "Global"
    )]
    pub tls_ca: Option<PathBuf>,
    /// A certificate to show to servers, as PEM. Needs --tls-key.
    #[arg(
        long,
        value_name = "FILE",
        env = "HEADWATER_TLS_CERT",
        requires = "tls_key",
        global = true,
        help_heading = "Global"
    )]
    pub tls_cert: Option<PathBuf>,
    /// The key of that certificate, as PEM.
    #[arg(
        long,
        value_name = "FILE",
        env = "HEADWATER_TLS_KEY",
        requires = "tls_cert",
        global = true,
        help_heading = "Global"
    )]
    pub tls_key: Option<PathBuf>,
    /// The name that the servers' certificates are for, where it is not the one
    /// of the address.
    #[arg(
        long,
        value_name = "NAME",
        env = "HEADWATER_TLS_SERVER_NAME",
        global = true,
        help_heading = "Global"
    )]
    pub tls_server_name: Option<String>,
    /// A file with the token to show. It is read again when it changes.
    #[arg(
        long,
        value_name = "FILE",
        env = "HEADWATER_TOKEN_FILE",
        global = true,
        help_heading = "Global"
    )]
    pub token_file: Option<PathBuf>,
    /// Send the token also in the clear to other machines: for networks that
    /// encrypt by themselves.
    #[arg(long, env = "HEADWATER_TOKEN_OVER_PLAIN", global = true, help_heading = "Global")]
    pub token_over_plain: bool,
}

impl Security {
    /// What is trusted, and shown of this side, in a handshake.
    pub(crate) fn files(&self) -> ClientFiles {
        ClientFiles {
            authorities: self.tls_ca.clone(),
            identity: self.tls_cert.clone().zip(self.tls_key.clone()),
            server_name: self.tls_server_name.clone(),
        }
    }

    pub(crate) fn apply(&self, mut client: ClientBuilder) -> ClientBuilder {
        if let Some(file) = &self.tls_ca {
            client = client.tls_authorities(file);
        }
        if let (Some(certificate), Some(key)) = (&self.tls_cert, &self.tls_key) {
            client = client.tls_identity(certificate, key);
        }
        if let Some(name) = &self.tls_server_name {
            client = client.tls_server_name(name);
        }
        if let Some(file) = &self.token_file {
            client = client.token_file(file);
        }
        client.token_over_plain(self.token_over_plain)
    }
}
