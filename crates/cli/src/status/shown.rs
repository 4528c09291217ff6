//! A status as text.

use std::fmt::Write as _;

use headwater_daemon::overview::{
    CacheOverview, Incident, IncidentKind, ReplicaHistory, ReplicaOverview, WriterHistory,
    WriterOverview,
};
use headwater_daemon::page::words::{age, bytes, count, many, share, took};
use headwater_daemon::page::{CheckStatus, Sample, Status};

use crate::shown::Shown;

/// Incidents of each kind that are printed; JSON has all.
const INCIDENTS_MAX: usize = 8;

/// The whole status, without an end of line.
pub(super) fn text(status: &Status) -> String {
    let mut lines = Vec::new();
    let process = &status.process;
    let state = match (status.readiness.is_draining, status.readiness.is_ready) {
        (true, _) => "draining",
        (false, true) => "ready",
        (false, false) => "not ready",
    };
    lines.push(format!(
        "headwater {} {}, up {}: {state}",
        plain(&process.name),
        plain(&process.version),
        age(process.uptime_ms)
    ));
    lines.push(format!("checks    {}", checks(&status.readiness.checks)));
    let last = status.samples.last().copied().unwrap_or_default();
    if let Some(writer) = &status.writer {
        lines.extend(of_writer(writer, &last));
    }
    if let Some(replica) = &status.replica {
        lines.extend(of_replica(replica, &last));
    }
    lines.extend(of_store(status, &last));
    lines.extend(histories(status));
    if let Some(writer) = &status.writer {
        lines.extend(subscribers(writer));
        lines.extend(incidents("WITHOUT AN OUTCOME", &writer.doubts));
        lines.extend(incidents("CONFLICTS", &writer.conflicts));
    }
    lines.join("\n")
}

fn checks(checks: &[CheckStatus]) -> String {
    let shown: Vec<_> = checks
        .iter()
        .map(|it| match &it.trouble {
            None => format!("{} ok", plain(&it.name)),
            Some(trouble) if it.is_needed => {
                format!("{} NOT READY: {}", plain(&it.name), plain(trouble))
            }
            Some(trouble) => format!("{} not needed: {}", plain(&it.name), plain(trouble)),
        })
        .collect();
    shown.join(", ")
}

fn time(micros: Option<u64>) -> String {
    micros.map_or_else(|| "–".to_owned(), took)
}

fn of_writer(writer: &WriterOverview, last: &Sample) -> Vec<String> {
    vec![
        format!(
            "writer    {}: {} of {} histories open",
            plain(&writer.publisher_id),
            count(writer.histories_open),
            count(writer.histories_max)
        ),
        format!(
            "          {} commits/s, {} operations/s, p50 {}, p99 {}",
            count(last.commits),
            count(last.operations),
            time(last.latency_p50_us),
            time(last.latency_p99_us)
        ),
        format!(
            "          {} accepted, {} repeated, {} rejected, {} not applied, {} in doubt, {} unknown",
            count(writer.operations_accepted),
            count(writer.operations_repeated),
            count(writer.operations_rejected),
            count(writer.operations_failed),
            count(writer.operations_in_doubt),
            count(writer.operations_unknown)
        ),
        format!("          chunks in memory: {}", cache(&writer.chunk_cache)),
    ]
}

fn of_replica(replica: &ReplicaOverview, last: &Sample) -> Vec<String> {
    let disk = match &replica.disk_cache {
        None => "none".to_owned(),
        Some(it) if it.is_off => "its directory cannot be used".to_owned(),
        Some(it) => {
            let (hits, misses) = (it.hits, it.misses);
            let (size_bytes, size_bytes_max) = (it.size_bytes, it.size_bytes_max);
            cache(&CacheOverview { size_bytes, size_bytes_max, hits, misses })
        }
    };
    let mut lines = vec![
        format!(
            "replica   {} of {} histories open, {}",
            count(replica.histories_open),
            count(replica.histories_max),
            many(replica.watchers_open, "watch", "watches")
        ),
        format!(
            "          {} reads/s, {} failed/s, lag p50 {}, longest {}",
            count(last.reads),
            count(last.reads_failed),
            time(last.lag_p50_us),
            time(last.lag_max_us)
        ),
        format!("          chunks in memory: {}; on disk: {disk}", cache(&replica.chunk_cache)),
    ];
    for it in &replica.writers {
        let state = if it.is_listening { "listening" } else { "NOT CONNECTED" };
        let last =
            it.notice_age_ms.map_or_else(String::new, |ms| format!(", last {} ago", age(ms)));
        lines.push(format!(
            "          writer {}: {state}, {}{last}",
            plain(&it.address),
            many(it.notices, "notice", "notices")
        ));
    }
    lines
}

fn cache(cache: &CacheOverview) -> String {
    let asked = cache.hits.saturating_add(cache.misses);
    let mut text = format!("{} of {}", bytes(cache.size_bytes), bytes(cache.size_bytes_max));
    if 0 < asked {
        write!(text, ", {} found", share(cache.hits, asked)).ok();
    }
    text
}

fn of_store(status: &Status, last: &Sample) -> Vec<String> {
    let store = &status.store;
    vec![
        format!("store     {}", plain(&status.process.store)),
        format!(
            "          {} calls/s, {} failed/s; {} PUT and LIST, {} GET, {} DELETE, {} failed",
            count(last.store_calls),
            count(last.store_failures),
            count(store.puts),
            count(store.gets),
            count(store.deletes),
            count(store.failures)
        ),
        format!("          {} sent, {} received", bytes(store.bytes_up), bytes(store.bytes_down)),
    ]
}

fn histories(status: &Status) -> Vec<String> {
    let of_writer = status.writer.iter().flat_map(|it| &it.histories).map(|it| &*it.name);
    let of_replica = status.replica.iter().flat_map(|it| &it.histories).map(|it| &*it.name);
    let mut names: Vec<&str> = of_writer.chain(of_replica).collect();
    names.sort_unstable();
    names.dedup();
    if names.is_empty() {
        return Vec::new();
    }
    let titles = ["HISTORY", "VERSION", "REVISION", "TAIL", "HEAD", "WAITING", "PROVEN"];
    let mut rows = vec![titles.map(str::to_owned).to_vec()];
    rows.extend(names.into_iter().map(|name| {
        let in_writer = status.writer.iter().flat_map(|it| &it.histories);
        let in_replica = status.replica.iter().flat_map(|it| &it.histories);
        let mut in_writer = in_writer.filter(|it| it.name == name);
        let mut in_replica = in_replica.filter(|it| it.name == name);
        history(name, in_writer.next(), in_replica.next())
    }));
    let mut lines = vec![String::new()];
    lines.extend(table(&rows, &[1, 2, 4, 5]));
    if let Some(next) = &status.window.next {
        lines.push(format!("and more: --after {}", plain(next)));
    }
    lines
}

fn history(
    name: &str,
    in_writer: Option<&WriterHistory>,
    in_replica: Option<&ReplicaHistory>,
) -> Vec<String> {
    let of_writer = in_writer.and_then(|it| it.head.as_ref());
    let of_replica = in_replica.and_then(|it| it.head.as_ref());
    let head = [of_writer, of_replica].into_iter().flatten().max_by_key(|it| it.revision);
    let none = || "–".to_owned();
    let figures = match head {
        Some(it) => [
            count(it.state_version),
            count(it.revision),
            format!("{}, {}", count(it.tail_versions), bytes(it.tail_bytes)),
            bytes(it.size_bytes),
        ],
        None => [none(), none(), none(), none()],
    };
    let proven = match in_replica {
        None => none(),
        Some(it) => {
            let mut text = it
                .proof_age_ms
                .map_or_else(|| "being opened".to_owned(), |ms| format!("{} ago", age(ms)));
            if 0 < it.behind_revisions {
                write!(text, ", {} behind", count(it.behind_revisions)).ok();
            }
            if let Some(trouble) = &it.trouble {
                write!(text, ", NO PROOF: {}", plain(trouble)).ok();
            }
            text
        }
    };
    let waiting = in_writer.map_or_else(none, |it| count(it.queue_operations));
    [vec![plain(name)], figures.to_vec(), vec![waiting, proven]].concat()
}

fn subscribers(writer: &WriterOverview) -> Vec<String> {
    if writer.subscribers.is_empty() {
        return Vec::new();
    }
    let mut rows = vec![["REPLICA", "FOLLOWS", "NOTICES", "SEEN"].map(str::to_owned).to_vec()];
    rows.extend(writer.subscribers.iter().map(|it| {
        vec![
            it.peer.as_deref().map_or_else(|| "unknown".to_owned(), plain),
            many(it.histories, "history", "histories"),
            count(it.notices),
            format!("{} ago", age(it.seen_ms)),
        ]
    }));
    let mut lines = vec![String::new()];
    lines.extend(table(&rows, &[2]));
    lines
}

fn incidents(title: &str, incidents: &[Incident]) -> Vec<String> {
    if incidents.is_empty() {
        return Vec::new();
    }
    let word = |kind| match kind {
        IncidentKind::Rejected => "rejected",
        IncidentKind::Fenced => "fenced",
        IncidentKind::Unknown => "unknown",
        IncidentKind::InDoubt => "in doubt",
        IncidentKind::NotApplied => "not applied",
    };
    let rows: Vec<_> = incidents
        .iter()
        .take(INCIDENTS_MAX)
        .map(|it| {
            vec![
                format!("{} ago", age(it.age_ms)),
                word(it.kind).to_owned(),
                plain(&it.operation_id),
                plain(&it.history),
                plain(&it.detail),
            ]
        })
        .collect();
    let mut lines = vec![String::new(), title.to_owned()];
    lines.extend(table(&rows, &[0]));
    lines
}

/// Columns two spaces apart; those in `to_the_right` are of numbers.
fn table(rows: &[Vec<String>], to_the_right: &[usize]) -> Vec<String> {
    let columns = rows.iter().map(Vec::len).max().unwrap_or_default();
    let wide = |at: usize| {
        rows.iter().filter_map(|row| row.get(at)).map(|it| it.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(wide).collect();
    let line = |row: &Vec<String>| {
        let cells = row.iter().zip(&widths).enumerate().map(|(at, (text, wide))| {
            if to_the_right.contains(&at) {
                format!("{text:>wide$}")
            } else {
                format!("{text:<wide$}")
            }
        });
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    rows.iter().map(line).collect()
}

/// Another process says it: nothing of it reaches the terminal as a command.
fn plain(text: &str) -> String {
    Shown(text.as_bytes()).to_string()
}

#[cfg(test)]
#[path = "shown_test.rs"]
mod tests;
