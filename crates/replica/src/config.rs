//! How a replica behaves, with the arithmetic behind each default.

use std::path::PathBuf;
use std::time::Duration;

use headwater_state::HydrationRate;
use serde::Deserialize;

use crate::watch::FeedLimits;
use headwater_daemon::writer_line::WriterLineOptions;

/// Settings of one replica. Unknown keys in a file are refused.
///
/// Names of options begin with `replica`, so that one process can take a
/// writer's too.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, clap::Args)]
#[serde(deny_unknown_fields, default)]
pub struct ReplicaConfig {
    /// Writers that tell what they have published: `host:port` or an http URL.
    /// May be given several times. None: polling and reads find out. Until the
    /// next check their word is served to reads that want no proof.
    #[arg(
        long = "writer",
        value_name = "ADDRESS",
        env = "HEADWATER_WRITER",
        value_delimiter = ','
    )]
    pub writers: Vec<String>,
    /// Whom it trusts among them, and what it shows them. Set by who starts it.
    #[arg(skip)]
    #[serde(skip)]
    pub writers_line: WriterLineOptions,
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
    /// A history that nobody has read for so long is dropped, in milliseconds.
    #[arg(
        id = "replica-idle-ms",
        long = "replica-idle-ms",
        default_value_t = Self::IDLE_MS,
        env = "HEADWATER_REPLICA_IDLE_MS"
    )]
    pub idle_ms: u64,
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
    /// How long a scan's version is kept after its last page, in milliseconds.
    #[arg(
        id = "replica-scan-ms",
        long = "replica-scan-ms",
        default_value_t = Self::SCAN_MS,
        env = "HEADWATER_REPLICA_SCAN_MS"
    )]
    pub scan_ms: u64,
    /// Memory for decoded chunks of all histories, in bytes.
    #[arg(
        id = "replica-chunk-cache-bytes",
        long = "replica-chunk-cache-bytes",
        default_value_t = Self::CHUNK_CACHE_BYTES,
        env = "HEADWATER_REPLICA_CHUNK_CACHE_BYTES"
    )]
    pub chunk_cache_bytes: u64,
    /// Memory for what the tails of all open histories wrote, in bytes. Past it
    /// idle histories are dropped, the one used least recently first: those
    /// without watchers, scans under way and reads.
    #[arg(
        id = "replica-overlay-bytes",
        long = "replica-overlay-bytes",
        default_value_t = Self::OVERLAY_BYTES,
        env = "HEADWATER_REPLICA_OVERLAY_BYTES"
    )]
    pub overlay_bytes: u64,
    /// Directory for a cache of objects on the local disk, which is made if it is
    /// not there. One process has it at a time. Objects are in there as they are
    /// read, so not encrypted. None: no such cache.
    #[arg(
        id = "replica-cache-dir",
        long = "replica-cache-dir",
        value_name = "DIR",
        env = "HEADWATER_REPLICA_CACHE_DIR"
    )]
    pub cache_dir: Option<PathBuf>,
    /// Bytes of objects in the cache on disk. Past it those used least recently
    /// are deleted.
    #[arg(
        id = "replica-cache-disk-bytes",
        long = "replica-cache-disk-bytes",
        default_value_t = Self::CACHE_DISK_BYTES,
        env = "HEADWATER_REPLICA_CACHE_DISK_BYTES"
    )]
    pub cache_disk_bytes: u64,
    /// How fast the cache on disk is filled with open histories in the
    /// background, in bytes a second over all of them; 0: only by reads.
    #[arg(
        id = "replica-hydrate-bytes-per-second",
        long = "replica-hydrate-bytes-per-second",
        default_value_t = Self::HYDRATE_BYTES_PER_SECOND,
        env = "HEADWATER_REPLICA_HYDRATE_BYTES_PER_SECOND"
    )]
    pub hydrate_bytes_per_second: u64,
    /// Objects fetched at once by one load.
    #[arg(
        id = "replica-fetches-max",
        long = "replica-fetches-max",
        default_value_t = Self::FETCHES_MAX,
        env = "HEADWATER_REPLICA_FETCHES_MAX"
    )]
    pub fetches_max: usize,
    /// Watches open at a time. Each may have 1 MiB of messages waiting for its
    /// caller, and more where single values are larger than 256 KiB.
    #[arg(
        id = "replica-watchers-max",
        long = "replica-watchers-max",
        default_value_t = Self::WATCHERS_MAX,
        env = "HEADWATER_REPLICA_WATCHERS_MAX"
    )]
    pub watchers_max: usize,
    /// Watches of one history at a time. All of them are woken by each change.
    #[arg(
        id = "replica-history-watchers-max",
        long = "replica-history-watchers-max",
        default_value_t = Self::HISTORY_WATCHERS_MAX,
        env = "HEADWATER_REPLICA_HISTORY_WATCHERS_MAX"
    )]
    pub history_watchers_max: usize,
    /// A watch whose caller has taken nothing for so long, while there was
    /// something to send, is ended, in milliseconds.
    #[arg(
        id = "replica-watch-stall-ms",
        long = "replica-watch-stall-ms",
        default_value_t = Self::WATCH_STALL_MS,
        env = "HEADWATER_REPLICA_WATCH_STALL_MS"
    )]
    pub watch_stall_ms: u64,
    /// Bytes of the newest changes of each watched history, kept for all who
    /// watch it. Who falls behind further reads from the store.
    #[arg(
        id = "replica-watch-live-bytes",
        long = "replica-watch-live-bytes",
        default_value_t = Self::WATCH_LIVE_BYTES,
        env = "HEADWATER_REPLICA_WATCH_LIVE_BYTES"
    )]
    pub watch_live_bytes: u64,
    /// Bytes of older changes of each watched history, read from the store and
    /// kept for others who are as far behind. Two of the largest segments.
    #[arg(
        id = "replica-watch-older-bytes",
        long = "replica-watch-older-bytes",
        default_value_t = Self::WATCH_OLDER_BYTES,
        env = "HEADWATER_REPLICA_WATCH_OLDER_BYTES"
    )]
    pub watch_older_bytes: u64,
    /// Bytes that all watches of the process hold together: changes that are kept
    /// for them, half of it at most, and messages that wait for their callers.
    /// Past the half changes are read from the store instead; past the whole the
    /// watch whose caller has taken nothing for the longest time, and for a second
    /// at least, is ended.
    #[arg(
        id = "replica-watch-bytes",
        long = "replica-watch-bytes",
        default_value_t = Self::WATCH_BYTES,
        env = "HEADWATER_REPLICA_WATCH_BYTES"
    )]
    pub watch_bytes: u64,
    /// Longest time for a request, in milliseconds, where the caller names none
    /// or a longer one.
    #[arg(
        id = "replica-request-timeout-ms",
        long = "replica-request-timeout-ms",
        default_value_t = Self::REQUEST_TIMEOUT_MS,
        env = "HEADWATER_REPLICA_REQUEST_TIMEOUT_MS"
    )]
    pub request_timeout_ms: u64,
}

/// A setting that the replica refuses to start with.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("replica setting `{field}` is {value}, it must be {rule}")]
pub struct ConfigError {
    /// The setting.
    pub field: &'static str,
    /// Its value.
    pub value: u64,
    /// The rule that it breaks.
    pub rule: &'static str,
}

/// A year: what is longer is a slip, and moments that far away cannot be told
/// on every clock.
const TIME_MS_MAX: u64 = 365 * 24 * 60 * 60 * 1_000;
const TIME_RULE: &str = "1 to 31536000000, which is a year";

/// More of anything that is counted than fits into a process.
const COUNT_MAX: usize = 1_000_000;
const COUNT_RULE: &str = "1 to 1000000";

impl ReplicaConfig {
    const POLL_MS: u64 = 1_000;
    const HISTORIES_MAX: usize = 1_024;
    const IDLE_MS: u64 = 600_000;
    const CHECKS_IN_FLIGHT_MAX: usize = 3;
    const WAITING_MAX: usize = 16_384;
    const RECENT_VERSIONS_MAX: usize = 1_024;
    const RECENT_BYTES_MAX: u64 = 16 << 20;
    const SCANS_MAX: usize = 256;
    const SCAN_MS: u64 = 60_000;
    const CHUNK_CACHE_BYTES: u64 = 256 << 20;
    /// A tail is compacted at 64 MiB: sixteen of the longest, or any number of
    /// quiet ones.
    const OVERLAY_BYTES: u64 = 1 << 30;
    const CACHE_DISK_BYTES: u64 = 10 << 30;
    /// An eighth of a gigabit link.
    const HYDRATE_BYTES_PER_SECOND: u64 = 16 << 20;
    const FETCHES_MAX: usize = 16;
    const WATCHERS_MAX: usize = 16_384;
    const HISTORY_WATCHERS_MAX: usize = 4_096;
    const WATCH_STALL_MS: u64 = 60_000;
    const WATCH_LIVE_BYTES: u64 = 8 << 20;
    const WATCH_OLDER_BYTES: u64 = 16 << 20;
    /// Of twenty histories all that their watches may keep, or what waits for 500
    /// callers that do not read.
    const WATCH_BYTES: u64 = 512 << 20;
    const REQUEST_TIMEOUT_MS: u64 = 30_000;

    /// Checks the settings.
    ///
    /// # Errors
    ///
    /// The first [`ConfigError`].
    pub fn validate(&self) -> Result<(), ConfigError> {
        let counts = [
            ("histories_max", self.histories_max),
            ("checks_in_flight_max", self.checks_in_flight_max),
            ("waiting_max", self.waiting_max),
            ("recent_versions_max", self.recent_versions_max),
            ("scans_max", self.scans_max),
            ("fetches_max", self.fetches_max),
            ("watchers_max", self.watchers_max),
            ("history_watchers_max", self.history_watchers_max),
        ];
        let times = [
            ("idle_ms", self.idle_ms),
            ("scan_ms", self.scan_ms),
            ("watch_stall_ms", self.watch_stall_ms),
            ("request_timeout_ms", self.request_timeout_ms),
        ];
        if TIME_MS_MAX < self.poll_ms {
            let rule = "0, or up to 31536000000, which is a year";
            return Err(ConfigError { field: "poll_ms", value: self.poll_ms, rule });
        }
        if let Some((field, value)) =
            times.into_iter().find(|(_, it)| !(1..=TIME_MS_MAX).contains(it))
        {
            return Err(ConfigError { field, value, rule: TIME_RULE });
        }
        if let Some((field, value)) =
            counts.into_iter().find(|(_, it)| !(1..=COUNT_MAX).contains(it))
        {
            return Err(ConfigError { field, value: value as u64, rule: COUNT_RULE });
        }
        Ok(())
    }

    /// Longest time between two checks; `None` when there is no polling.
    pub(crate) fn poll(&self) -> Option<Duration> {
        (0 < self.poll_ms).then(|| Duration::from_millis(self.poll_ms))
    }

    /// `None` where the disk is filled by reads alone.
    pub(crate) fn hydration(&self) -> Option<HydrationRate> {
        let is_on = self.cache_dir.is_some() && 0 < self.hydrate_bytes_per_second;
        is_on.then(|| HydrationRate::new(self.hydrate_bytes_per_second))
    }

    pub(crate) fn idle(&self) -> Duration {
        Duration::from_millis(self.idle_ms)
    }

    pub(crate) fn scan(&self) -> Duration {
        Duration::from_millis(self.scan_ms)
    }

    pub(crate) fn watch_stall(&self) -> Duration {
        Duration::from_millis(self.watch_stall_ms)
    }

    pub(crate) fn feed_limits(&self) -> FeedLimits {
        FeedLimits {
            watchers: self.history_watchers_max,
            live_bytes: self.watch_live_bytes,
            runs_bytes: self.watch_older_bytes,
        }
    }

    /// Longest time for a request.
    pub(crate) fn request_timeout(&self) -> Duration {
        Duration::from_millis(self.request_timeout_ms)
    }
}

impl Default for ReplicaConfig {
    fn default() -> Self {
        Self {
            writers: Vec::new(),
            writers_line: WriterLineOptions::default(),
            poll_ms: Self::POLL_MS,
            histories_max: Self::HISTORIES_MAX,
            idle_ms: Self::IDLE_MS,
            checks_in_flight_max: Self::CHECKS_IN_FLIGHT_MAX,
            waiting_max: Self::WAITING_MAX,
            recent_versions_max: Self::RECENT_VERSIONS_MAX,
            recent_bytes_max: Self::RECENT_BYTES_MAX,
            scans_max: Self::SCANS_MAX,
            scan_ms: Self::SCAN_MS,
            chunk_cache_bytes: Self::CHUNK_CACHE_BYTES,
            overlay_bytes: Self::OVERLAY_BYTES,
            cache_dir: None,
            cache_disk_bytes: Self::CACHE_DISK_BYTES,
            hydrate_bytes_per_second: Self::HYDRATE_BYTES_PER_SECOND,
            fetches_max: Self::FETCHES_MAX,
            watchers_max: Self::WATCHERS_MAX,
            history_watchers_max: Self::HISTORY_WATCHERS_MAX,
            watch_stall_ms: Self::WATCH_STALL_MS,
            watch_live_bytes: Self::WATCH_LIVE_BYTES,
            watch_older_bytes: Self::WATCH_OLDER_BYTES,
            watch_bytes: Self::WATCH_BYTES,
            request_timeout_ms: Self::REQUEST_TIMEOUT_MS,
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

    type Set = fn(&mut ReplicaConfig, u64);

    const TIMES: [(&str, Set); 5] = [
        ("poll_ms", |it, value| it.poll_ms = value),
        ("idle_ms", |it, value| it.idle_ms = value),
        ("scan_ms", |it, value| it.scan_ms = value),
        ("watch_stall_ms", |it, value| it.watch_stall_ms = value),
        ("request_timeout_ms", |it, value| it.request_timeout_ms = value),
    ];

    fn count(value: u64) -> usize {
        usize::try_from(value).unwrap_or(usize::MAX)
    }

    const COUNTS: [(&str, Set); 8] = [
        ("histories_max", |it, value| it.histories_max = count(value)),
        ("checks_in_flight_max", |it, value| it.checks_in_flight_max = count(value)),
        ("waiting_max", |it, value| it.waiting_max = count(value)),
        ("recent_versions_max", |it, value| it.recent_versions_max = count(value)),
        ("scans_max", |it, value| it.scans_max = count(value)),
        ("fetches_max", |it, value| it.fetches_max = count(value)),
        ("watchers_max", |it, value| it.watchers_max = count(value)),
        ("history_watchers_max", |it, value| it.history_watchers_max = count(value)),
    ];

    #[test]
    fn zero_and_what_is_absurd_are_refused_by_name() {
        ReplicaConfig::default().validate().unwrap();
        let times = TIMES.map(|(field, set)| (field, set, TIME_MS_MAX));
        let counts = COUNTS.map(|(field, set)| (field, set, COUNT_MAX as u64));
        for (field, set, max) in times.into_iter().chain(counts) {
            for (value, is_fit) in [
                (0, field == "poll_ms"),
                (1, true),
                (max, true),
                (max + 1, false),
                (u64::MAX, false),
            ] {
                let mut config = ReplicaConfig::default();
                set(&mut config, value);
                let refused = config.validate().err().map(|it| it.field);
                assert_eq!(refused, (!is_fit).then_some(field), "{field}: {value}");
            }
        }
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
