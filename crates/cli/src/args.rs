//! The command line.

use std::time::Duration;

use clap::{Arg, Args, CommandFactory, FromArgMatches, Parser, Subcommand};
use headwater_client::{Client, Consistency, HistoryId, Session, Token};
use headwater_daemon::config::{self, LoadError};
use headwater_daemon::telemetry::with_causes;

use crate::at_time::VersionAtArgs;
use crate::cost::CostArgs;
use crate::doctor::DoctorArgs;
use crate::exit::{EXIT_CODES, Exit};
use crate::export::ExportArgs;
use crate::failed::Failed;
use crate::histories::{CreateArgs, DeleteHistoryArgs, ListArgs, RaiseEpochArgs};
use crate::import::ImportArgs;
use crate::inspect::{HeadArgs, LogArgs, OpArgs};
use crate::kept::{ForkArgs, PinArgs, PinsArgs, RestoreArgs, RetainArgs, UnpinArgs};
use crate::maintain::MaintainArgs;
use crate::output::{Format, report};
use crate::read::{GetArgs, ScanArgs};
use crate::security::Security;
use crate::serve::ServeArgs;
use crate::status::StatusArgs;
use crate::token::TokenArgs;
use crate::txn::SHAPE;
use crate::verify::VerifyArgs;
use crate::watch::WatchArgs;
use crate::write::{AddArgs, DeleteArgs, PutArgs, TxnArgs};

/// Where `headwater serve` listens, and where every other command asks.
pub(crate) const ADDRESS_DEFAULT: &str = "127.0.0.1:7410";

/// The variables that the first help page names.
const ENVIRONMENT: &str = "\
Environment, which flags go before:
  HEADWATER_WRITER, HEADWATER_REPLICA  where commands ask
  HEADWATER_TLS_CA, HEADWATER_TLS_CERT, HEADWATER_TLS_KEY, HEADWATER_TOKEN_FILE
                                       whom they trust, and what they show
  HEADWATER_STORE, HEADWATER_LISTEN    where `serve` keeps histories, and listens
  HEADWATER_ADMIN                      whose admin port `status` asks
  HEADWATER_LOG                        what `serve` logs: info,headwater_writer=debug
  Settings of `serve` that have a variable name it in `headwater serve --help`.";

/// A replicated head service over object storage: ordered histories of keys and
/// values, written by compare-and-swap and read with proven freshness.
///
/// Begin with `headwater serve`: it says which line to try.
#[derive(Clone, Debug, Parser)]
#[command(name = "headwater", version, propagate_version = true)]
pub struct Cli {
    /// Where servers are.
    #[command(flatten)]
    pub connection: Connection,
    /// Write answers as JSON, one value a line, on standard output; errors as
    /// JSON on standard error.
    #[arg(long, global = true, help_heading = "Global")]
    pub json: bool,
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// Where servers are, and how long they are waited for.
#[derive(Clone, Debug, Args)]
pub struct Connection {
    /// Writers, HOST:PORT, several separated by commas. A DNS name stands for
    /// all its addresses.
    #[arg(
        long = "writer",
        value_name = "ADDRESS",
        env = "HEADWATER_WRITER",
        default_value = ADDRESS_DEFAULT,
        value_delimiter = ',',
        global = true,
        help_heading = "Global"
    )]
    pub writers: Vec<String>,
    /// Replicas, likewise. Default: where the writers are, as for `serve`.
    #[arg(
        long = "replica",
        value_name = "ADDRESS",
        env = "HEADWATER_REPLICA",
        value_delimiter = ',',
        global = true,
        help_heading = "Global"
    )]
    pub replicas: Vec<String>,
    /// What is trusted and shown.
    #[command(flatten)]
    pub security: Security,
    /// Longest time for one call, retries included, in seconds.
    #[arg(
        long,
        value_name = "SECONDS",
        default_value_t = 30,
        value_parser = clap::value_parser!(u64).range(1..=86_400),
        global = true,
        help_heading = "Global"
    )]
    pub deadline_seconds: u64,
}

/// The commands.
#[derive(Clone, Debug, Subcommand)]
pub enum Command {
    /// Run a writer and a replica in one process.
    Serve(Box<ServeArgs>),
    /// Find out whether a store can be trusted, by trying.
    Doctor(DoctorArgs),
    /// Say how a process stands: histories, rates, conflicts, what it waits for.
    Status(StatusArgs),
    /// Create a history.
    Create(CreateArgs),
    /// List histories.
    List(ListArgs),
    /// Set a key.
    Put(PutArgs),
    /// Remove a key.
    Delete(DeleteArgs),
    /// Add to a 64-bit integer, and print the sum.
    Add(AddArgs),
    /// Apply preconditions and mutations, all or nothing, from JSON.
    Txn(TxnArgs),
    /// Print the value of a key.
    Get(GetArgs),
    /// Print keys and values in order.
    Scan(ScanArgs),
    /// Print the change entries: what each version changed, and by which
    /// operations.
    Log(LogArgs),
    /// Print the version of a moment.
    VersionAt(VersionAtArgs),
    /// Print what changes, as JSON lines, until interrupted.
    Watch(WatchArgs),
    /// Describe the head: versions, tail, receipts, objects.
    Head(HeadArgs),
    /// Say what became of an operation.
    Op(OpArgs),
    /// Check what is stored of a history, in the bucket itself.
    ///
    /// Asks no server, and changes nothing without --repair and --yes. Checks
    /// every object that the head leads to, the chain of changes, receipts,
    /// counts and pins; builds the newest snapshot again and compares; lists
    /// what nothing leads to.
    Verify(Box<VerifyArgs>),
    /// Put every line of an NDJSON file, each once, however often it is run.
    Import(ImportArgs),
    /// Write all keys and values of one version as NDJSON.
    Export(ExportArgs),
    /// Take over an exclusive history: raise its writer epoch by one.
    RaiseEpoch(RaiseEpochArgs),
    /// Estimate what a history costs in a month.
    Cost(Box<CostArgs>),
    /// Make a token, and the row for the servers' file of rights.
    Token(TokenArgs),
    /// Put a name on a version, so that it stays readable.
    Pin(PinArgs),
    /// Take a pin away.
    Unpin(UnpinArgs),
    /// List the pins of a history.
    Pins(PinsArgs),
    /// Set how far back versions of a history are kept.
    Retain(RetainArgs),
    /// Accept one more version whose state equals that of an older one.
    Restore(RestoreArgs),
    /// Make a new history from a version of another, without copying it.
    Fork(ForkArgs),
    /// Compact and sweep a history in the bucket itself, beside its writers.
    Maintain(MaintainArgs),
    /// Delete a history with everything in it.
    DeleteHistory(DeleteHistoryArgs),
}

/// How fresh a read must be. Default: strong.
#[derive(Clone, Debug, Default, Args)]
#[group(multiple = false)]
pub struct Freshness {
    /// Linearizable: proven current after the request arrived.
    #[arg(long, help_heading = "Freshness")]
    pub strong: bool,
    /// This state version or a later one.
    #[arg(long, value_name = "VERSION", help_heading = "Freshness")]
    pub at_least: Option<u64>,
    /// Exactly this state version, if a replica has it at hand.
    #[arg(long, value_name = "VERSION", help_heading = "Freshness")]
    pub exact: Option<u64>,
    /// Proven current no longer ago than this, in milliseconds.
    #[arg(long, value_name = "MS", help_heading = "Freshness")]
    pub max_staleness_ms: Option<u64>,
    /// Whatever the replica has at hand, however old.
    #[arg(long, help_heading = "Freshness")]
    pub any: bool,
}

/// Which history to read.
#[derive(Clone, Debug, Args)]
pub struct Source {
    /// The history's name.
    pub history: String,
    /// The id that the history must have; another history of this name is not
    /// read.
    #[arg(long, value_name = "HISTORY_ID")]
    pub history_id: Option<HistoryId>,
}

impl Cli {
    /// Reads the process's command line, and the file of settings that it names
    /// for `serve`. Ends the process for `--help`, and for what cannot be read.
    pub fn from_process() -> Self {
        let arguments: Vec<_> = std::env::args_os().collect();
        let is_json = arguments.iter().any(|it| it == "--json");
        let loaded = match config::load(Self::with_exit_codes(), arguments, Some("serve")) {
            Ok(loaded) => loaded,
            Err(LoadError::Arguments(error)) => error.exit(),
            Err(error @ LoadError::File(_)) => {
                let format = if is_json { Format::Json } else { Format::Text };
                report(&Failed::usage(with_causes(&error)), format);
                std::process::exit(i32::from(Exit::Usage.code()));
            }
        };
        let mut cli = Self::from_arg_matches(&loaded.matches).unwrap_or_else(|error| error.exit());
        if let Command::Serve(args) = &mut cli.command {
            args.process.config.origin = loaded.origin;
            args.shown = loaded.shown;
        }
        cli
    }

    /// The definition of `serve`, whose settings docs/configuration.md has.
    pub fn serve_definition() -> clap::Command {
        let found = Self::with_exit_codes().find_subcommand("serve").cloned();
        found.unwrap_or_else(|| clap::Command::new("serve"))
    }

    /// The definition, with the exit codes at the end of every help page.
    fn with_exit_codes() -> clap::Command {
        let shape_too = format!("{SHAPE}\n\n{EXIT_CODES}");
        let environment_too = format!("{ENVIRONMENT}\n\n{EXIT_CODES}");
        Self::command()
            .mut_subcommand("serve", |it| it.mut_args(with_unit))
            .mut_subcommand("cost", |it| it.mut_args(with_unit))
            .after_help(environment_too)
            .mut_subcommands(|it| it.after_help(EXIT_CODES))
            .mut_subcommand("txn", |it| it.after_long_help(shape_too))
    }

    pub(crate) fn format(&self) -> Format {
        if self.json { Format::Json } else { Format::Text }
    }
}

impl Connection {
    pub(crate) fn client(&self) -> Result<Client, Failed> {
        let client = Client::builder()
            .writers(&self.writers)
            .replicas(&self.replicas)
            .deadline(Duration::from_secs(self.deadline_seconds));
        Ok(self.security.apply(client).build()?)
    }
}

impl Freshness {
    pub(crate) fn level(&self) -> Consistency {
        if let Some(version) = self.at_least {
            Consistency::AtLeast(version)
        } else if let Some(version) = self.exact {
            Consistency::Exact(version)
        } else if let Some(ms) = self.max_staleness_ms {
            Consistency::MaxStaleness(Duration::from_millis(ms))
        } else if self.any {
            Consistency::Any
        } else {
            Consistency::Strong
        }
    }
}

impl Source {
    pub(crate) fn session(&self, client: &Client) -> Session {
        match &self.history_id {
            Some(history_id) => {
                let token = Token { history_id: history_id.clone(), state_version: 0 };
                client.session_from(&*self.history, token)
            }
            None => client.session(&*self.history),
        }
    }
}

/// Settings of servers show their unit where others show what a value is; by
/// default they would show their name again.
fn with_unit(arg: Arg) -> Arg {
    let id = arg.get_id().as_str();
    let Some(name) = id.strip_prefix("writer-").or(id.strip_prefix("replica-")) else { return arg };
    let mut words = name.split('-');
    let unit = words.find_map(|it| match it {
        "bytes" => Some("BYTES"),
        "ms" => Some("MS"),
        "seconds" => Some("SECONDS"),
        "id" => Some("ID"),
        _ => None,
    });
    arg.value_name(unit.unwrap_or("COUNT"))
}

#[cfg(test)]
#[path = "args_test.rs"]
mod tests;
