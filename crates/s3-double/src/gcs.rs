//! The XML API of Google Cloud Storage, over the same objects.
//!
//! In here: what `object_store` sends, with generations: each write gives an
//! object a number that no object ever had, a PUT is conditioned on it
//! (`x-goog-if-generation-match`, 0 where there must be none), and the `ETag` is
//! the MD5 of the bytes. Written after Google's reference of the XML API; no
//! server of Google's was asked, and none of those for tests that others offer
//! works with `object_store`. Settings are told by the JSON API, as there. Not in here: tokens that expire, other methods.

use std::borrow::Cow;

use bytes::Bytes;
use http::header::{
    AUTHORIZATION, CONTENT_RANGE, CONTENT_TYPE, ETAG, HeaderMap, IF_NONE_MATCH, LAST_MODIFIED,
    RANGE,
};
use http::{HeaderName, HeaderValue, Method, Request, Response, StatusCode};
use s3s::dto::{ETagCondition, ListObjectsV2Input, Range, TimestampFormat};
use s3s::{Body, S3Error, S3Result, s3_error};

use crate::conduct::{Conduct, LifecycleRule, Versioning};
use crate::keys::timestamp;
use crate::op::BUCKETS;
use crate::stored::{Condition, Object, Objects};
use crate::{ACCESS_TOKEN, BUCKET, listing};

const GENERATION: HeaderName = HeaderName::from_static("x-goog-generation");
const IF_GENERATION_MATCH: HeaderName = HeaderName::from_static("x-goog-if-generation-match");

/// Answers one request.
pub(crate) async fn call(objects: &Objects, request: Request<Bytes>) -> S3Result<Response<Body>> {
    let bearer = format!("Bearer {ACCESS_TOKEN}");
    if request.headers().get(AUTHORIZATION).is_none_or(|it| it.as_bytes() != bearer.as_bytes()) {
        let mut error = s3_error!(AccessDenied, "the access token is not accepted");
        error.set_status_code(StatusCode::UNAUTHORIZED);
        return Err(error);
    }
    let path = request.uri().path().trim_start_matches('/');
    if let Some(bucket) = path.strip_prefix(BUCKETS) {
        return settings(objects, bucket);
    }
    let (bucket, key) = path.split_once('/').unwrap_or((path, ""));
    if bucket != BUCKET {
        return Err(s3_error!(NoSuchBucket));
    }
    let key = decoded(key);
    match (request.method(), key.is_empty()) {
        (&Method::PUT, false) => put(objects, &key, request.headers(), request.body()).await,
        (&Method::GET | &Method::HEAD, false) => get(objects, &key, request.headers()),
        (&Method::DELETE, false) => {
            // Unlike S3, which is content where there is nothing.
            objects.find(&key, None, None)?;
            objects.stored().remove(&key);
            status(StatusCode::NO_CONTENT)
        }
        (&Method::GET, true) => list(objects, request.uri().query().unwrap_or_default()),
        _ => Err(s3_error!(MethodNotAllowed)),
    }
}

async fn put(
    objects: &Objects,
    key: &str,
    headers: &HeaderMap,
    bytes: &Bytes,
) -> S3Result<Response<Body>> {
    let generation = match headers.get(IF_GENERATION_MATCH).map(HeaderValue::to_str) {
        None => None,
        Some(text) => {
            let number = text.ok().and_then(|it| it.parse::<u64>().ok());
            Some(number.ok_or_else(|| s3_error!(InvalidArgument))?)
        }
    };
    let condition = Condition { generation, ..Condition::default() };
    let object = objects.write_object(key, &condition, bytes.clone()).await?;
    let mut answer = status(StatusCode::OK)?;
    describe(&object, answer.headers_mut())?;
    Ok(answer)
}

fn get(objects: &Objects, key: &str, headers: &HeaderMap) -> S3Result<Response<Body>> {
    let condition = headers.get(IF_NONE_MATCH).map(HeaderValue::as_bytes);
    let condition = condition.and_then(|it| ETagCondition::parse_http_header(it).ok());
    let object = objects.find(key, condition.as_ref(), None)?;
    let whole = object.bytes.len();
    let mut answer = status(StatusCode::OK)?;
    describe(&object, answer.headers_mut())?;
    let range = headers.get(RANGE).and_then(|it| it.to_str().ok());
    let bytes = match range.and_then(|it| Range::parse(it).ok()) {
        None => object.bytes,
        Some(range) => {
            let range = range.check(whole as u64)?;
            let named = format!("bytes {}-{}/{whole}", range.start, range.end - 1);
            answer.headers_mut().insert(CONTENT_RANGE, value(&named)?);
            *answer.status_mut() = StatusCode::PARTIAL_CONTENT;
            let at = |it: u64| usize::try_from(it).unwrap_or(whole);
            object.bytes.slice(at(range.start)..at(range.end))
        }
    };
    *answer.body_mut() = Body::from(bytes);
    Ok(answer)
}

fn list(objects: &Objects, query: &str) -> S3Result<Response<Body>> {
    let mut input = ListObjectsV2Input { bucket: BUCKET.into(), ..ListObjectsV2Input::default() };
    for pair in query.split('&') {
        let (name, text) = pair.split_once('=').unwrap_or((pair, ""));
        let text = decoded(&text.replace('+', " ")).into_owned();
        match name {
            "prefix" => input.prefix = Some(text),
            "delimiter" => input.delimiter = Some(text),
            "start-after" => input.start_after = Some(text),
            "continuation-token" => input.continuation_token = Some(text),
            "max-keys" => input.max_keys = text.parse().ok(),
            _ => (),
        }
    }
    let page = listing::list(objects.stored().listed(), &input);
    let objects = page.contents.unwrap_or_default().into_iter().map(|object| {
        let key = escaped(&object.key.unwrap_or_default());
        let modified = object.last_modified.as_ref();
        let modified = modified.map(|it| timestamp(it, TimestampFormat::DateTime));
        let e_tag = object.e_tag.map(|it| escaped(&format!("\"{}\"", it.value())));
        format!(
            "<Contents><Key>{key}</Key><LastModified>{}</LastModified><ETag>{}</ETag>\
             <Size>{}</Size></Contents>",
            modified.unwrap_or_default(),
            e_tag.unwrap_or_default(),
            object.size.unwrap_or_default()
        )
    });
    let folders = page.common_prefixes.unwrap_or_default().into_iter().map(|folder| {
        let prefix = escaped(&folder.prefix.unwrap_or_default());
        format!("<CommonPrefixes><Prefix>{prefix}</Prefix></CommonPrefixes>")
    });
    let token = page
        .next_continuation_token
        .map(|token| format!("<NextContinuationToken>{}</NextContinuationToken>", escaped(&token)));
    let entries: String = objects.chain(folders).chain(token).collect();
    let text = format!(
        "<?xml version='1.0' encoding='UTF-8'?><ListBucketResult>{entries}</ListBucketResult>"
    );
    let mut answer = status(StatusCode::OK)?;
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/xml"));
    *answer.body_mut() = Body::from(text);
    Ok(answer)
}

/// `Buckets: get` of the JSON API: all that is asked of a bucket itself.
fn settings(objects: &Objects, bucket: &str) -> S3Result<Response<Body>> {
    if bucket != BUCKET {
        return Err(s3_error!(NoSuchBucket));
    }
    let Conduct { versioning, lifecycle, soft_delete_days, .. } = objects.conduct();
    let is_enabled = versioning == Versioning::Enabled;
    let rules: Vec<_> = lifecycle.iter().flat_map(rules).collect();
    let seconds = u64::from(soft_delete_days) * 86_400;
    let text = format!(
        r#"{{"versioning":{{"enabled":{is_enabled}}},"lifecycle":{{"rule":[{}]}},"softDeletePolicy":{{"retentionDurationSeconds":"{seconds}"}}}}"#,
        rules.join(",")
    );
    let mut answer = status(StatusCode::OK)?;
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    *answer.body_mut() = Body::from(text);
    Ok(answer)
}

/// GCS has a rule for each of the two; names it has none.
fn rules(rule: &LifecycleRule) -> Vec<String> {
    // As strings of Rust are shown, which is JSON for what prefixes are made of.
    let prefix = &rule.prefix;
    let delete = |condition: String| {
        format!(
            r#"{{"action":{{"type":"Delete"}},"condition":{{{condition},"matchesPrefix":[{prefix:?}]}}}}"#
        )
    };
    let current = rule.expire_days.map(|days| delete(format!(r#""age":{days}"#)));
    let noncurrent =
        rule.noncurrent_days.map(|days| delete(format!(r#""daysSinceNoncurrentTime":{days}"#)));
    current.into_iter().chain(noncurrent).collect()
}

fn describe(object: &Object, headers: &mut HeaderMap) -> S3Result<()> {
    let e_tag = object.e_tag.to_http_header().map_err(S3Error::internal_error)?;
    headers.insert(ETAG, e_tag);
    headers.insert(GENERATION, HeaderValue::from(object.generation));
    let modified = timestamp(&object.modified, TimestampFormat::HttpDate);
    headers.insert(LAST_MODIFIED, value(&modified)?);
    Ok(())
}

fn value(text: &str) -> S3Result<HeaderValue> {
    HeaderValue::from_str(text).map_err(S3Error::internal_error)
}

fn status(status: StatusCode) -> S3Result<Response<Body>> {
    Response::builder().status(status).body(Body::empty()).map_err(S3Error::internal_error)
}

/// Percent-decoding. What is no escape stays.
fn decoded(text: &str) -> Cow<'_, str> {
    if !text.contains('%') {
        return text.into();
    }
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, after @ ..] = rest {
        let digits = after.get(..2).and_then(|it| str::from_utf8(it).ok());
        let escape = digits.and_then(|it| u8::from_str_radix(it, 16).ok());
        if let (b'%', Some(byte)) = (first, escape) {
            bytes.push(byte);
            rest = &after[2..];
        } else {
            bytes.push(*first);
            rest = after;
        }
    }
    String::from_utf8_lossy(&bytes).into_owned().into()
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_are_decoded_once() {
        for (text, expected) in
            [("a%2Fb%20c", "a/b c"), ("%252F", "%2F"), ("%", "%"), ("%zz%c3%a9", "%zzé"), ("", "")]
        {
            assert_eq!(decoded(text), expected);
        }
    }
}
