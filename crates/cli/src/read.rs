//! Commands that read keys.

use bytes::Bytes;
use clap::Args;
use headwater_client::{Client, Entry, KeyRange, ScanOptions, Stamp};
use serde_json::{Map, Value, json};

use crate::args::{Freshness, Source};
use crate::at_time::AtTime;
use crate::exit::Exit;
use crate::failed::Failed;
use crate::field;
use crate::output::Output;
use crate::shown::Shown;
use crate::write::KeyArgs;

/// Entries of one page of a scan, unless fewer are wanted.
const PAGE_SIZE: u32 = 1_000;

/// `get`
#[derive(Clone, Debug, Args)]
pub struct GetArgs {
    /// Which history.
    #[command(flatten)]
    pub source: Source,
    /// The key.
    #[command(flatten)]
    pub key: KeyArgs,
    /// The value is an integer, as `add` keeps them: 8 bytes, big-endian.
    #[arg(long, conflicts_with = "raw")]
    pub int: bool,
    /// Print the value's bytes and nothing else, without a newline at the end.
    #[arg(long, conflicts_with = "json")]
    pub raw: bool,
    /// How fresh.
    #[command(flatten)]
    pub freshness: Freshness,
    /// As of when.
    #[command(flatten)]
    pub at_time: AtTime,
}

/// `scan`
#[derive(Clone, Debug, Args)]
pub struct ScanArgs {
    /// Which history.
    #[command(flatten)]
    pub source: Source,
    /// Which keys.
    #[command(flatten)]
    pub range: RangeArgs,
    /// From the last key to the first.
    #[arg(long)]
    pub reverse: bool,
    /// At most this many entries.
    #[arg(long, value_name = "COUNT")]
    pub limit: Option<u64>,
    /// Leave out the values.
    #[arg(long)]
    pub keys_only: bool,
    /// How fresh.
    #[command(flatten)]
    pub freshness: Freshness,
    /// As of when.
    #[command(flatten)]
    pub at_time: AtTime,
}

/// A range of keys.
#[derive(Clone, Debug, Args)]
pub struct RangeArgs {
    /// Only keys that begin with this.
    #[arg(long, value_name = "KEY", conflicts_with_all = ["start", "end"])]
    pub prefix: Option<String>,
    /// From this key on, inclusive.
    #[arg(long, value_name = "KEY")]
    pub start: Option<String>,
    /// Up to this key, exclusive.
    #[arg(long, value_name = "KEY")]
    pub end: Option<String>,
}

impl RangeArgs {
    pub(crate) fn range(&self) -> KeyRange {
        if let Some(prefix) = &self.prefix {
            return KeyRange::prefix(prefix.clone());
        }
        let bound = |it: &Option<String>| it.clone().unwrap_or_default();
        KeyRange::new(bound(&self.start), bound(&self.end))
    }
}

pub(crate) async fn get(
    client: &Client,
    args: &GetArgs,
    output: &mut Output,
) -> Result<Exit, Failed> {
    let key = args.key.bytes()?;
    let session = args.source.session(client);
    let level = args.at_time.level(&session, &args.freshness).await?;
    let read = session.get(key.clone(), level).await?;
    let Some(entry) = read.value else {
        return Err(Failed::new(
            Exit::NotFound,
            format!("no key {} at version {}", Shown(&key), read.stamp.state_version),
        ));
    };
    if args.raw {
        output.raw(&entry.value)?;
        return Ok(Exit::Done);
    }
    let int = if args.int { Some(integer(&entry.value)?) } else { None };
    let is_base64 = args.key.base64;
    output.answer(
        || {
            let mut object =
                if is_base64 { entry_base64(&entry) } else { entry_json(&entry, false) };
            if let Some(int) = int {
                object.insert("int".to_owned(), int.into());
            }
            object.insert("stamp".to_owned(), stamp_json(&read.stamp));
            Value::Object(object)
        },
        || match int {
            Some(int) => int.to_string(),
            None if is_base64 => field::encode(&entry.value),
            None => value_text(&entry.value),
        },
    )?;
    Ok(Exit::Done)
}

/// A value for people: text as it is, newlines included; anything else escaped,
/// which is said, because the escapes are not the value.
fn value_text(value: &[u8]) -> String {
    if let Ok(text) = str::from_utf8(value) {
        return text.to_owned();
    }
    eprintln!(
        "note: the value is not UTF-8, and is escaped here; --raw gives its bytes, --base64 (KEY \
         is base64 then, too) gives them in base64"
    );
    Shown(value).to_string()
}

fn integer(value: &Bytes) -> Result<i64, Failed> {
    let bytes: Result<[u8; 8], _> = value.as_ref().try_into();
    bytes.map(i64::from_be_bytes).map_err(|_| {
        let size_bytes = value.len();
        Failed::usage(format!("the value is not an integer: it has {size_bytes} bytes, not 8"))
    })
}

pub(crate) async fn scan(
    client: &Client,
    args: &ScanArgs,
    output: &mut Output,
) -> Result<Exit, Failed> {
    let mut left = args.limit.unwrap_or(u64::MAX);
    let session = args.source.session(client);
    let mut scan = session.scan(ScanOptions {
        range: args.range.range(),
        consistency: args.at_time.level(&session, &args.freshness).await?,
        reverse: args.reverse,
        keys_only: args.keys_only,
        page_size: u32::try_from(left).unwrap_or(PAGE_SIZE).clamp(1, PAGE_SIZE),
    });
    while left > 0 {
        let Some(page) = scan.next_page().await? else { break };
        for entry in page.value {
            if left == 0 {
                break;
            }
            left -= 1;
            output.answer(
                || Value::Object(entry_json(&entry, args.keys_only)),
                || entry_text(&entry, args.keys_only),
            )?;
        }
    }
    Ok(Exit::Done)
}

fn entry_text(entry: &Entry, keys_only: bool) -> String {
    let key = Shown(&entry.key);
    if keys_only { key.to_string() } else { format!("{key}\t{}", Shown(&entry.value)) }
}

fn entry_json(entry: &Entry, keys_only: bool) -> Map<String, Value> {
    let mut object = Map::new();
    field::put(&mut object, "key", &entry.key);
    if !keys_only {
        field::put(&mut object, "value", &entry.value);
    }
    object.insert("version".to_owned(), entry.version.into());
    object
}

/// The same, with everything in base64, as it was asked for.
fn entry_base64(entry: &Entry) -> Map<String, Value> {
    [
        ("keyBase64", field::encode(&entry.key).into()),
        ("valueBase64", field::encode(&entry.value).into()),
        ("version", entry.version.into()),
    ]
    .map(|(name, value): (&str, Value)| (name.to_owned(), value))
    .into_iter()
    .collect()
}

/// What an answer was served from.
pub(crate) fn stamp_json(stamp: &Stamp) -> Value {
    json!({
        "historyId": stamp.history_id.as_str(),
        "stateVersion": stamp.state_version,
        "revision": stamp.revision,
        "proofAgeMs": u64::try_from(stamp.proof_age.as_millis()).unwrap_or(u64::MAX),
    })
}
