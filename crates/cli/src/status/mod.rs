//! `status`: how a process stands, by its admin port.
//!
//! ```text
//! admin port ── /status.json ──▶ fetch ─▶ Status ─▶ shown (text), or as it came
//! ```
//!
//! It asks the process and not the store, so it tells of a process whose store
//! is down as well.

mod fetch;
mod shown;

use std::io::{IsTerminal as _, stdout};
use std::time::Duration;

use clap::Args;
use headwater_daemon::overview::Window;
use headwater_daemon::signals::StopSignal;
use tokio::time::sleep;

use self::fetch::{Admin, Looked};
use crate::exit::Exit;
use crate::failed::Failed;
use crate::output::{Format, Output, report};
use crate::security::Security;

/// Where `status` asks when it is not told.
pub(crate) const ADMIN_DEFAULT: &str = "127.0.0.1:7412";

/// Pause between two looks of `--watch`.
const EVERY: Duration = Duration::from_secs(2);

/// Clears a terminal, as `clear` does.
const CLEAR: &str = "\x1b[H\x1b[2J\x1b[3J";

/// `status`
#[derive(Clone, Debug, Args)]
pub struct StatusArgs {
    /// The admin port of the process, HOST:PORT or a URL with `http` or, where
    /// it has TLS, `https`: what its `--admin-listen` says.
    #[arg(value_name = "ADMIN-ADDRESS", default_value = ADMIN_DEFAULT, env = "HEADWATER_ADMIN")]
    pub admin: String,
    /// Look again every two seconds, until interrupted.
    #[arg(long)]
    pub watch: bool,
    /// List only open histories whose names begin so.
    #[arg(long, value_name = "TEXT", default_value = "")]
    pub prefix: String,
    /// List only open histories after this name.
    #[arg(long, value_name = "NAME", default_value = "")]
    pub after: String,
    /// Open histories that are listed at most.
    #[arg(
        long,
        value_name = "COUNT",
        default_value_t = Window::LIMIT_DEFAULT,
        value_parser = limit,
    )]
    pub limit: usize,
}

fn limit(text: &str) -> Result<usize, String> {
    let limit = text.parse().ok().filter(|it| (1..=Window::LIMIT_MAX).contains(it));
    limit.ok_or_else(|| format!("a number from 1 to {}", Window::LIMIT_MAX))
}

/// Who asks: for how long at most, whom it trusts, and what it shows.
#[derive(Debug)]
pub(crate) struct Asker<'a> {
    pub(crate) timeout: Duration,
    pub(crate) security: &'a Security,
}

pub(crate) async fn status(
    args: &StatusArgs,
    asker: &Asker<'_>,
    format: Format,
    output: &mut Output,
) -> Result<Exit, Failed> {
    let window =
        Window { prefix: args.prefix.clone(), after: args.after.clone(), limit: args.limit };
    let admin = Admin::parse(&args.admin, asker.security)?;
    let timeout = asker.timeout;
    if !args.watch {
        return print(&admin.look(&window, timeout).await?, output);
    }
    // Signals are watched for as long as it is there.
    let signals = StopSignal::install()
        .map_err(|error| Failed::new(Exit::Unexpected, format!("cannot watch signals: {error}")))?;
    let stop = signals.token();
    let is_screen = format == Format::Text && stdout().is_terminal();
    loop {
        let looking = admin.look(&window, timeout);
        let Some(looked) = stop.run_until_cancelled(looking).await else {
            return Ok(Exit::Interrupted);
        };
        if is_screen {
            output.raw(CLEAR.as_bytes())?;
        }
        match looked {
            Ok(looked) => {
                print(&looked, output)?;
            }
            // A process that starts again is what one waits for.
            Err(failed) if failed.exit == Exit::Unavailable => report(&failed, format),
            Err(failed) => return Err(failed),
        }
        output.flush()?;
        if stop.run_until_cancelled(sleep(EVERY)).await.is_none() {
            return Ok(Exit::Interrupted);
        }
    }
}

fn print(looked: &Looked, output: &mut Output) -> Result<Exit, Failed> {
    output.answer(|| looked.json.clone(), || shown::text(&looked.status))?;
    let is_ready = looked.status.readiness.is_ready;
    Ok(if is_ready { Exit::Done } else { Exit::Warned })
}
