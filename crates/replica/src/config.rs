//! How a replica behaves, with the arithmetic behind each default.

use std::time::Duration;

use serde::Deserialize;

/// Settings of one replica. Unknown keys in a file are refused.
///
/// Limits of 0 count as 1, except where 0 is said to mean something. Names of
/// options begin with `replica`, so that one process can take a writer's too.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, clap::Args)]
#[serde(deny_unknown_fields, default)]
pub struct ReplicaConfig {
    /// Writers that tell when they have published: `host:port` or an http URL.
    /// May be given several times. None: polling and reads find out.
    #[arg(
        long = "writer",
        value_name = "ADDRESS",
        env = "HEADWATER_WRITERS",
        value_delimiter = ','
    )]
    pub writers: Vec<String>,
    /// An open history is checked at least this often, in milliseconds; 0: only
    /// when a read or a writer asks. One a second costs 86,400 conditional reads
    /// a day for each history.
    #[arg(
        id = "replica-poll-ms",
        long = "replica-poll-ms",
        default_value_t = Self::POLL_MS,
        env = "HEADWATER_REPLICA_POLL_MS"
    )]
    pub poll_ms: u64,
    /// Histories open at a time. Past it the one used least recently is dropped.
    #[arg(
        id = "replica-histories-max",
        long = "replica-histories-max",
        default_value_t = Self::HISTORIES_MAX,
        env = "HEADWATER_REPLICA_HISTORIES_MAX"
    )]
    pub histories_max: usize,
    /// A history that nobody has read for so long is dropped, in seconds.
    #[arg(
        id = "replica-idle-seconds",
        long = "replica-idle-seconds",
        default_value_t = Self::IDLE_SECONDS,
        env = "HEADWATER_REPLICA_IDLE_SECONDS"
    )]
    pub idle_seconds: u64,
    /// Freshness checks of one history in flight at a time. With `n` of them a
    /// strong read waits for `1 + 1/n` round trips at most, and a busy history
    /// costs `n` conditional reads a round trip.
    #[arg(
        id = "replica-checks-in-flight-max",
        long = "replica-checks-in-flight-max",
        default_value_t = Self::CHECKS_IN_FLIGHT_MAX,
        env = "HEADWATER_REPLICA_CHECKS_IN_FLIGHT_MAX"
    )]
    pub checks_in_flight_max: usize,
    /// Reads of one history that wait for freshness at a time; more are held
    /// back. Each takes about 100 bytes.
    #[arg(
        id = "replica-waiting-max",
        long = "replica-waiting-max",
        default_value_t = Self::WAITING_MAX,
        env = "HEADWATER_REPLICA_WAITING_MAX"
    )]
    pub waiting_max: usize,
    /// Recent versions of each history kept for exact reads. They share what
    /// they have in common.
    #[arg(
        id = "replica-recent-versions-max",
        long = "replica-recent-versions-max",
        default_value_t = Self::RECENT_VERSIONS_MAX,
        env = "HEADWATER_REPLICA_RECENT_VERSIONS_MAX"
    )]
    pub recent_versions_max: usize,
    /// Bytes of changes between the recent versions of each history: what
    /// keeping them may cost.
    #[arg(
        id = "replica-recent-bytes-max",
        long = "replica-recent-bytes-max",
        default_value_t = Self::RECENT_BYTES_MAX,
        env = "HEADWATER_REPLICA_RECENT_BYTES_MAX"
    )]
    pub recent_bytes_max: u64,
    /// Versions of each history kept for scans under way. Past it the one whose
    /// last page is longest ago goes.
    #[arg(
        id = "replica-scans-max",
        long = "replica-scans-max",
        default_value_t = Self::SCANS_MAX,
        env = "HEADWATER_REPLICA_SCANS_MAX"
    )]
    pub scans_max: usize,
    /// How long a scan's version is kept after its last page, in seconds.
    #[arg(
        id = "replica-scan-seconds",
        long = "replica-scan-seconds",
        default_value_t = Self::SCAN_SECONDS,
        env = "HEADWATER_REPLICA_SCAN_SECONDS"
    )]
    pub scan_seconds: u64,
    /// Memory for decoded chunks of all histories, in bytes.
    #[arg(
        id = "replica-chunk-cache-bytes",
        long = "replica-chunk-cache-bytes",
        default_value_t = Self::CHUNK_CACHE_BYTES,
        env = "HEADWATER_REPLICA_CHUNK_CACHE_BYTES"
    )]
    pub chunk_cache_bytes: u64,
    /// Objects fetched at once by one load.
    #[arg(
        id = "replica-fetches-max",
        long = "replica-fetches-max",
        default_value_t = Self::FETCHES_MAX,
        env = "HEADWATER_REPLICA_FETCHES_MAX"
    )]
    pub fetches_max: usize,
    /// Longest time for a request, in seconds, also where the caller names none.
    #[arg(
        id = "replica-request-seconds-max",
        long = "replica-request-seconds-max",
        default_value_t = Self::REQUEST_SECONDS_MAX,
        env = "HEADWATER_REPLICA_REQUEST_SECONDS_MAX"
    )]
    pub request_seconds_max: u64,
}

impl ReplicaConfig {
    const POLL_MS: u64 = 1_000;
    const HISTORIES_MAX: usize = 1_024;
    const IDLE_SECONDS: u64 = 600;
    const CHECKS_IN_FLIGHT_MAX: usize = 3;
    const WAITING_MAX: usize = 16_384;
    const RECENT_VERSIONS_MAX: usize = 1_024;
    const RECENT_BYTES_MAX: u64 = 16 << 20;
    const SCANS_MAX: usize = 256;
    const SCAN_SECONDS: u64 = 60;
    const CHUNK_CACHE_BYTES: u64 = 256 << 20;
    const FETCHES_MAX: usize = 16;
    const REQUEST_SECONDS_MAX: u64 = 30;

    /// Longest time between two checks; `None` when there is no polling.
    pub(crate) fn poll(&self) -> Option<Duration> {
        (0 < self.poll_ms).then(|| Duration::from_millis(self.poll_ms))
    }

    pub(crate) fn idle(&self) -> Duration {
        Duration::from_secs(self.idle_seconds.max(1))
    }

    pub(crate) fn scan(&self) -> Duration {
        Duration::from_secs(self.scan_seconds)
    }

    /// Longest time for a request.
    pub fn request_max(&self) -> Duration {
        Duration::from_secs(self.request_seconds_max.max(1))
    }
}

impl Default for ReplicaConfig {
    fn default() -> Self {
        Self {
            writers: Vec::new(),
            poll_ms: Self::POLL_MS,
            histories_max: Self::HISTORIES_MAX,
            idle_seconds: Self::IDLE_SECONDS,
            checks_in_flight_max: Self::CHECKS_IN_FLIGHT_MAX,
            waiting_max: Self::WAITING_MAX,
            recent_versions_max: Self::RECENT_VERSIONS_MAX,
            recent_bytes_max: Self::RECENT_BYTES_MAX,
            scans_max: Self::SCANS_MAX,
            scan_seconds: Self::SCAN_SECONDS,
            chunk_cache_bytes: Self::CHUNK_CACHE_BYTES,
            fetches_max: Self::FETCHES_MAX,
            request_seconds_max: Self::REQUEST_SECONDS_MAX,
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Arguments {
        #[command(flatten)]
        config: ReplicaConfig,
    }

    #[test]
    fn the_command_line_and_a_file_have_the_same_defaults() {
        let by_flags = Arguments::parse_from(["headwater-replica"]).config;
        let by_file: ReplicaConfig = serde_json::from_str("{}").unwrap();

        assert_eq!(by_flags, ReplicaConfig::default());
        assert_eq!(by_file, ReplicaConfig::default());
    }

    #[test]
    fn an_unknown_key_is_refused() {
        let error = serde_json::from_str::<ReplicaConfig>(r#"{"poll_seconds": 1}"#).unwrap_err();

        assert!(error.to_string().contains("poll_seconds"));
    }

    #[test]
    fn every_option_can_be_set() {
        let flags = ["headwater-replica", "--replica-poll-ms", "7", "--replica-scans-max", "9"];
        let config = Arguments::parse_from(flags).config;

        assert_eq!((config.poll_ms, config.scans_max), (7, 9));
    }

    #[test]
    fn writers_may_be_repeated() {
        let flags = ["headwater-replica", "--writer", "a:1", "--writer", "b:2"];

        assert_eq!(Arguments::parse_from(flags).config.writers, ["a:1", "b:2"]);
    }
}
