//! Commands that look at a history and not at its state: the head, the change
//! entries, one operation.

mod head;
mod log;

use clap::Args;
use headwater_client::{Client, HistoryId, IssueVersion, Lookup, OperationId};
use serde_json::{Value, json};

use crate::args::{Freshness, Source};
use crate::exit::Exit;
use crate::failed::Failed;
use crate::outcome;
use crate::output::Output;

pub(crate) use self::head::head;
pub(crate) use self::log::log;

/// `head`
#[derive(Clone, Debug, Args)]
pub struct HeadArgs {
    /// Which history.
    #[command(flatten)]
    pub source: Source,
    /// How fresh.
    #[command(flatten)]
    pub freshness: Freshness,
}

/// `log`
#[derive(Clone, Debug, Args)]
pub struct LogArgs {
    /// Which history.
    #[command(flatten)]
    pub source: Source,
    /// The first version. Default: the oldest at hand.
    #[arg(long, value_name = "VERSION", conflicts_with = "last")]
    pub from: Option<u64>,
    /// Only the last versions, this many.
    #[arg(long, value_name = "COUNT")]
    pub last: Option<u64>,
    /// At most this many versions.
    #[arg(long, value_name = "COUNT")]
    pub limit: Option<u64>,
    /// Print keys and values in full.
    #[arg(long)]
    pub full: bool,
    /// How fresh.
    #[command(flatten)]
    pub freshness: Freshness,
}

/// `op`
#[derive(Clone, Debug, Args)]
pub struct OpArgs {
    /// Which history.
    #[command(flatten)]
    pub source: Source,
    /// The operation's id.
    pub operation_id: OperationId,
    /// The version that was sent with it. Default: 0, which is always true.
    #[arg(long, value_name = "VERSION")]
    pub issued_from: Option<u64>,
    /// It was only ever sent with --service-kept: then the answer is certain,
    /// however old it is.
    #[arg(long, conflicts_with = "issued_from")]
    pub service_kept: bool,
}

pub(crate) async fn op(
    client: &Client,
    args: &OpArgs,
    output: &mut Output,
) -> Result<Exit, Failed> {
    let issue = if args.service_kept {
        IssueVersion::ServiceKept
    } else {
        IssueVersion::At(args.issued_from.unwrap_or_default())
    };
    let session = args.source.session(client);
    let lookup = session.lookup(&args.operation_id, issue).await?;
    let history_id = session.token().map(|it| it.history_id);
    let id = args.operation_id.as_str();
    output.answer(
        || {
            let mut object = match &lookup {
                Lookup::Accepted(it) => outcome::accepted_json(it),
                Lookup::NotAccepted { through_version } => {
                    let version =
                        ("notAcceptedThroughVersion".to_owned(), (*through_version).into());
                    [("outcome".to_owned(), "notAccepted".into()), version].into_iter().collect()
                }
                Lookup::Unknown(it) => outcome::unknown_json(it),
            };
            object.insert("operationId".to_owned(), id.into());
            object
                .insert("historyId".to_owned(), json!(history_id.as_ref().map(HistoryId::as_str)));
            Value::Object(object)
        },
        || match &lookup {
            Lookup::Accepted(it) => {
                let sums = it.sums.iter().map(|(_, sum)| format!("sum: {sum}"));
                let first = format!("{id}: accepted at version {}", it.state_version);
                std::iter::once(first).chain(sums).collect::<Vec<_>>().join("\n")
            }
            Lookup::NotAccepted { through_version } => format!(
                "{id}: not accepted through version {through_version}; a submission that is still \
                 under way may be accepted later"
            ),
            Lookup::Unknown(it) => format!("{id}: {}", outcome::unknown_text(it)),
        },
    )?;
    Ok(match lookup {
        Lookup::Accepted(_) => Exit::Done,
        Lookup::NotAccepted { .. } => Exit::NotFound,
        Lookup::Unknown(_) => Exit::Unknown,
    })
}
