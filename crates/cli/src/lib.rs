//! `headwater`: the whole service in one process, and the operator's commands.
//!
//! In here: the command line, what is printed, the exit codes, and the two
//! commands that are programs of their own, import and export. Not in here: any
//! decision of the protocol; commands ask servers through [`headwater_client`], and
//! `verify` looks into the bucket with [`headwater_verify`].
//!
//! ```text
//! args -> command -> client -> writer, replica
//!            |
//!            +--> output (text or JSON) -> exit code
//! ```
//!
//! # Invariants
//!
//! - Text is for people and may change; JSON field names and exit codes are for
//!   programs and do not.
//! - Every command that writes says the operation id, the issue version and the
//!   history id that it used or was answered with, unless sending it again can
//!   never work.
//! - What may have been applied never ends with the exit code of what was not.

mod args;
mod at_time;
mod condition;
mod cost;
mod doctor;
mod durable;
mod exit;
mod export;
mod failed;
mod field;
mod histories;
mod import;
mod inspect;
mod issue;
mod kept;
mod maintain;
mod ndjson;
mod outcome;
mod output;
mod progress;
mod read;
mod security;
mod serve;
mod shown;
mod status;
mod token;
mod txn;
mod verify;
mod watch;
mod write;

use std::process::ExitCode;
use std::time::Duration;

pub use self::args::{Cli, Command, Connection, Freshness, Source};
pub use self::exit::{EXIT_CODES, Exit};
use self::failed::Failed;
use self::output::{Output, report};

/// Runs the command of this process's command line.
pub fn run() -> ExitCode {
    let cli = Cli::from_process();
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            let message = format!("cannot start: {error}");
            report(&Failed::new(Exit::Unexpected, message), cli.format());
            return Exit::Unexpected.into();
        }
    };
    let outcome = runtime.block_on(Box::pin(command(&cli)));
    // A read of standard input that nobody waits for any more must not hold the
    // process.
    runtime.shutdown_background();
    match outcome {
        Ok(exit) => exit.into(),
        Err(failed) => {
            report(&failed, cli.format());
            failed.exit.into()
        }
    }
}

async fn command(cli: &Cli) -> Result<Exit, Failed> {
    let mut output = Output::new(cli.format());
    let outcome = Box::pin(dispatch(cli, &mut output)).await;
    // What was printed before an error is not lost with it.
    let finished = output.finish();
    let exit = outcome?;
    finished?;
    Ok(exit)
}

async fn dispatch(cli: &Cli, output: &mut Output) -> Result<Exit, Failed> {
    let client = cli.connection.client()?;
    match &cli.command {
        Command::Doctor(args) => doctor::doctor(args, output).await,
        Command::Serve(args) => serve::serve(args, output).await,
        Command::Status(args) => {
            let timeout = Duration::from_secs(cli.connection.deadline_seconds);
            let asker = status::Asker { timeout, security: &cli.connection.security };
            status::status(args, &asker, cli.format(), output).await
        }
        Command::Create(args) => histories::create(&client, args, output).await,
        Command::List(args) => histories::list(&client, args, output).await,
        Command::RaiseEpoch(args) => histories::raise_epoch(&client, args, output).await,
        Command::Pin(args) => kept::pin(&client, args, output).await,
        Command::Unpin(args) => kept::unpin(&client, args, output).await,
        Command::Pins(args) => kept::pins(&client, args, output).await,
        Command::Retain(args) => kept::retain(&client, args, output).await,
        Command::Restore(args) => kept::restore(&client, args, output).await,
        Command::Fork(args) => kept::fork(&client, args, output).await,
        Command::Maintain(args) => maintain::maintain(args, output).await,
        Command::DeleteHistory(args) => histories::delete(&client, args, output).await,
        Command::Put(args) => write::put(&client, args, output).await,
        Command::Delete(args) => write::delete(&client, args, output).await,
        Command::Add(args) => write::add(&client, args, output).await,
        Command::Txn(args) => write::txn(&client, args, output).await,
        Command::Get(args) => read::get(&client, args, output).await,
        Command::Scan(args) => read::scan(&client, args, output).await,
        Command::Log(args) => inspect::log(&client, args, output).await,
        Command::VersionAt(args) => at_time::version_at(&client, args, output).await,
        Command::Watch(args) => watch::watch(&client, args, output).await,
        Command::Head(args) => inspect::head(&client, args, output).await,
        Command::Op(args) => inspect::op(&client, args, output).await,
        Command::Verify(args) => verify::verify(args, cli.format(), output).await,
        Command::Import(args) => import::import(&client, args, cli.format(), output).await,
        Command::Token(args) => token::token(args, output),
        Command::Cost(args) => cost::cost(&client, args, output).await,
        Command::Export(args) => export::export(&client, args, cli.format(), output).await,
    }
}
