//! `doctor`: whether a bucket can be trusted, asked of the bucket itself.
//!
//! In here: the command, and what it prints. Not in here: the probes
//! ([`headwater_store::probe`]).
//!
//! # Invariant
//!
//! - What was written is deleted again, after a failure and a signal too.

mod policy;
mod shown;

use std::io::{IsTerminal as _, stderr};

use clap::Args;
use headwater_daemon::signals::StopSignal;
use headwater_daemon::telemetry::with_causes;
use headwater_store::Entropy;
use headwater_store::probe::{
    CheckId, Left, Probe, ProbeConfig, Report, Severity, Verdict, url_with_unquoted_tags,
    url_without_parts,
};

use crate::exit::Exit;
use crate::failed::Failed;
use crate::output::Output;

/// `doctor`
#[derive(Clone, Debug, Args)]
pub struct DoctorArgs {
    /// The store, as `serve --store` takes it: `s3://bucket/prefix`,
    /// `gs://bucket/prefix`, `az://container/prefix`, `file:///absolute/path`.
    #[arg(value_name = "URL", env = "HEADWATER_STORE")]
    pub url: String,
    /// Requests at once in a race.
    #[arg(
        long,
        value_name = "COUNT",
        default_value_t = 32,
        value_parser = clap::value_parser!(u16).range(2..=512)
    )]
    pub racers: u16,
    /// Rounds of each kind of race. A store that loses one write in a thousand
    /// is found by many.
    #[arg(
        long,
        value_name = "COUNT",
        default_value_t = 40,
        value_parser = clap::value_parser!(u16).range(1..=2000)
    )]
    pub rounds: u16,
}

/// What was found, and under which URL.
struct Examined {
    /// As given, or with the setting that the store needs.
    url: String,
    /// Whether the URL is another one than was given.
    is_changed: bool,
    prefix: String,
    report: Report,
    left: Left,
}

pub(crate) async fn doctor(args: &DoctorArgs, output: &mut Output) -> Result<Exit, Failed> {
    let stop = StopSignal::install()
        .map_err(|error| Failed::new(Exit::Unexpected, format!("cannot watch signals: {error}")))?;
    let Some(mut examined) = examine(&args.url, args, &stop).await? else {
        return Ok(Exit::Interrupted);
    };
    let refuses_own_tag = examined.report.with(Verdict::Broken).any(|it| it.id == CheckId::OwnTag);
    if refuses_own_tag && let Some(url) = url_with_unquoted_tags(&args.url) {
        let Some(again) = examine(&url, args, &stop).await? else {
            return Ok(Exit::Interrupted);
        };
        // Only where it helps: otherwise the store is wrong in another way.
        if again.report.with(Verdict::Holds).any(|it| it.id == CheckId::OwnTag) {
            examined = Examined { is_changed: true, ..again };
        }
    }
    if !large_objects_hold(&examined.report)
        && let Some(url) = url_without_parts(&examined.url)
        && examine_without_parts(&url, &mut examined, &stop).await?.is_none()
    {
        return Ok(Exit::Interrupted);
    }
    output.answer(|| shown::json(&examined), || shown::text(&examined))?;
    Ok(match examined.report.severity() {
        Severity::Fit => Exit::Done,
        Severity::Warned => Exit::Warned,
        Severity::Unanswered => Exit::Unavailable,
        Severity::Unfit => Exit::Rejected,
    })
}

/// Whether nothing is to be done about them: they were found good, or were not
/// asked.
fn large_objects_hold(report: &Report) -> bool {
    let warns = report.with(Verdict::Warns).chain(report.with(Verdict::Open));
    !warns.into_iter().any(|it| it.id == CheckId::LargeObjects)
}

/// Asks about large objects again where they go by one request, and takes the
/// setting over where it helps. `None` where a signal came.
async fn examine_without_parts(
    url: &str,
    examined: &mut Examined,
    stop: &StopSignal,
) -> Result<Option<()>, Failed> {
    let probe = open(url, ProbeConfig::default())?;
    let token = stop.token();
    let check = tokio::select! {
        check = probe.run_large() => Some(check),
        () = token.cancelled() => None,
    };
    let left = probe.clean().await;
    if 0 < left.n_left {
        eprintln!("{}", shown::left(probe.prefix(), &left));
    }
    let Some(mut check) = check else { return Ok(None) };
    if check.verdict == Verdict::Holds {
        "by one request: the store's uploads in parts do not keep it".clone_into(&mut check.detail);
        examined.report.replace(check);
        url.clone_into(&mut examined.url);
        examined.is_changed = true;
    }
    Ok(Some(()))
}

fn open(url: &str, config: ProbeConfig) -> Result<Probe, Failed> {
    Probe::open(url, Entropy::from_os(), config).map_err(|error| Failed::usage(with_causes(&error)))
}

/// `None` where a signal came; what was written is deleted by then.
async fn examine(
    url: &str,
    args: &DoctorArgs,
    stop: &StopSignal,
) -> Result<Option<Examined>, Failed> {
    let config = ProbeConfig {
        n_racers: usize::from(args.racers),
        n_rounds: usize::from(args.rounds),
        ..ProbeConfig::default()
    };
    let probe = open(url, config)?;
    let is_watched = stderr().is_terminal();
    let progress = move |what: &'static str| {
        if is_watched {
            eprintln!("asking: {what}");
        }
    };
    let token = stop.token();
    let report = tokio::select! {
        report = probe.run(&progress) => Some(report),
        () = token.cancelled() => None,
    };
    progress("to be cleaned up");
    let left = probe.clean().await;
    if report.is_none() && 0 < left.n_left {
        eprintln!("{}", shown::left(probe.prefix(), &left));
    }
    let (url, prefix) = (url.to_owned(), probe.prefix().to_owned());
    Ok(report.map(|report| Examined { url, is_changed: false, prefix, report, left }))
}
