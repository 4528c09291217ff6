//! TLS for the ports of a process: its settings, who is at the other end of a
//! connection, and the rule that nothing is served to a network in the clear, or
//! to callers that nobody knows.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::admin::gate::Proof;
use crate::auth::Authenticator;
use headwater_tls::{Acceptor, ClientCertificates, ServerFiles, TlsError};

/// Who is at the other end of a connection. In the extensions of every request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Peer {
    /// DNS names and URIs of the client's certificate, which was verified;
    /// `None` where it showed none.
    pub client_names: Option<Arc<[String]>>,
}

/// Whether clients have to show a certificate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum ClientCertificateRule {
    /// A client without one is refused in the handshake.
    #[default]
    Required,
    /// A client without one has to show a token.
    Optional,
}

/// TLS of the port that this process serves.
#[derive(Clone, Debug, Default, PartialEq, Eq, clap::Args)]
pub struct TlsOptions {
    /// The certificate of this server, followed by those between it and its
    /// authority, as PEM. The file is read again when it changes.
    #[arg(long, value_name = "FILE", env = "HEADWATER_LISTEN_TLS_CERT_FILE")]
    #[arg(requires = "listen_tls_key_file")]
    pub listen_tls_cert_file: Option<PathBuf>,
    /// Its private key, as PEM.
    #[arg(long, value_name = "FILE", env = "HEADWATER_LISTEN_TLS_KEY_FILE")]
    #[arg(requires = "listen_tls_cert_file")]
    pub listen_tls_key_file: Option<PathBuf>,
    /// Authorities of client certificates, as PEM. Without a file of rights,
    /// whoever has a certificate of theirs may do everything.
    #[arg(long, value_name = "FILE", env = "HEADWATER_LISTEN_TLS_CLIENT_CA_FILE")]
    #[arg(requires = "listen_tls_cert_file")]
    pub listen_tls_client_ca_file: Option<PathBuf>,
    /// Whether every client has to show a certificate.
    #[arg(long, value_enum, default_value_t, env = "HEADWATER_LISTEN_TLS_CLIENT_CERTIFICATES")]
    pub listen_tls_client_certificates: ClientCertificateRule,
    /// Serve the admin port with TLS too, with the same certificate. Nobody has
    /// to show a certificate in the handshake there: probes have none.
    #[arg(long, env = "HEADWATER_ADMIN_TLS", requires = "listen_tls_cert_file")]
    pub admin_tls: bool,
    /// Serve the admin port on an address that others than this machine reach
    /// without TLS, or to whoever reaches it: metrics and the status page are
    /// shown to anybody then, also where there is a file of rights. Changing
    /// what is logged needs its right all the same, where there are rights.
    #[arg(long, env = "HEADWATER_INSECURE_ADMIN")]
    pub insecure_admin: bool,
    /// Serve gRPC on an address that others than this machine reach without TLS,
    /// or without a file of rights or required client certificates. Without the
    /// first everything is in the clear, tokens included; without the second
    /// whoever connects may do everything: for networks that see to it
    /// themselves.
    #[arg(long, env = "HEADWATER_INSECURE_LISTEN")]
    pub insecure_listen: bool,
}

/// Why a process does not serve.
#[derive(Debug, thiserror::Error)]
pub enum TlsOptionsError {
    /// Without TLS, where others than this machine reach it.
    #[error(
        "{address} is reached by others than this machine, and there is no encryption: give \
         {options}, or listen on 127.0.0.1, or say {insecure} if the network is safe by itself"
    )]
    Plain {
        /// Where it was to listen.
        address: SocketAddr,
        /// What would make it TLS.
        options: &'static str,
        /// What allows it all the same.
        insecure: &'static str,
    },
    /// Without a way to know callers, where others than this machine reach it.
    #[error(
        "{address} is reached by others than this machine, and there are no rights: whoever \
         connects could do everything. Give --auth-file, or --listen-tls-client-ca-file to let in \
         only those with a certificate, or listen on 127.0.0.1, or say {insecure} if the network is \
         safe by itself"
    )]
    NoRights {
        /// Where it was to listen.
        address: SocketAddr,
        /// What allows it all the same.
        insecure: &'static str,
    },
    /// A file cannot be used.
    #[error(transparent)]
    Files(#[from] TlsError),
    /// Certificates that nobody has to show prove nothing by themselves.
    #[error(
        "--listen-tls-client-certificates optional lets anybody do everything without a file of \
         rights: give --auth-file, or make them required"
    )]
    OptionalAlone,
    /// Nobody says whose certificates count.
    #[error(
        "--listen-tls-client-certificates optional asks nobody for a certificate without \
         --listen-tls-client-ca-file: give both or neither"
    )]
    OptionalWithoutAuthority,
}

impl TlsOptions {
    /// Refuses what would be served to others than this machine in the clear,
    /// or whoever they are. `has_rights`: whether there is a file of rights.
    ///
    /// # Errors
    ///
    /// [`TlsOptionsError::Plain`], [`TlsOptionsError::NoRights`].
    pub fn check_address(
        &self,
        address: SocketAddr,
        has_rights: bool,
    ) -> Result<(), TlsOptionsError> {
        self.check(&Port {
            address,
            is_tls: self.listen_tls_cert_file.is_some(),
            has_rights,
            is_allowed: self.insecure_listen,
            options: "--listen-tls-cert-file and --listen-tls-key-file",
            insecure: "--insecure-listen",
        })
    }

    fn requires_client_certificates(&self) -> bool {
        self.listen_tls_client_ca_file.is_some()
            && self.listen_tls_client_certificates == ClientCertificateRule::Required
    }

    /// Refuses what the flags say of client certificates where it would let
    /// anybody in. `has_rights`: whether there is a file of rights.
    ///
    /// # Errors
    ///
    /// [`TlsOptionsError::OptionalWithoutAuthority`],
    /// [`TlsOptionsError::OptionalAlone`].
    pub fn check_clients(&self, has_rights: bool) -> Result<(), TlsOptionsError> {
        if self.listen_tls_client_certificates == ClientCertificateRule::Required {
            return Ok(());
        }
        if self.listen_tls_client_ca_file.is_none() {
            return Err(TlsOptionsError::OptionalWithoutAuthority);
        }
        if has_rights { Ok(()) } else { Err(TlsOptionsError::OptionalAlone) }
    }

    /// As [`TlsOptions::check_address`], for the admin port.
    ///
    /// # Errors
    ///
    /// [`TlsOptionsError::Plain`], [`TlsOptionsError::NoRights`].
    pub fn check_admin_address(
        &self,
        address: SocketAddr,
        has_rights: bool,
    ) -> Result<(), TlsOptionsError> {
        self.check(&Port {
            address,
            is_tls: self.admin_tls,
            has_rights,
            is_allowed: self.insecure_admin,
            options: "--admin-tls",
            insecure: "--insecure-admin",
        })
    }

    fn check(&self, port: &Port) -> Result<(), TlsOptionsError> {
        let Port { address, options, insecure, .. } = *port;
        if port.is_allowed || is_here(address) {
            return Ok(());
        }
        if !port.is_tls {
            return Err(TlsOptionsError::Plain { address, options, insecure });
        }
        // A certificate of the server says who the server is, and nothing of
        // those that call it.
        if port.has_rights || self.requires_client_certificates() {
            return Ok(());
        }
        Err(TlsOptionsError::NoRights { address, insecure })
    }

    /// How callers of the admin port prove who they are.
    pub(crate) fn admin_proof(&self, authenticator: Option<Authenticator>) -> Proof {
        match authenticator {
            Some(authenticator) => Proof::Rights(authenticator),
            // On this machine, without TLS, there is no certificate to show.
            None if self.requires_client_certificates()
                && (self.admin_tls || self.insecure_admin) =>
            {
                Proof::Certificate
            }
            None => Proof::Nothing,
        }
    }

    /// Where the certificates are; `None` without TLS.
    pub fn files(&self) -> Option<ServerFiles> {
        let identity = self.listen_tls_cert_file.clone().zip(self.listen_tls_key_file.clone());
        let (certificate, key) = identity?;
        let client_certificates = match self.listen_tls_client_certificates {
            ClientCertificateRule::Required => ClientCertificates::Required,
            ClientCertificateRule::Optional => ClientCertificates::Optional,
        };
        let client_authorities = self.listen_tls_client_ca_file.clone();
        Some(ServerFiles { certificate, key, client_authorities, client_certificates })
    }

    /// Reads the certificates; `None` without TLS. `has_rights`: whether there
    /// is a file of rights. `protocols`: what is spoken above TLS.
    ///
    /// # Errors
    ///
    /// [`TlsOptionsError`].
    pub async fn acceptor(
        &self,
        has_rights: bool,
        protocols: &[&str],
    ) -> Result<Option<Acceptor>, TlsOptionsError> {
        self.check_clients(has_rights)?;
        let Some(files) = self.files() else { return Ok(None) };
        Ok(Some(Acceptor::load(files, protocols).await?))
    }

    /// Reads the certificate of the admin port; `None` where it is plain.
    ///
    /// # Errors
    ///
    /// [`TlsOptionsError`].
    pub async fn admin_acceptor(
        &self,
        protocols: &[&str],
    ) -> Result<Option<Acceptor>, TlsOptionsError> {
        let Some(files) = self.files().filter(|_| self.admin_tls) else { return Ok(None) };
        // Probes have none to show; what asks for more is told so by the gate.
        let client_certificates = ClientCertificates::Optional;
        let files = ServerFiles { client_certificates, ..files };
        Ok(Some(Acceptor::load(files, protocols).await?))
    }
}

/// A port that is to be served.
struct Port {
    address: SocketAddr,
    is_tls: bool,
    has_rights: bool,
    /// Whether it was said that the network is safe.
    is_allowed: bool,
    /// What would make it TLS.
    options: &'static str,
    /// What says that the network is safe.
    insecure: &'static str,
}

/// Whether only this machine reaches it.
fn is_here(address: SocketAddr) -> bool {
    address.ip().to_canonical().is_loopback()
}

/// Who may call, and how often the files that say so are looked at.
#[derive(Clone, Debug, PartialEq, Eq, clap::Args)]
pub struct AuthOptions {
    /// Who may do what: tokens, client certificates and issuers of JWTs, as
    /// TOML. With it everything else is refused; without it everybody who can
    /// connect may do everything. Read again when it changes.
    #[arg(long, value_name = "FILE", env = "HEADWATER_AUTH_FILE")]
    pub auth_file: Option<PathBuf>,
    /// How often certificates, keys and the file of rights are looked at, in
    /// milliseconds.
    #[arg(long, default_value_t = 5_000, env = "HEADWATER_CREDENTIALS_INTERVAL_MS")]
    #[arg(value_parser = clap::value_parser!(u64).range(10..=3_600_000))]
    pub credentials_interval_ms: u64,
}

impl Default for AuthOptions {
    fn default() -> Self {
        Self { auth_file: None, credentials_interval_ms: 5_000 }
    }
}

impl AuthOptions {
    /// How often files are looked at.
    pub fn interval(&self) -> Duration {
        Duration::from_millis(self.credentials_interval_ms)
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Arguments {
        #[command(flatten)]
        tls: TlsOptions,
        #[command(flatten)]
        auth: AuthOptions,
    }

    const TLS: [&str; 4] = ["--listen-tls-cert-file", "c", "--listen-tls-key-file", "k"];

    fn read(arguments: &[&str]) -> Result<Arguments, clap::Error> {
        Arguments::try_parse_from([&["x"], arguments].concat())
    }

    #[test]
    fn in_the_clear_only_this_machine_is_served_unless_it_is_said() {
        let plain = read(&[]).unwrap().tls;
        for (address, is_served) in [
            ("127.0.0.1:7410", true),
            ("127.8.9.1:0", true),
            ("[::1]:7410", true),
            ("[::ffff:127.0.0.1]:1", true),
            ("0.0.0.0:7410", false),
            ("[::]:7410", false),
            ("10.0.0.1:7410", false),
        ] {
            let checked = plain.check_address(address.parse().unwrap(), true);
            assert_eq!(checked.is_ok(), is_served, "{address}");
        }
        let everywhere = "0.0.0.0:7410".parse().unwrap();
        let said = plain.check_address(everywhere, true).unwrap_err().to_string();
        for word in ["no encryption", "--listen-tls-cert-file", "--insecure-listen", "127.0.0.1"] {
            assert!(said.contains(word), "{said}");
        }
        let insecure = read(&["--insecure-listen"]).unwrap().tls;
        assert!(insecure.check_address(everywhere, true).is_ok());
        assert!(read(&TLS).unwrap().tls.check_address(everywhere, true).is_ok());
    }

    #[test]
    fn callers_that_nobody_knows_are_served_on_this_machine_only_unless_it_is_said() {
        let everywhere = "0.0.0.0:7410".parse().unwrap();
        let check = |more: &[&str], has_rights| {
            read(&[&TLS, more].concat()).unwrap().tls.check_address(everywhere, has_rights)
        };
        let authority = ["--listen-tls-client-ca-file", "a"];
        let optional = ["--listen-tls-client-certificates", "optional"];

        let said = check(&[], false).unwrap_err().to_string();
        for word in ["no rights", "--auth-file", "--listen-tls-client-ca-file", "--insecure-listen"]
        {
            assert!(said.contains(word), "{said}");
        }
        let none_is_required = check(&[authority, optional].concat(), false);
        assert!(matches!(none_is_required, Err(TlsOptionsError::NoRights { .. })));
        assert!(check(&[], true).is_ok());
        assert!(check(&authority, false).is_ok());
        assert!(check(&["--insecure-listen"], false).is_ok());
        let here = "127.0.0.1:7410".parse().unwrap();
        assert!(read(&[]).unwrap().tls.check_address(here, false).is_ok());
    }

    #[test]
    fn the_admin_port_has_a_word_of_its_own() {
        let everywhere = "0.0.0.0:7412".parse().unwrap();
        let check = |flags: &[&str], has_rights| {
            let all =
                if flags.contains(&"--admin-tls") { [&TLS, flags].concat() } else { flags.into() };
            read(&all).unwrap().tls.check_admin_address(everywhere, has_rights)
        };
        // What is said of gRPC says nothing of it, and the other way round.
        for flags in [&[][..], &["--insecure-listen"]] {
            let said = check(flags, true).unwrap_err().to_string();
            for word in ["no encryption", "--admin-tls", "--insecure-admin", "127.0.0.1"] {
                assert!(said.contains(word), "{said}");
            }
        }
        let insecure = read(&["--insecure-admin"]).unwrap().tls;
        assert!(insecure.check_address("0.0.0.0:7410".parse().unwrap(), true).is_err());
        assert!(check(&["--insecure-admin"], false).is_ok());

        let said = check(&["--admin-tls"], false).unwrap_err().to_string();
        assert!(said.contains("no rights") && said.contains("--insecure-admin"), "{said}");
        assert!(check(&["--admin-tls"], true).is_ok());
        assert!(check(&["--admin-tls", "--listen-tls-client-ca-file", "a"], false).is_ok());
        let here = "[::1]:7412".parse().unwrap();
        assert!(read(&[]).unwrap().tls.check_admin_address(here, false).is_ok());
    }

    #[test]
    fn half_an_identity_is_refused() {
        assert!(read(&["--listen-tls-cert-file", "c"]).is_err());
        assert!(read(&["--listen-tls-key-file", "k"]).is_err());
        assert!(read(&["--listen-tls-client-ca-file", "a"]).is_err());
        assert!(read(&["--admin-tls"]).is_err());
        assert_eq!(read(&[]).unwrap().auth, AuthOptions::default());
    }

    #[tokio::test]
    async fn certificates_that_nobody_has_to_show_need_a_file_of_rights_and_an_authority() {
        let optional = [&TLS[..], &["--listen-tls-client-certificates", "optional"]].concat();
        let with_authority = [&optional[..], &["--listen-tls-client-ca-file", "a"]].concat();
        let refused = async |arguments: &[&str], has_rights| {
            let tls = read(arguments).unwrap().tls;
            tls.acceptor(has_rights, Acceptor::GRPC).await.unwrap_err()
        };

        let alone = refused(&with_authority, false).await;
        assert!(matches!(alone, TlsOptionsError::OptionalAlone));
        for has_rights in [false, true] {
            let nobodys = refused(&optional, has_rights).await;
            assert!(matches!(nobodys, TlsOptionsError::OptionalWithoutAuthority));
        }
        // The files are not there; nothing else is wrong.
        let files = refused(&with_authority, true).await;
        assert!(matches!(files, TlsOptionsError::Files(_)));
    }
}
