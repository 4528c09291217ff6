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

/// A setting of the server that cannot be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{setting}` is {value}, it must be {rule}")]
pub struct ServerOptionsError {
    /// The setting.
    pub setting: &'static str,
    /// Its value.
    pub value: u64,
    /// The rule that it breaks.
    pub rule: &'static str,
}

/// A day: what is longer is a slip, and keeps a process that was told to end.
const SECONDS_MAX: u64 = 24 * 60 * 60;
const SECONDS_RULE: &str = "0 to 86400, which is a day";
const CONNECTIONS_MAX: u64 = 1_000_000;
const HANDSHAKE_MS_MAX: u64 = 10 * 60 * 1_000;

impl ServerOptions {
    /// Checks the settings.
    ///
    /// # Errors
    ///
    /// The first [`ServerOptionsError`].
    pub fn check(&self) -> Result<(), ServerOptionsError> {
        let seconds = |setting, value| (setting, value, 0, SECONDS_MAX, SECONDS_RULE);
        let connections = u64::try_from(self.connections_max).unwrap_or(u64::MAX);
        let all = [
            seconds("drain-delay-seconds", self.drain_delay_seconds),
            seconds("drain-seconds-max", self.drain_seconds_max),
            seconds("connection-age-seconds-max", self.connection_age_seconds_max),
            seconds("connection-age-grace-seconds", self.connection_age_grace_seconds),
            ("connections-max", connections, 1, CONNECTIONS_MAX, "1 to 1000000"),
            (
                "handshake-timeout-ms",
                self.handshake_timeout_ms,
                1,
                HANDSHAKE_MS_MAX,
                "1 to 600000, which is ten minutes",
            ),
        ];
        let wrong = all.into_iter().find(|(_, value, min, max, _)| !(min..=max).contains(&value));
        match wrong {
            None => Ok(()),
            Some((setting, value, _, _, rule)) => Err(ServerOptionsError { setting, value, rule }),
        }
    }

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
