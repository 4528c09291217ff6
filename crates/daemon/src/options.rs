//! Command line options that the binaries share.

use std::sync::Arc;

use headwater_store::{
    Clock, Entropy, Layers, LayersConfig, Meter, OpenError, PaceConfig, Plain, Pools, Sealed, Store,
};

use crate::admin::AdminOptions;
use crate::config::ConfigOptions;
use crate::daemon::BoxError;
use crate::health::ReadyOptions;
use crate::keys::{KeyOptions, KeyOptionsError};
use crate::logs::LogOptions;
use crate::prices::PricesError;
use crate::security::SecurityOptions;
use crate::serve::ServerOptions;
use crate::telemetry::otlp::TelemetryOptions;

/// What every process has: logs, connections and their end, the admin port.
#[derive(Clone, Debug, clap::Args)]
pub struct ProcessOptions {
    /// The file of settings.
    #[command(flatten)]
    pub config: ConfigOptions,
    /// What is logged, and how.
    #[command(flatten)]
    pub log: LogOptions,
    /// Connections, and how they end.
    #[command(flatten)]
    pub server: ServerOptions,
    /// Who may connect, who may do what, and how much of it.
    #[command(flatten)]
    pub security: SecurityOptions,
    /// The admin port.
    #[command(flatten)]
    pub admin: AdminOptions,
    /// What it takes to be ready.
    #[command(flatten)]
    pub ready: ReadyOptions,
    /// Metrics and traces.
    #[command(flatten)]
    pub telemetry: TelemetryOptions,
}

impl ProcessOptions {
    /// Checks what no single flag can: without touching anything remote.
    ///
    /// # Errors
    ///
    /// The first setting that cannot be.
    pub fn check(&self) -> Result<(), BoxError> {
        self.server.check()?;
        self.telemetry.check()?;
        self.security.check()?;
        if let Some(address) = self.admin.admin_listen {
            self.security.check_admin_address(address)?;
        }
        Ok(())
    }

    /// Loads every file that a process loads at its start: certificates, rights
    /// with the keys of their issuers, authorities of the receiver of telemetry.
    ///
    /// # Errors
    ///
    /// The first file that cannot be used, by its name.
    pub async fn check_files(&self) -> Result<(), BoxError> {
        self.security.open(Clock::system()).await?;
        self.telemetry.check_files().await?;
        Ok(())
    }
}

/// Which bucket, and how calls to it behave.
#[derive(Clone, Debug, clap::Args)]
pub struct StoreOptions {
    /// The store, as a URL: `file:///absolute/path`, `s3://bucket/prefix`,
    /// `memory:`.
    #[arg(long = "store", value_name = "URL", env = "HEADWATER_STORE")]
    pub url: String,
    /// The keys that its objects are sealed with.
    #[command(flatten)]
    pub keys: KeyOptions,
}

/// Why a store cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The URL does not open.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The keys cannot be had.
    #[error(transparent)]
    Keys(#[from] KeyOptionsError),
    /// There are no prices of that name.
    #[error(transparent)]
    Prices(#[from] PricesError),
}

impl StoreOptions {
    /// Looks at the URL, without opening anything.
    ///
    /// # Errors
    ///
    /// [`OpenError`].
    pub fn check(&self) -> Result<(), OpenError> {
        // A directory would be made; everything else is only parsed.
        if self.url.starts_with("file:") {
            Ok(())
        } else {
            headwater_store::open(&self.url).map(drop)
        }
    }

    /// Reads the keys, where they are in a file.
    ///
    /// # Errors
    ///
    /// [`KeyOptionsError`].
    pub fn check_files(&self) -> Result<(), KeyOptionsError> {
        self.keys.check_files()
    }
}

/// A store with the decorators that every process uses.
#[derive(Clone, Debug)]
pub struct OpenStore {
    /// To be used.
    pub store: Arc<dyn Store>,
    /// Counts what reaches the bucket, repeats included.
    pub meter: Arc<Meter>,
    /// Whether a server keeps it, which may be one that loses writes.
    pub is_remote: bool,
}

impl StoreOptions {
    /// Opens the store, with its keys. Nothing is read from it or written yet.
    ///
    /// Blocks while keys are read: for the start of a process.
    ///
    /// # Errors
    ///
    /// [`StoreError`] names the part of the URL that is wrong, or why there
    /// are no keys.
    pub fn open(&self, entropy: Entropy) -> Result<OpenStore, StoreError> {
        let mut adapter = headwater_store::open(&self.url)?;
        if Pools::suit(&self.url) {
            adapter = Arc::new(Pools::new(headwater_store::open(&self.url)?, adapter));
        }
        let config =
            LayersConfig { pace: PaceConfig::of_url(&self.url), ..LayersConfig::default() };
        let Layers { store, meter } = Layers::around(adapter, config, entropy);
        // Outermost: what is repeated below is bytes, which are sealed once.
        let store: Arc<dyn Store> = match self.keys.keyring()? {
            Some(keyring) => Arc::new(Sealed::new(store, keyring)),
            None => Arc::new(Plain::new(store)),
        };
        let is_local = ["file:", "memory:"].iter().any(|it| self.url.starts_with(it));
        Ok(OpenStore { store, meter, is_remote: !is_local })
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Arguments {
        #[command(flatten)]
        process: ProcessOptions,
        #[command(flatten)]
        store: StoreOptions,
    }

    #[tokio::test]
    async fn calls_to_an_opened_store_are_counted() {
        let arguments = Arguments::parse_from(["headwater", "--store", "memory:"]);
        let opened = arguments.store.open(Entropy::from_seed(1)).unwrap();

        opened.store.put("a/changes/x", "bytes".into()).await.unwrap();

        assert_eq!(opened.meter.read().total(), 1);
    }

    #[test]
    fn without_flags_the_server_has_its_default_settings() {
        let arguments = Arguments::parse_from(["headwater", "--store", "memory:"]);

        assert_eq!(arguments.process.server, ServerOptions::default());
    }

    #[test]
    fn a_url_of_an_unknown_scheme_is_refused() {
        let arguments = Arguments::parse_from(["headwater", "--store", "ftp://x"]);

        assert!(arguments.store.open(Entropy::from_seed(1)).is_err());
    }
}
