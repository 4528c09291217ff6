//! The page: from a [`Status`] to HTML, and nothing else.
//!
//! # Invariants
//!
//! - Every text of a status goes through maud's escaping. There is no
//!   `PreEscaped` in here.
//! - No inline script and no inline style: the content security policy forbids
//!   both, so one would not work anyway.
//! - Everything is there without a script. The script fetches the page again,
//!   puts new parts in the place of old ones (`data-live`), and reads values off
//!   the charts.

mod chart;
mod histories;
mod sections;

#[cfg(test)]
mod html_test;

use maud::{DOCTYPE, Markup, html};

use self::chart::{Chart, Series, Unit};
use super::status::{Sample, Status};
use super::words::{age, count};

/// Where the page's files are.
#[derive(Clone, Debug)]
pub(super) struct Files {
    pub(super) style: String,
    pub(super) script: String,
    pub(super) icon: String,
}

/// The whole page.
pub(super) fn page(status: &Status, files: &Files) -> Markup {
    let title = format!("{} · Headwater", state_word(status));
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { (title) }
                link rel="icon" type="image/svg+xml" href=(files.icon);
                link rel="stylesheet" href=(files.style);
                script src=(files.script) defer {}
                noscript { meta http-equiv="refresh" content="10"; }
            }
            body {
                (header(status, files))
                p #stale role="status" hidden {}
                main {
                    (sections::checks(&status.readiness))
                    (sections::doubts(status))
                    section.charts aria-label="The last five minutes" { (charts(status)) }
                    (histories::section(status))
                    (sections::conflicts(status))
                    (sections::notices(status))
                    div.pair {
                        (sections::caches(status))
                        (sections::store(&status.store))
                    }
                }
                footer {
                    p {
                        "Read only. The same as JSON: " a href="status.json" { "status.json" }
                        " · probes: " a href="livez" { "livez" } " " a href="readyz?verbose" { "readyz" }
                    }
                    noscript { p { "Loaded again every ten seconds." } }
                }
            }
        }
    }
}

fn state_word(status: &Status) -> &'static str {
    match (status.readiness.is_draining, status.readiness.is_ready) {
        (true, _) => "Draining",
        (false, true) => "Ready",
        (false, false) => "Not ready",
    }
}

fn header(status: &Status, files: &Files) -> Markup {
    let class = match (status.readiness.is_draining, status.readiness.is_ready) {
        (true, _) => "warn",
        (false, true) => "ok",
        (false, false) => "bad",
    };
    let process = &status.process;
    html! {
        header #top data-live {
            div.brand {
                img src=(files.icon) alt="" width="28" height="28";
                h1 { "Headwater" }
                span.role { (process.name) }
                p class={ "state " (class) } { (state_word(status)) }
            }
            dl.facts {
                div { dt { "Version" } dd { (process.version) } }
                div { dt { "Up" } dd { (age(process.uptime_ms)) } }
                div.wide { dt { "Store" } dd.mono { (process.store) } }
                @if let Some(writer) = &status.writer {
                    div { dt { "Publisher" } dd.mono { (writer.publisher_id) } }
                }
            }
        }
    }
}

fn charts(status: &Status) -> Markup {
    let of = |take: fn(&Sample) -> Option<u64>| status.samples.iter().map(take).collect::<Vec<_>>();
    let series = |name, take| Series { name, values: of(take) };
    let commits = Chart {
        id: "commits",
        title: "Commits",
        about: "Heads published with operations in them, and the operations in them, each second.",
        unit: Unit::PerSecond,
        series: vec![
            series("operations", |it| Some(it.operations)),
            series("commits", |it| Some(it.commits)),
        ],
        empty: "No second has passed yet.",
    };
    let latency = Chart {
        id: "latency",
        title: "Commit latency",
        about: "From the arrival of an operation to its acceptance.",
        unit: Unit::Micros,
        series: vec![series("p50", |it| it.latency_p50_us), series("p99", |it| it.latency_p99_us)],
        empty: "Nothing was accepted in the last five minutes.",
    };
    let reads = Chart {
        id: "reads",
        title: "Reads",
        about: "Reads that got a view, and reads that got none, each second.",
        unit: Unit::PerSecond,
        series: vec![
            series("served", |it| Some(it.reads)),
            series("failed", |it| Some(it.reads_failed)),
        ],
        empty: "No second has passed yet.",
    };
    let lag = Chart {
        id: "lag",
        title: "Follow lag",
        about: "From a writer's notice of a head to the moment from which it is served.",
        unit: Unit::Micros,
        series: vec![series("p50", |it| it.lag_p50_us), series("longest", |it| it.lag_max_us)],
        empty: "No notice of a new head came in the last five minutes.",
    };
    let store = Chart {
        id: "store-calls",
        title: "Store calls",
        about: "Calls to the object store, and those of them that failed, each second.",
        unit: Unit::PerSecond,
        series: vec![
            series("calls", |it| Some(it.store_calls)),
            series("failed", |it| Some(it.store_failures)),
        ],
        empty: "No second has passed yet.",
    };
    let is_both = status.writer.is_some() && status.replica.is_some();
    html! {
        @if status.writer.is_some() { (commits.markup()) (latency.markup()) }
        @if status.replica.is_some() { (reads.markup()) (lag.markup()) }
        @if !is_both { (store.markup()) }
    }
}

/// A name and a number, for lists of them.
fn fact(name: &str, value: impl AsRef<str>) -> Markup {
    html! { div { dt { (name) } dd { (value.as_ref()) } } }
}

/// A name and a count.
fn counted(name: &str, value: u64) -> Markup {
    fact(name, count(value))
}

/// How much of a limit is taken, as a bar. `from` is where it begins to matter,
/// in percent.
fn bar(part: u64, whole: u64, from: u64) -> Markup {
    let percent = (u128::from(part) * 100).checked_div(u128::from(whole)).unwrap_or(0).min(100);
    let is_much = u128::from(from) <= percent;
    html! {
        svg.bar.much[is_much] viewBox="0 0 100 4" preserveAspectRatio="none" aria-hidden="true" {
            rect.whole width="100" height="4" {}
            rect.part width=(percent) height="4" {}
        }
    }
}
