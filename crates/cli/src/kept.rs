//! Commands about older versions: `pin`, `unpin`, `pins`, `retain`, `restore`,
//! `fork`.

use std::fmt::Write as _;

use clap::Args;
use headwater_client::{Client, HistoryId, IssueVersion, Pin, Restored, Retention};
use serde_json::{Value, json};

use crate::exit::Exit;
use crate::failed::Failed;
use crate::histories::draw_id;
use crate::issue::IssueOptions;
use crate::output::Output;

/// `pin`
#[derive(Clone, Debug, Args)]
pub struct PinArgs {
    /// The history's name.
    pub history: String,
    /// The pin's name: 1 to 64 of [A-Za-z0-9._:-].
    pub pin: String,
    /// The version to keep. Default: the newest.
    #[arg(long, value_name = "VERSION")]
    pub at: Option<u64>,
    /// When it may go by itself, in milliseconds since 1970.
    #[arg(long, value_name = "MS")]
    pub expires_at_ms: Option<u64>,
}

/// `unpin`
#[derive(Clone, Debug, Args)]
pub struct UnpinArgs {
    /// The history's name.
    pub history: String,
    /// The pin's name.
    pub pin: String,
    /// The id of the fork whose pin it is, where it is one's: only for a fork
    /// that is known not to need it.
    #[arg(long, value_name = "HISTORY_ID")]
    pub child: Option<HistoryId>,
}

/// `pins`
#[derive(Clone, Debug, Args)]
pub struct PinsArgs {
    /// The history's name.
    pub history: String,
}

/// `retain`
#[derive(Clone, Debug, Args)]
pub struct RetainArgs {
    /// The history's name.
    pub history: String,
    /// Keep so many versions before the newest readable.
    #[arg(long, value_name = "COUNT", default_value_t = 0)]
    pub versions: u64,
    /// Keep versions readable that were the newest within this time, in seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 0)]
    pub age_seconds: u64,
}

/// `restore`
#[derive(Clone, Debug, Args)]
pub struct RestoreArgs {
    /// The history's name.
    pub history: String,
    /// The version whose state is wanted again.
    #[arg(value_name = "VERSION")]
    pub at: u64,
    /// The operation's name.
    #[command(flatten)]
    pub issue: IssueOptions,
}

/// `fork`
#[derive(Clone, Debug, Args)]
pub struct ForkArgs {
    /// The history to fork.
    pub source: String,
    /// The name of the new history.
    pub history: String,
    /// The version to begin with. Default: the newest.
    #[arg(long, value_name = "VERSION")]
    pub at: Option<u64>,
    /// The id that the new history is to have, 32 hex digits drawn at random:
    /// the same command again then finds it. Default: a random one, which is
    /// printed.
    #[arg(long, value_name = "HISTORY_ID")]
    pub history_id: Option<HistoryId>,
}

pub(crate) async fn pin(
    client: &Client,
    args: &PinArgs,
    output: &mut Output,
) -> Result<Exit, Failed> {
    let pinned = client.pin_version(&args.history, &args.pin, args.at, args.expires_at_ms);
    let pin = pinned.await?;
    output.answer(
        || pin_json(&pin),
        || format!("version {} is pinned as {}", pin.version, pin.name),
    )?;
    Ok(Exit::Done)
}

pub(crate) async fn unpin(
    client: &Client,
    args: &UnpinArgs,
    output: &mut Output,
) -> Result<Exit, Failed> {
    client.unpin_version(&args.history, &args.pin, args.child.as_ref()).await?;
    output.answer(
        || json!({ "history": args.history, "pin": args.pin }),
        || format!("{} is no longer pinned", args.pin),
    )?;
    Ok(Exit::Done)
}

pub(crate) async fn pins(
    client: &Client,
    args: &PinsArgs,
    output: &mut Output,
) -> Result<Exit, Failed> {
    let history = client.get_history(&args.history).await?;
    for pin in &history.pins {
        output.answer(|| pin_json(pin), || pin_text(pin))?;
    }
    Ok(Exit::Done)
}

fn pin_json(pin: &Pin) -> Value {
    json!({
        "pin": pin.name,
        "version": pin.version,
        "expiresAtMs": pin.expires_at_ms,
        "fork": pin.child,
    })
}

fn pin_text(pin: &Pin) -> String {
    let mut text = format!("{} {}", pin.version, pin.name);
    if let Some(at) = pin.expires_at_ms {
        let _ = write!(text, ", until {at} ms after 1970");
    }
    if let Some(child) = &pin.child {
        let _ = write!(text, ", for {child}");
    }
    text
}

pub(crate) async fn retain(
    client: &Client,
    args: &RetainArgs,
    output: &mut Output,
) -> Result<Exit, Failed> {
    let age_ms = args.age_seconds.saturating_mul(1_000);
    let wanted = Retention { versions: args.versions, age_ms };
    let kept = client.set_retention(&args.history, wanted).await?;
    output.answer(
        || json!({ "history": args.history, "versions": kept.versions, "ageMs": kept.age_ms }),
        || {
            let seconds = kept.age_ms / 1_000;
            format!("{}: {} versions and {seconds} s are kept", args.history, kept.versions)
        },
    )?;
    Ok(Exit::Done)
}

pub(crate) async fn restore(
    client: &Client,
    args: &RestoreArgs,
    output: &mut Output,
) -> Result<Exit, Failed> {
    if args.issue.service_kept {
        return Err(Failed::usage("a restore is issued by its caller: leave --service-kept out"));
    }
    let (_, _, sent) = args.issue.name(client, &args.history).await?;
    let issued_from = match sent.issue {
        IssueVersion::At(version) => version,
        IssueVersion::Newest | IssueVersion::ServiceKept => 0,
    };
    let restored = client
        .restore_version(&args.history, args.at, &sent.id, issued_from, args.issue.epoch)
        .await
        .map_err(|error| {
            Failed::from(error).advise(format!("try again with {}", sent.options()))
        })?;
    match restored {
        Restored::Accepted { state_version, keys_changed, from_receipt } => {
            output.answer(
                || {
                    json!({
                        "outcome": "accepted",
                        "stateVersion": state_version,
                        "restoredVersion": args.at,
                        "keysChanged": keys_changed,
                        "fromReceipt": from_receipt,
                        "operationId": sent.id.as_str(),
                    })
                },
                || format!("version {state_version} has the state of {}", args.at),
            )?;
            Ok(Exit::Done)
        }
        Restored::Unknown => {
            output.answer(
                || json!({ "outcome": "unknown", "operationId": sent.id.as_str() }),
                || "the receipts that could tell whether it was restored are gone".to_owned(),
            )?;
            Ok(Exit::Unknown)
        }
    }
}

pub(crate) async fn fork(
    client: &Client,
    args: &ForkArgs,
    output: &mut Output,
) -> Result<Exit, Failed> {
    let id = args.history_id.clone().map_or_else(draw_id, Ok)?;
    let forked = client.fork_history(&args.source, args.at, &args.history, &id).await;
    let history = forked.map_err(|error| Failed::from(error).creating(&id))?;
    output.answer(
        || {
            json!({
                "history": history.name,
                "historyId": history.history_id.as_str(),
                "stateVersion": history.state_version,
                "forkedFrom": args.source,
            })
        },
        || {
            format!(
                "{} begins with version {} of {} (id {})",
                history.name, history.state_version, args.source, history.history_id
            )
        },
    )?;
    Ok(Exit::Done)
}
