//! Logs: text for a person at a terminal, JSON lines for everything else.

use std::io::{self, IsTerminal};

use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::ParseError;

/// Environment variables that may hold the filter, in order of preference. The
/// syntax is that of `tracing_subscriber::EnvFilter`: `info,headwater_writer=debug`.
pub const FILTER_VARIABLES: [&str; 2] = ["HEADWATER_LOG", "RUST_LOG"];

/// The filter where no variable is set.
pub const FILTER_DEFAULT: &str = "info";

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

/// Why logging could not be set up.
#[derive(Debug, thiserror::Error)]
pub enum TelemetryError {
    /// A variable holds a filter that cannot be read.
    #[error("{variable} is not a log filter")]
    Filter {
        /// The variable.
        variable: &'static str,
        /// What is wrong with it.
        #[source]
        source: ParseError,
    },
    /// Something in this process has set up logging already.
    #[error("logging was set up twice")]
    AlreadySet,
}

/// Sets up logging to standard error, once a process.
///
/// # Errors
///
/// [`TelemetryError`]; nothing was set up.
pub fn init(format: LogFormat) -> Result<(), TelemetryError> {
    let filter = filter()?;
    let is_terminal = io::stderr().is_terminal();
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(io::stderr);
    let outcome = match format {
        LogFormat::Text => builder.with_ansi(is_terminal).try_init(),
        LogFormat::Auto if is_terminal => builder.try_init(),
        LogFormat::Auto | LogFormat::Json => {
            builder.json().flatten_event(true).with_current_span(true).try_init()
        }
    };
    outcome.map_err(|_| TelemetryError::AlreadySet)
}

fn filter() -> Result<EnvFilter, TelemetryError> {
    for variable in FILTER_VARIABLES {
        match std::env::var(variable) {
            Ok(text) if !text.is_empty() => {
                return EnvFilter::try_new(text)
                    .map_err(|source| TelemetryError::Filter { variable, source });
            }
            Ok(_) | Err(_) => {}
        }
    }
    Ok(EnvFilter::new(FILTER_DEFAULT))
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
