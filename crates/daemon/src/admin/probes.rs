//! `/livez` and `/readyz`.

use std::fmt::Write as _;

use axum::Router;
use axum::extract::RawQuery;
use axum::routing::get;
use http::{StatusCode, header};

use crate::health::{Finding, Health};

type Text = (StatusCode, [(header::HeaderName, &'static str); 2], String);

/// The probes.
pub(super) fn router(health: Health) -> Router {
    // Liveness asks for nothing but this process: a store that is down is no
    // reason to start a process again, which would find it down as well.
    let livez = |RawQuery(query): RawQuery| async move { answer("livez", &[], query.as_deref()) };
    let readyz = move |RawQuery(query): RawQuery| async move {
        answer("readyz", &health.findings(), query.as_deref())
    };
    Router::new().route("/livez", get(livez)).route("/readyz", get(readyz))
}

/// `?verbose` lists the checks; `?exclude=NAME`, which may be repeated, leaves
/// one out of the verdict. Both as etcd has them.
fn answer(name: &str, findings: &[Finding], query: Option<&str>) -> Text {
    let options: Vec<_> = query.unwrap_or_default().split('&').collect();
    let is_verbose = options.iter().any(|it| *it == "verbose" || it.starts_with("verbose="));
    let excluded: Vec<_> = options.iter().filter_map(|it| it.strip_prefix("exclude=")).collect();
    let unknown = excluded.iter().find(|it| !findings.iter().any(|found| found.name == **it));

    let mut text = String::new();
    let mut is_ok = true;
    for finding in findings {
        let (name, trouble) = (finding.name, finding.trouble.as_deref());
        let is_excluded = excluded.contains(&name);
        is_ok &= is_excluded || !finding.is_in_the_way();
        let verdict = match (trouble, is_excluded, finding.is_needed) {
            (_, true, _) => "[+]excluded".to_owned(),
            (None, ..) => "[+]ok".to_owned(),
            (Some(trouble), _, true) => format!("[-]{trouble}"),
            (Some(trouble), _, false) => format!("[ ]not needed: {trouble}"),
        };
        let (mark, verdict) = verdict.split_at(3);
        writeln!(text, "{mark}{name} {verdict}").ok();
    }
    if let Some(unknown) = unknown {
        // As etcd does: it is said, and it is no failure.
        writeln!(text, "warning: there is no check {unknown:?} to exclude").ok();
    }
    let verdict = if is_ok { "ok" } else { "not ready" };
    let text = match (is_verbose, is_ok) {
        (false, true) => "ok\n".to_owned(),
        (true, _) | (_, false) => format!("{text}{name} {verdict}\n"),
    };
    let status = if is_ok { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    let headers =
        [(header::CONTENT_TYPE, "text/plain; charset=utf-8"), (header::CACHE_CONTROL, "no-store")];
    (status, headers, text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::health::For;

    fn said(health: &Health, query: &str) -> (u16, String) {
        let (status, _, text) = answer("readyz", &health.findings(), Some(query));
        (status.as_u16(), text)
    }

    #[test]
    fn what_is_well_is_said_in_a_word_and_listed_when_asked_for() {
        let health = Health::new();
        health.check("store", For::All).ready();
        health.check("lag", For::Nobody).not_ready("9 s");

        assert_eq!(said(&health, ""), (200, "ok\n".to_owned()));
        let list = "[+]draining ok\n[ ]lag not needed: 9 s\n[+]store ok\nreadyz ok\n";
        assert_eq!(said(&health, "verbose"), (200, list.to_owned()));
    }

    #[test]
    fn what_stands_in_the_way_is_named_unless_it_is_excluded() {
        let health = Health::new();
        health.check("store", For::All).not_ready("no answer");

        let (status, text) = said(&health, "");
        assert_eq!(status, 503);
        assert!(text.contains("[-]store no answer\n") && text.ends_with("readyz not ready\n"));
        assert_eq!(said(&health, "exclude=store"), (200, "ok\n".to_owned()));
        let (status, text) = said(&health, "verbose&exclude=store&exclude=typo");
        assert_eq!(status, 200);
        assert!(text.contains("[+]store excluded") && text.contains("\"typo\""), "{text}");
    }

    #[test]
    fn liveness_has_no_checks() {
        let (status, _, text) = answer("livez", &[], Some("verbose"));

        assert_eq!((status.as_u16(), &*text), (200, "livez ok\n"));
    }
}
