//! What was found, for people and for programs.

use std::time::Duration;

use headwater_store::probe::{
    Check, CheckId, Left, Rate, Report, Severity, TagForm, TagKind, TagSource, Verdict,
};
use serde_json::{Value, json};

use super::{Examined, policy};

/// Longest detail in a table. What is longer is in `--json`.
const DETAIL_CHARS_MAX: usize = 300;

pub(super) fn text(examined: &Examined) -> String {
    let Examined { url, is_changed, prefix, report, left } = examined;
    let mut text = String::new();
    let mut line = |it: &str| {
        text.push_str(it);
        text.push('\n');
    };
    line(&format!("{url}, below {prefix}/"));
    line("");
    for check in &report.checks {
        line(format!("{:<7} {:<52} {}", verdict(check), check.id.rule(), detail(check)).trim_end());
    }
    line("");
    if let Some(tag) = report.tag {
        line(&format!("tags         {}", tag_words(tag)));
    }
    if let Some(rate) = report.replacements {
        line(&format!("one head     {}", rate_words(rate)));
    }
    for it in &report.latencies {
        line(&format!(
            "{:<22} p50 {:>9}   p99 {:>9}   ({} calls{})",
            it.call,
            ms(it.p50),
            ms(it.p99),
            it.n_samples,
            if it.n_failed == 0 { String::new() } else { format!(", {} failed", it.n_failed) },
        ));
    }
    if 0 < left.n_left {
        line(&self::left(prefix, left));
    }
    if let Some(policies) = policies(examined) {
        line("");
        line(&policies);
    }
    line("");
    if *is_changed {
        line(&format!(
            "The store compares tags without their quotes. Use this URL everywhere:\n  {url}\n"
        ));
    }
    text.push_str(conclusion(report));
    text
}

fn verdict(check: &Check) -> &'static str {
    match check.verdict {
        Verdict::Holds => "holds",
        Verdict::Open => "open",
        Verdict::Warns => "WARNS",
        Verdict::Broken => "BROKEN",
    }
}

/// On one line, and not endless: stores answer with documents.
fn detail(check: &Check) -> String {
    let flat = check.detail.split_whitespace().collect::<Vec<_>>().join(" ");
    match flat.char_indices().nth(DETAIL_CHARS_MAX) {
        Some((at, _)) => format!("{}…", &flat[..at]),
        None => flat,
    }
}

fn conclusion(report: &Report) -> &'static str {
    match report.severity() {
        Severity::Fit => "The store can be used.",
        Severity::Warned => "The store can be used. Look at what warns or could not be asked.",
        Severity::Unanswered => "The store did not answer; nothing is known about it.",
        Severity::Unfit => {
            if report.denied.is_empty() {
                "DO NOT USE this store for writers: acknowledged writes would be lost, or none would \
                 succeed."
            } else {
                "Writers cannot use this store with these permissions."
            }
        }
    }
}

fn tag_words(tag: TagKind) -> String {
    let source = match tag.source {
        Some(TagSource::Content) => "a hash of the content",
        Some(TagSource::Unique) => "another one for each write",
        None => "of unknown origin",
    };
    let form = match tag.form {
        TagForm::Quoted => "in quotes",
        TagForm::Unquoted => "without quotes",
        TagForm::Version => "compared by a generation",
    };
    format!("{source}, {form}")
}

fn rate_words(rate: Rate) -> String {
    let per_1000 = rate.per_1000_seconds();
    let throttled = match rate.n_throttled {
        0 => String::new(),
        n => format!("; the store asked for less {n} times"),
    };
    format!(
        "{}.{} replacements a second, one after the other{throttled}",
        per_1000 / 1000,
        per_1000 % 1000 / 100
    )
}

fn ms(time: Duration) -> String {
    let us = time.as_micros();
    format!("{}.{:02} ms", us / 1000, us % 1000 / 10)
}

pub(super) fn left(prefix: &str, left: &Left) -> String {
    let Left { n_left, reason, .. } = left;
    let why = reason.as_ref().map(|it| format!(" ({it})")).unwrap_or_default();
    format!("{n_left} objects of the probe stay below {prefix}/; delete them by hand{why}")
}

fn policies(examined: &Examined) -> Option<String> {
    if examined.report.denied.is_empty() {
        return None;
    }
    let policy::Policies { writer, replica } = policy::smallest(&examined.url)?;
    Some(format!("The smallest policy for writers:\n{writer:#}\nand for replicas:\n{replica:#}"))
}

pub(super) fn json(examined: &Examined) -> Value {
    let Examined { url, is_changed, prefix, report, left } = examined;
    let severity = match report.severity() {
        Severity::Fit => "fit",
        Severity::Warned => "warned",
        Severity::Unanswered => "unanswered",
        Severity::Unfit => "unfit",
    };
    let policies = policy::smallest(url);
    json!({
        "store": url,
        "storeChanged": is_changed,
        "scratchPrefix": prefix,
        "severity": severity,
        "checks": report.checks.iter().map(check_json).collect::<Vec<_>>(),
        "missingPermissions": report.denied.iter().map(|it| it.s3_action()).collect::<Vec<_>>(),
        "policies": policies.map(|it| json!({ "writer": it.writer, "replica": it.replica })),
        "tag": report.tag.map(tag_json),
        "races": report.races.iter().map(|it| json!({
            "kind": it.kind.as_str(),
            "racers": it.n_racers,
            "rounds": it.n_rounds,
            "voidRounds": it.n_void,
            "lost": it.n_lost,
            "overwritten": it.n_overwritten,
            "unanswered": it.n_unanswered,
        })).collect::<Vec<_>>(),
        "latencies": report.latencies.iter().map(|it| json!({
            "call": it.call,
            "samples": it.n_samples,
            "failed": it.n_failed,
            "p50Us": micros(it.p50),
            "p99Us": micros(it.p99),
        })).collect::<Vec<_>>(),
        "replacements": report.replacements.map(|it| json!({
            "replaced": it.n_replaced,
            "throttled": it.n_throttled,
            "elapsedUs": micros(it.elapsed),
            "per1000Seconds": it.per_1000_seconds(),
        })),
        "objectsDeleted": left.n_deleted,
        "objectsLeft": left.n_left,
    })
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

fn check_json(check: &Check) -> Value {
    let Check { id, verdict, detail } = check;
    json!({
        "check": CheckId::as_str(*id),
        "rule": id.rule(),
        "verdict": verdict.as_str(),
        "detail": detail,
    })
}

fn tag_json(tag: TagKind) -> Value {
    let source = tag.source.map(|it| match it {
        TagSource::Content => "content",
        TagSource::Unique => "unique",
    });
    let form = match tag.form {
        TagForm::Quoted => "quoted",
        TagForm::Unquoted => "unquoted",
        TagForm::Version => "version",
    };
    json!({ "source": source, "form": form })
}
