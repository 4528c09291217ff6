//! `token new`: a token for a client, and the row for the servers' file of
//! rights.

use std::fs::OpenOptions;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use headwater_daemon::auth::token::NewToken;
use headwater_daemon::auth::{Role, moment};
use headwater_store::{Clock, Entropy};
use serde_json::json;

use crate::exit::Exit;
use crate::failed::Failed;
use crate::output::{Format, Output};

const DAY_MS: u64 = 24 * 60 * 60 * 1_000;

/// `token`
#[derive(Clone, Debug, Args)]
pub struct TokenArgs {
    /// What to do.
    #[command(subcommand)]
    pub command: TokenCommand,
}

/// The commands of `token`.
#[derive(Clone, Debug, Subcommand)]
pub enum TokenCommand {
    /// Make a token. Asks no server: what counts is the row, in the file that
    /// servers have as --auth-file.
    New(NewTokenArgs),
}

/// `token new`
#[derive(Clone, Debug, Args)]
pub struct NewTokenArgs {
    /// Whose token it is: in the audit log, and where limits are counted.
    #[arg(long, default_value = "unnamed")]
    pub name: String,
    /// What may be done: each role includes those before it.
    #[arg(long, value_enum)]
    pub role: Role,
    /// How the names of the histories begin, as in 'app-'; several separated
    /// by commas. '' is every history.
    #[arg(long, value_name = "PREFIX", value_delimiter = ',', required = true)]
    pub histories: Vec<String>,
    /// How long it is good for, in days. Default: for ever.
    #[arg(long, value_name = "DAYS", value_parser = clap::value_parser!(u64).range(1..=36_500))]
    pub expires_days: Option<u64>,
    /// Most calls a second.
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..))]
    pub requests_per_second: Option<u32>,
    /// Write the token to this new file, which its owner alone can read, and do
    /// not print it. Standard output is the row alone then, fit to be appended
    /// to the file of rights.
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
}

pub(crate) fn token(args: &TokenArgs, output: &mut Output) -> Result<Exit, Failed> {
    match &args.command {
        TokenCommand::New(args) => new(args, output),
    }
}

fn new(args: &NewTokenArgs, output: &mut Output) -> Result<Exit, Failed> {
    let is_name = |it: char| it.is_ascii_alphanumeric() || "._@/-".contains(it);
    if args.name.is_empty() || 64 < args.name.len() || !args.name.chars().all(is_name) {
        return Err(Failed::usage("--name is 1 to 64 of A-Z, a-z, 0-9 and ._@/-"));
    }
    let token = NewToken::draw(&Entropy::from_os());
    let row = row(args, &token, Clock::system().now_ms());
    if let Some(path) = &args.out {
        write(path, &token.text)?;
    }
    let shown = args.out.is_none().then_some(&token.text);
    if let (Some(path), Format::Text) = (&args.out, output.format()) {
        // Beside standard output, which is the row alone: it is appended to the
        // file of rights as it is.
        let prose = format!("the token is in {}; the row for the file of rights:", path.display());
        drop(writeln!(io::stderr().lock(), "{prose}"));
    }
    output.answer(
        || json!({ "token": shown, "id": token.id, "row": row }),
        || match shown {
            Some(text) => format!(
                "the token, for the client alone; it is not shown again:\n\n{text}\n\n\
                 the row for the file that servers have as --auth-file:\n\n{row}"
            ),
            // A blank line parts it from the next one.
            None => format!("{row}\n"),
        },
    )?;
    Ok(Exit::Done)
}

/// TOML, as `headwater_daemon::auth::access` reads it.
fn row(args: &NewTokenArgs, token: &NewToken, now_ms: u64) -> String {
    let mut row = format!(
        "[[token]]\nname = \"{}\"\nid = \"{}\"\nhash = \"{}\"\n",
        args.name,
        token.id,
        token.hash.to_text()
    );
    if let Some(days) = args.expires_days {
        row = row + "expires = " + &moment::to_text(now_ms + days * DAY_MS) + "\n";
    }
    if let Some(count) = args.requests_per_second {
        row = row + "requests_per_second = " + &count.to_string() + "\n";
    }
    // Strings of JSON are strings of TOML.
    row + &format!(
        "grants = [{{ role = \"{}\", histories = {} }}]",
        args.role,
        json!(args.histories)
    )
}

fn write(path: &Path, token: &str) -> Result<(), Failed> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let written = options.open(path).and_then(|mut it| it.write_all(token.as_bytes()));
    written.map_err(|error| Failed::file("write the token to", path, &error))
}
