//! Outcomes of operations, as text and as JSON.

use headwater_client::{Accepted, Conflict, ConflictKind, Outcome, Rejected, Unknown};
use serde_json::{Map, Value, json};

use crate::exit::Exit;
use crate::field;
use crate::issue::Sent;
use crate::shown::Shown;

pub(crate) fn exit(outcome: &Outcome) -> Exit {
    match outcome {
        Outcome::Accepted(_) => Exit::Done,
        Outcome::Rejected(_) => Exit::Rejected,
        Outcome::Unknown(_) => Exit::Unknown,
    }
}

pub(crate) fn to_json(outcome: &Outcome, sent: &Sent) -> Value {
    let mut object = match outcome {
        Outcome::Accepted(it) => accepted_json(it),
        Outcome::Rejected(it) => rejected_json(it),
        Outcome::Unknown(it) => unknown_json(it),
    };
    sent.put(&mut object);
    Value::Object(object)
}

pub(crate) fn accepted_json(accepted: &Accepted) -> Map<String, Value> {
    let sums = accepted.sums.iter();
    let results: Vec<_> =
        sums.map(|(mutation, sum)| json!({ "mutation": mutation, "sum": sum })).collect();
    [
        ("outcome", "accepted".into()),
        ("stateVersion", accepted.state_version.into()),
        ("position", accepted.position.into()),
        ("results", results.into()),
        ("fromReceipt", accepted.from_receipt.into()),
    ]
    .map(|(name, value): (&str, Value)| (name.to_owned(), value))
    .into_iter()
    .collect()
}

fn rejected_json(rejected: &Rejected) -> Map<String, Value> {
    let conflicts: Vec<_> = rejected.conflicts.iter().map(conflict_json).collect();
    [
        ("outcome", "rejected".into()),
        ("atVersion", rejected.at_version.into()),
        ("mayYetApply", rejected.may_yet_apply.into()),
        ("conflicts", conflicts.into()),
    ]
    .map(|(name, value): (&str, Value)| (name.to_owned(), value))
    .into_iter()
    .collect()
}

fn conflict_json(conflict: &Conflict) -> Value {
    let mut object = Map::new();
    object.insert("kind".to_owned(), kind_word(conflict.kind).into());
    field::put(&mut object, "key", &conflict.key);
    object.insert("versionSeen".to_owned(), conflict.version_seen.into());
    if let Some(index) = conflict.precondition {
        object.insert("precondition".to_owned(), index.into());
    }
    if let Some(index) = conflict.mutation {
        object.insert("mutation".to_owned(), index.into());
    }
    Value::Object(object)
}

pub(crate) fn unknown_json(unknown: &Unknown) -> Map<String, Value> {
    [
        ("outcome", "unknown".into()),
        ("earliestVersion", unknown.earliest_version.into()),
        ("receiptCoverageFrom", unknown.receipt_coverage_from.into()),
    ]
    .map(|(name, value): (&str, Value)| (name.to_owned(), value))
    .into_iter()
    .collect()
}

pub(crate) fn to_text(outcome: &Outcome, sent: &Sent) -> String {
    match outcome {
        Outcome::Accepted(it) => {
            let sums = it.sums.iter().map(|(_, sum)| sum.to_string());
            let rest = [accepted_text(it), format!("operation: {}", sent.options())];
            sums.chain(rest).collect::<Vec<_>>().join("\n")
        }
        Outcome::Rejected(it) => {
            let mut text = format!("rejected at version {}", it.at_version);
            for conflict in &it.conflicts {
                text = text + "\n  " + &conflict_text(conflict);
            }
            if it.may_yet_apply {
                text += "\nan earlier attempt may yet be accepted; ask before doing it another \
                         way: headwater op";
            } else {
                text += "\nnothing was changed; read again and decide again";
            }
            text + "\noperation: " + &sent.options()
        }
        Outcome::Unknown(it) => {
            format!("{}\noperation: {}", unknown_text(it), sent.options())
        }
    }
}

pub(crate) fn accepted_text(accepted: &Accepted) -> String {
    let version = accepted.state_version;
    if accepted.from_receipt {
        format!("accepted before, at version {version}; nothing was changed now")
    } else {
        format!("accepted at version {version}")
    }
}

pub(crate) fn unknown_text(unknown: &Unknown) -> String {
    format!(
        "outcome unknown: it can have been applied from version {} on, and receipts are complete \
         only from version {} on; it was not applied now, and sending it again cannot help: look \
         at the data",
        unknown.earliest_version, unknown.receipt_coverage_from
    )
}

fn conflict_text(conflict: &Conflict) -> String {
    let key = Shown(&conflict.key);
    let seen = conflict.version_seen;
    match conflict.kind {
        ConflictKind::KeyMissing => format!("{key}: there is no such key"),
        ConflictKind::KeyPresent => format!("{key}: exists, written at version {seen}"),
        ConflictKind::Changed => format!("{key}: changed at version {seen}"),
        ConflictKind::ValueDiffers => {
            format!("{key}: has another value, written at version {seen}")
        }
        ConflictKind::SinceTooOld => format!(
            "{key}: what was deleted up to version {seen} is no longer on record; name a newer \
             version"
        ),
        ConflictKind::NotAnInteger => format!("{key}: the value is not an integer"),
        ConflictKind::Overflow => format!("{key}: the sum does not fit 64 bits"),
        ConflictKind::Unrecognized => format!("{key}: in a way that this build does not know"),
    }
}

fn kind_word(kind: ConflictKind) -> &'static str {
    match kind {
        ConflictKind::KeyMissing => "keyMissing",
        ConflictKind::KeyPresent => "keyPresent",
        ConflictKind::Changed => "changed",
        ConflictKind::ValueDiffers => "valueDiffers",
        ConflictKind::SinceTooOld => "sinceTooOld",
        ConflictKind::NotAnInteger => "notAnInteger",
        ConflictKind::Overflow => "overflow",
        ConflictKind::Unrecognized => "unrecognized",
    }
}
