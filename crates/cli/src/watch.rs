//! `watch`: what changes, as JSON lines, until it is interrupted.
//!
//! The lines are for programs, with or without `--json`, and each is written
//! out at once.

use std::time::Duration;

use clap::Args;
use headwater_client::{
    Client, Entry, KeyRange, ReadError, SnapshotMode, WatchError, WatchEvent, WatchOptions,
    WatchedKind, WatchedMutation,
};
use serde_json::{Map, Value, json};

use crate::args::Source;
use crate::exit::Exit;
use crate::failed::Failed;
use crate::field;
use crate::output::Output;

/// `watch`
#[derive(Clone, Debug, Args)]
pub struct WatchArgs {
    /// Which history.
    #[command(flatten)]
    pub source: Source,
    /// The first version to tell. Default: what comes from now on.
    #[arg(long, value_name = "VERSION")]
    pub from: Option<u64>,
    /// Only keys that begin with this; may be given several times, 64 in all.
    #[arg(long, value_name = "KEY")]
    pub prefix: Vec<String>,
    /// From this key on, inclusive.
    #[arg(long, value_name = "KEY")]
    pub start: Option<String>,
    /// Up to this key, exclusive.
    #[arg(long, value_name = "KEY")]
    pub end: Option<String>,
    /// Tell also what was there before each mutation.
    #[arg(long)]
    pub prev: bool,
    /// The state first; with --from, the state where the versions from there on
    /// are gone. Otherwise that ends the watch.
    #[arg(long)]
    pub snapshot: bool,
    /// When nothing was told for so long, tell how far the watch is, in
    /// milliseconds: 100 to 3600000.
    #[arg(long, value_name = "MS", value_parser = clap::value_parser!(u64).range(100..=3_600_000))]
    pub progress_ms: Option<u64>,
    /// End after this many versions.
    #[arg(long, value_name = "COUNT")]
    pub limit: Option<u64>,
}

impl WatchArgs {
    fn options(&self) -> WatchOptions {
        let mut ranges: Vec<KeyRange> =
            self.prefix.iter().map(|it| KeyRange::prefix(it.clone())).collect();
        if self.start.is_some() || self.end.is_some() {
            let bound = |it: &Option<String>| it.clone().unwrap_or_default();
            ranges.push(KeyRange::new(bound(&self.start), bound(&self.end)));
        }
        let snapshot = match (self.snapshot, self.from) {
            (false, _) => SnapshotMode::Never,
            (true, None) => SnapshotMode::First,
            (true, Some(_)) => SnapshotMode::IfRetired,
        };
        let defaults = WatchOptions::default();
        WatchOptions {
            // Version 0 is the empty beginning: nothing led to it.
            after: self.from.map(|it| it.saturating_sub(1)),
            ranges,
            previous_values: self.prev,
            progress_interval: self
                .progress_ms
                .map_or(defaults.progress_interval, Duration::from_millis),
            snapshot,
            ..defaults
        }
    }
}

pub(crate) async fn watch(
    client: &Client,
    args: &WatchArgs,
    output: &mut Output,
) -> Result<Exit, Failed> {
    let mut watch = args.source.session(client).watch(args.options());
    let mut left = args.limit.unwrap_or(u64::MAX);
    while left > 0 {
        let event = match watch.next().await {
            Ok(event) => event,
            Err(error) => return Err(failed(error, watch.position().map(|it| it.state_version))),
        };
        left -= u64::from(matches!(event, WatchEvent::Version { .. }));
        let position = watch.position().map_or(0, |it| it.state_version);
        for line in lines(&event, position, args) {
            output.line(&line.to_string())?;
        }
        output.flush()?;
    }
    Ok(Exit::Done)
}

fn lines(event: &WatchEvent, position: u64, args: &WatchArgs) -> Vec<Value> {
    match event {
        WatchEvent::Version { version, mutations } => {
            let mutations: Vec<_> =
                mutations.iter().map(|it| mutation_json(it, args.prev)).collect();
            vec![json!({ "version": version, "mutations": mutations })]
        }
        WatchEvent::Progress { .. } if args.progress_ms.is_none() => Vec::new(),
        WatchEvent::Progress { newest_version, proof_age } => {
            let proof_age_ms = u64::try_from(proof_age.as_millis()).unwrap_or(u64::MAX);
            vec![json!({ "progress": {
                "version": position,
                "newestVersion": newest_version,
                "proofAgeMs": proof_age_ms,
            } })]
        }
        WatchEvent::SnapshotBegin { version } => {
            vec![json!({ "snapshotBegin": { "version": version } })]
        }
        WatchEvent::SnapshotEntries(entries) => {
            entries.iter().map(|it| json!({ "entry": entry_json(it) })).collect()
        }
        WatchEvent::SnapshotEnd { version } => {
            vec![json!({ "snapshotEnd": { "version": version } })]
        }
    }
}

fn entry_json(entry: &Entry) -> Map<String, Value> {
    let mut object = Map::new();
    field::put(&mut object, "key", &entry.key);
    field::put(&mut object, "value", &entry.value);
    object.insert("version".to_owned(), entry.version.into());
    object
}

fn mutation_json(mutation: &WatchedMutation, with_previous: bool) -> Value {
    let mut what = Map::new();
    let name = match &mutation.kind {
        WatchedKind::Put(entry) => {
            field::put(&mut what, "key", &entry.key);
            field::put(&mut what, "value", &entry.value);
            "put"
        }
        WatchedKind::Delete(key) => {
            field::put(&mut what, "key", key);
            "delete"
        }
        WatchedKind::DeleteRange(range) => {
            field::put(&mut what, "start", &range.start);
            if !range.end.is_empty() {
                field::put(&mut what, "end", &range.end);
            }
            "deleteRange"
        }
    };
    let mut object = Map::new();
    object.insert("operationId".to_owned(), mutation.operation_id.as_str().into());
    object.insert(name.to_owned(), what.into());
    if with_previous {
        let previous: Vec<_> = mutation.previous.iter().map(entry_json).collect();
        object.insert("previous".to_owned(), previous.into());
    }
    object.into()
}

/// The error, with where another watch would go on.
fn failed(error: WatchError, position: Option<u64>) -> Failed {
    let WatchError::Read(error) = error else {
        return Failed::new(Exit::Unexpected, error.to_string());
    };
    let (is_retired, is_missing) = (
        matches!(error, ReadError::VersionRetired(_)),
        matches!(error, ReadError::HistoryMissing(_)),
    );
    let failed = Failed::from(error);
    match position {
        _ if is_retired => failed.advise("watch with --snapshot, or from the oldest version on"),
        Some(version) if !is_missing => {
            failed.advise(format!("go on with --from {}", version.saturating_add(1)))
        }
        Some(_) | None => failed,
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::args::{Cli, Command};

    fn options(line: &[&str]) -> WatchOptions {
        let cli = Cli::parse_from([&["headwater", "watch", "h"], line].concat());
        let Command::Watch(args) = cli.command else { panic!() };
        args.options()
    }

    #[test]
    fn the_first_version_to_tell_is_the_one_after_what_is_known() {
        let after = |line: &[&str]| options(line).after;
        assert_eq!(after(&[]), None);
        assert_eq!(after(&["--from", "0"]), Some(0));
        assert_eq!(after(&["--from", "1"]), Some(0));
        assert_eq!(after(&["--from", "7"]), Some(6));
    }

    #[test]
    fn the_state_comes_first_unless_there_is_a_place_to_go_on_from() {
        let snapshot = |line: &[&str]| options(line).snapshot;
        assert_eq!(snapshot(&[]), SnapshotMode::Never);
        assert_eq!(snapshot(&["--snapshot"]), SnapshotMode::First);
        assert_eq!(snapshot(&["--snapshot", "--from", "3"]), SnapshotMode::IfRetired);
    }

    #[test]
    fn prefixes_and_bounds_are_ranges() {
        let ranges = options(&["--prefix", "a", "--prefix", "b/", "--start", "x"]).ranges;
        let expected = [KeyRange::prefix("a"), KeyRange::prefix("b/"), KeyRange::starting_at("x")];
        assert_eq!(ranges, expected);
        assert_eq!(options(&[]).ranges, []);
    }
}
