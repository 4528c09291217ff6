//! What a request meets before, after and instead of the bucket.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use futures::stream;
use http::header::{CONTENT_LENGTH, RETRY_AFTER};
use http::{HeaderValue, Response, StatusCode};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full, Limited, StreamBody};
use hyper::body::{Frame, Incoming};
use s3s::service::S3Service;
use s3s::{Body, S3Error};
use tokio_util::task::TaskTracker;

use crate::fault::{Apply, Fault, Faults, Reply};
use crate::keys::Keys;
use crate::op::Request;
use crate::stored::Objects;
use crate::{gcs, manners};

/// Largest body of a request. S3 takes 5 GiB; tests stay far below.
const BODY_LEN_BYTES_MAX: usize = 256 * 1024 * 1024;

/// Requests that the log keeps.
const LOG_MAX: usize = 1_000_000;

/// A body as it goes out.
pub(crate) type Out = BoxBody<Bytes, io::Error>;

/// The connection ends without an answer, as a fault ordered.
#[derive(Debug, thiserror::Error)]
#[error("a fault ended the connection")]
pub(crate) struct Cut;

/// What is spoken.
#[derive(Clone)]
pub(crate) enum Api {
    S3(S3Service),
    Gcs,
}

/// Everything between the socket and the bucket. Clones share it.
#[derive(Clone)]
pub(crate) struct Front {
    pub(crate) api: Api,
    pub(crate) faults: Faults,
    pub(crate) objects: Objects,
    pub(crate) keys: Keys,
    /// The last requests, oldest first.
    pub(crate) log: Arc<Mutex<VecDeque<Request>>>,
    /// Requests are applied in tasks of their own: a client that goes away does
    /// not take back what it sent.
    pub(crate) tasks: TaskTracker,
}

type Whole = http::Request<Bytes>;

impl Front {
    /// Serves one request. `is_reset` is set where the connection is to end with
    /// a reset.
    pub(crate) async fn serve(
        &self,
        request: http::Request<Incoming>,
        is_reset: &AtomicBool,
    ) -> Result<Response<Out>, Cut> {
        if let Some(keys) = self.keys.serve(request.method(), request.uri().path()) {
            return Ok(Response::new(full(keys)));
        }
        let named = Request::of(request.method(), request.uri());
        let (parts, body) = request.into_parts();
        let Ok(body) = Limited::new(body, BODY_LEN_BYTES_MAX).collect().await else {
            return Err(Cut);
        };
        let whole = http::Request::from_parts(parts, body.to_bytes());
        let fault = self.faults.take(&named).unwrap_or(const { Fault::none() });
        self.note(named);

        let front = self.clone();
        let reply = fault.reply.clone();
        let applying = self.tasks.spawn(async move { front.apply(whole, fault).await });
        let Ok(answer) = applying.await else { return Err(Cut) };
        match reply {
            Reply::Answer => answer.ok_or(Cut),
            Reply::HalfBody => Ok(halve(answer.ok_or(Cut)?)),
            Reply::Close => Err(Cut),
            Reply::Reset => {
                is_reset.store(true, Ordering::Relaxed);
                Err(Cut)
            }
            Reply::Status { status, retry_after_s } => Ok(status_only(status, retry_after_s)),
        }
    }

    /// Applies a request as often as the fault has it, and waits as it has it.
    async fn apply(&self, request: Whole, fault: Fault) -> Option<Response<Out>> {
        if let Some(wait) = &fault.before {
            wait.end().await;
        }
        let answer = match fault.apply {
            Apply::Never => None,
            Apply::Once => self.send(request).await,
            Apply::Twice => {
                drop(self.send(request.clone()).await);
                self.send(request).await
            }
            Apply::Late(wait) => {
                let front = self.clone();
                self.tasks.spawn(async move {
                    wait.end().await;
                    drop(front.send(request).await);
                });
                None
            }
        };
        if let Some(wait) = &fault.after {
            wait.end().await;
        }
        answer
    }

    async fn send(&self, mut request: Whole) -> Option<Response<Out>> {
        let conduct = self.objects.conduct();
        let op = Request::of(request.method(), request.uri()).op;
        let answer = if let Some(refusal) = manners::before(&conduct, op, &mut request) {
            refusal.to_http_response().map_err(|it| format!("{it:?}"))
        } else {
            match &self.api {
                Api::S3(service) => {
                    let request = request.map(Body::from);
                    service.call(request).await.map_err(|it| format!("{it:?}"))
                }
                Api::Gcs => {
                    let answer = gcs::call(&self.objects, request).await;
                    answer.or_else(S3Error::to_http_response).map_err(|it| format!("{it:?}"))
                }
            }
        };
        match answer {
            Ok(mut answer) => {
                manners::after(&conduct, op, &mut answer);
                let (parts, body) = answer.into_parts();
                let bytes = body.collect().await.ok()?.to_bytes();
                Some(Response::from_parts(parts, full(bytes)))
            }
            Err(error) => {
                tracing::warn!(error, "s3s gave no answer");
                None
            }
        }
    }

    fn note(&self, request: Request) {
        let mut log = self.log.lock().unwrap_or_else(PoisonError::into_inner);
        if log.len() == LOG_MAX {
            log.pop_front();
        }
        log.push_back(request);
    }
}

fn full(bytes: Bytes) -> Out {
    Full::new(bytes).map_err(|it: Infallible| match it {}).boxed()
}

fn status_only(status: StatusCode, retry_after_s: Option<u64>) -> Response<Out> {
    let mut answer = Response::new(full(Bytes::new()));
    *answer.status_mut() = status;
    if let Some(seconds) = retry_after_s {
        answer.headers_mut().insert(RETRY_AFTER, HeaderValue::from(seconds));
    }
    answer
}

/// Announces the whole body, sends half of it, and ends the connection.
fn halve(answer: Response<Out>) -> Response<Out> {
    let (mut parts, body) = answer.into_parts();
    let len_bytes = hyper::body::Body::size_hint(&body).exact().unwrap_or_default();
    parts.headers.insert(CONTENT_LENGTH, HeaderValue::from(len_bytes));
    let half = body.collect();
    let frames = stream::once(async move {
        let bytes = half.await?.to_bytes();
        Ok(Frame::data(bytes.slice(..bytes.len() / 2)))
    });
    let cut = stream::once(async { Err(io::Error::from(io::ErrorKind::ConnectionAborted)) });
    let body = StreamBody::new(futures::StreamExt::chain(frames, cut));
    Response::from_parts(parts, BodyExt::boxed(body))
}
