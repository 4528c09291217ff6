//! The open histories: a line for each, with everything else below it.

use std::collections::BTreeMap;

use maud::{Markup, html};
use url::form_urlencoded;

use super::{bar, counted, fact};
use crate::overview::{HeadOverview, ReplicaHistory, WriterHistory, WriterOverview};
use crate::page::status::{Status, WindowStatus};
use crate::page::words::{age, bytes, count, many};

/// From which part of its hard limit on a head is shown as large, in percent.
/// Maintenance begins at a sixteenth of it by default; four times that is more
/// than a busy moment.
const HEAD_LARGE_PERCENT: u64 = 25;

/// A history as this process has it.
#[derive(Clone, Copy, Default)]
struct Line<'a> {
    in_writer: Option<&'a WriterHistory>,
    in_replica: Option<&'a ReplicaHistory>,
}

impl<'a> Line<'a> {
    /// The newer one of both.
    fn head(&self) -> Option<&'a HeadOverview> {
        let of_writer = self.in_writer.and_then(|it| it.head.as_ref());
        let of_replica = self.in_replica.and_then(|it| it.head.as_ref());
        [of_writer, of_replica].into_iter().flatten().max_by_key(|it| it.revision)
    }
}

pub(super) fn section(status: &Status) -> Markup {
    let mut lines: BTreeMap<&str, Line<'_>> = BTreeMap::new();
    for it in status.writer.iter().flat_map(|it| &it.histories) {
        lines.entry(&it.name).or_default().in_writer = Some(it);
    }
    for it in status.replica.iter().flat_map(|it| &it.histories) {
        lines.entry(&it.name).or_default().in_replica = Some(it);
    }
    html! {
        section.histories aria-labelledby="histories-title" {
            div.heading {
                h2 #histories-title { "Histories" }
                (open(status))
                (find(&status.window))
            }
            div #histories data-live {
                @if lines.is_empty() { (nothing(&status.window)) } @else {
                    div.row.titles aria-hidden="true" {
                        span { "Name" } span.number { "Version" } span.number { "Revision" }
                        span.number { "Tail" } span.number { "Head" } span.number { "Waiting" }
                        span { "Proven" }
                    }
                    @for (name, line) in &lines { (history(name, *line, status.writer.as_ref())) }
                }
                (pages(&status.window))
            }
        }
    }
}

fn open(status: &Status) -> Markup {
    let of = |what: &str, open: u64, max: u64| {
        html! { span { (count(open)) " of " (count(max)) " open in the " (what) } }
    };
    html! {
        p #histories-open.note data-live {
            @if let Some(it) = &status.writer { (of("writer", it.histories_open, it.histories_max)) }
            @if let Some(it) = &status.replica { (of("replica", it.histories_open, it.histories_max)) }
        }
    }
}

fn find(window: &WindowStatus) -> Markup {
    html! {
        form.find method="get" action="./" role="search" {
            label for="prefix" { "Name begins with" }
            input #prefix name="prefix" type="search" value=(window.prefix) maxlength="256"
                autocomplete="off" autocapitalize="none" spellcheck="false" placeholder="all";
        }
    }
}

fn nothing(window: &WindowStatus) -> Markup {
    html! {
        p.nothing {
            @if window.prefix.is_empty() && window.after.is_empty() {
                "No history is open. The first request about one opens it."
            } @else {
                "No open history fits. " a href="./" { "Show all" }
            }
        }
    }
}

fn pages(window: &WindowStatus) -> Markup {
    let link = |after: &str| {
        let mut query = form_urlencoded::Serializer::new(String::new());
        if !window.prefix.is_empty() {
            query.append_pair("prefix", &window.prefix);
        }
        if !after.is_empty() {
            query.append_pair("after", after);
        }
        query.append_pair("limit", &window.limit.to_string());
        format!("./?{}", query.finish())
    };
    html! {
        @if window.next.is_some() || !window.after.is_empty() {
            nav.pages aria-label="Pages of histories" {
                @if !window.after.is_empty() { a href=(link("")) rel="prev" { "First page" } }
                @if let Some(next) = &window.next { a href=(link(next)) rel="next" { "Next page" } }
            }
        }
    }
}

fn history(name: &str, line: Line<'_>, writer: Option<&WriterOverview>) -> Markup {
    let head = line.head();
    html! {
        details.history data-key={ "history " (name) } {
            summary.row {
                span.name {
                    b.mono { (name) }
                    @if let Some(head) = head { (marks(head)) }
                }
                @if let Some(head) = head {
                    span.number data-label="Version" { (count(head.state_version)) }
                    span.number data-label="Revision" { (count(head.revision)) }
                    span.number data-label="Tail" {
                        (count(head.tail_versions)) " " small { (bytes(head.tail_bytes)) }
                    }
                    span.number data-label="Head" {
                        (bytes(head.size_bytes))
                        @if let Some(it) = writer {
                            (bar(head.size_bytes, it.head_bytes_hard, HEAD_LARGE_PERCENT))
                        }
                    }
                } @else {
                    span.absent data-label="Head" { "no head at hand" }
                }
                span.number data-label="Waiting" { (waiting(line.in_writer)) }
                span.followed data-label="Proven" { (followed(line.in_replica)) }
            }
            @if let Some(head) = head { (all(head, line, writer)) }
        }
    }
}

fn marks(head: &HeadOverview) -> Markup {
    html! {
        @if head.lifecycle != "live" { span.mark.warn { (head.lifecycle) } }
        @if head.is_exclusive { span.mark { "exclusive, epoch " (count(head.writer_epoch)) } }
        @if let Some(base) = &head.base { span.mark { "fork of " (base) } }
    }
}

fn waiting(history: Option<&WriterHistory>) -> Markup {
    html! {
        @match history {
            Some(it) => {
                (count(it.queue_operations))
                @if 0 < it.queue_operations {
                    (bar(it.queue_operations, it.queue_operations_max, 50))
                }
            }
            None => span.absent { "–" }
        }
    }
}

fn followed(history: Option<&ReplicaHistory>) -> Markup {
    let Some(it) = history else { return html! { span.absent { "–" } } };
    html! {
        @if let Some(trouble) = &it.trouble {
            span.mark.bad title=(trouble) { "no proof" }
        }
        @if 0 < it.behind_revisions {
            span.mark.warn title={ (many(it.behind_revisions, "revision", "revisions")) " behind" } {
                (count(it.behind_revisions)) " behind"
            }
        }
        @match it.proof_age_ms {
            Some(ms) => span { (age(ms)) " ago" }
            None => span.absent { "being opened" }
        }
    }
}

fn all(head: &HeadOverview, line: Line<'_>, writer: Option<&WriterOverview>) -> Markup {
    html! {
        div.all {
            (group("Head", &html! {
                (fact("History id", &head.history_id))
                (fact("Made by", &head.publisher))
                (counted("Operations accepted", head.operation_count))
                (fact("Size", bytes(head.size_bytes)))
                @if let Some(it) = writer {
                    (fact("Soft limit", bytes(it.head_bytes_soft)))
                    (fact("Hard limit", bytes(it.head_bytes_hard)))
                }
            }))
            (group("State", &html! {
                (counted("Snapshot at version", head.snapshot_version))
                (fact("Tail", format!("{}, {}", many(head.tail_versions, "version", "versions"), bytes(head.tail_bytes))))
                (counted("Segments", head.tail_segments))
                (fact("Changes", format!("{}, {} in the head", count(head.tail_changes), count(head.tail_changes_inline))))
                @if let Some(it) = line.in_replica {
                    (fact("Tail in memory", bytes(it.tail_memory_bytes)))
                    (counted("Watches", it.watchers))
                }
            }))
            (group("Receipts", &html! {
                (counted("Complete from version", head.receipt_coverage_from))
                @if let Some(it) = line.in_writer { (counted("At hand", it.receipts)) }
                (fact("Pages", format!("{}, {}", count(head.receipt_pages), bytes(head.receipt_pages_bytes))))
            }))
            (group("Space", &html! {
                (counted("Sweep boundary, revision", head.sweep_from))
                (counted("Swept to revision", head.swept_to))
                (fact("Keeps", format!("{} and {}", many(head.retention_versions, "version", "versions"), age(head.retention_age_ms))))
                (counted("Readable from version", head.retained_from))
                (fact("Archive", head.archive_bytes.map_or_else(|| "none".to_owned(), bytes)))
            }))
            @if !head.pins.is_empty() { (group("Pins", &pins(head))) }
            @if let Some(trouble) = line.in_replica.and_then(|it| it.trouble.as_ref()) {
                p.trouble { b { "No proof of freshness: " } (trouble) }
            }
        }
    }
}

fn pins(head: &HeadOverview) -> Markup {
    html! {
        @for pin in &head.pins {
            div {
                dt.mono { (pin.name) }
                dd {
                    "version " (count(pin.version))
                    @if let Some(child) = &pin.child { ", for " (child) }
                }
            }
        }
    }
}

fn group(title: &str, facts: &Markup) -> Markup {
    html! { div.group { h3 { (title) } dl { (facts) } } }
}
