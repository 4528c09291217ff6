//! The writer's settings.

use std::path::PathBuf;
use std::time::Duration;

use headwater_core::head::{HeadLimits, Retention};
use headwater_core::id::WriterAddress;
use headwater_core::publish::Settings;
use headwater_core::receipt::Window;
use serde::Deserialize;

use crate::forward::{Hosts, Rules};

/// Settings of a writer. Limits hold for each history: the defaults suit a few
/// busy histories, or many quiet ones, in 256 MiB of memory.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, clap::Args)]
#[serde(deny_unknown_fields, default)]
pub struct WriterConfig {
    /// Names this process in heads: 1 to 48 of `[A-Za-z0-9._-]`. Empty: drawn
    /// at start.
    #[arg(
        long = "writer-publisher-id",
        id = "writer-publisher-id",
        default_value = "",
        env = "HEADWATER_WRITER_PUBLISHER_ID"
    )]
    pub publisher_id: String,
    /// Where other writers reach this one: `http://HOST:PORT`, or with https.
    /// Stands in the heads that it publishes, so that writers which contend with
    /// it know where it is. Empty: they do not.
    #[arg(
        long = "writer-advertise",
        id = "writer-advertise",
        default_value = "",
        env = "HEADWATER_WRITER_ADVERTISE"
    )]
    pub advertise: String,
    /// Hosts of other writers that operations may be forwarded to, where several
    /// writers contend for a history: names, ends of names with a dot in front
    /// (`.writers.svc`), or `*`. Separated by commas. None: nothing is forwarded.
    /// How connections are made is said by the options for connections to
    /// writers.
    #[arg(
        long = "writer-forward-to",
        id = "writer-forward-to",
        value_name = "HOSTS",
        value_delimiter = ',',
        env = "HEADWATER_WRITER_FORWARD_TO"
    )]
    pub forward_to: Vec<String>,
    /// Operations of one history that may wait for their outcome. Past it,
    /// `QUEUE_FULL`. 16,384 is 0.8 s at 20,000 operations a second.
    #[arg(
        long = "writer-queue-operations-max",
        id = "writer-queue-operations-max",
        default_value_t = 16_384,
        env = "HEADWATER_WRITER_QUEUE_OPERATIONS_MAX"
    )]
    pub queue_operations_max: usize,
    /// Bytes of operations of one history that may wait for their outcome.
    #[arg(
        long = "writer-queue-bytes-max",
        id = "writer-queue-bytes-max",
        default_value_t = 64 << 20,
        env = "HEADWATER_WRITER_QUEUE_BYTES_MAX"
    )]
    pub queue_bytes_max: usize,
    /// Operations in one batch, which becomes one state version.
    #[arg(
        long = "writer-batch-operations-max",
        id = "writer-batch-operations-max",
        default_value_t = 4_096,
        env = "HEADWATER_WRITER_BATCH_OPERATIONS_MAX"
    )]
    pub batch_operations_max: usize,
    /// Bytes of operations in one batch. 4 MiB upload in about 60 ms.
    #[arg(
        long = "writer-batch-bytes-max",
        id = "writer-batch-bytes-max",
        default_value_t = 4 << 20,
        env = "HEADWATER_WRITER_BATCH_BYTES_MAX"
    )]
    pub batch_bytes_max: usize,
    /// A change entry up to this size travels in the head and costs no upload
    /// of its own.
    #[arg(
        long = "writer-inline-bytes-max",
        id = "writer-inline-bytes-max",
        default_value_t = 4_096,
        env = "HEADWATER_WRITER_INLINE_BYTES_MAX"
    )]
    pub inline_bytes_max: usize,
    /// A change entry up to this size travels in the head while it is uploaded,
    /// and costs no round trip of its own; the next head names the object.
    /// 128 KiB are 64 callers' batches of 1 KiB values, and with base64 a head
    /// that is still told in full. 0: none does. Less where half of
    /// `writer-head-hard-bytes` leaves less room above `writer-head-soft-bytes`.
    #[arg(
        long = "writer-beside-bytes-max",
        id = "writer-beside-bytes-max",
        default_value_t = 128 << 10,
        env = "HEADWATER_WRITER_BESIDE_BYTES_MAX"
    )]
    pub beside_bytes_max: usize,
    /// Batches decided and staged ahead, the ones in flight included.
    #[arg(
        long = "writer-batches-ahead-max",
        id = "writer-batches-ahead-max",
        default_value_t = 4,
        env = "HEADWATER_WRITER_BATCHES_AHEAD_MAX"
    )]
    pub batches_ahead_max: usize,
    /// State versions whose receipts are kept, the newest included: how long a
    /// retry is answered for certain. 65,536 are 22 minutes at 50 versions a
    /// second.
    #[arg(
        long = "writer-receipt-versions-max",
        id = "writer-receipt-versions-max",
        default_value_t = 65_536,
        env = "HEADWATER_WRITER_RECEIPT_VERSIONS_MAX"
    )]
    pub receipt_versions_max: u64,
    /// Bytes of receipts kept, at about 90 for each operation; the newest
    /// version's stay whatever they take.
    #[arg(
        long = "writer-receipt-bytes-max",
        id = "writer-receipt-bytes-max",
        default_value_t = 32 << 20,
        env = "HEADWATER_WRITER_RECEIPT_BYTES_MAX"
    )]
    pub receipt_bytes_max: u64,
    /// Past this size of the head, older changes move to segments.
    #[arg(
        long = "writer-head-soft-bytes",
        id = "writer-head-soft-bytes",
        default_value_t = 64 << 10,
        env = "HEADWATER_WRITER_HEAD_SOFT_BYTES"
    )]
    pub head_soft_bytes: usize,
    /// Past this size of the head, operations are refused until maintenance has
    /// made room.
    #[arg(
        long = "writer-head-hard-bytes",
        id = "writer-head-hard-bytes",
        default_value_t = 1 << 20,
        env = "HEADWATER_WRITER_HEAD_HARD_BYTES"
    )]
    pub head_hard_bytes: usize,
    /// Changes that the head names one by one before they move to a segment.
    #[arg(
        long = "writer-fold-changes",
        id = "writer-fold-changes",
        default_value_t = 128,
        env = "HEADWATER_WRITER_FOLD_CHANGES"
    )]
    pub fold_changes: usize,
    /// Bytes of the tail past which a snapshot is made.
    #[arg(
        long = "writer-compact-tail-bytes",
        id = "writer-compact-tail-bytes",
        default_value_t = 64 << 20,
        env = "HEADWATER_WRITER_COMPACT_TAIL_BYTES"
    )]
    pub compact_tail_bytes: u64,
    /// Versions in the tail past which a snapshot is made.
    #[arg(
        long = "writer-compact-tail-versions",
        id = "writer-compact-tail-versions",
        default_value_t = 4_096,
        env = "HEADWATER_WRITER_COMPACT_TAIL_VERSIONS"
    )]
    pub compact_tail_versions: u64,
    /// Versions that a snapshot stays behind the newest, unless nothing is
    /// accepted for a minute: `unchanged since` is answered for certain that
    /// far back.
    #[arg(
        long = "writer-compact-keep-versions",
        id = "writer-compact-keep-versions",
        default_value_t = 256,
        env = "HEADWATER_WRITER_COMPACT_KEEP_VERSIONS"
    )]
    pub compact_keep_versions: u64,
    /// Retention of the histories created here: versions before the newest that
    /// stay readable. Stands in the head from then on; see `headwater retain`.
    #[arg(
        long = "writer-retain-versions",
        id = "writer-retain-versions",
        default_value_t = 10_000,
        env = "HEADWATER_WRITER_RETAIN_VERSIONS"
    )]
    pub retain_versions: u64,
    /// Retention of the histories created here: how long a version stays
    /// readable after it was the newest, in milliseconds. What any of the two
    /// keeps is kept.
    #[arg(
        long = "writer-retain-age-ms",
        id = "writer-retain-age-ms",
        default_value_t = 3_600_000,
        env = "HEADWATER_WRITER_RETAIN_AGE_MS"
    )]
    pub retain_age_ms: u64,
    /// Pause between two sweeps of an open history that is written to, in
    /// milliseconds. 0: this process does not sweep.
    #[arg(
        long = "writer-sweep-every-ms",
        id = "writer-sweep-every-ms",
        default_value_t = 600_000,
        env = "HEADWATER_WRITER_SWEEP_EVERY_MS"
    )]
    pub sweep_every_ms: u64,
    /// How long a head must have been replaced before what was staged under it
    /// may be swept, in milliseconds: longer than uploads and compactions take.
    /// A slower one costs a second upload, and nothing else.
    #[arg(
        long = "writer-sweep-grace-ms",
        id = "writer-sweep-grace-ms",
        default_value_t = 600_000,
        env = "HEADWATER_WRITER_SWEEP_GRACE_MS"
    )]
    pub sweep_grace_ms: u64,
    /// Objects that one sweep deletes at most.
    #[arg(
        long = "writer-sweep-deletes-max",
        id = "writer-sweep-deletes-max",
        default_value_t = 100_000,
        env = "HEADWATER_WRITER_SWEEP_DELETES_MAX"
    )]
    pub sweep_deletes_max: u64,
    /// Longest time for one operation, in milliseconds, where the caller names
    /// none or a longer one.
    #[arg(
        long = "writer-operation-timeout-ms",
        id = "writer-operation-timeout-ms",
        default_value_t = 30_000,
        env = "HEADWATER_WRITER_OPERATION_TIMEOUT_MS"
    )]
    pub operation_timeout_ms: u64,
    /// A history without questions for this long is closed, in milliseconds.
    #[arg(
        long = "writer-history-idle-ms",
        id = "writer-history-idle-ms",
        default_value_t = 600_000,
        env = "HEADWATER_WRITER_HISTORY_IDLE_MS"
    )]
    pub history_idle_ms: u64,
    /// Histories open at a time. Past it the one that nobody waits for, and
    /// nobody has used for the longest time, is closed; where somebody waits for
    /// all of them, a new one is refused.
    #[arg(
        long = "writer-histories-max",
        id = "writer-histories-max",
        default_value_t = 1_000,
        env = "HEADWATER_WRITER_HISTORIES_MAX"
    )]
    pub histories_max: usize,
    /// Memory for the tails of all open histories together, in bytes, about.
    /// Past it those that nobody waits for are closed, least recent first.
    /// Sixteen tails that are about to be compacted.
    #[arg(
        long = "writer-overlay-bytes",
        id = "writer-overlay-bytes",
        default_value_t = 1 << 30,
        env = "HEADWATER_WRITER_OVERLAY_BYTES"
    )]
    pub overlay_bytes: u64,
    /// Decompressed chunks kept in memory for preconditions, in bytes.
    #[arg(
        long = "writer-chunk-cache-bytes",
        id = "writer-chunk-cache-bytes",
        default_value_t = 64 << 20,
        env = "HEADWATER_WRITER_CHUNK_CACHE_BYTES"
    )]
    pub chunk_cache_bytes: u64,
    /// Directory for a cache of objects on the local disk, which is made if it is
    /// not there. One process has it at a time, and one of the two where a
    /// process is a writer and a replica. Objects are in there as they are read,
    /// so not encrypted. None: no such cache.
    #[arg(long = "writer-cache-dir", id = "writer-cache-dir", env = "HEADWATER_WRITER_CACHE_DIR")]
    pub cache_dir: Option<PathBuf>,
    /// Bytes of objects in the cache on disk. Past it those used least recently
    /// are deleted.
    #[arg(
        long = "writer-cache-disk-bytes",
        id = "writer-cache-disk-bytes",
        default_value_t = 10 << 30,
        env = "HEADWATER_WRITER_CACHE_DISK_BYTES"
    )]
    pub cache_disk_bytes: u64,
}

impl Default for WriterConfig {
    fn default() -> Self {
        Self {
            publisher_id: String::new(),
            advertise: String::new(),
            forward_to: Vec::new(),
            queue_operations_max: 16_384,
            queue_bytes_max: 64 << 20,
            batch_operations_max: 4_096,
            batch_bytes_max: 4 << 20,
            inline_bytes_max: 4_096,
            beside_bytes_max: 128 << 10,
            batches_ahead_max: 4,
            receipt_versions_max: 65_536,
            receipt_bytes_max: 32 << 20,
            head_soft_bytes: 64 << 10,
            head_hard_bytes: 1 << 20,
            fold_changes: 128,
            compact_tail_bytes: 64 << 20,
            compact_tail_versions: 4_096,
            compact_keep_versions: 256,
            retain_versions: 10_000,
            retain_age_ms: 3_600_000,
            sweep_every_ms: 600_000,
            sweep_grace_ms: 600_000,
            sweep_deletes_max: 100_000,
            operation_timeout_ms: 30_000,
            history_idle_ms: 600_000,
            histories_max: 1_000,
            overlay_bytes: 1 << 30,
            chunk_cache_bytes: 64 << 20,
            cache_dir: None,
            cache_disk_bytes: 10 << 30,
        }
    }
}

const DAY_MS: u64 = 24 * 60 * 60 * 1_000;

/// A setting that the writer refuses to start with.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("writer setting `{field}` is {value}, it must be {rule}")]
pub struct ConfigError {
    /// The setting.
    pub field: &'static str,
    /// Its value.
    pub value: String,
    /// The rule that it breaks.
    pub rule: &'static str,
}

impl WriterConfig {
    /// Longest age for which versions are kept, in milliseconds: 100 years.
    pub const RETAIN_AGE_MS_MAX: u64 = 36_500 * DAY_MS;

    /// Checks the settings, by themselves and against each other.
    ///
    /// # Errors
    ///
    /// The first [`ConfigError`].
    pub fn validate(&self) -> Result<(), ConfigError> {
        let is_plain = |it: u8| it.is_ascii_alphanumeric() || matches!(it, b'.' | b'_' | b'-');
        let id = &self.publisher_id;
        if 48 < id.len() || !id.bytes().all(is_plain) {
            let rule = "up to 48 of [A-Za-z0-9._-]";
            return Err(ConfigError { field: "publisher_id", value: id.clone(), rule });
        }
        if !self.advertise.is_empty() && self.address().is_none() {
            let rule = "http:// or https://, a host, and a port, or empty";
            return Err(ConfigError { field: "advertise", value: self.advertise.clone(), rule });
        }
        let is_bad = |it: &&String| !Hosts::is_rule(it);
        if let Some(value) = self.forward_to.iter().find(is_bad).cloned() {
            let rule = "a host, the end of one with a dot in front, or `*`";
            return Err(ConfigError { field: "forward_to", value, rule });
        }
        if Hosts::MAX < self.forward_to.len() {
            let value = self.forward_to.len().to_string();
            return Err(ConfigError { field: "forward_to", value, rule: "at most 256 hosts" });
        }
        let counts = [
            ("queue_operations_max", self.queue_operations_max as u64),
            ("queue_bytes_max", self.queue_bytes_max as u64),
            ("batch_operations_max", self.batch_operations_max as u64),
            ("batch_bytes_max", self.batch_bytes_max as u64),
            ("batches_ahead_max", self.batches_ahead_max as u64),
            ("receipt_versions_max", self.receipt_versions_max),
            ("fold_changes", self.fold_changes as u64),
            ("compact_tail_versions", self.compact_tail_versions),
            ("operation_timeout_ms", self.operation_timeout_ms),
            ("histories_max", self.histories_max as u64),
        ];
        if let Some((field, value)) = counts.into_iter().find(|(_, value)| *value == 0) {
            return Err(ConfigError { field, value: value.to_string(), rule: "at least 1" });
        }
        // Past these a number is a slip, and some would not even add up.
        let ceilings = [
            (
                "queue_operations_max",
                self.queue_operations_max as u64,
                1 << 20,
                "at most 1,048,576",
            ),
            ("queue_bytes_max", self.queue_bytes_max as u64, 1 << 40, "at most 1 TiB"),
            ("operation_timeout_ms", self.operation_timeout_ms, DAY_MS, "at most a day"),
            ("history_idle_ms", self.history_idle_ms, 365 * DAY_MS, "at most a year"),
            (
                "retain_age_ms",
                self.retain_age_ms,
                Self::RETAIN_AGE_MS_MAX,
                "at most a hundred years",
            ),
            ("sweep_every_ms", self.sweep_every_ms, 365 * DAY_MS, "at most a year"),
            ("sweep_grace_ms", self.sweep_grace_ms, 365 * DAY_MS, "at most a year"),
        ];
        if let Some((field, value, _, rule)) =
            ceilings.into_iter().find(|(_, value, max, _)| max < value)
        {
            return Err(ConfigError { field, value: value.to_string(), rule });
        }
        let value = self.head_hard_bytes.to_string();
        if self.head_hard_bytes < 2 * self.head_soft_bytes {
            let rule = "at least twice `head_soft_bytes`";
            return Err(ConfigError { field: "head_hard_bytes", value, rule });
        }
        Ok(())
    }

    /// The part that the protocol core takes.
    pub(crate) fn settings(&self, publisher_id: String) -> Settings {
        // What is in a head while it is uploaded stays within half of the hard
        // limit, in base64.
        let room = (self.head_hard_bytes / 2).saturating_sub(self.head_soft_bytes);
        let room_beside = room / 4 * 3;
        Settings {
            publisher_id,
            address: self.address(),
            batch_operations_max: self.batch_operations_max,
            batch_bytes_max: self.batch_bytes_max,
            inline_bytes_max: self.inline_bytes_max,
            beside_bytes_max: self.beside_bytes_max.min(room_beside),
            batches_ahead_max: self.batches_ahead_max,
            window: Window {
                versions_max: self.receipt_versions_max,
                bytes_max: self.receipt_bytes_max,
            },
            head: HeadLimits { soft_bytes: self.head_soft_bytes, hard_bytes: self.head_hard_bytes },
        }
    }

    /// What histories created here keep.
    pub(crate) fn retention(&self) -> Retention {
        Retention { versions: self.retain_versions, age_ms: self.retain_age_ms }
    }

    /// Where other writers reach this one.
    pub(crate) fn address(&self) -> Option<WriterAddress> {
        WriterAddress::parse(&self.advertise).ok()
    }

    /// To whom operations may go.
    pub(crate) fn rules(&self, publisher_id: String) -> Rules {
        Rules { publisher_id, address: self.address(), hosts: Hosts::new(&self.forward_to) }
    }

    pub(crate) fn operation_timeout(&self) -> Duration {
        Duration::from_millis(self.operation_timeout_ms)
    }

    pub(crate) fn history_idle(&self) -> Duration {
        Duration::from_millis(self.history_idle_ms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_hold() {
        WriterConfig::default().validate().unwrap();
    }

    #[test]
    fn zero_is_refused_by_name() {
        let config = WriterConfig { batch_operations_max: 0, ..WriterConfig::default() };
        let error = config.validate().unwrap_err().to_string();
        assert_eq!(error, "writer setting `batch_operations_max` is 0, it must be at least 1");
    }

    #[test]
    fn a_setting_that_would_not_add_up_is_refused() {
        let config = WriterConfig { operation_timeout_ms: u64::MAX, ..WriterConfig::default() };
        assert_eq!(config.validate().unwrap_err().field, "operation_timeout_ms");
        let config = WriterConfig { queue_operations_max: usize::MAX, ..WriterConfig::default() };
        assert_eq!(config.validate().unwrap_err().field, "queue_operations_max");
    }

    #[test]
    fn what_is_advertised_is_an_address_or_nothing() {
        let with = |text: &str| WriterConfig { advertise: text.into(), ..WriterConfig::default() };
        with("http://writer-0.writers:7410").validate().unwrap();
        for text in ["writer-0:7410", "http://writer-0:7410/", "http://"] {
            assert_eq!(with(text).validate().unwrap_err().field, "advertise");
        }
    }

    #[test]
    fn operations_go_to_hosts() {
        let with = |text: &str| {
            let forward_to = vec!["writer-0".to_owned(), text.to_owned()];
            WriterConfig { forward_to, ..WriterConfig::default() }
        };
        with(".writers.svc").validate().unwrap();
        assert_eq!(with("http://writer-1").validate().unwrap_err().field, "forward_to");
    }

    #[test]
    fn a_hard_limit_below_the_soft_one_is_refused() {
        let config = WriterConfig { head_hard_bytes: 1_000, ..WriterConfig::default() };
        assert_eq!(config.validate().unwrap_err().field, "head_hard_bytes");
    }
}
