//! Whether a bucket can be trusted with heads, found out by trying.
//!
//! In here: the probes, on a scratch prefix of the bucket itself; what they
//! found, as values; and cleaning up. Not in here: printing, and any opinion
//! about speed.
//!
//! ```text
//! access -> basics -> rules (the contract suite) -> races -> measures -> clean
//!             |                                       |
//!             +---------- the short form -------------+
//! ```
//!
//! A server may honour conditions while nobody races and lose writes when
//! somebody does. So races are run with many requests at once, each round on a
//! head of its own, where all but one of the racers have to lose.
//!
//! # Architecture invariants
//!
//! - Nothing outside the scratch prefix is written, deleted or listed.
//! - What gave no answer breaks no rule: the same bucket may answer tomorrow.
//! - Whatever happened, [`Probe::clean`] deletes what was written, and says
//!   how much it could not.

mod access;
mod basics;
mod measure;
mod patient;
mod race;
mod report;
mod rules;
mod scratch;
mod settings;
mod short;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use self::measure::Measures;
use self::patient::Patient;
pub use self::race::{Race, RaceKind};
pub use self::report::{
    Check, CheckId, Latency as CallLatency, Permission, Rate, Report, Severity, TagForm, TagKind,
    TagSource, Verdict,
};
pub use self::scratch::Left;
use self::scratch::Tracked;
pub use self::short::{Unfit, check_at_start};
use crate::{AzureContainer, Clock, Entropy, GcsBucket, OpenError, Store, Timeout, TimeoutConfig};

/// How much is tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProbeConfig {
    /// Requests at once in a race.
    pub n_racers: usize,
    /// Rounds of each kind of race.
    pub n_rounds: usize,
    /// Calls of each kind whose time is taken.
    pub n_samples: usize,
    /// Size of the large object, in bytes.
    pub large_len_bytes: usize,
    /// Longest time for the samples of one kind, and for the measurement of
    /// replacements.
    pub measure_max: Duration,
}

impl Default for ProbeConfig {
    /// 32 racers in 40 rounds. Where one update in three is lost, as was seen,
    /// the chance that 40 rounds see none is below 10^-6 even if a round has
    /// only two racers that matter. 40 samples show a 97th percentile; the
    /// slowest one stands for the 99th. 36 MiB is past what goes by one request.
    fn default() -> Self {
        Self {
            n_racers: 32,
            n_rounds: 40,
            n_samples: 40,
            large_len_bytes: 36 << 20,
            measure_max: Duration::from_secs(3),
        }
    }
}

/// One examination of one bucket.
pub struct Probe {
    /// Two handles on the bucket, so that what one wrote is read by the other.
    one: Arc<dyn Store>,
    other: Arc<dyn Store>,
    tracked: Tracked,
    prefix: String,
    entropy: Entropy,
    config: ProbeConfig,
    /// For questions about the bucket itself; `None` where it has no settings.
    settings: Option<settings::Asked>,
}

impl fmt::Debug for Probe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Probe").field("prefix", &self.prefix).finish_non_exhaustive()
    }
}

impl Probe {
    /// Prepares to examine the bucket behind two adapters, which should share
    /// no connections. Draws a scratch prefix; sends nothing yet.
    pub fn new(
        one: Arc<dyn Store>,
        other: Arc<dyn Store>,
        entropy: Entropy,
        config: ProbeConfig,
    ) -> Self {
        let tracked = Tracked::default();
        let around = |adapter| {
            let bounded = Arc::new(Timeout::new(adapter, TimeoutConfig::default()));
            tracked.around(bounded)
        };
        let (one, other) = (around(one), around(other));
        let prefix = scratch_prefix(&entropy);
        Self { one, other, tracked, prefix, entropy, config, settings: None }
    }

    /// Prepares to examine the store that `url` names, its settings too.
    ///
    /// # Errors
    ///
    /// [`OpenError`] names the part of the URL that is wrong.
    pub fn open(url: &str, entropy: Entropy, config: ProbeConfig) -> Result<Self, OpenError> {
        let mut probe = Self::new(crate::open(url)?, crate::open(url)?, entropy, config);
        probe.settings = settings::Asked::open(url)?;
        Ok(probe)
    }

    /// Asks this bucket for its settings too; `prefix` is where the store is.
    #[must_use]
    pub fn with_gcs_settings(mut self, bucket: GcsBucket, prefix: &str) -> Self {
        self.settings = Some(settings::Asked::gcs(bucket, prefix));
        self
    }

    /// Asks the account of this container for its settings too.
    #[must_use]
    pub fn with_azure_settings(mut self, container: AzureContainer, prefix: &str) -> Self {
        self.settings = Some(settings::Asked::azure(container, prefix));
        self
    }

    /// Below the root of the store; ends without `/`.
    pub fn prefix(&self) -> &str {
        &self.prefix
    }

    /// Examines the bucket; `progress` is told what comes next.
    ///
    /// Cancel safe: call [`Probe::clean`] afterwards in either case.
    pub async fn run(&self, progress: &(dyn Fn(&'static str) + Send + Sync)) -> Report {
        let mut report = Report::default();
        progress("permissions");
        access::check(self, &mut report).await;
        if Severity::Unanswered <= report.severity() {
            return report;
        }
        progress("conditions");
        // Patient: a limit of writes for one object is no broken rule.
        let (one, other) = (Patient::around(&self.one), Patient::around(&self.other));
        basics::check(&*one, &*other, &self.key("basics"), &mut report).await;
        if report.is_broken(CheckId::OwnTag) || report.is_broken(CheckId::Tag) {
            return report;
        }
        if let Some(asked) = &self.settings {
            progress("settings");
            let head = self.key("basics/head.json");
            asked.check(&head, &Clock::system(), &mut report).await;
        }
        progress("rules");
        rules::check(self, &one, &other, &mut report).await;
        progress("races");
        for kind in RaceKind::ALL {
            let place = race::Place {
                stores: [&self.one, &self.other],
                prefix: &self.key("race"),
                entropy: &self.entropy,
            };
            let size =
                race::Size { n_racers: self.config.n_racers, n_rounds: self.config.n_rounds };
            let race = race::run(kind, place, size).await;
            report.add_race(race);
        }
        progress("measures");
        let Measures { latencies, replacements } = measure::run(self).await;
        report.latencies = latencies;
        report.replacements = replacements;
        report
    }

    /// Asks about large objects alone: whether another setting helps. The scratch
    /// prefix is another one, so what an earlier probe wrote is in nobody's way.
    pub async fn run_large(&self) -> Check {
        let (one, other) = (Patient::around(&self.one), Patient::around(&self.other));
        rules::check_large(self, &one, &other).await
    }

    /// Deletes what was written.
    pub async fn clean(&self) -> Left {
        self.tracked.clean(&self.one, &format!("{}/", self.prefix)).await
    }

    /// A place in the scratch prefix.
    fn key(&self, name: &str) -> String {
        format!("{}/{name}", self.prefix)
    }
}

/// The URL with the setting for stores whose uploads in parts do not look at
/// their condition, or fail (Ceph's radosgw); `None` where there is no such
/// setting, or it is made.
pub fn url_without_parts(url: &str) -> Option<String> {
    with_option(url, "multipart", "false")
}

/// The URL with the setting for stores that compare tags without their quotes
/// (Ceph's radosgw); `None` where there is no such setting, or it is made.
pub fn url_with_unquoted_tags(url: &str) -> Option<String> {
    with_option(url, "tag_form", "unquoted")
}

fn with_option(url: &str, name: &str, value: &str) -> Option<String> {
    let query = url.split_once('?').map_or("", |(_, query)| query);
    let has = query.split('&').any(|it| it.split('=').next() == Some(name));
    let separator = if url.contains('?') { '&' } else { '?' };
    (url.starts_with("s3://") && !has).then(|| format!("{url}{separator}{name}={value}"))
}

/// No history has such a name: `~` is not in one, so a listing of histories
/// passes it by.
fn scratch_prefix(entropy: &Entropy) -> String {
    format!("~probe-{:016x}", entropy.u64())
}

/// Writes an error with its causes, for a detail.
fn told(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(it) = cause {
        let next = it.to_string();
        if !text.ends_with(&next) {
            text = format!("{text}: {next}");
        }
        cause = it.source();
    }
    text
}
