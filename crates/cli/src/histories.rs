//! Commands about whole histories: create, list, delete, take over.

use clap::Args;
use headwater_client::{Client, History, HistoryId};
use headwater_store::Entropy;
use serde_json::{Value, json};

use crate::exit::Exit;
use crate::failed::Failed;
use crate::output::Output;

/// Names in one page of a listing; the most that a server gives.
const PAGE_SIZE: u32 = 1_000;

/// `create`
#[derive(Clone, Debug, Args)]
pub struct CreateArgs {
    /// The history's name: parts of [A-Za-z0-9._-] separated by `/`, 256 bytes
    /// at most.
    pub history: String,
    /// Only the owner of the current writer epoch may write: see `raise-epoch`.
    #[arg(long)]
    pub exclusive: bool,
    /// The id that the history is to have, 32 hex digits drawn at random: the
    /// same command again then succeeds. Default: a random one, which is printed.
    #[arg(long, value_name = "HISTORY_ID")]
    pub history_id: Option<HistoryId>,
}

/// `list`
#[derive(Clone, Debug, Args)]
pub struct ListArgs {
    /// Only names that begin with this.
    #[arg(default_value = "")]
    pub prefix: String,
    /// At most this many.
    #[arg(long, value_name = "COUNT")]
    pub limit: Option<u64>,
}

/// `delete-history`
#[derive(Clone, Debug, Args)]
pub struct DeleteHistoryArgs {
    /// The history's name.
    pub history: String,
    /// The id of the history that is to go, as `head` prints it.
    #[arg(long, value_name = "HISTORY_ID")]
    pub confirm: HistoryId,
}

/// `raise-epoch`
#[derive(Clone, Debug, Args)]
pub struct RaiseEpochArgs {
    /// The history's name.
    pub history: String,
    /// Raise only if this is the current epoch.
    #[arg(long, value_name = "EPOCH")]
    pub expected: Option<u64>,
}

pub(crate) async fn create(
    client: &Client,
    args: &CreateArgs,
    output: &mut Output,
) -> Result<Exit, Failed> {
    // Drawn here, and not by the client, so that it can be told however the call
    // ends.
    let id = args.history_id.clone().map_or_else(draw_id, Ok)?;
    let creation = client.create_history_with_id(&args.history, &id, args.exclusive).await;
    let history = creation.map_err(|error| Failed::from(error).creating(&id))?;
    output.answer(
        || describe(&history),
        || format!("created {} (id {})", history.name, history.history_id),
    )?;
    Ok(Exit::Done)
}

pub(crate) fn draw_id() -> Result<HistoryId, Failed> {
    let digits = format!("{:032x}", u128::from_be_bytes(Entropy::from_os().bytes16()));
    HistoryId::new(digits).map_err(|error| Failed::new(Exit::Unexpected, error.to_string()))
}

fn describe(history: &History) -> Value {
    json!({
        "history": history.name,
        "historyId": history.history_id.as_str(),
        "stateVersion": history.state_version,
        "revision": history.revision,
        "operationCount": history.operation_count,
        "exclusive": history.exclusive,
        "writerEpoch": history.writer_epoch,
        "receiptCoverageFrom": history.receipt_coverage_from,
    })
}

pub(crate) async fn list(
    client: &Client,
    args: &ListArgs,
    output: &mut Output,
) -> Result<Exit, Failed> {
    let mut left = args.limit.unwrap_or(u64::MAX);
    let mut page_token = None;
    while left > 0 {
        let size = u32::try_from(left).unwrap_or(PAGE_SIZE).min(PAGE_SIZE);
        let page = client.list_histories(&args.prefix, size, page_token).await?;
        for name in &page.names {
            output.answer(|| json!({ "history": name }), || name.clone())?;
        }
        left = left.saturating_sub(page.names.len() as u64);
        page_token = page.next_page_token;
        if page_token.is_none() {
            break;
        }
    }
    Ok(Exit::Done)
}

pub(crate) async fn delete(
    client: &Client,
    args: &DeleteHistoryArgs,
    output: &mut Output,
) -> Result<Exit, Failed> {
    let objects = client.delete_history(&args.history, &args.confirm).await?;
    output.answer(
        || json!({ "history": args.history, "historyId": args.confirm.as_str(), "objectsDeleted": objects }),
        || format!("deleted {} ({objects} objects)", args.history),
    )?;
    Ok(Exit::Done)
}

pub(crate) async fn raise_epoch(
    client: &Client,
    args: &RaiseEpochArgs,
    output: &mut Output,
) -> Result<Exit, Failed> {
    let epoch = client.raise_writer_epoch(&args.history, args.expected).await?;
    output.answer(
        || json!({ "history": args.history, "writerEpoch": epoch }),
        || format!("{}: writer epoch {epoch}; write with --epoch {epoch}", args.history),
    )?;
    Ok(Exit::Done)
}
