//! Errors as every service says them.
//!
//! One constructor for each reason of [`headwater_proto::reason`], so that the
//! services of writers and replicas cannot differ in code, details or
//! determinacy. A message says what happened and what to do; it is for people,
//! and no program may read it.

use std::collections::HashMap;
use std::time::Duration;

use bytes::Bytes;
use headwater_proto::reason;
use prost::Message;
use tonic::{Code, Status};
use tonic_types::{ErrorDetails, StatusExt};

/// Most field violations in one status. Details travel in a header, and clients
/// limit those (16 KiB in many).
const VIOLATIONS_MAX: usize = 16;
/// Longest text in a detail, in bytes. `VIOLATIONS_MAX` of these still fit.
const TEXT_BYTES_MAX: usize = 300;

/// Whether the operation may have been applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Determinacy {
    /// This call changed nothing, and never will.
    NotApplied,
    /// It may have been applied, or may be applied yet.
    MaybeApplied,
}

impl Determinacy {
    fn as_str(self) -> &'static str {
        match self {
            Self::NotApplied => reason::NOT_APPLIED,
            Self::MaybeApplied => reason::MAYBE_APPLIED,
        }
    }
}

/// One field of a request that breaks a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldViolation {
    /// Path of the field: `mutations[3].put.key`.
    pub field: String,
    /// The rule, with the limit and what was found.
    pub rule: String,
}

impl FieldViolation {
    /// Names a field and the rule that it breaks.
    pub fn new(field: impl Into<String>, rule: impl Into<String>) -> Self {
        Self { field: field.into(), rule: rule.into() }
    }
}

/// `FIELD_INVALID`: the caller mends the request.
pub fn field_invalid(violations: impl IntoIterator<Item = FieldViolation>) -> Status {
    let mut refusal = Refusal::new(reason::FIELD_INVALID, Code::InvalidArgument);
    let mut message = String::from("invalid request");
    for (i, violation) in violations.into_iter().take(VIOLATIONS_MAX).enumerate() {
        let rule = shortened(&violation.rule);
        message += if i == 0 { ": " } else { "; " };
        message = message + &violation.field + ": " + rule;
        refusal.details.add_bad_request_violation(violation.field, rule);
    }
    refusal.say(message)
}

/// `OPERATION_ID_REUSED`: the id belongs to another request.
pub fn operation_id_reused(operation_id: &str) -> Status {
    Refusal::new(reason::OPERATION_ID_REUSED, Code::InvalidArgument)
        .say(format!("operation id {operation_id} was used by a different request"))
}

/// `HISTORY_MISSING`: there is none of this name, or it has another id than the
/// one asked for.
pub fn history_missing(name: &str, detail: &str) -> Status {
    let mut refusal = Refusal::new(reason::HISTORY_MISSING, Code::NotFound);
    refusal.details.set_resource_info("history", name, "", shortened(detail));
    refusal.say(format!("no history {name}: {detail}"))
}

/// `HISTORY_EXISTS`: there is one of this name, or one that is being deleted
/// still has it.
pub fn history_exists(name: &str, detail: &str) -> Status {
    let mut refusal = Refusal::new(reason::HISTORY_EXISTS, Code::AlreadyExists);
    refusal.details.set_resource_info("history", name, "", shortened(detail));
    refusal.say(format!("the name {name} is taken: {detail}"))
}

/// `PIN_EXISTS`: the name is on another version.
pub fn pin_exists(name: &str, version: u64) -> Status {
    let mut refusal = Refusal::new(reason::PIN_EXISTS, Code::AlreadyExists);
    refusal.details.set_resource_info("pin", name, "", "");
    refusal.say(format!("the pin {name} is on version {version}; take it away first"))
}

/// `PIN_MISSING`: there is none of this name.
pub fn pin_missing(name: &str) -> Status {
    let mut refusal = Refusal::new(reason::PIN_MISSING, Code::NotFound);
    refusal.details.set_resource_info("pin", name, "", "");
    refusal.say(format!("there is no pin {name}"))
}

/// `PINS_FULL`: the head takes no more.
pub fn pins_full(limit: usize) -> Status {
    let mut refusal = Refusal::new(reason::PINS_FULL, Code::ResourceExhausted);
    refusal.details.add_quota_failure_violation("pins of the history", limit.to_string());
    refusal.say(format!("the history has {limit} pins, and takes no more: take one away first"))
}

/// `HISTORY_NEEDED`: `child` was forked from it, and still needs its objects.
pub fn history_needed(child: &str) -> Status {
    let mut refusal = Refusal::new(reason::HISTORY_NEEDED, Code::FailedPrecondition);
    refusal.details.set_resource_info("history", child, "", "forked, and not apart yet");
    refusal.say(format!(
        "{child} was forked from the history and still needs it; delete that one first, or wait \
         until its compactions have replaced what it took over"
    ))
}

/// `HEAD_CONTENDED`: other writers kept winning.
pub fn head_contended(retry_after: Duration) -> Status {
    Refusal::new(reason::HEAD_CONTENDED, Code::Aborted)
        .retry_after(retry_after)
        .say("other writers kept replacing the head; send the same operation again")
}

/// `QUEUE_FULL`; `subject` is what is full, `limit` says how much fits.
pub fn queue_full(subject: &str, limit: &str, retry_after: Duration) -> Status {
    let mut refusal = Refusal::new(reason::QUEUE_FULL, Code::ResourceExhausted);
    refusal.details.add_quota_failure_violation(subject, shortened(limit));
    refusal.retry_after(retry_after).say(format!("{subject} is full ({limit})"))
}

/// `TOO_MANY_REQUESTS`; `subject` is what there is too much of, `limit` says how
/// much is taken.
pub fn too_many_requests(subject: &str, limit: &str, retry_after: Duration) -> Status {
    let mut refusal = Refusal::new(reason::TOO_MANY_REQUESTS, Code::ResourceExhausted);
    refusal.details.add_quota_failure_violation(subject, shortened(limit));
    refusal.retry_after(retry_after).say(format!("{subject}: the limit is {limit}"))
}

/// `MESSAGE_TOO_LARGE`: no retry helps.
pub fn message_too_large(len: usize, max: usize) -> Status {
    let mut refusal = Refusal::new(reason::MESSAGE_TOO_LARGE, Code::ResourceExhausted);
    refusal.details.add_quota_failure_violation("bytes of a message", max.to_string());
    refusal.say(format!("the message is {len} bytes long, the limit is {max}"))
}

/// `HEAD_TOO_LARGE`: maintenance has to make room first.
pub fn head_too_large(history: &str, limit: &str, retry_after: Duration) -> Status {
    let mut refusal = Refusal::new(reason::HEAD_TOO_LARGE, Code::ResourceExhausted);
    refusal.details.add_quota_failure_violation(history, shortened(limit));
    refusal
        .retry_after(retry_after)
        .say(format!("the head of {history} has reached its limit ({limit})"))
}

/// `STORE_UNAVAILABLE`: nothing was published, and nothing is in doubt.
pub fn store_unavailable(detail: &str, retry_after: Duration) -> Status {
    Refusal::new(reason::STORE_UNAVAILABLE, Code::Unavailable)
        .retry_after(retry_after)
        .say(format!("object store is unavailable: {}", shortened(detail)))
}

/// `SHUTTING_DOWN`: this process drains; the call was not begun.
pub fn shutting_down() -> Status {
    Refusal::new(reason::SHUTTING_DOWN, Code::Unavailable)
        .retry_after(Duration::ZERO)
        .say("this process is shutting down; ask another")
}

/// `PUBLICATION_IN_DOUBT`: the same operation id, sent again, finds out.
pub fn publication_in_doubt(retry_after: Duration) -> Status {
    Refusal::new(reason::PUBLICATION_IN_DOUBT, Code::Unavailable)
        .maybe_applied()
        .retry_after(retry_after)
        .say("a publication may have been applied; send the same operation again to find out")
}

/// `FRESHNESS_UNVERIFIED`: the store could not be asked.
pub fn freshness_unverified(detail: &str, retry_after: Duration) -> Status {
    Refusal::new(reason::FRESHNESS_UNVERIFIED, Code::Unavailable)
        .retry_after(retry_after)
        .say(format!("freshness could not be proved: {}", shortened(detail)))
}

/// `EXPIRED`: the deadline passed and nothing was published.
pub fn expired(detail: &str) -> Status {
    Refusal::new(reason::EXPIRED, Code::DeadlineExceeded)
        .say(format!("the deadline passed: {}", shortened(detail)))
}

/// `VERSION_RETIRED`: the oldest version at hand is another.
pub fn version_retired(wanted: u64, oldest: u64, newest: u64) -> Status {
    Refusal::new(reason::VERSION_RETIRED, Code::OutOfRange)
        .number(reason::OLDEST_VERSION, oldest)
        .number(reason::NEWEST_VERSION, newest)
        .say(format!("version {wanted} is not at hand; the oldest that is, is {oldest}"))
}

/// `VERSION_AHEAD`: the version does not exist yet.
pub fn version_ahead(wanted: u64, oldest: u64, newest: u64) -> Status {
    Refusal::new(reason::VERSION_AHEAD, Code::OutOfRange)
        .number(reason::OLDEST_VERSION, oldest)
        .number(reason::NEWEST_VERSION, newest)
        .say(format!("version {wanted} does not exist yet; the newest is {newest}"))
}

/// `WATCHER_SLOW`: the caller of a watch did not read.
pub fn watcher_slow(stalled: Duration) -> Status {
    Refusal::new(reason::WATCHER_SLOW, Code::Aborted).retry_after(Duration::ZERO).say(format!(
        "nothing was read for {} ms while there was something to send; go on from where it ended",
        stalled.as_millis()
    ))
}

/// `FENCED`: another owner has taken over.
pub fn fenced(current_epoch: u64) -> Status {
    Refusal::new(reason::FENCED, Code::FailedPrecondition)
        .number(reason::WRITER_EPOCH, current_epoch)
        .say(format!("the history's writer epoch is {current_epoch}"))
}

/// `FORMAT_TOO_NEW`: a newer build wrote this.
pub fn format_too_new(object_key: &str, format: u64) -> Status {
    Refusal::new(reason::FORMAT_TOO_NEW, Code::FailedPrecondition)
        .text(reason::OBJECT_KEY, object_key)
        .number(reason::FORMAT, format)
        .say(format!("{object_key} has format {format}; a newer build is needed"))
}

/// `STORED_DATA_BAD`: an operator has to look. For a submission, `determinacy`
/// says whether a publication was in doubt when the damage was met; a read has
/// applied nothing.
pub fn stored_data_bad(object_key: &str, detail: &str, determinacy: Determinacy) -> Status {
    let mut refusal = Refusal::new(reason::STORED_DATA_BAD, Code::DataLoss);
    refusal.determinacy = determinacy;
    refusal
        .text(reason::OBJECT_KEY, object_key)
        .say(format!("stored object {object_key} is bad: {}", shortened(detail)))
}

/// `PERMISSION_DENIED`: the store refuses this process, or policy this caller.
pub fn permission_denied(detail: &str) -> Status {
    Refusal::new(reason::PERMISSION_DENIED, Code::PermissionDenied)
        .say(format!("permission denied: {}", shortened(detail)))
}

/// `UNAUTHENTICATED`.
pub fn unauthenticated(detail: &str) -> Status {
    Refusal::new(reason::UNAUTHENTICATED, Code::Unauthenticated)
        .say(format!("unauthenticated: {}", shortened(detail)))
}

/// `UNAUTHENTICATED`, of a stream that was under way: its caller's rights are
/// others by now. What it had sent may have been applied, and it may call again
/// with what it has now.
pub fn rights_changed() -> Status {
    Refusal::new(reason::UNAUTHENTICATED, Code::Unauthenticated)
        .maybe_applied()
        .retry_after(Duration::ZERO)
        .say("the rights that this call began with have changed or ended; call again")
}

/// The end of a watch: `status`, with the version to go on after.
pub fn with_resume(status: &Status, after: u64) -> Status {
    let mut details = status.get_error_details();
    if let Some(mut info) = details.error_info().cloned() {
        info.metadata.insert(reason::RESUME_AFTER_VERSION.to_owned(), after.to_string());
        details.set_error_info(info.reason, info.domain, info.metadata);
    }
    Status::with_error_details(status.code(), status.message(), details)
}

/// `status` as the bytes of a `google.rpc.Status`, details included: what
/// `SubmitStreamResponse.error_status` holds.
pub fn to_bytes(status: &Status) -> Bytes {
    // The details of a rich status are the whole message already.
    if !status.details().is_empty() {
        return Bytes::copy_from_slice(status.details());
    }
    let bare = tonic_types::Status {
        code: status.code() as i32,
        message: status.message().to_owned(),
        details: Vec::new(),
    };
    bare.encode_to_vec().into()
}

/// A status in the making. Not applied, until it says otherwise.
struct Refusal {
    reason: &'static str,
    code: Code,
    determinacy: Determinacy,
    metadata: HashMap<String, String>,
    details: ErrorDetails,
}

impl Refusal {
    fn new(reason: &'static str, code: Code) -> Self {
        Self {
            reason,
            code,
            determinacy: Determinacy::NotApplied,
            metadata: HashMap::new(),
            details: ErrorDetails::new(),
        }
    }

    fn maybe_applied(mut self) -> Self {
        self.determinacy = Determinacy::MaybeApplied;
        self
    }

    fn retry_after(mut self, delay: Duration) -> Self {
        self.details.set_retry_info(Some(delay));
        self
    }

    fn number(self, key: &str, value: u64) -> Self {
        self.text(key, &value.to_string())
    }

    fn text(mut self, key: &str, value: &str) -> Self {
        self.metadata.insert(key.to_owned(), shortened(value).to_owned());
        self
    }

    fn say(mut self, message: impl Into<String>) -> Status {
        let determinacy = self.determinacy.as_str().to_owned();
        self.metadata.insert(reason::DETERMINACY.to_owned(), determinacy);
        self.details.set_error_info(self.reason, reason::DOMAIN, self.metadata);
        Status::with_error_details(self.code, message, self.details)
    }
}

/// `text`, cut so that it fits a header.
fn shortened(text: &str) -> &str {
    let ends = text.char_indices().map(|(at, it)| at + it.len_utf8());
    &text[..ends.take_while(|&end| end <= TEXT_BYTES_MAX).last().unwrap_or(0)]
}

#[cfg(test)]
#[path = "status_test.rs"]
mod tests;
