//! `import`: every line of an NDJSON file becomes one operation that puts its
//! key, and is applied once however often the import is run.
//!
//! ```text
//! lines -> ledger (window) -> ordered stream -> answers -> ledger -> state file
//! ```
//!
//! # Why a line is applied once
//!
//! - The operation id is made from the import's identity (a hash of the whole
//!   input), the line's number and its bytes. Another run of the same input
//!   sends the same ids, and the history answers a known id from its receipt.
//! - Receipts do not last for ever. Once they are gone, only the issue version
//!   tells a retry from a new request (PROTOCOL 5), and it must not move after
//!   an id was first sent. So the import keeps it: lines are sent in spans, and
//!   the state file beside the input names the issue version of a span, durably,
//!   before a line of that span is sent. A run that finds the state file sends
//!   the lines of a span with the version that is written there. A line of no
//!   span was never sent, so a new span takes the version current by then: the
//!   receipts needed are those of one span (2,048 lines or 64 versions, whatever
//!   comes first), however large the input.
//! - Without a state file nobody knows whether an earlier run sent a line. 0 is
//!   then the only true issue version, and it works as long as the history
//!   still has every receipt. Where it has not, the import stops, and says what
//!   to say: `--fresh` (the caller is certain that it was never sent), `--state`
//!   (here is the file), or `--service-kept`.
//!
//! The history keeps no more than that: the alternative, issue versions kept by
//! the service, costs one stored object a line and for ever.
//!
//! A line whose outcome is unknown stays recorded as such until `--settle-unknown`
//! finds that the data are as if it had been applied.
//!
//! # Order
//!
//! Lines that have the same key are accepted in the order of the input: a line
//! waits until the one before it with its key is answered. Lines of different
//! keys may be accepted in any order. A file that repeats one key over and over
//! therefore goes at one line a round trip.
//!
//! # Limits
//!
//! At most `--window` lines, and 32 MiB of them, are unanswered at a time.
//!
//! # Invariants
//!
//! - The state file's span is durable before any line of it is sent.
//! - `confirmedThroughLine` is below every line without an outcome.
//! - No line of a file is sent unless every line of it is an entry or blank. Of
//!   an input that can be read only once, no line after one that is neither.

mod identity;
mod input;
mod ledger;
mod line;
mod plan;
mod run;
mod settle;
mod state;
mod summary;

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use headwater_client::{Client, HistoryId};
use headwater_daemon::signals::StopSignal;

use self::input::Source;
use self::plan::Plan;
use self::run::{Run, RunOptions};
use self::settle::Settling;
use self::state::{StateFile, default_path};
use self::summary::Summary;
use crate::exit::Exit;
use crate::failed::Failed;
use crate::output::{Format, Output};

/// `import`
#[derive(Clone, Debug, Args)]
pub struct ImportArgs {
    /// The history's name.
    pub history: String,
    /// The NDJSON file; `-` is standard input. A line is
    /// {"key": "…", "value": "…"}, with keyBase64 and valueBase64 for bytes that
    /// are not UTF-8.
    pub file: PathBuf,
    /// Where progress is kept. Default: FILE.headwater-import.json.
    #[arg(long, value_name = "FILE")]
    pub state: Option<PathBuf>,
    /// You are certain that no line without a record in the state file was ever
    /// sent to this history. Right for the first import of an input.
    #[arg(long)]
    pub fresh: bool,
    /// Let the writer keep what tells a repeated line: one more object in the
    /// store for each line. Right where no state file can be kept, if it is said
    /// in every run.
    #[arg(long, conflicts_with = "fresh")]
    pub service_kept: bool,
    /// Send nothing. Compare the lines that are recorded as unknown with what
    /// their keys hold now: a line is settled, and no longer listed, if its key
    /// holds its value or that of a later line. The others are printed, with
    /// what their keys hold. Nothing is written but the state file.
    #[arg(long, conflicts_with_all = ["fresh", "service_kept"])]
    pub settle_unknown: bool,
    /// Lines unanswered at a time, at most.
    #[arg(
        long,
        value_name = "LINES",
        default_value_t = 1_024,
        value_parser = clap::value_parser!(u32).range(1..=4_096)
    )]
    pub window: u32,
    /// Longest time for one line, a writer's restart included, in seconds.
    #[arg(
        long,
        value_name = "SECONDS",
        default_value_t = 120,
        value_parser = clap::value_parser!(u64).range(1..=86_400)
    )]
    pub give_up_seconds: u64,
    /// The writer epoch, for an exclusive history: see `raise-epoch`.
    #[arg(long, value_name = "EPOCH", default_value_t = 0)]
    pub epoch: u64,
    /// The id that the history must have.
    #[arg(long, value_name = "HISTORY_ID")]
    pub history_id: Option<HistoryId>,
}

pub(crate) async fn import(
    client: &Client,
    args: &ImportArgs,
    format: Format,
    output: &mut Output,
) -> Result<Exit, Failed> {
    let stop = StopSignal::install()
        .map_err(|error| Failed::new(Exit::Unexpected, format!("cannot watch signals: {error}")))?;
    let give_up_after = Duration::from_secs(args.give_up_seconds);
    // Calls before and beside the stream of lines keep to the shorter limit.
    let client = &client.with_deadline(give_up_after.min(client.deadline()));
    let source = Source::new(&args.file);
    let path = args.state.clone().or_else(|| default_path(&source));
    if path.is_none() && !args.fresh {
        return Err(Failed::usage("standard input has no state file beside it").advise(
            "name one with --state, or say --fresh if it was never imported before and will not \
             be again",
        ));
    }
    let file = path.map(StateFile::open).transpose()?;
    let identified = tokio::select! {
        identified = source.identify() => identified?,
        () = stop.token().cancelled_owned() => {
            return Err(Failed::new(Exit::Interrupted, "interrupted; nothing was sent"));
        }
    };
    let recorded = file.as_ref().map(StateFile::load).transpose()?.flatten();
    let history = client.get_history(&args.history).await?;
    if args.history_id.as_ref().is_some_and(|it| *it != history.history_id) {
        let id = &history.history_id;
        return Err(Failed::new(Exit::NotFound, format!("history {} has id {id}", args.history)));
    }
    if args.settle_unknown {
        let (Some(file), Some(recorded)) = (file, recorded) else {
            return Err(Failed::usage("there is no state file that lists unknown lines")
                .advise("name the state file of the import with --state"));
        };
        let plan = Plan::make(args, &identified, Some(recorded), &history)?;
        let settling = Settling::new(client, plan, identified, file);
        return Box::pin(settling.finish(stop.token().cancelled_owned(), output)).await;
    }
    let plan = Plan::make(args, &identified, recorded, &history)?;
    let mut summary = Summary::new(args, &history, file.as_ref());
    let failed = if plan.is_done() {
        summary.nothing_to_do(&plan.state);
        None
    } else {
        let options = RunOptions {
            window: args.window as usize,
            give_up_after,
            epoch: args.epoch,
            is_quiet: format == Format::Json,
        };
        let run = Run::new(client, plan, identified, file, options);
        Box::pin(run.finish(&mut summary, stop.token().cancelled_owned())).await?
    };
    output.answer(|| summary.to_json(), || summary.to_text())?;
    match failed {
        Some(failed) => Err(failed),
        None => Ok(summary.exit()),
    }
}
