//! Logs: text for a person at a terminal, JSON lines for everything else; and
//! what is measured and traced ([`otlp`]).

pub mod otlp;
pub mod receiver;

use std::io::{self, IsTerminal};

use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{Layer as _, registry};

use crate::logs::{LogFormat, LogLevel, LogOptions};
use crate::trace::BoxedLayer;

/// Why logging could not be set up.
#[derive(Debug, thiserror::Error)]
pub enum TelemetryError {
    /// Something in this process has set up logging already.
    #[error("logging was set up twice")]
    AlreadySet,
}

/// Sets up logging to standard error, and tracing by `traces`, once a process.
/// What is logged can be changed by what is returned.
///
/// # Errors
///
/// [`TelemetryError`]; nothing was set up.
pub fn init(options: &LogOptions, traces: Option<BoxedLayer>) -> Result<LogLevel, TelemetryError> {
    let (filter, level) = LogLevel::new(options);
    let is_terminal = io::stderr().is_terminal();
    let lines = tracing_subscriber::fmt::layer().with_writer(io::stderr);
    let logs = match options.log_format {
        LogFormat::Text => lines.with_ansi(is_terminal).with_filter(filter).boxed(),
        LogFormat::Auto if is_terminal => lines.with_filter(filter).boxed(),
        LogFormat::Auto | LogFormat::Json => {
            let json = lines.json().flatten_event(true).with_current_span(true);
            json.with_filter(filter).boxed()
        }
    };
    registry().with(traces).with(logs).try_init().map_err(|_| TelemetryError::AlreadySet)?;
    Ok(level)
}

/// An error with everything that it says about its causes, on one line.
pub fn with_causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let next = error.to_string();
        // A transparent error repeats the text of its cause.
        if !text.ends_with(&next) {
            text += ": ";
            text += &next;
        }
        cause = error.source();
    }
    text
}
