//! From a command line to the exit code, for a binary that is one daemon.

use std::error::Error;
use std::io::Write as _;
use std::process::ExitCode;

use clap::{CommandFactory, FromArgMatches};
use tokio::runtime::Runtime;

use crate::config::{self, LoadError, ShowFormat, Shown};
use crate::options::ProcessOptions;
use crate::telemetry::with_causes;

/// Any error that ends a process.
pub type BoxError = Box<dyn Error + Send + Sync>;

/// A binary that serves until a signal. Its settings are all that it consists
/// of.
pub trait Daemon: CommandFactory + FromArgMatches {
    /// The binary.
    const NAME: &'static str;

    /// The settings that every process has.
    fn options(&mut self) -> &mut ProcessOptions;

    /// Checks the rest of its settings, without touching anything remote.
    ///
    /// # Errors
    ///
    /// The first setting that cannot be.
    fn check(&self) -> Result<(), BoxError>;

    /// Loads the files that it would load at its start, besides those of
    /// [`ProcessOptions`], and nothing remote.
    ///
    /// # Errors
    ///
    /// The first file that cannot be used.
    fn check_files(&self) -> impl Future<Output = Result<(), BoxError>>;

    /// Serves until a signal.
    ///
    /// # Errors
    ///
    /// Why it could not start, or not go on.
    fn run(self) -> impl Future<Output = Result<(), BoxError>>;
}

/// As a shell and clap report a command line that cannot be.
const EXIT_CODE_USAGE: u8 = 2;

/// Reads the settings of this process, and does what they say.
pub fn main<D: Daemon>() -> ExitCode {
    let failed = |code, error: &(dyn Error + 'static)| {
        eprintln!("{}: {}", D::NAME, with_causes(error));
        code
    };
    let usage = ExitCode::from(EXIT_CODE_USAGE);
    let loaded = match config::load(D::command(), std::env::args_os().collect(), None) {
        Ok(loaded) => loaded,
        Err(LoadError::Arguments(error)) => error.exit(),
        Err(error @ LoadError::File(_)) => return failed(usage, &error),
    };
    let mut daemon = D::from_arg_matches(&loaded.matches).unwrap_or_else(|error| error.exit());
    let options = daemon.options();
    options.config.origin = loaded.origin;
    let (is_check, show) = (options.config.check_config, options.config.show_config);
    if let Some(format) = show {
        return match print(&loaded.shown, format) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => failed(ExitCode::FAILURE, &error),
        };
    }
    let checked = match daemon.options().check() {
        Ok(()) => daemon.check(),
        Err(error) => Err(error),
    };
    if let Err(error) = checked {
        return failed(usage, &*error);
    }
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return failed(ExitCode::FAILURE, &error),
    };
    if is_check {
        let process = daemon.options().clone();
        let checking = async {
            process.check_files().await?;
            daemon.check_files().await
        };
        return match runtime.block_on(checking) {
            Ok(()) => {
                println!("the settings are fit, and the files that they name");
                ExitCode::SUCCESS
            }
            Err(error) => failed(usage, &*error),
        };
    }
    match run_to_end(runtime, daemon.run()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => failed(ExitCode::FAILURE, &*error),
    }
}

/// Runs a process. Once it has ended nothing holds it: a resolver that does not
/// answer has its thread for half a minute, and a runtime that is dropped waits
/// for its threads. What had to be finished was waited for in there.
fn run_to_end<T>(runtime: Runtime, run: impl Future<Output = T>) -> T {
    let ended = runtime.block_on(run);
    runtime.shutdown_background();
    ended
}

/// Prints settings on standard output.
///
/// # Errors
///
/// When nobody can read it.
pub fn print(shown: &[Shown], format: ShowFormat) -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    match format {
        ShowFormat::Text => out.write_all(config::as_text(shown).as_bytes())?,
        ShowFormat::Json => writeln!(out, "{:#}", config::as_json(shown))?,
    }
    out.flush()
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::thread;
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_thread_that_waits_for_a_resolver_does_not_hold_the_end() {
        let (_answers, resolver) = mpsc::channel::<()>();
        let (ends, ended) = mpsc::channel();
        thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_multi_thread().build().unwrap();
            let told = run_to_end(runtime, async {
                let (begins, begun) = tokio::sync::oneshot::channel();
                let _lookup = tokio::task::spawn_blocking(move || {
                    begins.send(()).unwrap();
                    resolver.recv()
                });
                begun.await.unwrap();
                "stopped"
            });
            ends.send(told).unwrap();
        });
        // The resolver answers once this test is over.
        assert_eq!(ended.recv_timeout(Duration::from_secs(60)), Ok("stopped"));
    }
}
