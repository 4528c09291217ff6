//! `verify`: what is stored of a history, checked in the bucket itself.
//!
//! It asks no server: it is for when servers refuse to serve, and for knowing
//! before they do. Findings are printed as they are known to be final, one a
//! line with `--json`; the summary of each history comes last.
//!
//! # Invariants
//!
//! - Without `--repair` and `--yes` nothing in the bucket is changed.
//! - It exits with 0 only if everything that was asked for was looked at, and is
//!   sound.

mod cache;
mod options;
mod shown;

use std::sync::Arc;
use std::time::Duration;

use headwater_core::id::HistoryName;
use headwater_daemon::options::StoreOptions;
use headwater_daemon::signals::StopSignal;
use headwater_daemon::telemetry::with_causes;
use headwater_store::{Entropy, Store};
use headwater_verify::{
    Ended, PartState, Plan, PlanError, Progress, Reason, RepairError, Report, Severity, Verdict,
    Verifier, VerifyError, repair,
};
use indicatif::ProgressBar;
use tokio_util::sync::CancellationToken;

pub(crate) use self::options::VerifyArgs;
use crate::exit::Exit;
use crate::failed::Failed;
use crate::output::{Format, Output};
use crate::progress::bar;

/// How often the bar is brought up to date.
const REFRESH: Duration = Duration::from_millis(200);
/// A repair mends one kind of snapshot at a time: the newest, then older ones.
const REPAIRS_MAX: usize = 4;

/// What all histories of one run share.
struct Run<'a> {
    args: &'a VerifyArgs,
    store: Arc<dyn Store>,
    entropy: Entropy,
    progress: Progress,
    bar: ProgressBar,
    stop: CancellationToken,
}

pub(crate) async fn verify(
    args: &VerifyArgs,
    format: Format,
    output: &mut Output,
) -> Result<Exit, Failed> {
    if let Some(dir) = &args.cache_dir {
        return cache::verify(dir, args, output).await;
    }
    let stop = StopSignal::install()
        .map_err(|error| Failed::new(Exit::Unexpected, format!("cannot watch signals: {error}")))?;
    let entropy = Entropy::from_os();
    let options = StoreOptions { url: args.place.existing_url()?, keys: args.keys.clone() };
    let opened =
        options.open(entropy.clone()).map_err(|error| Failed::usage(with_causes(&error)))?;
    let run = Run {
        args,
        store: opened.store,
        entropy,
        progress: Progress::default(),
        bar: bar(None, "objects", format == Format::Json),
        stop: stop.token(),
    };
    let shows = show_progress(&run.progress, &run.bar);
    let exit = tokio::select! {
        exit = Box::pin(run.all(output)) => exit,
        never = shows => match never {},
    };
    run.bar.finish_and_clear();
    exit
}

/// Brings the bar up to date, for as long as it is asked to.
async fn show_progress(progress: &Progress, bar: &ProgressBar) -> std::convert::Infallible {
    loop {
        let reading = progress.read();
        bar.set_position(reading.objects);
        let mib = reading.bytes >> 20;
        bar.set_message(format!("{mib} MiB, {} listed, {}", reading.listed, reading.doing));
        tokio::time::sleep(REFRESH).await;
    }
}

impl Run<'_> {
    fn verifier(&self) -> Verifier {
        let options = self.args.options();
        Verifier::new(Arc::clone(&self.store), options, self.progress.clone(), self.stop.clone())
    }

    async fn all(&self, output: &mut Output) -> Result<Exit, Failed> {
        let verifier = self.verifier();
        let (names, is_all) = match &self.args.history {
            Some(name) => {
                let name = HistoryName::parse(name).map_err(|it| Failed::usage(it.to_string()))?;
                (vec![name], false)
            }
            None => (verifier.histories().await.map_err(|it| failed(&it.into()))?, true),
        };
        let mut worst = Exit::Done;
        let mut n_checked = 0_u64;
        for name in &names {
            let exit = match Box::pin(verifier.verify(name)).await {
                Ok(report) => {
                    n_checked += 1;
                    Box::pin(self.finish(name, report, output)).await?
                }
                // Names of deleted histories keep their heads.
                Err(VerifyError::Retired { .. }) if is_all => Exit::Done,
                Err(VerifyError::Ended(ended)) if is_all => {
                    let exit = exit_of_end(ended);
                    output.answer(
                        || shown::left_out(name, ended),
                        || format!("{name}: not checked: {ended}"),
                    )?;
                    exit
                }
                Err(error) => return Err(failed(&error)),
            };
            worst = worse(worst, exit);
        }
        if is_all {
            output.answer(
                || shown::all(n_checked, names.len(), worst),
                || format!("{n_checked} of {} histories checked", names.len()),
            )?;
        }
        Ok(worst)
    }

    /// Prints a report, and repairs where that was asked for.
    async fn finish(
        &self,
        name: &HistoryName,
        report: Report,
        output: &mut Output,
    ) -> Result<Exit, Failed> {
        shown::print(&report, self.args, output)?;
        let mut exit = self.exit_of(&report);
        if !self.args.repair {
            return Ok(exit);
        }
        let mut report = report;
        for _ in 0..REPAIRS_MAX {
            let plan = match Plan::of(&report) {
                Ok(plan) => plan,
                Err(PlanError::NoSnapshot) if report.verdict() == Verdict::Clean => break,
                Err(error) => {
                    output.answer(
                        || shown::no_repair(name, &error),
                        || format!("{name}: cannot repair: {error}"),
                    )?;
                    break;
                }
            };
            let what = plan.describe();
            if !self.args.yes {
                output.answer(
                    || shown::planned(name, &what),
                    || format!("{name}: would {what}; say --yes to do it"),
                )?;
                break;
            }
            let done = repair(Arc::clone(&self.store), &plan, &self.entropy).await;
            let done = done.map_err(|error| not_repaired(&error))?;
            output.answer(
                || shown::repaired(name, &what, &done),
                || format!("{name}: repaired: {what} (revision {})", done.revision),
            )?;
            output.flush()?;
            // With a budget of its own: a repair is only done once it is seen
            // to have mended what it was for.
            report = Box::pin(self.verifier().verify(name)).await.map_err(|it| failed(&it))?;
            shown::print(&report, self.args, output)?;
            exit = self.exit_of(&report);
        }
        Ok(exit)
    }

    fn exit_of(&self, report: &Report) -> Exit {
        let gaps = report.parts.values().filter_map(PartState::reason);
        let is_stopped = gaps.clone().any(|it| *it == Reason::Ended(Ended::Stopped));
        match report.verdict() {
            Verdict::Damaged => Exit::BadData,
            Verdict::Unchecked => Exit::Unavailable,
            Verdict::Incomplete if is_stopped => Exit::Interrupted,
            Verdict::Incomplete => Exit::Incomplete,
            Verdict::Clean if self.args.strict && 0 < report.count(Severity::Warning) => {
                Exit::Warned
            }
            Verdict::Clean => Exit::Done,
        }
    }
}

fn exit_of_end(ended: Ended) -> Exit {
    match ended {
        Ended::Objects | Ended::Bytes | Ended::Time => Exit::Incomplete,
        Ended::Store => Exit::Unavailable,
        Ended::Stopped => Exit::Interrupted,
    }
}

fn not_repaired(error: &RepairError) -> Failed {
    let exit = match error {
        RepairError::Moved => Exit::Rejected,
        RepairError::InDoubt => Exit::InDoubt,
        RepairError::Chain(_) | RepairError::State(_) => Exit::BadData,
        RepairError::Store(_) | RepairError::Build(_) | RepairError::Put(_) => Exit::Unavailable,
    };
    Failed::new(exit, with_causes(error)).advise("run verify again: it says what there is now")
}

/// Of several histories the worst decides.
fn worse(a: Exit, b: Exit) -> Exit {
    let order = [
        Exit::BadData,
        Exit::Unavailable,
        Exit::Interrupted,
        Exit::Incomplete,
        Exit::Warned,
        Exit::Done,
    ];
    order.into_iter().find(|it| *it == a || *it == b).unwrap_or(a)
}

fn failed(error: &VerifyError) -> Failed {
    let exit = match error {
        VerifyError::Missing { .. } | VerifyError::Retired { .. } => Exit::NotFound,
        VerifyError::Store(_) => Exit::Unavailable,
        VerifyError::Ended(ended) => exit_of_end(*ended),
    };
    Failed::new(exit, with_causes(error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worst_of_several_histories_decides() {
        assert_eq!(worse(Exit::Done, Exit::Warned), Exit::Warned);
        assert_eq!(worse(Exit::Incomplete, Exit::Warned), Exit::Incomplete);
        assert_eq!(worse(Exit::BadData, Exit::Unavailable), Exit::BadData);
        assert_eq!(worse(Exit::Done, Exit::Done), Exit::Done);
    }
}
