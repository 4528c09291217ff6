//! How connections are kept, and how they end.

use std::time::Duration;

/// Settings of the server, for every process alike.
#[derive(Clone, Debug, PartialEq, Eq, clap::Args)]
#[command(next_help_heading = "Server")]
pub struct ServerOptions {
    /// Time between "not ready" and the end of connections after a signal, in
    /// seconds: as long as load balancers and resolvers take to notice. New
    /// connections and calls are served until then.
    #[arg(long, default_value_t = 0, env = "HEADWATER_DRAIN_DELAY_SECONDS")]
    pub drain_delay_seconds: u64,
    /// Longest time for calls in flight to finish after that, in seconds.
    /// Kubernetes kills a container 30 seconds after it asked it to stop; this
    /// and the delay together have to leave time for the rest.
    #[arg(long, default_value_t = 20, env = "HEADWATER_DRAIN_SECONDS_MAX")]
    pub drain_seconds_max: u64,
    /// Age at which a connection is asked to go, in seconds, so that callers
    /// spread over new servers. Each gets up to a tenth more, so that not all
    /// go at once. 0: never.
    #[arg(long, default_value_t = 1_800, env = "HEADWATER_CONNECTION_AGE_SECONDS_MAX")]
    pub connection_age_seconds_max: u64,
    /// Longest time for the calls of such a connection to finish, in seconds.
    #[arg(long, default_value_t = 30, env = "HEADWATER_CONNECTION_AGE_GRACE_SECONDS")]
    pub connection_age_grace_seconds: u64,
    /// Connections at a time. Past it those that have nothing to do go first,
    /// and new ones are refused where there are none of them. Each takes a file
    /// descriptor and some 40 KiB.
    #[arg(long, default_value_t = 8_192, env = "HEADWATER_CONNECTIONS_MAX")]
    pub connections_max: usize,
    /// Longest time for a handshake, and for the first bytes after it, in
    /// milliseconds.
    #[arg(long, default_value_t = 10_000, env = "HEADWATER_HANDSHAKE_TIMEOUT_MS")]
    pub handshake_timeout_ms: u64,
}

impl ServerOptions {
    pub(super) fn drain_delay(&self) -> Duration {
        Duration::from_secs(self.drain_delay_seconds)
    }

    /// Longest time for calls in flight to finish.
    pub fn drain_max(&self) -> Duration {
        Duration::from_secs(self.drain_seconds_max)
    }

    pub(super) fn age_max(&self) -> Option<Duration> {
        let seconds = self.connection_age_seconds_max;
        (seconds != 0).then(|| Duration::from_secs(seconds))
    }

    pub(super) fn age_grace(&self) -> Duration {
        Duration::from_secs(self.connection_age_grace_seconds)
    }

    pub(super) fn handshake_timeout(&self) -> Duration {
        Duration::from_millis(self.handshake_timeout_ms)
    }
}

impl Default for ServerOptions {
    /// As without any flag.
    fn default() -> Self {
        Self {
            drain_delay_seconds: 0,
            drain_seconds_max: 20,
            connection_age_seconds_max: 1_800,
            connection_age_grace_seconds: 30,
            connections_max: 8_192,
            handshake_timeout_ms: 10_000,
        }
    }
}
