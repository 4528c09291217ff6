//! Reports as text and as JSON.

use headwater_core::id::{HistoryName, PinName};
use headwater_verify::{
    Ended, Finding, Part, PartState, PlanError, Repaired, Report, Severity, Tally, Verdict,
};
use serde_json::{Value, json};

use super::VerifyArgs;
use crate::exit::Exit;
use crate::failed::Failed;
use crate::output::Output;

/// Findings one by one, then the summary.
pub(super) fn print(report: &Report, args: &VerifyArgs, output: &mut Output) -> Result<(), Failed> {
    let name = &report.history;
    for finding in &report.findings {
        if finding.severity() == Severity::Note && !args.notes {
            continue;
        }
        output.answer(|| finding_json(name, finding), || finding_text(finding))?;
    }
    output.answer(|| summary_json(report), || summary_text(report))?;
    output.flush()
}

fn finding_json(history: &HistoryName, finding: &Finding) -> Value {
    let mut value = json!({
        "finding": finding.kind.word(),
        "severity": finding.severity().word(),
        "history": history.as_str(),
        "key": finding.key,
        "object": finding.role.text(),
        "what": finding.what,
        "means": finding.means(),
        "advice": finding.advice(),
    });
    if let Some((from, to)) = finding.versions {
        value["fromVersion"] = from.get().into();
        value["toVersion"] = to.get().into();
    }
    if !finding.snapshots.is_empty() {
        value["snapshots"] = finding.snapshots.iter().map(|it| it.get()).collect();
    }
    if !finding.pins.is_empty() {
        value["pins"] = finding.pins.iter().map(PinName::as_str).collect();
    }
    value
}

fn finding_text(finding: &Finding) -> String {
    let (severity, kind) = (finding.severity().word(), finding.kind.word());
    let mut lines = vec![
        format!("{severity}: {}", finding.key),
        format!("  {kind}: {} ({})", finding.what, finding.role.text()),
        format!("  means: {}", finding.means()),
    ];
    if !finding.pins.is_empty() {
        let pins: Vec<&str> = finding.pins.iter().map(PinName::as_str).collect();
        lines.push(format!("  pins that need it: {}", pins.join(", ")));
    }
    lines.push(format!("  do: {}", finding.advice()));
    lines.join("\n")
}

fn tally(tally: Tally) -> Value {
    json!({ "objects": tally.objects, "bytes": tally.bytes })
}

fn summary_json(report: &Report) -> Value {
    let unreached = report.unreached;
    let counts: serde_json::Map<String, Value> = Severity::ALL
        .into_iter()
        .map(|it| (it.word().to_owned(), report.count(it).into()))
        .collect();
    let parts: serde_json::Map<String, Value> = report
        .parts
        .iter()
        .map(|(part, state)| (part.word().to_owned(), part_json(state)))
        .collect();
    let mut value = json!({
        "summary": report.verdict().word(),
        "history": report.history.as_str(),
        "findings": counts,
        "sound": tally(report.sound),
        "changesChained": report.chained,
        "receiptsCompared": report.receipts_compared,
        "unreached": {
            "garbage": tally(unreached.garbage),
            "young": tally(unreached.young),
            "released": tally(unreached.released),
            "foreign": tally(unreached.foreign),
            "unjudged": tally(unreached.unjudged),
        },
        "requests": tally(report.requests),
        "parts": parts,
        "restarts": report.restarts,
    });
    if let Some((id, revision, version)) = report.head {
        value["historyId"] = id.to_string().into();
        value["revision"] = revision.get().into();
        value["stateVersion"] = version.get().into();
    }
    value
}

fn part_json(state: &PartState) -> Value {
    match state {
        PartState::Done => json!("done"),
        PartState::Partly(reason) => json!({ "partly": reason.word(), "why": reason.to_string() }),
        PartState::LeftOut(reason) => {
            json!({ "leftOut": reason.word(), "why": reason.to_string() })
        }
    }
}

fn summary_text(report: &Report) -> String {
    let verdict = match report.verdict() {
        Verdict::Clean => "clean",
        Verdict::Incomplete => "nothing wrong in what was checked; not all was",
        Verdict::Unchecked => "nothing wrong in what could be read; something could not be",
        Verdict::Damaged => "DAMAGED",
    };
    let at = report
        .head
        .map(|(_, revision, version)| format!(", version {version}, revision {revision}"));
    let mib = |it: Tally| it.bytes.div_ceil(1 << 20);
    let (sound, rest) = (report.sound, report.unreached);
    let mut lines = vec![
        format!("{}: {verdict}{}", report.history, at.unwrap_or_default()),
        format!(
            "  {} objects in use are sound ({} MiB); {} changes in the chain, {} receipts compared",
            sound.objects,
            mib(sound),
            report.chained,
            report.receipts_compared
        ),
    ];
    for (what, it) in [
        ("garbage, which a full sweep deletes", rest.garbage),
        ("not in use yet", rest.young),
        ("released, which the next sweep deletes", rest.released),
        ("foreign", rest.foreign),
        ("not judged", rest.unjudged),
        ("request records", report.requests),
    ] {
        if 0 < it.objects {
            lines.push(format!("  {} objects are {what} ({} MiB)", it.objects, mib(it)));
        }
    }
    for part in Part::ALL {
        let reason = report.parts.get(&part).and_then(PartState::reason);
        if let Some(reason) = reason.filter(|it| it.is_gap()) {
            lines.push(format!("  left out of {}: {reason}", part.word()));
        }
    }
    let kept = report.findings.len() as u64;
    let all: u64 = report.counts.values().sum();
    if kept < all {
        lines.push(format!("  {} more findings are not listed", all - kept));
    }
    lines.join("\n")
}

pub(super) fn left_out(history: &HistoryName, ended: Ended) -> Value {
    json!({ "summary": "notChecked", "history": history.as_str(), "why": ended.word() })
}

pub(super) fn all(checked: u64, found: usize, exit: Exit) -> Value {
    json!({ "summary": "all", "histories": found, "checked": checked, "exit": exit.word() })
}

pub(super) fn no_repair(history: &HistoryName, error: &PlanError) -> Value {
    json!({ "repair": "impossible", "history": history.as_str(), "why": error.to_string() })
}

pub(super) fn planned(history: &HistoryName, what: &str) -> Value {
    json!({ "repair": "planned", "history": history.as_str(), "what": what, "needs": "--yes" })
}

pub(super) fn repaired(history: &HistoryName, what: &str, done: &Repaired) -> Value {
    json!({
        "repair": "done",
        "history": history.as_str(),
        "what": what,
        "revision": done.revision.get(),
        "bytesWritten": done.bytes_written,
    })
}
