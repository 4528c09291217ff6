//! The part of a conduct that shows on the wire, around what the bucket does.

use std::time::{Duration, SystemTime};

use bytes::Bytes;
use http::header::{
    AUTHORIZATION, CONTENT_LENGTH, CONTENT_TYPE, DATE, IF_MATCH, IF_NONE_MATCH, RANGE, RETRY_AFTER,
};
use http::{HeaderValue, Request, Response, StatusCode};
use s3s::dto::TimestampFormat;
use s3s::{Body, S3Error, s3_error};

use crate::conduct::{Compared, ConditionalReads, Conduct, Ranges, Refusal};
use crate::keys::formatted;
use crate::op::Op;

/// What no tag is: neither an MD5 nor a number.
const NO_TAG: HeaderValue = HeaderValue::from_static("\"no tag is like this\"");

/// Refuses a request, or makes it one that the bucket takes as the conduct has
/// it.
pub(crate) fn before(conduct: &Conduct, op: Op, request: &mut Request<Bytes>) -> Option<S3Error> {
    let key_id = key_id(request);
    let is_put_denied = op == Op::Upload && conduct.denies(Op::Put, key_id);
    if is_put_denied || conduct.denies(op, key_id) {
        return Some(s3_error!(AccessDenied, "the policy of this test does not allow {op:?}"));
    }
    if op == Op::Put
        && let Some(condition) = request.headers().get(IF_MATCH).cloned()
        && let Some(other) = compared(conduct.compared, &condition)
    {
        // It was signed with the other header.
        request.headers_mut().remove(AUTHORIZATION);
        request.headers_mut().insert(IF_MATCH, other);
    }
    let ignores_conditions = conduct.conditional_reads == ConditionalReads::Ignored;
    let ignores_ranges = conduct.ranges == Ranges::Ignored;
    for (name, is_ignored) in [(IF_NONE_MATCH, ignores_conditions), (RANGE, ignores_ranges)] {
        if op == Op::Get
            && is_ignored
            && request.headers_mut().remove(name).is_some()
            && is_signed(request)
        {
            // It was signed with the header.
            request.headers_mut().remove(AUTHORIZATION);
        }
    }
    None
}

/// Whether the headers are signed, and not a token sent along.
fn is_signed(request: &Request<Bytes>) -> bool {
    key_id(request).is_some()
}

/// Who says to have signed (AWS, "Authenticating requests: using the
/// Authorization header"). Whether it is true is found out later.
fn key_id(request: &Request<Bytes>) -> Option<&str> {
    let authorization = request.headers().get(AUTHORIZATION)?.to_str().ok()?;
    authorization.split_once("Credential=")?.1.split('/').next()
}

/// What If-Match is replaced by, so that quoted tags can be compared with it;
/// `None` where it may stay.
fn compared(form: Compared, condition: &HeaderValue) -> Option<HeaderValue> {
    let bytes = condition.as_bytes();
    if bytes == b"*" {
        return None;
    }
    let is_quoted = bytes.ends_with(b"\"");
    match (form, is_quoted) {
        (Compared::Both | Compared::Quoted, true) => None,
        (Compared::Unquoted, true) | (Compared::Quoted, false) => Some(NO_TAG),
        (Compared::Both | Compared::Unquoted, false) => {
            let quoted = [b"\"", bytes, b"\""].concat();
            Some(HeaderValue::from_bytes(&quoted).unwrap_or(NO_TAG))
        }
    }
}

/// Changes an answer as the conduct has it.
pub(crate) fn after(conduct: &Conduct, op: Op, answer: &mut Response<Body>) {
    let is_refusal = op == Op::Put && answer.status() == StatusCode::PRECONDITION_FAILED;
    if is_refusal && conduct.refusal == Refusal::NotModified {
        *answer.status_mut() = StatusCode::NOT_MODIFIED;
        *answer.body_mut() = Body::empty();
        answer.headers_mut().remove(CONTENT_LENGTH);
        answer.headers_mut().remove(CONTENT_TYPE);
    }
    if let Some(limit) = conduct.limit
        && let Some(seconds) = limit.retry_after_s
        && answer.status().as_u16() == limit.status
    {
        answer.headers_mut().insert(RETRY_AFTER, HeaderValue::from(seconds));
    }
    if conduct.clock_ahead_s != 0
        && let Ok(date) = HeaderValue::from_str(&date(conduct.clock_ahead_s))
    {
        answer.headers_mut().insert(DATE, date);
    }
}

#[expect(clippy::disallowed_methods, reason = "a clock that is wrong is told by one that is not")]
fn date(ahead_s: i64) -> String {
    let by = Duration::from_secs(ahead_s.unsigned_abs());
    let now = SystemTime::now();
    let told = if ahead_s < 0 { now.checked_sub(by) } else { now.checked_add(by) };
    formatted(told.unwrap_or(now), TimestampFormat::HttpDate)
}
