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
use headwater_core::version::Revision;
use headwater_daemon::options::StoreOptions;
use headwater_daemon::telemetry::with_causes;
use headwater_store::{Clock, Entropy, Store};
use headwater_verify::{Options, Progress, Verifier};
use headwater_writer::{SweepError, SweepOptions, SweepReport, Writer, WriterConfig};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::exit::Exit;
use crate::failed::Failed;
use crate::output::Output;

/// `maintain`
#[derive(Clone, Debug, Args)]
#[expect(clippy::struct_excessive_bools, reason = "switches of a command line")]
pub struct MaintainArgs {
    /// The history's name.
    #[arg(required_unless_present = "all")]
    pub history: Option<String>,
    /// Every history below the root, one after the other; one that fails keeps
    /// none of the others back.
    #[arg(long, conflicts_with = "history")]
    pub all: bool,
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
    let name = args.history.as_deref().map(HistoryName::parse).transpose();
    let name = name.map_err(|error| refused(&error))?;
    let entropy = Entropy::from_os();
    let opened = args.store.open(entropy.clone()).map_err(|error| refused(&error))?;
    // The settings that matter here stand in the head; a sweep is asked for.
    let config = WriterConfig { sweep_every_ms: 0, ..WriterConfig::default() };
    let writer =
        headwater_writer::start(Arc::clone(&opened.store), config, entropy, Clock::system())
            .map_err(|error| refused(&error))?;
    let outcome = match &name {
        Some(name) => Run { writer: &writer, args, output }.one(name).await,
        None => match names(Arc::clone(&opened.store)).await {
            Ok(names) => Run { writer: &writer, args, output }.all(&names).await,
            Err(failed) => Err(failed),
        },
    };
    writer.shutdown().await;
    outcome
}

async fn names(store: Arc<dyn Store>) -> Result<Vec<HistoryName>, Failed> {
    let verifier =
        Verifier::new(store, Options::default(), Progress::default(), CancellationToken::new());
    let names = verifier.histories().await;
    names.map_err(|error| Failed::new(Exit::Unavailable, with_causes(&error)))
}

struct Run<'a> {
    writer: &'a Writer,
    args: &'a MaintainArgs,
    output: &'a mut Output,
}

impl Run<'_> {
    async fn one(&mut self, name: &HistoryName) -> Result<Exit, Failed> {
        let below = self.compact(name).await?;
        self.rest().await;
        self.sweep(name, below).await?;
        Ok(Exit::Done)
    }

    /// All are compacted, then all are swept: the grace is waited for once.
    async fn all(&mut self, names: &[HistoryName]) -> Result<Exit, Failed> {
        let mut trouble = None;
        let mut ahead = Vec::new();
        let mut n_done = 0;
        for name in names {
            match self.compact(name).await {
                Ok(below) => ahead.push((name, below)),
                Err(error) => self.leave_out(name, error, &mut trouble)?,
            }
        }
        self.rest().await;
        for (name, below) in ahead {
            match self.sweep(name, below).await {
                Ok(()) => n_done += 1,
                Err(error) => self.leave_out(name, error, &mut trouble)?,
            }
        }
        self.output.answer(
            || json!({ "histories": names.len(), "maintained": n_done }),
            || format!("{n_done} of {} histories maintained", names.len()),
        )?;
        trouble.map_or(Ok(Exit::Done), Err)
    }

    /// Names of deleted histories keep their heads: nothing is wrong with those.
    fn leave_out(
        &mut self,
        name: &HistoryName,
        error: Failed,
        trouble: &mut Option<Failed>,
    ) -> Result<(), Failed> {
        if error.exit == Exit::NotFound {
            return Ok(());
        }
        let said = error.at(name.as_str());
        self.output.answer(|| said.to_json(), || said.to_text())?;
        trouble.get_or_insert(said);
        Ok(())
    }

    async fn rest(&self) {
        if !self.args.no_sweep && !self.args.dry_run {
            tokio::time::sleep(Duration::from_secs(self.args.grace_seconds)).await;
        }
    }

    /// The revision that it had before: what was staged until then may be swept.
    async fn compact(&mut self, history: &HistoryName) -> Result<Revision, Failed> {
        let Self { writer, args, output } = self;
        let revision = writer.revision(history).await.map_err(|error| failed(&error))?;
        if args.no_compact || args.dry_run {
            return Ok(revision);
        }
        let is_there = writer
            .compact(history)
            .await
            .map_err(|error| Failed::new(Exit::Unavailable, error.to_string()))?;
        output.answer(
            || json!({ "history": history.as_str(), "compacted": is_there }),
            || {
                let said = if is_there { "has" } else { "has not got" };
                format!("{history} {said} a snapshot of its newest version")
            },
        )?;
        Ok(revision)
    }

    async fn sweep(&mut self, history: &HistoryName, below: Revision) -> Result<(), Failed> {
        let Self { writer, args, output } = self;
        if args.no_sweep {
            return Ok(());
        }
        let options = SweepOptions {
            is_dry_run: args.dry_run,
            is_full: args.full,
            deletes_max: args.deletes_max,
            below: Some(below),
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
        say(&report, history, args, output)
    }
}

fn reason(judgement: Judgement) -> &'static str {
    match judgement {
        Judgement::Unreached => "no head names it, and none can any more",
        Judgement::Released => "retention let it go",
        Judgement::Reached | Judgement::Young => "it stays",
    }
}

fn say(
    report: &SweepReport,
    history: &HistoryName,
    args: &MaintainArgs,
    output: &mut Output,
) -> Result<(), Failed> {
    output.answer(
        || {
            json!({
                "history": history.as_str(),
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
                "{history}: {verb} {} of {} objects, {} bytes, below revision {}{rest}",
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
