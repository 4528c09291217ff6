//! Commands that submit one operation.

use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use bytes::Bytes;
use clap::Args;
use headwater_client::{Client, Operation};

use crate::condition::ConditionOptions;
use crate::exit::Exit;
use crate::failed::Failed;
use crate::field;
use crate::issue::IssueOptions;
use crate::outcome;
use crate::output::Output;
use crate::txn::Request;

/// Most bytes taken from standard input or a file for one operation: more than
/// any operation may hold, in JSON with everything escaped.
const INPUT_BYTES_MAX: u64 = 32 << 20;

/// A key on the command line.
#[derive(Clone, Debug, Args)]
pub struct KeyArgs {
    /// The key: 1 to 1,024 bytes.
    pub key: String,
    /// KEY is base64, and so is VALUE, given or printed.
    #[arg(long)]
    pub base64: bool,
}

/// `put`
#[derive(Clone, Debug, Args)]
pub struct PutArgs {
    /// The history's name.
    pub history: String,
    /// The key.
    #[command(flatten)]
    pub key: KeyArgs,
    /// The value, up to 1 MiB.
    #[arg(required_unless_present = "value_file", conflicts_with = "value_file")]
    pub value: Option<String>,
    /// Take the value from this file, byte for byte; `-` is standard input.
    #[arg(long, value_name = "FILE")]
    pub value_file: Option<PathBuf>,
    /// What must hold of the key.
    #[command(flatten)]
    pub conditions: ConditionOptions,
    /// The operation's name.
    #[command(flatten)]
    pub issue: IssueOptions,
}

/// `delete`
#[derive(Clone, Debug, Args)]
pub struct DeleteArgs {
    /// The history's name.
    pub history: String,
    /// The key.
    #[command(flatten)]
    pub key: KeyArgs,
    /// What must hold of the key.
    #[command(flatten)]
    pub conditions: ConditionOptions,
    /// The operation's name.
    #[command(flatten)]
    pub issue: IssueOptions,
}

/// `add`
#[derive(Clone, Debug, Args)]
pub struct AddArgs {
    /// The history's name.
    pub history: String,
    /// The key. An absent one counts as 0.
    #[command(flatten)]
    pub key: KeyArgs,
    /// What to add; may be negative.
    #[arg(allow_negative_numbers = true)]
    pub delta: i64,
    /// What must hold of the key.
    #[command(flatten)]
    pub conditions: ConditionOptions,
    /// The operation's name.
    #[command(flatten)]
    pub issue: IssueOptions,
}

/// `txn`
#[derive(Clone, Debug, Args)]
pub struct TxnArgs {
    /// The history's name.
    pub history: String,
    /// Take the JSON from this file; `-` is standard input.
    #[arg(long, value_name = "FILE", default_value = "-")]
    pub file: PathBuf,
    /// The operation's name. Options win over `issuedFromVersion` of the JSON;
    /// its `operationId` must be the same.
    #[command(flatten)]
    pub issue: IssueOptions,
}

impl KeyArgs {
    pub(crate) fn bytes(&self) -> Result<Bytes, Failed> {
        argument("KEY", &self.key, self.base64)
    }
}

fn argument(name: &str, text: &str, is_base64: bool) -> Result<Bytes, Failed> {
    if !is_base64 {
        return Ok(Bytes::copy_from_slice(text.as_bytes()));
    }
    field::decode(text).ok_or_else(|| Failed::usage(format!("{name} is not base64: {text}")))
}

pub(crate) async fn put(
    client: &Client,
    args: &PutArgs,
    output: &mut Output,
) -> Result<Exit, Failed> {
    let key = args.key.bytes()?;
    let value = match (&args.value, &args.value_file) {
        (Some(value), _) => argument("VALUE", value, args.key.base64)?,
        (None, Some(path)) => read_input(path)?.into(),
        (None, None) => return Err(Failed::usage("VALUE or --value-file is missing")),
    };
    let build = |it| args.conditions.require(it, &key).put(key.clone(), value);
    submit(client, &args.history, &args.issue, output, build).await
}

pub(crate) async fn delete(
    client: &Client,
    args: &DeleteArgs,
    output: &mut Output,
) -> Result<Exit, Failed> {
    let key = args.key.bytes()?;
    let build = |it| args.conditions.require(it, &key).delete(key.clone());
    submit(client, &args.history, &args.issue, output, build).await
}

pub(crate) async fn add(
    client: &Client,
    args: &AddArgs,
    output: &mut Output,
) -> Result<Exit, Failed> {
    let key = args.key.bytes()?;
    let build = |it| args.conditions.require(it, &key).add(key.clone(), args.delta);
    submit(client, &args.history, &args.issue, output, build).await
}

pub(crate) async fn txn(
    client: &Client,
    args: &TxnArgs,
    output: &mut Output,
) -> Result<Exit, Failed> {
    let text = read_input(&args.file)?;
    let request = Request::parse(&text).map_err(|error| {
        Failed::usage(format!("the transaction cannot be read: {error}"))
            .advise("see `headwater txn --help` for its shape")
    })?;
    let issue = request.issue(&args.issue)?;
    submit(client, &args.history, &issue, output, |it| request.add_to(it)).await
}

async fn submit(
    client: &Client,
    history: &str,
    issue: &IssueOptions,
    output: &mut Output,
    build: impl FnOnce(Operation) -> Operation,
) -> Result<Exit, Failed> {
    let (session, operation, mut sent) = issue.name(client, history).await?;
    let submission = session.submit(build(operation)).await;
    // The history that answered: a repetition must not be applied to a later one
    // of its name.
    sent.history_id = sent.history_id.or_else(|| session.token().map(|it| it.history_id));
    let outcome = submission.map_err(|error| Failed::submission(&error, sent.clone()))?;
    output.answer(|| outcome::to_json(&outcome, &sent), || outcome::to_text(&outcome, &sent))?;
    Ok(outcome::exit(&outcome))
}

/// Reads a file, or standard input for `-`, whole.
fn read_input(path: &Path) -> Result<Vec<u8>, Failed> {
    let mut bytes = Vec::new();
    let read = if path == Path::new("-") {
        io::stdin().lock().take(INPUT_BYTES_MAX + 1).read_to_end(&mut bytes)
    } else {
        let read = |file: std::fs::File| file.take(INPUT_BYTES_MAX + 1).read_to_end(&mut bytes);
        std::fs::File::open(path).and_then(read)
    };
    read.map_err(|error| Failed::file("read", path, &error))?;
    if INPUT_BYTES_MAX < bytes.len() as u64 {
        let rule = format!("the input is larger than {INPUT_BYTES_MAX} bytes");
        return Err(Failed::usage(rule).at(&path.display().to_string()));
    }
    Ok(bytes)
}
