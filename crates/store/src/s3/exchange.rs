//! What was sent for one call, and what came back, below `object_store`.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use futures::StreamExt as _;
use http::header::RETRY_AFTER;
use http::{Extensions, HeaderMap, Method, StatusCode};
use object_store::ClientOptions;
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpRequest, HttpResponse, HttpService, ReqwestConnector,
};

/// One call, as the wire saw it. Clones are the same exchange.
#[derive(Clone, Debug, Default)]
pub(super) struct Exchange(Arc<Mutex<Seen>>);

#[derive(Debug, Default)]
struct Seen {
    n_sent: u32,
    status: Option<StatusCode>,
    retry_after: Option<Duration>,
    is_bucket_missing: bool,
}

tokio::task_local! {
    /// The exchange of a deletion: `object_store` 0.14 carries no extensions
    /// through `delete_stream`.
    static DELETION: Exchange;
}

impl Exchange {
    /// For the `extensions` of a call's options, which `object_store` hands to
    /// the request that it makes, and to no other: not to those that fetch
    /// credentials.
    pub(super) fn extensions(&self) -> Extensions {
        let mut extensions = Extensions::new();
        extensions.insert(self.clone());
        extensions
    }

    /// Makes this the exchange of the deletions that `call` sends.
    pub(super) async fn around<T>(&self, call: impl Future<Output = T>) -> T {
        DELETION.scope(self.clone(), call).await
    }

    /// The status of the answer, if one request was sent and answered. Of two
    /// answers neither proves anything: the first request may have caused what
    /// the second one met.
    pub(super) fn status(&self) -> Option<StatusCode> {
        let seen = self.seen();
        seen.status.filter(|_| seen.n_sent == 1)
    }

    /// How long the store asked to be left alone, if it said so in seconds.
    pub(super) fn retry_after(&self) -> Option<Duration> {
        self.seen().retry_after
    }

    /// Whether the answer was a 404 that blamed the bucket and not the key.
    pub(super) fn is_bucket_missing(&self) -> bool {
        self.seen().is_bucket_missing
    }

    #[cfg(test)]
    pub(super) fn answered(n_sent: u32, status: StatusCode) -> Self {
        let seen = Seen { n_sent, status: Some(status), ..Seen::default() };
        Self(Arc::new(Mutex::new(seen)))
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn of(request: &HttpRequest) -> Option<Self> {
        request.extensions().get::<Self>().cloned().or_else(|| {
            // Credentials are fetched by other methods.
            let is_deletion = request.method() == Method::DELETE;
            is_deletion.then(|| DELETION.try_with(Self::clone).ok()).flatten()
        })
    }
}

/// Makes clients that note what passes.
#[derive(Debug, Default)]
pub(super) struct NotingConnector(ReqwestConnector);

// One request a call, below here too:
// - reqwest 0.13 repeats by default only what an HTTP/2 server says it did not
//   process (src/retry.rs); object_store keeps to HTTP/1.1 (`http1_only`).
// - hyper-util 0.1 sends a request again on another connection only when the
//   pooled one closed before it took the request off its queue, so that no byte
//   of it was sent (`TrySendError::Retryable` in src/client/legacy/client.rs).
// - reqwest follows redirects. S3 redirects before it processes.
impl HttpConnector for NotingConnector {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        Ok(HttpClient::new(Noting(self.0.connect(options)?)))
    }
}

#[derive(Debug)]
struct Noting(HttpClient);

#[async_trait]
impl HttpService for Noting {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let Some(exchange) = Exchange::of(&request) else {
            return self.0.execute(request).await;
        };
        exchange.seen().n_sent += 1;
        let mut answer = self.0.execute(request).await;
        let mut is_bucket_missing = false;
        if let Ok(found) = &mut answer
            && found.status() == StatusCode::NOT_FOUND
        {
            let start = take_start(found).await;
            is_bucket_missing = error_code(&start) == Some(NO_SUCH_BUCKET);
            *found.body_mut() = start.into();
        }
        let mut seen = exchange.seen();
        seen.status = answer.as_ref().ok().map(HttpResponse::status);
        seen.retry_after = answer.as_ref().ok().and_then(|it| seconds(it.headers()));
        seen.is_bucket_missing = is_bucket_missing;
        drop(seen);
        answer
    }
}

/// What S3 calls a bucket that does not exist.
const NO_SUCH_BUCKET: &[u8] = b"NoSuchBucket";

/// How much of a 404's body is read. S3's errors take a few hundred bytes; what
/// is longer is a page of some proxy, and names no bucket.
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
/// "Error responses").
fn error_code(document: &[u8]) -> Option<&[u8]> {
    let (open, close) = (b"<Code>".as_slice(), b"</Code>".as_slice());
    let from = find(document, open)? + open.len();
    let code = &document[from..];
    Some(code[..find(code, close)?].trim_ascii())
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
        assert_eq!(error_code(document), Some(NO_SUCH_BUCKET));
        let nothing: [&[u8]; 4] = [b"", b"NoSuchBucket", b"<Code>NoSuchBucket", b"</Code><Code>"];
        for document in nothing {
            assert_eq!(error_code(document), None);
        }
        // A key may hold anything; the code comes before it.
        let document = b"<Code>NoSuchKey</Code><Key>&lt;Code>NoSuchBucket</Code></Key>";
        assert_eq!(error_code(document), Some(b"NoSuchKey".as_slice()));
    }

    #[tokio::test]
    async fn of_a_long_body_the_start_is_read() {
        let mut answer = not_found(vec![b'x'; 1 << 20]);
        assert_eq!(take_start(&mut answer).await.len(), ERROR_LEN_BYTES_MAX);
        let mut answer = not_found("short");
        assert_eq!(take_start(&mut answer).await, "short");
    }
}
