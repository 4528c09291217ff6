//! What is logged, and changing it while the process runs.
//!
//! # Invariants
//!
//! - What is said of a level is bounded: [`LENGTH_MAX`] bytes, levels and
//!   targets, and no expressions over fields, which would cost every event.
//! - Libraries that see headers and keys ([`QUIET`]) never log more than `info`,
//!   whatever is asked for: below it they print what must be in no log.
//! - The audit log is kept whatever the level: only a filter that names its
//!   target ([`audit::TARGET`]) changes what is logged of it.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use tracing_subscriber::{EnvFilter, reload};

use crate::audit;
use crate::config::{self, Origin};
use crate::telemetry::with_causes;

/// Longest filter, in bytes.
pub const LENGTH_MAX: usize = 512;

/// What is logged where nothing is said.
pub const DEFAULT: &str = "info";

const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];

/// Libraries whose details are not for logs.
const QUIET: [&str; 8] =
    ["h2", "hyper", "hyper_util", "object_store", "reqwest", "rustls", "tonic", "tower"];

/// What is logged, and how.
#[derive(Clone, Debug, Default, PartialEq, Eq, clap::Args)]
#[command(next_help_heading = "Logs")]
pub struct LogOptions {
    /// What is logged: a level (off, error, warn, info, debug, trace), and
    /// other levels for parts: `info,headwater_writer=debug`. Default: the
    /// variable `RUST_LOG`, or `info`.
    #[arg(long, value_name = "FILTER", env = "HEADWATER_LOG")]
    pub log: Option<LogFilter>,
    /// How log lines are written, to standard error.
    #[arg(long, value_enum, default_value_t, env = "HEADWATER_LOG_FORMAT")]
    pub log_format: LogFormat,
}

/// How log lines are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum LogFormat {
    /// Text where standard error is a terminal, JSON elsewhere.
    #[default]
    Auto,
    /// One readable line an event.
    Text,
    /// One JSON object an event.
    Json,
}

/// What is logged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogFilter(String);

/// A text that is no [`LogFilter`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LogFilterError {
    /// It is longer than any that makes sense.
    #[error("a log filter has at most {LENGTH_MAX} bytes")]
    TooLong,
    /// A part of it is no level.
    #[error(
        "a log filter is `LEVEL` or `TARGET=LEVEL`, with commas between; levels are off, error, warn, info, debug, trace"
    )]
    Part,
}

impl std::str::FromStr for LogFilter {
    type Err = LogFilterError;

    fn from_str(text: &str) -> Result<Self, LogFilterError> {
        if LENGTH_MAX < text.len() {
            return Err(LogFilterError::TooLong);
        }
        let is_level = |it: &str| LEVELS.iter().any(|level| it.eq_ignore_ascii_case(level));
        let is_target = |it: &str| {
            let fits = |it: char| it.is_ascii_alphanumeric() || matches!(it, '_' | ':' | '-');
            !it.is_empty() && it.chars().all(fits)
        };
        let is_part = |part: &str| match part.trim().split_once('=') {
            None => is_level(part.trim()),
            Some((target, level)) => is_target(target) && is_level(level),
        };
        if text.split(',').all(is_part) {
            Ok(Self(text.to_owned()))
        } else {
            Err(LogFilterError::Part)
        }
    }
}

impl fmt::Display for LogFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl LogFilter {
    /// For the subscriber.
    fn to_env_filter(&self) -> EnvFilter {
        let quiet = QUIET.iter().map(|it| format!("{it}=info"));
        // What comes later goes before what is the same, so no target of these
        // gets further by being named.
        let own = self.0.split(',').map(str::trim).filter(|part| {
            let target = part.split_once('=').map(|(target, _)| target);
            !target.is_some_and(|it| QUIET.contains(&it.split("::").next().unwrap_or(it)))
        });
        let is_audit = |part: &str| {
            let target = part.trim().split_once('=').map(|(target, _)| target);
            target == Some(audit::TARGET)
        };
        let is_named = self.0.split(',').any(is_audit);
        let audited = (!is_named).then(|| format!("{}=info", audit::TARGET));
        let parts: Vec<_> = own.map(str::to_owned).chain(quiet).chain(audited).collect();
        EnvFilter::new(parts.join(","))
    }
}

impl LogOptions {
    /// What is logged at first.
    fn filter(&self) -> LogFilter {
        let of_rust = || std::env::var("RUST_LOG").ok().and_then(|it| it.parse().ok());
        self.log.clone().or_else(of_rust).unwrap_or_else(|| LogFilter(DEFAULT.to_owned()))
    }
}

type Replace = dyn Fn(EnvFilter) -> Result<(), reload::Error> + Send + Sync;

/// What is logged now. Clones share it.
#[derive(Clone)]
pub struct LogLevel {
    now: Arc<Mutex<LogFilter>>,
    replace: Arc<Replace>,
}

impl fmt::Debug for LogLevel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("LogLevel").field(&self.now()).finish()
    }
}

impl LogLevel {
    /// The filter for a layer of log lines, and the way to change it.
    pub(crate) fn new<S: 'static>(options: &LogOptions) -> (reload::Layer<EnvFilter, S>, Self) {
        let filter = options.filter();
        let (layer, handle) = reload::Layer::new(filter.to_env_filter());
        let replace = Arc::new(move |filter| handle.reload(filter));
        (layer, Self { now: Arc::new(Mutex::new(filter)), replace })
    }

    /// What is logged now.
    pub fn now(&self) -> LogFilter {
        self.now.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Logs this from now on.
    pub fn set(&self, filter: LogFilter) {
        let mut now = self.now.lock().unwrap_or_else(PoisonError::into_inner);
        match (self.replace)(filter.to_env_filter()) {
            Ok(()) => {
                tracing::info!(before = %*now, now = %filter, "what is logged was changed");
                *now = filter;
            }
            // Without a subscriber there are no logs to change.
            Err(error) => tracing::warn!(%error, "what is logged cannot be changed"),
        }
    }

    /// Logs what the file says by now, unless a flag or a variable goes before.
    pub(crate) fn reread(&self, origin: &Origin) {
        if origin.is_log_given {
            return tracing::info!(
                "the file was not read again: a flag or variable goes before it"
            );
        }
        match config::log_of_file(origin) {
            Ok(None) => self.set(LogFilter(DEFAULT.to_owned())),
            Ok(Some(text)) => match text.parse() {
                Ok(filter) => self.set(filter),
                Err(error) => tracing::warn!(%error, "what the file says of logs was not taken"),
            },
            Err(error) => {
                let error = with_causes(&*error);
                tracing::warn!(error, "the file could not be read again");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use tracing_subscriber::Layer as _;
    use tracing_subscriber::layer::SubscriberExt as _;

    use super::*;

    fn filter(text: &str) -> LogFilter {
        text.parse().unwrap()
    }

    #[test]
    fn a_filter_is_levels_and_targets_and_nothing_else() {
        for fit in ["info", "WARN", "off", "info,headwater_writer=debug", "warn, a::b=trace"] {
            assert_eq!(fit.parse(), Ok(LogFilter(fit.to_owned())), "{fit}");
        }
        let long = "a=info,".repeat(LENGTH_MAX);
        let unfit =
            ["", "loud", "info,", "=info", "a=", "[span]=info", "a[f=\"x\"]=info", "a=b=c", &long];
        for unfit in unfit {
            assert!(unfit.parse::<LogFilter>().is_err(), "{unfit}");
        }
    }

    #[test]
    fn what_is_logged_changes_at_once_and_libraries_stay_quiet() {
        let options = LogOptions { log: Some(filter("warn")), log_format: LogFormat::Json };
        let (layer, level) = LogLevel::new(&options);
        let lines: Arc<Mutex<Vec<u8>>> = Arc::default();
        let sink = Arc::clone(&lines);
        let write = move || Sink(Arc::clone(&sink));
        let subscriber = tracing_subscriber::registry()
            .with(tracing_subscriber::fmt::layer().with_writer(write).with_filter(layer));
        let logged = |what: &dyn Fn()| {
            lines.lock().unwrap().clear();
            what();
            !lines.lock().unwrap().is_empty()
        };
        tracing::subscriber::with_default(subscriber, || {
            let debug = || tracing::debug!(target: "headwater_writer", "x");
            let secret = || tracing::debug!(target: "h2::codec", "authorization");
            assert!(!logged(&debug));

            level.set(filter("info,headwater_writer=debug"));
            assert!(logged(&debug));
            level.set(filter("trace,h2=trace,h2::codec=trace"));
            assert!(logged(&debug) && !logged(&secret));
            level.set(filter("off"));

            assert!(!logged(&debug));
            assert_eq!(level.now(), filter("off"));
        });
    }

    #[test]
    fn the_audit_log_is_kept_at_every_level_unless_it_is_named() {
        let options = LogOptions { log: Some(filter("off")), log_format: LogFormat::Json };
        let (layer, level) = LogLevel::new(&options);
        let lines: Arc<Mutex<Vec<u8>>> = Arc::default();
        let sink = Arc::clone(&lines);
        let write = move || Sink(Arc::clone(&sink));
        let subscriber = tracing_subscriber::registry()
            .with(tracing_subscriber::fmt::layer().with_writer(write).with_filter(layer));
        let is_kept = || {
            lines.lock().unwrap().clear();
            audit::process("SetLogLevel", "x", "here", None, "OK");
            !lines.lock().unwrap().is_empty()
        };
        tracing::subscriber::with_default(subscriber, || {
            assert!(is_kept());
            for (text, kept) in [
                ("warn", true),
                ("warn,headwater_writer=debug", true),
                ("error,headwater=off", true),
                ("info, headwater::audit=off", false),
                ("headwater::audit=warn", false),
                ("off,headwater::audit=trace", true),
            ] {
                level.set(filter(text));
                assert_eq!(is_kept(), kept, "{text}");
            }
        });
    }

    struct Sink(Arc<Mutex<Vec<u8>>>);

    impl std::io::Write for Sink {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().extend(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
}
