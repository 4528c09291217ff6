//! `maintain`: compaction and sweep of histories, by a process of its own.
//!
//! It goes to the bucket itself, beside any number of writers: what it publishes
//! is published as theirs is, by compare-and-swap. Two of them at once waste
//! work, and nothing else. Made for a job that runs by a schedule.

use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use headwater_core::id::HistoryName;
use headwater_core::sweep::Judgement;
use headwater_daemon::options::StoreOptions;
use headwater_daemon::telemetry::with_causes;
use headwater_store::{Clock, Entropy};
use headwater_writer::{SweepError, SweepOptions, SweepReport, Writer, WriterConfig};
use serde_json::json;

use crate::exit::Exit;
use crate::failed::Failed;
use crate::output::Output;

/// `maintain`
#[derive(Clone, Debug, Args)]
#[expect(clippy::struct_excessive_bools, reason = "switches of a command line")]
pub struct MaintainArgs {
    /// The history's name.
    pub history: String,
    /// Where it is, and its keys.
    #[command(flatten)]
    pub store: StoreOptions,
    /// Do not make a snapshot of the present version first.
    #[arg(long)]
    pub no_compact: bool,
    /// Do not sweep.
    #[arg(long)]
    pub no_sweep: bool,
    /// Name every object that a sweep would delete and why, and change nothing.
    #[arg(long, conflicts_with = "no_sweep")]
    pub dry_run: bool,
    /// Look at every object, not only at what was staged since the last sweep:
    /// finds what a process uploaded that had stalled meanwhile.
    #[arg(long)]
    pub full: bool,
    /// Objects deleted at most; the next run goes on.
    #[arg(long, value_name = "COUNT", default_value_t = 100_000)]
    pub deletes_max: u64,
    /// Wait for this long after the head was read before what was staged until
    /// then is swept, in seconds: longer than uploads and compactions take. Less
    /// costs those a second try, and nothing else.
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    pub grace_seconds: u64,
}

pub(crate) async fn maintain(args: &MaintainArgs, output: &mut Output) -> Result<Exit, Failed> {
    let refused = |error: &dyn std::error::Error| Failed::usage(with_causes(error));
    let history = HistoryName::parse(&args.history).map_err(|error| refused(&error))?;
    let entropy = Entropy::from_os();
    let opened = args.store.open(entropy.clone()).map_err(|error| refused(&error))?;
    // The settings that matter here stand in the head; a sweep is asked for.
    let config = WriterConfig { sweep_every_ms: 0, ..WriterConfig::default() };
    let writer =
        headwater_writer::start(Arc::clone(&opened.store), config, entropy, Clock::system())
            .map_err(|error| refused(&error))?;
    let outcome = run(&writer, &history, args, output).await;
    writer.shutdown().await;
    outcome
}

async fn run(
    writer: &Writer,
    history: &HistoryName,
    args: &MaintainArgs,
    output: &mut Output,
) -> Result<Exit, Failed> {
    let revision = writer.revision(history).await.map_err(|error| failed(&error))?;
    if !args.no_compact && !args.dry_run {
        let is_there = writer
            .compact(history)
            .await
            .map_err(|error| Failed::new(Exit::Unavailable, error.to_string()))?;
        output.answer(
            || json!({ "history": args.history, "compacted": is_there }),
            || {
                let said = if is_there { "has" } else { "has not got" };
                format!("{} {said} a snapshot of its newest version", args.history)
            },
        )?;
    }
    if args.no_sweep {
        return Ok(Exit::Done);
    }
    if !args.dry_run {
        tokio::time::sleep(Duration::from_secs(args.grace_seconds)).await;
    }
    let options = SweepOptions {
        is_dry_run: args.dry_run,
        is_full: args.full,
        deletes_max: args.deletes_max,
        below: Some(revision),
    };
    let mut doomed = Vec::new();
    let look = |it: &headwater_writer::SweptObject| {
        // A dry run is for reading; otherwise the count is enough.
        if args.dry_run && it.judgement.is_deletable() {
            doomed.push(it.clone());
        }
    };
    let report = writer.sweep(history, options, look).await.map_err(|error| failed(&error))?;
    for it in &doomed {
        let reason = reason(it.judgement);
        output.answer(
            || json!({ "object": it.key.as_str(), "bytes": it.size_bytes, "reason": reason }),
            || format!("{} ({reason})", it.key),
        )?;
    }
    say(&report, args, output)?;
    Ok(Exit::Done)
}

fn reason(judgement: Judgement) -> &'static str {
    match judgement {
        Judgement::Unreached => "no head names it, and none can any more",
        Judgement::Released => "retention let it go",
        Judgement::Reached | Judgement::Young => "it stays",
    }
}

fn say(report: &SweepReport, args: &MaintainArgs, output: &mut Output) -> Result<(), Failed> {
    output.answer(
        || {
            json!({
                "history": args.history,
                "dryRun": args.dry_run,
                "sweptBelowRevision": report.below.get(),
                "objectsLookedAt": report.looked_at,
                "objectsDeleted": report.deleted,
                "bytesDeleted": report.deleted_bytes,
                "complete": report.is_complete,
            })
        },
        || {
            let verb = if args.dry_run { "would delete" } else { "deleted" };
            let rest = if report.is_complete { "" } else { "; there is more for the next run" };
            format!(
                "{verb} {} of {} objects, {} bytes, below revision {}{rest}",
                report.deleted,
                report.looked_at,
                report.deleted_bytes,
                report.below.get()
            )
        },
    )
}

fn failed(error: &SweepError) -> Failed {
    let exit = match error {
        SweepError::Missing => Exit::NotFound,
        SweepError::Trouble(_) | SweepError::Ask(_) | SweepError::Contended => Exit::Unavailable,
    };
    Failed::new(exit, with_causes(error)).advise("run it again: it goes on where this one ended")
}
