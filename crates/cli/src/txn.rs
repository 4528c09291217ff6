//! A transaction as JSON: see [`SHAPE`].

use bytes::Bytes;
use headwater_client::{KeyRange, Operation, OperationId, OperationIdError};
use serde::Deserialize;

use crate::failed::Failed;
use crate::field::{self, FieldError};
use crate::issue::IssueOptions;

/// The shape of the JSON, for `--help`.
pub(crate) const SHAPE: &str = r#"The transaction is one JSON object:

    {
      "operationId": "order-17",          optional, as --operation-id
      "issuedFromVersion": 12,            optional, as --issued-from
      "preconditions": [                  optional; all must hold
        {"keyExists": {"key": "a"}},
        {"keyAbsent": {"key": "b"}},
        {"keyAtVersion": {"key": "a", "version": 7}},
        {"keyUnchangedSince": {"key": "a", "version": 7}},
        {"rangeUnchangedSince": {"start": "a", "end": "b", "version": 7}},
        {"rangeUnchangedSince": {"prefix": "order/", "version": 7}},
        {"valueEquals": {"key": "a", "value": "x"}},
        {"valueHashEquals": {"key": "a", "hash": "64 hex digits of blake3"}}
      ],
      "mutations": [                      at least one; applied in order
        {"put": {"key": "a", "value": "y"}},
        {"delete": {"key": "b"}},
        {"deleteRange": {"start": "c", "end": "d"}},
        {"deleteRange": {"prefix": "draft/"}},
        {"add": {"key": "count", "delta": 1}}
      ]
    }

Keys, values and bounds that are not UTF-8 are base64, in a field whose name ends
with Base64: {"put": {"keyBase64": "/wA=", "value": "y"}}. A range without start
begins at the first key, one without end has no upper bound."#;

/// Why text is not a transaction.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RequestError {
    /// Not JSON, or not of the shape.
    #[error("{0}")]
    Json(#[from] serde_json::Error),
    /// A field of one precondition or mutation is wrong.
    #[error("{list}[{index}]: {error}")]
    Field {
        /// `preconditions` or `mutations`.
        list: &'static str,
        /// Which one.
        index: usize,
        /// What is wrong.
        error: PartError,
    },
    /// The id is not one.
    #[error(transparent)]
    Id(#[from] OperationIdError),
}

/// What is wrong with one precondition or mutation.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum PartError {
    /// Its bytes.
    #[error(transparent)]
    Field(#[from] FieldError),
    /// A prefix is a range by itself.
    #[error("a range has a prefix, or start and end, not both")]
    PrefixAndBounds,
    /// A blake3 hash has 32 bytes.
    #[error("`hash` is not 64 hex digits")]
    Hash,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Wire {
    operation_id: Option<String>,
    issued_from_version: Option<u64>,
    #[serde(default)]
    preconditions: Vec<Precondition>,
    mutations: Vec<Mutation>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
enum Precondition {
    KeyExists(KeyOnly),
    KeyAbsent(KeyOnly),
    KeyAtVersion(KeyVersion),
    KeyUnchangedSince(KeyVersion),
    RangeUnchangedSince(RangeVersion),
    ValueEquals(KeyValue),
    ValueHashEquals(KeyHash),
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
enum Mutation {
    Put(KeyValue),
    Delete(KeyOnly),
    DeleteRange(Range),
    Add(KeyDelta),
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct KeyOnly {
    key: Option<String>,
    key_base64: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct KeyVersion {
    key: Option<String>,
    key_base64: Option<String>,
    version: u64,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct KeyValue {
    key: Option<String>,
    key_base64: Option<String>,
    value: Option<String>,
    value_base64: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct KeyHash {
    key: Option<String>,
    key_base64: Option<String>,
    hash: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct KeyDelta {
    key: Option<String>,
    key_base64: Option<String>,
    delta: i64,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Range {
    start: Option<String>,
    start_base64: Option<String>,
    end: Option<String>,
    end_base64: Option<String>,
    prefix: Option<String>,
    prefix_base64: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct RangeVersion {
    start: Option<String>,
    start_base64: Option<String>,
    end: Option<String>,
    end_base64: Option<String>,
    prefix: Option<String>,
    prefix_base64: Option<String>,
    version: u64,
}

/// A transaction that was read.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Request {
    operation_id: Option<OperationId>,
    issued_from_version: Option<u64>,
    preconditions: Vec<Require>,
    mutations: Vec<Mutate>,
}

#[derive(Clone, Debug, PartialEq)]
enum Require {
    Exists(Bytes),
    Absent(Bytes),
    AtVersion(Bytes, u64),
    Unchanged(Bytes, u64),
    RangeUnchanged(KeyRange, u64),
    Value(Bytes, Bytes),
    ValueHash(Bytes, [u8; 32]),
}

#[derive(Clone, Debug, PartialEq)]
enum Mutate {
    Put(Bytes, Bytes),
    Delete(Bytes),
    DeleteRange(KeyRange),
    Add(Bytes, i64),
}

impl Request {
    pub(crate) fn parse(json: &[u8]) -> Result<Self, RequestError> {
        let wire: Wire = serde_json::from_slice(json)?;
        Ok(Self {
            operation_id: wire.operation_id.map(OperationId::new).transpose()?,
            issued_from_version: wire.issued_from_version,
            preconditions: read_all("preconditions", wire.preconditions, Precondition::read)?,
            mutations: read_all("mutations", wire.mutations, Mutation::read)?,
        })
    }

    /// `options`, completed by what the JSON says. Two ids are of two operations.
    pub(crate) fn issue(&self, options: &IssueOptions) -> Result<IssueOptions, Failed> {
        let mut issue = options.clone();
        if let (Some(option), Some(json)) = (&issue.operation_id, &self.operation_id)
            && option != json
        {
            let message = format!("--operation-id is {option}, `operationId` is {json}");
            return Err(Failed::usage(message).advise("give one of them, or twice the same"));
        }
        issue.operation_id = issue.operation_id.or_else(|| self.operation_id.clone());
        if !issue.service_kept {
            issue.issued_from = issue.issued_from.or(self.issued_from_version);
        }
        Ok(issue)
    }

    /// `operation`, with all of it.
    pub(crate) fn add_to(self, operation: Operation) -> Operation {
        let required = self.preconditions.into_iter().fold(operation, |operation, it| match it {
            Require::Exists(key) => operation.require_exists(key),
            Require::Absent(key) => operation.require_absent(key),
            Require::AtVersion(key, version) => operation.require_version(key, version),
            Require::Unchanged(key, since) => operation.require_unchanged(key, since),
            Require::RangeUnchanged(range, since) => {
                operation.require_range_unchanged(range, since)
            }
            Require::Value(key, value) => operation.require_value(key, value),
            Require::ValueHash(key, hash) => operation.require_value_hash(key, hash),
        });
        self.mutations.into_iter().fold(required, |operation, it| match it {
            Mutate::Put(key, value) => operation.put(key, value),
            Mutate::Delete(key) => operation.delete(key),
            Mutate::DeleteRange(range) => operation.delete_range(range),
            Mutate::Add(key, delta) => operation.add(key, delta),
        })
    }
}

fn read_all<W, T>(
    list: &'static str,
    parts: Vec<W>,
    read: impl Fn(W) -> Result<T, PartError>,
) -> Result<Vec<T>, RequestError> {
    let read_one =
        |(index, it)| read(it).map_err(|error| RequestError::Field { list, index, error });
    parts.into_iter().enumerate().map(read_one).collect()
}

impl Precondition {
    fn read(self) -> Result<Require, PartError> {
        Ok(match self {
            Self::KeyExists(it) => Require::Exists(it.read()?),
            Self::KeyAbsent(it) => Require::Absent(it.read()?),
            Self::KeyAtVersion(it) => {
                Require::AtVersion(key(it.key, it.key_base64.as_deref())?, it.version)
            }
            Self::KeyUnchangedSince(it) => {
                Require::Unchanged(key(it.key, it.key_base64.as_deref())?, it.version)
            }
            Self::RangeUnchangedSince(it) => {
                let range = Range {
                    start: it.start,
                    start_base64: it.start_base64,
                    end: it.end,
                    end_base64: it.end_base64,
                    prefix: it.prefix,
                    prefix_base64: it.prefix_base64,
                };
                Require::RangeUnchanged(range.read()?, it.version)
            }
            Self::ValueEquals(it) => {
                let (key, value) = it.read()?;
                Require::Value(key, value)
            }
            Self::ValueHashEquals(it) => {
                let hash = blake3::Hash::from_hex(&it.hash).map_err(|_| PartError::Hash)?;
                Require::ValueHash(key(it.key, it.key_base64.as_deref())?, hash.into())
            }
        })
    }
}

impl Mutation {
    fn read(self) -> Result<Mutate, PartError> {
        Ok(match self {
            Self::Put(it) => {
                let (key, value) = it.read()?;
                Mutate::Put(key, value)
            }
            Self::Delete(it) => Mutate::Delete(it.read()?),
            Self::DeleteRange(it) => Mutate::DeleteRange(it.read()?),
            Self::Add(it) => Mutate::Add(key(it.key, it.key_base64.as_deref())?, it.delta),
        })
    }
}

impl KeyOnly {
    fn read(self) -> Result<Bytes, PartError> {
        key(self.key, self.key_base64.as_deref())
    }
}

impl KeyValue {
    fn read(self) -> Result<(Bytes, Bytes), PartError> {
        let value = field::bytes("value", self.value, self.value_base64.as_deref())?;
        Ok((key(self.key, self.key_base64.as_deref())?, value))
    }
}

impl Range {
    fn read(self) -> Result<KeyRange, PartError> {
        let start = field::optional("start", self.start, self.start_base64.as_deref())?;
        let end = field::optional("end", self.end, self.end_base64.as_deref())?;
        let prefix = field::optional("prefix", self.prefix, self.prefix_base64.as_deref())?;
        match prefix {
            Some(_) if start.is_some() || end.is_some() => Err(PartError::PrefixAndBounds),
            Some(prefix) => Ok(KeyRange::prefix(prefix)),
            None => Ok(KeyRange::new(start.unwrap_or_default(), end.unwrap_or_default())),
        }
    }
}

fn key(text: Option<String>, base64: Option<&str>) -> Result<Bytes, PartError> {
    Ok(field::bytes("key", text, base64)?)
}

#[cfg(test)]
#[path = "txn_test.rs"]
mod tests;
