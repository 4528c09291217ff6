//! From the wire to the core: every check that needs no state.
//!
//! All violations of a request are found, not the first alone, so that a caller
//! mends it once.

#[cfg(test)]
#[path = "request_test.rs"]
mod request_test;

use std::sync::Arc;

use bytes::Bytes;
use headwater_core::decide::{Ask, LookUp};
use headwater_core::hash::ContentHash;
use headwater_core::head::Head;
use headwater_core::id::{HistoryId, HistoryName, OperationId};
use headwater_core::operation::{Issue, Key, KeyRange, Mutation, Operation, Precondition, Request};
use headwater_core::version::StateVersion;
use headwater_daemon::status::{self, FieldViolation};
use headwater_proto::v1;
use tonic::Status;

/// Collects what is wrong with a request.
#[derive(Debug, Default)]
pub(crate) struct Checks {
    violations: Vec<FieldViolation>,
}

impl Checks {
    /// Keeps a checked value, or the rule that it breaks.
    pub(crate) fn take<T, E: std::fmt::Display>(
        &mut self,
        field: impl Into<String>,
        checked: Result<T, E>,
    ) -> Option<T> {
        checked.map_err(|rule| self.refuse(field, rule.to_string())).ok()
    }

    pub(crate) fn refuse(&mut self, field: impl Into<String>, rule: impl Into<String>) {
        self.violations.push(FieldViolation::new(field, rule));
    }

    pub(crate) fn history(&mut self, field: &str, name: &str) -> Option<HistoryName> {
        self.take(field, HistoryName::parse(name))
    }

    /// An id of a history; empty is none.
    pub(crate) fn history_id(&mut self, field: &str, text: &str) -> Option<HistoryId> {
        if text.is_empty() { None } else { self.take(field, HistoryId::parse(text)) }
    }

    fn key(&mut self, field: impl Into<String>, bytes: Bytes) -> Option<Key> {
        self.take(field, Key::new(bytes))
    }

    fn value(&mut self, field: impl Into<String>, value: Bytes) -> Option<Bytes> {
        let (len, max) = (value.len(), Request::VALUE_BYTES_MAX);
        if max < len {
            self.refuse(field, format!("a value is {len} bytes, the limit is {max}"));
            return None;
        }
        Some(value)
    }

    fn range(&mut self, field: String, range: Option<v1::KeyRange>) -> Option<KeyRange> {
        let Some(range) = range else {
            self.refuse(field, "a range is needed; an empty one means every key");
            return None;
        };
        let end = Some(range.end).filter(|it| !it.is_empty());
        self.take(field, KeyRange::new(range.start, end))
    }

    /// The value, if nothing was wrong.
    pub(crate) fn finish<T>(self, value: Option<T>) -> Result<T, Status> {
        match value {
            Some(value) if self.violations.is_empty() => Ok(value),
            Some(_) | None => Err(status::field_invalid(self.violations)),
        }
    }
}

/// An operation and the history that it is for.
pub(crate) struct Submission {
    pub(crate) history: HistoryName,
    pub(crate) operation: Operation,
}

/// Checks a submission. `history` stands in for a name left out.
pub(crate) fn submission(
    request: v1::SubmitRequest,
    history: Option<&HistoryName>,
) -> Result<Submission, Status> {
    let mut checks = Checks::default();
    let history = match history {
        Some(history) if request.history.is_empty() => Some(history.clone()),
        Some(_) | None => checks.history("history", &request.history),
    };
    let id = checks.take("operation_id", OperationId::parse(&request.operation_id));
    let history_id = checks.history_id("history_id", &request.history_id);
    let body = body(&mut checks, request.preconditions, request.mutations);
    let issue = match request.issued_from_version {
        Some(version) => Issue::ClientKept(StateVersion::new(version)),
        None => Issue::ServiceKept { issued_from: StateVersion::ZERO, is_durable: false },
    };
    let made = match (history, id, body) {
        (Some(history), Some(id), Some(body)) => {
            let request_hash = body.hash();
            let writer_epoch = request.writer_epoch;
            let request = Arc::new(body);
            let operation = Operation {
                id,
                request,
                request_hash,
                issue,
                writer_epoch,
                history_id,
                ends_version: false,
            };
            Some(Submission { history, operation })
        }
        (None, _, _) | (_, None, _) | (_, _, None) => None,
    };
    checks.finish(made)
}

fn body(
    checks: &mut Checks,
    preconditions: Vec<v1::Precondition>,
    mutations: Vec<v1::Mutation>,
) -> Option<Request> {
    // Counted before anything is looked at: a request of a million parts gets
    // one answer and not a million.
    for (field, count, max) in [
        ("preconditions", preconditions.len(), Request::PRECONDITIONS_MAX),
        ("mutations", mutations.len(), Request::MUTATIONS_MAX),
    ] {
        if max < count {
            checks.refuse(field, format!("{count} are given, the limit is {max}"));
            return None;
        }
    }
    let preconditions: Vec<_> = (0..)
        .zip(preconditions)
        .map(|(n, it)| precondition(checks, &format!("preconditions[{n}]"), it))
        .collect();
    let mutations: Vec<_> = (0..)
        .zip(mutations)
        .map(|(n, it)| mutation(checks, &format!("mutations[{n}]"), it))
        .collect();
    let preconditions = preconditions.into_iter().collect::<Option<_>>()?;
    let mutations = mutations.into_iter().collect::<Option<_>>()?;
    checks.take("mutations", Request::new(preconditions, mutations))
}

fn precondition(
    checks: &mut Checks,
    field: &str,
    precondition: v1::Precondition,
) -> Option<Precondition> {
    use v1::precondition::Kind;
    let Some(kind) = precondition.kind else {
        checks.refuse(field, "one kind of precondition is needed");
        return None;
    };
    Some(match kind {
        Kind::KeyExists(key) => {
            Precondition::KeyExists(checks.key(format!("{field}.key_exists"), key)?)
        }
        Kind::KeyAbsent(key) => {
            Precondition::KeyAbsent(checks.key(format!("{field}.key_absent"), key)?)
        }
        Kind::KeyAtVersion(it) => Precondition::KeyAtVersion(
            checks.key(format!("{field}.key_at_version.key"), it.key)?,
            StateVersion::new(it.version),
        ),
        Kind::KeyUnchangedSince(it) => Precondition::KeyUnchangedSince(
            checks.key(format!("{field}.key_unchanged_since.key"), it.key)?,
            StateVersion::new(it.version),
        ),
        Kind::RangeUnchangedSince(it) => Precondition::RangeUnchangedSince(
            checks.range(format!("{field}.range_unchanged_since.range"), it.range)?,
            StateVersion::new(it.version),
        ),
        Kind::ValueEquals(it) => value_equals(checks, field, it)?,
    })
}

fn value_equals(checks: &mut Checks, field: &str, it: v1::ValueEquals) -> Option<Precondition> {
    use v1::value_equals::Expected;
    let key = checks.key(format!("{field}.value_equals.key"), it.key)?;
    match it.expected {
        Some(Expected::Value(value)) => {
            let value = checks.value(format!("{field}.value_equals.value"), value)?;
            Some(Precondition::ValueEquals(key, value))
        }
        Some(Expected::ValueHash(hash)) => {
            let field = format!("{field}.value_equals.value_hash");
            let hash: Result<[u8; 32], _> = hash.as_ref().try_into();
            let hash = checks.take(field, hash.map_err(|_| "a blake3 hash is 32 bytes long"))?;
            Some(Precondition::ValueHashEquals(key, ContentHash::from_bytes(hash)))
        }
        None => {
            checks.refuse(format!("{field}.value_equals"), "a value or its hash is needed");
            None
        }
    }
}

fn mutation(checks: &mut Checks, field: &str, mutation: v1::Mutation) -> Option<Mutation> {
    use v1::mutation::Kind;
    let Some(kind) = mutation.kind else {
        checks.refuse(field, "one kind of mutation is needed");
        return None;
    };
    Some(match kind {
        Kind::Put(it) => {
            // Both are looked at before either refuses.
            let key = checks.key(format!("{field}.put.key"), it.key);
            let value = checks.value(format!("{field}.put.value"), it.value);
            Mutation::Put(key?, value?)
        }
        Kind::Delete(key) => Mutation::Delete(checks.key(format!("{field}.delete"), key)?),
        Kind::DeleteRange(range) => {
            Mutation::DeleteRange(checks.range(format!("{field}.delete_range"), Some(range))?)
        }
        Kind::Add(it) => Mutation::Add(checks.key(format!("{field}.add.key"), it.key)?, it.delta),
    })
}

/// A question about an operation, and what is still to be found out for it.
pub(crate) struct Inquiry {
    pub(crate) history: HistoryName,
    pub(crate) id: OperationId,
    pub(crate) issued_from: Option<StateVersion>,
    pub(crate) history_id: Option<HistoryId>,
    pub(crate) is_service_kept: bool,
}

pub(crate) fn inquiry(request: &v1::GetOperationRequest) -> Result<Inquiry, Status> {
    use v1::get_operation_request::Issue as Issued;
    let mut checks = Checks::default();
    let history = checks.history("history", &request.history);
    let id = checks.take("operation_id", OperationId::parse(&request.operation_id));
    let history_id = checks.history_id("history_id", &request.history_id);
    let (issued_from, is_service_kept) = match request.issue {
        Some(Issued::IssuedFromVersion(version)) => (Some(StateVersion::new(version)), false),
        Some(Issued::ServiceKept(is_service_kept)) => (None, is_service_kept),
        None => (None, false),
    };
    let made = history.zip(id).map(|(history, id)| Inquiry {
        history,
        id,
        issued_from,
        history_id,
        is_service_kept,
    });
    checks.finish(made)
}

impl Inquiry {
    /// The question, with what the request record said, if there is one. `head`
    /// was read before the record was looked for.
    pub(crate) fn into_ask(self, head: &Head, recorded: Option<StateVersion>) -> Ask {
        let history_id = head.history_id;
        let issued_from = match (self.issued_from, recorded) {
            (Some(sent), _) => sent,
            (None, Some(recorded)) => recorded,
            // Service-kept and without a record: not published by then, so any
            // acceptance comes after that head. Not "never": the record may be
            // made and the operation accepted before the answer.
            (None, None) if self.is_service_kept => head.state_version,
            // Nothing is known of when it was issued, and 0 is always true.
            (None, None) => StateVersion::ZERO,
        };
        Ask::LookUp(LookUp { id: self.id, issued_from, history_id: Some(history_id) })
    }
}
