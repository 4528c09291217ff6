//! Everything besides charts and histories.

use std::fmt::Write as _;

use maud::{Markup, html};

use super::{bar, counted, fact};
use crate::health::DRAINING;
use crate::overview::{
    CacheOverview, DiskOverview, Incident, IncidentKind, NoticeSubscriber, WriterLink,
};
use crate::page::status::{CheckStatus, Readiness, Status, StoreStatus};
use crate::page::words::{age, bytes, count, many, share};

/// Incidents that are shown without being asked for.
const INCIDENTS_FIRST: usize = 8;

pub(super) fn checks(readiness: &Readiness) -> Markup {
    html! {
        ul.checks #checks data-live aria-label="Readiness" {
            @for it in &readiness.checks { (check(it)) }
        }
    }
}

fn check(check: &CheckStatus) -> Markup {
    let (class, mark) = match (&check.trouble, check.is_needed) {
        (None, _) => ("ok", "✓"),
        (Some(_), true) => ("bad", "✕"),
        (Some(_), false) => ("idle", "–"),
    };
    html! {
        li class=(class) {
            span.sign aria-hidden="true" { (mark) }
            b { (check.name) }
            @match &check.trouble {
                Some(trouble) => span.why { (trouble) }
                None if check.name == DRAINING => span.why.said { "no" },
                None => span.why.said { "ok" }
            }
            @if !check.is_needed { span.why.said { "not needed" } }
        }
    }
}

/// What an operator has to see stands first, where there is any.
pub(super) fn doubts(status: &Status) -> Markup {
    let doubts = status.writer.iter().flat_map(|it| &it.doubts).collect::<Vec<_>>();
    html! {
        section #doubts data-live {
            @if !doubts.is_empty() {
                h2 { "Without an outcome" }
                p.note { "The last operations that may have been applied, or that the store or this process failed." }
                (incidents("doubts", &doubts))
            }
        }
    }
}

pub(super) fn conflicts(status: &Status) -> Markup {
    let Some(writer) = &status.writer else { return html! {} };
    let conflicts = writer.conflicts.iter().collect::<Vec<_>>();
    html! {
        section #conflicts data-live {
            div.heading {
                h2 { "Outcomes" }
                p.note { "Since the process began, and the last conflicts." }
            }
            dl.figures {
                (counted("accepted", writer.operations_accepted))
                (counted("repeated", writer.operations_repeated))
                (counted("rejected", writer.operations_rejected))
                (counted("not applied", writer.operations_failed))
                (counted("in doubt", writer.operations_in_doubt))
                (counted("unknown", writer.operations_unknown))
            }
            @if conflicts.is_empty() { p.nothing { "No conflict so far." } } @else {
                (incidents("conflicts", &conflicts))
            }
        }
    }
}

fn incidents(key: &str, incidents: &[&Incident]) -> Markup {
    let (first, more) = incidents.split_at(incidents.len().min(INCIDENTS_FIRST));
    html! {
        (table_of(first))
        @if !more.is_empty() {
            details data-key=(key) {
                summary { (count(more.len() as u64)) " more" }
                (table_of(more))
            }
        }
    }
}

fn table_of(incidents: &[&Incident]) -> Markup {
    html! {
        div.scroll { table.incidents {
            thead { tr {
                th.number { "Ago" } th { "Outcome" } th { "Operation id" } th { "History" } th { "Why" }
            } }
            tbody { @for it in incidents { (incident(it)) } }
        } }
    }
}

fn incident(incident: &Incident) -> Markup {
    let (class, word) = match incident.kind {
        IncidentKind::Rejected => ("idle", "rejected"),
        IncidentKind::Fenced => ("warn", "fenced"),
        IncidentKind::Unknown => ("bad", "unknown"),
        IncidentKind::InDoubt => ("bad", "in doubt"),
        IncidentKind::NotApplied => ("warn", "not applied"),
    };
    html! {
        tr {
            td.number data-label="Ago" { (age(incident.age_ms)) }
            td data-label="Outcome" { span class={ "mark " (class) } { (word) } }
            td.mono data-label="Operation id" { (incident.operation_id) }
            td.mono data-label="History" { (incident.history) }
            td data-label="Why" { (incident.detail) }
        }
    }
}

/// Notices: who is told by this process, and who tells it.
pub(super) fn notices(status: &Status) -> Markup {
    let links = status.replica.iter().flat_map(|it| &it.writers).collect::<Vec<_>>();
    html! {
        section #notices data-live {
            @if let Some(writer) = &status.writer {
                div.heading {
                    h2 { "Replicas" }
                    p.note { "Whoever has asked this writer for notices of new heads." }
                }
                @if writer.subscribers.is_empty() {
                    p.nothing {
                        "No replica of another process listens. "
                        @if status.replica.is_some() { "The one in this process is told directly." }
                        @else { "Replicas that poll are not seen here." }
                    }
                } @else {
                    (subscribers(&writer.subscribers))
                    @let listed = writer.subscribers.len() as u64;
                    @if listed < writer.subscribers_open {
                        p.note { "and " (count(writer.subscribers_open - listed)) " more" }
                    }
                }
            }
            @if !links.is_empty() {
                div.heading {
                    h2 { "Writers" }
                    p.note { "Whoever is to tell this replica of new heads." }
                }
                (writers(&links))
            }
        }
    }
}

fn subscribers(subscribers: &[NoticeSubscriber]) -> Markup {
    html! {
        div.scroll { table {
            thead { tr {
                th { "Peer" } th { "Follows" } th.number { "Notices" } th.number { "Last seen" }
                th.number { "Connected" }
            } }
            tbody { @for it in subscribers {
                tr {
                    td.mono data-label="Peer" { (it.peer.as_deref().unwrap_or("unknown")) }
                    td data-label="Follows" { (follows(it)) }
                    td.number data-label="Notices" { (count(it.notices)) }
                    td.number data-label="Last seen" { (age(it.seen_ms)) " ago" }
                    td.number data-label="Connected" { (age(it.connected_ms)) }
                }
            } }
        } }
    }
}

fn follows(subscriber: &NoticeSubscriber) -> Markup {
    let named = subscriber.histories_first.len() as u64;
    html! {
        @if subscriber.histories == 0 { span.absent { "nothing yet" } }
        span {
            @for (n, name) in subscriber.histories_first.iter().enumerate() {
                @if 0 < n { ", " }
                span.mono { (name) }
            }
            @if named < subscriber.histories { " and " (count(subscriber.histories - named)) " more" }
        }
    }
}

fn writers(links: &[&WriterLink]) -> Markup {
    html! {
        div.scroll { table {
            thead { tr { th { "Address" } th { "State" } th.number { "Notices" } th.number { "Last notice" } } }
            tbody { @for it in links {
                tr {
                    td.mono data-label="Address" { (it.address) }
                    td data-label="State" {
                        @if it.is_listening { span.mark.ok { "listening" } }
                        @else { span.mark.warn { "not connected" } }
                    }
                    td.number data-label="Notices" { (count(it.notices)) }
                    td.number data-label="Last notice" {
                        @match it.notice_age_ms {
                            Some(ms) => { (age(ms)) " ago" }
                            None => "none yet"
                        }
                    }
                }
            } }
        } }
    }
}

pub(super) fn caches(status: &Status) -> Markup {
    let of_replica = status.replica.as_ref();
    html! {
        section #caches data-live {
            h2 { "Caches" }
            @if let Some(it) = of_replica {
                (cache("Chunks in memory, replica", &it.chunk_cache))
                @match &it.disk_cache {
                    Some(disk) => (on_disk(disk))
                    None => (filling("Objects on disk", 0, 0, "none is set up"))
                }
                (filling("Tails in memory", it.tails_bytes, it.tails_bytes_max, &many(it.watchers_open, "watch", "watches")))
            }
            @if let Some(it) = &status.writer { (cache("Chunks in memory, writer", &it.chunk_cache)) }
        }
    }
}

fn cache(name: &str, cache: &CacheOverview) -> Markup {
    filling(name, cache.size_bytes, cache.size_bytes_max, &hits(cache.hits, cache.misses))
}

fn on_disk(disk: &DiskOverview) -> Markup {
    let mut said = hits(disk.hits, disk.misses);
    for (number, what) in [(disk.damaged, "damaged"), (disk.failures, "failed")] {
        if number != 0 {
            write!(said, ", {} {what}", count(number)).ok();
        }
    }
    if disk.is_off {
        "its directory cannot be used".clone_into(&mut said);
    }
    filling("Objects on disk", disk.size_bytes, disk.size_bytes_max, &said)
}

fn hits(hits: u64, misses: u64) -> String {
    let all = hits.saturating_add(misses);
    match all {
        0 => "not asked yet".to_owned(),
        _ => format!("{} of {} found here", share(hits, all), count(all)),
    }
}

fn filling(name: &str, part: u64, whole: u64, said: &str) -> Markup {
    html! {
        div.filling {
            p { b { (name) } span.number { (bytes(part)) @if whole != 0 { " of " (bytes(whole)) } } }
            (bar(part, whole, 101))
            p.note { (said) }
        }
    }
}

pub(super) fn store(store: &StoreStatus) -> Markup {
    html! {
        section #store data-live {
            h2 { "Store" }
            dl.figures {
                (counted("PUT and LIST", store.puts))
                (counted("GET", store.gets))
                (counted("DELETE", store.deletes))
                (fact("sent", bytes(store.bytes_up)))
                (fact("received", bytes(store.bytes_down)))
                div.bad[store.failures != 0] { dt { "failed" } dd { (count(store.failures)) } }
            }
            @if store.calls.is_empty() { p.nothing { "Nothing was asked of it yet." } } @else {
                div.scroll { table.calls {
                    thead { tr { th { "Call" } th { "Outcome" } th.number { "Count" } } }
                    tbody { @for it in &store.calls {
                        tr {
                            td.mono { (it.call) } td { (it.outcome) } td.number { (count(it.count)) }
                        }
                    } }
                } }
            }
        }
    }
}
