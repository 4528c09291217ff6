//! `export`: all keys and values of one version, as NDJSON in order of the keys.
//!
//! ```text
//! scan at one version -> lines -> FILE.headwater-export -> (rename) -> FILE
//!                          |
//!                          +-> FILE.headwater-export.json: version, last key, length
//! ```
//!
//! # Invariants
//!
//! - FILE appears whole, or stays what it was. It is a regular file or none;
//!   where it is a link, the file behind the link is what is replaced.
//! - Every line is of one version. An export that is taken up again goes on at
//!   the version that it began with; where no replica has that at hand any
//!   more, it begins again.
//! - What the checkpoint counts was synced before the checkpoint was.

mod checkpoint;
mod sink;
mod target;

use std::path::{Path, PathBuf};

use clap::Args;
use headwater_client::{Client, Consistency, KeyRange, ReadError, ScanOptions, Session, Stamp};
use headwater_daemon::signals::StopSignal;
use indicatif::ProgressBar;
use serde_json::json;

use self::checkpoint::Checkpoint;
use self::sink::Sink;
use crate::args::{Freshness, Source};
use crate::exit::Exit;
use crate::failed::Failed;
use crate::output::{Format, Output};
use crate::progress;
use crate::read::RangeArgs;

/// Entries of one page. A page also ends before 2 MiB.
const PAGE_SIZE: u32 = 10_000;

/// `export`
#[derive(Clone, Debug, Args)]
pub struct ExportArgs {
    /// Which history.
    #[command(flatten)]
    pub source: Source,
    /// Write here; FILE is replaced at the end, in one step. A link is followed;
    /// what is not a regular file is refused. Default: standard output.
    #[arg(long, short, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Go on where an export to FILE was interrupted, if its version is still at
    /// hand; else begin again.
    #[arg(long, requires = "output")]
    pub resume: bool,
    /// Which keys.
    #[command(flatten)]
    pub range: RangeArgs,
    /// How fresh.
    #[command(flatten)]
    pub freshness: Freshness,
}

/// What was exported.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Exported {
    stamp: Stamp,
    entries: u64,
    bytes: u64,
    resumed: bool,
}

/// Why lines were not written to the end.
enum CopyError {
    /// There is no first page: what was to be gone on with is gone.
    VersionGone(Failed),
    Failed(Failed),
}

impl From<Failed> for CopyError {
    fn from(failed: Failed) -> Self {
        Self::Failed(failed)
    }
}

impl From<CopyError> for Failed {
    fn from(error: CopyError) -> Self {
        match error {
            CopyError::VersionGone(failed) | CopyError::Failed(failed) => failed,
        }
    }
}

pub(crate) async fn export(
    client: &Client,
    args: &ExportArgs,
    format: Format,
    output: &mut Output,
) -> Result<Exit, Failed> {
    let stop = StopSignal::install()
        .map_err(|error| Failed::new(Exit::Unexpected, format!("cannot watch signals: {error}")))?;
    let target = args.output.as_deref().map(target::resolve).transpose()?;
    let bar = progress::bar(None, "entries", format == Format::Json);
    let copying = Box::pin(copy(client, args, target.as_deref(), &bar, output));
    let stopped = tokio::select! {
        exported = copying => Some(exported),
        () = stop.token().cancelled_owned() => None,
    };
    bar.finish_and_clear();
    let Some(exported) = stopped else {
        let failed = Failed::new(Exit::Interrupted, "the export was interrupted");
        return Err(match args.output {
            Some(_) => failed.advise("run it again with --resume to go on"),
            None => failed,
        });
    };
    let exported = exported?;
    let path = args.output.as_ref().map(|it| it.display().to_string());
    let json = json!({
        "history": args.source.history,
        "historyId": exported.stamp.history_id.as_str(),
        "stateVersion": exported.stamp.state_version,
        "entries": exported.entries,
        "bytes": exported.bytes,
        "output": path,
        "resumed": exported.resumed,
    });
    let text = format!(
        "exported {} at version {}: {} entries, {} bytes",
        args.source.history, exported.stamp.state_version, exported.entries, exported.bytes
    );
    match path {
        Some(_) => output.answer(|| json, || text)?,
        // Standard output holds the entries.
        None => match format {
            Format::Json => eprintln!("{json}"),
            Format::Text => eprintln!("{text}"),
        },
    }
    Ok(Exit::Done)
}

async fn copy(
    client: &Client,
    args: &ExportArgs,
    target: Option<&Path>,
    bar: &ProgressBar,
    output: &mut Output,
) -> Result<Exported, Failed> {
    let Some(path) = target else {
        return Ok(write_all(client, args, None, &mut Sink::stdout(output), bar).await?);
    };
    let range = args.range.range();
    if args.resume
        && let Some(checkpoint) = Checkpoint::load(path, &args.source.history, &range)?
    {
        bar.set_position(checkpoint.entries);
        let mut sink = Sink::resume(path, &checkpoint)?;
        match write_all(client, args, Some(&checkpoint), &mut sink, bar).await {
            Ok(exported) => return Ok(exported),
            Err(CopyError::VersionGone(_)) => bar.set_position(0),
            Err(CopyError::Failed(failed)) => return Err(failed),
        }
    }
    Ok(write_all(client, args, None, &mut Sink::file(path)?, bar).await?)
}

/// Writes from the beginning, or from behind a checkpoint, to the end.
async fn write_all(
    client: &Client,
    args: &ExportArgs,
    from: Option<&Checkpoint>,
    sink: &mut Sink<'_>,
    bar: &ProgressBar,
) -> Result<Exported, CopyError> {
    let range = args.range.range();
    let (session, rest, consistency) = match from {
        Some(it) => {
            let session = client.session_from(&*args.source.history, it.token());
            (session, it.rest(&range), Consistency::Exact(it.state_version))
        }
        None => (args.source.session(client), range.clone(), args.freshness.level()),
    };
    let options =
        ScanOptions { range: rest, consistency, page_size: PAGE_SIZE, ..ScanOptions::default() };
    let stamp = write_pages(&session, options, &range, sink, bar).await?;
    sink.complete()?;
    Ok(Exported { stamp, entries: sink.entries(), bytes: sink.bytes(), resumed: from.is_some() })
}

async fn write_pages(
    session: &Session,
    options: ScanOptions,
    range: &KeyRange,
    sink: &mut Sink<'_>,
    bar: &ProgressBar,
) -> Result<Stamp, CopyError> {
    let mut scan = session.scan(options);
    let mut stamp = None;
    loop {
        let page = match scan.next_page().await {
            Ok(Some(page)) => page,
            Ok(None) => break,
            Err(error) => return Err(lost(error, stamp.is_some())),
        };
        bar.inc(page.value.len() as u64);
        sink.write(&page.value)?;
        if let Some(last) = page.value.last() {
            let checkpoint = Checkpoint {
                history: session.history().to_owned(),
                history_id: page.stamp.history_id.clone(),
                state_version: page.stamp.state_version,
                range: range.clone(),
                entries: sink.entries(),
                bytes: sink.bytes(),
                last_key: last.key.clone(),
            };
            sink.checkpoint(&checkpoint)?;
        }
        stamp = Some(page.stamp);
    }
    stamp.ok_or_else(|| Failed::new(Exit::Unexpected, "a scan without a page").into())
}

/// A scan whose version is gone cannot go on; it can begin again.
fn lost(error: ReadError, has_begun: bool) -> CopyError {
    let is_gone = matches!(
        error,
        ReadError::VersionRetired(_) | ReadError::VersionAhead(_) | ReadError::HistoryMissing(_)
    );
    let failed = Failed::from(error);
    match (is_gone, has_begun) {
        (true, false) => CopyError::VersionGone(failed),
        (true, true) => failed.advise("run it again: it begins again, at a newer version").into(),
        (false, _) => failed.into(),
    }
}
