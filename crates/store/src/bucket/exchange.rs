//! What was sent for one call, and what came back, below `object_store`.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use futures::StreamExt as _;
use http::header::{IF_NONE_MATCH, RETRY_AFTER};
use http::{Extensions, HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use object_store::ClientOptions;
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpRequest, HttpResponse, HttpService, ReqwestConnector,
};

/// One call, as the wire saw it. Clones are the same exchange.
#[derive(Clone, Debug, Default)]
pub struct Exchange(Arc<Mutex<Seen>>);

#[derive(Debug, Default)]
struct Seen {
    n_sent: u32,
    status: Option<StatusCode>,
    retry_after: Option<Duration>,
    code: Option<String>,
}

tokio::task_local! {
    /// The exchange of a call that `object_store` 0.14 carries no extensions
    /// through: `delete_stream`, and all of a multipart upload but its start.
    static SCOPE: Scope;
}

#[derive(Clone, Debug)]
struct Scope {
    exchange: Exchange,
    /// Whether the completion of an upload is conditioned.
    is_creation: bool,
}

impl Exchange {
    /// For the `extensions` of a call's options, which `object_store` hands to
    /// the request that it makes, and to no other.
    pub(crate) fn extensions(&self) -> Extensions {
        let mut extensions = Extensions::new();
        extensions.insert(self.clone());
        extensions
    }

    /// Makes this the exchange of the deletion, or of the step of a multipart
    /// upload, that `call` is.
    pub(crate) async fn around<T>(&self, call: impl Future<Output = T>) -> T {
        SCOPE.scope(Scope { exchange: self.clone(), is_creation: false }, call).await
    }

    /// As [`Exchange::around`], and the completion of a multipart upload that
    /// `call` is creates the object if there is none.
    pub(crate) async fn around_creation<T>(&self, call: impl Future<Output = T>) -> T {
        SCOPE.scope(Scope { exchange: self.clone(), is_creation: true }, call).await
    }

    /// The status of the answer, if one request was sent and answered. Of two
    /// answers neither proves anything: the first request may have caused what
    /// the second one met.
    pub(crate) fn status(&self) -> Option<StatusCode> {
        let seen = self.seen();
        seen.status.filter(|_| seen.n_sent == 1)
    }

    /// How long the store asked to be left alone, if it said so in seconds.
    pub(crate) fn retry_after(&self) -> Option<Duration> {
        self.seen().retry_after
    }

    /// What the store called the error, in its own word; empty where it said
    /// none, or something that is no word.
    pub(crate) fn code(&self) -> String {
        self.seen().code.clone().unwrap_or_default()
    }

    #[cfg(test)]
    pub(crate) fn answered(n_sent: u32, status: StatusCode, code: &str) -> Self {
        let (status, code) = (Some(status), Some(code.to_owned()));
        let seen = Seen { n_sent, status, code, ..Seen::default() };
        Self(Arc::new(Mutex::new(seen)))
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The exchange that a request belongs to. None to those that fetch
    /// credentials, which go on within a call too.
    fn of(request: &mut HttpRequest) -> Option<Self> {
        if let Some(exchange) = request.extensions().get::<Self>() {
            return Some(exchange.clone());
        }
        let scope = SCOPE.try_with(Scope::clone).ok()?;
        let query = request.uri().query().unwrap_or_default();
        let mut names = query.split('&').filter_map(|it| it.split('=').next());
        let is_of_upload = names.any(|it| it == "uploadId" || it == "uploads");
        if scope.is_creation && is_of_upload && request.method() == Method::POST {
            // object_store 0.14.2 completes without a condition but in its own
            // copy_if_not_exists, where it adds this header as here, after the
            // signature (src/aws/client.rs): only `x-amz-` headers have to be
            // signed (AWS, "Create a signed request", canonical headers).
            request.headers_mut().insert(IF_NONE_MATCH, HeaderValue::from_static("*"));
        }
        let is_ours = is_of_upload || request.method() == Method::DELETE;
        is_ours.then_some(scope.exchange)
    }
}

/// Makes clients that note what passes, and keeps the last one: that which the
/// builder made for the bucket, after those that fetch credentials.
#[derive(Clone, Debug)]
pub(crate) struct NotingConnector {
    connector: Arc<dyn HttpConnector>,
    last: Arc<Mutex<Option<HttpClient>>>,
}

impl Default for NotingConnector {
    fn default() -> Self {
        Self::over(ReqwestConnector::default())
    }
}

impl NotingConnector {
    pub(crate) fn over(connector: impl HttpConnector) -> Self {
        Self { connector: Arc::new(connector), last: Arc::default() }
    }

    /// The client that was made last, for requests that `object_store` does not
    /// make; `None` before a builder made one.
    pub(crate) fn client(&self) -> Option<HttpClient> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

// One request a call, below here too:
// - reqwest 0.13 repeats by default only what an HTTP/2 server says it did not
//   process (src/retry.rs); object_store keeps to HTTP/1.1 (`http1_only`).
// - hyper-util 0.1 sends a request again on another connection only when the
//   pooled one closed before it took the request off its queue, so that no byte
//   of it was sent (`TrySendError::Retryable` in src/client/legacy/client.rs).
// - reqwest follows redirects. Stores redirect before they process.
impl HttpConnector for NotingConnector {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        let client = HttpClient::new(Noting(self.connector.connect(options)?));
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = Some(client.clone());
        Ok(client)
    }
}

/// Notes what passes through another client.
#[derive(Debug)]
pub(crate) struct Noting(pub(crate) HttpClient);

#[async_trait]
impl HttpService for Noting {
    async fn call(&self, mut request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let Some(exchange) = Exchange::of(&mut request) else {
            return self.0.execute(request).await;
        };
        exchange.seen().n_sent += 1;
        let mut answer = self.0.execute(request).await;
        let mut code = None;
        if let Ok(found) = &mut answer
            && found.status().is_client_error()
        {
            let start = take_start(found).await;
            code = header_code(found.headers()).or_else(|| error_code(&start));
            *found.body_mut() = start.into();
        }
        let mut seen = exchange.seen();
        seen.status = answer.as_ref().ok().map(HttpResponse::status);
        seen.retry_after = answer.as_ref().ok().and_then(|it| seconds(it.headers()));
        seen.code = code;
        drop(seen);
        answer
    }
}

/// Where Azure puts the code of an error (Blob service REST API, "Status and
/// error codes").
const ERROR_CODE: HeaderName = HeaderName::from_static("x-ms-error-code");

fn header_code(headers: &HeaderMap) -> Option<String> {
    word(headers.get(ERROR_CODE)?.as_bytes())
}

/// A code as stores have them: letters and digits, and few of them.
fn word(bytes: &[u8]) -> Option<String> {
    let is_word = bytes.len() <= 64 && bytes.iter().all(u8::is_ascii_alphanumeric);
    is_word.then(|| String::from_utf8_lossy(bytes).into_owned())
}

/// How much of an error's body is read. Errors of stores take a few hundred
/// bytes; what is longer is a page of some proxy, and has no code.
const ERROR_LEN_BYTES_MAX: usize = 4 << 10;

/// The start of a body, as far as it can be read: what names the trouble is not
/// worth another error.
async fn take_start(answer: &mut HttpResponse) -> Bytes {
    let body = std::mem::replace(answer.body_mut(), Bytes::new().into());
    let mut parts = body.bytes_stream();
    let mut start = BytesMut::new();
    while start.len() < ERROR_LEN_BYTES_MAX
        && let Some(Ok(part)) = parts.next().await
    {
        let room = ERROR_LEN_BYTES_MAX - start.len();
        start.extend_from_slice(&part[..part.len().min(room)]);
    }
    start.freeze()
}

/// The `Code` of an error document, the first one in it (S3's API reference,
/// "Error responses"; that of GCS's XML API has the same form).
fn error_code(document: &[u8]) -> Option<String> {
    let (open, close) = (b"<Code>".as_slice(), b"</Code>".as_slice());
    let from = find(document, open)? + open.len();
    let code = &document[from..];
    word(code[..find(code, close)?].trim_ascii())
}

fn find(bytes: &[u8], part: &[u8]) -> Option<usize> {
    bytes.windows(part.len()).position(|it| it == part)
}

/// Retry-After in seconds. The other form is a date, which would need a clock
/// that agrees with the store's.
fn seconds(headers: &HeaderMap) -> Option<Duration> {
    let text = headers.get(RETRY_AFTER)?.to_str().ok()?;
    text.trim().parse().ok().map(Duration::from_secs)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn not_found(body: impl Into<Bytes>) -> HttpResponse {
        HttpResponse::new(body.into().into())
    }

    #[test]
    fn the_code_of_an_error_document_is_found() {
        let document = b"<?xml version=\"1.0\"?><Error> <Code>\n NoSuchBucket </Code><Key>k</Key>";
        assert_eq!(error_code(document).as_deref(), Some("NoSuchBucket"));
        let nothing: [&[u8]; 5] = [
            b"",
            b"NoSuchBucket",
            b"<Code>NoSuchBucket",
            b"</Code><Code>",
            b"<Code>No such bucket</Code>",
        ];
        for document in nothing {
            assert_eq!(error_code(document), None);
        }
        // A key may hold anything; the code comes before it.
        let document = b"<Code>NoSuchKey</Code><Key>&lt;Code>NoSuchBucket</Code></Key>";
        assert_eq!(error_code(document), Some("NoSuchKey".into()));
    }

    #[test]
    fn a_code_in_a_header_is_found() {
        let mut headers = HeaderMap::new();
        assert_eq!(header_code(&headers), None);
        headers.insert(ERROR_CODE, "BlobAlreadyExists".parse().unwrap());
        assert_eq!(header_code(&headers).as_deref(), Some("BlobAlreadyExists"));
    }

    #[tokio::test]
    async fn of_a_long_body_the_start_is_read() {
        let mut answer = not_found(vec![b'x'; 1 << 20]);
        assert_eq!(take_start(&mut answer).await.len(), ERROR_LEN_BYTES_MAX);
        let mut answer = not_found("short");
        assert_eq!(take_start(&mut answer).await, "short");
    }
}
