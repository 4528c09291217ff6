//! Reading certificates and keys, and telling whether they changed.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::RootCertStore;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::{self, PemObject as _};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::io::AsyncReadExt as _;

/// Most bytes of one file. A bundle of all public roots is a quarter of it.
const FILE_LEN_BYTES_MAX: u64 = 1 << 20;

/// Why certificates and keys cannot be used. The text of a key is in none of
/// these.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file cannot be read.
    #[error("cannot read {}", path.display())]
    Read {
        /// Which file.
        path: PathBuf,
        /// What happened.
        #[source]
        source: io::Error,
    },
    /// A file is too long to be what it should be.
    #[error("{} is longer than {FILE_LEN_BYTES_MAX} bytes", path.display())]
    TooLong {
        /// Which file.
        path: PathBuf,
    },
    /// A file is no PEM, or lacks what is looked for.
    #[error("{} has no usable {what} in it (PEM is expected)", path.display())]
    Pem {
        /// Which file.
        path: PathBuf,
        /// What was looked for.
        what: &'static str,
        /// What is wrong with it.
        #[source]
        source: pem::Error,
    },
    /// A file of authorities names one that cannot be used.
    #[error("{} names no usable authority", path.display())]
    Authority {
        /// Which file.
        path: PathBuf,
        /// What is wrong with it.
        #[source]
        source: rustls::Error,
    },
    /// Certificate and key do not fit each other, or TLS cannot use them.
    #[error("{} and {} cannot be used together", certificate.display(), key.display())]
    Identity {
        /// The file of the certificate.
        certificate: PathBuf,
        /// The file of the key.
        key: PathBuf,
        /// What is wrong with them.
        #[source]
        source: rustls::Error,
    },
    /// Client certificates cannot be checked.
    #[error("client certificates cannot be checked by the authorities in {}", path.display())]
    Verifier {
        /// The file of authorities.
        path: PathBuf,
        /// What is wrong with them.
        #[source]
        source: rustls::server::VerifierBuilderError,
    },
    /// TLS itself cannot be set up.
    #[error("TLS cannot be set up")]
    Setup(#[source] rustls::Error),
    /// The roots of this machine cannot be used.
    #[error("the trusted roots of this machine cannot be used; name a file of authorities")]
    Platform(#[source] rustls::Error),
}

/// What looking at the files again has shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reloaded {
    /// They are what they were.
    Unchanged,
    /// New connections get the new ones.
    Changed,
}

/// The content of files that are used together, and what tells it from another.
pub(crate) struct Contents {
    files: Vec<(PathBuf, Vec<u8>)>,
    pub(crate) fingerprint: blake3::Hash,
}

impl Contents {
    /// Reads `paths`, in order.
    pub(crate) async fn read(paths: impl IntoIterator<Item = &Path>) -> Result<Self, TlsError> {
        let mut files = Vec::new();
        let mut hasher = blake3::Hasher::new();
        for path in paths {
            let bytes = read(path).await?;
            hasher.update(blake3::hash(&bytes).as_bytes());
            files.push((path.to_owned(), bytes));
        }
        Ok(Self { files, fingerprint: hasher.finalize() })
    }

    fn of(&self, path: &Path) -> &[u8] {
        let found = self.files.iter().find(|it| it.0 == path);
        found.map_or(&[], |it| &it.1)
    }

    pub(crate) fn certificates(
        &self,
        path: &Path,
    ) -> Result<Vec<CertificateDer<'static>>, TlsError> {
        let failed = |source| TlsError::Pem { path: path.to_owned(), what: "certificate", source };
        let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(self.of(path)).collect();
        let found = found.map_err(failed)?;
        if found.is_empty() { Err(failed(pem::Error::NoItemsFound)) } else { Ok(found) }
    }

    pub(crate) fn key(&self, path: &Path) -> Result<PrivateKeyDer<'static>, TlsError> {
        PrivateKeyDer::from_pem_slice(self.of(path)).map_err(|source| TlsError::Pem {
            path: path.to_owned(),
            what: "private key",
            source,
        })
    }

    pub(crate) fn authorities(&self, path: &Path) -> Result<RootCertStore, TlsError> {
        let mut roots = RootCertStore::empty();
        for certificate in self.certificates(path)? {
            roots
                .add(certificate)
                .map_err(|source| TlsError::Authority { path: path.to_owned(), source })?;
        }
        Ok(roots)
    }
}

async fn read(path: &Path) -> Result<Vec<u8>, TlsError> {
    let failed = |source| TlsError::Read { path: path.to_owned(), source };
    let file = tokio::fs::File::open(path).await.map_err(failed)?;
    let mut bytes = Vec::new();
    file.take(FILE_LEN_BYTES_MAX + 1).read_to_end(&mut bytes).await.map_err(failed)?;
    if FILE_LEN_BYTES_MAX < bytes.len() as u64 {
        return Err(TlsError::TooLong { path: path.to_owned() });
    }
    Ok(bytes)
}

/// One provider for both directions, named so that nothing depends on which one
/// a process has installed.
pub(crate) fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::aws_lc_rs::default_provider())
}

/// Logs what looks at files find: bad ones once for each way in which they are
/// bad, since files that are written one after the other do not fit for a moment.
pub(crate) struct Findings {
    /// A file that says which they are.
    certificate: String,
    said: Option<String>,
}

impl Findings {
    pub(crate) fn of(file: Option<&PathBuf>) -> Self {
        let certificate = file.map(|it| it.display().to_string()).unwrap_or_default();
        Self { certificate, said: None }
    }

    pub(crate) fn log(&mut self, looked: Result<Reloaded, TlsError>) {
        let certificate = &self.certificate;
        let error = match looked {
            Ok(Reloaded::Unchanged) => None,
            Ok(Reloaded::Changed) => {
                tracing::info!(certificate, "new certificates are in use");
                None
            }
            Err(error) => Some(with_causes(&error)),
        };
        if let Some(error) = error.as_ref().filter(|it| self.said.as_ref() != Some(it)) {
            tracing::error!(
                certificate,
                error,
                "changed certificate files cannot be used; the old ones stay in use"
            );
        }
        self.said = error;
    }
}

/// An error with everything that it says about its causes.
pub(crate) fn with_causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = text + ": " + &error.to_string();
        cause = error.source();
    }
    text
}
