//! What was sent for one call, and what came back, below `object_store`.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
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

    #[cfg(test)]
    pub(super) fn answered(n_sent: u32, status: StatusCode) -> Self {
        let retry_after = None;
        Self(Arc::new(Mutex::new(Seen { n_sent, status: Some(status), retry_after })))
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
        let answer = self.0.execute(request).await;
        let mut seen = exchange.seen();
        seen.status = answer.as_ref().ok().map(HttpResponse::status);
        seen.retry_after = answer.as_ref().ok().and_then(|it| seconds(it.headers()));
        drop(seen);
        answer
    }
}

/// Retry-After in seconds. The other form is a date, which would need a clock
/// that agrees with the store's.
fn seconds(headers: &HeaderMap) -> Option<Duration> {
    let text = headers.get(RETRY_AFTER)?.to_str().ok()?;
    text.trim().parse().ok().map(Duration::from_secs)
}
