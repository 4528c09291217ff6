//! The change entries, readable.

use headwater_client::Client;
use headwater_proto::v1::resolved_mutation::Kind;
use headwater_proto::v1::{AcceptedOperation, ChangeEntry, KeyRange, ResolvedMutation};
use serde_json::{Map, Value, json};

use super::LogArgs;
use crate::exit::Exit;
use crate::failed::Failed;
use crate::field;
use crate::output::Output;
use crate::shown::{Shown, shortened};

/// Change entries of one page.
const PAGE_SIZE: u32 = 100;

/// Characters of a key or value, unless it is wanted in full.
const SHOWN_CHARS_MAX: usize = 60;

pub(crate) async fn log(
    client: &Client,
    args: &LogArgs,
    output: &mut Output,
) -> Result<Exit, Failed> {
    let session = args.source.session(client);
    let level = args.freshness.level();
    let mut from = args.from;
    if let Some(last) = args.last {
        let newest = session.changes(None, 1, level).await?;
        let first = (newest.stamp.state_version + 1).saturating_sub(last);
        from = Some(first.max(newest.value.oldest_version));
    }
    let mut left = args.limit.unwrap_or(u64::MAX);
    while left > 0 {
        let size = u32::try_from(left).unwrap_or(PAGE_SIZE).min(PAGE_SIZE);
        let page = session.changes(from, size, level).await?;
        left = left.saturating_sub(page.value.changes.len() as u64);
        for change in &page.value.changes {
            output.answer(|| change_json(change), || change_text(change, args.full))?;
        }
        from = page.value.next_version;
        if from.is_none() || page.value.changes.is_empty() {
            break;
        }
    }
    Ok(Exit::Done)
}

fn change_text(change: &ChangeEntry, full: bool) -> String {
    let count = change.operations.len();
    let noun = if count == 1 { "operation" } else { "operations" };
    let mut lines = vec![format!("version {}  {count} {noun}", change.version)];
    for operation in &change.operations {
        lines.push(format!("  {}", operation.operation_id));
        let mutations = operation.mutations.iter().filter_map(|it| it.kind.as_ref());
        lines.extend(mutations.map(|it| format!("    {}", mutation_text(it, full))));
    }
    lines.join("\n")
}

fn mutation_text(mutation: &Kind, full: bool) -> String {
    let chars_max = if full { usize::MAX / 4 } else { SHOWN_CHARS_MAX };
    match mutation {
        Kind::Put(it) => {
            format!("put {} = {}", shortened(&it.key, chars_max), shortened(&it.value, chars_max))
        }
        Kind::Delete(key) => format!("delete {}", shortened(key, chars_max)),
        Kind::DeleteRange(KeyRange { start, end }) if end.is_empty() => {
            format!("delete from {} on", Shown(start))
        }
        Kind::DeleteRange(KeyRange { start, end }) => {
            format!("delete from {} to before {}", Shown(start), Shown(end))
        }
    }
}

fn change_json(change: &ChangeEntry) -> Value {
    let operations: Vec<_> = change.operations.iter().map(operation_json).collect();
    json!({ "version": change.version, "operations": operations })
}

fn operation_json(operation: &AcceptedOperation) -> Value {
    let mutations: Vec<_> = operation.mutations.iter().map(mutation_json).collect();
    let hash: [u8; 32] = operation.request_hash.as_ref().try_into().unwrap_or_default();
    json!({
        "operationId": operation.operation_id,
        "requestHash": format!("blake3:{}", blake3::Hash::from_bytes(hash).to_hex()),
        "mutations": mutations,
    })
}

fn mutation_json(mutation: &ResolvedMutation) -> Value {
    let mut object = Map::new();
    let name = match &mutation.kind {
        Some(Kind::Put(it)) => {
            field::put(&mut object, "key", &it.key);
            field::put(&mut object, "value", &it.value);
            "put"
        }
        Some(Kind::Delete(key)) => {
            field::put(&mut object, "key", key);
            "delete"
        }
        Some(Kind::DeleteRange(it)) => {
            field::put(&mut object, "start", &it.start);
            if !it.end.is_empty() {
                field::put(&mut object, "end", &it.end);
            }
            "deleteRange"
        }
        None => "unrecognized",
    };
    json!({ name: object })
}
