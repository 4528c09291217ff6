//! The head, readable.
//!
//! The head is decoded and checked here too: a replica that is asked for it may
//! be older or newer than this build, and a person who looks at a head wants to
//! know whether it holds together.

use std::fmt::Write as _;

use headwater_client::{Client, Stamp};
use headwater_core::format::head::{HeadDecodeError, decode};
use headwater_core::head::{ChangeBody, Head};
use serde_json::{Value, json};

use super::HeadArgs;
use crate::exit::Exit;
use crate::failed::Failed;
use crate::output::Output;
use crate::read::stamp_json;

pub(crate) async fn head(
    client: &Client,
    args: &HeadArgs,
    output: &mut Output,
) -> Result<Exit, Failed> {
    let session = args.source.session(client);
    let read = session.head(args.freshness.level()).await?;
    let bad = |what: String| {
        let name = &args.source.history;
        Failed::new(Exit::BadData, format!("stored object {name}/head.json is bad: {what}"))
            .advise("an operator has to look at the object that is named")
    };
    let head = decode(&read.value).map_err(|error| match error {
        HeadDecodeError::TooNew { .. } => bad(error.to_string()).advise("use a newer build"),
        HeadDecodeError::Malformed(_)
        | HeadDecodeError::Hash { .. }
        | HeadDecodeError::Id { .. }
        | HeadDecodeError::Address(_)
        | HeadDecodeError::Pin { .. }
        | HeadDecodeError::Name(_)
        | HeadDecodeError::Key(_)
        | HeadDecodeError::Inline { .. }
        | HeadDecodeError::Invariant(_) => bad(error.to_string()),
    })?;
    let stored: Value = serde_json::from_slice(&read.value).map_err(|it| bad(it.to_string()))?;
    output.answer(
        || json!({ "head": stored, "stamp": stamp_json(&read.stamp) }),
        || describe(&head, &read.stamp, read.value.len()),
    )?;
    Ok(Exit::Done)
}

fn describe(head: &Head, stamp: &Stamp, size_bytes: usize) -> String {
    let mut lines = vec![
        ("history", head.history.as_str().to_owned()),
        ("history id", head.history_id.to_string()),
        ("state version", head.state_version.get().to_string()),
        ("revision", head.revision.get().to_string()),
        ("operations", format!("{} accepted", head.operation_count)),
        (
            "snapshot",
            format!(
                "at version {}, {}",
                head.snapshot.version.get(),
                head.snapshot.object.key.as_str()
            ),
        ),
        ("tail", tail(head)),
        ("receipts", receipts(head)),
        ("readable", readable(head)),
        ("swept", format!("below revision {}", head.swept_to.get())),
        ("objects", objects(head)),
        ("chain hash", head.chain_hash.to_hex()),
        ("published by", publisher(head)),
        ("head size", format!("{size_bytes} bytes")),
        ("proven", format!("current {} ms ago", stamp.proof_age.as_millis())),
    ];
    if let Some(base) = &head.base {
        let source = &base.source;
        lines.insert(2, ("forked from", format!("{}, and not apart yet", source.history)));
    }
    if head.is_exclusive {
        lines.insert(4, ("exclusive", format!("writer epoch {}", head.writer_epoch)));
    }
    if head.is_retired() {
        lines.insert(2, ("retired", "the history is being deleted".to_owned()));
    }
    let mut text = String::new();
    for (name, value) in lines {
        let _ = writeln!(text, "{name:<14} {value}");
    }
    text.truncate(text.trim_end().len());
    text
}

fn publisher(head: &Head) -> String {
    let id = &head.publisher.id;
    head.publisher.address.as_ref().map_or_else(|| id.clone(), |it| format!("{id}, at {it}"))
}

fn tail(head: &Head) -> String {
    if head.segments.is_empty() && head.changes.is_empty() {
        return "empty".to_owned();
    }
    let inline = |it: &&headwater_core::head::ChangeRef| matches!(it.body, ChangeBody::Inline(_));
    let in_head = head.changes.iter().filter(inline).count();
    format!(
        "versions {} to {}: {} segments, {} changes ({in_head} in the head itself)",
        head.tail_from().get(),
        head.state_version.get(),
        head.segments.len(),
        head.changes.len(),
    )
}

fn receipts(head: &Head) -> String {
    let from = head.receipt_coverage_from.get();
    if head.state_version.get() < from {
        return format!("complete from version {from} on; none so far");
    }
    format!("complete from version {from} on; {} pages beside the tail", head.receipt_pages.len())
}

fn readable(head: &Head) -> String {
    let mut text = format!("from version {} on", head.retained_from().get());
    for pin in &head.pins {
        let _ = write!(text, ", {} ({})", pin.version.get(), pin.name);
    }
    let _ = write!(
        text,
        "; kept are {} versions, and {} s",
        head.retention.versions,
        head.retention.age_ms / 1_000
    );
    text
}

fn objects(head: &Head) -> String {
    let bytes: u64 = head.references().map(|it| it.size_bytes).sum();
    format!("{} named by the head, {bytes} bytes", head.references().count())
}
